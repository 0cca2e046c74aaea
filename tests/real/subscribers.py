"""Subscribers of the proxy that the operator deploys with `--proxy-auth kubernetes`: what each of them is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from grpc import StatusCode
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.real.cluster import Cluster, Namespace
from tests.real.operated import SYSTEM
from tests.real.processes import until
from tests.real.workloads import App
from wigwag.operator.injection.proxytrust import AUTHORITY

HOST = f"flagd-proxy-svc.{SYSTEM}.svc"
GROUP = "core.openfeature.dev"
PATIENCE = 60.0


def token_of(
    namespace: Namespace, account: str = "default", audience: str = HOST, pod: dict[str, Any] | None = None
) -> str:
    """Return a token of a service account for an audience; it ends with a pod."""
    spec: dict[str, Any] = {"expirationSeconds": 3600, "audiences": [audience] if audience else []}
    if pod is not None:
        about = pod["metadata"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"]}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"{namespace.path('v1', 'ServiceAccount', account)}/token"
    return str(namespace.cluster.rest.call("POST", path, request).json["status"]["token"])


@dataclass(frozen=True)
class Told:
    """What the proxy answers: a document, or a code and its message."""

    document: str = ""
    code: StatusCode = StatusCode.OK
    message: str = ""


@dataclass(frozen=True)
class ProxyClient:
    """Asks the proxy of a cluster, from outside of any pod."""

    cluster: Cluster
    authority: str
    """The CAs to trust, in PEM."""

    @classmethod
    def trusting(cls, namespace: Namespace) -> ProxyClient:
        """Trust what agents of a namespace trust."""
        path = namespace.path("v1", "ConfigMap", AUTHORITY)
        until(lambda: namespace.cluster.exists(path), "the CAs of the proxy")
        return cls(namespace.cluster, namespace.cluster.get(path)["data"]["ca.crt"])

    @contextmanager
    def stub(self, *, plaintext: bool = False) -> Iterator[Any]:
        address = f"{App(Namespace(self.cluster, SYSTEM), 'flagd-proxy').ready()['status']['podIP']}:8015"
        if plaintext:
            channel = grpc.insecure_channel(address)
        else:
            credentials = grpc.ssl_channel_credentials(self.authority.encode())
            channel = grpc.secure_channel(address, credentials, [("grpc.ssl_target_name_override", HOST)])
        with channel:
            yield sync_pb2_grpc.FlagSyncServiceStub(channel)

    def ask(self, selector: str, token: str = "", *, plaintext: bool = False) -> Told:
        """Ask for the flags of a selector once."""
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        with self.stub(plaintext=plaintext) as stub:
            try:
                found = stub.FetchAllFlags(
                    sync_pb2.FetchAllFlagsRequest(selector=selector), metadata=metadata, timeout=PATIENCE
                )
            except grpc.RpcError as error:
                return Told("", error.code(), error.details() or "")
        return Told(found.flag_configuration)

    def gets(self, selector: str, token: str) -> str:
        """Wait until there are flags of a selector, and return them: the proxy has to read them first."""
        return str(until(lambda: self.ask(selector, token).document, f"the flags of {selector}"))

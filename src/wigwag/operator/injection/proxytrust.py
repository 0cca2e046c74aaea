"""How agents and the proxy trust each other with `--proxy-auth kubernetes`: what is mounted, where, and what is passed.

    agent  ── token of the pod's account, for the audience of the proxy ──▶  proxy: TokenReview, policy by namespace
    agent  ◀── certificate for the Service's name, of a CA in a ConfigMap ──  proxy: key and certificate of a Secret

Token and CA are one projected volume, which only the agent's container mounts: the kubelet replaces both while the pod
runs, and the agent reads them for each connection. The proxy mounts the two files that it serves, and never the key of
the CA, which is in the same Secret.

flagd cannot send a token, and flagd-proxy cannot check one. So this needs our image for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from wigwag.errors import UsageError
from wigwag.operator.names import AGENT, COMPONENT, MANAGED_BY, OPERATOR, PROXY, PROXY_SERVICE

if TYPE_CHECKING:
    from wigwag.operator.settings import OperatorSettings

Json: TypeAlias = Any
KUBERNETES_AUTH = "kubernetes"
AUTHORITY = "flagd-proxy-ca"
"""The ConfigMap with the CAs of the proxy, in each namespace whose agents connect to it."""
AUTHORITY_LABELS = {MANAGED_BY: OPERATOR, COMPONENT: "proxy-ca"}
CERTIFICATE = "flagd-proxy-cert"
"""The Secret with the CA and the certificate of the proxy, in the operator's namespace."""
CA_FILE, TOKEN_FILE = "ca.crt", "token"
AGENT_DIRECTORY, PROXY_DIRECTORY = "/var/run/secrets/flagd-proxy", "/etc/flagd-proxy/tls"
VOLUME = "flagd-proxy-access"
TOKEN_SECONDS = 3600
"""The validity of a token; the kubelet replaces it after four fifths of that."""
_SERVED = ("tls.crt", "tls.key")


def is_authenticated(settings: OperatorSettings) -> bool:
    """Tell whether the proxy serves those only that show a token."""
    return settings.options.proxy_auth == KUBERNETES_AUTH


def proxy_host(settings: OperatorSettings) -> str:
    """Return the name by which agents reach the proxy, which its certificate is for."""
    return f"{PROXY_SERVICE}.{settings.pod.namespace}.svc.{settings.flagd.cluster_domain}"


def audience(settings: OperatorSettings) -> str:
    """Return for whom tokens are issued: for this proxy, so that they are useless at the API server and elsewhere."""
    return f"{PROXY_SERVICE}.{settings.pod.namespace}.svc"


def agent_volume(settings: OperatorSettings) -> dict[str, Json]:
    """Return the content of the volume for an agent."""
    token = {"path": TOKEN_FILE, "audience": audience(settings), "expirationSeconds": TOKEN_SECONDS}
    authority = {"name": AUTHORITY, "items": [{"key": CA_FILE, "path": CA_FILE}]}
    return {"projected": {"sources": [{"serviceAccountToken": token}, {"configMap": authority}]}}


def proxy_volume() -> dict[str, Json]:
    """Return the volume of the proxy: what it serves, without the key of the CA."""
    items = [{"key": each, "path": each} for each in _SERVED]
    return {"name": VOLUME, "secret": {"secretName": CERTIFICATE, "items": items}}


def proxy_options(settings: OperatorSettings) -> list[str]:
    """Return the arguments of the proxy; what accounts of other namespaces may read is the operator's own policy."""
    certificate, key = (f"{PROXY_DIRECTORY}/{each}" for each in _SERVED)
    return [
        "--auth=kubernetes",
        f"--auth-audience={audience(settings)}",
        f"--auth-policy={settings.options.cross_namespace}",
        f"--server-cert-path={certificate}",
        f"--server-key-path={key}",
    ]


def check_images(settings: OperatorSettings) -> None:
    """Raise `UsageError` if an image cannot take part, as far as its name tells."""
    if not is_authenticated(settings):
        return
    for variable, image in (
        ("SIDECAR_IMAGE", settings.sidecar.image),
        ("FLAGD_IMAGE", settings.flagd.image),
        ("FLAGD_PROXY_IMAGE", settings.proxy.image),
    ):
        name = image.rpartition("/")[2].partition("@")[0].partition(":")[0]
        if name == AGENT or PROXY in name:
            reason = f"{variable} is {image}, the original's, which knows no tokens"
            raise UsageError(f"--proxy-auth kubernetes: {reason}; use the image of wigwag, or --proxy-auth none")

"""Makes objects as they should be by server-side apply, without a request if they are; refuses those of others.

    intent + live object ──▶ absent?           apply
                             not ours?         refused, untouched
                             being deleted?    deleting, or its namespace is: apply when it is gone
                             as intended?      unchanged: no request
                             else              apply, for this uid only

An object is as intended if its annotation has the hash of the intent, and the intent's fields have the intent's values.
The hash notices a field that is no longer intended, which values cannot; the values notice what somebody has edited,
which the hash cannot.

The hard case is a server that stores another spelling than was intended ("1000m" as "1"), leaves an empty list out, or
keeps an item that somebody else owns: it would differ for ever. So the comparison only decides whether to ask the
server, and its answer is right by definition: an object that looks as it looked after our last apply is unchanged. So
is one of which the watch has not yet shown our last apply.

The other hard case is an item of a list that somebody else owns, and that cannot be there together with ours: the
server refuses the apply. Then the items of that list become ours first (see `ownership`).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from wigwag.errors import UsageError
from wigwag.kube.client import Object, ObjectList
from wigwag.kube.control.ownership import claim, lists_with_duplicates
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import Kind
from wigwag.kube.watch.spec import label_selector

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from wigwag.kube.control.ownership import FieldPath
    from wigwag.kube.kinds import Query
    from wigwag.kube.watch.decode import Key

ATOMIC = frozenset({"selector", "labelSelector", "matchLabels", "nodeSelector"})
"""Members whose maps the server replaces as a whole: a key that somebody adds there is a difference."""
MOST_PRUNED = 20
"""Objects that are deleted in one call; if it were so many, there may be more."""
ATTEMPTS = 4
"""How many times an object is read again and applied if it changes meanwhile."""
log = logging.getLogger(__name__)
MOST_REMEMBERED = 10_000
"""The most objects whose last apply is remembered."""


class ApplyApi(Protocol):
    """What an applier needs of `Kube`."""

    async def find(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object, if there is one."""
        ...

    async def list(self, kind: Kind, namespace: str = "", labels: str = "") -> ObjectList:
        """Return all objects with labels."""
        ...

    async def apply(
        self, kind: Kind, body: Mapping[str, Any], manager: str, *, force: bool = False, query: Query = ()
    ) -> Object:
        """Set fields of an object; create it if there is none."""
        ...

    async def patch(self, kind: Kind, name: str, change: Any, namespace: str = "", *, query: Query = ()) -> Object:
        """Change a part of an object by a merge patch."""
        ...

    async def delete(
        self, kind: Kind, name: str, namespace: str = "", options: Mapping[str, Any] | None = None
    ) -> None:
        """Delete an object."""
        ...


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What became of one object."""

    outcome: Literal["created", "updated", "unchanged", "refused", "deleting"]
    object: Object
    """As the server has it."""
    reason: str = ""
    """Why it was refused, for people."""


class _Applied(NamedTuple):
    """Our last apply of an object. To forget it costs one apply that changes nothing."""

    intent: str
    """The hash of the intent."""
    version: str
    """The resource version that the object had before."""
    answer: str
    """The hash of the part of the server's answer that the intent speaks about; the part itself may be large."""


def owner_reference(kind: Kind, owner: Object) -> Object:
    """Return the reference by which an owner controls an object: it is deleted with the owner."""
    metadata = owner["metadata"]
    about = {"apiVersion": kind.api, "kind": kind.kind, "name": metadata["name"], "uid": metadata["uid"]}
    return {**about, "controller": True}


def project(live: Any, intent: Any) -> Any:
    """Return the part of a live value that an intent speaks about. Atomic maps and lists of another length are whole.

    >>> project({"replicas": 2, "paused": False}, {"replicas": 1})
    {'replicas': 2}
    >>> project({"selector": {"app": "shop", "tier": "web"}}, {"selector": {"app": "shop"}})
    {'selector': {'app': 'shop', 'tier': 'web'}}
    >>> project([{"name": "a", "tty": False}], [{"name": "a"}])
    [{'name': 'a'}]
    """
    if isinstance(live, dict) and isinstance(intent, dict):
        return {
            name: live[name] if name in ATOMIC else project(live[name], value)
            for name, value in intent.items()
            if name in live
        }
    if isinstance(live, list) and isinstance(intent, list) and len(live) == len(intent):
        return [project(*pair) for pair in zip(live, intent, strict=True)]
    return live


def digest(value: Any) -> str:
    """Return a hash of plain JSON; equal values have the same."""
    return sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]


@dataclass(slots=True)
class Applier:
    """Applies objects as one field manager, and knows its own by their labels."""

    api: ApplyApi
    manager: str
    labels: Mapping[str, str]
    """On every object that is ours; objects without them are not touched."""
    annotation: str
    """Holds the hash of the intent: a name with a domain, such as `example.org/applied`."""
    force: bool = True
    """Whether to take fields of our objects over from other managers; without it, a conflict is refused."""
    query: Query = ()
    """Of every apply: `DRY_RUN`, `STRICT`."""
    _applied: OrderedDict[tuple[Kind, Key], _Applied] = field(default_factory=OrderedDict)
    _terminating: set[tuple[Kind, Key]] = field(default_factory=set)
    """Objects that were left out, because their namespaces are being deleted."""

    def __post_init__(self) -> None:
        if not self.labels:
            raise UsageError("an applier needs labels to know its own objects by; give it at least one")

    async def apply(self, kind: Kind, body: Mapping[str, Any], live: Object | None = None) -> ApplyResult:
        """Make an object as `body` says. `live` is the object as it was seen last, from a watch; None: it is read."""
        intent = self._intent(kind, body)
        for _ in range(ATTEMPTS):
            current = live or await self._get(kind, intent)
            try:
                return await self._attempt(kind, intent, current)
            except ApiError as error:
                if error.terminating:
                    return self._left_out(kind, intent)
                if await self._claim(kind, intent, lists_with_duplicates(error)):
                    continue
                causes = error.status.causes
                replaced = any(cause.field == "metadata.uid" for cause in causes)
                if not (error.conflict or replaced):
                    raise
                if current and any(cause.reason == "FieldManagerConflict" for cause in causes):
                    return ApplyResult("refused", current, error.status.message)
                live = None  # what was seen last is not what there is
        return await self._attempt(kind, intent, await self._get(kind, intent))

    async def prune(
        self,
        kind: Kind,
        keep: Collection[Key],
        namespace: str = "",
        live: Iterable[Object] | None = None,
        most: int = MOST_PRUNED,
    ) -> list[Key]:
        """Delete the objects with our labels that are not to be kept; return their keys. `live`: see `apply`.

        At most `most` of them: anybody can put our labels on objects of their own, and must not keep a caller busy.
        Controllers that prune the same kind in the same namespace need labels of their own.
        """
        if live is None:
            live = (await self.api.list(kind, namespace, label_selector(self.labels))).items
        pruned: list[Key] = []
        for each in live:
            if len(pruned) == most:
                break
            metadata, key = each["metadata"], _key(each)
            unwanted = key not in keep and self._is_ours(each) and namespace in ("", key[0])
            if unwanted and "deletionTimestamp" not in metadata:
                await self._delete(kind, key, metadata["uid"])
                pruned.append(key)
        return pruned

    async def _attempt(self, kind: Kind, intent: Object, live: Object | None) -> ApplyResult:
        if live is None:  # without force, so that one that somebody creates at this moment is not taken over
            created = await self.api.apply(kind, intent, self.manager, query=self.query)
            self._remember(kind, intent, "", created)
            return ApplyResult("created", created)
        refusal = self._refusal(intent, live)
        if refusal:
            return ApplyResult("refused", live, refusal)
        if "deletionTimestamp" in live["metadata"]:
            return ApplyResult("deleting", live)
        if self._is_as_intended(kind, intent, live):
            return ApplyResult("unchanged", live)
        body = {**intent, "metadata": {**intent["metadata"], "uid": live["metadata"]["uid"]}}
        updated = await self.api.apply(kind, body, self.manager, force=self.force, query=self.query)
        self._remember(kind, intent, live["metadata"]["resourceVersion"], updated)
        return ApplyResult("updated", updated)

    def _left_out(self, kind: Kind, intent: Object) -> ApplyResult:
        """Give up an object whose namespace is being deleted, and say so once."""
        key = kind, _key(intent)
        if key not in self._terminating:
            if len(self._terminating) >= MOST_REMEMBERED:
                self._terminating.clear()
            self._terminating.add(key)
            log.info("%s %s/%s is not made: its namespace is being deleted", kind.kind, *key[1])
        return ApplyResult("deleting", intent)

    async def _claim(self, kind: Kind, intent: Object, lists: Sequence[FieldPath]) -> bool:
        """Make the items that others own in lists of an object of ours our own; tell whether there were any."""
        live = await self._get(kind, intent) if lists and self.force else None
        if live is None or self._refusal(intent, live):
            return False
        metadata, (namespace, name) = live["metadata"], _key(intent)
        entries = claim(metadata.get("managedFields") or (), lists, self.manager, kind.api)
        if entries is None:
            return False
        change = {"managedFields": entries, "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        await self.api.patch(kind, name, {"metadata": change}, namespace, query=self.query)
        return True

    def _is_as_intended(self, kind: Kind, intent: Object, live: Object) -> bool:
        kind_of_list = {"apiVersion": kind.api, "kind": kind.kind}  # which its items do not have
        part: Object = project({**live, **kind_of_list}, intent)
        if part == intent:
            return True
        last = self._applied.get((kind, _key(intent)))
        if last is None or last.intent != self._hash(intent):
            return False
        version: str = live["metadata"]["resourceVersion"]
        return digest(part) == last.answer or version == last.version

    def _remember(self, kind: Kind, intent: Object, version: str, answer: Object) -> None:
        key = kind, _key(intent)
        self._terminating.discard(key)
        self._applied[key] = _Applied(self._hash(intent), version, digest(project(answer, intent)))
        self._applied.move_to_end(key)
        if len(self._applied) > MOST_REMEMBERED:
            self._applied.popitem(last=False)

    def _hash(self, intent: Object) -> str:
        annotated: str = intent["metadata"]["annotations"][self.annotation]
        return annotated

    def _intent(self, kind: Kind, body: Mapping[str, Any]) -> Object:
        """Return the body with its kind, our labels and its hash."""
        metadata = body["metadata"]
        labels = {**(metadata.get("labels") or {}), **self.labels}
        body = {**body, "apiVersion": kind.api, "kind": kind.kind, "metadata": {**metadata, "labels": labels}}
        annotations = {**(metadata.get("annotations") or {}), self.annotation: digest(body)}
        return {**body, "metadata": {**body["metadata"], "annotations": annotations}}

    def _is_ours(self, live: Object) -> bool:
        labels = live["metadata"].get("labels") or {}
        return all(labels.get(name) == value for name, value in self.labels.items())

    def _refusal(self, intent: Object, live: Object) -> str:
        """Return why an object is not ours to change; empty: it is."""
        about = f"{live.get('kind', intent['kind'])} {intent['metadata']['name']}"
        if not self._is_ours(live):
            wanted = ", ".join(f"{name}={value}" for name, value in self.labels.items())
            return f"{about} exists and is not ours (it has no label {wanted}); rename or delete it"
        ours, theirs = (_controller(each) for each in (intent, live))
        if ours and theirs and not _is_same_owner(ours, theirs):
            return f"{about} is controlled by {theirs['kind']} {theirs['name']}"
        return ""

    async def _get(self, kind: Kind, intent: Object) -> Object | None:
        namespace, name = _key(intent)
        return await self.api.find(kind, name, namespace)

    async def _delete(self, kind: Kind, key: Key, uid: str) -> None:
        """Delete the object with this uid; one that is gone, or has been replaced, is no error."""
        self._applied.pop((kind, key), None)
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self.api.delete(kind, key[1], key[0], options)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise


def _key(each: Object) -> Key:
    return each["metadata"].get("namespace", ""), each["metadata"]["name"]


def _is_same_owner(ours: Object, theirs: Object) -> bool:
    """Tell whether two references name one object. Another uid means that it was deleted and created again."""
    (group, *_), (other, *_) = (each["apiVersion"].rpartition("/") for each in (ours, theirs))
    return bool((group, ours["kind"], ours["name"]) == (other, theirs["kind"], theirs["name"]))


def _controller(each: Object) -> Object | None:
    references = each["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)

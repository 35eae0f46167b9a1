"""Pods and nodes as the API server writes them, for others who want whole objects. Keeps nodes until they change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from kube_policy_scheduler.adapters.kube.errors import KubeError, MalformedAnswer, NotFound
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.resources import NODES, PODS
from kube_policy_scheduler.adapters.kube.transport import Transport

FEW = 32
"""Nodes that are asked for one by one; if more are missing, all nodes are listed."""
AT_ONCE = 8
PAGE = 500
MOST_BYTES = 512 * 2**20
"""Of all nodes that are kept: 10,000 nodes with many images take about 100 MB."""


class _Identity(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Named(msgspec.Struct):
    metadata: _Identity


class _ListMeta(msgspec.Struct, rename="camel"):
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_decode_named = decoder_of(_Named)
_decode_list = decoder_of(_List)


class ApiTexts:
    """Asks for objects as JSON."""

    def __init__(self, transport: Transport, *, label_selector: str = "") -> None:
        """label_selector: of the nodes."""
        self._transport = transport
        self._label_selector = label_selector
        self._nodes: dict[str, tuple[str, bytes]] = {}
        """By name: the version that was wanted, and the JSON; it may be newer."""

    async def pod(self, *, namespace: str, name: str, uid: str) -> bytes | None:
        """Return a pod, None if it does not exist any more; raises KubeError."""
        try:
            body = await self._transport.request("GET", PODS.path(name, namespace=namespace), resource="pods")
        except NotFound:
            return None
        return body if _identity(body).uid == uid else None

    async def nodes(self, wanted: Mapping[str, str]) -> dict[str, bytes]:
        """Return nodes by name; one that does not exist any more is absent. Raises KubeError.

        wanted: by name, the resource version that is known of each.
        """
        missing = [name for name, version in wanted.items() if self._nodes.get(name, ("", b""))[0] != version]
        if len(missing) > FEW:
            await self._list(wanted)
        else:
            slots = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(self._get(name, wanted[name], slots) for name in missing))
        return {name: self._nodes[name][1] for name in wanted if name in self._nodes}

    async def _get(self, name: str, version: str, slots: asyncio.Semaphore) -> None:
        async with slots:
            try:
                body = await self._transport.request("GET", NODES.path(name), resource="nodes")
            except NotFound:
                self._nodes.pop(name, None)
                return
        _identity(body)
        self._nodes[name] = version, body

    async def _list(self, wanted: Mapping[str, str]) -> None:
        found: dict[str, tuple[str, bytes]] = {}
        query = {"limit": str(PAGE)} | ({"labelSelector": self._label_selector} if self._label_selector else {})
        size = 0
        while True:
            body = await self._transport.request("GET", NODES.collection(query=query), resource="nodes")
            try:
                page = _decode_list(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise MalformedAnswer(f"the answer is not a list: {error}") from error
            for raw in page.items or ():
                name, text = _identity(raw).name, bytes(raw)
                size += len(text)
                if size > MOST_BYTES:
                    raise TooManyNodes(
                        f"the nodes take more than {MOST_BYTES >> 20} MiB as JSON: use nodeCacheCapable: true"
                    )
                before = self._nodes.get(name, ("", b""))[0]
                found[name] = wanted.get(name, before), text
            if not page.metadata.continue_:
                self._nodes = found
                return
            query["continue"] = page.metadata.continue_


class TooManyNodes(KubeError):
    """The nodes are too large to be kept and sent."""


def _identity(body: bytes | msgspec.Raw) -> _Identity:
    try:
        return _decode_named(body).metadata
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedAnswer(f"the answer is not an object: {error}") from error

"""What one person sends another: policies, a pod or a fleet, and the cluster they were tried on, as JSON or as a link.

A link has the text in its fragment, which no browser sends, compressed with raw deflate. Strangers write both.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import parse_objects
from kube_policy_scheduler.documents.yaml_document import parse_document
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules, VersionError
from kube_policy_scheduler.playground.session import (
    MOST_FLEET_TEXT,
    OpenedCluster,
    Origin,
    PodChoice,
    RequestError,
    check_files,
)
from kube_policy_scheduler.policy.policy_set import DEFAULT_SCHEDULERS
from kube_policy_scheduler.tooling.cluster_state import stored_objects
from kube_policy_scheduler.tooling.tester.metrics import Metrics
from kube_policy_scheduler.tooling.tester.suite_file import read_metrics

FORMAT = 1
MOST_SHARED = 64 * 2**20
"""Characters of a shared file: a cluster of 5,000 nodes with its pods has half of it."""
MOST_UNPACKED = 2**20
"""Bytes of what a link holds; it has no cluster."""
LONGEST_LINK = 8192
"""Characters; mail programs and chats cut longer ones."""
_MARK = "share="


class SharedCluster(msgspec.Struct, frozen=True):
    """A cluster in a shared file."""

    name: str
    now: float
    objects: list[dict[str, Any]]
    """As in a file of `policyctl snapshot`."""
    metrics: dict[str, Any] = {}
    """As in a file of `--metrics`."""
    kubernetes: str = ""
    """The version of Kubernetes by whose rules pods are decided; empty: not said."""


class Share(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is shared."""

    playground: int
    """The version of this format."""
    files: dict[str, str]
    pod: PodChoice
    cluster: SharedCluster | None = None
    """None: the example cluster, or the one that the other person has."""
    fleet: str = ""
    """The clusters of a fleet and a workload, as YAML; "": the example."""


def shared_text(share: Share) -> str:
    """Return the text of a file that `policyctl playground` opens."""
    return msgspec.json.encode(share).decode()


def link_of(share: Share, origin: str) -> str | None:
    """Return a link with the policies, the pod and the fleet; None if it would be too long."""
    packed = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    text = shared_text(msgspec.structs.replace(share, cluster=None)).encode()
    data = base64.urlsafe_b64encode(packed.compress(text) + packed.flush()).decode().rstrip("=")
    link = f"{origin}/#{_MARK}{data}"
    return link if len(link) <= LONGEST_LINK else None


def is_link(text: str) -> bool:
    """Return whether a text is a link of `link_of`."""
    return text.startswith(("http://", "https://")) and _MARK in text.partition("#")[2]


def read_link(link: str) -> Share:
    """Return what a link holds.

    Raises:
        RequestError: it is cut, or not such a link.
    """
    data = link.partition("#")[2].rpartition(_MARK)[2].partition("&")[0]
    try:
        raw = base64.b64decode(data + "=" * (-len(data) % 4), altchars=b"-_", validate=True)
        unpacking = zlib.decompressobj(-zlib.MAX_WBITS)
        text = unpacking.decompress(raw, MOST_UNPACKED)
        if len(text) >= MOST_UNPACKED:
            raise RequestError(f"the link unpacks to more than {MOST_UNPACKED >> 20} MiB")
        if not unpacking.eof:
            raise RequestError("the link is cut: ask for it again, or for a file")
    except (binascii.Error, zlib.error, ValueError) as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError("the link cannot be read: ask for it again, or for a file") from error
    return read_share(text)


def read_share(text: str | bytes) -> Share:
    """Return what a shared file holds.

    Raises:
        RequestError: it is not such a file.
    """
    if len(text) > MOST_SHARED:
        raise RequestError(f"the shared file is larger than {MOST_SHARED >> 20} MiB")
    try:
        share = msgspec.json.decode(text, type=Share)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise RequestError(f"not a file that the playground shares: {error}") from error
    if share.playground != FORMAT:
        raise RequestError(f"the file was shared by another version of policyctl (format {share.playground})")
    check_files(share.files)
    if len(share.fleet) > MOST_FLEET_TEXT:
        raise RequestError(f"the fleet in it has more than {MOST_FLEET_TEXT:,} characters")
    return share


def cluster_of(shared: SharedCluster) -> tuple[OpenedCluster, Metrics]:
    """Return the cluster of a shared file, with its metrics.

    Raises:
        DocumentError: an object cannot be read.
    """
    name = shared.name[:200]
    text = _json({"apiVersion": "v1", "kind": "List", "items": shared.objects})
    things: Sequence[Any] = stored_objects(parse_objects(Source(name, text)), scheduler=min(DEFAULT_SCHEDULERS))
    metrics = read_metrics(parse_document(Source(f"metrics of {name}", _json(shared.metrics))))
    opened = OpenedCluster(name, Origin.SNAPSHOT, things, shared.now, metrics=tuple(shared.metrics))
    return replace(opened, kubernetes=_rules(shared.kubernetes)), metrics


def _rules(version: str) -> KubernetesRules:
    try:
        return KubernetesRules.parse(version) if version else DEFAULT_RULES
    except VersionError as error:
        raise RequestError(f"the shared file is of an unknown Kubernetes: {error}") from error


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

"""Start-up without a network: bytes of list pages to structs, to a cluster, to the first decision."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from kube_policy_scheduler.adapters.kube.decoding import ObjectDecoder
from kube_policy_scheduler.adapters.kube.pages import PAGE_OBJECTS
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.frame import Frame
from tests.benchmarks.decisions import NOW
from tests.benchmarks.manifests import Json, node, pod
from tests.benchmarks.reference import Reference
from tests.benchmarks.workloads import ZONES

_MANAGED_BYTES = 6_000
"""What `managedFields` and other things that scheduling does not read add to an object."""


@dataclass(frozen=True)
class StartUp:
    """What a start took, in CPU seconds."""

    nodes: int
    pods: int
    decode_nodes_seconds: float
    decode_pods_seconds: float
    first_decision_seconds: float
    relative: float
    """The sum as a multiple of one turn of the reference loop."""

    @property
    def seconds(self) -> float:
        """Return the sum."""
        return self.decode_nodes_seconds + self.decode_pods_seconds + self.first_decision_seconds


def measure_start(reference: Reference, *, nodes: int, pods: int) -> StartUp:
    """Decode pages of nodes and pending pods and decide the first of them."""
    cluster, clock = Cluster(), time.process_time
    node_decoder, pod_decoder = ObjectDecoder(objects.Node), ObjectDecoder(objects.Pod)
    turn = reference.seconds()
    gc.collect()
    gc.disable()  # as the daemon does until its first lists are in
    try:
        node_seconds = pod_seconds = 0.0
        for body in _pages((node(f"node-{n}", zone=ZONES[n % 3]) for n in range(nodes)), "NodeList"):
            began = clock()
            for decoded in node_decoder.page(body).objects:
                cluster.set_node(decoded)
            node_seconds += clock() - began
        infos = []
        for body in _pages((pod(f"pod-{n}", labels={"app": f"app-{n % 50}"}) for n in range(pods)), "PodList"):
            began = clock()
            infos += [cluster.templates.pod(decoded) for decoded in pod_decoder.page(body).objects]
            pod_seconds += clock() - began
    finally:
        gc.enable()
    began = clock()
    Cycle().decide(Frame(infos[0], cluster, NOW), kubernetes_profile())
    first = clock() - began
    turn = (turn + reference.seconds()) / 2
    return StartUp(nodes, pods, node_seconds, pod_seconds, first, (node_seconds + pod_seconds + first) / turn)


def _pages(manifests: Iterator[Json], kind: str) -> Iterator[bytes]:
    """Return bodies of list answers, page by page."""
    page: list[Json] = []
    for manifest in manifests:
        manifest["metadata"]["managedFields"] = [{"manager": "kubelet", "fieldsV1": {"f:spec": "x" * _MANAGED_BYTES}}]
        page.append(manifest)
        if len(page) == PAGE_OBJECTS:
            yield _body(page, kind)
            page = []
    if page:
        yield _body(page, kind)


def _body(items: list[Json], kind: str) -> bytes:
    return msgspec.json.encode({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})

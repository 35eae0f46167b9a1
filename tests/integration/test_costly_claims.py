"""A pod whose devices are dear to search for, by mistake or on purpose, holds up no other pod and no probe."""

from __future__ import annotations

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.devices import DRIVER, claim, claim_pod, device_class
from tests.integration.objects import Json, node, pod

NODES, PARTITIONS, OTHERS = 400, 40, 3
"""To search all nodes takes some tenths of a second, to bind the others some hundredths."""
_VERSION = "resource.k8s.io/v1"


def partitioned(name: str) -> list[Json]:
    """Devices of a node that share 150 of something, each 10, 11 or 12 of it: 16 never fit."""
    pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
    shared = {"sharedCounters": [{"name": "all", "counters": {"memory": {"value": "150"}}}]}
    devices = [
        {
            "name": f"part{number}",
            "attributes": {"serial": {"string": f"{name}-{number}"}},  # no two are equal
            "consumesCounters": [{"counterSet": "all", "counters": {"memory": {"value": str(10 + number % 3)}}}],
        }
        for number in range(PARTITIONS)
    ]
    parts: tuple[Json, ...] = (shared, {"devices": devices})
    return [
        {
            "apiVersion": _VERSION,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{number}"},
            "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, **part},
        }
        for number, part in enumerate(parts)
    ]


def test_others_are_bound_while_a_search_goes_on(cluster: Cluster, scheduler: StartScheduler) -> None:
    cluster.ensure("deviceclasses", device_class("gpu"))
    names = [f"n{number}" for number in range(NODES)]
    cluster.add_nodes(*map(node, names))
    for name in names:
        for each in partitioned(name):
            cluster.api.create("resourceslices", each)
    cluster.api.create("resourceclaims", claim("dear", count=16))
    others = [f"other{number}" for number in range(OTHERS)]
    cluster.add_pods(claim_pod("dear"), *map(pod, others))
    process = scheduler().start_ready()  # by now the others are there: the search takes less than to create them
    cluster.wait_bound(*others)
    assert process.get("/livez")[0] == 200
    assert eventually(lambda: cluster.condition("dear"))["status"] == "False"
    told = [entry.get("pod") for entry in process.log_entries()]
    assert max(told.index(f"default/{name}") for name in others) < told.index("default/dear")
    cluster.api.delete("pods", "dear")
    cluster.api.create("resourceclaims", claim("plain"))
    cluster.add_pods(claim_pod("plain"))
    cluster.wait_bound("plain")
    assert process.terminate() == 0

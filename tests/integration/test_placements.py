"""The domain of a PodGroup with the gate TopologyAwareWorkloadScheduling: kube-scheduler is the yardstick.

It decides random worlds, each by a topology of its own in one cluster, as the plain words say by which this scheduler
is tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.framework.test_placements import NODE_MEMORY, POD_MEMORY, Rack, World, room_of, scores_of
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.kube_scheduler import kube_scheduler, program
from tests.integration.objects import node, pod, pod_group

WORLDS = 30


def worlds() -> Iterator[World]:
    """Yield worlds in which one rack is better than all others, or none has room: of equal ones it takes any."""
    chance, found = Random(1), 0
    while found < WORLDS:
        racks = {}
        for name in ("r1", "r2", "r3", "r4")[: chance.randint(1, 4)]:
            cores = tuple(chance.randint(1, 4) for _ in range(chance.randint(1, 3)))
            racks[name] = Rack(cores, tuple(chance.randint(0, most) for most in cores))
        min_count = chance.choice([None, 1, 2, 3, 4])
        world = World(racks, min_count, chance.randint(min_count or 1, 5), chance.randint(1, 2))
        best = sorted(scores_of(world).values())[-2:]
        if len(best) < 2 or best[0] < best[1]:
            found += 1
            yield world


def test_kube_scheduler_selects_the_rack_with_the_highest_score(cluster: Cluster, tmp_path: Path) -> None:
    program()  # skips where there is none
    if not cluster.has_pod_groups:
        pytest.skip("this API server has no PodGroups: it is 1.36 or later with GenericWorkload that has them")
    drawn = {f"w{at}": world for at, world in enumerate(worlds())}
    for key, world in drawn.items():
        for name, rack in world.racks.items():
            for at, cores in enumerate(rack.cores):
                host = f"{key}-{name}-{at}"
                cluster.add_nodes(node(host, cpu=str(cores), memory=f"{NODE_MEMORY}Gi", labels={key: name}))
                if at < len(rack.held) and rack.held[at]:
                    held = {"cpu": str(rack.held[at]), "memory": f"{POD_MEMORY}Gi"}
                    cluster.add_pods(pod(f"held-{host}", nodeName=host, **held))
        for at in range(world.pods):
            member = {"cpu": str(world.cores), "memory": f"{POD_MEMORY}Gi", "schedulingGroup": {"podGroupName": key}}
            cluster.add_pods(pod(f"{key}-m{at}", scheduler="default-scheduler", **member))
        group = pod_group(key, size=world.min_count or 1)
        if world.min_count is None:
            group["spec"]["schedulingPolicy"] = {"basic": {}}
        group["spec"]["schedulingConstraints"] = {"topology": [{"key": key}]}
        cluster.api.create("podgroups", group)
    expected = {}
    for key, world in drawn.items():
        scores = scores_of(world)
        best = max(scores, key=scores.__getitem__, default="")
        expected[key] = [best] * (room_of(world, best) if best else 0)
    gates = "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true"
    log = tmp_path / "kube-scheduler.log"
    with kube_scheduler(cluster.kubeconfig(tmp_path / "admin"), log=log, gates=gates):
        eventually(lambda: are_decided(cluster))
        assert racks_of(cluster, drawn) == expected


def are_decided(cluster: Cluster) -> bool:
    """Return whether each pod has a node, or a condition that says why it has none."""
    return all(
        pod["spec"].get("nodeName")
        or any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions", ()))
        for pod in cluster.pods()
    )


def racks_of(cluster: Cluster, drawn: dict[str, World]) -> dict[str, list[str]]:
    """Return by world the racks of the members that have a node."""
    placed = cluster.placements()
    return {
        key: [host.split("-")[1] for at in range(world.pods) if (host := placed[f"{key}-m{at}"])]
        for key, world in drawn.items()
    }

"""Policies replaced many times a second, by good and broken sets: no pod waits for it, none is placed by half a set."""

from __future__ import annotations

import json
import threading
import time

import pytest

from tests.fakes.configmap_volume import ConfigMapVolume
from tests.faults.accounts import books_right, recovery, sound, wait_all_bound
from tests.faults.conftest import Size
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.front import Front
from tests.integration.objects import node, pod

SIDES = ("left", "right")
BROKEN = ("filter node.redy\n", "score 1 if\n", "\xff\xfe", 'metric x = promql("sum(") every 1s\nscore x ?? 0\n')


def set_of(number: int) -> dict[str, str | bytes]:
    """A set of two policies that send all pods to one side; every third set has an error in one of them."""
    side = SIDES[number % 2]
    files: dict[str, str | bytes] = {
        f"{app}.policy": f'for pods where pod.label.app == "{app}"\n# {number}\nfilter node.label.side == "{side}"\n'
        for app in ("one", "two")
    }
    if number % 3 == 2:
        other = SIDES[(number + 1) % 2]
        files["one.policy"] = str(files["one.policy"]).replace(side, other)
        files["two.policy"] = BROKEN[number // 3 % len(BROKEN)].encode("latin-1")
    return files


@pytest.mark.timeout(200)
def test_a_storm_of_good_and_broken_sets(
    cluster: Cluster,
    front: Front,
    scheduler: StartScheduler,
    policies: ConfigMapVolume,
    size: Size[int],
) -> None:
    seconds = size(4, 60)
    cluster.add_nodes(
        *(node(f"{side}{i}", cpu="64", pods="9999", labels={"side": side}) for side in SIDES for i in range(3))
    )
    policies.update(set_of(0))
    process = scheduler(kubeconfig=front.kubeconfig(policies.path.parent / "front")).start_ready()
    done = threading.Event()
    swaps = 0

    def storm() -> None:
        nonlocal swaps
        while not done.wait(0.15):
            swaps += 1
            policies.update(set_of(swaps))

    storming = threading.Thread(target=storm)
    storming.start()
    names: list[str] = []
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for app in ("one", "two"):
                names.append(f"{app}{len(names)}")
                cluster.add_pods(pod(names[-1], cpu="10m", memory="1Mi", labels={"app": app}))
            time.sleep(0.03)
        with recovery(f"all of {len(names)} pods bound while sets go on changing"):
            wait_all_bound(cluster, names)
    finally:
        done.set()
        storming.join()
    assert swaps / seconds > 100 / 60
    policies.update(set_of(6 * swaps))  # a good one
    with recovery("the last set in use"):
        eventually(lambda: process.metrics()["policy_scheduler_policy_last_reload_successful"] == 1)
        eventually(lambda: last_side(cluster) == "left")
    sides: dict[str, set[str]] = {}
    for record in decisions(process.get("/debug/decisions?limit=10000")[1]):
        if record.get("node"):
            sides.setdefault(record["hash"], set()).add(record["node"].rstrip("0123456789"))
    assert len(sides) >= 3, "few sets decided anything: no storm"
    assert all(len(found) == 1 for found in sides.values()), f"half a set decided: {sides}"
    print(f"{swaps} sets in {seconds} s, of which {len(sides)} decided pods")
    sound(cluster, front)
    books_right(process)


def last_side(cluster: Cluster) -> str:
    name = f"last{time.monotonic_ns()}"
    cluster.add_pods(pod(name, cpu="1m", memory="1Mi", labels={"app": "two"}))
    return cluster.wait_bound(name)[name].rstrip("0123456789")


def decisions(text: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in text.splitlines()]

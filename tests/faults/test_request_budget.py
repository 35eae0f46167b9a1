"""What the scheduler asks of the API server: two requests a bound pod, next to nothing while there is nothing to do."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.front import Exchange, Front
from tests.integration.objects import node, pod

PODS = 50
QUIET_SECONDS = 2.0


def requests(front: Front, since: float) -> Counter[str]:
    """Return the requests since a moment, except watches and the lists before them."""
    return Counter(f"{e.verb} {e.resource}" for e in list(front.exchanges) if e.at > since and _counts(e))


def _counts(exchange: Exchange) -> bool:
    return exchange.verb not in ("watch", "list")


def settled(front: Front, since: float) -> Counter[str]:
    """Wait until no request was sent for a second, and return all since a moment."""
    seen = Counter[str]()
    while True:
        time.sleep(1.0)
        now = requests(front, since)
        if now == seen:
            return now
        seen = now


def test_two_requests_a_bound_pod_three_for_one_that_fits_nowhere_and_none_when_idle(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    cluster.add_nodes(node("n1", cpu="64"), node("n2", cpu="64"))
    scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    settled(front, 0.0)
    quiet = time.monotonic()
    time.sleep(QUIET_SECONDS)
    assert requests(front, quiet) == {}

    began = time.monotonic()
    cluster.add_pods(*(pod(f"p{i}", cpu="10m") for i in range(PODS)))
    cluster.wait_bound()
    eventually(lambda: all(cluster.events(f"p{i}", reason="Scheduled") for i in range(PODS)))
    assert settled(front, began) == {"create pods/binding": PODS, "create events": PODS}

    began = time.monotonic()
    cluster.add_pods(*(pod(f"big{i}", cpu="100") for i in range(PODS)))
    eventually(lambda: all(cluster.condition(f"big{i}") for i in range(PODS)))
    asked = settled(front, began)
    assert asked.total() <= 3 * PODS, asked

    began = time.monotonic()
    for number in range(5):  # each may help them, and does not
        cluster.api.patch("nodes", "n1", {"metadata": {"labels": {"touched": str(number)}}})
        time.sleep(0.2)
    again = settled(front, began)
    print(f"requests: {dict(asked)} for {PODS} that fit nowhere, {dict(again)} when they were tried again")
    assert again.total() <= PODS, again

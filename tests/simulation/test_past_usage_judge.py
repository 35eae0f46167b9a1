"""The judge of what is stored about past usage: it sees what is lost, and blames nobody for clocks that are set."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest

from kube_policy_scheduler.adapters.kube.past_usage_lease import ANNOTATION, encode_past_usage
from kube_policy_scheduler.cluster.quotas.past_usage import PastUsage
from tests.simulation.api_server import ApiServer
from tests.simulation.replica import PAST_USAGE
from tests.simulation.virtual_time import run

HOUR = 3600.0
PATH = f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{PAST_USAGE}"


@pytest.mark.parametrize(
    ("written_ahead", "next_ahead", "left", "is_wrong"),
    [
        (0.0, 0.0, 3900.0, False),
        (0.0, 0.0, 100.0, True),
        (3 * HOUR, 3 * HOUR, 100.0, True),
        (-3 * HOUR, 0.0, 500.0, False),  # on its way when the clock was set right: the next one saw it fade
        (0.0, 3 * HOUR, 500.0, False),
    ],
)
def test_what_is_lost_is_seen_and_a_clock_that_is_set_is_no_loss(
    written_ahead: float, next_ahead: float, left: float, is_wrong: bool
) -> None:
    async def main() -> None:
        server = ApiServer(Random(1))

        def write(verb: str, amount: float, *, ahead: float) -> None:
            past = PastUsage(server.now() + ahead, ("cpu",), {"a": (amount,)})
            text, _ = encode_past_usage(past)
            body = {"metadata": {"name": PAST_USAGE, "annotations": {ANNOTATION: text}}}
            server.answer(verb, PATH if verb == "PUT" else PATH.rpartition("/")[0], msgspec.json.encode(body))

        write("POST", 4000.0, ahead=written_ahead)
        await asyncio.sleep(10.0)
        write("PUT", left, ahead=next_ahead)
        assert bool(server.violations) == is_wrong

    run(main())

"""Past usage of queues in a Lease: what is stored is read, a stale write is refused, and no text breaks a reader."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.kube.credentials import find_credentials
from kube_policy_scheduler.adapters.kube.errors import Conflict, Fenced, MalformedAnswer
from kube_policy_scheduler.adapters.kube.fence import OPEN, Fence
from kube_policy_scheduler.adapters.kube.past_usage_lease import (
    ANNOTATION,
    MOST_BYTES,
    PastUsageLease,
    decode_past_usage,
    encode_past_usage,
)
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.quotas.past_usage import PastUsage
from kube_policy_scheduler.embedded.cluster import EmbeddedCluster

PATH = "/apis/coordination.k8s.io/v1/namespaces/default/leases/scheduler-queues"


def past(at: float = 1_800_000_000.0, **queues: float) -> PastUsage:
    return PastUsage(at, ("cpu",), {name: (amount,) for name, amount in queues.items()})


@pytest.fixture
async def transport(tmp_path: Path) -> AsyncIterator[Transport]:
    async with contextlib.AsyncExitStack() as stack:
        embedded = await stack.enter_async_context(EmbeddedCluster(kubelets=None))
        embedded.kubeconfig(tmp_path / "kubeconfig")
        made = Transport(find_credentials(kubeconfig=str(tmp_path / "kubeconfig"), context=None))
        stack.push_async_callback(made.close)
        yield made


def lease(transport: Transport, identity: str, *, fence: Fence = OPEN) -> PastUsageLease:
    return PastUsageLease(transport, namespace="default", name="scheduler-queues", identity=identity, fence=fence)


async def test_what_one_replica_stores_another_reads(transport: Transport) -> None:
    first, second = lease(transport, "a"), lease(transport, "b")
    assert await first.read(ahead=lambda: 0.0) is None
    assert await first.write(past(research=1500.25), ahead=0.0) == 0
    assert await second.read(ahead=lambda: 0.0) == past(research=1500.25)
    assert await second.write(past(research=700.0), ahead=0.0) == 0
    found = json.loads(await transport.request("GET", PATH))
    assert found["spec"]["holderIdentity"] == "b"


async def test_a_stale_write_is_refused_and_nothing_is_lost(transport: Transport) -> None:
    first, second = lease(transport, "a"), lease(transport, "b")
    for each in (first, second):
        await each.read(ahead=lambda: 0.0)
    await first.write(past(research=1.0), ahead=0.0)
    with pytest.raises(Conflict):
        await second.write(past(research=2.0), ahead=0.0)  # it did not see that there is one by now
    assert not second.is_known
    with pytest.raises(Conflict):
        await second.write(past(research=2.0), ahead=0.0)
    assert await second.read(ahead=lambda: 0.0) == past(research=1.0)
    await second.write(past(research=2.0), ahead=0.0)
    with pytest.raises(Conflict):
        await first.write(past(research=3.0), ahead=0.0)
    assert await first.read(ahead=lambda: 0.0) == past(research=2.0)


async def test_who_may_not_act_writes_nothing(transport: Transport) -> None:
    closed = lease(transport, "a", fence=Fence(lambda: False))
    await closed.read(ahead=lambda: 0.0)
    with pytest.raises(Fenced):
        await closed.write(past(research=1.0), ahead=0.0)
    assert await closed.read(ahead=lambda: 0.0) is None


async def test_the_time_in_the_lease_is_that_of_the_wall_clock(transport: Transport) -> None:
    """Another replica started after the clock was set: its steady clock begins with the new time."""
    await (first := lease(transport, "a")).read(ahead=lambda: 3600.0)
    await first.write(past(research=1.0), ahead=3600.0)
    found = await lease(transport, "b").read(ahead=lambda: 0.0)
    assert found is not None
    assert found.at == past(research=1.0).at + 3600.0


async def test_what_cannot_be_read_is_an_error_and_is_written_over(transport: Transport) -> None:
    metadata = {"name": "scheduler-queues", "annotations": {ANNOTATION: "{}"}}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    await transport.request("POST", PATH.rpartition("/")[0], body=json.dumps(body).encode())
    mine = lease(transport, "a")
    with pytest.raises(MalformedAnswer, match="past-usage: Object missing required field `at`"):
        await mine.read(ahead=lambda: 0.0)
    assert mine.is_known
    await mine.write(past(research=1.0), ahead=0.0)
    assert await mine.read(ahead=lambda: 0.0) == past(research=1.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "\ud800",
        '{"at": 1e999, "resources": [], "queues": {}}',
        '{"at": -1, "resources": [], "queues": {}}',
        '{"at": 1, "resources": ["cpu"], "queues": {"a": [1, 2]}}',
        '{"at": 1, "resources": ["cpu"], "queues": {"a": []}}',
        '{"at": 1, "resources": ["cpu"], "queues": {"a": [-0.5]}}',
        '{"at": 1, "resources": ["cpu"], "queues": {"a": [1e999]}}',
        '{"at": 1, "resources": ["cpu"], "queues": {"a": ["1"]}}',
        "[" * 100_000,
    ],
)
def test_no_text_breaks_a_reader(text: str) -> None:
    with pytest.raises(MalformedAnswer, match="past-usage"):
        decode_past_usage(text)


names = st.text(min_size=1, max_size=130)


@given(queues=st.dictionaries(names, st.floats(0, 1e15), max_size=20), most=st.integers(100, 3000))
def test_what_is_written_has_room_and_keeps_those_that_use_most(queues: dict[str, float], most: int) -> None:
    largest = sorted(queues, key=lambda name: -queues[name])
    given_ = PastUsage(5.0, ("cpu",), {name: (queues[name],) for name in largest})
    text, left_out = encode_past_usage(given_, most_bytes=most)
    assert len(text.encode()) <= most
    found = decode_past_usage(text)
    assert list(found.queues) == largest[: len(largest) - left_out]
    assert all(found.queues[name][0] == pytest.approx(queues[name], abs=0.01) for name in found.queues)


def test_ten_thousand_queues_with_the_longest_names_fit_as_far_as_there_is_room() -> None:
    queues = {f"{'q' * 63}/{number:063}": (float(number + 1),) for number in range(10_000)}
    text, left_out = encode_past_usage(PastUsage(1_800_000_000.0, ("cpu",), queues))
    assert len(text) <= MOST_BYTES
    assert 0 < left_out < 9_000
    few, none_left_out = encode_past_usage(PastUsage(1.8e9, ("cpu",), {f"team/{n}": (1.5,) for n in range(5_000)}))
    assert none_left_out == 0
    assert len(few) <= MOST_BYTES

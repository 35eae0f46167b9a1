"""Moves by the daemon: proved, within budgets, with room reserved for the replacement, and judged afterwards."""

from __future__ import annotations

from collections import Counter

import pytest

from kube_policy_scheduler.daemon.scheduling.rebalancer import MOVES
from kube_policy_scheduler.tooling.rebalancing.ledger import decode_ledger
from tests.simulation.api_server import refusal
from tests.simulation.calm import Calm, story
from tests.simulation.replica import MOVES_LEASE

SPREAD = "filter fits(cpu, mem)\nscore 100 * (1 - node.used_fraction.cpu)\nrebalance margin 5 rest 30s\n"
ONE_NODE = 'filter fits(cpu, mem) and node.name == "n0"\n'


def on(calm: Calm) -> dict[str, int]:
    """Return how many pods each node has, without those that are being deleted."""
    pods = calm.server.pods.values()
    return dict(
        Counter(
            pod["spec"]["nodeName"]
            for pod in pods
            if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        )
    )


def moved(calm: Calm) -> Counter[str]:
    return Counter(each.outcome.value for each in calm.told.moves)


async def crowd(calm: Calm, *pods: str, policy: str = SPREAD) -> None:
    """Place pods on the first node by another policy, then let the policy of the test decide."""
    calm.process.use_policies(calm.policies_of(ONE_NODE))
    for name in pods:
        calm.pod(name, owner=name, app="web")
    await calm.after(5)
    assert on(calm) == {"n0": len(pods)}
    calm.process.use_policies(calm.policies_of(policy))


def test_pods_move_until_nothing_is_gained_and_each_lands_where_it_was_to() -> None:
    async def tell(calm: Calm) -> None:
        await crowd(calm, "a", "b", "c", "d", "e", "f")
        await calm.after(300)
        assert on(calm) == {"n0": 2, "n1": 2, "n2": 2}
        assert moved(calm) == {"evicted": 4, "landed": 4}
        await calm.after(600)
        assert len(calm.server.evicted) == 4, "and then there is peace"

    story(SPREAD, tell, cpus=(8, 8, 8))


def test_nothing_moves_without_the_statement_or_where_its_condition_is_false() -> None:
    async def tell(calm: Calm) -> None:
        await crowd(calm, "a", "b", "c", policy=SPREAD.partition("rebalance")[0])
        await calm.after(200)
        calm.process.use_policies(calm.policies_of(SPREAD.rstrip() + ' if pod.label.app != "web"\n'))
        await calm.after(200)
        assert calm.server.evicted == []

    story(SPREAD, tell, cpus=(8, 8))


def test_without_a_margin_only_pods_move_that_their_node_rejects() -> None:
    other = "filter fits(cpu, mem)\nscore 100 * (1 - node.used_fraction.cpu)\nrebalance\n"

    async def tell(calm: Calm) -> None:
        await crowd(calm, "a", "b", policy=other)
        await calm.after(200)
        assert calm.server.evicted == []
        calm.process.use_policies(calm.policies_of(other + 'filter node.name != "n0"\n'))
        await calm.after(200)
        assert on(calm) == {"n1": 2}

    story(other, tell, cpus=(8, 8))


@pytest.mark.parametrize(("answer", "outcome", "most"), [(429, "later", 100), (500, "never", 1)])
def test_budgets_of_the_api_server_are_kept_and_the_others_go_on(answer: int, outcome: str, most: int) -> None:
    async def tell(calm: Calm) -> None:
        calm.server.spent_budgets = {"a": answer}
        await crowd(calm, "a", "b", "c", "d")
        await calm.after(300)
        assert "a" in calm.on_nodes()
        assert on(calm) == {"n0": 2, "n1": 2}
        assert 1 <= moved(calm)[outcome] <= most
        assert calm.process.scheduler.reservations.all() == []
        if answer == 429:
            calm.server.spent_budgets.clear()

    story(SPREAD, tell, cpus=(8, 8))


def test_room_is_reserved_for_the_replacement_until_it_comes() -> None:
    policy = 'filter fits(cpu, mem)\nfilter node.name != "n0" if pod.label.app == "web"\nrebalance\n'

    async def tell(calm: Calm) -> None:
        calm.process.use_policies(calm.policies_of(ONE_NODE))
        calm.pod("big", millis=3000, owner="big", app="web")
        await calm.after(5)
        calm.server.replaces_after = 10.0
        calm.process.use_policies(calm.policies_of(policy))
        while not calm.server.evicted:
            await calm.after(1)
        calm.pod("thief", millis=3000, app="other")
        await calm.after(5)
        assert calm.server.pods["thief"]["spec"].get("nodeName") != "n1"
        await calm.after(30)
        assert moved(calm) == {"evicted": 1, "landed": 1}
        assert calm.server.pods["thief"]["spec"].get("nodeName") == "n0", "where the old pod was"

    story(policy, tell, cpus=(4, 4))


def test_room_that_is_reserved_counts_once_so_that_moves_of_one_pass_go_beside_each_other() -> None:
    def only(first: str, second: str) -> str:
        return f'filter fits(cpu, mem) and (node.name == "{first}" or node.name == "{second}")\n'

    policy = only("n2", "n3") + "rebalance rest 0s\n"

    async def tell(calm: Calm) -> None:
        calm.process.use_policies(calm.policies_of(only("n0", "n1")))
        for name in ("a", "b"):
            calm.pod(name, millis=3000, owner=name)
        await calm.after(5)
        calm.server.replaces_after = 10.0
        calm.process.use_policies(calm.policies_of(policy))
        while not calm.server.evicted:
            await calm.after(1)
        await calm.after(2)
        assert moved(calm) == {"evicted": 2}, "both at once, though each target has room for one"
        await calm.after(20)
        assert on(calm) == {"n2": 1, "n3": 1}

    story(policy, tell, cpus=(4, 4, 4, 4))


def test_a_replacement_lands_although_the_answer_to_its_binding_is_lost() -> None:
    policy = 'filter fits(cpu, mem)\nfilter node.name != "n0" if pod.label.app == "web"\nrebalance\n'

    async def tell(calm: Calm) -> None:
        answer = calm.server.answer

        def lost(verb: str, path: str, body: bytes) -> bytes:
            found = answer(verb, path, body)
            if "/pods/" in path and (verb == "GET" or path.endswith("/binding")):
                raise refusal(503, "no answer")
            return found

        calm.process.use_policies(calm.policies_of(ONE_NODE))
        calm.pod("big", millis=3000, owner="big", app="web")
        await calm.after(5)
        calm.server.answer = lost  # type: ignore[method-assign]
        calm.process.use_policies(calm.policies_of(policy))
        while not calm.server.evicted:
            await calm.after(1)
        await calm.after(10)
        assert on(calm) == {"n1": 1}
        assert calm.process.scheduler.reservations.all() == []
        await calm.after(100)
        assert moved(calm) == {"evicted": 1, "landed": 1}

    story(policy, tell, cpus=(4, 4))


def test_room_for_a_replacement_that_never_comes_is_given_back_and_counts_as_a_miss() -> None:
    policy = 'filter fits(cpu, mem)\nfilter node.name != "n0" if pod.label.app == "web"\nrebalance\n'

    async def tell(calm: Calm) -> None:
        calm.process.use_policies(calm.policies_of(ONE_NODE))
        calm.pod("big", millis=3000, owner="big", app="web")
        await calm.after(5)
        calm.server.replaces_after = 10_000.0
        calm.process.use_policies(calm.policies_of(policy))
        while not calm.server.evicted:
            await calm.after(1)
        await calm.after(20)
        calm.pod("one", millis=3000, app="other")
        calm.pod("two", millis=3000, app="other")
        await calm.after(10)
        assert len(calm.on_nodes()) == 1
        await calm.after(100)
        assert len(calm.on_nodes()) == 2
        assert moved(calm) == {"evicted": 1, "pending": 1}

    story(policy, tell, cpus=(4, 4))


def test_a_replacement_counts_for_a_limit_until_it_comes() -> None:
    """Beside the old pod, too, until that has ended."""
    policy = (
        'filter fits(cpu, mem)\nfilter node.name != "n0" if pod.label.app == "web"\nrebalance\nlimit count() to 3\n'
    )

    async def tell(calm: Calm) -> None:
        calm.process.use_policies(calm.policies_of(ONE_NODE))
        calm.pod("moves", owner="moves", app="web")
        calm.pod("stays", app="other")
        await calm.after(5)
        calm.server.stuck.add("moves")
        calm.server.replaces_after = 10.0
        calm.process.use_policies(calm.policies_of(policy))
        while not calm.server.evicted:
            await calm.after(1)
        calm.pod("new", app="other")
        await calm.after(5)
        assert calm.on_nodes() == ["moves", "stays"]
        await calm.after(10)
        assert moved(calm) == {"evicted": 1, "landed": 1}
        assert "new" not in calm.on_nodes()
        calm.server.release("moves")
        await calm.after(5)
        assert "new" in calm.on_nodes()

    story(policy, tell, cpus=(4, 4))


def test_a_queue_uses_no_more_while_a_pod_moves() -> None:
    """Its replacement keeps what is guaranteed to it, also while nobody knows what became of the eviction."""
    policy = (
        'filter fits(cpu, mem)\nfilter node.name != "n0" if pod.label.app == "web"\nrebalance\n'
        'queue a for pods where pod.label.team == "a" min cpu 2\n'
        'queue b for pods where pod.label.team == "b" min cpu 2\nreclaim\n'
    )

    async def tell(calm: Calm) -> None:
        answer = calm.server.answer

        def lost(verb: str, path: str, body: bytes) -> bytes:
            if path.endswith("/eviction"):
                raise refusal(503, "no answer")
            return answer(verb, path, body)

        calm.server.answer = lost  # type: ignore[method-assign]
        calm.process.use_policies(calm.policies_of(ONE_NODE))
        calm.pod("moves", millis=2000, owner="moves", app="web", team="a")
        await calm.after(5)
        calm.process.use_policies(calm.policies_of(policy))
        while not calm.process.scheduler.reservations.all():
            await calm.after(1)
        calm.pod("new", millis=2000, team="b")
        await calm.after(5)
        assert calm.on_nodes() == ["moves"]

    story(policy, tell, cpus=(3, 3))


def test_pending_pods_go_first() -> None:
    async def tell(calm: Calm) -> None:
        await crowd(calm, "a", "b", "c", "d")
        calm.server.forbidden.add("bindings")
        calm.pod("waits", app="web")
        await calm.after(120)
        assert calm.server.evicted == []
        calm.server.forbidden.clear()
        await calm.after(300)
        assert calm.server.evicted

    story(SPREAD, tell, cpus=(8, 8))


def test_what_a_pass_tries_wakes_no_pod_that_waits_so_it_does_not_end_itself() -> None:
    """Each step of the search took pods off their nodes for a moment. Pods that waited were tried again, and went
    first: where several fitted nowhere, nothing ever moved."""

    async def tell(calm: Calm) -> None:
        await crowd(calm, "a", "b", "c", "d", "e", "f", "g", "h")
        for name in ("huge", "larger", "largest"):
            calm.pod(name, millis=90_000, app="web")
        await calm.after(120)
        assert on(calm) == {"n0": 2, "n1": 2, "n2": 2, "n3": 2}
        assert moved(calm) == {"evicted": 6, "landed": 6}
        await calm.after(60)
        tries = calm.told.told["unschedulable"]
        await calm.after(100)  # five passes
        assert calm.told.told["unschedulable"] == tries

    story(SPREAD, tell, cpus=(8, 8, 8, 8))


def test_bare_pods_stay() -> None:
    async def tell(calm: Calm) -> None:
        calm.process.use_policies(calm.policies_of(ONE_NODE))
        for name in "abcd":
            calm.pod(name, app="web")
        await calm.after(5)
        calm.process.use_policies(calm.policies_of(SPREAD))
        await calm.after(200)
        assert calm.server.evicted == []

    story(SPREAD, tell, cpus=(8, 8))


def test_a_restart_moves_nobody_back() -> None:
    async def tell(calm: Calm) -> None:
        await crowd(calm, "a", "b", "c", "d")
        while not calm.server.evicted:
            await calm.after(1)
        calm.restart()
        await calm.after(400)
        assert on(calm) == {"n0": 2, "n1": 2}
        assert len(calm.server.evicted) <= 3

    story(SPREAD, tell, cpus=(8, 8))


def test_a_node_that_a_workload_left_is_not_gone_back_to_after_a_restart() -> None:
    away = 'filter fits(cpu, mem) and node.name != "{}"\nrebalance rest 0s\n'

    async def tell(calm: Calm) -> None:
        await crowd(calm, "a", policy=away.format("n0"))
        await calm.after(200)
        assert on(calm) == {"n1": 1}
        kept = decode_ledger(calm.server.leases[MOVES_LEASE]["metadata"]["annotations"][MOVES])
        assert kept.hits == (True,)
        calm.restart()
        calm.process.use_policies(calm.policies_of(away.format("n1")))
        await calm.after(300)
        assert on(calm) == {"n1": 1}, "it left n0 not long ago"
        assert len(calm.server.evicted) == 1

    story(away.format("n0"), tell, cpus=(8, 8))


def test_what_somebody_else_wrote_into_the_lease_of_moves_is_written_over() -> None:
    async def tell(calm: Calm) -> None:
        await crowd(calm, "a", "b", "c", "d")
        await calm.after(100)
        calm.server.leases[MOVES_LEASE]["metadata"]["annotations"] = {MOVES: '{"hits": "all"}'}
        calm.restart()
        calm.process.use_policies(calm.policies_of(ONE_NODE))
        for name in "efgh":
            calm.pod(name, owner=name, app="web")
        await calm.after(5)
        calm.process.use_policies(calm.policies_of(SPREAD))
        await calm.after(300)
        assert decode_ledger(calm.server.leases[MOVES_LEASE]["metadata"]["annotations"][MOVES]).evicted

    story(SPREAD, tell, cpus=(8, 8))


def test_without_the_permission_for_the_lease_pods_move_all_the_same() -> None:
    async def tell(calm: Calm) -> None:
        answer = calm.server.answer

        def guarded(verb: str, path: str, body: bytes) -> bytes:
            if MOVES_LEASE in path or (verb == "POST" and MOVES.encode() in body):
                raise refusal(403, "leases are forbidden")
            return answer(verb, path, body)

        calm.server.answer = guarded  # type: ignore[method-assign]
        await crowd(calm, "a", "b", "c", "d")
        await calm.after(300)
        assert on(calm) == {"n0": 2, "n1": 2}
        assert MOVES_LEASE not in calm.server.leases

    story(SPREAD, tell, cpus=(8, 8))

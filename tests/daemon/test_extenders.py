"""Pods about which HTTP extenders are asked: the scheduler and a real extender over HTTP, the API server in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import pytest
from aiohttp import web

from kube_policy_scheduler.adapters.http.extender import HttpExtender
from kube_policy_scheduler.adapters.kube.binding import Bound, Outcome, Outdated, Reason, Refused, Unknown
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.scheduling.extenders import ExtenderLock, Extenders
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.documents.extender_settings import HttpExtenderSettings, ManagedResource
from kube_policy_scheduler.framework.invariants import violations
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, SchedulingQueue
from tests.fakes.extender_server import ExtenderServer, names_of, only, scoring
from tests.fakes.scheduler_context import context_of
from tests.lang.clusters import pod as make_pod
from tests.simulation.chaos import policies_of

GPU = "example.com/gpu"
POLICY = "score node.free.cpu\n"
LONG_SECONDS = 10.0
"""Longer than anything here takes; a test that waits so long fails."""


class Texts:
    """Pods and nodes as the API server has them."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def pod(self, *, namespace: str, name: str, uid: str) -> bytes | None:
        await asyncio.sleep(0)
        pod = self._stage.pods.get(name)
        return json.dumps(pod).encode() if pod is not None else None

    async def nodes(self, wanted: Mapping[str, str]) -> dict[str, bytes]:
        await asyncio.sleep(0)
        return {name: json.dumps(self._stage.nodes[name]).encode() for name in wanted if name in self._stage.nodes}


class Stage:
    """A scheduler with extenders; it binds, reports and evicts in memory."""

    def __init__(self, *settings: HttpExtenderSettings, policy: str = POLICY, percentage: int = 0) -> None:
        self.pods: dict[str, Any] = {}
        self.nodes: dict[str, Any] = {}
        self.placed: dict[str, str] = {}
        self.failed_with: dict[str, list[str]] = {}
        self.refused_with: dict[str, list[str]] = {}
        self.nominated_to: dict[str, list[str]] = {}
        """What was written to the API server, by pod."""
        self.evicted: list[str] = []
        self.settled: list[Outcome] = []
        """What is found out about bindings whose result is unknown."""
        self.cluster = Cluster()
        self.cluster.ignored_resources = frozenset(
            each.name for one in settings for each in one.managed_resources if each.ignored_by_scheduler
        )
        texts: Any = Texts(self)
        self.extenders = Extenders(
            [HttpExtender(each) for each in settings], self.cluster, texts, percentage_of_nodes=percentage
        )
        me: Any = self
        self.scheduler = Scheduler(context_of(me, self.cluster, observer=Observer(), extenders=self.extenders))
        self.scheduler.use_policies(policies_of(policy))
        self._task = asyncio.create_task(self.scheduler.run())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.scheduler.in_flight.cancel()
        await self.scheduler.drained()
        await self.extenders.close()

    # --- the cluster

    def node(self, name: str, *, cpu: int = 4, **resources: str) -> None:
        allocatable = {"cpu": str(cpu), "memory": "16Gi", "pods": "110"} | resources
        node = {"metadata": {"name": name, "resourceVersion": "1"}, "status": {"allocatable": allocatable}}
        self.nodes[name] = node
        self.scheduler.event_handlers.node_changed(msgspec.convert(node, objects.Node))

    def pod(self, name: str, *, cpu: str = "1", gpu: int = 0, priority: int = 0, on: str = "", job: str = "") -> None:
        requests = {"cpu": cpu} | ({GPU: str(gpu)} if gpu else {})
        pod = {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": name,
                "resourceVersion": "1",
                "labels": {"job": job} if job else {},
            },
            "spec": {
                "schedulerName": "policy-scheduler",
                "priority": priority,
                "nodeName": on,
                "containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}],
            },
        }
        self.pods[name] = pod
        self.scheduler.event_handlers.pod_changed(msgspec.convert(pod, objects.Pod))

    def delete(self, name: str) -> None:
        pod = msgspec.convert(self.pods.pop(name), objects.Pod)
        self.scheduler.event_handlers.pod_deleted(pod)

    # --- the hands of the scheduler

    def begin(self, **_: Any) -> bool:
        return False

    async def bind(self, *, name: str, node: str, **_: Any) -> Outcome:
        await asyncio.sleep(0)
        self.placed[name] = node
        return Bound(node)

    async def settle(self, *, name: str, node: str, **_: Any) -> Outcome:
        await asyncio.sleep(0)
        return self.settled.pop(0)

    async def try_evict(self, victim: Any) -> None:
        pass

    async def evict(self, victim: Any) -> None:
        self.evicted.append(victim.name)

    def failed(self, pod: Any, why: str) -> None:
        self.failed_with.setdefault(pod.name, []).append(why)

    def unschedulable(self, decision: Any) -> None:
        self.refused_with.setdefault(decision.pod.name, []).append(decision.message)
        if decision.preemption is not None and (node_name := decision.preemption.nomination) is not None:
            self.nominated(decision.pod, node_name)

    def bound(self, pod: Any, node_name: str, *, by_us: bool) -> None:
        assert by_us

    def preempted(self, victim: Any, *, by: Any, node_name: str) -> None:
        assert victim.name in self.evicted

    def nominated(self, pod: Any, node_name: str) -> None:
        self.nominated_to.setdefault(pod.name, []).append(node_name)

    def waiting(self, pod: Any, why: str) -> None:
        pass

    def held(self, pod: Any, why: str) -> None:
        pass

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(LONG_SECONDS):
            while not true():  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        under_way = self.scheduler.is_under_way
        found = violations(self.cluster, self.scheduler.queue, self.cluster.assumed, is_under_way=under_way)
        assert not found, "the cache and the queue are right at any moment"


def played(
    tell: Callable[[Stage, ExtenderServer], Awaitable[None]],
    server: ExtenderServer,
    *more: HttpExtenderSettings,
    policy: str = POLICY,
    percentage: int = 0,
    **settings: Any,
) -> None:
    """Run a story with an extender at a server, and perhaps more of them."""

    async def run() -> None:
        async with server.served():
            verbs = {"filter_verb": "filter", "prioritize_verb": "prioritize", "weight": 1, "node_cache_capable": True}
            mine = HttpExtenderSettings(url_prefix=server.url, **(verbs | settings))
            stage = Stage(mine, *more, policy=policy, percentage=percentage)
            try:
                await tell(stage, server)
            finally:
                await stage.close()

    asyncio.run(run())


def test_a_pod_goes_only_where_the_extender_lets_it() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        for name in ("a", "b", "c"):
            stage.node(name)
        stage.pod("web")
        await stage.until(lambda: stage.placed)
        assert stage.placed == {"web": "b"}
        (asked,) = server.of("filter")
        assert sorted(names_of(asked)) == ["a", "b", "c"]
        assert asked["Pod"]["metadata"]["name"] == "web"
        assert not server.of("prioritize"), "as kube-scheduler, an only node is taken without scores"

    played(tell, ExtenderServer(filter=only("b")))


def test_only_feasible_nodes_are_sent_and_whole_nodes_as_the_api_server_has_them() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("small", cpu=1)
        stage.node("large")
        stage.node("other")
        stage.pod("web", cpu="2")
        await stage.until(lambda: stage.placed)
        (asked,) = server.of("filter")
        assert sorted(names_of(asked)) == ["large", "other"]
        assert {node["metadata"]["name"]: node for node in asked["Nodes"]["items"]}["large"] == stage.nodes["large"]

    def keep(asked: Any) -> Any:
        return {"Nodes": asked["Nodes"]}

    played(tell, ExtenderServer(filter=keep), node_cache_capable=False)


@pytest.mark.parametrize(("weight", "host"), [(1, "full"), (100, "scored")])
def test_scores_count_ten_times_their_weight(weight: int, host: str) -> None:
    """A score of 1 counts 10 with weight 1, and 1,000 with weight 100; the other node has 99 free cores more."""

    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("full", cpu=104)
        stage.node("scored", cpu=5)
        stage.pod("web")
        await stage.until(lambda: stage.placed)
        assert stage.placed == {"web": host}

    played(tell, ExtenderServer(prioritize=scoring(scored=1)), weight=weight)


def test_the_scores_of_a_broken_prioritizer_are_left_out_even_if_it_is_not_ignorable() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a", cpu=8)
        stage.node("b")
        stage.pod("web")
        await stage.until(lambda: stage.placed)
        assert stage.placed == {"web": "a"}

    played(tell, ExtenderServer(prioritize=lambda _: b"garbage"))


def test_an_extender_is_asked_only_about_pods_that_request_what_it_manages() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a", **{GPU: "4"})
        stage.pod("plain")
        await stage.until(lambda: "plain" in stage.placed)
        assert not server.asked
        stage.pod("gpu", gpu=1)
        await stage.until(lambda: "gpu" in stage.placed)
        assert len(server.of("filter")) == 1

    played(tell, ExtenderServer(), managed_resources=(ManagedResource(name=GPU),))


def test_a_resource_that_only_the_extender_checks_does_not_keep_a_pod_from_a_node() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a")
        stage.pod("gpu", gpu=1)
        await stage.until(lambda: stage.placed)
        assert stage.placed == {"gpu": "a"}

    ignored = ManagedResource(name=GPU, ignored_by_scheduler=True)
    played(tell, ExtenderServer(), managed_resources=(ignored,))


def test_other_pods_are_placed_while_a_slow_extender_is_asked() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a", cpu=100, **{GPU: "100"})
        for number in range(5):
            stage.pod(f"gpu{number}", gpu=1)
        for number in range(20):
            stage.pod(f"plain{number}")
        await stage.until(lambda: len(stage.placed) == 20)
        assert all(name.startswith("plain") for name in stage.placed)
        server.delay_seconds = 0.0
        await stage.until(lambda: len(stage.placed) == 25)

    played(tell, ExtenderServer(delay_seconds=0.5), managed_resources=(ManagedResource(name=GPU),))


def test_one_pod_at_a_time_and_the_most_important_first() -> None:
    """An extender that hands out devices counts a pod from its answer on, so it must see one after the other."""

    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a", cpu=100)
        stage.node("b", cpu=100)
        for number in range(6):
            stage.pod(f"p{number}", priority=number)
        await stage.until(lambda: len(stage.placed) == 6)
        assert server.most_at_once == 1
        order = [asked["Pod"]["metadata"]["name"] for asked in server.of("filter")]
        assert order[1:] == sorted(order[1:], reverse=True)

    played(tell, ExtenderServer(delay_seconds=0.01), prioritize_verb="")


def test_pods_of_equal_priority_keep_the_order_in_which_the_queue_gave_them() -> None:
    """It lets tenants take turns; by the time of its last attempt, each retried pod would pass each new one."""
    queue, cluster = SchedulingQueue(), Cluster()
    turns = ExtenderLock(queue)
    for number, (at, name) in enumerate([(0.0, "first"), (9.0, "new"), (5.0, "retried"), (6.0, "important")]):
        priority = 5 if name == "important" else 0
        queue.add(make_pod(cluster, name, priority=priority), at)
        queued = queue.take(name)
        assert queued is not None
        assert turns.begin(queued) is (number == 0)
    went = []
    for _ in range(3):
        turns.end()
        queued = turns.next()
        assert queued is not None
        went.append(queued.pod.name)

    assert went == ["important", "new", "retried"]


def test_room_that_is_taken_meanwhile_is_not_given_twice() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a")
        stage.node("b")
        stage.pod("gpu", cpu="4", gpu=0)
        await stage.until(lambda: server.of("filter"))
        stage.pod("static", cpu="1", on="a")
        await stage.until(lambda: len(server.of("filter")) >= 1 and "gpu" in stage.placed)
        assert stage.placed["gpu"] == "b"

    played(tell, ExtenderServer(delay_seconds=0.05, prioritize=scoring(a=10)), weight=1000)


def test_if_all_allowed_nodes_are_taken_meanwhile_the_extender_is_asked_about_new_ones() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a")
        stage.pod("web", cpu="4")
        await stage.until(lambda: server.of("filter"))
        stage.pod("static", cpu="1", on="a")
        stage.node("b")
        await stage.until(lambda: "web" in stage.placed)
        assert stage.placed["web"] == "b"
        assert [names_of(asked) for asked in server.of("filter")] == [["a"], ["b"]]

    played(tell, ExtenderServer(delay_seconds=0.05))


def test_rejected_by_the_extender_a_pod_waits_and_any_event_moves_it() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a")
        stage.node("small", cpu=1)
        stage.pod("web", cpu="2")
        await stage.until(lambda: "web" in stage.refused_with)
        assert stage.refused_with["web"][0] == (
            "0/2 nodes are available: 1 Insufficient cpu, 1 no gpu left."
            " no new claims to deallocate,"
            " preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        )
        (queued,) = stage.scheduler.queue
        assert queued.place is Place.UNSCHEDULABLE
        assert "Extender" in queued.rejectors
        server.filter = only("a")
        stage.node("third", cpu=1)
        await stage.until(lambda: stage.placed)
        assert stage.placed == {"web": "a"}

    played(tell, ExtenderServer(filter=only(a="no gpu left")))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda _: web.Response(status=500), "filter was answered with HTTP 500"),
        (lambda _: {"Error": "no license"}, "no license"),
        (lambda _: {"NodeNames": ["mars"]}, "it returned node 'mars', which was not in the request"),
        (lambda _: b"{", "the answer is not usable"),
    ],
)
def test_an_error_fails_the_attempt_with_backoff_and_an_event(answer: Any, why: str) -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a")
        stage.pod("web")
        await stage.until(lambda: "web" in stage.failed_with)
        assert why in stage.failed_with["web"][0]
        (queued,) = stage.scheduler.queue
        assert queued.place is Place.BACKOFF
        server.filter = only("a")
        await stage.until(lambda: stage.placed)

    played(tell, ExtenderServer(filter=answer))


def test_an_ignorable_extender_is_skipped_and_comes_last() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a")
        stage.node("b")
        stage.pod("web")
        await stage.until(lambda: stage.placed)
        assert stage.placed == {"web": "b"}
        states = stage.extenders.states()
        assert [state.ignorable for state in states] == [False, True]
        assert states[1].problem == "connection refused"
        assert (states[0].requests, states[0].errors) == (1, 0)

    broken = HttpExtenderSettings(
        url_prefix="http://127.0.0.1:1", filter_verb="filter", node_cache_capable=True, ignorable=True
    )

    async def run() -> None:
        server = ExtenderServer(filter=only("b"))
        async with server.served():
            good = HttpExtenderSettings(url_prefix=server.url, filter_verb="filter", node_cache_capable=True)
            stage = Stage(broken, good)
            try:
                await tell(stage, server)
            finally:
                await stage.close()

    asyncio.run(run())


def test_the_best_nodes_are_sent_first_and_the_next_ones_only_if_all_of_them_are_rejected() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        for number in range(250):
            stage.node(f"n{number}", cpu=4 + number)
        stage.pod("web")
        await stage.until(lambda: stage.placed)
        assert stage.placed == {"web": "n100"}
        first, second = (names_of(asked) for asked in server.of("filter"))
        assert first == [f"n{number}" for number in range(249, 149, -1)]
        assert second == [f"n{number}" for number in range(149, 49, -1)]

    played(tell, ExtenderServer(filter=only("n100", "n7")), percentage=10)


def test_a_pod_that_is_deleted_while_it_is_asked_about_leaves_nothing_behind() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a")
        stage.pod("gone")
        stage.pod("waits")
        await stage.until(lambda: server.of("filter"))
        stage.delete("gone")
        await stage.until(lambda: stage.placed)
        assert list(stage.placed) == ["waits"]
        assert not stage.failed_with

    played(tell, ExtenderServer(delay_seconds=0.05))


def test_without_the_lead_nothing_is_placed_and_pods_keep_their_turn() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a")
        stage.pod("one")
        stage.pod("two")
        await stage.until(lambda: server.of("filter"))
        stage.scheduler.lead(False)
        await stage.until(lambda: all(each.place is Place.ACTIVE for each in stage.scheduler.queue))
        assert not stage.placed
        stage.scheduler.lead(True)
        await stage.until(lambda: len(stage.placed) == 2)

    played(tell, ExtenderServer(delay_seconds=0.05))


# --- bind ------------------------------------------------------------------------------------------------


def test_the_extender_binds_if_it_has_the_verb() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a")
        stage.pod("web")
        await stage.until(lambda: not len(stage.scheduler.queue))
        assert server.of("bind") == [{"PodName": "web", "PodNamespace": "shop", "PodUID": "web", "Node": "a"}]

    async def nobody(**_: Any) -> Outcome:
        raise AssertionError("the scheduler must not bind")

    async def run(stage: Stage, server: ExtenderServer) -> None:
        stage.bind = nobody  # type: ignore[method-assign]
        await tell(stage, server)

    played(run, ExtenderServer(), bind_verb="bind")


def test_an_extender_that_refuses_to_bind_fails_the_attempt() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a")
        stage.pod("web")
        await stage.until(lambda: "web" in stage.failed_with)
        assert "no device left" in stage.failed_with["web"][0]
        assert not stage.placed
        assert not stage.cluster.assumed

    played(tell, ExtenderServer(bind=lambda _: {"Error": "no device left"}), bind_verb="bind")


@pytest.mark.parametrize("truth", [Bound("a"), Refused(Reason.UNAVAILABLE, "it is not bound")])
def test_after_a_binding_without_a_usable_answer_the_pod_itself_is_asked(
    truth: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube_policy_scheduler.daemon.scheduling.schedule_one.DOUBT_SECONDS", 0.01)

    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.settled = [Unknown("not known yet", since=0.0), truth]
        stage.node("a")
        stage.pod("web")
        await stage.until(lambda: not stage.settled)
        if isinstance(truth, Bound):
            await stage.until(lambda: not len(stage.scheduler.queue))
        else:
            await stage.until(lambda: "web" in stage.failed_with)
        assert len(server.of("bind")) == 1
        assert not stage.placed, "only the extender binds"

    played(tell, ExtenderServer(bind=lambda _: web.Response(status=502)), bind_verb="bind")


def test_if_an_ignorable_extender_cannot_bind_the_scheduler_does() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a")
        stage.pod("web")
        await stage.until(lambda: stage.placed)
        assert stage.placed == {"web": "a"}

    played(tell, ExtenderServer(bind=lambda _: web.Response(status=502)), bind_verb="bind", ignorable=True)


# --- preempt ---------------------------------------------------------------------------------------------


def busy(stage: Stage) -> None:
    """Two nodes, each full of a pod; the one on b is less important."""
    for name, priority in (("a", 5), ("b", 1)):
        stage.node(name)
        stage.pod(f"on-{name}", cpu="4", priority=priority, on=name)


def test_an_extender_may_drop_candidates_of_preemption() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        busy(stage)
        stage.pod("high", cpu="4", priority=10)
        await stage.until(lambda: stage.evicted)
        assert stage.evicted == ["on-a"]
        (asked,) = server.of("preempt")
        assert asked["NodeNameToMetaVictims"] == {
            "a": {"Pods": [{"UID": "on-a"}], "NumPDBViolations": 0},
            "b": {"Pods": [{"UID": "on-b"}], "NumPDBViolations": 0},
        }
        assert stage.cluster.nominated.keys() == {"a"}
        assert stage.nominated_to == {"high": ["a"]}, "b, the better one, is never shown"

    def keep(asked: Any) -> Any:
        return {"NodeNameToMetaVictims": {"a": asked["NodeNameToMetaVictims"]["a"]}}

    played(tell, ExtenderServer(preempt=keep), preempt_verb="preempt")


def test_a_victim_of_an_extender_that_is_not_bound_yet_is_not_deleted() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        sends, told = asyncio.Event(), list[str]()

        async def bind(*, name: str, node: str, still_holds: Callable[[], bool], **_: Any) -> Outcome:
            if name == "low":
                await sends.wait()
            if not still_holds():
                return Outdated()
            stage.placed[name] = node
            return Bound(node)

        stage.bind = bind  # type: ignore[method-assign]
        stage.preempted = lambda victim, **_: told.append(victim.name)  # type: ignore[method-assign]
        stage.node("a")
        stage.pod("low", cpu="4")
        await stage.until(lambda: stage.cluster.assumed)
        stage.pod("high", cpu="4", priority=10)
        await stage.until(lambda: (cycle := stage.scheduler.binding_cycles.get("low")) is None or cycle.cancelled)
        assert stage.nominated_to.get("high")
        sends.set()
        await stage.until(lambda: stage.placed)
        assert stage.placed == {"high": "a"}
        assert (told, stage.evicted) == (["low"], [])
        assert stage.scheduler.queue.get("low") is not None

    dropping = ExtenderServer(preempt=lambda asked: {"NodeNameToMetaVictims": asked["NodeNameToMetaVictims"]})
    played(tell, dropping, filter_verb="", prioritize_verb="", preempt_verb="preempt")


def test_without_a_candidate_that_is_left_nobody_is_evicted() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        busy(stage)
        stage.pod("high", cpu="4", priority=10)
        await stage.until(lambda: all(each.place is Place.UNSCHEDULABLE for each in stage.scheduler.queue))
        assert server.of("preempt")
        assert not stage.evicted
        assert not stage.cluster.nominated
        assert not stage.nominated_to
        assert len(stage.refused_with["high"]) == 1

    played(tell, ExtenderServer(preempt=lambda _: {"NodeNameToMetaVictims": {}}), preempt_verb="preempt")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"b": {"Pods": [{"UID": "on-a"}]}}, "a victim that is not on node b"),
        ({"b": {"Pods": [{"UID": "important"}]}}, "or must not be evicted"),
        ({"mars": {"Pods": [{"UID": "on-a"}]}}, "which was no candidate"),
        ({"b": {"Pods": []}}, "expected at least one victim pod on node b"),
    ],
)
def test_victims_of_an_extender_must_be_pods_that_may_be_evicted_there(answer: Any, why: str) -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        busy(stage)
        stage.pod("important", cpu="0", priority=50, on="b")
        stage.pod("high", cpu="4", priority=10)
        await stage.until(lambda: "high" in stage.failed_with)
        assert why in stage.failed_with["high"][0]
        assert not stage.evicted
        assert not stage.nominated_to

    played(tell, ExtenderServer(preempt=lambda _: {"NodeNameToMetaVictims": answer}), preempt_verb="preempt")


GANG = "gang by pod.label.job size 2 if pod.label.job\n"


def gang_on_two_nodes(stage: Stage) -> None:
    """Three members of a gang, two of them on one node; on another node a pod that has no gang."""
    for name in ("a", "b"):
        stage.node(name)
    for name, node, cpu in (("a1", "a", "2"), ("a2", "a", "2"), ("b1", "b", "4")):
        stage.pod(name, cpu=cpu, priority=1, on=node, job="train")


def echoed(asked: Any) -> Any:
    return {"NodeNameToMetaVictims": asked["NodeNameToMetaVictims"]}


def test_an_extender_is_asked_about_victims_on_the_node_and_the_gang_goes_as_a_whole() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        gang_on_two_nodes(stage)
        stage.pod("high", cpu="4", priority=10)
        await stage.until(lambda: len(stage.evicted) == 3)
        assert sorted(stage.evicted) == ["a1", "a2", "b1"]
        (asked,) = server.of("preempt")
        assert {
            node: [pod["UID"] for pod in each["Pods"]] for node, each in asked["NodeNameToMetaVictims"].items()
        } == {
            "a": ["a1", "a2"],
            "b": ["b1"],
        }

    played(tell, ExtenderServer(preempt=echoed), policy=GANG.replace("size 2", "size 3"), preempt_verb="preempt")


@pytest.mark.parametrize("ignorable", [False, True])
def test_an_extender_that_names_a_part_of_a_gang_evicts_nobody_on_that_node(ignorable: bool) -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        gang_on_two_nodes(stage)
        stage.pod("high", cpu="1", priority=10)
        await stage.until(lambda: server.of("preempt"))
        await stage.until(lambda: all(each.place is not Place.IN_FLIGHT for each in stage.scheduler.queue))
        assert not stage.evicted
        assert not stage.cluster.nominated

    answer = {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "a1"}], "NumPDBViolations": 0}}}
    server = ExtenderServer(preempt=lambda _: answer)
    played(tell, server, policy=GANG.replace("size 2", "size 3"), preempt_verb="preempt", ignorable=ignorable)


def test_a_member_that_must_stay_keeps_its_gang_from_an_extender() -> None:
    """It gets its priority, or a node, while the extender is asked."""

    async def tell(stage: Stage, server: ExtenderServer) -> None:
        gang_on_two_nodes(stage)
        here.append(stage)
        stage.pod("high", cpu="4", priority=10)
        await stage.until(lambda: "high" in stage.failed_with)
        assert "must not be evicted" in stage.failed_with["high"][0]
        assert not stage.evicted

    def answer(asked: Any) -> Any:
        here[0].node("c")
        here[0].pod("late", cpu="4", priority=50, on="c", job="train")
        return echoed(asked)

    here: list[Stage] = []
    played(tell, ExtenderServer(preempt=answer), policy=GANG.replace("size 2", "size 3"), preempt_verb="preempt")


def test_an_extender_may_choose_which_members_go_that_a_gang_can_do_without() -> None:
    """As of the policy's own extender, it is only asked that the gang keeps as many as it needs."""

    async def tell(stage: Stage, server: ExtenderServer) -> None:
        stage.node("a", cpu=3)
        for name in ("a1", "a2", "a3"):
            stage.pod(name, priority=1, on="a", job="train")
        stage.pod("high", priority=10)
        await stage.until(lambda: stage.evicted)
        (asked,) = server.of("preempt")
        assert asked["NodeNameToMetaVictims"]["a"]["Pods"] == [{"UID": "a3"}]
        assert stage.evicted == ["a1"]

    chosen = {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "a1"}], "NumPDBViolations": 0}}}
    played(tell, ExtenderServer(preempt=lambda _: chosen), policy=GANG, preempt_verb="preempt")


def test_a_gang_of_which_an_extender_refuses_a_part_does_not_start() -> None:
    async def tell(stage: Stage, server: ExtenderServer) -> None:
        for name in ("a", "b"):
            stage.node(name, cpu=1)
        for name in ("m1", "m2"):
            stage.pod(name, job="train")
        await stage.until(lambda: len(server.of("filter")) > 1)
        await stage.until(lambda: not any(each.place is Place.IN_FLIGHT for each in stage.scheduler.queue))
        assert stage.placed == {}

    def refuse(asked: Any) -> Any:
        if asked["Pod"]["metadata"]["name"] == "m2":
            return {"NodeNames": [], "FailedNodes": dict.fromkeys(asked["NodeNames"], "not this one")}
        return {"NodeNames": asked["NodeNames"]}

    played(tell, ExtenderServer(filter=refuse), policy=GANG)

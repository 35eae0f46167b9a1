"""A random case of quotas before the daemon itself: what it evicts and starts, to compare with `policyctl simulate`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from kube_policy_scheduler.daemon.observing.observers import Decided, Observer
from tests.quotas.accounts import State
from tests.quotas.model import Arrival, Case
from tests.quotas.product import OF_NO_QUEUE, node_object, pod_object, policy_text, state_of
from tests.quotas.trace import Evicted, Rested, Trace
from tests.simulation.api_server import ApiServer, Json
from tests.simulation.chaos import policies_of
from tests.simulation.event_log import EventLog
from tests.simulation.replica import Replica
from tests.simulation.virtual_time import run

SETTLES_SECONDS = 420.0
RESTARTS_AFTER_SECONDS = 1.0


class _Evictions(Observer):
    """Notes each decision that evicts pods, as the scheduler saw it."""

    def __init__(self, story: QuotaStory) -> None:
        self._story = story
        self._going = story.going

    def on_decided(self, decided: Decided) -> None:
        """Note a decision, with those about other members of its gang."""
        places = {
            _base(each.pod.name): each.preemption.nominated_node
            for each in (decided.decision, *decided.others)
            if each.preemption is not None and each.preemption.nominated_node is not None
        }
        found = [p for each in (decided.decision, *decided.others) if (p := each.preemption) is not None and p.victims]
        if not found:
            return
        story, before = self._story, self._story.state()
        going = {victim.uid: _base(victim.name) for each in found for victim in each.victims}
        victims = tuple(name for uid, name in going.items() if uid not in self._going)
        self._going.update(going)
        if victims:
            by, node = next(iter(places.items()))
            gone = before.evicted(victims)
            after = gone.changed(replace(gone.pods[name], promised=there) for name, there in places.items())
            story.trace.steps.append(Evicted(story.now(), by, victims, node, before, after, story.changes))
        story.evictions += 1


class _Server(ApiServer):
    """An API server whose pods end after a while."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.lasts: dict[str, float] = {}
        self.lost: Counter[str] = Counter()
        """Pods that the scheduler deleted, by namespace."""
        self.ended = self._again = 0

    def _bind(self, pod: Json, node: str) -> None:
        super()._bind(pod, node)
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        lasts = self.lasts.get(_base(name))
        if lasts is not None:
            asyncio.get_running_loop().call_later(lasts, self._end, name, uid)

    def answer(self, verb: str, path: str, body: bytes) -> bytes:
        """Carry out a request; whoever the scheduler deletes comes again, as if its controller created it."""
        name = path.partition("?")[0].split("/")[6:7]
        pod = self.pods.get(name[0]) if verb == "DELETE" and name else None
        ends = pod is not None and "deletionTimestamp" in pod["metadata"]
        found = super().answer(verb, path, body)
        if pod is not None and not ends and "deletionTimestamp" in pod["metadata"]:
            self._again += 1
            again, spec = f"{_base(pod['metadata']['name'])}.{self._again}", dict(pod["spec"])
            spec.pop("nodeName", None)
            self.lost[pod["metadata"]["namespace"]] += 1
            loop, meta = asyncio.get_running_loop(), pod["metadata"]
            loop.call_later(0.05, lambda: self.create_pod(again, spec, meta["labels"], namespace=meta["namespace"]))
        return found

    def _end(self, name: str, uid: str) -> None:
        pod = self.pods.get(name)
        if pod is not None and pod["metadata"]["uid"] == uid and "deletionTimestamp" not in pod["metadata"]:
            self.ended += 1
            self.finish_pod(name)


def _base(name: str) -> str:
    return name.partition(".")[0]


class QuotaStory:
    """One case before one daemon, or several lives of it."""

    def __init__(self, case: Case, *, restarts: bool = False, seed: int = 1, log: EventLog | None = None) -> None:
        """Make one.

        Args:
            case: what happens.
            restarts: kill the scheduler after each of its first evictions.
            seed: of what differs from server to server.
            log: notes what the scheduler sees and does.
        """
        self.case, self.trace, self.evictions, self._log = case, Trace(), 0, log
        self.going = set[str]()
        """By uid, the pods that were evicted."""
        self._restarts, self._seed = restarts, seed
        self._lives = 0
        self._arrived = 0

    @property
    def changes(self) -> int:
        """Return how many changes from outside there were."""
        return self._arrived + self.server.ended

    def now(self) -> float:
        """Return seconds from the beginning."""
        return asyncio.get_running_loop().time()

    def state(self) -> State:
        """Return what the scheduler sees."""
        scheduler = self.replica.scheduler
        clock = scheduler.context.clock
        return state_of(self.case, scheduler.cluster, scheduler.queue, now=clock(), began=clock() - self.now())

    def run(self) -> Trace:
        """Return what happens."""
        run(self._main())
        return self.trace

    async def _main(self) -> None:
        self.server = _Server(Random(self._seed))
        self.server.lag_seconds = 0.01
        self._policies = policies_of(policy_text(self.case))
        for node in self.case.nodes:
            self._set_node(node.name, usable=node.usable)
        self._begin()
        for moment, happens in self._schedule():
            await asyncio.sleep(max(0.0, moment - self.now()))
            happens()
            await self._restart_after_evictions()
        for _ in range(int(SETTLES_SECONDS / 10)):
            await asyncio.sleep(10.0)
            await self._restart_after_evictions()
        found = [*self.replica.violations(), *self.server.violations]
        assert found == [], found
        usage = self.replica.scheduler.cluster.quota_usage
        wrong = usage.miscounted(self.replica.scheduler.cluster.pods.values()) if usage is not None else ()
        self.trace.steps.append(Rested(self.now(), self.state(), tuple(wrong)))

    def _schedule(self) -> list[tuple[float, Any]]:
        arrivals = [(each.at, lambda each=each: self._arrive(each)) for each in self.case.arrivals]
        cordons = [(at, lambda name=name: self._set_node(name, usable=False)) for at, name in self.case.cordons]
        return sorted([*arrivals, *cordons], key=lambda event: event[0])

    async def _restart_after_evictions(self) -> None:
        if self._restarts and self.evictions and self._lives < 4:
            self.evictions = 0
            self.replica.kill()
            await asyncio.sleep(RESTARTS_AFTER_SECONDS)
            self._begin()

    def _begin(self) -> None:
        self._lives += 1
        self.replica = Replica(self.server, self._policies, name=f"r{self._lives}", seed=self._lives, log=self._log)
        self.replica.observers.add(_Evictions(self))

    def _set_node(self, name: str, *, usable: bool) -> None:
        made = msgspec.to_builtins(node_object(next(node for node in self.case.nodes if node.name == name)))
        offers = made["status"]["allocatable"]
        cpu = int(offers.pop("cpu").rstrip("m")) // 1000
        labels = {key: value for key, value in made["metadata"]["labels"].items() if "/" not in key}
        self.server.set_node(name, cpu=cpu, labels=labels, unschedulable=not usable, offers=offers)

    def _arrive(self, arrival: Arrival) -> None:
        for pod in arrival.pods:
            self._arrived += 1
            if arrival.lasts is not None:
                self.server.lasts[pod.name] = arrival.lasts
            made = msgspec.to_builtins(pod_object(pod))
            spec = {key: made["spec"][key] for key in ("priority", "containers")}
            meta = made["metadata"]
            owner = pod.name.rpartition("-")[0]
            labels = meta.get("labels") or {}
            self.server.create_pod(pod.name, spec, labels, namespace=meta["namespace"], owner=owner)


def told(case: Case, *, restarts: bool = False, seed: int = 1) -> tuple[Trace, Counter[str]]:
    """Return what the daemon does with a case, and how many pods each queue lost.

    restarts: it is killed after its evictions, and starts again.
    """
    story = QuotaStory(case, restarts=restarts, seed=seed)
    trace = story.run()
    lost = Counter({name: number for name, number in story.server.lost.items() if name != OF_NO_QUEUE})
    return trace, lost + Counter({"": story.server.lost[OF_NO_QUEUE]})


def differences(one: Trace, other: Trace, lost: tuple[Counter[str], Counter[str]]) -> Iterator[str]:
    """Yield how two runs of one case differ, in what queues use in the end and in how many pods they lost."""
    yield from other_uses(one, other)
    if lost[0] != lost[1]:
        yield f"evicted {dict(lost[0])} or {dict(lost[1])}"


def other_uses(one: Trace, other: Trace) -> Iterator[str]:
    """Yield how two runs of one case differ in what queues use in the end."""
    for queue in one.last.queues:
        for resource in one.last.counted:
            uses = [trace.last.used(queue.name, resource) for trace in (one, other)]
            if uses[0] != uses[1]:
                yield f"{queue.name} uses {uses[0]} or {uses[1]} {resource}"


def evicts_again(one: Trace, other: Trace) -> dict[str, int]:
    """Return who evicts more than once in the other run, and more often than in the first one, with how often."""
    before = Counter(step.by for step in one.evictions)
    return {
        by: times for by, times in Counter(step.by for step in other.evictions).items() if times > max(1, before[by])
    }

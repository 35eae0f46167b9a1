"""One case played through: its pods decided in order, each with what it changes in the world. Compares nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.documents.fixtures import FixtureObject
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError
from kube_policy_scheduler.framework.cycle import Cycle
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.permit import Claim, Permit
from kube_policy_scheduler.tooling.tester import codes
from kube_policy_scheduler.tooling.tester.outcome import Outcome, Warned, decide
from kube_policy_scheduler.tooling.tester.policies import TestedPolicies, TestedPolicy
from kube_policy_scheduler.tooling.tester.readings import Readings
from kube_policy_scheduler.tooling.tester.scene import Scene, SceneBuilder
from kube_policy_scheduler.tooling.tester.suite import Case, Kind, Part, Step, did_you_mean
from kube_policy_scheduler.tooling.tester.waiting import Waiting

Observe = Callable[[Case, Frame, TestedPolicy], None]
"""Called before each decision, and for each pod of a queue, while the cluster is as the decision finds it."""


@dataclass(frozen=True, slots=True)
class Theatre:
    """What all cases of a run have in common."""

    document: Document
    builder: SceneBuilder
    readings: Readings
    policies: TestedPolicies
    observe: Observe | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision of a case, and what can be asked about it until the next is made."""

    step: Step
    outcome: Outcome
    policy: TestedPolicy
    frame: Frame
    in_full: Callable[[], Outcome]
    """Returns the same outcome, with what every filter alone says."""


class Play:
    """Plays one case on one scene."""

    def __init__(self, case: Case, scene: Scene, theatre: Theatre, *, cycle: Cycle) -> None:
        self._case = case
        self._scene = scene
        self._theatre = theatre
        self._cycle = cycle
        self._hosts: dict[str, str] = {}
        """Node by uid, also of pods that wait for their gang."""
        self._pods: dict[str, PodInfo] = {}
        self._permit = Permit()
        self.open_to: set[str] = set()
        """Nodes that were feasible for any of the pods."""

    def placed(self) -> Counter[str]:
        """Return how many pods of the case are on each node for good."""
        return Counter(host for uid, host in self._hosts.items() if uid not in self._permit)

    def decisions(self, *, in_full: bool) -> Iterator[Decided]:
        """Decide the pods; where one goes is so once the next is asked for.

        Args:
            in_full: whether to ask every filter alone.

        Raises:
            DocumentError: a pod cannot be made, or no policy governs it.
        """
        case, scene = self._case, self._scene
        now = case.now
        names = planned_names(case)
        for step in case.steps:
            now += step.after_seconds
            if step.finished is not None:
                self._finish(step.finished)
            for repeat in range(step.count):
                now += step.every_seconds if repeat else 0.0
                self._give_back(now)
                pod, name, uid = step.pod, next(names), case.name
                if case.kind is not Kind.ONE and isinstance(pod, Part):
                    pod, uid = Part({**pod.value, "name": name}, pod.path), f"{case.name}/{name}"
                info = self._theatre.builder.pod(pod, scene.cluster, name=name, uid=uid)
                decided = self._decided(step, info, now, in_full=in_full)
                yield decided
                self._settle(decided, now)

    def waiting(self) -> list[Waiting]:
        """Return the pods of a queue, each with the policy that governs it; `observe` is told of each.

        Raises:
            DocumentError: as `decisions`.
        """
        case, scene = self._case, self._scene
        signals = self._theatre.readings.signals(case, case.now)
        found = []
        for step, name in zip(case.steps, planned_names(case), strict=True):
            assert isinstance(step.pod, Part)
            pod = Part({**step.pod.value, "name": name}, step.pod.path)
            info = self._theatre.builder.pod(pod, scene.cluster, name=name, uid=f"{case.name}/{name}")
            waited = case.queued_seconds if step.queued_seconds is None else step.queued_seconds
            frame = Frame(info, scene.cluster, case.now, signals=signals, queued=case.now - waited)
            found.append(Waiting(self._governing(step, info), frame))
            if self._theatre.observe is not None:
                self._theatre.observe(case, frame, found[-1].policy)
        return found

    # --- a decision ----------------------------------------------------------------------------------

    def _decided(self, step: Step, pod: PodInfo, now: float, *, in_full: bool) -> Decided:
        case, theatre = self._case, self._theatre
        policy = self._governing(step, pod)
        signals = theatre.readings.signals(case, now)
        queued = now - case.queued_seconds
        frame = Frame(pod, self._scene.cluster, now, signals=signals, queued=queued, attempts=case.attempts)
        if theatre.observe is not None:
            theatre.observe(case, frame, policy)
        degraded, warned = theatre.readings.told(self._scene, signals, now)
        warnings = (*(Warned(one.code, one.message) for one in theatre.policies.warnings), *warned)

        def made(*, in_full: bool) -> Outcome:
            done = self._outcome(frame, policy, in_full=in_full)
            return replace(done, degraded=degraded, warnings=warnings)

        outcome = made(in_full=in_full)
        if outcome.victims and case.kind is Kind.SEQUENCE:
            victims = outcome.victims
            for name in victims:
                self._remove(next(pod for pod in self._scene.cluster.pods.values() if pod.name == name))
            outcome = replace(made(in_full=in_full), victims=victims)
            return Decided(step, outcome, policy, frame, lambda: replace(made(in_full=True), victims=victims))
        return Decided(step, outcome, policy, frame, lambda: made(in_full=True))

    def _governing(self, step: Step, pod: PodInfo) -> TestedPolicy:
        policy = self._theatre.policies.governing(pod)
        if policy is None:
            message = f"no policy governs the pod: its scheduler is `{pod.scheduler_name}`"
            path = step.pod.path if isinstance(step.pod, Part) else self._case.path
            raise DocumentError([self._theatre.document.error(path, codes.NOT_GOVERNED, message=message)])
        return policy

    def _outcome(self, frame: Frame, policy: TestedPolicy, *, in_full: bool) -> Outcome:
        nodes = frozenset(frame.cluster.nodes.names)
        held = policy.hold_reason(frame)
        if held is not None:
            return Outcome(frame.pod.name, nodes=nodes, held=held, message=f"held: {held}")
        try:
            claims = policy.claims(frame)
        except ValueError as error:
            return Outcome(frame.pod.name, nodes=nodes, error=str(error))
        outcome = decide(frame, policy, self._cycle, in_full=in_full)
        self.open_to |= outcome.totals.keys()
        short = [claim for claim in claims if self._members(claim) + 1 < claim.size]
        if outcome.host is None or not short:
            return outcome
        first = short[0]
        waits = f'gang "{first.group}": {self._members(first) + 1} of {first.size} members have a place'
        return replace(outcome, waits=waits)

    def _members(self, claim: Claim) -> int:
        return self._scene.cluster.counters.group_size(claim.group_of, claim.group)

    # --- what follows from it ------------------------------------------------------------------------

    def _settle(self, decided: Decided, now: float) -> None:
        outcome = decided.outcome
        if outcome.host is None or self._case.kind is Kind.FORALL:
            return
        pod, claims = decided.frame.pod, decided.policy.claims(decided.frame)
        self._scene.place(pod, outcome.host)
        self._hosts[pod.uid] = outcome.host
        self._pods[pod.uid] = pod
        if claims:
            self._permit.wait(pod.uid, claims, now)
            self._permit.release(pod.uid, self._members)

    def _give_back(self, now: float) -> None:
        """Take the places from gangs whose time is up."""
        for uid in self._permit.expire(now):
            self._remove(self._pods[uid])

    def _remove(self, pod: PodInfo) -> None:
        self._scene.end(pod)
        self._permit.leave(pod.uid)
        self._hosts.pop(pod.uid, None)
        self._pods.pop(pod.uid, None)

    def _finish(self, names: Part) -> None:
        there = {pod.name: pod for pod in self._scene.cluster.pods.values()}
        for index, name in enumerate(names.value):
            if name not in there:
                advice = did_you_mean(name, tuple(there), none="no pod has a place")
                message = f"no pod `{name}` has a place"
                place = (*names.path, index)
                problem = self._theatre.document.error(place, codes.UNKNOWN_NODE, message=message, advice=advice)
                raise DocumentError([problem])
            self._remove(there[name])


def planned_names(case: Case) -> Iterator[str]:
    """Yield what the pods of a case are called, in order."""
    taken: set[str] = set()
    for step in case.steps:
        if isinstance(step.pod, FixtureObject):
            yield step.pod.name
            continue
        if case.kind is Kind.ONE:
            yield str(step.pod.value.get("name", "pod"))
            continue
        for _ in range(step.count):
            number = 0
            name = step.base if step.count == 1 else f"{step.base}-0"
            while name in taken:
                number += 1
                name = f"{step.base}-{number}"
            taken.add(name)
            yield name

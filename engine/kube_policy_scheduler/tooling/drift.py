"""Each pod on a node, taken off it and decided again: does it still fit there, and is another node better? Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.resource_slices import DeviceID
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.diagnostics import printable
from kube_policy_scheduler.documents.report import report_values
from kube_policy_scheduler.framework.decide.device_columns import held_devices, preferred_devices
from kube_policy_scheduler.framework.quota import QueueQuota, quantity
from kube_policy_scheduler.framework.quota_promises import QueuePromises
from kube_policy_scheduler.framework.reserve.claim_reservation import has_claims
from kube_policy_scheduler.lang.checking.queues import declared_queues
from kube_policy_scheduler.policy.answer import Answer, Answers, GangWaits, Held, NoDomain, Placed
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, Rules
from kube_policy_scheduler.policy.pending import Pending
from kube_policy_scheduler.tooling.cluster_state import ClusterState, is_of_node, waiting
from kube_policy_scheduler.tooling.queues import pods_over
from kube_policy_scheduler.tooling.rulesets import Clause, Ruleset, gang_of, leads, rejection_by
from kube_policy_scheduler.tooling.text_table import BOLD, DIM, GREEN, RED, YELLOW, Terminal
from kube_policy_scheduler.wording import amount, plural, some

FINISHED = "finished"
ENDING = "being deleted"
OF_NODE = "DaemonSet pods and static pods"
NO_NODE = "on a node that the cluster does not have"
HELD = "held now if they were created again"
GANG_SHORT = "in a gang that has too few pods now"
UNGOVERNED = "governed by no policy"
_ROUNDING = 1e-9
"""Points that are none."""


@dataclass(frozen=True, slots=True)
class Lead:
    """A score in which the two nodes differ."""

    clause: str
    place: str
    """`FILE:LINE:COLUMN`; "" for Kubernetes' own."""
    points: float
    """By which the better node leads."""


@dataclass(frozen=True, slots=True)
class Drifted:
    """A pod that would not be put where it is."""

    pod: str
    node: str
    policy: str
    rejected: bool
    """Whether its node would reject it; else another is better by the margin."""
    better: str
    """Where it would go; "" for nowhere."""
    margin: float | None
    """Points by which that node leads; None where its own rejects it."""
    clause: str
    """What rejects it, or the score by which the other leads most."""
    place: str
    leads: tuple[Lead, ...] = ()
    """All scores in which the two nodes differ."""
    devices: str = ""
    """Which devices of its node it would get instead of which, if that is all that differs."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The pods that would be placed elsewhere now, of all that were checked."""

    checked: int
    drifted: tuple[Drifted, ...]
    could_be_better: int
    """Pods for which another node leads, but not by more than the margin; 0 where none was asked for."""
    skipped: Mapping[str, int]
    """Pods that were not looked at, by why."""
    margin: float | None

    @property
    def rejected(self) -> list[Drifted]:
        """Return the pods that their nodes would reject."""
        return [one for one in self.drifted if one.rejected]

    @property
    def better(self) -> list[Drifted]:
        """Return the pods that would be better elsewhere by the margin."""
        return [one for one in self.drifted if not one.rejected and not one.devices]

    @property
    def with_other_devices(self) -> list[Drifted]:
        """Return the pods that would get other devices of their nodes, which the policy prefers."""
        return [one for one in self.drifted if one.devices]


@dataclass(frozen=True, slots=True)
class DriftOptions:
    """What is asked about which pods."""

    ruleset: Ruleset
    margin: float | None
    """Points by which another node must lead; None: only what nodes reject is asked."""
    now: float
    """Unix seconds."""
    signals: Signals = Signals.EMPTY
    seed: int = 0
    wanted: Callable[[PodInfo], bool] = field(default=lambda pod: True, repr=False)
    """Which pods to look at."""


def drift(
    there: ClusterState, options: DriftOptions, *, progress: Callable[[int, int], None] = lambda done, whole: None
) -> Drift:
    """Look at every pod on a node; the cluster is as before in the end."""
    skipped: Counter[str] = Counter()
    asked: list[tuple[objects.Pod, PodInfo, Rules]] = []
    for _, pod in sorted(there.pods.items()):
        info = there.cluster.templates.pod(pod)
        if not options.wanted(info) or not (info.node_name or info.terminal):
            continue
        why, rules = _skipped(there, info), options.ruleset.rules(info)
        if why or rules is None:
            skipped[why or UNGOVERNED] += 1
        else:
            asked.append((pod, info, rules))
    look = _Look(there, options, Pending(there.pending()))
    over, placing = _over_maximum(there, options), dict[int, Rules]()
    found: list[Drifted] = []
    small = 0
    for number, (pod, info, rules) in enumerate(asked):
        limit = over.get(info.uid)
        if limit is not None:
            verdict: Drifted | _Fit | str = Drifted(
                info.key, info.node_name, rules.profile.name, True, "", None, limit.text, limit.place
            )
        else:
            # the same object each time: what is cached belongs to a profile
            verdict = look.at(pod, info, placing.setdefault(id(rules), _without_quota(rules)))
        if isinstance(verdict, Drifted):
            found.append(verdict)
        elif isinstance(verdict, str):
            skipped[verdict] += 1
        else:
            small += verdict is _Fit.SLIGHTLY
        progress(number + 1, len(asked))
    found.sort(key=lambda one: (not one.rejected, bool(one.devices), -(one.margin or 0.0), one.pod))
    checked = len(asked) - skipped[HELD] - skipped[GANG_SHORT]
    return Drift(checked, tuple(found), small, dict(sorted(skipped.items())), options.margin)


def _over_maximum(there: ClusterState, options: DriftOptions) -> dict[str, Clause]:
    """Return by uid the pods that their queues, or those above them, have too many of, the least important ones."""
    policy_set = options.ruleset.policy_set
    if policy_set is None or policy_set.queues is None:
        return {}
    tree, cluster = policy_set.queues.tree, there.cluster
    declared = declared_queues(policy.compiled.checked for policy in policy_set.policies)
    places = {queue.name: str(queue.tree.span) for queue in declared}
    found: dict[str, Clause] = {}
    usage = cluster.count_queues(tree)
    for queue in usage.queues():
        for place, resource in enumerate(tree.resources):
            text = f"queue {queue.name} max {resource} {quantity(resource, queue.maximum[place])}"
            where = places.get(queue.name) or places.get(queue.name.partition("/")[0], "")
            for pod in pods_over(queue, usage, place, queue.maximum[place], now=options.now):
                found.setdefault(pod.uid, Clause(text, where))
    return found


def _without_quota(rules: Rules) -> Rules:
    """Return rules that place a pod wherever it fits: its quota was looked at for all pods together, its turn came."""
    profile, rules = rules.profile, msgspec.structs.replace(rules, policies=None)
    if profile.queues is None:
        return rules
    others = tuple(plugin for plugin in profile.filters if not isinstance(plugin, QueueQuota | QueuePromises))
    return msgspec.structs.replace(rules, profile=msgspec.structs.replace(profile, filters=others, queues=None))


def _skipped(there: ClusterState, pod: PodInfo) -> str:
    if pod.terminal:
        return FINISHED
    if pod.terminating:
        return ENDING
    if is_of_node(pod):
        return OF_NODE
    return "" if pod.node_name in there.cluster.nodes.rows else NO_NODE


class _Fit(Enum):
    WELL = "no node is better"
    SLIGHTLY = "another node is better by less than the margin"


class _Look:
    """Looks at one pod after the other; pods that are answered alike are decided once."""

    def __init__(self, there: ClusterState, options: DriftOptions, pending: Pending) -> None:
        self._there, self._options, self._pending = there, options, pending
        self._answers = Answers(seed=options.seed)
        self._known: dict[tuple[PodTemplate, int, str], Drifted | _Fit | str] = {}

    def at(self, pod: objects.Pod, info: PodInfo, rules: Rules) -> Drifted | _Fit | str:
        """Return what is to be said about a pod; a text: why nothing is."""
        key = (info.template, id(info.demand), info.node_name)
        claims = has_claims(info.template, self._there.cluster)
        alike = rules.profile.by_template and not info.volumes and not claims
        held = held_devices(self._there.cluster, info) if claims else ()
        known = self._known.get(key) if alike else None
        if known is None:
            with waiting(pod, self._there.cluster) as (free, host):
                known = self._look(self._there.cluster.templates.pod(free), host or info.node_name, rules, held)
            if alike:
                self._known[key] = known
        return replace(known, pod=info.key) if isinstance(known, Drifted) else known

    def _look(self, pod: PodInfo, host: str, rules: Rules, held: Sequence[DeviceID]) -> Drifted | _Fit | str:
        options, cluster = self._options, self._there.cluster
        answer = self._answers.answer(
            DecisionInputs(
                pod, cluster, rules, options.signals, options.now, queued=pod.created, pending=self._pending
            )
        )  # fmt: skip
        match answer:
            case Held():
                return HELD
            case GangWaits():
                return GANG_SHORT
            case NoDomain():
                rule = gang_of(answer)
                return Drifted(pod.key, host, rules.profile.name, True, "", None, rule.text, rule.place)
            case Placed() if answer.host == host:
                return self._on_its_node(answer, held)
            case _:
                return self._elsewhere(answer, host)

    def _on_its_node(self, answer: Placed, held: Sequence[DeviceID]) -> Drifted | _Fit:
        pod, decision, inputs = answer.inputs.pod, answer.decision, answer.inputs
        wanted = preferred_devices(inputs.frame(), decision, held) if self._options.margin is not None else ()
        if not wanted or decision.device_order is None:
            return _Fit.WELL
        instead = f"{_names(set(wanted) - set(held))} instead of {_names(set(held) - set(wanted))}"
        clause, host = f"devices by {decision.device_order.text}", decision.host or ""
        return Drifted(pod.key, host, inputs.profile.name, False, host, None, clause, "", devices=instead)

    def _elsewhere(self, answer: Answer, host: str) -> Drifted | _Fit:
        """Compare a pod's node with the best one."""
        options, cluster, inputs = self._options, self._there.cluster, answer.inputs
        pod, profile = inputs.pod, inputs.profile
        frame, evaluation = inputs.frame(), inputs.evaluate()
        feasible, totals, names = evaluation.feasible, evaluation.totals, cluster.nodes.names
        better = min((names[row] for row in feasible[totals == totals.max()]), default="") if len(feasible) else ""
        mine = np.flatnonzero(feasible == cluster.nodes.rows[host])
        if not len(mine):
            why = rejection_by(answer, host) or Clause("")
            return Drifted(pod.key, host, profile.name, True, better, None, why.text, why.place)
        if options.margin is None:
            return _Fit.WELL
        lead = float(totals.max() - totals[mine[0]])
        if lead <= max(options.margin, _ROUNDING):
            return _Fit.SLIGHTLY if lead > _ROUNDING else _Fit.WELL
        ahead = leads(frame, profile, feasible, node=better, over=host).values()
        ranked = sorted(ahead, key=lambda item: -item[0])
        scores = tuple(Lead(clause.text, clause.place, points) for points, clause in ranked if points)
        return Drifted(pod.key, host, profile.name, False, better, lead, scores[0].clause, scores[0].place, scores)


def _names(devices: Iterable[DeviceID]) -> str:
    return some(sorted(one.device for one in devices), limit=4) or "none"


def headline(found: Drift) -> str:
    """Return how many drifted, in one line."""
    rejected, better = len(found.rejected), len(found.better)
    parts = []
    if rejected:
        parts.append(f"{rejected:,} would be rejected on {'its node' if rejected == 1 else 'their nodes'}")
    if better:
        parts.append(f"{better:,} would be better elsewhere by more than {amount(found.margin or 0.0)}")
    if others := len(found.with_other_devices):
        parts.append(f"{others:,} would get better devices on {'its node' if others == 1 else 'their nodes'}")
    said = ", ".join(parts) if parts else "no pod has drifted"
    return f"{plural(found.checked, 'pod')} on nodes checked: {said}"


def causes(found: Drift) -> list[tuple[str, str, bool, int]]:
    """Return the clauses behind it with their places, whether they reject, and for how many pods, most first."""
    counts = Counter((one.clause, one.place, one.rejected) for one in found.drifted)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(*key, count) for key, count in ranked]


def lines(found: Drift, *, to: Terminal, most: int) -> Iterator[str]:
    """Return the report for people; at most some pods are listed."""
    yield to.paint(RED if found.rejected else YELLOW if found.drifted else GREEN, headline(found))
    if found.drifted:
        ranked = causes(found)
        numbers = {(clause, place, rejected): f"[{at}]" for at, (clause, place, rejected, _) in enumerate(ranked, 1)}
        yield ""
        rows = [("", "because of", "where", "pods")]
        for (clause, place, rejected, count), number in zip(ranked, numbers.values(), strict=True):
            verb = "rejects" if rejected else "prefers others" if clause.startswith("devices by") else "gives it less"
            rows.append((number, f"{_name(clause, place)} {verb}", place, str(count)))
        yield from to.table(rows, right_from=3)
        yield ""
        pods = [("pod", "on", "would go to", "because", "better by")]
        for one in found.drifted[:most]:
            by = amount(one.margin) if one.margin is not None else ""
            number = numbers[one.clause, one.place, one.rejected]
            goes = printable(one.devices) if one.devices else one.better or "nowhere"
            pods.append((printable(one.pod), one.node, goes, number, by))
        bold = {at: BOLD for at, one in enumerate(found.drifted[:most], 1) if one.rejected}
        yield from to.table(pods, right_from=4, styles=bold)
        if len(found.drifted) > most:
            left = plural(len(found.drifted) - most, "more pod")
            yield to.paint(DIM, f"and {left}: --all, --format json or --html shows them")
    if found.could_be_better or found.skipped:
        yield ""
    if found.could_be_better:
        than = f"by {amount(found.margin or 0.0)} or less, which does not count as drift (--margin)"
        yield to.paint(DIM, f"{plural(found.could_be_better, 'pod')} would be better elsewhere {than}")
    if found.skipped:
        left = ", ".join(f"{count:,} {why}" for why, count in found.skipped.items())
        yield to.paint(DIM, f"not checked: {left}")


def _name(clause: str, place: str) -> str:
    return printable(f"`{clause}`" if place else clause or "a new pod")


def sentence(one: Drifted) -> str:
    """Return what is wrong with one pod."""
    place = f" ({one.place})" if one.place else ""
    if one.devices:
        return printable(f"it would get {one.devices} on its node, by `{one.clause}`")
    if one.rejected:
        goes = f"it would go to {one.better}" if one.better else "no node fits now"
        return printable(f"{_name(one.clause, one.place)} rejects it there{place}; {goes}")
    return printable(
        f"{one.better} is better by {amount(one.margin or 0.0)}, most by {_name(one.clause, one.place)}{place}"
    )


def data(found: Drift) -> dict[str, Any]:
    """Return the report as plain values."""
    return {
        "headline": headline(found),
        "checked": found.checked,
        "rejected": len(found.rejected),
        "better": len(found.better),
        "otherDevices": len(found.with_other_devices),
        "couldBeBetter": found.could_be_better,
        "margin": found.margin,
        "skipped": dict(found.skipped),
        "causes": [
            {"clause": clause, "place": place, "rejected": rejected, "pods": count}
            for clause, place, rejected, count in causes(found)
        ],
        "pods": [{**report_values(one), "sentence": sentence(one)} for one in found.drifted],
    }

"""From a snapshot of the scheduler to what the status page says. Asks nobody, so that it may run in a thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.quotas.quota_overview import UnitCounts
from kube_policy_scheduler.cluster.sum_column import exact_sum
from kube_policy_scheduler.daemon.observing.decision_entry import Entry, refused
from kube_policy_scheduler.daemon.observing.live_metrics import ExtenderState, RebalancingState, described
from kube_policy_scheduler.daemon.policies.reload import ReloadRecord, ReloadResult
from kube_policy_scheduler.daemon.serving.device_uses import section as devices_section
from kube_policy_scheduler.daemon.serving.status_pending import gangs, groups
from kube_policy_scheduler.daemon.serving.status_policies import counted, policies, rules
from kube_policy_scheduler.daemon.serving.status_snapshot import NodeUse, Replica, Snapshot, shares
from kube_policy_scheduler.framework.queue.scheduling_queue import Place
from kube_policy_scheduler.framework.quota import quantity
from kube_policy_scheduler.pages import status as shown
from kube_policy_scheduler.pages.heat_map import Nodes, Use
from kube_policy_scheduler.times import duration
from kube_policy_scheduler.tooling.decision_record import Outcome
from kube_policy_scheduler.wording import amount, percent, plural, signed, some

MOST_GROUPS = 24
_UNITS = {"cpu": (1000.0, "cores"), "memory": (2.0**30, "GiB"), "pods": (1.0, "pods")}
_ROLES = {"shadow": "shadow mode", "extender": "answering kube-scheduler", "estimator": "answering Karmada"}
"""By mode: a replica that places pods leads or stands by."""
_EACH_DOES = {
    "shadow": "each replica observes",
    "extender": "each replica answers",
    "estimator": "each replica answers",
}
_NAMES = {"cpu": "CPU", "memory": "Memory", "pods": "Pods"}


def put_into_words(taken: Snapshot) -> shown.Status:
    """Return what the page shows."""
    waiting = groups(taken)
    replica = taken.replica
    return shown.Status(
        at=taken.at,
        title=", ".join(replica.scheduler_names),
        lead=_lead(taken),
        verdict=_verdict(taken),
        figures=(
            (amount(sum(taken.places.values())), "pods wait"),
            (amount(_without_place(taken)), "of these, unschedulable or in backoff"),
            (amount(taken.places[Place.GATED]), "of these, held"),
            (amount(len(taken.node_names)), "nodes"),
            (amount(taken.pods), "pods on nodes"),
            (amount(taken.decided), "decisions since the start"),
        ),
        nodes=_nodes(taken),
        pending=waiting[:MOST_GROUPS],
        pending_left_out=sum(group.pods for group in waiting[MOST_GROUPS:]),
        pending_looked_at=len(taken.pending) if taken.is_sample else 0,
        gangs=gangs(taken.gangs, now=taken.at),
        policies=policies(taken),
        counted=counted(taken),
        rules=rules(taken),
        reloads=[reload_row(record) for record in taken.reloads],
        decisions=[explained(entry) for entry in taken.decisions],
        metrics=[
            shown.MetricRow(row.query, row.age_seconds, row.series, row.missing_nodes, row.fetch_seconds, row.degraded)
            for row in taken.metrics
        ],
        replica=_replica(taken),
        shadow=shadow_section(taken.shadow) if taken.shadow is not None else None,
        devices=devices_section(taken.devices) if taken.devices is not None else None,
        queues=_queues(taken) if taken.queues.states else None,
        rebalancing=_rebalancing(taken.replica.rebalancing) if taken.replica.rebalancing is not None else None,
    )


# --- the whole -------------------------------------------------------------------------------------------


def _lead(taken: Snapshot) -> str:
    replica = taken.replica
    role = role_of(replica)
    running = duration(max(0.0, taken.at - replica.started))
    return f"{role}, running for {running}, version {replica.version}"


def role_of(replica: Replica) -> str:
    """Return what a replica does."""
    return _ROLES.get(replica.mode) or ("deciding" if replica.leading else "standing by")


def _without_place(taken: Snapshot) -> int:
    return taken.places[Place.UNSCHEDULABLE] + taken.places[Place.BACKOFF]


def _verdict(taken: Snapshot) -> shown.Headline:
    replica, last = taken.replica, taken.newest.get("")
    serious = list(replica.problems)
    if not replica.reachable:
        serious.append(f"the API server cannot be reached: {replica.server}")
    if taken.policies is None and not serious:
        serious.append("there are no active policies: no pods are scheduled")
    worrying = []
    if not taken.node_names:
        worrying.append("there are no nodes")
    if last is not None and last.result is ReloadResult.RESTORED:
        serious.append(f"the newest policies cannot be used: {last.origin} is active since the start")
    elif last is not None and last.result is not ReloadResult.ACCEPTED and not serious:
        worrying.append("the newest policies were rejected: the previous policies stay active")
    behind = sorted(owner for owner, record in taken.newest.items() if owner and not record.successful)
    if behind:
        worrying.append(f"the newest policies of {some(behind)} were rejected")
    degraded = sum(row.degraded for row in taken.metrics)
    if degraded:
        worrying.append(f"degraded metrics: {degraded} of {len(taken.metrics)}")
    if waiting := _without_place(taken):
        worrying.append(f"no node fits {plural(waiting, 'pod')}")
    found = [*serious, *worrying]
    if found:
        first, *rest = (text[:1].upper() + text[1:] + "." for text in found)
        return shown.Headline("bad" if serious else "warn", first, rest)
    if not replica.leading:
        return shown.Headline("quiet", "This replica is on standby: another replica leads.")
    return shown.Headline("good", "All is well.")


def _replica(taken: Snapshot) -> list[tuple[str, str]]:
    replica = taken.replica
    found = [("identity", replica.identity), ("version", replica.version), ("API server", replica.server)]
    if replica.kubernetes:
        found.append(("rules of Kubernetes", replica.kubernetes))
    if replica.shard is not None:
        found += described(replica.shard, nodes=len(taken.node_names))
    elif not replica.elects:
        does = _EACH_DOES.get(replica.mode, "this replica always schedules")
        found.append(("lease", f"no leader election: {does}"))
    elif replica.leading:
        found.append(("lease", "held by this replica"))
    else:
        found.append(("lease", f"held by {replica.leader}" if replica.leader else "not seen yet"))
    policies = f"generation {taken.generation}, hash {taken.hash}" if taken.hash else "none active"
    if replica.kernels:
        found.append(("compiled kernels", replica.kernels))
    found += [(f"extender {each.name}", _extender(each)) for each in replica.extenders]
    if replica.wait_for_extenders:
        found.append(("waiting for extenders", f"{plural(replica.wait_for_extenders, 'pod')}, one after the other"))
    return [*found, ("policies", policies), ("assumed pods", f"{amount(taken.assumed)}, bound but not yet confirmed")]


def _extender(state: ExtenderState) -> str:
    if not state.requests:
        return "not asked yet"
    text = f"{plural(state.requests, 'request')}, {amount(1000 * state.seconds / state.requests)} ms on average"
    if state.errors:
        text += f", {plural(state.errors, 'error')}"
    if state.problem:
        text += f"; the last request failed: {state.problem}" + (" (ignorable)" if state.ignorable else "")
    return text


# --- nodes -----------------------------------------------------------------------------------------------


def _nodes(taken: Snapshot) -> Nodes:
    order = sorted(range(len(taken.node_names)), key=taken.node_names.__getitem__)
    unusable: BoolArray = taken.unusable[order]
    return Nodes(
        names=[taken.node_names[at] for at in order],
        uses=[_use(use, order) for use in taken.uses],
        unusable=[int(at) for at in np.flatnonzero(unusable)],
    )


def _use(use: NodeUse, order: Sequence[int]) -> Use:
    scale, unit = _UNITS[use.resource]
    taken, offered = exact_sum(use.requested), exact_sum(use.allocatable)
    digits = 1 if offered / scale < 100 else 0
    return Use(
        name=_NAMES[use.resource],
        shares=shares(use)[order].tolist(),
        total=f"{amount(taken / scale, digits)} of {amount(offered / scale, digits)} {unit}",
        share=taken / offered if offered else 0.0,
    )


# --- reloads ---------------------------------------------------------------------------------------------


def reload_row(record: ReloadRecord) -> shown.Reload:
    """Return what became of policies that came."""
    return shown.Reload(
        at=record.at,
        result=f"{record.owner}: {record.result.value}" if record.owner else record.result.value,
        tone="good" if record.successful else "bad",
        hash=record.hash or "",
        generation=record.generation,
        took_seconds=record.seconds,
        problems=[*record.problems, *record.warnings],
    )


def shadow_section(summary: Mapping[str, Any]) -> shown.Shadow:
    """Return the section of the page about a summary of a `ComparisonReport`."""
    verdicts = list(summary["verdicts"])
    of_pods = "pods" in summary
    compared = plural(summary["pods"], "pod") if of_pods else plural(summary["workloads"], "workload")
    text = (
        f"Looks at what {', '.join(summary['schedulers'])} places, and places nothing itself:"
        f" {compared} compared since the start."
    )
    return shown.Shadow(
        text,
        [verdict.replace("-", " ") for verdict in verdicts],
        [
            shown.ShadowRow(
                name or "no policy",
                [found["verdicts"][verdict] for verdict in verdicts],
                "" if found["meanMargin"] is None else percent(found["meanMargin"]),
                ", ".join(f"{clause} ({number})" for clause, number in found["refusingClauses"].items()),
            )
            for name, found in summary["policies"].items()
        ],
    )


_TONES: dict[Outcome, shown.Tone] = {
    Outcome.ASSIGNED: "good",
    Outcome.WAITING: "quiet",
    Outcome.HELD: "quiet",
    Outcome.UNSCHEDULABLE: "bad",
    Outcome.PREEMPTING: "warn",
    Outcome.BIND_FAILED: "bad",
    Outcome.ANSWERED: "quiet",
    Outcome.SHADOW: "quiet",
    Outcome.FAILED: "bad",
}
_VERDICTS = {
    "agreed": "{theirs} is equally good for the policy",
    "differed": "the other scheduler chose {theirs}",
    "rejected": "the other scheduler chose {theirs}, which the policy rejects",
    "not-placed": "the other scheduler chose {theirs}; the policy selects no node",
    "not-bound": "the other scheduler has not placed it",
    "gone": "it was deleted before the other scheduler placed it",
}
"""What is said of a pod that another scheduler looks after, by verdict."""


def explained(entry: Entry) -> shown.RecentDecision:
    """Return a decision with the reason for it in one sentence, and what stands behind it."""
    top = entry.detail.top if entry.detail is not None else ()
    clauses = list(top[0].scores) if top else []
    return shown.RecentDecision(
        at=entry.at,
        pod=entry.pod.key,
        outcome=entry.outcome.value,
        tone=_TONES[entry.outcome],
        node=entry.node,
        why=_why(entry),
        policy=entry.policy or "",
        facts=list(_facts(entry)),
        clauses=clauses,
        ranking=[
            shown.Ranking(each.name, each.total, [each.scores.get(clause, 0.0) for clause in clauses]) for each in top
        ],
        refused=sorted(refused(entry).items(), key=lambda item: (-item[1], item[0])),
    )


def _why(entry: Entry) -> str:
    if entry.outcome is Outcome.SHADOW:
        text = "as the other scheduler" if entry.node == entry.theirs else _VERDICTS[entry.verdict]
        return ": ".join(part for part in (text.format(theirs=entry.theirs), entry.message) if part)
    if entry.message or entry.outcome not in (Outcome.ASSIGNED, Outcome.WAITING, Outcome.ANSWERED):
        return entry.message
    fits = f"{amount(entry.feasible)} of {plural(entry.nodes, 'node')} {'fits' if entry.feasible == 1 else 'fit'}"
    if entry.verb in ("filter", "bind"):
        return f"{fits}; kube-scheduler {'chooses' if entry.verb == 'filter' else 'chose this one'}"
    if entry.feasible == 1:
        return f"the only one of {plural(entry.nodes, 'node')} that fits"
    if entry.ties > 1:
        return f"{fits}; {amount(entry.ties)} have the best total; a hash of pod, node and seed chose one"
    top = entry.detail.top if entry.detail is not None else ()
    if len(top) < 2:
        return f"{fits}; it has the best total" if entry.score is not None else f"{fits}; it was kept for the pod"
    best, second = top[0], top[1]
    gaps = {
        name: best.scores.get(name, 0.0) - second.scores.get(name, 0.0) for name in {**best.scores, **second.scores}
    }
    leading = sorted(((name, gap) for name, gap in gaps.items() if gap), key=lambda item: -abs(item[1]))[:3]
    parts = ", ".join(f"{name} {signed(gap)}" for name, gap in leading)
    return f"{fits}; it leads {second.name} by {amount(best.total - second.total)}: {parts}"


def _facts(entry: Entry) -> Iterator[str]:
    yield f"policy {entry.policy}" if entry.policy else "no policy"
    yield f"attempt {entry.attempt}"
    if entry.verb:
        yield f"answer to kube-scheduler's {entry.verb}"
    else:
        yield f"decided in {duration(entry.seconds)}"
    if entry.bound_seconds is not None:
        yield f"bound after {duration(entry.bound_seconds)}"
    if entry.repeats:
        yield f"repeated {amount(entry.repeats)} times"
    for victim in entry.victims:
        yield f"evicts {victim}"
    for promql, fetched_at in entry.readings:
        age = "never answered" if fetched_at is None else f"{duration(max(0.0, entry.at - fetched_at))} old"
        missing = entry.detail.missing.get(promql, 0) if entry.detail is not None else 0
        yield f"{promql}: {age}" + (f", missing on {plural(missing, 'node')}" if missing else "")
    yield f"policies {entry.hash[:12]}"


def _queues(taken: Snapshot) -> shown.Queues:
    """Return the rows of queues: one for each resource."""
    rows = []
    for state in taken.queues.states:
        told = state.guaranteed.keys() | state.maximum.keys() | {name for name, used in state.used.items() if used}
        for number, name in enumerate([name for name in state.used if name in told] or list(state.used)[:1]):
            first = number == 0
            pending = taken.queues.pending.get(state.name, 0)
            guaranteed, used, will, borrowed, most = (
                quantity(name, amounts[name]) if name in amounts else "\u2013"
                for amounts in (state.guaranteed, state.used, state.will, state.borrowed, state.maximum)
            )
            units = taken.queues.units.get(state.name, UnitCounts())
            rows.append(
                shown.QueueRow(
                    name="\u2003" * (state.depth - 1) + state.name if first else "",
                    resource=name,
                    guaranteed=guaranteed,
                    used=used,
                    will=will,
                    borrowed=borrowed,
                    guaranteed_units=amount(units.guaranteed[name]),
                    borrowed_units=amount(units.borrowed[name]),
                    most=most,
                    share=amount(state.share, 3) if first and not state.others else "",
                    pods=amount(state.pods) if first else "",
                    pending=amount(pending) if first else "",
                )
            )
    return shown.Queues(tuple(rows), taken.queues.left_out)


def _rebalancing(state: RebalancingState) -> shown.Rebalancing:
    """Return the moves that are under way, and the outcomes of earlier ones."""
    mode = "Dry run: the scheduler evicts no pods." if state.dry_run else "The scheduler evicts pods to move them."
    looked = f"The last of {plural(state.passes, 'pass', 'passes')} looked at {plural(state.checked, 'pod')}."
    reserved = f" Room is reserved for {plural(state.reserved, 'replacement')}." if state.reserved else ""
    return shown.Rebalancing(
        text=f"{mode} {looked if state.passes else 'There was no pass yet.'}{reserved}",
        problem=state.stopped,
        moves=[
            (move.pod, move.source, move.target, f"{move.clause} rejects it" if move.rejected else move.clause)
            for move in state.planned
        ],
        outcomes=[(outcome, amount(count)) for outcome, count in state.outcomes.items() if count],
    )

"""From a snapshot of the scheduler to what the status page says. Asks nobody, so that it may run in a thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from engine.cluster.nodes import BoolArray
from engine.daemon.clause_counts import Counts
from engine.daemon.decision_entry import Entry
from engine.daemon.decision_words import explained
from engine.daemon.reload import ReloadRecord, ReloadResult
from engine.daemon.shadow_words import shadow_section
from engine.daemon.sharing import described
from engine.daemon.status_snapshot import NodeUse, PendingPod, Snapshot, shares
from engine.diagnostics import Source, Span
from engine.framework.queue import Place
from engine.pages import status as shown
from engine.pages.formats import amount, percent, plural

MOST_GROUPS = 24
MOST_REASONS = 6
MOST_EXAMPLES = 5
MOST_LINES = 400
"""Of one policy file; longer ones are cut."""
_UNITS = {"cpu": (1000.0, "cores"), "memory": (2.0**30, "GiB"), "pods": (1.0, "pods")}
_ROLES = {"shadow": "looking on as a shadow", "extender": "answering kube-scheduler"}
"""By mode; who places pods decides, or stands by."""
_NAMES = {"cpu": "CPU", "memory": "Memory", "pods": "Pods"}


def put_into_words(taken: Snapshot) -> shown.Status:
    """Return what the page shows."""
    groups = _groups(taken)
    replica = taken.replica
    places = {place: sum(pod.place is place for pod in taken.pending) for place in Place}
    return shown.Status(
        at=taken.at,
        title=", ".join(replica.scheduler_names),
        lead=_lead(taken),
        verdict=_verdict(taken, places),
        figures=(
            (amount(len(taken.pending)), "pods wait"),
            (amount(places[Place.UNSCHEDULABLE] + places[Place.BACKOFF]), "of them unschedulable or backing off"),
            (amount(places[Place.HELD]), "of them held"),
            (amount(len(taken.node_names)), "nodes"),
            (amount(taken.pods), "pods on nodes"),
            (amount(taken.decided), "decisions since the start"),
        ),
        nodes=_nodes(taken),
        pending=groups[:MOST_GROUPS],
        pending_left_out=sum(group.pods for group in groups[MOST_GROUPS:]),
        policies=_policies(taken),
        counted=_counted(taken),
        rules=_rules(taken),
        reloads=[_reload(record) for record in taken.reloads],
        decisions=[explained(entry) for entry in taken.decisions],
        metrics=[
            shown.MetricRow(row.query, row.age_seconds, row.series, row.missing_nodes, row.fetch_seconds, row.degraded)
            for row in taken.metrics
        ],
        replica=_replica(taken),
        shadow=shadow_section(taken.shadow) if taken.shadow is not None else None,
    )


# --- the whole -------------------------------------------------------------------------------------------


def _lead(taken: Snapshot) -> str:
    replica = taken.replica
    role = _ROLES.get(replica.mode) or ("deciding" if replica.leading else "standing by")
    running = shown.duration(max(0.0, taken.at - replica.started))
    return f"{role}, running for {running}, version {replica.version}"


def _verdict(taken: Snapshot, places: dict[Place, int]) -> shown.Verdict:
    replica, last = taken.replica, taken.reloads[0] if taken.reloads else None
    serious = list(replica.problems)
    if not replica.reachable:
        serious.append(f"the API server cannot be reached: {replica.server}")
    worrying = []
    if last is not None and last.result is not ReloadResult.ACCEPTED and not serious:
        worrying.append("the newest policies were not taken over: those before them stay in use")
    degraded = sum(row.degraded for row in taken.metrics)
    if degraded:
        worrying.append(f"{plural(degraded, 'metric')} of {len(taken.metrics)} cannot be relied on")
    waiting = places[Place.UNSCHEDULABLE] + places[Place.BACKOFF]
    if waiting:
        worrying.append(f"{plural(waiting, 'pod')} can be placed nowhere")
    found = [*serious, *worrying]
    if found:
        first, *rest = (text[:1].upper() + text[1:] + "." for text in found)
        return shown.Verdict("bad" if serious else "warn", first, rest)
    if not replica.leading:
        return shown.Verdict("quiet", "This replica stands by: another one decides.")
    return shown.Verdict("good", "All is well.")


def _replica(taken: Snapshot) -> list[tuple[str, str]]:
    replica = taken.replica
    found = [("identity", replica.identity), ("version", replica.version), ("API server", replica.server)]
    if replica.part is not None:
        found += described(replica.part, nodes=len(taken.node_names))
    elif not replica.elects:
        found.append(("lease", "no leader election: this replica always decides"))
    elif replica.leading:
        found.append(("lease", "held by this replica"))
    else:
        found.append(("lease", f"held by {replica.leader}" if replica.leader else "not seen yet"))
    policies = f"generation {taken.generation}, hash {taken.hash}" if taken.hash else "none in use"
    return [*found, ("policies", policies), ("assumed pods", f"{amount(taken.assumed)}, bound and not confirmed yet")]


# --- nodes -----------------------------------------------------------------------------------------------


def _nodes(taken: Snapshot) -> shown.Nodes:
    order = sorted(range(len(taken.node_names)), key=taken.node_names.__getitem__)
    unusable: BoolArray = taken.unusable[order]
    return shown.Nodes(
        names=[taken.node_names[at] for at in order],
        uses=[_use(use, order) for use in taken.uses],
        unusable=[int(at) for at in np.flatnonzero(unusable)],
    )


def _use(use: NodeUse, order: Sequence[int]) -> shown.Use:
    scale, unit = _UNITS[use.resource]
    taken, offered = int(use.requested.sum()), int(use.allocatable.sum())
    digits = 1 if offered / scale < 100 else 0
    return shown.Use(
        name=_NAMES[use.resource],
        shares=shares(use)[order].tolist(),
        total=f"{amount(taken / scale, digits)} of {amount(offered / scale, digits)} {unit}",
        share=taken / offered if offered else 0.0,
    )


# --- pods that wait --------------------------------------------------------------------------------------


def _groups(taken: Snapshot) -> list[shown.PendingGroup]:
    """Return pods that wait for the same reason together, the largest group first."""
    found: dict[tuple[str, ...], list[PendingPod]] = defaultdict(list)
    for pod in taken.pending:
        found[_ground(pod)].append(pod)
    groups = [_group(pods, taken.at) for pods in found.values()]
    return sorted(groups, key=lambda group: (-group.pods, group.place, group.why))


def _ground(pod: PendingPod) -> tuple[str, ...]:
    last = pod.last
    policy = last.policy or "" if last is not None else ""
    if pod.place is Place.HELD:
        return (pod.place.value, policy, pod.held_because)
    if pod.place in (Place.UNSCHEDULABLE, Place.BACKOFF):
        if last is not None and last.reasons:
            return (pod.place.value, policy, *sorted({reason.text for reason in last.reasons}))
        why = last.message if last is not None else ", ".join(sorted(pod.rejectors))
        return (pod.place.value, policy, why)
    return (pod.place.value,)


_PLACES = {
    Place.ACTIVE: "will be decided next",
    Place.IN_FLIGHT: "being bound",
    Place.PERMIT: "have a place and wait for the rest of their group",
}


def _group(pods: list[PendingPod], now: float) -> shown.PendingGroup:
    first = pods[0]
    newest = max((pod.last for pod in pods if pod.last is not None), key=lambda entry: entry.at, default=None)
    reasons: list[tuple[str, int]] = []
    why = _PLACES.get(first.place, "")
    if first.place is Place.HELD:
        why = first.held_because
    elif first.place in (Place.UNSCHEDULABLE, Place.BACKOFF) and newest is not None:
        reasons = _reasons(newest)
        why = newest.message
    elif not why:
        why = f"refused by {', '.join(sorted(first.rejectors))}" if first.rejectors else "no reason is known any more"
    return shown.PendingGroup(
        place="held" if first.place is Place.HELD else first.place.value,
        why=why,
        reasons=reasons,
        pods=len(pods),
        examples=[pod.key for pod in pods[:MOST_EXAMPLES]],
        oldest_seconds=max(0.0, now - min(pod.queued for pod in pods)),
        policy=newest.policy or "" if newest is not None else "",
        nodes=newest.nodes if newest is not None else 0,
    )


def _reasons(entry: Entry) -> list[tuple[str, int]]:
    counts: dict[str, int] = defaultdict(int)
    for reason in entry.reasons:
        counts[reason.text] += reason.nodes
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) > MOST_REASONS:
        ordered = [*ordered[:MOST_REASONS], (f"and {len(ordered) - MOST_REASONS} more reasons", 0)]
    return ordered


# --- policies --------------------------------------------------------------------------------------------


def _policies(taken: Snapshot) -> list[shown.PolicyFile]:
    notes: dict[tuple[str, int], list[shown.ClauseNote]] = defaultdict(list)
    sources: dict[str, Source] = {}
    about: dict[str, list[str]] = defaultdict(list)
    for policy in taken.policies.policies if taken.policies is not None else ():
        for clause in policy.clauses:
            source = clause.span.source
            sources[source.name] = source
            if policy.name not in about[source.name]:
                about[source.name].append(policy.name)
    for policy in taken.policies.policies if taken.policies is not None else ():
        for clause in policy.holds:
            held = sum(pod.place is Place.HELD and pod.held_because == clause.reason for pod in taken.pending)
            line = clause.span.source.position(clause.span.start)[0]
            notes[clause.span.source.name, line].append(shown.ClauseNote(f"holds {plural(held, 'pod')} now"))
    for each in taken.plugins:
        span = _span(each.plugin)
        if span is not None:
            line = span.source.position(span.start)[0]
            notes[span.source.name, line].append(_note(each.counts))
    return [
        shown.PolicyFile(name, list(_lines(source, notes)), about=_about(name, about[name]))
        for name, source in sorted(sources.items())
    ]


def _about(name: str, policies: list[str]) -> str:
    stem = name.rpartition("/")[2].removesuffix(".policy")
    return "" if policies == [stem] else f"policy {', '.join(policies)}"


def _lines(source: Source, notes: dict[tuple[str, int], list[shown.ClauseNote]]) -> Iterator[shown.Line]:
    texts = source.text.rstrip("\n").split("\n")
    for number, text in enumerate(texts[:MOST_LINES], 1):
        yield shown.Line(number, text, notes.get((source.name, number), ()))
    if len(texts) > MOST_LINES:
        yield shown.Line(MOST_LINES + 1, f"… {len(texts) - MOST_LINES} more lines")


def _span(plugin: object) -> Span | None:
    """Return where a clause stands; None for a rule of Kubernetes."""
    span = getattr(getattr(plugin, "clause", None), "span", None)
    return span if isinstance(span, Span) else None


def _note(counts: Counts) -> shown.ClauseNote:
    if not counts.decisions:
        return shown.ClauseNote("not asked yet")
    parts = []
    if counts.low is not None and counts.high is not None:
        equal = counts.low == counts.high
        parts.append(amount(counts.low) if equal else f"{amount(counts.low)} to {amount(counts.high)}")
    else:
        whole = counts.asked == counts.decisions
        share = counts.refused / counts.asked
        what = plural(counts.asked, "pod") if whole else f"{amount(counts.asked)} nodes"
        parts.append(f"refused {amount(counts.refused)} of {what}" + (f" ({percent(share)})" if share else ""))
    if counts.missing:
        parts.append(f"missing on {amount(counts.missing)}")
    parts.append(shown.duration(counts.seconds / counts.decisions))
    return shown.ClauseNote(", ".join(parts), "warn" if counts.missing else "quiet")


def _rules(taken: Snapshot) -> list[shown.Rule]:
    return [
        shown.Rule(each.plugin.name, each.policy.name, _note(each.counts).text)
        for each in taken.plugins
        if _span(each.plugin) is None and (each.counts.refused or each.counts.high is not None)
    ]


def _counted(taken: Snapshot) -> str:
    return (
        f"Beside each clause: what it said on the nodes of {plural(taken.looked_at, 'decision')} under these policies,"
        " asked alone, and how long that took for one of them. A close look is taken at as many decisions as a small"
        " share of the time allows."
    )


def _reload(record: ReloadRecord) -> shown.Reload:
    return shown.Reload(
        at=record.at,
        result=record.result.value,
        tone="good" if record.successful else "bad",
        hash=record.hash or "",
        generation=record.generation,
        took_seconds=record.seconds,
        problems=[*record.problems, *record.warnings],
    )

"""From a snapshot of a fleet to what its status page says. Asks nobody, so that it may run in a thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kube_policy_scheduler.daemon.fleet.fleet_snapshot import FleetSnapshot, MemberRow, WaitingWorkload
from kube_policy_scheduler.daemon.policies.reload import ReloadResult
from kube_policy_scheduler.daemon.serving.status_policies import source_lines
from kube_policy_scheduler.daemon.serving.status_words import reload_row, role_of, shadow_section
from kube_policy_scheduler.fleet.model import FleetCluster
from kube_policy_scheduler.pages import fleet_status as shown
from kube_policy_scheduler.pages.status import Headline, MetricRow, PolicyFile, Tone
from kube_policy_scheduler.times import ago, duration
from kube_policy_scheduler.tooling.why.past_workload import shares
from kube_policy_scheduler.tooling.workload_record import RecordedCluster, WorkloadOutcome, WorkloadRecord
from kube_policy_scheduler.wording import amount, plural, shortened, some

MOST_GROUPS = 24
MOST_EXAMPLES = 5
MOST_REJECTIONS = 6
MOST_CLUSTERS = 500
MOST_CHARACTERS = 200
"""Of the clusters of one decision, in its headline."""
_RESOURCES = {"cpu": ("CPU", 10**9, "cores"), "memory": ("Memory", 2**30 * 10**9, "GiB"), "pods": ("Pods", 10**9, "")}
"""By resource: its name, its unit in billionths, and the name of that."""
_TONES: dict[WorkloadOutcome, Tone] = {
    WorkloadOutcome.PLACED: "good",
    WorkloadOutcome.MOVED: "good",
    WorkloadOutcome.UNPLACED: "bad",
    WorkloadOutcome.REFUSED: "bad",
    WorkloadOutcome.FAILED: "bad",
    WorkloadOutcome.SHADOW: "quiet",
}


def put_into_words(taken: FleetSnapshot) -> shown.FleetStatus:
    """Return what the page shows."""
    groups = _groups(taken)
    replica = taken.replica
    running = duration(max(0.0, taken.at - replica.started))
    return shown.FleetStatus(
        at=taken.at,
        title=", ".join(replica.scheduler_names),
        lead=f"{role_of(replica)} over clusters, running for {running}, version {replica.version}",
        verdict=_verdict(taken),
        figures=(
            (amount(taken.workloads), "workloads"),
            (amount(taken.failing), "of these, without a place"),
            (amount(taken.queued), "of these, next in the queue"),
            (amount(len(taken.clusters)), "clusters"),
            (amount(sum(not each.ready for each in taken.clusters)), "of these, not ready"),
            (amount(taken.decided), "decisions since the start"),
        ),
        waiting=groups[:MOST_GROUPS],
        waiting_left_out=sum(group.workloads for group in groups[MOST_GROUPS:])
        + max(0, taken.failing - len(taken.waiting)),
        resources=[name for name, _, _ in _RESOURCES.values()],
        clusters=[_cluster(each, taken) for each in taken.clusters[:MOST_CLUSTERS]],
        clusters_left_out=max(0, len(taken.clusters) - MOST_CLUSTERS),
        policies=list(_policies(taken)),
        counted="",
        reloads=[reload_row(record) for record in taken.reloads],
        decisions=[_decision(record) for record in taken.decisions],
        metrics=[
            MetricRow(row.query, row.age_seconds, row.series, row.missing_nodes, row.fetch_seconds, row.degraded)
            for row in taken.metrics
        ],
        replica=_replica(taken),
        shadow=shadow_section(taken.shadow) if taken.shadow is not None else None,
    )


def _verdict(taken: FleetSnapshot) -> Headline:
    replica = taken.replica
    serious = list(replica.problems)
    if not replica.reachable:
        serious.append(f"the API server cannot be reached: {replica.server}")
    worrying = []
    if not taken.clusters:
        worrying.append("there are no clusters")
    if taken.reloads and taken.reloads[0].result is not ReloadResult.ACCEPTED and not serious:
        worrying.append("the newest policies were rejected: the previous policies stay active")
    unready = [each.name for each in taken.clusters if not each.ready]
    if unready:
        worrying.append(f"not ready: {some(unready)}")
    degraded = sum(row.degraded for row in taken.metrics)
    if degraded:
        worrying.append(f"degraded metrics: {degraded} of {len(taken.metrics)}")
    if taken.failing:
        worrying.append(f"{plural(taken.failing, 'workload')} without a place")
    found = [*serious, *worrying]
    if found:
        first, *rest = (text[:1].upper() + text[1:] + "." for text in found)
        return Headline("bad" if serious else "warn", first, rest)
    if not replica.leading:
        return Headline("quiet", "This replica is on standby: another replica leads.")
    return Headline("good", "All is well.")


def _groups(taken: FleetSnapshot) -> list[shown.WaitingGroup]:
    """Return workloads that wait for the same reason together, the largest group first."""
    found: dict[tuple[str, ...], list[WaitingWorkload]] = defaultdict(list)
    for each in taken.waiting:
        last = each.last
        ground = (last.outcome.value, last.policy or "", last.message) if last is not None else ()
        found[ground].append(each)
    groups = [_group(each, taken.at) for each in found.values()]
    return sorted(groups, key=lambda group: (-group.workloads, group.why))


def _group(waiting: list[WaitingWorkload], now: float) -> shown.WaitingGroup:
    last = waiting[0].last
    oldest = max(0.0, now - min(each.since for each in waiting))
    examples = [each.object for each in waiting[:MOST_EXAMPLES]]
    if last is None:
        return shown.WaitingGroup("waiting", "the reason is no longer known", (), 0, len(waiting), examples, oldest, "")
    return shown.WaitingGroup(
        outcome=last.outcome.value,
        why=f"{last.reason}: {last.message}",
        rejections=list(last.rejected.items())[:MOST_REJECTIONS],
        clusters=last.total,
        workloads=len(waiting),
        examples=examples,
        oldest_seconds=oldest,
        policy=last.policy or "",
    )


def _cluster(each: FleetCluster, taken: FleetSnapshot) -> shown.ClusterRow:
    running, room = taken.running.get(each.name), taken.rooms.get(each.name)
    state: tuple[str, Tone] = ("leaving", "warn") if each.deleting else ("ready", "good")
    if not each.ready and not each.deleting:
        state = ("not ready", "bad")
    told = ""
    if room is not None:
        told = f"{amount(room.room)} for {room.workload}, by {room.by or 'nobody'}, {ago(taken.at - room.at)}"
    return shown.ClusterRow(
        name=each.name,
        state=state[0],
        tone=state[1],
        place=", ".join(part for part in (each.provider, each.region) if part),
        uses=[_use(each, resource) for resource in _RESOURCES],
        workloads=running.workloads if running is not None else 0,
        replicas=running.replicas if running is not None else 0,
        room="; ".join(filter(None, (told, _member(taken.members.get(each.name))))),
    )


def _member(row: MemberRow | None) -> str:
    """Say when the nodes and pods of a cluster were read, and what is wrong with it; "" if they are not."""
    if row is None:
        return ""
    text = "; ".join(filter(None, (f"nodes and pods read {ago(row.age)}" if row.age is not None else "", row.remark)))
    if row.problem:
        read = "never read" if row.age is None else f"last read {ago(row.age)}"
        text = f"its nodes and pods cannot be read ({read}): {row.problem}"
    return shortened(text, MOST_CHARACTERS)


def _use(each: FleetCluster, resource: str) -> shown.Share:
    _, unit, name = _RESOURCES[resource]
    offered = each.allocatable.get(resource)
    if offered is None:
        return shown.Share("not said", None)
    if not each.counts_requests:
        return shown.Share(f"{amount(offered / unit)} {name}".strip(), None)
    used = each.requested(resource)
    digits = 1 if offered / unit < 100 and resource != "pods" else 0
    text = f"{amount(used / unit, digits)} of {amount(offered / unit, digits)} {name}".strip()
    return shown.Share(text, used / offered if offered > 0 else None)


def _policies(taken: FleetSnapshot) -> Iterator[PolicyFile]:
    sources = {each.checked.source.name: each.checked.source for each in taken.policies.policies}
    for name, source in sorted(sources.items()):
        yield PolicyFile(name, list(source_lines(source, {})))


def _decision(record: WorkloadRecord) -> shown.WorkloadDecision:
    decided = record.theirs if record.outcome is WorkloadOutcome.SHADOW else record.targets
    gets = record.outcome in (WorkloadOutcome.PLACED, WorkloadOutcome.MOVED, WorkloadOutcome.SHADOW)
    return shown.WorkloadDecision(
        at=record.time,
        workload=record.key,
        outcome=record.outcome.value,
        tone="warn" if record.verdict not in ("", "agreed") else _TONES[record.outcome],
        result=shortened(shares(decided), MOST_CHARACTERS) if gets else "",
        why=_why(record),
        facts=list(_facts(record)),
        clusters=[_verdict_row(each) for each in record.clusters],
        left_out=max(0, record.total - len(record.clusters)),
        rejections=list(record.rejected.items())[:MOST_REJECTIONS],
    )


def _why(record: WorkloadRecord) -> str:
    match record.outcome:
        case WorkloadOutcome.SHADOW:
            ours = shortened(shares(record.targets), MOST_CHARACTERS)
            text = record.verdict.replace("-", " ")
            return text if record.verdict == "agreed" else f"{text}: the policies decide {ours}; {record.message}"
        case WorkloadOutcome.PLACED | WorkloadOutcome.MOVED:
            return record.trigger
    return f"{record.reason}: {record.message}"


def _facts(record: WorkloadRecord) -> Iterator[str]:
    yield f"policy {record.policy}" if record.policy else "its placement alone"
    yield f"{record.workload.kind}, {plural(record.workload.replicas, 'replica')}"
    yield f"{record.object}, generation {record.generation}"
    yield f"attempt {record.attempt}"
    yield f"decided in {duration(record.seconds)}"
    if record.repeats:
        yield f"repeated {amount(record.repeats)} times"
    if record.unread:
        yield f"labels of the template are missing: {record.unread}"
    if record.hash:
        yield f"policies {record.hash[:12]}"


def _verdict_row(each: RecordedCluster) -> shown.ClusterVerdict:
    return shown.ClusterVerdict(
        name=each.cluster,
        why=f"rejected by {each.rejected_by}: {each.why}" if each.rejected_by else each.why,
        has=each.has,
        gets=each.gets,
        room="" if each.room is None else f"{amount(each.room)} ({each.room_by})" if each.room_by else str(each.room),
        score="" if each.score is None else f"{each.score:g}",
    )


def _replica(taken: FleetSnapshot) -> list[tuple[str, str]]:
    replica = taken.replica
    found = [("identity", replica.identity), ("version", replica.version), ("API server", replica.server)]
    if not replica.elects:
        found.append(("lease", "no leader election"))
    elif replica.leading:
        found.append(("lease", "held by this replica"))
    else:
        found.append(("lease", f"held by {replica.leader}" if replica.leader else "not seen yet"))
    policies = f"generation {taken.generation}, hash {taken.hash}" if taken.hash else "none active"
    return [*found, ("policies", policies if taken.has_policies else "there is no folder of policies")]

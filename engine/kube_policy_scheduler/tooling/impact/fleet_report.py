"""What `policyctl impact --fleet` says: the workloads that would move, from where to where, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kube_policy_scheduler.diagnostics import printable
from kube_policy_scheduler.documents.report import report_values
from kube_policy_scheduler.tooling.impact.fleet_replay import FleetChange, FleetFigures, FleetReplay, Placed
from kube_policy_scheduler.tooling.impact.report import Limits, cell
from kube_policy_scheduler.tooling.text_table import DIM, GREEN, RED, YELLOW, Terminal
from kube_policy_scheduler.wording import amount, part_of, plural, signed

_ORDER = {"lost": 0, "gained": 1, "moved": 2}
_VERBS = (
    ("moved", "runs elsewhere", "run elsewhere"),
    ("lost", "loses its room", "lose their room"),
    ("gained", "gets room", "get room"),
)
_MOST_CLUSTERS = 20
"""Clusters whose replicas the report lists, those with the greatest change first."""


class FleetImpact(msgspec.Struct, frozen=True):
    """Everything that there is to say."""

    old: str
    new: str
    replay: FleetReplay
    afresh: bool
    """Whether workloads were decided without regard to where they run."""
    limits: Limits = Limits()

    def of(self, kind: str) -> list[FleetChange]:
        """Return the changes of a kind."""
        return [each for each in self.replay.changes if each.kind == kind]

    @property
    def moved(self) -> int:
        """Return how many replicas change their cluster."""
        return sum(each.moved for each in self.replay.changes)

    @property
    def broken(self) -> list[str]:
        """Return the limits that are exceeded, as sentences."""
        limits, lost, found = self.limits, len(self.of("lost")), []
        if limits.lost is not None and lost > limits.lost:
            found.append(f"{plural(lost, 'workload')} would no longer have room; the limit is {limits.lost}")
        if limits.moved is not None and self.moved > limits.moved:
            found.append(f"{plural(self.moved, 'replica')} would move; the limit is {limits.moved}")
        share = self.moved / self.replay.replicas if self.replay.replicas else 0.0
        if limits.moved_share is not None and share > limits.moved_share:
            found.append(f"{100 * share:.1f} % of the replicas would move; the limit is {100 * limits.moved_share:g} %")
        return found

    @property
    def changes(self) -> list[FleetChange]:
        """Return the changes, the worst first."""
        return sorted(self.replay.changes, key=lambda each: (_ORDER[each.kind], -each.moved, name_of(each)))


def name_of(change: FleetChange) -> str:
    """Return the kind, the namespace and the name of a workload: `Deployment shop/web`."""
    asked = change.workload
    return f"{asked.kind} {asked.namespace}/{asked.name}" if asked.namespace else f"{asked.kind} {asked.name}"


def headline(found: FleetImpact) -> str:
    """Return what the change does, in one line."""
    replay = found.replay
    how = "decided afresh" if found.afresh else "decided where something asks for it, and moved until they rest"
    counts = ((len(found.of(kind)), one, many) for kind, one, many in _VERBS)
    parts = [f"{count:,} {one if count == 1 else many}" for count, one, many in counts if count]
    said = f"{', '.join(parts)}; {part_of(found.moved, replay.replicas, 'replica')} in another cluster"
    return f"{plural(replay.decided, 'workload')} {how}: {said if parts else 'nothing changes'}"


def lines(found: FleetImpact, *, to: Terminal, most: int) -> Iterator[str]:
    """Return the report for people; at most some workloads are listed."""
    changes = found.changes
    yield to.paint(RED if found.broken else YELLOW if changes else GREEN, headline(found))
    for text in found.broken:
        yield to.paint(RED, f"Limit exceeded: {text}")
    if found.replay.left:
        yield to.paint(DIM, f"{plural(found.replay.left, 'other workload')} stayed in place: no policy governs them")
    if changes:
        rows = [("workload", "moves", "because")]
        rows += [
            (printable(name_of(each)), printable(moves_of(each)), printable(because(each))) for each in changes[:most]
        ]
        styles = {at: RED for at, each in enumerate(changes[:most], 1) if each.kind == "lost"}
        yield ""
        yield from to.table(rows, right_from=3, styles=styles)
        if len(changes) > most:
            more = f"and {plural(len(changes) - most, 'more workload')}"
            yield to.paint(DIM, f"{more}: --all, --format json or --html shows them")
    elif not found.afresh:
        yield to.paint(DIM, "What runs stays where it is unless a policy says `rebalance`. To compare where workloads")
        yield to.paint(DIM, "would go if they were decided afresh: --afresh")
    yield ""
    yield from to.table([("", "old", "new", "change"), *figures(found)], right_from=1)


def moves_of(change: FleetChange) -> str:
    """Return the moves of a workload in one line: `2 from a to b, 1 removed from c`."""
    if not change.workload.has_pods:
        return f"from {_clusters(change.old)} to {_clusters(change.new)}"
    parts = []
    for each in change.moves:
        if each.source and each.target:
            parts.append(f"{each.replicas:,} from {each.source} to {each.target}")
        else:
            parts.append(
                f"{each.replicas:,} {f'no longer in {each.source}' if each.source else f'new in {each.target}'}"
            )
    return ", ".join(parts) or "none"


def _clusters(placed: Placed) -> str:
    return ", ".join(sorted(placed.outcome.targets)) or "nowhere"


def because(change: FleetChange) -> str:
    """Return why a workload runs elsewhere: what the new policies say of the clusters that it leaves and comes to."""
    new = change.new
    if not new.outcome.placed:
        return new.outcome.message
    by = f"policy {new.policy}" if new.policy is not None else "its Placement"
    said = []
    for name in dict.fromkeys(name for each in change.moves for name in (each.source, each.target) if name):
        verdict = new.outcome.verdicts.get(name)
        if verdict is not None and verdict.rejected_by:
            said.append(f"{name} is rejected by {verdict.rejected_by}: {verdict.message}")
        elif verdict is not None and verdict.message:
            said.append(f"{name}: {verdict.message}")
    return f"{by}: {'; '.join(said)}" if said else by


def figures(found: FleetImpact) -> list[tuple[str, ...]]:
    """Return rows of a figure, its old and its new value, and the difference."""
    old, new = found.replay.old, found.replay.new
    rows: list[tuple[str, ...]] = []
    for name, key in (("workloads without all replicas", "unplaced"), ("replicas without a cluster", "short")):
        was, now = getattr(old, key), getattr(new, key)
        rows.append((name, f"{was:,}", f"{now:,}", signed(now - was)))
    if old.restless or new.restless:
        was, now = old.restless, new.restless
        rows.append(("workloads that never stop moving", f"{was:,}", f"{now:,}", signed(now - was)))
    if old.hourly is not None and new.hourly is not None:
        change = signed(round(new.hourly - old.hourly, 2))
        rows.append(("hourly price of requested cores", _priced(old), _priced(new), change))
    names = sorted({*old.replicas, *new.replicas})
    changed = [each for each in names if old.replicas.get(each, 0) != new.replicas.get(each, 0)]
    changed.sort(key=lambda name: -abs(new.replicas.get(name, 0) - old.replicas.get(name, 0)))
    for name in changed[:_MOST_CLUSTERS]:
        was, now = old.replicas.get(name, 0), new.replicas.get(name, 0)
        rows.append((printable(f"replicas in {name}"), f"{was:,}", f"{now:,}", signed(now - was)))
    return rows


def _priced(side: FleetFigures) -> str:
    """Return the price; replicas whose price is not known are named, as they do not cost nothing."""
    more = f" + {plural(side.unpriced, 'replica')}" if side.unpriced else ""
    return f"{amount(side.hourly or 0.0)}{more}"


def data(found: FleetImpact) -> dict[str, Any]:
    """Return the report for programs."""
    replay = found.replay
    return {
        "headline": headline(found),
        "old": found.old,
        "new": found.new,
        "afresh": found.afresh,
        "decided": replay.decided,
        "left": replay.left,
        "replicas": replay.replicas,
        "movedReplicas": found.moved,
        "counts": {kind: len(found.of(kind)) for kind in _ORDER},
        "broken": found.broken,
        "changes": [_change(each) for each in found.changes],
        "figures": [dict(zip(("name", "old", "new", "change"), row, strict=True)) for row in figures(found)],
        "before": report_values(replay.old),
        "after": report_values(replay.new),
    }


def _change(change: FleetChange) -> dict[str, Any]:
    asked = change.workload
    return {
        "workload": name_of(change),
        "kind": change.kind,
        "replicas": asked.replicas,
        "old": _placed(change.old),
        "new": _placed(change.new),
        "moves": [{"from": each.source, "to": each.target, "replicas": each.replicas} for each in change.moves],
        "moved": moves_of(change),
        "because": because(change),
    }


def _placed(placed: Placed) -> dict[str, Any]:
    return {
        "policy": placed.policy,
        "placed": placed.outcome.placed,
        "message": placed.outcome.message,
        "clusters": dict(sorted(placed.outcome.targets.items())),
        "passes": placed.passes,
        "rests": placed.rests,
    }


def markdown(found: FleetImpact, *, most: int = 20) -> Iterator[str]:
    """Return the report as GitHub shows it in a step summary or a comment."""
    yield f"### {'❌' if found.broken else '✅'} policyctl impact: {headline(found)}"
    yield ""
    yield from (f"- **Limit exceeded:** {text}" for text in found.broken)
    if found.broken:
        yield ""
    yield "| | old | new | change |"
    yield "|---|---:|---:|---:|"
    yield from (f"| {' | '.join(map(cell, row))} |" for row in figures(found))
    if found.changes:
        yield ""
        yield "| workload | moves | because |"
        yield "|---|---|---|"
        for each in found.changes[:most]:
            yield f"| {' | '.join(map(cell, (name_of(each), moves_of(each), because(each))))} |"
        if len(found.changes) > most:
            yield ""
            yield f"and {plural(len(found.changes) - most, 'more workload')}"

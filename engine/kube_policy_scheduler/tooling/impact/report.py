"""What `policyctl impact` says: the changes by clause, and figures of both clusters in the end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.diagnostics import printable
from kube_policy_scheduler.documents.report import report_values
from kube_policy_scheduler.tooling.cost import NO_PRICES, Cost, PriceSources, cost, in_use
from kube_policy_scheduler.tooling.impact.evictions import Evictions, GivesWay
from kube_policy_scheduler.tooling.impact.queue_changes import QueueChange
from kube_policy_scheduler.tooling.impact.replay import Change, Reason, Replay
from kube_policy_scheduler.tooling.text_table import DIM, GREEN, RED, YELLOW, Terminal
from kube_policy_scheduler.wording import plural, signed

ZONE = "topology.kubernetes.io/zone"
RESOURCES = ("cpu", "memory")
_CODE_OR_TAG = re.compile(r"(?<![\\`])`[^`]+`(?!`)|<")
"""Code between single backticks, or what may begin a tag: other backticks may not pair as they seem to."""


@dataclass(frozen=True, slots=True)
class Load:
    """What pods request of one resource, as shares of what nodes offer."""

    resource: str
    most: float
    mean: float
    deviation: float
    """Standard deviation over nodes."""
    empty: int
    """Nodes of which nothing is requested."""
    shares: tuple[float, ...]
    """By node, in the order of their names."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How the pods of one group lie."""

    group: str
    pods: int
    nodes: int
    """Nodes that have one of them."""
    most: int
    """Pods on the node with most of them."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One cluster in numbers."""

    loads: tuple[Load, ...]
    zones: tuple[tuple[str, int], ...]
    """Pods by zone, by name; empty where nodes have no zones."""
    spreads: tuple[Spread, ...]
    """By group."""
    price: Cost | None = None
    """Of the nodes in use; None where no node has a price."""

    @property
    def skew(self) -> int:
        """Return how many pods the fullest zone has more than the emptiest."""
        counts = [count for _, count in self.zones]
        return max(counts) - min(counts) if counts else 0


def figures(cluster: Cluster, uids: Sequence[str], *, by: str = "") -> Figures:
    """Return the figures of a cluster.

    Args:
        cluster: nodes and pods.
        uids: the pods whose zones and groups are counted.
        by: the pod label that makes a group; "" for the namespace.
    """
    infos = {info.name: info for info in cluster.nodes.infos}
    zones: Counter[str] = Counter({zone: 0 for info in infos.values() if (zone := info.labels.get(ZONE)) is not None})
    groups: dict[str, Counter[str]] = {}
    for uid in uids:
        pod, host = cluster.pods.get(uid), cluster.node_of(uid)
        if pod is None or host is None:
            continue
        zone = infos[host].labels.get(ZONE)
        if zone is not None:
            zones[zone] += 1
        group = pod.labels.get(by, "") if by else pod.namespace
        groups.setdefault(group, Counter())[host] += 1
    spreads = [Spread(name, hosts.total(), len(hosts), max(hosts.values())) for name, hosts in sorted(groups.items())]
    price = cost(cluster, among=in_use(cluster)) if cost(cluster).nodes else None
    return Figures(tuple(_loads(cluster)), tuple(sorted(zones.items())), tuple(spreads), price)


def _loads(cluster: Cluster) -> list[Load]:
    nodes = cluster.nodes
    found = []
    order = sorted(range(nodes.size), key=nodes.names.__getitem__)
    for resource in RESOURCES:
        offered = nodes.allocatable(resource)[: nodes.size][order]
        taken = nodes.requested(resource)[: nodes.size][order]
        shares = np.divide(taken, offered, out=np.zeros(len(order)), where=offered > 0)
        if len(shares):
            most, mean, deviation = float(shares.max()), float(shares.mean()), float(shares.std())
            empty = int((taken == 0).sum())
            found.append(Load(resource, most, mean, deviation, empty, tuple(round(float(s), 4) for s in shares)))
    return found


@dataclass(frozen=True, slots=True)
class Limits:
    """What a gate lets pass."""

    moved: int | None = None
    """Pods that may move; None: any number."""
    moved_share: float | None = None
    """The same as a share of the pods decided."""
    lost: int | None = 0
    """Pods that may become unschedulable; None: any number."""
    evicted: int | None = None
    """Pods that may be evicted that were not before; None: any number."""


@dataclass(frozen=True, slots=True)
class Impact:
    """Everything that there is to say."""

    old: str
    new: str
    replay: Replay
    before: Figures
    after: Figures
    limits: Limits = Limits()
    prices: PriceSources = NO_PRICES
    """Where the prices of nodes come from."""
    evictions: Evictions | None = None
    """Who gives way for pending pods; None: not looked at."""
    queues: tuple[QueueChange, ...] = ()
    """What differs between the queues."""

    def of(self, kind: str) -> list[Change]:
        """Return the changes of a kind; see `Change.kind`."""
        return [change for change in self.replay.changes if change.kind == kind]

    def worst_first(self) -> list[Change]:
        """Return the changes, the worst first."""
        order = {"lost": 0, "gained": 1, "moved": 2, "devices": 3, "other": 4}
        return sorted(self.replay.changes, key=lambda change: order[change.kind])

    @property
    def broken(self) -> list[str]:
        """Return the limits that are exceeded, as sentences; none: the change may pass."""
        moved, lost = len(self.of("moved")), len(self.of("lost"))
        limits, found = self.limits, []
        if limits.lost is not None and lost > limits.lost:
            found.append(f"{plural(lost, 'pod')} would no longer get a node; the limit is {limits.lost}")
        if limits.moved is not None and moved > limits.moved:
            found.append(f"{plural(moved, 'pod')} would move; the limit is {limits.moved}")
        evicted = len(self.evictions.more) if self.evictions is not None else 0
        if limits.evicted is not None and evicted > limits.evicted:
            found.append(f"{plural(evicted, 'more pod')} would be evicted; the limit is {limits.evicted}")
        share = moved / self.replay.decided if self.replay.decided else 0.0
        if limits.moved_share is not None and share > limits.moved_share:
            found.append(f"{100 * share:.1f} % of the pods would move; the limit is {100 * limits.moved_share:g} %")
        return found

    def causes(self) -> list[tuple[Reason, int]]:
        """Return the clauses that made a difference and for how many pods, most first."""
        counts = Counter((c.reason.kind, c.reason.clause, c.reason.place) for c in self.replay.changes)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return [(Reason(*key), count) for key, count in ranked]

    def spreads(self) -> list[tuple[str, Spread | None, Spread | None]]:
        """Return the groups whose spread differs, those whose fullest node changes most first."""
        old, new = ({one.group: one for one in side.spreads} for side in (self.before, self.after))
        found = [
            (group, old.get(group), new.get(group)) for group in sorted(old | new) if old.get(group) != new.get(group)
        ]
        return sorted(found, key=lambda item: -abs(_most(item[2]) - _most(item[1])))


def _most(spread: Spread | None) -> int:
    return spread.most if spread is not None else 0


_VERBS = (
    ("moved", "moves", "move"),
    ("devices", "gets other devices on its node", "get other devices on their nodes"),
    ("lost", "becomes unschedulable", "become unschedulable"),
    ("gained", "becomes schedulable", "become schedulable"),
    ("other", "waits for another reason", "wait for another reason"),
)


def headline(found: Impact) -> str:
    """Return what the change does, in one line."""
    counts = ((len(found.of(kind)), one, many) for kind, one, many in _VERBS)
    parts = [f"{count:,} {one if count == 1 else many}" for count, one, many in counts if count]
    if found.evictions is not None:
        for count, said in (
            (len(found.evictions.more), "would be"),
            (len(found.evictions.fewer), "would no longer be"),
        ):
            if count:
                parts.append(f"{count:,} {said} evicted")
    if not parts and found.queues:
        parts.append("only amounts of queues change")
    said = ", ".join(parts) if parts else "nothing changes"
    return f"{plural(found.replay.decided, 'pod')} decided again one after another: {said}"


def lines(found: Impact, *, to: Terminal, most: int) -> Iterator[str]:
    """Return the report for people; at most some pods are listed."""
    replay = found.replay
    yield to.paint(RED if found.broken else YELLOW if replay.changes else GREEN, headline(found))
    for text in found.broken:
        yield to.paint(RED, f"Limit exceeded: {text}")
    if replay.were:
        share = f"{replay.as_was} of {plural(replay.were, 'pod')} where they are"
        yield to.paint(
            DIM, f"As a check, {found.old} places {share}; {plural(replay.left, 'other pod')} stayed in place"
        )
    if replay.changes:
        yield ""
        yield from _causes(found, to)
        yield ""
        yield from _changes(found, to, most)
    yield from _queue_lines(found, to, most)
    yield from _eviction_lines(found, to, most)
    yield ""
    rows: list[tuple[str, ...]] = [("", "old", "new", "change"), *_figures(found)]
    yield from to.table(rows, right_from=1)
    if found.before.price is not None:
        yield to.paint(DIM, found.prices.sentence())
    spreads = found.spreads()
    if spreads:
        yield ""
        yield from _spreads(spreads[:most], to)
        if len(spreads) > most:
            yield to.paint(DIM, f"and {plural(len(spreads) - most, 'more group')}")


def _key(reason: Reason) -> tuple[str, str, str]:
    return reason.kind, reason.clause, reason.place


def _name(reason: Reason) -> str:
    return printable(f"`{reason.clause}`" if reason.place else reason.clause)


def _causes(found: Impact, to: Terminal) -> Iterator[str]:
    rows = [("", "because of", "where", "pods")]
    for at, (reason, count) in enumerate(found.causes(), 1):
        rows.append((f"[{at}]", _name(reason), reason.place, str(count)))
    yield from to.table(rows, right_from=3)


def _changes(found: Impact, to: Terminal, most: int) -> Iterator[str]:
    numbers = {_key(reason): at for at, (reason, _) in enumerate(found.causes(), 1)}
    ordered = found.worst_first()
    rows = [("pod", "old", "new", "because")]
    for change in ordered[:most]:
        old, new = change.old.node or change.old.state.value, change.new.node or change.new.state.value
        because = f"[{numbers[_key(change.reason)]}] {printable(change.reason.text)}"
        rows.append((printable(change.pod), old, new, because.rstrip()))
    lost = {at: RED for at, change in enumerate(ordered[:most], 1) if change.kind == "lost"}
    yield from to.table(rows, right_from=4, styles=lost)
    if len(ordered) > most:
        yield to.paint(DIM, f"and {plural(len(ordered) - most, 'more pod')}: --all, --format json or --html shows them")


def _queue_lines(found: Impact, to: Terminal, most: int) -> Iterator[str]:
    if not found.queues:
        return
    yield ""
    rows: list[tuple[str, ...]] = [("queue", "", "old", "new", "")]
    rows += [tuple(map(printable, (one.queue, one.what, one.old, one.new, one.text))) for one in found.queues[:most]]
    over = {at: YELLOW for at, one in enumerate(found.queues[:most], 1) if one.pods}
    yield from to.table(rows, right_from=5, styles=over)
    if len(found.queues) > most:
        yield to.paint(DIM, f"and {plural(len(found.queues) - most, 'more change')} of queues")


def _eviction_lines(found: Impact, to: Terminal, most: int) -> Iterator[str]:
    evictions = found.evictions
    if evictions is None:
        return
    listed = _who_goes(evictions)
    if listed:
        yield ""
        said = f"{plural(evictions.pending, 'pending pod')} decided while the others stay where they are:"
        said = said if evictions.pending else "Without pending pods:"
        yield f"{said} {len(evictions.old):,} evicted by the old policies, {len(evictions.new):,} by the new ones"
        rows: list[tuple[str, ...]] = [("pod", "node", "under the new policies", "for, or why")]
        rows += [
            (printable(_in_queue(one.pod, one.queue)), one.node, verb, printable(_reason_to_go(one)))
            for _, verb, one in listed[:most]
        ]
        styles = {at: colour for at, (colour, _, _) in enumerate(listed[:most], 1)}
        yield from to.table(rows, right_from=4, styles=styles)
        if len(listed) > most:
            yield to.paint(DIM, f"and {plural(len(listed) - most, 'more pod')}")
    if evictions.left:
        yield to.paint(DIM, f"evictions for {plural(evictions.left, 'more pending pod')} were not looked at")


def _who_goes(evictions: Evictions) -> list[tuple[str, str, GivesWay]]:
    """Return the pods about which old and new policies differ, each with a colour and what it does under the new."""
    return [
        *((RED, "is evicted", one) for one in evictions.more),
        *((GREEN, "stays", one) for one in evictions.fewer),
    ]


def _reason_to_go(one: GivesWay) -> str:
    """Return for whom a pod is evicted, or why."""
    return _in_queue(one.by, one.by_queue) if one.by else one.why


def _in_queue(pod: str, queue: str) -> str:
    return f"{pod} (queue {queue})" if queue else pod


def sentence(reason: Reason) -> str:
    """Return a reason in one line."""
    place = f" ({reason.place})" if reason.place else ""
    return printable(f"{_name(reason)} {reason.text}".rstrip() + place)


def _figures(found: Impact) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for old, new in zip(found.before.loads, found.after.loads, strict=True):
        for name, key in (("fullest node", "most"), ("mean", "mean"), ("deviation", "deviation")):
            was, now = 100 * getattr(old, key), 100 * getattr(new, key)
            rows.append((f"{old.resource}, {name}", f"{was:.1f} %", f"{now:.1f} %", signed(round(now - was, 1))))
        rows.append((f"{old.resource}, empty nodes", str(old.empty), str(new.empty), signed(new.empty - old.empty)))
    was_placed, now_placed = found.replay.placed
    rows.append(("pods with a node", f"{was_placed:,}", f"{now_placed:,}", signed(now_placed - was_placed)))
    if found.before.price is not None and found.after.price is not None:
        for key in ("hourly", "monthly"):
            was, now = getattr(found.before.price, key), getattr(found.after.price, key)
            known = not (found.before.price.unknown or found.after.price.unknown)
            cells = (_priced(price, key) for price in (found.before.price, found.after.price))
            rows.append((f"{key} price of nodes in use", *cells, signed(round(now - was, 2)) if known else "unknown"))
    if found.before.zones:
        was, now = found.before.skew, found.after.skew
        rows.append(("skew over zones, in pods", str(was), str(now), signed(now - was)))
    return rows


def _priced(price: Cost, key: str) -> str:
    """Return a price; nodes whose price is not known are named, as they do not cost nothing."""
    if not price.nodes:
        return "unknown" if price.unknown else "0.00"
    return f"{getattr(price, key):,.2f}" + (f" + {plural(price.unknown, 'node')}" if price.unknown else "")


def _spreads(spreads: Sequence[tuple[str, Spread | None, Spread | None]], to: Terminal) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("group", "pods", "nodes", "most on one node")]
    for group, old, new in spreads:
        cells = (_both(old, new, key) for key in ("pods", "nodes", "most"))
        rows.append((printable(group) or "(none)", *cells))
    yield from to.table(rows, right_from=1)


def _both(old: Spread | None, new: Spread | None, key: str) -> str:
    was, now = (getattr(side, key) if side is not None else 0 for side in (old, new))
    return str(now) if was == now else f"{was} → {now}"


# --- for programs and pull requests ----------------------------------------------------------------------


def data(found: Impact) -> dict[str, Any]:
    """Return the report as plain values."""
    replay = found.replay
    return {
        "headline": headline(found),
        "old": found.old,
        "new": found.new,
        "decided": replay.decided,
        "left": replay.left,
        "asWas": replay.as_was,
        "were": replay.were,
        "counts": {kind: len(found.of(kind)) for kind in ("moved", "devices", "lost", "gained", "other")},
        "broken": found.broken,
        "causes": [{**report_values(reason), "pods": count} for reason, count in found.causes()],
        "changes": [
            {
                "pod": change.pod,
                "kind": change.kind,
                "old": report_values(change.old),
                "new": report_values(change.new),
                "reason": {**report_values(change.reason), "sentence": sentence(change.reason)},
            }
            for change in replay.changes
        ],
        "figures": [dict(zip(("name", "old", "new", "change"), row, strict=True)) for row in _figures(found)],
        "queues": [report_values(one) for one in found.queues],
        "evictions": _evictions(found.evictions) if found.evictions is not None else None,
        "prices": report_values(found.prices) if found.before.price is not None else None,
        "before": _side(found.before),
        "after": _side(found.after),
        "spreads": [
            {"group": group, "old": report_values(old), "new": report_values(new)}
            for group, old, new in found.spreads()
        ],
    }


def _evictions(found: Evictions) -> dict[str, Any]:
    return {
        "pending": found.pending,
        "pendingLeft": found.left,
        "old": len(found.old),
        "new": len(found.new),
        "more": [report_values(one) for one in found.more],
        "fewer": [report_values(one) for one in found.fewer],
    }


def _side(side: Figures) -> dict[str, Any]:
    return {
        "loads": report_values(side.loads),
        "zones": dict(side.zones),
        "skew": side.skew,
        "price": report_values(side.price),
    }


def markdown(found: Impact, *, most: int = 20) -> Iterator[str]:
    """Return the report as GitHub shows it in a step summary or a comment."""
    yield f"### {'❌' if found.broken else '✅'} policyctl impact: {headline(found)}"
    yield ""
    yield from (f"- **Limit exceeded:** {text}" for text in found.broken)
    if found.broken:
        yield ""
    if found.replay.changes:
        yield "| pods | because of | where |"
        yield "|---:|---|---|"
        yield from (f"| {count} | {cell(_name(reason))} | {cell(reason.place)} |" for reason, count in found.causes())
        yield ""
    yield "| | old | new | change |"
    yield "|---|---:|---:|---:|"
    yield from (f"| {' | '.join(row)} |" for row in _figures(found))
    if found.queues:
        yield ""
        yield "| queue | | old | new | |"
        yield "|---|---|---|---|---|"
        for one in found.queues[:most]:
            yield f"| {' | '.join(map(cell, (one.queue, one.what, one.old, one.new, one.text)))} |"
        yield from _rest(len(found.queues) - most, "more change")
    going = _who_goes(found.evictions) if found.evictions is not None else []
    if going:
        yield ""
        yield "| pod | under the new policies | for, or why |"
        yield "|---|---|---|"
        for _, verb, each in going[:most]:
            yield f"| {cell(_in_queue(each.pod, each.queue))} | {verb} | {cell(_reason_to_go(each))} |"
        yield from _rest(len(going) - most, "more pod")
    changes = found.worst_first()
    if changes:
        yield ""
        yield f"<details><summary>{plural(len(changes), 'pod')}</summary>"
        yield ""
        yield "| pod | old | new | because |"
        yield "|---|---|---|---|"
        for change in changes[:most]:
            old, new = change.old.node or change.old.state.value, change.new.node or change.new.state.value
            yield f"| {cell(change.pod)} | {cell(old)} | {cell(new)} | {cell(sentence(change.reason))} |"
        yield from _rest(len(changes) - most, "more pod")
        yield ""
        yield "</details>"


def _rest(left: int, noun: str) -> Iterator[str]:
    """Return that a table goes on, if it does."""
    if left > 0:
        yield ""
        yield f"and {plural(left, noun)}"


def cell(text: str) -> str:
    """Return a text as a cell of a table in Markdown. In code, between backticks, `&lt;` would be shown as such."""
    shown = _CODE_OR_TAG.sub(lambda found: "&lt;" if found[0] == "<" else found[0], printable(text))
    return shown.replace("|", "\\|")

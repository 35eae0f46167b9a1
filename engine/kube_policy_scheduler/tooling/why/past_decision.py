"""Reports a recorded decision; nothing is decided here. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kube_policy_scheduler.diagnostics import closest, printable
from kube_policy_scheduler.times import rfc3339
from kube_policy_scheduler.tooling.cluster_state import UnknownPod
from kube_policy_scheduler.tooling.decision_record import DecisionRecord, Outcome
from kube_policy_scheduler.tooling.text_table import BOLD, DIM, GREEN, RED, Terminal
from kube_policy_scheduler.tooling.why.filters import plain
from kube_policy_scheduler.wording import amount, listed, plural, signed

_WORDS = {
    Outcome.ASSIGNED: "went to {node}",
    Outcome.WAITING: "has the node {node}, and waits for the rest of its gang",
    Outcome.UNSCHEDULABLE: "fitted nowhere",
    Outcome.PREEMPTING: "fitted no node; pods were evicted from {node} for it",
    Outcome.HELD: "was held",
    Outcome.BIND_FAILED: "was assigned to {node}, but the binding was rejected",
    Outcome.FAILED: "could not be decided",
}
_ANSWERS = {
    "filter": "can go to any of the nodes that fitted, as kube-scheduler selects",
    "prioritize": "fits best on {node}, as answered to kube-scheduler",
    "preempt": "can preempt pods, as answered to kube-scheduler",
}
_GOOD = (Outcome.ASSIGNED, Outcome.WAITING, Outcome.ANSWERED)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The last decision about one pod, and those before it."""

    record: DecisionRecord
    earlier: tuple[DecisionRecord, ...] = ()
    """Newest first."""

    @property
    def good(self) -> bool:
        """Return whether it got a node, or may get one."""
        return self.record.outcome in _GOOD


def recorded_of(records: Sequence[DecisionRecord], name: str, *, namespace: str | None = None) -> Recorded:
    """Return what a log says about a pod, given by its name or `namespace/name`.

    Raises:
        UnknownPod: none or several pods of the log are of that name.
    """
    wanted = f"{namespace}/{name}" if namespace and "/" not in name else name
    found = [one for one in records if one.key == wanted or ("/" not in wanted and one.key.endswith(f"/{wanted}"))]
    keys = sorted({one.key for one in found})
    if not found:
        known = {one.key for one in records}
        meant = closest(wanted, known) or closest(wanted, (key.partition("/")[2] for key in known))
        there = f"there are decisions about {plural(len(known), 'pod')}" if known else "there are no decisions"
        advice = f"did you mean `{meant}`?" if meant else there
        raise UnknownPod(f"there is no decision about `{wanted}`: {advice}")
    if len(keys) > 1:
        raise UnknownPod(f"several pods have the name `{name}`: {', '.join(keys)}; specify --namespace")
    newest = sorted(found, key=lambda one: one.time)[::-1]
    return Recorded(newest[0], tuple(newest[1:]))


def headline(found: Recorded) -> str:
    """Return what was decided, in one line."""
    record = found.record
    by = f", under {record.policy}" if record.policy else ""
    fits = f": {record.feasible} of {plural(record.nodes, 'node')} fitted" if record.feasible else ""
    return printable(f"{record.key} {_outcome(record)}{by}{fits}")


def _outcome(record: DecisionRecord) -> str:
    if record.outcome is Outcome.ANSWERED:
        return _ANSWERS.get(record.verb, "was in a request of kube-scheduler").format(node=record.node)
    if record.outcome is not Outcome.SHADOW:
        return _WORDS[record.outcome].format(node=record.node)
    theirs = f"was put on {record.theirs} by another scheduler" if record.theirs else "was not placed"
    ours = record.node if record.node else "nowhere"
    return f"{theirs}; the policies would have selected {ours} ({record.verdict})"


def reason(found: Recorded) -> str:
    """Return why, in one line."""
    record = found.record
    if not found.good:
        if record.reasons:
            most = max(record.reasons, key=lambda one: one.nodes)
            rule = f" ({most.plugin})" if most.plugin and most.plugin not in most.text else ""
            share = f": {most.nodes} of {plural(record.nodes, 'node')}" if record.nodes else ""
            return printable(f"Main cause: {plain(most.text)}{rule}{share}")
        return printable(record.message)
    if record.verb in ("filter", "bind", "preempt"):
        return printable(record.message)
    if record.feasible == 1:
        return "It was the only node that fitted."
    if record.ties > 1:
        return f"{record.ties} nodes had the same best total: one was selected by a hash of pod, node and seed."
    if len(record.top) > 1:
        first, second = record.top[0], record.top[1]
        names = dict.fromkeys([*first.scores, *second.scores])
        ahead = {name: first.scores.get(name, 0.0) - second.scores.get(name, 0.0) for name in names}
        parts = ", ".join(f"{name} {signed(by)}" for name, by in sorted(ahead.items(), key=lambda i: -abs(i[1])) if by)
        return printable(f"It led {second.node} by {amount(first.total - second.total)}: {parts}.")
    return f"It had the best total, {amount(record.score)}." if record.score is not None else ""


def when(record: DecisionRecord) -> str:
    """Return when it was decided, and how often before."""
    repeats = (
        f", and {record.repeats} more times until {rfc3339(record.last)}" if record.repeats and record.last else ""
    )
    policies = f", policies {record.hash[:12]}" if record.hash else ""
    kubernetes = printable(f", Kubernetes {record.kubernetes}") if record.kubernetes else ""
    return f"decided {rfc3339(record.time)}, attempt {record.attempt}{repeats}{policies}{kubernetes}"


def lines(found: Recorded, *, to: Terminal) -> Iterator[str]:
    """Return the record for people."""
    record = found.record
    yield to.paint(GREEN if found.good else RED, headline(found))
    text = reason(found)
    if text:
        yield to.paint(BOLD, text)
    yield to.paint(DIM, when(record))
    if record.message and record.message not in text:
        yield printable(record.message)
    if record.victims:
        short = f", which was short of {listed(record.short)}" if record.short else ""
        yield printable(f"Evicted for it{short}: {', '.join(record.victims)}.")
    if record.reasons or record.refused:
        yield ""
        yield from _rejections(record, to)
    if record.top:
        yield ""
        yield from _top(record, to)
    if record.metrics:
        yield ""
        yield from _metrics(record, to)
    if found.earlier:
        yield ""
        yield to.paint(BOLD, "Before that:")
        for one in found.earlier[:5]:
            yield printable(f"  {rfc3339(one.time)}  {_outcome(one)}")
        if len(found.earlier) > 5:
            yield to.paint(DIM, f"  and {plural(len(found.earlier) - 5, 'earlier decision')}")


def _rejections(record: DecisionRecord, to: Terminal) -> Iterator[str]:
    rows = [("filter", "reason", "first", "alone")]
    said = set()
    for one in sorted(record.reasons, key=lambda one: -one.nodes):
        alone = str(record.refused[one.plugin]) if one.plugin in record.refused and one.plugin not in said else ""
        said.add(one.plugin)
        rows.append((printable(one.plugin), printable(plain(one.text)), str(one.nodes), alone))
    for name, count in sorted(record.refused.items(), key=lambda item: (-item[1], item[0])):
        if name not in said:
            rows.append((printable(name), "", "0", str(count)))
    yield from to.table(rows, right_from=2)
    yield to.paint(DIM, "first: nodes that no rule before it rejected; alone: nodes that it rejects, evaluated alone")


def _top(record: DecisionRecord, to: Terminal) -> Iterator[str]:
    names = dict.fromkeys(name for one in record.top for name in one.scores)
    rows = [("score", *(one.node for one in record.top))]
    rows += [(printable(name), *(amount(one.scores.get(name, 0.0)) for one in record.top)) for name in names]
    rows.append(("total", *(amount(one.total) for one in record.top)))
    yield from to.table(rows, right_from=1)


def _metrics(record: DecisionRecord, to: Terminal) -> Iterator[str]:
    rows = [("metric", "age", "nodes without a value")]
    for one in record.metrics:
        age = f"{one.age_seconds:.3g} s" if one.age_seconds is not None else "no result yet"
        rows.append((printable(one.query), age, str(one.missing) if one.missing is not None else "not counted"))
    yield from to.table(rows, right_from=1)


def data(found: Recorded) -> dict[str, Any]:
    """Return the record as plain values: what people read, and all that was recorded."""
    return {
        "headline": headline(found),
        "reason": reason(found),
        "when": when(found.record),
        "good": found.good,
        "reasons": [
            {"filter": one.plugin, "reason": plain(one.text), "nodes": one.nodes} for one in found.record.reasons
        ],
        "record": msgspec.to_builtins(found.record),
        "earlier": [
            {"time": rfc3339(one.time), "outcome": one.outcome.value, "node": one.node, "message": one.message}
            for one in found.earlier
        ],
    }

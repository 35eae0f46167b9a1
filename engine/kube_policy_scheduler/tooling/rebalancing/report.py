"""What `policyctl rebalance` shows: text for people, data for programs. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kube_policy_scheduler.diagnostics import printable
from kube_policy_scheduler.documents.report import report_values
from kube_policy_scheduler.tooling.rebalancing.plan import Plan
from kube_policy_scheduler.tooling.rebalancing.room import RoomPlan
from kube_policy_scheduler.tooling.text_table import BOLD, DIM, GREEN, RED, YELLOW, Terminal
from kube_policy_scheduler.wording import amount, plural


def headline(found: Plan) -> str:
    """Return what is to be done, in one line."""
    moves = f"{plural(len(found.moves), 'pod')} to move" if found.moves else "no pod to move"
    kept = sum(found.stay.values())
    rest = f", {kept:,} cannot move" if kept else ""
    return f"{plural(found.checked, 'pod')} on nodes checked: {moves}, {found.well:,} where they belong{rest}"


def lines(found: Plan, *, to: Terminal, most: int, outcomes: Mapping[str, str] | None = None) -> Iterator[str]:
    """Return the plan for people; outcomes: by uid, what became of each eviction."""
    yield to.paint(YELLOW if found.moves else GREEN, headline(found))
    if not found.complete:
        yield to.paint(YELLOW, "stopped: this is the plan so far")
    if found.pending:
        yield to.paint(DIM, _of_pending(found))
    if found.moves:
        yield ""
        rows = [("pod", "from", "to", "because of", "where", "outcome" if outcomes else "", "better by")]
        for move in found.moves[:most]:
            by = amount(move.margin) if move.margin is not None else ""
            verb = "rejects it" if move.rejected else ""
            clause = f"`{move.clause}`" if move.place else move.clause
            because = printable(f"{clause} {verb}".strip())
            outcome = (outcomes or {}).get(move.uid, "")
            others = f" or {plural(move.equally_good - 1, 'other')}" if move.equally_good > 1 else ""
            rows.append((printable(move.pod), move.source, move.target + others, because, move.place, outcome, by))
        rejected = {at: BOLD for at, move in enumerate(found.moves[:most], 1) if move.rejected}
        yield from to.table(rows, right_from=6, styles=rejected)
        if len(found.moves) > most:
            left = plural(len(found.moves) - most, "more pod")
            yield to.paint(DIM, f"and {left}: --all or --format json shows them")
    if found.stay:
        yield ""
        rows_of = [("not moved, because", "for example", "pods")]
        rows_of += [(why, found.examples.get(why, ""), f"{count:,}") for why, count in found.stay.items()]
        yield from to.table(rows_of, right_from=2)


def _of_pending(found: Plan) -> str:
    """Return how many of the pending pods have a place; it is not given to those that move."""
    pending, placed = plural(found.pending, "pending pod"), found.pending_placed
    if not placed:
        return f"{pending} {'has' if found.pending == 1 else 'have'} no place now"
    if placed == 1:
        return f"1 of {pending} has a place, which stays free"
    return f"{placed:,} of {pending} have a place: these places stay free"


def data(found: Plan, outcomes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the plan as plain values; outcomes: by uid, what became of each eviction; None: nothing was evicted."""
    values: dict[str, Any] = report_values(found)
    for made, move in zip(values["moves"], found.moves, strict=True):
        made["outcome"] = (outcomes or {}).get(move.uid)
    values["stay"] = [
        {"reason": why, "pods": count, "example": found.examples.get(why, "")} for why, count in found.stay.items()
    ]
    del values["examples"]
    return {"headline": headline(found), "dryRun": outcomes is None, **values}


def room_headline(found: RoomPlan) -> str:
    """Return whether there is room, in one line."""
    of = plural(len(found.seats), "pending pod")
    have = "gets" if len(found.seats) == 1 else "get"
    moves = f"if {plural(len(found.moves), 'pod')} {'moves' if len(found.moves) == 1 else 'move'}"
    return f"{found.placed:,} of {of} {have} a place" + (f" {moves}" if found.moves else "")


def room_lines(found: RoomPlan, *, to: Terminal, outcomes: Mapping[str, str] | None = None) -> Iterator[str]:
    """Return who gets a place and what moves for it, for people."""
    yield to.paint(GREEN if found.placed == len(found.seats) else RED, room_headline(found))
    if not found.complete:
        yield to.paint(YELLOW, "stopped: this is the plan so far")
    if found.moves and found.gap:
        least = f"At least {plural(found.at_least, 'pod')} must move, by resources and budgets alone"
        yield to.paint(DIM, f"{least}: a gap of {100 * found.gap:.0f} %")
    elif found.moves:
        yield to.paint(DIM, "No plan has fewer moves")
    if found.not_exact:
        yield to.paint(DIM, f"Greedy search: {found.not_exact}")
    if found.seats:
        yield ""
        rows = [("pending pod", "gets", "because", "moves")]
        rows += [(printable(one.pod), one.node or "no place", one.why, str(one.moves)) for one in found.seats]
        yield from to.table(rows, right_from=3)
    if found.moves:
        yield ""
        moved = [("pod", "from", "to", "makes room for", "outcome" if outcomes else "")]
        moved += [
            (printable(one.pod), one.source, one.target, printable(one.room_for), (outcomes or {}).get(one.uid, ""))
            for one in found.moves
        ]
        yield from to.table(moved, right_from=9)


def room_data(found: RoomPlan, outcomes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the plan as plain values; outcomes: by uid, what became of each eviction; None: nothing was evicted."""
    values: dict[str, Any] = report_values(found)
    values["gap"] = found.gap
    for made, move in zip(values["moves"], found.moves, strict=True):
        made["outcome"] = (outcomes or {}).get(move.uid)
    return {"headline": room_headline(found), "dryRun": outcomes is None, **values}

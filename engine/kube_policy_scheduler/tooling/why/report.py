"""What `policyctl why` shows: text for people, data for programs. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kube_policy_scheduler.diagnostics import printable
from kube_policy_scheduler.documents.report import report_values
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES
from kube_policy_scheduler.policy.decision_inputs import KUBERNETES
from kube_policy_scheduler.tooling.rebalancing.room import RoomPlan
from kube_policy_scheduler.tooling.text_table import BOLD, DIM, GREEN, RED, Terminal
from kube_policy_scheduler.tooling.why.explain import Cause, Explanation
from kube_policy_scheduler.tooling.why.filters import NearMiss
from kube_policy_scheduler.tooling.why.scores import Ranking, Term
from kube_policy_scheduler.wording import amount, listed, plural, signed

_MOVES = 5
"""Moves that are named in the text; `--format json` names all."""


def lines(found: Explanation, *, to: Terminal) -> Iterator[str]:
    """Return the explanation for people, the dominant reason first."""
    if found.cause is not None:
        yield from _unschedulable(found, found.cause, to)
    elif found.ranking is not None:
        yield from _placed(found, found.ranking, to)
    else:
        yield f"{printable(found.pod)}: {found.message}"


def headline(found: Explanation) -> str:
    """Return what is the case, in one line."""
    pod = printable(found.pod)
    if found.cause is not None:
        return f"{pod} fits none of {plural(found.nodes, 'node')}, under {found.policy}"
    fits = f"{found.fits} of {plural(found.nodes, 'node')} {'fits' if found.fits == 1 else 'fit'}"
    if found.bound is None:
        goes = "would go" if found.short or found.ahead is not None else "goes"
        return f"{pod} {goes} to {found.host}, under {found.policy}: {fits}"
    if found.bound == found.host:
        return f"{pod} is on {found.bound}, and would go there again: {fits}"
    return f"{pod} is on {found.bound}, but would go to {found.host} now: {fits}"


def reason(found: Explanation) -> str:
    """Return why that is so, in one line."""
    if found.cause is not None:
        return _cause(found, found.cause)
    return _why(found.ranking) if found.ranking is not None else printable(found.message)


def _cause(found: Explanation, cause: Cause) -> str:
    place = f", {cause.place}" if cause.place else ""
    name = f"{cause.name}{place}" if cause.name and cause.name not in cause.words else cause.place
    where = f" ({name})" if name else ""
    share = f": {cause.rejected} of {plural(found.nodes, 'node')}" if cause.rejected < found.nodes else ": every node"
    only = f"; on {cause.only} of them this is the only cause" if 0 < cause.only < cause.rejected else ""
    whole = cause.only == cause.rejected == found.nodes and found.nodes > 1
    return printable(f"Main cause: {cause.words}{where}") + (share + only if not whole else "")


def _notes(found: Explanation) -> Iterator[str]:
    yield from (printable(limit.sentence()) for limit in found.limits)
    yield from (printable(standing.sentence()) for standing in found.queues)
    if found.rank:
        yield printable(found.rank)
    if found.queues and found.lacks:
        yield printable(f"Short for it: {listed(found.lacks)}")
    if found.reclaim:
        yield printable(found.reclaim[:1].upper() + found.reclaim[1:])
    yield from (printable(f"Devices: {sentence}") for sentence in found.devices)
    if found.short:
        yield f"It is held: {printable(found.short)}"
    else:
        yield from (printable(f"It starts with the others of {gang.sentence()}") for gang in found.gangs)
    if found.ahead is not None:
        ahead = found.ahead
        until = f"It waits until {ahead.pod} has a node, the first pod of `{ahead.order}`"
        yield printable(f"{f'It waits: {ahead.delays}' if ahead.delays else until} ({ahead.place})")
        why = _cause(found, ahead.cause) if ahead.cause is not None else "it fits, and is next"
        yield printable(f"{ahead.pod}: {why[:1].lower()}{why[1:]}")
    if found.reservation:
        yield printable(found.reservation)
    if found.cause is not None and found.bound is not None:
        yield f"It runs on {found.bound}, but would not be placed there again: {_lacks(found.bound_lacks)}"
    elif found.bound_lacks is not None:
        yield f"{found.bound} would reject it: {_lacks(found.bound_lacks)}"
    if found.kubernetes != str(DEFAULT_RULES):
        yield f"By the rules of Kubernetes {found.kubernetes}"


def _domains(found: Explanation, to: Terminal) -> Iterator[str]:
    """Yield how much room there is for the pod's gang in the best domains, if no domain has enough."""
    if not found.domains:
        return
    yield ""
    yield to.paint(BOLD, "Domains with the most room for the gang:")
    rows = [("", "", "")]
    for each in found.domains:
        missing = each.needed - each.room
        lacks = f"{missing} too few" if missing > 0 else "enough by resources, but not all of them fit"
        rows.append((f"  {printable(str(each.domain))}", f"{each.room} of {plural(each.needed, 'pod')}", lacks))
    yield from to.table(rows, right_from=3)


# --- fits nowhere ----------------------------------------------------------------------------------------


def _unschedulable(found: Explanation, cause: Cause, to: Terminal) -> Iterator[str]:
    yield to.paint(RED, headline(found))
    yield to.paint(BOLD, _cause(found, cause))
    yield from _notes(found)
    yield from _domains(found, to)
    if any(line.alone for line in found.lines):
        yield ""
        yield from _table(found, to)
    if found.near:
        yield ""
        yield to.paint(BOLD, "Closest nodes:")
        rows = [("", "")]
        for near in found.near:
            first, *rest = near.lacks
            rows += [(f"  {near.node}", printable(first)), *(("", printable(more)) for more in rest)]
        yield from to.table(rows, right_from=2)
    yield ""
    if found.changes:
        yield to.paint(BOLD, "It would fit with one of these changes (each was tried):")
        rows = [("", "")]
        for change in found.changes:
            fits = f"{change.nodes} node fits" if change.nodes == 1 else f"{change.nodes} nodes fit"
            rows.append((f"  {printable(change.text)}", f"{fits}, it goes to {change.node}"))
        yield from to.table(rows, right_from=2)
    else:
        yield to.paint(BOLD, "None of the changes that were tried makes it fit.")
    if found.room is not None:
        yield _room(found, found.room)
    if found.new_nodes is not None:
        yield printable(found.new_nodes.sentence())
    if found.victims:
        where = f" from {found.preemption_node}" if found.preemption_node and not found.reclaims else ""
        what = "Reclaim" if found.reclaims else "Preemption"
        yield f"{what} would evict {', '.join(found.victims)}{where}."


def _room(found: Explanation, room: RoomPlan) -> str:
    """Return which other pods would have to move."""
    if not room.moves:
        return "Whether it would fit if other pods moved is not known: the search took too long."
    moves = [f"{move.pod} -> {move.target}" for move in room.moves]
    rest = f" and {len(moves) - _MOVES} more" if len(moves) > _MOVES else ""
    whole = f", with {plural(len(room.seats) - 1, 'other pod')} of its gang" if len(room.seats) > 1 else ""
    text = f"It would fit{whole} if {plural(len(moves), 'pod')} moved: {', '.join(moves[:_MOVES])}{rest}"
    governed = found.policy != KUBERNETES.profile.name  # `rebalance` moves pods by policies only
    return printable(f"{text} (policyctl rebalance --for {found.pod})" if governed else text)


def _lacks(near: NearMiss | None) -> str:
    return "; ".join(near.lacks) if near is not None else "see below"


def _table(found: Explanation, to: Terminal) -> Iterator[str]:
    rows = [("filter", "where", "alone", "first", "only", "")]
    styles = {}
    for line in found.lines:
        if not line.alone and not line.place:
            continue
        name = f"  {line.name}" if line.within else line.name
        if line.dominant:
            styles[len(rows)] = RED
        mark = "<- main cause" if line.dominant else ""
        rows.append((printable(name), line.place, str(line.alone), str(line.first), str(line.only), mark))
    yield from to.table(rows, right_from=2, styles=styles)
    if any(not line.alone and not line.place for line in found.lines):
        yield to.paint(DIM, "The other filters of Kubernetes reject no node")
    legend = "alone: nodes it rejects; first: not rejected by a filter above; only: not rejected by any other"
    yield to.paint(DIM, legend)


# --- fits ------------------------------------------------------------------------------------------------


def _placed(found: Explanation, rank: Ranking, to: Terminal) -> Iterator[str]:
    yield to.paint(
        GREEN if found.bound in (None, found.host) and not found.short and not found.is_blocked else RED,
        headline(found),
    )
    yield from _notes(found)
    yield from _domains(found, to)
    yield to.paint(BOLD, _why(rank))
    yield ""
    head = ("score", "where", *rank.nodes)
    rows: list[tuple[str, ...]] = [head]
    for term in rank.terms:
        rows.append((printable(term.name), term.place, *(amount(value) for value in term.scores)))
    rows.append(("total", "", *(amount(total) for total in rank.totals)))
    rows.append(("rank", "", *(str(place) for place in rank.ranks)))
    yield from to.table(rows, right_from=2, styles={len(rows) - 2: BOLD})
    for term in rank.terms:
        if term.parts:
            yield ""
            weight = f", weight {term.weight:g}" if term.weight != 1 else ""
            yield to.paint(BOLD, f"{printable(term.name)} ({term.place}{weight})")
            yield from _values(term, rank.nodes, to)


def _why(rank: Ranking) -> str:
    if rank.feasible == 1:
        return "It is the only node that fits."
    if rank.ties > 1:
        return f"{rank.ties} nodes have the same best total: one was selected by a hash of pod, node and seed."
    following = next((at for at in range(1, len(rank.nodes)) if rank.ranks[at] > 1), None)
    if following is None or rank.margin is None:
        return "It has the best total."
    parts = rank.advantage(following)
    ahead = [f"{name} {signed(value)}" for name, value in parts if value > 0]
    behind = [f"{name} {signed(value)}" for name, value in parts if value < 0]
    against = f", against {', '.join(behind)}" if behind else ""
    nearest = rank.nodes[following]
    return printable(f"It leads {nearest} by {amount(rank.margin)}: {', '.join(ahead)}{against}.")


def _values(term: Term, nodes: Sequence[str], to: Terminal) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("", *nodes)]
    same: list[str] = []
    for part in term.parts:
        if part.same:
            same.append(f"  {printable(part.text)} = {part.texts()[0]}")
        else:
            rows.append((f"  {printable(part.text)}", *(printable(text) for text in part.texts())))
    if len(rows) > 1:
        yield from to.table(rows, right_from=1)
    yield from same


# --- for programs ----------------------------------------------------------------------------------------


def data(found: Explanation) -> dict[str, Any]:
    """Return the explanation as plain values; keys are those of `Explanation`, and the sentences that people read."""
    done = {"headline": headline(found), "reason": reason(found), "notes": list(_notes(found)), **report_values(found)}
    for line in done["lines"]:
        line["reasons"] = dict(line["reasons"])
    if found.room is not None:
        done["room"]["sentence"] = _room(found, found.room)
    for change in done["changes"]:
        del change["edit"]  # offsets in a text that the reader does not have; `text` says it with its line
        del change["pod"]
    if found.ranking is not None:
        for made, term in zip(done["ranking"]["terms"], found.ranking.terms, strict=True):
            for part, values in zip(made["parts"], term.parts, strict=True):
                part["shown"] = values.texts()
    return done

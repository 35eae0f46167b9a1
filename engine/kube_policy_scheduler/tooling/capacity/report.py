"""What `policyctl capacity` shows: text for people, data for programs. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.diagnostics import printable
from kube_policy_scheduler.documents.report import report_values
from kube_policy_scheduler.tooling.capacity.questions import (
    Loss,
    MoreCopies,
    NodeMix,
    NodesNeeded,
    PendingPods,
    Rejection,
    RemovableNodes,
)
from kube_policy_scheduler.tooling.cost import PriceSources, cost, idle_hourly, money
from kube_policy_scheduler.tooling.programs import whole
from kube_policy_scheduler.tooling.text_table import BOLD, DIM, GREEN, RED, YELLOW, Terminal
from kube_policy_scheduler.wording import listed, plural

STOPPED = "stopped: these are the results so far"


@dataclass(frozen=True, slots=True)
class ClusterPrice:
    """What the cluster costs."""

    sources: PriceSources
    hourly: float
    """Of all nodes with a price."""
    monthly: float
    idle_hourly: float
    """The price of what is free on them."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The answers to the questions that were asked."""

    more: MoreCopies | None = None
    pending: PendingPods | None = None
    removable: RemovableNodes | None = None
    losses: tuple[Loss, ...] = ()
    at_least: int | None = None
    """Copies that must fit, where that was asked for."""
    price: ClusterPrice | None = None
    """None where no node has a price."""

    @property
    def problems(self) -> list[str]:
        """Return what does not fit, as sentences."""
        found = []
        if self.more is not None and self.at_least is not None and self.more.count < self.at_least:
            found.append(f"{plural(self.more.count, 'more pod')} fit; {self.at_least:,} must")
        if self.pending is not None and self.pending.rejected:
            left = self.pending.pods - self.pending.fit_now
            found.append(f"{plural(left, 'pending pod')} {'has' if left == 1 else 'have'} no place")
        found += [f"without {loss.label}={loss.value}, {_missing(loss)}" for loss in self.losses if loss.missing]
        return found

    @property
    def complete(self) -> bool:
        """Return whether every answer is complete."""
        answers = (self.pending, self.removable, *self.losses)
        return all(one is None or one.complete for one in answers) and (
            self.more is None or self.more.complete or self.more.count == self.at_least
        )


def headline(found: Capacity) -> str:
    """Return the answers in one line."""
    parts = []
    if found.more is not None:
        least = "" if found.more.complete else "at least "
        parts.append(f"{least}{plural(found.more.count, 'more pod')} like {printable(found.more.pod)} fit")
    if found.pending is not None:
        parts.append(_fitting(found.pending) if found.pending.pods else "no pod is pending")
    if found.removable is not None:
        parts.append(f"{len(found.removable.removable):,} of {plural(found.removable.nodes, 'node')} can be removed")
    if found.losses:
        parts.append(_losses_in_short(found.losses))
    return printable("; ".join(parts))


def _losses_in_short(losses: Sequence[Loss]) -> str:
    if len(losses) == 1:
        (loss,) = losses
        return f"the loss of {loss.label}={loss.value}: {_missing(loss) or _nothing_lacks(losses)}"
    parts = []
    if most := max(loss.unplaced for loss in losses):
        parts.append(f"up to {plural(most, 'pod')} {'has' if most == 1 else 'have'} no place")
    if most := max(loss.gone for loss in losses):
        parts.append(f"up to {plural(most, 'pod')} never {'comes' if most == 1 else 'come'} back")
    said = " and ".join(parts) or _nothing_lacks(losses)
    return f"if one of the {len(losses)} values of {losses[0].label} is lost, {said}"


def _nothing_lacks(losses: Sequence[Loss]) -> str:
    """Return that all pods have a place, as far as they were decided."""
    return f"every pod {'finds a place' if all(loss.complete for loss in losses) else 'decided so far finds a place'}"


def _missing(loss: Loss) -> str:
    """Return how many pods a loss leaves out, and why; "" if none."""
    parts = []
    if loss.unplaced:
        parts.append(f"{plural(loss.unplaced, 'pod')} {'has' if loss.unplaced == 1 else 'have'} no place")
    if loss.gone:
        comes = "comes" if loss.gone == 1 else "come"
        parts.append(f"{plural(loss.gone, 'pod')} never {comes} back: no controller creates {_them(loss.gone)} again")
    return ", and ".join(parts)


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def lines(found: Capacity, *, to: Terminal, most: int) -> Iterator[str]:
    """Return the report for people; at most some nodes and reasons are listed."""
    currency = found.price.sources.currency if found.price is not None else ""
    between = False
    for answer in (found.more, found.pending, found.removable, found.losses):
        if answer is None or answer == ():
            continue
        if between:
            yield ""
        between = True
        match answer:
            case MoreCopies():
                yield from _more(answer, found, to, most)
            case PendingPods():
                yield from _pending(answer, to, most, currency)
            case RemovableNodes():
                yield from _removable(answer, to, most, currency)
            case _:
                yield from _losses(answer, to, most)
    if found.price is not None:
        yield ""
        yield from _price(found.price, to)


def cluster_price(cluster: Cluster, sources: PriceSources) -> ClusterPrice | None:
    """Return what a cluster costs; None where no node has a price."""
    found = cost(cluster)
    return ClusterPrice(sources, found.hourly, found.monthly, idle_hourly(cluster)) if found.nodes else None


def _price(price: ClusterPrice, to: Terminal) -> Iterator[str]:
    currency, share = price.sources.currency, price.idle_hourly / price.hourly
    yield f"The cluster costs {money(price.hourly, currency)}; {100 * share:.0f} % of that is for free resources"
    yield to.paint(DIM, price.sources.sentence())


def _stopped(complete: bool, to: Terminal) -> Iterator[str]:
    if not complete:
        yield to.paint(YELLOW, STOPPED)


def _more(found: MoreCopies, whole: Capacity, to: Terminal, most: int) -> Iterator[str]:
    short = whole.at_least is not None and found.count < whole.at_least
    least = "" if found.complete else "at least "
    text = f"{least}{plural(found.count, 'more pod')} like {found.pod} fit, on {plural(len(found.nodes), 'node')}"
    yield to.paint(RED if short else GREEN, text)
    if found.stopped_by:
        yield from to.item("The next one: ", found.stopped_by)
    yield to.paint(DIM, f"Bound: the free resources suffice for {found.bound:,}, whatever else the rules ask for")
    ranked = sorted(found.nodes.items(), key=lambda item: (-item[1], item[0]))
    if ranked:
        yield ""
        yield from to.table([("node", "pods"), *((name, f"{count:,}") for name, count in ranked[:most])], right_from=1)
        yield from _rest(len(ranked) - most, "more node", to)


def _pending(found: PendingPods, to: Terminal, most: int, currency: str) -> Iterator[str]:
    if not found.pods:
        yield to.paint(GREEN, "No pod is pending")
        return
    left = found.pods - found.fit_now
    yield to.paint(RED if left else GREEN, f"{_fitting(found)} on the nodes that are there")
    yield from _stopped(found.complete, to)
    yield from _rejected(found.rejected, to, most)
    yield from _needed(found.needed, left, to, most)
    text = mix_sentence(found.mix, left, currency) if found.mix is not None else ""
    if text:
        yield text


def mix_sentence(found: NodeMix, left: int, currency: str) -> str:
    """Return the cheapest mix of nodes if it has several shapes, and its bound; "" if there is nothing to say."""
    sentences = []
    if len(found.parts) > 1:
        parts = " and ".join(f"{part.nodes:,} like {printable(part.shape.like)}" for part in found.parts)
        price = f", {money(found.hourly, currency)}" if found.hourly is not None else ""
        sentences.append(f"Cheapest mix found: {parts}{price}, for {found.seated:,} of {plural(left, 'pod')}")
    if found.bound:
        least = plural(whole(found.bound), "node") if found.hourly is None else money(found.bound, currency)
        sentences.append(f"Bound: {least} at least for any mix of these shapes")
    return ". ".join(sentences)


def _fitting(found: PendingPods) -> str:
    return f"{found.fit_now:,} of {plural(found.pods, 'pending pod')} {'fits' if found.pods == 1 else 'fit'}"


def _rejected(rejected: Sequence[Rejection], to: Terminal, most: int) -> Iterator[str]:
    if rejected:
        yield ""
        rows = [("no place", "for example", "pods")]
        rows += [(one.message, one.example, f"{one.pods:,}") for one in rejected[:most]]
        yield from to.table(rows, right_from=2)
        yield from _rest(len(rejected) - most, "more reason", to)


def _needed(needed: Sequence[NodesNeeded], left: int, to: Terminal, most: int) -> Iterator[str]:
    if not needed:
        return
    yield ""
    title = "price/h" if any(one.hourly is not None for one in needed) else ""
    rows = [("new nodes like", "type", "zone", "nodes", "at least", "pods placed", "of", title)]
    for one in needed[:most]:
        nodes = f"{one.nodes:,}" if one.seated else "-"
        bound = f"{one.bound:,}" if one.seated else "-"
        shape = one.shape
        price = f"{one.hourly:,.2f}" if one.hourly is not None and one.seated else ""
        placed = f"{one.seated:,}"
        rows.append((shape.like, shape.instance_type, shape.zone, nodes, bound, placed, f"{left:,}", price))
    yield from to.table(rows, right_from=3, styles={1: BOLD} if needed[0].seated == left else {})
    yield from _rest(len(needed) - most, "more shape", to)
    best = needed[0]
    for left_over in best.without[:most]:
        pods = f"{plural(left_over.pods, 'pod')} such as {left_over.example}"
        yield from to.item(f"Not on nodes like {best.shape.like}: ", f"{pods}: {left_over.message}")


def _removable(found: RemovableNodes, to: Terminal, most: int, currency: str) -> Iterator[str]:
    count = len(found.removable)
    text = f"{count:,} of {plural(found.nodes, 'node')} can be removed; {plural(found.moves, 'pod')} would move"
    yield to.paint(GREEN, text)
    yield from _stopped(found.complete, to)
    if found.hourly is not None:
        unknown = sum(one.hourly is None for one in found.removable)
        rest = f", and the price of {plural(unknown, 'node')} that is not known" if unknown else ""
        yield to.paint(GREEN, f"Without them, the cluster costs less: {money(found.hourly, currency)}{rest}")
    yield to.paint(DIM, f"Bound: at most {found.bound:,}, by resources alone")
    if count:
        yield ""
        rows = [("remove in this order", "pods move to", "pods", "price/h" if found.hourly is not None else "")]
        for one in found.removable[:most]:
            hosts = list(dict.fromkeys(host for _, host in one.moves))
            shown = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
            price = f"{one.hourly:,.4g}" if one.hourly is not None else ""
            rows.append((one.node, shown or "it has none", f"{one.pods:,}", price))
        yield from to.table(rows, right_from=2)
        yield from _rest(count - most, "more node", to)
    if found.kept:
        yield ""
        kept = [("stays, because", "for example", "nodes")]
        kept += [(one.reason, one.example, f"{len(one.nodes):,}") for one in found.kept]
        yield from to.table(kept, right_from=2)


def _losses(found: Sequence[Loss], to: Terminal, most: int) -> Iterator[str]:
    bad = [loss for loss in found if loss.unplaced]
    label = found[0].label
    what = f"{label}={found[0].value}" if len(found) == 1 else f"any value of {label}"
    if bad:
        names = f": {', '.join(loss.value for loss in bad)}" if len(found) > 1 else ""
        yield to.paint(RED, f"If {what} is lost, not every pod finds a place{names}")
    elif not any(loss.gone for loss in found):
        is_done = all(loss.complete for loss in found)
        yield to.paint(GREEN if is_done else YELLOW, f"If {what} is lost, {_nothing_lacks(found)}")
    if lasting := [loss for loss in found if loss.gone]:
        counts = [plural(loss.gone, "pod") + (f" of {loss.value}" if len(found) > 1 else "") for loss in lasting]
        one = sum(loss.gone for loss in lasting) == 1
        text = f"If {what} is lost, {listed(counts)} never {'comes' if one else 'come'} back"
        yield to.paint(RED, printable(f"{text}: no controller creates {'it' if one else 'them'} again"))
    yield from _stopped(all(loss.complete for loss in found), to)
    yield ""
    rows: list[tuple[str, ...]] = [
        ("lost", "nodes", "pods", "placed", "no place", "at least", "preempted", "never come back")
    ]
    for loss in found:
        numbers = (loss.nodes, loss.pods, loss.placed, loss.unplaced, loss.bound, loss.evicted, loss.gone)
        rows.append((loss.value, *(f"{number:,}" for number in numbers)))
    yield from to.table(rows, right_from=1, styles={at: RED for at, loss in enumerate(found, 1) if loss.missing})
    for loss in bad:
        yield ""
        yield f"Without {printable(loss.label)}={printable(loss.value)}:"
        yield from _rejected(loss.rejected, to, most)
        yield from _needed(loss.needed, loss.unplaced, to, most)


def _rest(count: int, noun: str, to: Terminal) -> Iterator[str]:
    if count > 0:
        yield to.paint(DIM, f"and {plural(count, noun)}: --all, --format json or --html shows them")


def data(found: Capacity) -> dict[str, Any]:
    """Return the report as plain values; what was not asked is null."""
    values: dict[str, Any] = report_values(found)
    if found.pending is not None and found.pending.mix is not None:
        mix, pending = found.pending.mix, found.pending
        currency = found.price.sources.currency if found.price is not None else ""
        sentence = mix_sentence(mix, pending.pods - pending.fit_now, currency)
        values["pending"]["mix"] |= {"nodes": mix.nodes, "sentence": sentence}
    if found.removable is not None:
        values["removable"]["hourly"] = found.removable.hourly
        for made, one in zip(values["removable"]["removable"], found.removable.removable, strict=True):
            made["moves"] = [{"pod": pod, "to": host} for pod, host in one.moves]
    for made, loss in zip(values["losses"], found.losses, strict=True):
        made |= {"unplaced": loss.unplaced, "missing": loss.missing}
    return {"headline": headline(found), "problems": found.problems, "complete": found.complete, **values}

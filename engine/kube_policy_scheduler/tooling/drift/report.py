"""What `policyctl drift` shows: text for people, data for programs. Decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from kube_policy_scheduler.diagnostics import printable
from kube_policy_scheduler.tooling.drift.drift import Drift, Drifted
from kube_policy_scheduler.tooling.text_table import BOLD, DIM, GREEN, RED, Terminal
from kube_policy_scheduler.wording import amount, plural


def headline(found: Drift) -> str:
    """Return how many drifted, in one line."""
    refused, better = len(found.refused), len(found.better)
    parts = []
    if refused:
        parts.append(f"{refused:,} would be refused where {'it is' if refused == 1 else 'they are'}")
    if better:
        parts.append(f"{better:,} would be better elsewhere by more than {amount(found.margin or 0.0)}")
    said = ", ".join(parts) if parts else "all are where they may be"
    return f"{plural(found.checked, 'pod')} on nodes looked at: {said}"


def causes(found: Drift) -> list[tuple[str, str, bool, int]]:
    """Return the clauses behind it with their places, whether they refuse, and for how many pods, most first."""
    counts = Counter((one.clause, one.place, one.refused) for one in found.drifted)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(*key, count) for key, count in ranked]


def lines(found: Drift, *, to: Terminal, most: int) -> Iterator[str]:
    """Return the report for people; at most some pods are listed."""
    yield to.paint(RED if found.drifted else GREEN, headline(found))
    if found.drifted:
        ranked = causes(found)
        numbers = {(clause, place, refused): f"[{at}]" for at, (clause, place, refused, _) in enumerate(ranked, 1)}
        yield ""
        rows = [("", "because of", "where", "pods")]
        for (clause, place, refused, count), number in zip(ranked, numbers.values(), strict=True):
            verb = "refuses" if refused else "gives it less"
            rows.append((number, f"{_name(clause, place)} {verb}", place, str(count)))
        yield from to.table(rows, right_from=3)
        yield ""
        pods = [("pod", "on", "would go to", "because", "better by")]
        for one in found.drifted[:most]:
            by = amount(one.margin) if one.margin is not None else ""
            number = numbers[one.clause, one.place, one.refused]
            pods.append((printable(one.pod), one.node, one.better or "nowhere", number, by))
        bold = {at: BOLD for at, one in enumerate(found.drifted[:most], 1) if one.refused}
        yield from to.table(pods, right_from=4, styles=bold)
        if len(found.drifted) > most:
            left = plural(len(found.drifted) - most, "more pod")
            yield to.paint(DIM, f"and {left}: --all, --format json or --html shows them")
    if found.could_be_better or found.skipped:
        yield ""
    if found.could_be_better:
        than = f"by {amount(found.margin or 0.0)} or less, which is no drift (--margin)"
        yield to.paint(DIM, f"{plural(found.could_be_better, 'pod')} would be better elsewhere {than}")
    if found.skipped:
        left = ", ".join(f"{count:,} {why}" for why, count in found.skipped.items())
        yield to.paint(DIM, f"not looked at: {left}")


def _name(clause: str, place: str) -> str:
    return printable(f"`{clause}`" if place else clause or "a pod that is to come")


def sentence(one: Drifted) -> str:
    """Return what is wrong with one pod."""
    place = f" ({one.place})" if one.place else ""
    if one.refused:
        goes = f"it would go to {one.better}" if one.better else "it fits nowhere now"
        return printable(f"{_name(one.clause, one.place)} refuses it there{place}; {goes}")
    return printable(
        f"{one.better} is better by {amount(one.margin or 0.0)}, most by {_name(one.clause, one.place)}{place}"
    )


def data(found: Drift) -> dict[str, Any]:
    """Return the report as plain values."""
    return {
        "headline": headline(found),
        "checked": found.checked,
        "refused": len(found.refused),
        "better": len(found.better),
        "could_be_better": found.could_be_better,
        "margin": found.margin,
        "skipped": dict(found.skipped),
        "causes": [
            {"clause": clause, "place": place, "refused": refused, "pods": count}
            for clause, place, refused, count in causes(found)
        ],
        "pods": [{**asdict(one), "sentence": sentence(one)} for one in found.drifted],
    }

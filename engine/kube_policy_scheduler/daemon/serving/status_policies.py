"""The live policies as the status page shows them: their text, and beside each clause what it said so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from kube_policy_scheduler.daemon.observing.clause_metrics import Counts
from kube_policy_scheduler.daemon.serving.status_snapshot import Snapshot
from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.framework.queue.scheduling_queue import Place
from kube_policy_scheduler.pages import status as shown
from kube_policy_scheduler.policy.clauses import PolicyClause
from kube_policy_scheduler.times import duration
from kube_policy_scheduler.wording import amount, percent, plural

MOST_LINES = 400
"""Of one policy file; longer ones are cut."""


def policies(taken: Snapshot) -> list[shown.PolicyFile]:
    """Return the text of each file, with what its clauses said so far."""
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
            held = round(
                sum(
                    pod.stands_for
                    for pod in taken.pending
                    if pod.place is Place.GATED and pod.gated_because == policy.held_by(clause)
                )
            )
            line = clause.span.source.position(clause.span.start)[0]
            notes[clause.span.source.name, line].append(shown.ClauseNote(f"holds {plural(held, 'pod')} now"))
    for each in taken.plugins:
        span = _span(each.plugin)
        if span is not None:
            line = span.source.position(span.start)[0]
            notes[span.source.name, line].append(_note(each.counts))
    return [
        shown.PolicyFile(name, list(source_lines(source, notes)), about=_about(name, about[name]))
        for name, source in sorted(sources.items())
    ]


def _about(name: str, policies: list[str]) -> str:
    stem = name.rpartition("/")[2].removesuffix(".policy")
    return "" if policies == [stem] else f"policy {', '.join(policies)}"


def source_lines(source: Source, notes: Mapping[tuple[str, int], Sequence[shown.ClauseNote]]) -> Iterator[shown.Line]:
    """Yield the lines of a file. notes: by its name and the number of the line."""
    texts = source.text.rstrip("\n").split("\n")
    for number, text in enumerate(texts[:MOST_LINES], 1):
        yield shown.Line(number, text, notes.get((source.name, number), ()))
    if len(texts) > MOST_LINES:
        yield shown.Line(MOST_LINES + 1, f"… {len(texts) - MOST_LINES} more lines")


def _span(plugin: object) -> Span | None:
    """Return the place of a clause; None for a rule of Kubernetes."""
    return plugin.clause.span if isinstance(plugin, PolicyClause) else None


def _note(counts: Counts) -> shown.ClauseNote:
    if not counts.decisions:
        return shown.ClauseNote("not evaluated yet")
    parts = []
    if counts.low is not None and counts.high is not None:
        equal = counts.low == counts.high
        parts.append(amount(counts.low) if equal else f"{amount(counts.low)} to {amount(counts.high)}")
    else:
        whole = counts.asked == counts.decisions
        share = counts.rejected / counts.asked
        what = plural(counts.asked, "pod") if whole else f"{amount(counts.asked)} nodes"
        parts.append(f"rejected {amount(counts.rejected)} of {what}" + (f" ({percent(share)})" if share else ""))
    if counts.missing:
        parts.append(f"missing on {amount(counts.missing)}")
    parts.append(duration(counts.seconds / counts.decisions))
    return shown.ClauseNote(", ".join(parts), "warn" if counts.missing else "quiet")


def rules(taken: Snapshot) -> list[shown.Rule]:
    """Return the rules of Kubernetes that said anything so far."""
    return [
        shown.Rule(each.plugin.name, each.policy.name, _note(each.counts).text)
        for each in taken.plugins
        if _span(each.plugin) is None and (each.counts.rejected or each.counts.high is not None)
    ]


def counted(taken: Snapshot) -> str:
    """Return what the counts are of, in words."""
    return (
        f"Each clause shows its results on the nodes of {plural(taken.looked_at, 'decision')} under these policies,"
        " evaluated alone, and how long one evaluation took. The scheduler samples decisions, so that this takes only a"
        " small share of its time."
    )

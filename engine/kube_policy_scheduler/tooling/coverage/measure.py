"""What was seen of what could be seen, by policy file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.lang.checked import CheckedPolicy
from kube_policy_scheduler.tooling.coverage.probe import Probe
from kube_policy_scheduler.tooling.coverage.sites import (
    Outcome,
    Site,
    SiteKind,
    SpanKey,
    clause_sites,
    joined,
    span_key,
)


@dataclass(frozen=True, slots=True)
class SiteCoverage:
    """One site and in how many decisions each outcome was seen."""

    site: Site
    seen: Mapping[Outcome, int]

    @property
    def reached(self) -> bool:
        """Return whether it ever answered."""
        return any(self.seen.values())

    @property
    def unseen(self) -> tuple[Outcome, ...]:
        """Return the outcomes that no decision met."""
        return tuple(outcome for outcome, count in self.seen.items() if not count)


@dataclass(frozen=True, slots=True)
class ClauseCoverage:
    """One clause and in how many decisions it had a say at any node."""

    keyword: str
    name: str
    span: Span
    decisions: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many of how many."""

    covered: int
    total: int

    @property
    def percent(self) -> float:
        """Return 0 to 100; nothing to cover is covered."""
        return 100.0 * self.covered / self.total if self.total else 100.0

    def __add__(self, other: Ratio) -> Ratio:
        return Ratio(self.covered + other.covered, self.total + other.total)

    def __str__(self) -> str:
        return f"{self.covered}/{self.total}"


@dataclass(frozen=True, slots=True)
class FileCoverage:
    """One policy file."""

    source: Source
    clauses: tuple[ClauseCoverage, ...]
    sites: tuple[SiteCoverage, ...]

    @property
    def clause_ratio(self) -> Ratio:
        """Return how many clauses had a say."""
        return Ratio(sum(clause.decisions > 0 for clause in self.clauses), len(self.clauses))

    @property
    def branch_ratio(self) -> Ratio:
        """Return how many outcomes were seen."""
        total = sum(len(site.seen) for site in self.sites)
        return Ratio(total - sum(len(site.unseen) for site in self.sites), total)


def measured(together: Iterable[Sequence[CheckedPolicy]], probe: Probe) -> tuple[FileCoverage, ...]:
    """Return the coverage of policies by file, in the order of their names.

    Args:
        together: policies that decide together, once for each set that was decided with.
        probe: what was seen.
    """
    sources: dict[str, Source] = {}
    clauses: dict[SpanKey, ClauseCoverage] = {}
    sites: dict[tuple[SiteKind, SpanKey], Site] = {}
    for policy, alone in ((policy, len(policies) == 1) for policies in together for policy in policies):
        sources.setdefault(policy.source.name, policy.source)
        for clause in clause_sites(policy, alone=alone):
            place = span_key(clause.span)
            sources.setdefault(clause.span.source.name, clause.span.source)
            decisions = probe.clauses[place]
            clauses.setdefault(place, ClauseCoverage(clause.keyword, clause.name, clause.span, decisions))
            for site in clause.sites:
                sources.setdefault(site.span.source.name, site.span.source)
                sites[site.key] = joined(sites[site.key], site) if site.key in sites else site
    return tuple(_file(source, tuple(clauses.values()), tuple(sites.values()), probe) for source in _ordered(sources))


def _ordered(sources: Mapping[str, Source]) -> Sequence[Source]:
    return [sources[name] for name in sorted(sources)]


def _file(source: Source, clauses: Sequence[ClauseCoverage], sites: Sequence[Site], probe: Probe) -> FileCoverage:
    here = [site for site in sites if site.span.source.name == source.name and site.outcomes]
    here.sort(key=lambda site: (site.span.start, -site.span.end, site.kind.value))
    found = [
        SiteCoverage(site, {outcome: probe.outcomes[site.key, outcome] for outcome in site.outcomes}) for site in here
    ]
    mine = sorted((c for c in clauses if c.span.source.name == source.name), key=lambda clause: clause.span.start)
    return FileCoverage(source, tuple(mine), tuple(found))


def totals(files: Iterable[FileCoverage]) -> tuple[Ratio, Ratio]:
    """Return the ratios of clauses and of branches over all files."""
    clauses = branches = Ratio(0, 0)
    for file in files:
        clauses, branches = clauses + file.clause_ratio, branches + file.branch_ratio
    return clauses, branches


def percent(files: Iterable[FileCoverage]) -> float:
    """Return what a threshold is compared with: clauses and branches together, 0 to 100; without any clause 0."""
    clauses, branches = totals(files)
    return (clauses + branches).percent if clauses.total else 0.0

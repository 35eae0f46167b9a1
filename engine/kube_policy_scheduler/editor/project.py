"""The policies of one folder as an editor sees them: checked together, each with what is wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from kube_policy_scheduler.diagnostics import Diagnostic, Severity, Source, errors
from kube_policy_scheduler.lang import syntax
from kube_policy_scheduler.lang.checked import CheckedPolicy
from kube_policy_scheduler.lang.environment import Environment
from kube_policy_scheduler.lang.load import Checked, check_sources, used_paths
from kube_policy_scheduler.lang.memo import Memo
from kube_policy_scheduler.lang.owner import Owner
from kube_policy_scheduler.lang.reading.parse import KeptStatements, parse
from kube_policy_scheduler.lint.runner import lint, rules

_HOPELESS = 30
"""A file with more errors than this is looked at alone: a set has a limit of errors, which no file may use up."""


@dataclass(frozen=True, slots=True, eq=False)
class Project:
    """Policies that are checked together."""

    sources: Mapping[str, Source]
    """By name."""
    files: Mapping[str, syntax.File]
    """What could be read of each, by name."""
    checked: Checked
    diagnostics: Mapping[str, tuple[Diagnostic, ...]]
    """By the name of the source, in order of places; empty for a source without any."""
    environment: Environment
    memo: Memo
    """Results for the next look at almost the same texts."""
    kept: Mapping[str, KeptStatements]
    """By the name of the source, its statements, for the next look at almost the same texts."""
    complete: bool = True
    """False: of the lint rules, only those that find errors were asked."""

    def policy_of(self, name: str) -> CheckedPolicy | None:
        """Return the policy that a source is, or one that includes it."""
        own = (policy for policy in self.checked.policies if policy.source.name == name)
        using = (
            policy
            for policy in self.checked.policies
            if any(statement.span.source.name == name for statement in policy.statements)
        )
        return next(own, None) or next(using, None)

    def environment_of(self, name: str) -> Environment:
        """Return what a source may name, by what its policy is about."""
        policy = self.policy_of(name)
        return self.environment if policy is None else self.environment.of(policy.subject.name)

    def closures(self) -> Iterator[frozenset[str]]:
        """Yield for each source the names of all sources whose statements it has through `use`, itself included."""
        for name, file in self.files.items():
            reached = {name}
            waiting = [file]
            while waiting:
                for path in used_paths(waiting.pop()):
                    if path in self.files and path not in reached:
                        reached.add(path)
                        waiting.append(self.files[path])
            yield frozenset(reached)

    def together(self, name: str) -> frozenset[str]:
        """Return the sources whose names a source can see: those of all policies that it is a part of."""
        return frozenset((name,)).union(*(closure for closure in self.closures() if name in closure))


def look_at(
    sources: Sequence[Source],
    environment: Environment,
    *,
    owner: Owner | None = None,
    before: Project | None = None,
    complete: bool = True,
    go_on: Callable[[], None] = lambda: None,
) -> Project:
    """Check policies together, with the lint rules.

    Args:
        sources: the policies of a folder; their names are paths.
        environment: what a policy may name.
        owner: their author; None: the administrator.
        before: the look before this one: what did not change is not done again.
        complete: False: ask only the lint rules that find errors, those without which the policies are not valid.
        go_on: called between lint rules; raises where nobody wants to know any more.
    """
    memo = Memo(before.memo.known if before is not None else {})
    kept: dict[str, KeptStatements] = {}
    for source in sources:
        if before is not None and before.sources.get(source.name) == source:
            kept[source.name] = before.kept[source.name]
        else:
            kept[source.name] = KeptStatements(before.kept.get(source.name) if before is not None else None)
            memo.known[parse, source] = parse(source, kept[source.name])
            kept[source.name].forget_before()
    parsed = {source.name: memo(parse, source) for source in sources}
    hopeless = {name for name, (_, found) in parsed.items() if len(found) > _HOPELESS}
    given = [source for source in sources if source.name not in hopeless]
    aside = [source for source in sources if source.name in hopeless]
    checked = check_sources(given, environment, library=aside, memo=memo, owner=owner)
    found: list[Diagnostic] = [*checked.diagnostics, *_lint(checked, memo, None if complete else _error_rules(), go_on)]
    for name in hopeless:
        found += parsed[name][1]
    by_source: dict[str, dict[Diagnostic, None]] = {source.name: {} for source in sources}
    for diagnostic in found:
        if diagnostic.span.source.name in by_source:
            by_source[diagnostic.span.source.name][diagnostic] = None
    return Project(
        sources={source.name: source for source in sources},
        files={name: file for name, (file, _) in parsed.items()},
        checked=checked,
        diagnostics={name: _in_order(each) for name, each in by_source.items()},
        environment=environment,
        memo=memo,
        kept=kept,
        complete=complete,
    )


@cache
def _error_rules() -> frozenset[str]:
    return frozenset(rule.code.id for rule in rules() if rule.code.severity is Severity.ERROR)


def _lint(
    checked: Checked, memo: Memo, select: frozenset[str] | None, go_on: Callable[[], None]
) -> tuple[Diagnostic, ...]:
    """Return what the rules say: of the policies without errors also where another file has some."""
    if not checked.failed:
        return lint(checked, select=select, memo=memo, go_on=go_on)
    wrong = {d.span.source for d in checked.diagnostics if d.severity is Severity.ERROR}
    fine = [p for p in checked.policies if not wrong & {p.source, *(s.span.source for s in p.statements)}]
    there = {p.source for p in fine} | {s.span.source for p in fine for s in p.statements}
    files = tuple(file for file in checked.files if file.source in there)
    rest = tuple(file for file in checked.files if file.source not in there)
    others = tuple(p for p in checked.policies if p not in fine)
    alone = Checked(tuple(fine), files, ())
    failed = Checked(others, rest, tuple(d for d in checked.diagnostics if errors([d])))
    return tuple(d for part in (alone, failed) for d in lint(part, select=select, memo=memo, go_on=go_on))


def _in_order(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(found, key=lambda d: d.sort_key))

"""Many sources to checked policies: used files taken in, every policy checked, all of them compared. No files here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from posixpath import basename, dirname, join, normpath
from typing import Any, TypeAlias

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Label, Source, Span, closest, errors, in_order
from kube_policy_scheduler.lang import codes, expressions, syntax, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy
from kube_policy_scheduler.lang.checking.canaries import join_canaries
from kube_policy_scheduler.lang.checking.check import check
from kube_policy_scheduler.lang.checking.earlier import Known
from kube_policy_scheduler.lang.checking.owners import keep_within
from kube_policy_scheduler.lang.checking.queues import check_queues
from kube_policy_scheduler.lang.environment import Environment
from kube_policy_scheduler.lang.language_versions import upgraded
from kube_policy_scheduler.lang.memo import Memo
from kube_policy_scheduler.lang.owner import Owner, SetLimits
from kube_policy_scheduler.lang.reading.parse import MAX_STATEMENTS, parse
from kube_policy_scheduler.lang.types import RESOURCE_WORDS
from kube_policy_scheduler.lang.walk import walk

SUFFIX = ".policy"
WHOLE = SetLimits()
"""Of all policies of the administrator."""
MAX_USE_LEVELS = 30
"""Files that use files that use files."""
MAX_ERRORS = 200
"""Of all files together; authors with more errors correct these first."""


class Checked(msgspec.Struct, frozen=True):
    """The meaning of a set of sources."""

    policies: tuple[CheckedPolicy, ...]
    """By name; those with errors are among them, as far as they were understood."""
    files: tuple[syntax.File, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def failed(self) -> bool:
        """Return whether anything is an error."""
        return errors(self.diagnostics)


@dataclass(frozen=True, slots=True)
class _Gathered:
    """The statements that make a policy."""

    sources: tuple[Source, ...]
    """Its own, and those that were taken in, in order: all that follows from the statements follows from these."""
    statements: tuple[syntax.Statement, ...] = field(compare=False)
    unread_names: frozenset[str] = field(compare=False)


def check_sources(
    sources: Sequence[Source],
    environment: Environment,
    *,
    library: Iterable[Source] = (),
    memo: Memo | None = None,
    owner: Owner | None = None,
) -> Checked:
    """Check policies together.

    A file that another one takes in with `use` is a part of that policy and none itself. A set that is larger than
    any real one, or has very many errors, is looked at as far as the limits go.

    Args:
        sources: the policies; their names are paths.
        environment: what a policy may name.
        library: sources that others may include, but which are not checked alone.
        memo: results for the same texts, and those of this time afterwards.
        owner: their author, with what the administrator allows; None: the administrator.
    """
    memo, limits = memo or Memo(), owner.limits if owner is not None else WHOLE
    parsed: dict[str, syntax.File] = {}
    found: list[Diagnostic] = []
    for source in sources:
        parsed[source.name], diagnostics = memo(parse, source)
        found.extend(diagnostics)
        if len(found) > MAX_ERRORS:
            found.append(_too_many(source))
            return Checked((), tuple(parsed.values()), in_order(found))
    others = {source.name: source for source in library if source.name not in parsed}
    gatherer = _Gatherer(parsed, others, memo)
    policies = _checked(parsed, gatherer, environment, memo, found, limits)
    found.extend(gatherer.found)
    found.extend(_same_names(policies))
    policies, misplaced = join_canaries(policies, memo)
    found.extend(misplaced)
    if owner is not None:
        policies, not_allowed = keep_within(policies, owner, environment, memo)
        found.extend(not_allowed)
    policies.sort(key=lambda policy: policy.name)
    found.extend(check_queues(policies))
    found.extend(_costly_to_find(policies, limits.governs_cost))
    return Checked(tuple(policies), tuple(parsed.values()), in_order(found))


def _checked(
    parsed: Mapping[str, syntax.File],
    gatherer: _Gatherer,
    environment: Environment,
    memo: Memo,
    found: list[Diagnostic],
    limits: SetLimits,
) -> list[CheckedPolicy]:
    """Return the policies, as many as the limits of a set allow; what is wrong is added to `found`."""
    used = gatherer.used()
    policies: list[CheckedPolicy] = []
    statements = steps = 0
    inputs: set[Any] = set()
    for name, file in parsed.items():
        if name in used and not _headers(file):
            continue
        gathered = gatherer.gather(file)
        statements += len(gathered.statements)
        if statements > limits.statements:
            message = f"with this policy, all policies together have more than {limits.statements:,} statements"
            advice = "remove policies; a used file counts for each policy that uses it"
            found.append(codes.TOO_LARGE.at(_start(file.source), message, help=advice))
            return policies
        policy, diagnostics, _ = memo.again(_check, file.source.name, gathered, environment)
        found.extend(diagnostics)
        policies.append(policy)
        steps += policy.steps
        if steps > limits.steps:
            message = f"with this policy, all policies together need more than {limits.steps:,} steps to check"
            advice = "remove policies, or nest fewer `def` functions"
            found.append(codes.COSTLY.at(_start(file.source), message, help=advice))
            return policies
        inputs |= policy.inputs
        if len(inputs) > limits.inputs:
            message = f"with this policy, all policies together use more than {limits.inputs:,} metric queries"
            advice = "define a recording rule in Prometheus, and query its result"
            found.append(codes.COSTLY.at(_start(file.source), message, help=advice))
            return policies
        if len(found) + len(gatherer.found) > MAX_ERRORS:
            found.append(_too_many(file.source))
            return policies
    _look_at_used(parsed, gatherer, used, limits)
    return policies


def _look_at_used(
    parsed: Mapping[str, syntax.File], gatherer: _Gatherer, used: frozenset[str], limits: SetLimits
) -> None:
    """Find what is wrong with files that are not policies, as those that use each other in a ring."""
    statements = 0
    for name, file in parsed.items():
        if name in used and not _headers(file):
            statements += len(gatherer.gather(file).statements)
            if statements > limits.statements or len(gatherer.found) > MAX_ERRORS:
                return


def _start(source: Source) -> Span:
    return Span(source, 0, min(1, len(source.text)))


def _too_many(source: Source) -> Diagnostic:
    message = f"more than {MAX_ERRORS} errors up to this file: the other files are skipped"
    return codes.TOO_MANY.at(_start(source), message, help="correct these first")


def _costly_to_find(policies: Sequence[CheckedPolicy], limit: int) -> Iterator[Diagnostic]:
    """Yield a diagnostic where asking each policy whether it governs a pod takes too long."""
    total = 0
    for policy in policies:
        if policy.governs is not None:
            total += typed.cost(policy.governs, {})
            if total > limit:
                message = f"with this, finding the policy of a pod needs more than {limit:,} operations"
                advice = "select pods by one label, or simplify the conditions"
                yield codes.COSTLY.at(policy.governs.span, message, help=advice)
                return


_CheckResult: TypeAlias = tuple[CheckedPolicy, tuple[Diagnostic, ...], Known | None]


def _check(gathered: _Gathered, environment: Environment, last: _CheckResult | None) -> _CheckResult:
    source = gathered.sources[0]
    return check(
        gathered.statements,
        environment,
        source=source,
        name=policy_name(source.name),
        unread_names=gathered.unread_names,
        known=last[2] if last is not None else None,
    )


def policy_name(path: str) -> str:
    """Return what a policy without a `policy` line is called: its file's name."""
    return basename(path.replace("\\", "/")).removesuffix(SUFFIX)


def used_paths(file: syntax.File) -> tuple[str, ...]:
    """Return the names of the sources that a file takes in."""
    return tuple(resolved(file.source.name, s.path) for s in file.statements if isinstance(s, syntax.UseFile))


def resolved(name: str, path: str) -> str:
    """Return the name of the source that `use "path"` in the source `name` means."""
    return normpath(join(dirname(name), path))


def _names(statements: Iterable[syntax.Statement]) -> frozenset[str]:
    """Return all names in statements that a file which does not exist may define."""
    found: set[str] = set()
    for statement in statements:
        for tree in walk(statement):
            if isinstance(tree, expressions.Name):
                found.add(tree.name)
            elif isinstance(tree, expressions.Call):
                found.add(tree.function)
    return frozenset(found - {"node", "pod", *RESOURCE_WORDS})


def _headers(file: syntax.File) -> list[syntax.Statement]:
    return [statement for statement in file.statements if isinstance(statement, syntax.Header)]


class _Gatherer:
    """Takes used files in."""

    def __init__(self, files: Mapping[str, syntax.File], library: Mapping[str, Source], memo: Memo) -> None:
        self._files = {normpath(name): file for name, file in files.items()}
        self._library = {normpath(name): source for name, source in library.items()}
        self._given = {normpath(name): name for name in files}
        self._memo = memo
        self.found: list[Diagnostic] = []

    def used(self) -> frozenset[str]:
        """Return the given sources that another one uses."""
        reached = {path for name, file in self._files.items() for path in used_paths(file) if path != name}
        return frozenset(given for path, given in self._given.items() if path in reached)

    def gather(self, file: syntax.File) -> _Gathered:
        """Return the statements of a file, with those of used files in the place of their `use`."""
        taken: dict[str, Span] = {}
        statements: list[syntax.Statement] = []
        self._gather(file, (normpath(file.source.name),), taken, statements)
        if len(statements) > MAX_STATEMENTS:
            use = next(statement for statement in file.statements if isinstance(statement, syntax.UseFile))
            message = f"with its included files, the policy has more than {MAX_STATEMENTS:,} statements"
            advice = "split it into policies for different pods"
            self.found.append(codes.TOO_LARGE.at(use.span, message, help=advice))
            del statements[MAX_STATEMENTS:]
        files = (file, *(self._files[name] for name in taken))
        unread = frozenset().union(*(each.unread_names for each in files))
        if any(not self._exists(each, statement) for each in files for statement in each.statements):
            unread |= _names(statements)
        return _Gathered(tuple(each.source for each in files), tuple(statements), unread)

    def _exists(self, file: syntax.File, statement: syntax.Statement) -> bool:
        """Return whether the file of a `use` exists; True for other statements."""
        if not isinstance(statement, syntax.UseFile):
            return True
        target = resolved(file.source.name, statement.path)
        return target in self._files or target in self._library

    def _gather(
        self, file: syntax.File, path: tuple[str, ...], taken: dict[str, Span], statements: list[syntax.Statement]
    ) -> None:
        """Add the statements of a file in the newest version of the language, up to one more than a policy may have."""
        newest, _ = upgraded(file)
        for statement in newest.statements:
            if len(statements) > MAX_STATEMENTS:
                return
            if isinstance(statement, syntax.Language):
                continue
            statements.append(statement)
            if not isinstance(statement, syntax.UseFile):
                continue
            target = resolved(file.source.name, statement.path)
            if target in path:
                message = f"`{statement.path}` includes itself"
                self.found.append(codes.CYCLE.at(statement.path_span, message, help="remove this `use`"))
                continue
            inner = self._file(target)
            if inner is None:
                self.found.append(self._no_file(statement))
            elif target not in taken:
                taken[target] = statement.span
                self._take_in(inner, (*path, target), statement, taken, statements)

    def _take_in(
        self,
        file: syntax.File,
        path: tuple[str, ...],
        use: syntax.UseFile,
        taken: dict[str, Span],
        statements: list[syntax.Statement],
    ) -> None:
        for header in _headers(file):
            word = header.span.text.split()[0]
            message = f"`{word}` in a file that others include"
            label = Label(use.span, "used here")
            advice = "move the line to the policy itself"
            self.found.append(codes.HEADER_IN_USED.at(header.span, message, help=advice, labels=[label]))
        if len(path) > MAX_USE_LEVELS:
            message = f"more than {MAX_USE_LEVELS} levels of files include each other"
            advice = "include the files directly in the policy"
            self.found.append(codes.TOO_LARGE.at(use.path_span, message, help=advice))
            return
        self._gather(file, path, taken, statements)

    def _file(self, name: str) -> syntax.File | None:
        if name not in self._files and name in self._library:
            file, diagnostics = self._memo(parse, self._library[name])
            self._files[name] = file
            self.found.extend(diagnostics)
        return self._files.get(name)

    @cached_property
    def _names(self) -> Sequence[str]:
        return sorted({basename(name) for name in (*self._files, *self._library)})

    def _no_file(self, statement: syntax.UseFile) -> Diagnostic:
        own = basename(statement.span.source.name)
        meant = closest(statement.path, (name for name in self._names if name != own))
        advice = f"did you mean `{meant}`?" if meant else "the path is relative to the file with the `use` line"
        return codes.NO_FILE.at(statement.path_span, f"the file `{statement.path}` does not exist", help=advice)


def _same_names(policies: Sequence[CheckedPolicy]) -> list[Diagnostic]:
    found = []
    first: dict[str, CheckedPolicy] = {}
    for policy in policies:
        earlier = first.setdefault(policy.name, policy)
        if earlier is not policy:
            label = Label(_name_span(earlier), "the other one")
            message = f"two policies have the name `{policy.name}`"
            advice = "give one of them another name: `policy NAME`"
            found.append(codes.SAME_NAME.at(_name_span(policy), message, help=advice, labels=[label]))
    return found


def _name_span(policy: CheckedPolicy) -> Span:
    named = next((s for s in policy.statements if isinstance(s, syntax.PolicyName)), None)
    return named.span if named is not None else Span(policy.source, 0, 0)

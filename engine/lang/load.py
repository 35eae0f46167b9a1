"""Many sources to checked policies: used files taken in, every policy checked, all of them compared. No files here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from posixpath import basename, dirname, join, normpath

from engine.diagnostics import Diagnostic, Label, Source, Span, closest, errors, in_order
from engine.lang import codes_policy as codes
from engine.lang import codes_syntax, syntax
from engine.lang.checked import CheckedPolicy
from engine.lang.checking.canaries import join_canaries
from engine.lang.checking.check import check
from engine.lang.environment import Environment
from engine.lang.memo import Memo
from engine.lang.reading.parse import MAX_STATEMENTS, parse

SUFFIX = ".policy"


@dataclass(frozen=True, slots=True)
class Checked:
    """What a set of sources says."""

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


def check_sources(
    sources: Sequence[Source], environment: Environment, *, library: Iterable[Source] = (), memo: Memo | None = None
) -> Checked:
    """Check policies together.

    A file that another one takes in with `use` is a part of that policy and none itself.

    Args:
        sources: the policies; their names are paths.
        environment: what a policy may name.
        library: sources that may be used but are not checked by themselves.
        memo: results for the same texts, and those of this time afterwards.
    """
    memo = memo or Memo()
    parsed = {source.name: memo(parse, source) for source in sources}
    others = {source.name: source for source in library if source.name not in parsed}
    found = [diagnostic for _, diagnostics in parsed.values() for diagnostic in diagnostics]
    gatherer = _Gatherer({name: file for name, (file, _) in parsed.items()}, others, memo)
    used = gatherer.used()
    policies = []
    for name, (file, _) in parsed.items():
        gathered = gatherer.gather(file)
        if name in used and not _headers(file):
            continue
        policy, diagnostics = memo(_check, gathered, environment)
        policies.append(policy)
        found.extend(diagnostics)
    found.extend(gatherer.found)
    found.extend(_same_names(policies))
    policies, misplaced = join_canaries(policies, memo)
    found.extend(misplaced)
    policies.sort(key=lambda policy: policy.name)
    return Checked(tuple(policies), tuple(file for file, _ in parsed.values()), in_order(found))


def _check(gathered: _Gathered, environment: Environment) -> tuple[CheckedPolicy, tuple[Diagnostic, ...]]:
    source = gathered.sources[0]
    return check(gathered.statements, environment, source=source, name=policy_name(source.name))


def policy_name(path: str) -> str:
    """Return what a policy without a `policy` line is called: its file's name."""
    return basename(path.replace("\\", "/")).removesuffix(SUFFIX)


def used_paths(file: syntax.File) -> tuple[str, ...]:
    """Return the names of the sources that a file takes in."""
    return tuple(resolved(file.source.name, s.path) for s in file.statements if isinstance(s, syntax.UseFile))


def resolved(name: str, path: str) -> str:
    """Return the name of the source that `use "path"` in the source `name` means."""
    return normpath(join(dirname(name), path))


def _headers(file: syntax.File) -> list[syntax.Statement]:
    kinds = syntax.PolicyName | syntax.SchedulerName | syntax.ForPods | syntax.Priority | syntax.Canary
    return [statement for statement in file.statements if isinstance(statement, kinds)]


class _Gatherer:
    """Takes used files in."""

    def __init__(self, files: dict[str, syntax.File], library: dict[str, Source], memo: Memo) -> None:
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
        statements = self._gather(file, (normpath(file.source.name),), taken)
        if len(statements) > MAX_STATEMENTS:
            use = next(statement for statement in file.statements if isinstance(statement, syntax.UseFile))
            message = f"with what it takes in, the policy has more than {MAX_STATEMENTS:,} statements"
            advice = "split it into policies for different pods"
            self.found.append(codes_syntax.TOO_LARGE.at(use.span, message, help=advice))
            del statements[MAX_STATEMENTS:]
        return _Gathered((file.source, *(self._files[name].source for name in taken)), tuple(statements))

    def _gather(self, file: syntax.File, path: tuple[str, ...], taken: dict[str, Span]) -> list[syntax.Statement]:
        statements: list[syntax.Statement] = []
        for statement in file.statements:
            statements.append(statement)
            if not isinstance(statement, syntax.UseFile):
                continue
            target = resolved(file.source.name, statement.path)
            if target in path:
                message = f"`{statement.path}` takes itself in"
                self.found.append(codes.CYCLE.at(statement.path_span, message, help="remove this `use`"))
                continue
            inner = self._file(target)
            if inner is None:
                self.found.append(self._no_file(statement))
            elif target not in taken:
                taken[target] = statement.span
                for header in _headers(inner):
                    word = header.span.text.split()[0]
                    message = f"`{word}` in a file that others use"
                    label = Label(statement.span, "used here")
                    advice = "move the line to the policy itself"
                    self.found.append(codes.HEADER_IN_USED.at(header.span, message, help=advice, labels=[label]))
                statements.extend(self._gather(inner, (*path, target), taken))
        return statements

    def _file(self, name: str) -> syntax.File | None:
        if name not in self._files and name in self._library:
            file, diagnostics = self._memo(parse, self._library[name])
            self._files[name] = file
            self.found.extend(diagnostics)
        return self._files.get(name)

    def _no_file(self, statement: syntax.UseFile) -> Diagnostic:
        names = sorted({basename(name) for name in (*self._files, *self._library)})
        meant = closest(statement.path, names)
        advice = f"did you mean `{meant}`?" if meant else "it is looked for beside the file that uses it"
        return codes.NO_FILE.at(statement.path_span, f"there is no file `{statement.path}`", help=advice)


def _same_names(policies: Sequence[CheckedPolicy]) -> list[Diagnostic]:
    found = []
    first: dict[str, CheckedPolicy] = {}
    for policy in policies:
        earlier = first.setdefault(policy.name, policy)
        if earlier is not policy:
            label = Label(_name_span(earlier), "the other one")
            message = f"two policies are called `{policy.name}`"
            advice = "give one of them another name: `policy NAME`"
            found.append(codes.SAME_NAME.at(_name_span(policy), message, help=advice, labels=[label]))
    return found


def _name_span(policy: CheckedPolicy) -> Span:
    named = next((s for s in policy.statements if isinstance(s, syntax.PolicyName)), None)
    return named.span if named is not None else Span(policy.source, 0, 0)

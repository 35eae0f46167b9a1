"""Files named on a command line: a path, a folder with everything below it, or `-` for standard input."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_policy_scheduler.cli.terminal import colour, columns, say
from kube_policy_scheduler.diagnostics import Diagnostic, Source, Span

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

STANDARD_INPUT = Path("-")
TEST_SUFFIX = ".test.yaml"
_POLICY_SUFFIX = ".policy"
_MOST_RENDERED = 500
"""A file that is something else altogether may have an error in each of a million lines."""
_SKIPPED = frozenset({"__pycache__", "node_modules", "venv"})


def expanded(paths: Sequence[Path], *, suffix: str) -> list[Path]:
    """Return the files meant: each folder stands for the files with the suffix below it, each file comes once.

    Raises:
        click.ClickException: a path is not there, a folder holds no such file (nothing checked is no success), a
            link that leads out of it, or something that is not a file; or a file is one for another command.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = _below(path, suffix)
            root = root_of(path)
            for one in inside:
                if not one.is_file():
                    raise click.ClickException(f"{one} is not a file")
                if one.is_symlink() and not is_below(one, root):
                    raise click.ClickException(f"{one} is a link to {one.resolve()}, which is outside {root}")
            if not inside:
                raise click.ClickException(f"{path} contains no {suffix} file")
            found.update(dict.fromkeys(inside))
        elif path != STANDARD_INPUT and not path.exists():
            raise click.ClickException(f"{path} does not exist")
        else:
            _check_kind(path, suffix)
            found[path] = None
    return list(found)


def _check_kind(path: Path, suffix: str) -> None:
    """Check that a file is not one for another command.

    Raises:
        click.ClickException: it is a policy in the place of a test file, or the other way round.
    """
    if suffix == TEST_SUFFIX and path.suffix == _POLICY_SUFFIX:
        test = path.with_suffix(TEST_SUFFIX)
        advice = f"check it with `policyctl lint {path}`, write a first test with `policyctl test --init {path}`"
        advice = f"its tests run with `policyctl test {test}`" if test.is_file() else advice
        raise click.ClickException(f"{path} is a policy, not a test file: {advice}")
    if suffix == _POLICY_SUFFIX and path.name.endswith(TEST_SUFFIX):
        raise click.ClickException(f"{path} is a test file, not a policy: run `policyctl test {path}`")


def root_of(path: Path) -> Path:
    """Return the folder that what a file or folder names must not leave: others may have written it.

    That is the working directory where the path is below it, else the folder itself, or the file's.
    """
    here, real = Path.cwd().resolve(), path.resolve()
    if real.is_relative_to(here):
        return here
    return real if real.is_dir() else real.parent


def is_below(path: Path, root: Path) -> bool:
    """Return whether a path, with all links followed, is below a folder."""
    return path.resolve().is_relative_to(root)


def _below(folder: Path, suffix: str) -> list[Path]:
    found: list[Path] = []
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED)
        found.extend(Path(here) / name for name in sorted(names) if name.endswith(suffix) and name[0] != ".")
    return found


def complete_path(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete paths, where an argument may be one."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def source(path: Path) -> Source:
    """Read a file, or standard input for `-`.

    Raises:
        DocumentError: it cannot be read, or is not UTF-8.
        click.ClickException: standard input cannot be read.
    """
    from kube_policy_scheduler.documents.bounded_files import UnreadableFileError, read_stream
    from kube_policy_scheduler.documents.yaml_document import decoded, read_source

    if path != STANDARD_INPUT:
        return read_source(path)
    try:
        return decoded(read_stream(sys.stdin.buffer), name="<stdin>")
    except UnreadableFileError as error:
        raise click.ClickException(f"cannot read standard input: {error}") from error


def rendered(diagnostics: Sequence[Diagnostic], *, err: bool = False) -> str:
    """Return diagnostics for people, an empty line between two; of very many the first."""
    from kube_policy_scheduler.documents.yaml_document import for_terminal

    shown = [for_terminal(each, colour=colour(err=err), width=columns()) for each in diagnostics[:_MOST_RENDERED]]
    if len(diagnostics) > _MOST_RENDERED:
        shown.append(f"and {len(diagnostics) - _MOST_RENDERED:,} more")
    return "\n\n".join(shown)


@contextmanager
def explaining(consequence: str) -> Iterator[None]:
    """Turn an error in what people wrote into a failed command, after showing the error; consequence: what follows.

    Raises:
        click.ClickException: there was one.
    """
    from kube_policy_scheduler.documents.yaml_document import DocumentError

    try:
        yield
    except DocumentError as error:
        say(rendered(error.diagnostics, err=True), err=True)
        raise click.ClickException(consequence) from error


def as_data(diagnostic: Diagnostic) -> dict[str, Any]:
    """Return a diagnostic for programs: lines and columns count from 1, `end` is the first place behind."""
    done: dict[str, Any] = {
        "code": diagnostic.code,
        "severity": diagnostic.severity.value,
        "message": diagnostic.message,
        "help": diagnostic.help,
        **_place(diagnostic.span),
    }
    if diagnostic.notes:
        done["notes"] = list(diagnostic.notes)
    if diagnostic.labels:
        done["labels"] = [{"message": label.text, **_place(label.span)} for label in diagnostic.labels]
    if diagnostic.fix is not None:
        edits = [{"text": edit.text, **_place(edit.span)} for edit in diagnostic.fix.edits]
        done["fix"] = {"title": diagnostic.fix.title, "safe": diagnostic.fix.safe, "edits": edits}
    return done


def _place(span: Span) -> dict[str, Any]:
    (line, column), (end_line, end_column) = span.source.position(span.start), span.source.position(span.end)
    end = {"line": end_line, "column": end_column}
    return {"file": span.source.name, "line": line, "column": column, "end": end}


# --- files that commands write ----------------------------------------------------------------------------


def difference(source: Source, text: str, *, done: str) -> str:
    """Return how a text differs from its source, as `diff -u` shows it; `done` says what was done to it."""
    lines = difflib.unified_diff(
        source.text.splitlines(keepends=True), text.splitlines(keepends=True), source.name, f"{source.name} ({done})"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def replace_file(path: Path, content: str | Iterable[str] | Iterable[bytes]) -> None:
    """Write a file in one step, so that a reader sees the old text or the new one.

    Raises:
        click.ClickException: the file cannot be written.
    """
    from kube_policy_scheduler.adapters.files.output_file import OutputError, write_file

    try:
        write_file(path, [content] if isinstance(content, str) else content)
    except OutputError as error:
        raise click.ClickException(str(error)) from error


def rewrite_file(path: Path, text: str) -> bool:
    """Replace one of several files; where that fails, say why and return False, so that the others are written."""
    try:
        replace_file(path, text)
    except click.ClickException as error:
        say(f"policyctl: {error.message}", err=True)
        return False
    return True

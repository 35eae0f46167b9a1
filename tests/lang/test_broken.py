"""What people read when a policy is wrong: one file in, one text out. Read the texts as a stranger would."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.lang.reading.parse import parse
from kube_policy_scheduler.lang.statements import FORMS, StatementForm
from kube_policy_scheduler.lint.fixing import fixed
from kube_policy_scheduler.lint.runner import all_codes
from tests.lang.texts import said

FILES = sorted((Path(__file__).parent / "broken").glob("*.policy"))


class _Texts(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_message_reads_well(file: Path, snapshot: SnapshotAssertion) -> None:
    found = said(file.read_text(encoding="utf-8"))

    assert file.stem[:5] in {diagnostic.code for diagnostic in found}
    assert snapshot(extension_class=_Texts) == "\n\n".join(render(diagnostic) for diagnostic in found) + "\n"


def test_every_code_has_a_broken_policy() -> None:
    assert set(all_codes()) <= {file.stem[:5] for file in FILES}
    assert len(FILES) >= 80


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_message_says_what_to_do_in_the_house_style(file: Path) -> None:
    for diagnostic in said(file.read_text(encoding="utf-8")):
        assert diagnostic.help, diagnostic
        assert not diagnostic.message.endswith("."), diagnostic
        assert diagnostic.message[0] in "`" or not diagnostic.message[0].isupper(), diagnostic
        assert diagnostic.message.count("\n") == 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_fixes_leave_a_text_that_can_be_read_and_has_no_fix_left(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    done = fixed([Source("test.policy", text)], lambda sources: said(sources[0].text))

    assert not done.refused
    assert not [each for each in done.left if each.fix is not None and each.fix.safe]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.written[:30])
@pytest.mark.parametrize("unfinished", ["filter (node.ready", "score 10 +"])
def test_an_error_ends_where_the_next_statement_begins(unfinished: str, form: StatementForm) -> None:
    """A bracket that is never closed, and an operator without an operand, do not swallow the statement below."""
    statement = form.example
    file, found = parse(Source("test.policy", f"{unfinished}\n{statement}"))

    assert [diagnostic.span.source.position(diagnostic.span.start)[0] for diagnostic in found] == [1]
    assert [each.span.text for each in file.statements] == [statement]

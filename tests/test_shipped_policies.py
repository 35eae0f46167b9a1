"""The policies that we ship are clean, formatted, and pass their tests; every tool understands each of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from pygments.token import Error, Keyword

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cli.coverage import Coverage
from kube_policy_scheduler.cli.main import OK, run
from kube_policy_scheduler.cli.suites import load_suite
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.yaml_document import parse_document
from kube_policy_scheduler.editor import outline
from kube_policy_scheduler.editor.pygments_lexer import PolicyLexer
from kube_policy_scheduler.lang.reading.parse import parse
from kube_policy_scheduler.tooling.mutation.mutants import mutants
from tests.editor.cursor import NAME, project
from tests.shipped import FOLDERS, POLICIES, ROOT, SUITES
from tests.tooling.tester.test_schema import VALIDATOR
from tests.tooling.tester.test_writing import survives

each_policy = pytest.mark.parametrize("file", POLICIES, ids=lambda file: file.stem)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_lint_finds_no_error_and_they_are_formatted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", str(folder)]) == OK, capsys.readouterr().out
    assert run(["fmt", "--check", str(folder)]) == OK, capsys.readouterr().out


def test_every_policy_has_a_test() -> None:
    tested = {file.with_name(file.name.removesuffix(".test.yaml")) for file in SUITES}
    assert {file.with_suffix("") for file in POLICIES} <= tested


@pytest.mark.parametrize("file", SUITES, ids=lambda file: file.name.removesuffix(".test.yaml"))
def test_their_tests_pass_watched_or_not_and_have_the_form_of_the_schema(file: Path) -> None:
    loaded, coverage = load_suite(file), Coverage()
    plain = [(one.case.name, one.state, one.outcomes) for one in loaded.run().results()]
    watched = [(one.case.name, one.state, one.outcomes) for one in coverage.run(loaded).results()]
    assert {state.value for _, state, _ in plain} == {"pass"}, plain
    assert watched == plain
    VALIDATOR.validate(parse_document(Source(str(file), file.read_text())).value)
    survives(file.read_text())


@each_policy
def test_editors_colour_all_of_it(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    coloured = outline.colours(project(text), NAME)
    for one, other in pairwise(coloured):
        assert one.end <= other.start
    bounds = [0, *(at for each in coloured for at in (each.start, each.end)), len(text)]
    between = "".join(text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True))
    assert set(between) <= set(" \n.,()[]")

    found = list(PolicyLexer().get_tokens(text))
    assert "".join(value for _, value in found).strip() == text.strip()
    assert not [value for kind, value in found if kind is Error]
    assert any(kind in Keyword for kind, _ in found)


@each_policy
def test_its_mutants_differ_from_it_and_from_each_other(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    tree, diagnostics = parse(Source("p.policy", text))
    assert not diagnostics
    found = [mutant.applied().text for mutant in mutants(tree, environment().builtins)]
    assert len(found) == len(set(found))
    assert text not in found

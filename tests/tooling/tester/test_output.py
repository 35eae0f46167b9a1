"""What a run looks like: for people at different widths, and for programs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.tooling.tester.clause_values import ClauseValues, Pointer
from kube_policy_scheduler.tooling.tester.reports import NARROWEST, clause_lines
from tests.tooling.tester.command_line import SUITE, Folder

HERE = Path(__file__).parent
SUITES = sorted((HERE / "suites").glob("*.test.yaml"))
EVERYTHING = "everything.test.yaml"


@pytest.fixture
def failing(folder: Folder) -> Folder:
    shutil.copytree(HERE / "failing", folder.path, dirs_exist_ok=True)
    return folder


@pytest.mark.parametrize("file", SUITES, ids=lambda file: file.name)
def test_a_suite_of_the_whole_format_passes(file: Path, folder: Folder) -> None:
    ended = folder.test(str(file), "--shuffle", "--quiet")
    assert (ended.code, ended.err) == (0, ""), ended.out


@pytest.mark.parametrize("columns", [100, 40])
def test_people_read(
    failing: Folder, columns: int, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    ended = failing.test(EVERYTHING)
    assert ended.code == 1
    assert ended.out == snapshot
    # names, places and labels are not broken, everything else is
    assert all(len(line) <= columns or " " not in line.strip() for line in ended.out.splitlines())


def test_values_are_shown_of_the_clauses_that_reject_the_nodes_concerned(folder: Folder) -> None:
    policy = "filter node.free.cpu > 5 as large\nfilter node.ready as calm\nscore 1\n"
    suite = """\
policy: spread.policy
nodes: [{name: a1, cpu: 4, mem: 16Gi}, {name: b1, cpu: 8, mem: 16Gi, ready: false}]
cases: [{name: one, pod: {cpu: 1}, expect: {node: %s}}]
"""
    small, unready = (folder.suite(suite % name, policy=policy).out for name in ("a1", "b1"))
    assert ("node.free.cpu > 5" in small, "filter node.ready" in small) == (True, False), small
    assert ("node.free.cpu > 5" in unready, "filter node.ready" in unready) == (False, True), unready


def test_values_stand_below_their_parts_where_there_is_room_and_in_a_list_where_not() -> None:
    text = "score 20000 * node.free.cpu"
    values = ClauseValues("a.policy:1", text, (Pointer(14, len(text), (("a1", "3"), ("b1", "4"))),))
    needed = len("  a.policy:1  ") + 14 + len("a1 = 3   b1 = 4")
    assert needed > NARROWEST
    below = list(clause_lines(values, width=needed))
    assert below[0].endswith(text)
    assert below[-1].index("a1 = 3") == below[0].index("node.free.cpu")
    assert list(clause_lines(values, width=needed - 1)) != below


def test_quiet_leaves_out_what_passed(failing: Folder) -> None:
    out = failing.test(EVERYTHING, "-q").out
    assert "PASS" not in out
    assert "FAIL" in out


def test_colour_is_for_terminals_alone(failing: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in failing.test(EVERYTHING).out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = failing.test(EVERYTHING).out
    assert "\x1b[1;31mFAIL\x1b[0m" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert failing.test(EVERYTHING).out == re.sub(r"\x1b\[[0-9;]*m", "", coloured)


class TestPrograms:
    def test_read_json(self, failing: Folder) -> None:
        ended = failing.test(EVERYTHING, "--format", "json")
        data = json.loads(ended.out)
        assert ended.code == 1
        assert data["summary"] == {"pass": 1, "fail": 21, "error": 0, "skip": 1, "todo": 1}
        cases = {case["name"]: case for case in data["cases"]}
        (failure,) = cases["node"]["failures"]
        assert (failure["at"], failure["expected"]) == (f"{EVERYTHING}:11: node", "a1")
        promql = failure["values"][0]["parts"][0]
        assert promql == {"text": 'promql("cpu_usage")', "values": {"a1": "90", "b1": "10"}}
        assert failure["values"][0]["adds"] == {"a1": 20, "b1": 180}
        assert [pod["node"] for pod in cases["sequence"]["pods"]] == ["b1", "a1", "b1", "a1"]

    def test_read_junit(self, failing: Folder) -> None:
        failing.write("broken.test.yaml", "policy: gone.policy\ncases: [{name: c, pod: {cpu: 1}, expect: {node: a}}]\n")
        ended = failing.test(".", "--format", "junit")
        root = ElementTree.fromstring(ended.out)
        counts = {key: int(root.get(key, "")) for key in ("tests", "failures", "errors", "skipped")}
        assert counts == {"tests": 25, "failures": 21, "errors": 1, "skipped": 2}
        for tag, key in (("testcase", "tests"), ("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert len(root.findall(f".//{tag}")) == counts[key]
        suites = {suite.get("name"): suite for suite in root}
        assert {suite.get("tests") for suite in suites.values()} == {"24", "1"}
        names = {case.get("name") for case in suites[EVERYTHING]}
        assert 'names with <xml> & "quotes", # hashes and 100 %\nlines' in names
        assert ended.code == 2

    def test_read_tap(self, failing: Folder) -> None:
        failing.write("broken.test.yaml", "policy: gone.policy\ncases: [{name: c, pod: {cpu: 1}, expect: {node: a}}]\n")
        lines = failing.test(".", "--format", "tap").out.splitlines()
        assert lines[:2] == ["TAP version 14", "1..25"]
        points = [re.fullmatch(r"(not ok|ok) (\d+) - (.*)", line) for line in lines if not line.startswith("  ")][2:]
        found = [(point[1], point[3]) for point in points if point is not None]
        assert [int(point[2]) for point in points if point is not None] == list(range(1, 26))
        assert ("not ok", f"{EVERYTHING} › todo # TODO issue 7") in found
        assert ("ok", f"{EVERYTHING} › skipped # SKIP until zone d is there") in found
        assert ("not ok", f'{EVERYTHING} › names with <xml> & "quotes", \\# hashes and 100 % lines') in found
        assert found[-1] == ("not ok", "broken.test.yaml can be used")
        assert lines.count("  ---") == lines.count("  ...") == 22

    def test_read_github_annotations(self, failing: Folder) -> None:
        lines = failing.test(EVERYTHING, "--format", "github").out.splitlines()
        assert lines[0].startswith(
            f"::error file={EVERYTHING},line=11,title=node::{EVERYTHING}:11: node%0A  expected  a1"
        )
        assert any(line.startswith(f"::notice file={EVERYTHING},line=28,title=skipped::skip: until") for line in lines)
        assert any('title=names with <xml> & "quotes"%2C # hashes and 100 %25%0Alines::' in line for line in lines)
        assert all(line.startswith("::") for line in lines[:-1])
        assert lines[-1] == "1 passed, 21 failed, 1 skipped, 1 todo"


class TestOutputFiles:
    def test_are_written_beside_what_is_shown(self, folder: Folder) -> None:
        outputs = ["-o", "a.xml", "-o", "b.json", "--output", "c.tap", "-o", "d.txt", "-o", "github=e.log"]
        ended = folder.suite(SUITE, *outputs)
        assert ended.out == (folder.path / "d.txt").read_text()
        assert ElementTree.parse(folder.path / "a.xml").getroot().get("tests") == "1"
        assert json.loads((folder.path / "b.json").read_text())["summary"]["pass"] == 1
        assert (folder.path / "c.tap").read_text().endswith("ok 1 - spread.test.yaml › hot node loses\n")
        assert (folder.path / "e.log").read_text() == "1 passed, 0 failed, 0 skipped\n"

    @pytest.mark.parametrize(
        ("output", "message"),
        [("report", "report has an unknown format"), ("no/such/folder.xml", "cannot write no/such/folder.xml")],
    )
    def test_that_cannot_be_are_an_error(self, folder: Folder, output: str, message: str) -> None:
        ended = folder.suite(SUITE, "-o", output)
        assert (ended.code, message in ended.err) == (2, True), ended.err


class TestAPolicyInAConfigMap:
    @pytest.mark.parametrize(
        ("pointer", "message", "advice"),
        [
            ("data/sprad.policy", "has nothing at `data/sprad.policy`", "did you mean `data/spread.policy`?"),
            ("metadata", "has no .policy at `metadata`", ""),
            ("kind/x", "has nothing at `kind/x`", "the known names are: data/notes.txt, data/spread.policy"),
        ],
    )
    def test_that_is_not_there_is_an_error(self, folder: Folder, pointer: str, message: str, advice: str) -> None:
        shutil.copy(HERE / "suites" / "configmap.yaml", folder.path)
        ended = folder.suite(SUITE.replace("spread.policy", f"configmap.yaml#{pointer}"))
        assert (ended.code, message in ended.err, advice in ended.err) == (2, True, True), ended.err


def test_nothing_passes_in_a_file_that_cannot_be_used(folder: Folder) -> None:
    ended = folder.suite(f"{SUITE}- {{name: wrong, pod: small, expect: {{node: z9}}}}\n")
    assert ended.out == "0 passed, 0 failed, 0 skipped, 1 file could not be used\n"
    assert "unknown node `z9`" in ended.err

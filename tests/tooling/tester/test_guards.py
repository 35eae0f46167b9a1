"""The guards against a test that passes by accident, one class each, tried as a user would run into them.

After them: what else a file can say wrongly is an error with its place, never a success.
"""

from __future__ import annotations

import json

import pytest

from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Reads, Weighted
from kube_policy_scheduler.framework.plugins.base import Score
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.tooling.tester.expectations import OF_DECISION, Named, OneDecision
from kube_policy_scheduler.tooling.tester.outcome import ClauseVerdict, Outcome
from kube_policy_scheduler.tooling.tester.run import State
from kube_policy_scheduler.tooling.tester.wanted import Mismatch, Reason
from tests.tooling.tester import plain_policies
from tests.tooling.tester.command_line import SUITE, Folder
from tests.tooling.tester.plain_policies import run_text, shown


def test_the_suite_that_the_guards_are_tried_on_passes(folder: Folder) -> None:
    assert folder.suite(SUITE).code == 0


class TestGuard1AnUnknownNameIsAnError:
    @pytest.mark.parametrize(
        ("old", "new", "message", "advice"),
        [
            ("templates:", "tmplates:", "unknown key `tmplates`", "did you mean `templates`?"),
            ("  expect: {node: b1}", "  expect: {nod: b1}", "unknown key `nod`", "did you mean `node`?"),
            ("{node: b1}", "{node: b2}", "unknown node `b2`", "did you mean `"),
            ("pod: small", "pod: smal", "unknown template `smal`", "did you mean `small`?"),
            ("{node: b1}", "{filtered: {c1: {clause: rom}}}", "has no clause `rom`", "did you mean `room`?"),
            ("{node: b1}", "{unschedulable: {clause: rom}}", "has no clause `rom`", "did you mean `room`?"),
            ("cpu_usage:", "cpu_usge:", "no policy reads the metric `cpu_usge`", "did you mean `cpu_usage`?"),
            ("{node: b1}", "{degraded: [cpu_usge]}", "no policy reads the metric `cpu_usge`", "did you mean"),
            ("{node: b1}", "{evicts: [hot-node]}", "unknown pod `hot-node`", ""),
            ("{node: b1}", "{max_skew: {by: zoen, at_most: 1}}", "no node of the test has the label `zoen`", "zone"),
            ("name: hot", "each: [{a: 1}]\n  name: ${b} hot", "`each` has no `b`", ""),
            ("name: hot", "each: [{a: 1}]\n  name: hot", "the case uses no `${a}`", ""),
            ("name: hot", "name: ${a} hot", "`${a}` is undefined", ""),
        ],
    )
    def test_with_advice_and_exit_code_2(self, folder: Folder, old: str, new: str, message: str, advice: str) -> None:
        assert old in SUITE
        ended = folder.suite(SUITE.replace(old, new, 1))
        assert (ended.code, message in ended.err, advice in ended.err) == (2, True, True), ended.err


class TestGuard2AMissingFixtureIsAnError:
    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("cluster: gone.yaml", "gone.yaml does not exist"),
            ("cluster: [empty]", "empty holds no .yaml, .yml, .json file"),
            ("forall: [{name: all, pods: gone/, expect: {schedulable: true}}]", "gone does not exist"),
            ("forall: [{name: all, pods: nodes.yaml, expect: {schedulable: true}}]", "nodes.yaml contains no pods"),
            ("invalid: [{policy: gone.policy}]", "gone.policy does not exist"),
        ],
    )
    def test_of_a_suite(self, folder: Folder, line: str, message: str) -> None:
        (folder.path / "empty").mkdir()
        folder.write("nodes.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: z}\n")
        ended = folder.suite(f"{SUITE}{line}\n")
        assert (ended.code, message in ended.err) == (2, True), ended.err

    def test_on_the_command_line(self, folder: Folder) -> None:
        (folder.path / "empty").mkdir()
        assert "empty contains no .test.yaml file" in folder.test("empty").err
        assert "gone.test.yaml does not exist" in folder.test("gone.test.yaml").err
        assert folder.test("empty").code == folder.test("gone.test.yaml").code == 2


class TestGuard3NoCasesIsAnError:
    def test_in_a_file(self, folder: Folder) -> None:
        ended = folder.suite(f"{SUITE[: SUITE.index('cases:')]}cases: []\n")
        assert (ended.code, "expected a list with at least one case" in ended.err) == (2, True)

    def test_for_run(self, folder: Folder) -> None:
        ended = folder.suite(SUITE, "--run", "cold")
        assert (ended.code, "no case matches 'cold': nothing was tested" in ended.err) == (2, True)


class TestGuard4ACaseWithoutAnAssertionIsAnError:
    @pytest.mark.parametrize("expect", ["", "  expect: {}\n", "  expect:\n", "  expect: {exact: true}\n"])
    def test_whichever_way_it_is_missing(self, folder: Folder, expect: str) -> None:
        assert folder.suite(SUITE.replace("  expect: {node: b1}\n", expect)).code == 2

    def test_a_property_that_concerns_no_pod_fails(self, folder: Folder) -> None:
        text = "forall: [{name: all, pods: templates, where: schedulable, expect: {node: b1}}]\n"
        ended = folder.suite(SUITE.replace("cpu: 500m", "cpu: 64").replace("{node: b1}", "{schedulable: false}") + text)
        assert (ended.code, "none of 1 pod does" in ended.out) == (1, True), ended


class TestGuard5WhatIsThereTwiceIsAnError:
    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            (
                "  expect: {node: b1}\n",
                "  expect: {node: b1}\n- {name: hot node loses, pod: small, expect: {node: b1}}\n",
                "two cases",
            ),
            ("  pod: small\n", "  pod: small\n  pod: small\n", "key `pod` appears here twice"),
            (
                "  cpu_usage: {a1: 90, b1: 10, c1: 0}",
                '  series: {\'cpu_usage{node="a1",job="x"}\': 1, \'cpu_usage{job="x", node="a1"}\': 2}',
                "appears here twice",
            ),
            ("name: hot", "each: [{a: 1}, {a: 1}]\n  attempts: '${a}'\n  name: hot", "two cases"),
        ],
    )
    def test_of_cases_keys_and_series(self, folder: Folder, old: str, new: str, message: str) -> None:
        assert old in SUITE
        ended = folder.suite(SUITE.replace(old, new, 1))
        assert (ended.code, message in ended.err) == (2, True), ended.err


class TestGuard6ExpectedAndGotAreShownApart:
    def test_an_expected_failure_that_succeeds_does_not_pass(self, folder: Folder) -> None:
        ended = folder.suite(SUITE.replace("{node: b1}", "{unschedulable: {clause: room}}"))
        assert ended.code == 1
        assert "expected  unschedulable: clause room" in ended.out
        assert "got       b1 (score 90, next a1 10)" in ended.out

    def test_an_expected_success_that_fails_does_not_pass(self, folder: Folder) -> None:
        ended = folder.suite(SUITE.replace("cpu: 500m", "cpu: 64"))
        assert ended.code == 1
        assert "got       unschedulable: 0/3 nodes are available" in ended.out

    def test_programs_get_both(self, folder: Folder) -> None:
        ended = folder.suite(SUITE.replace("{node: b1}", "{node: a1}"), "--format", "json")
        (case,) = json.loads(ended.out)["cases"]
        assert (case["state"], case["failures"][0]["expected"], case["node"]) == ("fail", "a1", "b1")


class TestGuard7NoValueIsAStateOfItsOwn:
    """A clause that has no value refuses, but that does not test it."""

    NO_VALUE = Outcome(
        "pod",
        nodes=frozenset({"a1"}),
        verdicts=(
            ClauseVerdict("light", {"a1": ("node(s) had no value for policy clause light",)}, frozenset({"a1"})),
        ),
        message="0/1 nodes are available: 1 node(s) had no value for policy clause light.",
    )

    @pytest.mark.parametrize(
        ("key", "wanted"),
        [
            ("filtered", Named("a1", Reason("light", None))),
            ("filtered", Named("a1", Reason(None, "no value"))),
            ("unschedulable", Reason("light", None)),
            ("unschedulable", Reason(None, "0/1 nodes")),
        ],
    )
    def test_it_satisfies_nothing_unless_a_metric_is_said_to_fail(
        self, key: str, wanted: Reason | Named[Reason]
    ) -> None:
        def compared(*, admits_missing: bool) -> Mismatch | None:
            one = OneDecision(self.NO_VALUE, {}, frozenset({"light"}), admits_missing=admits_missing)
            return OF_DECISION[key].compare(wanted, one)

        mismatch = compared(admits_missing=False)
        assert mismatch is not None
        assert "`light` has no value" in mismatch.got
        assert compared(admits_missing=True) is None

    def test_a_gang_without_a_size_is_an_error(self, folder: Folder) -> None:
        policy = "gang by pod.label.job size number(pod.label.size)\n"
        text = SUITE.replace("  cpu_usage: {a1: 90, b1: 10, c1: 0}\n", "  {}\n").replace(
            "node: b1", "schedulable: false"
        )
        text = text.replace("{cpu: 500m", "{labels: {job: x, size: many}, cpu: 500m")
        ended = folder.suite(text, policy=policy)
        assert ended.code == 1, ended
        assert ended.out.startswith("ERROR spread.test.yaml › hot node loses")
        assert "the size has no value for this pod" in ended.out
        assert "1 in error" in ended.out


class TestGuard8AWinnerByTieBreakFails:
    EVEN = SUITE.replace("{a1: 90, b1: 10, c1: 0}", "{a1: 10, b1: 10, c1: 0}")

    def test_whichever_node_is_expected(self, folder: Folder) -> None:
        ended = [folder.suite(self.EVEN.replace("{node: b1}", f"{{node: {node}}}")) for node in ("a1", "b1")]
        assert [each.code for each in ended] == [1, 1]
        texts = " ".join(" ".join(each.out.split()) for each in ended)
        assert texts.count("only by tie-break among a1, b1 (score 90 each); if you want this, write `tie: ok`") == 1

    def test_unless_it_is_admitted(self, folder: Folder) -> None:
        codes = {folder.suite(f"tie: ok\n{self.EVEN.replace('b1}', f'{node}}}')}").code for node in ("a1", "b1")}
        assert codes == {0, 1}

    def test_also_in_a_sequence(self, folder: Folder) -> None:
        text = self.EVEN.replace("pod: small", "sequence: {pod: small, count: 5}")
        codes = set()
        for count in range(6):
            ended = folder.suite(text.replace("{node: b1}", f"{{placed: {{b1: {count}}}}}"))
            codes.add(ended.code)
        assert codes == {1}
        assert folder.suite(text.replace("{node: b1}", "{placed: 5}")).code == 0


class TestGuard9AMetricThatIsNotGivenIsAnError:
    def test_that_says_how_to_mean_it(self, folder: Folder) -> None:
        ended = folder.suite(SUITE.replace("  cpu_usage: {a1: 90, b1: 10, c1: 0}\n", "  {}\n"))
        assert ended.code == 2
        assert "no series for `cpu_usage`" in ended.err
        assert "add it under `metrics`, or write `absent: [cpu_usage]`" in ended.err

    def test_absence_can_be_expected(self, folder: Folder) -> None:
        text = SUITE.replace("  cpu_usage: {a1: 90, b1: 10, c1: 0}\n", "  absent: [cpu_usage]\n")
        assert folder.suite(text.replace("{node: b1}", "{schedulable: true, degraded: [cpu_usage]}")).code == 0


class _FirstRow(Score):
    """Prefers whichever node was added first, as nothing in the engine may."""

    name = "first"
    reads = Reads.ELSEWHERE

    def score(self, frame: Frame, state: object) -> IntArray:
        return -frame.index()


class TestGuard10OnlyTheFileDecides:
    TEXT = """
policy: x.policy
metrics: {cpu_usage: 50}
tie: ok
nodes: [{name: a}, {name: b}, {name: c}]
cases: [{name: c, pod: {cpu: 0}, expect: {schedulable: true}}]
"""

    def test_a_decision_that_depends_on_the_order_of_nodes_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        policy = plain_policies.PlainPolicy(Profile("first", (), (Weighted(_FirstRow()),)))
        monkeypatch.setattr(plain_policies.PlainPolicies, "governing", lambda self, pod: policy)
        (result,) = run_text(self.TEXT).cases
        assert result.state is State.FAILED
        assert [failure.expected.key for failure in result.failures] == ["order of nodes"]

    def test_the_same_file_says_the_same_each_time(self, folder: Folder) -> None:
        text = SUITE.replace("{node: b1}", "{node: a1, scores: {a1: 3}}")
        assert folder.suite(text).out == folder.suite(text).out == folder.suite(text, "--shuffle").out

    def test_the_clock_is_the_files(self, folder: Folder) -> None:
        text = SUITE.replace("cpu: 4,", "created: 2026-11-20T10:00:00Z, cpu: 4,").replace(
            "{node: b1}", "{scores: {a1: 24}}"
        )
        policy = "score node.age / 1h\n"
        text = text.replace("  cpu_usage: {a1: 90, b1: 10, c1: 0}\n", "  {}\n")
        assert folder.suite(f"now: 2026-11-21T10:00:00Z\n{text}", policy=policy).code == 0
        assert folder.suite(f"now: 2026-11-21T09:00:00Z\nat: 60min\n{text}", policy=policy).code == 0


class TestGuard11UpdateWritesNumbersOnly:
    TEXT = SUITE.replace(
        "{node: b1}",
        "{node: a1, scores: {a1: 1, b1: '2 ± 0.5', c1: 3}, margin: 5}\n"
        "- {name: burst, sequence: {pod: small, count: 2}, expect: {placed: {b1: 7}}}",
    ).replace(", c1: 3", "")

    def test_scores_and_placements_but_never_where_a_pod_goes(self, folder: Folder) -> None:
        assert folder.suite(self.TEXT, "--update").code == 1
        written = (folder.path / "spread.test.yaml").read_text()
        assert "{node: a1, scores: {a1: 10, b1: '90 ± 0.5'}, margin: 5}" in written
        assert "{placed: {b1: 2}}" in written
        again = folder.test("spread.test.yaml")
        assert ("node" in again.out, "scores" in again.out, "placed" in again.out) == (True, False, False)

    def test_diff_shows_it_and_writes_nothing(self, folder: Folder) -> None:
        out = folder.suite(self.TEXT, "--diff").out
        assert "-  expect: {node: a1, scores: {a1: 1, b1: '2 ± 0.5'}, margin: 5}" in out
        assert "+  expect: {node: a1, scores: {a1: 10, b1: '90 ± 0.5'}, margin: 5}" in out
        assert (folder.path / "spread.test.yaml").read_text() == self.TEXT

    def test_nothing_in_ci(self, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CI", "true")
        ended = folder.suite(self.TEXT, "--update")
        assert (ended.code, "does not work if CI is set" in ended.err) == (2, True)
        assert (folder.path / "spread.test.yaml").read_text() == self.TEXT


class TestGuard12WhatIsLeftOutIsCounted:
    TEXT = f"""{SUITE}\
- {{name: later, pod: small, skip: no such node yet, expect: {{node: a1}}}}
- {{name: wished for, pod: small, todo: should win, expect: {{node: a1}}}}
"""

    def test_in_the_last_line(self, folder: Folder) -> None:
        ended = folder.suite(self.TEXT)
        assert (ended.code, ended.out.splitlines()[-1]) == (0, "1 passed, 0 failed, 1 skipped, 1 todo")
        assert "SKIP spread.test.yaml › later: no such node yet" in ended.out

    def test_no_skip_turns_it_into_a_failure(self, folder: Folder) -> None:
        assert folder.suite(self.TEXT, "--no-skip").code == 1
        assert folder.suite(SUITE, "--no-skip").code == 0

    def test_a_todo_that_holds_is_a_failure(self, folder: Folder) -> None:
        ended = folder.suite(SUITE.replace("pod: small", "pod: small\n  todo: should win"))
        assert (ended.code, "it passes; remove `todo`" in ended.out) == (1, True)

    def test_a_skipped_case_is_checked_all_the_same(self) -> None:
        text = TestGuard10OnlyTheFileDecides.TEXT.replace("schedulable: true", "node: z").replace(
            "name: c,", "name: c, skip: x,"
        )
        with pytest.raises(DocumentError, match="unknown node"):
            run_text(text)


GOOD = """\
policy: x.policy
nodes:
- {name: a1, zone: a, cpu: 4, mem: 16Gi}
- {name: b1, zone: b, cpu: 4, mem: 16Gi}
pods:
- {node: a1, cpu: 1, count: 2}
metrics:
  cpu_usage: {a1: 90, b1: 10}
templates:
  small: {cpu: 500m, labels: {tenant: t1}}
cases:
- name: hot node loses
  pod: small
  expect: {node: b1}
- name: at night too
  now: 2026-11-21T23:00:00Z
  pod: {from: small, cpu: 1}
  expect: {node: b1}
"""

GUARDS = [
    ("unknown node in a list", "{node: b1}", "{node_in: [b1, b9]}", "unknown node `b9`", "`b1`"),
    ("unknown node in scores", "{node: b1}", "{scores: {q7: 1}}", "unknown node `q7`", "the known names are: a1, b1"),
    ("no such zone", "{node: b1}", "{node: {zone: z}}", "no node of the test has zone z", ""),
    ("template of itself", "small: {cpu", "small: {from: small, cpu", "template `small` refers to itself", ""),
    ("metric of no node", "{a1: 90, b1: 10}", "{a1: 90, b11: 1}", "unknown node `b11`", "`b1`"),
    ("not a series", "cpu_usage: {a1: 90, b1: 10}", "series: {'rate(x[5m])': 1}", "is not a series", ""),
    ("pod nowhere", "{node: a1, cpu: 1, count: 2}", "{cpu: 1}", "a pod in `pods` needs `node`", "pending"),
    ("pod on no node", "{node: a1, cpu", "{node: a2, cpu", "unknown node `a2`", "`a1`"),
    (
        "other scheduler",
        "pod: small",
        "pod: {scheduler: other}",
        "no policy governs the pod: its scheduler is `other`",
        "",
    ),
    ("bad quantity", "cpu: 500m", "cpu: 500mm", "expected a quantity such as 500m, 2 or 4Gi, got 500mm", ""),
    ("bad time", "T23:00:00Z", " 23:00", "expected a time in UTC", ""),
    ("bad taint", "{name: a1,", "{name: a1, taints: [gpu],", "'gpu' is not a taint", ""),
    ("bad comparison", "{node: b1}", "{margin: about 5}", "expected a number, a comparison", ""),
    ("bad regular expression", "{node: b1}", "{unschedulable: {message: /(/}}", "not a regular expression", ""),
    (
        "bad priority class",
        "pod: small",
        "pod: {spec: {priorityClassName: x}}",
        "no PriorityClass with name x was found",
        "",
    ),
    ("bad field of Kubernetes", "pod: small", "pod: {spec: {nodeSelector: [1]}}", "expected object", ""),
]


@pytest.mark.parametrize(("name", "old", "new", "message", "advice"), GUARDS, ids=[row[0] for row in GUARDS])
def test_is_an_error_with_its_place(name: str, old: str, new: str, message: str, advice: str) -> None:
    assert old in GOOD
    with pytest.raises(DocumentError) as caught:
        run_text(GOOD.replace(old, new, 1))
    text = str(caught.value)
    assert text.startswith("t.yaml:")
    assert message in text
    assert advice in text


def test_the_file_without_these_mistakes_passes() -> None:
    assert [result.state for result in run_text(GOOD).cases] == [State.PASSED, State.PASSED]


def test_all_mistakes_are_reported_at_once() -> None:
    bad = GOOD.replace("{node: b1}", "{node: b11}").replace("a1: 90", "a11: 90")
    with pytest.raises(DocumentError) as caught:
        run_text(bad)
    assert len(caught.value.diagnostics) == 3


def test_a_failure_shows_place_expected_and_got() -> None:
    text = shown(run_text(GOOD.replace("expect: {node: b1}", "expect: {node: a1, scores: {a1: 11}}", 1)))
    assert text.splitlines() == [
        "FAIL t.yaml › hot node loses",
        "  t.yaml:14: node",
        "    expected  a1",
        "    got       b1 (score 90, next a1 10)",
        "  t.yaml:14: scores a1",
        "    expected  11",
        "    got       10",
        "PASS t.yaml › at night too",
        "1 passed, 1 failed, 0 skipped",
    ]

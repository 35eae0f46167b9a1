"""What the playground answers, held against the scheduling cycle and the tools that it stands on."""

from __future__ import annotations

import base64
import json
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cli.suites import load_suite
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import parse_objects
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.playground.opening import start, start_policy
from kube_policy_scheduler.playground.session import (
    MOST_FILES,
    MOST_POD_TEXT,
    MOST_TEXT,
    POD_FILE,
    OpenedCluster,
    Origin,
    PodChoice,
    RequestError,
    Session,
    Superseded,
)
from kube_policy_scheduler.playground.sharing import (
    FORMAT,
    LONGEST_LINK,
    MOST_UNPACKED,
    Share,
    SharedCluster,
    cluster_of,
    link_of,
    read_link,
    read_share,
    shared_text,
)
from kube_policy_scheduler.policy.answer import answer as answer_of
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, Rules
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.cluster_state import cluster_state, stored_objects, waiting
from kube_policy_scheduler.tooling.short_forms import node_object, pod_object
from kube_policy_scheduler.tooling.tester.run import State
from tests.lang.test_earlier import EDITS, FIRST, TESTS, edited

NAME = "a.policy"
START = start_policy()
PODS = ("shop/web-next", "data/postgres-next", "ml/train", "ml/huge", "shop/web-0")
POLICIES = {
    "start": START,
    "empty": "",
    "nothing passes": "filter node.free.cpu > 1000core\nscore 3",
    "a limit": "limit count() to 2 over node\nfilter fits()",
    "whole": 'require pod label tier == "front"\nscore least_allocated()',
    "two alike": 'score 5 if node.zone == "a"\nscore 5 if node.zone == "b"\nfilter node.ready\nfilter node.ready',
    "held": 'hold if pod.label.tier == "db" else "not now"\nscore 1',
}


def session(text: str = START, name: str = NAME) -> Session:
    started = start()
    now = started.cluster.now
    return Session({name: text}, started.cluster, measure=lambda queries: started.metrics.signals(queries, now=now))


@pytest.mark.parametrize("pod", PODS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_verdict_is_what_the_cycle_decides(policy: str, pod: str) -> None:
    asked, started = session(POLICIES[policy]), start()
    answer = asked.evaluate(asked.opened, PodChoice(key=pod))
    assert not [found for found in answer["diagnostics"] if found["severity"] == "error"], answer["diagnostics"]
    verdict = answer["verdict"]

    state = cluster_state(start().cluster.things)
    made = load([Source(NAME, POLICIES[policy])]).policy_set
    assert made is not None
    now = started.cluster.now
    with waiting(state.find(pod), state.cluster) as (free, _):
        governing = made.policies[0]
        signals = started.metrics.signals(made.queries, now=now)
        inputs = DecisionInputs.of(free, state.cluster, Rules(governing.profile, governing), signals=signals, now=now)
        whole = evaluate(inputs.frame(), inputs.profile)
        found = answer_of(inputs)
    assert verdict["chosen"] == found.host
    assert verdict["message"] == found.text
    total = np.asarray(verdict["total"], np.float64)
    assert np.flatnonzero(~np.isnan(total)).tolist() == whole.feasible.tolist()
    assert np.allclose(total[whole.feasible], whole.totals)
    # each node that does not fit has its first rejector, each that fits has none
    rejected = np.asarray(verdict["rejectedBy"])
    assert ((rejected < 0) == ~np.isnan(total)).all()
    # scores add up to the total
    scores = [each["index"] for each in verdict["clauses"] if each["kind"] == "score"]
    if len(whole.feasible):
        parts = [asked.values(asked.opened, PodChoice(key=pod), index) for index in scores]
        added = sum((part for part in parts if part is not None), np.zeros(len(total)))
        assert np.allclose(added[whole.feasible], whole.totals)
    # what a filter rejects is what the diagnosis counts for it, or more: others may come before it
    for index, clause in enumerate(verdict["clauses"]):
        values = asked.values(asked.opened, PodChoice(key=pod), index)
        if clause["rejects"] is not None and values is not None:
            assert clause["rejects"] == int((values == 0).sum()) >= int((rejected == index).sum())


def test_asking_leaves_the_cluster_as_it_was() -> None:
    asked = session()
    before = asked.state()
    for pod in PODS:
        asked.evaluate(asked.opened, PodChoice(key=pod))
        asked.why(asked.opened, PodChoice(key=pod))
    asked.simulation(asked.opened)(0, 0, lambda: None)
    after = asked.state()
    assert {key: value for key, value in before.items() if key != "used"} == {
        key: value for key, value in after.items() if key != "used"
    }
    for name, shares in before["used"].items():
        assert np.array_equal(shares, after["used"][name], equal_nan=True)


BROKEN = {
    "an unknown field": ("filter node.redy", "P0102", "node.ready"),
    "no unit": ("filter node.free.mem > 2", "P0105", "2Gi"),
    "half a line": ("filter node.ready and", "P0001", None),
}


@pytest.mark.parametrize("case", BROKEN)
def test_errors_have_places_and_fixes_that_mend_them(case: str) -> None:
    text, code, fixed = BROKEN[case]
    asked = session(text)
    answer = asked.evaluate({NAME: text}, PodChoice(key=PODS[0]))
    assert answer["verdict"] is None
    found = next(each for each in answer["diagnostics"] if each["severity"] == "error")
    assert (found["file"], found["code"][:2]) == (NAME, code[:2])
    assert 0 <= found["start"] <= found["end"] <= len(text)
    if fixed is None:
        return
    assert found["code"] == code
    (edit,) = found["fixes"][0]["edits"]
    mended = text[: edit["start"]] + edit["text"] + text[edit["end"] :]
    assert fixed in mended
    assert asked.evaluate({NAME: mended}, PodChoice(key=PODS[0]))["verdict"] is not None


LINTED = "filter node.free.cpu > 4\nfilter node.free.cpu > 2\nscore 1\n"


def test_findings_come_after_the_verdict_as_policyctl_lint_has_them() -> None:
    asked = session(LINTED)
    answer = asked.evaluate(asked.opened, PodChoice(key=PODS[0]))
    assert answer["diagnostics"] == []
    assert answer["verdict"] is not None
    findings = asked.lint(asked.opened)
    expected = load([Source(NAME, LINTED)]).diagnostics
    assert [(each["code"], each["start"]) for each in findings] == [(each.code, each.span.start) for each in expected]
    assert "P0303" in {each["code"] for each in findings}


def test_findings_that_are_errors_come_with_the_verdict_that_they_forbid() -> None:
    asked = session(LINTED)
    files = {NAME: "filter node.free.cpu > 4\nfilter node.free.cpu < 2\n"}
    assert load([Source(NAME, files[NAME])]).policy_set is None
    answer = asked.evaluate(files, PodChoice(key=PODS[0]))
    assert [each["severity"] for each in answer["diagnostics"]] == ["error"]
    assert answer["verdict"] is None


def test_a_good_policy_is_judged_again_after_an_error() -> None:
    asked, pod = session(), PodChoice(key=PODS[0])
    first = asked.evaluate({NAME: START}, pod)["verdict"]
    assert asked.evaluate({NAME: f"{START}\nfilter"}, pod)["verdict"] is None
    again = asked.evaluate({NAME: START}, pod)["verdict"]
    assert np.array_equal(first["total"], again["total"], equal_nan=True)


def racks(*, members: int) -> OpenedCluster:
    """Two racks of three nodes, with room for two members on each node, and members that wait."""
    nodes = [
        node_object({"name": f"n{at}", "cpu": 4, "mem": "8Gi", "labels": {"rack": f"r{at // 3}"}}) for at in range(6)
    ]
    pods = [
        pod_object({"cpu": 2, "mem": "1Gi", "labels": {"job": "train"}}, name=f"train-{at}", uid="")
        for at in range(members)
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes, *pods]})
    things = stored_objects(parse_objects(Source("cluster", text)), scheduler="policy-scheduler")
    return OpenedCluster("racks", Origin.SNAPSHOT, things, 0.0)


GANG = "filter fits(cpu, mem)\ngang by pod.label.job size {} within one rack\n"


def test_a_gang_takes_a_domain_and_the_nodes_of_others_reject() -> None:
    asked, files = Session({}, racks(members=4)), {NAME: GANG.format(4)}
    pod = PodChoice(key="default/train-0")
    verdict = asked.evaluate(files, pod)["verdict"]
    assert (verdict["gang"]["key"], verdict["gang"]["taken"], verdict["gang"]["rooms"]) == ("rack", "r0", [])
    assert verdict["gang"]["domains"] == {"names": ["r0", "r1"], "of": [0, 0, 0, 1, 1, 1]}
    assert f"goes to {verdict['chosen']}, under a: 3 of 6 nodes fit" in asked.why(files, pod)["text"]
    assert np.isnan(verdict["total"]).tolist() == [False] * 3 + [True] * 3
    assert asked.node(files, pod, "n5")["needs"] == ["node(s) outside rack=r0, where the gang is"]


def test_a_gang_without_a_domain_says_what_the_best_ones_lack() -> None:
    asked, files = Session({}, racks(members=8)), {NAME: GANG.format(8)}
    verdict = asked.evaluate(files, PodChoice(key="default/train-0"))["verdict"]
    assert verdict["chosen"] is None
    assert "rack r0 lacks 4 cpu: 16 requested by 8 pods, 12 free" in verdict["message"]
    assert verdict["gang"]["taken"] is None
    assert verdict["gang"]["rooms"] == [{"domain": each, "room": 6, "needed": 8} for each in ("r0", "r1")]


SELECTING = """apiVersion: v1
kind: Pod
metadata: {name: picky}
spec: {nodeSelector: {colour: red}, containers: [{name: main}]}
"""
TAKEN = {
    "a filter": ("filter node.free.cpu > 1000core\n", PodChoice(key="ml/train"), {"edits"}),
    "a request": ("", PodChoice(yaml="{cpu: 1000}"), {"yaml"}),
    "a selector": ("", PodChoice(yaml=SELECTING), {"yaml", "command"}),
}


@pytest.mark.parametrize("case", TAKEN)
def test_each_remedy_can_be_taken(case: str) -> None:
    """It edits the policy, or the pod, so that the pod fits then; or it is a command."""
    more, pod, kinds = TAKEN[case]
    asked = session(START + more)
    remedies = asked.why(asked.opened, pod)["remedies"]
    assert {name for each in remedies for name in ("edits", "yaml", "command") if each[name] is not None} == kinds
    for each in remedies:
        found = [name for name in ("edits", "yaml", "command") if each[name] is not None]
        assert len(found) == 1, each
        if each["yaml"] is not None:
            assert asked.evaluate(asked.opened, PodChoice(yaml=each["yaml"]))["verdict"]["chosen"] is not None
        elif each["command"] is not None:
            assert each["command"].startswith(("kubectl ", "policyctl why "))


def test_names_come_once_and_again_for_another_cluster() -> None:
    asked, pod = session(), PodChoice(key=PODS[0])
    version = asked.state()["namesVersion"]
    assert "names" in asked.evaluate(asked.opened, pod)["verdict"]
    assert "names" not in asked.evaluate(asked.opened, pod, known_names=version)["verdict"]
    asked.open(start().cluster)
    assert "names" in asked.evaluate(asked.opened, pod, known_names=version)["verdict"]


def test_two_policies_side_by_side_have_verdicts_of_their_own() -> None:
    asked, pod = session(), PodChoice(key="data/postgres-next")
    answer = asked.evaluate({NAME: START}, pod, against={"b.policy": "score most_allocated()"})
    assert answer["verdict"]["policy"] == "a"
    assert answer["against"]["policy"] == "b"
    assert asked.values({"b.policy": "score most_allocated()"}, pod, 0, side="against") is not None
    alone = session("score most_allocated()", "b.policy").evaluate({"b.policy": "score most_allocated()"}, pod)
    assert np.array_equal(answer["against"]["total"], alone["verdict"]["total"], equal_nan=True)


WRITTEN = {
    "as for kubectl apply": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: mine, namespace: shop}\n"
        "spec: {containers: [{name: main, resources: {requests: {cpu: 100m}}}]}\n",
        True,
    ),
    "short": ("{cpu: 100m, labels: {app: web}}", True),
    "too large for every node": ("{cpu: 1000}", True),
    "another scheduler": ("{cpu: 100m, scheduler: other}", None),
    "no YAML": ("a: [", False),
    "another kind": ("apiVersion: v1\nkind: Node\nmetadata: {name: x}\n", False),
    "no quantity": ("{cpu: many}", False),
    "billion laughs": (
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "\n".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
        False,
    ),
    "deep": ("[" * 5000 + "]" * 5000, False),
    "empty": ("", False),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_a_pod_that_is_written(case: str) -> None:
    text, good = WRITTEN[case]
    asked = session()
    answer = asked.evaluate(asked.opened, PodChoice(yaml=text))
    if good is not None:
        assert (answer["verdict"] is not None) == good
    if answer["verdict"] is None:
        assert [found["file"] for found in answer["diagnostics"]] == [POD_FILE] * len(answer["diagnostics"])
        assert answer["diagnostics"]


@pytest.mark.parametrize("pod", PODS)
def test_a_pod_of_the_cluster_can_be_written_out_and_decided_alike(pod: str) -> None:
    asked = session()
    there = asked.evaluate(asked.opened, PodChoice(key=pod))["verdict"]
    written = asked.evaluate(asked.opened, PodChoice(yaml=asked.pod_text(pod)))
    assert written["diagnostics"] == []
    if pod != "shop/web-0":  # which counts on its node beside the written one
        assert np.allclose(there["total"], written["verdict"]["total"], equal_nan=True)


TOO_MUCH: dict[str, tuple[dict[str, str], PodChoice]] = {
    "many files": ({f"{number}.policy": "" for number in range(MOST_FILES + 1)}, PodChoice(key=PODS[0])),
    "large": ({NAME: "#" * (MOST_TEXT + 1)}, PodChoice(key=PODS[0])),
    "no policy's name": ({"../a.txt": ""}, PodChoice(key=PODS[0])),
    "a name that moves the cursor": ({"a\x1b[2J.policy": ""}, PodChoice(key=PODS[0])),
    "a large pod": ({NAME: ""}, PodChoice(yaml="#" * (MOST_POD_TEXT + 1))),
    "no pod": ({NAME: ""}, PodChoice()),
    "two pods": ({NAME: ""}, PodChoice(key=PODS[0], yaml="")),
    "an unknown pod": ({NAME: ""}, PodChoice(key="shop/nobody")),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_what_must_not_be_asked_is_refused_with_a_sentence(case: str) -> None:
    files, pod = TOO_MUCH[case]
    with pytest.raises(RequestError, match=r"\w"):
        session().evaluate(files, pod)


@pytest.mark.parametrize("offset", [-1, len(START) + 1])
def test_offsets_outside_of_a_text_are_refused(offset: int) -> None:
    asked = session()
    for question in (asked.complete, asked.hover):
        with pytest.raises(RequestError, match="outside"):
            question(asked.opened, NAME, offset)


def test_completion_knows_the_cluster() -> None:
    asked = session("filter node.label.")
    labels = {item["label"] for item in asked.complete({NAME: "filter node.label."}, NAME, 18)}
    assert {"disk", "pool"} <= labels
    text = 'score promql("'
    assert "cpu_usage" in {item["label"] for item in asked.complete({NAME: text}, NAME, len(text))}


def test_hover_and_format_are_those_of_the_editor() -> None:
    asked = session()
    found = asked.hover({NAME: START}, NAME, START.index("fits"))
    assert found is not None
    assert START[found["start"] : found["end"]] == "fits"
    assert "fits(" in found["markdown"]
    assert asked.format({NAME: "filter   node.ready"}, NAME) == "filter node.ready\n"
    assert asked.format({NAME: "filter ("}, NAME) == "filter ("


def test_a_node_has_its_sum_or_what_it_lacks() -> None:
    asked, pod = session(), PodChoice(key="data/postgres-next")
    verdict = asked.evaluate(asked.opened, pod)["verdict"]
    for row, name in enumerate(verdict["names"]):
        found = asked.node(asked.opened, pod, name)
        assert found["passes"] == (not np.isnan(verdict["total"][row]))
        assert bool(found["needs"]) != found["passes"]
        if found["passes"]:
            assert sum(part["value"] for part in found["sum"]) == pytest.approx(found["total"])
    chosen = asked.node(asked.opened, pod, verdict["chosen"])
    assert chosen["rank"] == 1
    with pytest.raises(RequestError, match="no node"):
        asked.node(asked.opened, pod, "nowhere")


def test_a_remedy_of_the_policy_is_an_edit_that_lets_the_pod_fit() -> None:
    text = "filter node.free.cpu > 60core\nfilter fits(cpu, mem)\n"
    asked, pod = session(text), PodChoice(key="shop/web-next")
    assert asked.evaluate({NAME: text}, pod)["verdict"]["chosen"] is None
    remedies = [each for each in asked.why({NAME: text}, pod)["remedies"] if each["edits"]]
    assert remedies
    for remedy in remedies:
        (edit,) = remedy["edits"]
        changed = text[: edit["start"]] + edit["text"] + text[edit["end"] :]
        assert asked.evaluate({NAME: changed}, pod)["verdict"]["chosen"] is not None, remedy


def test_a_policy_that_does_not_govern_the_pod_says_so() -> None:
    text = 'for pods where pod.label.tier == "nobody"\nscore 1\n'
    verdict = session(text).evaluate({NAME: text}, PodChoice(key=PODS[0]))["verdict"]
    assert verdict["policy"] is None
    assert "governs" in verdict["message"]


def test_a_simulation_ends_as_it_counts() -> None:
    asked = session()
    done = asked.simulation(asked.opened)(0, 100, lambda: None)
    counts = done["summary"]
    assert counts["arrived"] == 100 == counts["placed"] + counts["waiting"]
    bound = [key for frame in done["frames"] for key, _ in frame["bound"]]
    assert len(bound) == len(set(bound)) == counts["placed"]
    times = [frame["at"] for frame in done["frames"]]
    assert times == sorted(set(times))
    assert len(done["used"]) == len(times)
    again = asked.simulation(asked.opened)(0, 100, lambda: None)
    assert again["frames"] == done["frames"]


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_work_that_nobody_waits_for_ends(steps: int) -> None:
    left = [steps]

    def go_on() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Superseded

    asked = session()
    with pytest.raises(Superseded):
        asked.evaluate(asked.opened, PodChoice(key=PODS[0]), go_on=go_on)
    assert asked.evaluate(asked.opened, PodChoice(key=PODS[0]))["verdict"] is not None


def test_a_test_of_a_decision_passes(tmp_path: Path) -> None:
    asked = session()
    made = asked.test_of(asked.opened, PodChoice(key="data/postgres-next"))
    (tmp_path / NAME).write_text(START)
    text, others = made.texts([NAME], beside="x.cluster.yaml")
    assert others == ""
    path = tmp_path / "x.test.yaml"
    path.write_text(text)
    result = load_suite(path, Source(str(path), text)).run().result()
    assert [case.state for case in result.cases] == [State.PASSED]


# --- sharing ---------------------------------------------------------------------------------------------


def test_what_is_shared_comes_back() -> None:
    asked = session()
    share = Share(FORMAT, asked.opened, PodChoice(key="ml/huge"))
    link = link_of(share, "http://127.0.0.1:1")
    assert link is not None
    assert read_link(link) == share
    whole = Share(
        FORMAT, asked.opened, share.pod, SharedCluster("a", asked.cluster.now, **asked.recorded(asked.opened))
    )
    read = read_share(shared_text(whole))
    assert read.cluster is not None
    cluster, metrics = cluster_of(read.cluster)
    other = Session(
        read.files, cluster, measure=lambda queries: metrics.signals(queries, now=cluster.now), pod=read.pod
    )
    for pod in PODS[:4]:
        mine, theirs = (each.evaluate(asked.opened, PodChoice(key=pod))["verdict"] for each in (asked, other))
        assert mine["chosen"] == theirs["chosen"]
        assert np.array_equal(mine["total"], theirs["total"], equal_nan=True)


def test_long_policies_have_no_link() -> None:
    noise = "".join(random.Random(1).choices("abcdefghijklmnop", k=3 * LONGEST_LINK))
    assert link_of(Share(FORMAT, {NAME: f"# {noise}"}, PodChoice(key="a/b")), "http://127.0.0.1:1") is None


def _packed(raw: bytes) -> str:
    packing = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.urlsafe_b64encode(packing.compress(raw) + packing.flush()).decode()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("!!", "cannot be read"),
        ("", "cut"),
        ("AAAA", "cannot be read|cut"),
        (_packed(b"{}")[:-4], "cut|cannot be read"),
        (_packed(b" " * (MOST_UNPACKED + 10)), "unpacks to more"),
        (_packed(b"[" * 100_000), "not a file"),
        (_packed(b'{"playground": 2, "files": {}, "pod": {}}'), "another version"),
        (_packed(b'{"playground": 1, "files": {"/etc/passwd": ""}, "pod": {}}'), "name of a policy"),
        (_packed(b'{"playground": 1, "files": {"a.policy": "\\ud800"}, "pod": {}}'), "not a file"),
    ],
)
def test_links_of_strangers_are_refused_with_a_sentence(data: str, text: str) -> None:
    with pytest.raises(RequestError, match=text):
        read_link(f"http://127.0.0.1:1/#share={data}")


def test_findings_that_nobody_waits_for_end_between_two_rules() -> None:
    asked = session()
    calls = 0

    def go_on() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise Superseded

    with pytest.raises(Superseded):
        asked.lint(asked.opened, go_on=go_on)
    assert calls == 5
    assert asked.lint(asked.opened) == session().lint(asked.opened)


@pytest.mark.long
@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.sampled_from(TESTS[:-4]), max_size=8).map(lambda tests: [*FIRST, *tests]),
    st.lists(st.tuples(EDITS, st.sampled_from(PODS)), min_size=1, max_size=5),
)
def test_an_answer_after_edits_is_that_of_a_new_session(
    lines: list[str], edits: list[tuple[tuple[str, int, str], str]]
) -> None:
    asked = session()
    asked.evaluate({NAME: "\n".join(lines)}, PodChoice(key=PODS[0]))
    for (how, at, line), pod in edits:
        lines = edited(lines, how, at, line)
        given_texts, choice = {NAME: "\n".join(lines)}, PodChoice(key=pod)
        again, afresh = asked.evaluate(given_texts, choice, clause=1), session().evaluate(given_texts, choice, clause=1)
        assert dumped(again) == dumped(afresh)
    assert dumped(asked.why(given_texts, choice)) == dumped(session().why(given_texts, choice))
    assert asked.lint(given_texts) == session().lint(given_texts)


def dumped(answer: dict[str, Any]) -> bytes:
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)

"""What is offered at a place of a policy, and that what is offered can be written there."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.editor.cluster_words import words_in
from kube_policy_scheduler.editor.completion import Item, complete, open_call
from kube_policy_scheduler.lang.reading.parse_tokens import keywords, tokens
from kube_policy_scheduler.lang.statements import CLAUSES, FORMS, KEYWORDS, WORKLOADS, StatementForm
from kube_policy_scheduler.lang.types import Depends
from tests.editor.cursor import NAME, at_cursor, project
from tests.lang.texts import ENVIRONMENT

WORDS = words_in(
    [
        {
            "nodes": [{"name": "a1", "labels": {"disk": "ssd", "example.com/rack": "r1"}}],
            "metrics": {"cpu_usage": {"a1": 90}, "interval": "15s"},
            "cases": [{"pod": {"labels": {"tenant": "red"}, "annotations": {"owner": "kim"}}}],
        },
        {
            "kind": "Node",
            "metadata": {"name": "n2", "labels": {"disk": "hdd"}},
            "status": {"allocatable": {"x.io/y": 1}, "conditions": [{"type": "KernelDeadlock", "status": "False"}]},
        },
    ],
    time_zones=("Europe/Berlin", "UTC"),
)


def offered(text: str, **others: str) -> dict[str, Item]:
    return {item.label: item for item in complete(*at_cursor(text, **others), WORDS)}


def test_what_belongs_to_policies_of_another_subject_is_not_offered() -> None:
    of_workloads = "for workloads where true\n\n"

    assert not {"gang", "preempt", "reclaim"} & offered(of_workloads + "|").keys()
    assert {"limit", "spread", "pack", "choose", "divide", "keep", "rebalance"} <= offered(of_workloads + "|").keys()
    assert not {"node", "pod"} & offered(of_workloads + "score |").keys()
    assert "new nodes" not in offered(of_workloads + "filter cluster.ready |")
    assert "also running" not in offered("filter node.ready |")
    assert "of workloads where" in offered(of_workloads + "limit count() to 3 |")
    assert "of pods where" not in offered(of_workloads + "limit count() to 3 |")
    assert {"replicas", "request"} <= offered(of_workloads + "limit sum(|").keys()
    assert "of workloads where" not in offered("limit count() to 3 |")


def test_the_nodes_and_pods_of_members_are_offered_in_aggregates_of_a_cluster() -> None:
    of_workloads = "for workloads where true\n\n"

    assert {"cluster", "fleet", "region"} <= offered(of_workloads + "score count(n in |").keys()
    assert {"nodes", "pods"} <= offered(of_workloads + "score count(n in cluster.|").keys()
    assert {"ready", "free"} <= offered(of_workloads + "score count(n in cluster.nodes where n.|) ?? 0").keys()
    assert {"label", "node"} <= offered(of_workloads + "score count(p in cluster.pods where p.|) ?? 0").keys()
    assert "room" not in offered(of_workloads + "score count(n in cluster.nodes where n.|) ?? 0")
    assert "room" in offered(of_workloads + "score count(c in region.clusters where c.|) ?? 0")
    assert not {"fits", "least_allocated"} & offered(of_workloads + "score |").keys()


def test_an_empty_line_takes_every_statement() -> None:
    assert set(offered("|")) == set(KEYWORDS)
    assert set(offered("filter node.ready\nsc|\nfilter node.ready")) == set(KEYWORDS)


@pytest.mark.parametrize(
    ("text", "some"),
    [
        ("filter |", {"node", "pod", "fits", "not", "label", "count"}),
        ("for workloads where |", {"workload", "not"}),
        ("for workloads where workload.|", {"kind", "label", "replicas"}),
        ("for workloads where true\nfilter |", {"cluster", "workload", "not", "label", "count"}),
        ("for workloads where true\nfilter cluster.|", {"room", "has", "region", "free", "price"}),
        ("for workloads where true\nfilter cluster.free.|", {"cpu", "mem"}),
        ("for workloads where true\nfilter cluster.ready |", {"also running", "if", "else"}),
        ("for workloads where true\nfilter count(c in |", {"fleet", "region", "provider"}),
        ("for workloads where true\nfilter count(c in region.|", {"clusters"}),
        ("for workloads where true\nfilter count(c in region.clusters where c.|", {"ready", "label"}),
        ("for workloads where true\ndivide |", {"evenly", "best", "by", "over", "copies", "as"}),
        ("for workloads where true\ndivide evenly |", {"at least", "at most", "partly", "if"}),
        ("for workloads where true\ndivide over |", {"region", "zone", "provider"}),
        ("for workloads where true\nchoose 2 clusters over |", {"region", "zone", "provider"}),
        ("for workloads where true\nuse karmada without |", {"TaintToleration", "ClusterAffinity"}),
        ("for workloads where true\nmetric load = promql(\"x\") for |", {"fleet"}),
        ("filter node.|", {"ready", "free", "zone", "label"}),
        ("filter node.free.|", {"cpu", "mem", "x.io/y"}),
        ("score 3 |", {"if", "as", "weight", "and"}),
        ("filter node.ready and\n  fits(|", {"cpu", "mem"}),
        ("filter label |", {"disk", "example.com/rack"}),
        ("filter label disk=|", {"ssd", "hdd"}),
        ("filter pod label |", {"tenant"}),
        ("filter pod label tenant in (|", {"red"}),
        ('filter node.label.disk == "|', {"ssd", "hdd"}),
        ('filter pod.label["|', {"tenant"}),
        ('filter pod.annotation.owner == "|', set()),
        ('filter node.label.disk in ["ssd", "|', {"ssd", "hdd"}),
        ("spread by pod.label.|", {"tenant"}),
        ("spread by pod.label.tenant over |", {"node", "zone", "region", "disk"}),
        ("spread by pod.label.tenant over disk target |", {"ssd", "hdd"}),
        ("spread by pod.label.tenant over zone max skew 1 counting |", {"all", "tainted", "filtered"}),
        ("gang by pod.label.job size 4 within one |", {"zone", "disk"}),
        ("gang by pod.label.job size 4 |", {"evict whole", "within", "with"}),
        ("backfill |", {"if", "lasts", "at most"}),
        ("backfill lasts |", {"duration", "pod"}),
        ("reclaim |", {"fair", "above max", "rest", "after"}),
        ("use kubernetes |", {"scores", "without"}),
        ("use kubernetes without |", set(ENVIRONMENT.plugins)),
        ("use kubernetes scores without |", set(ENVIRONMENT.scores)),
        ("ties by |", set(ENVIRONMENT.ties)),
        ("devices by |", set(ENVIRONMENT.devices)),
        ('score promql("|', {"cpu_usage"}),
        ("filter count(p in |", {"node", "cluster", "zone"}),
        ("filter count(p in node.|", {"pods"}),
        ("filter count(p in node.pods where p.|", {"label", "namespace", "running"}),
        ("filter count(p in node.pods where p.|", {"name", "annotation", "node"}),
        ("filter count(p in node.pods where p.node.|", {"label", "zone", "free", "ready"}),
        ("filter count(p in node.pods where p.node.label.|", {"disk"}),
        ("preempt if pod.priority > 1 evict where victim.node.|", {"label", "zone"}),
        ("limit count() to 4 of pods where pod.node.|", {"label", "zone"}),
        ("spread by pod.label.tenant over zone |", {"target by", "target", "max skew"}),
        ("filter count(p in node.pods where |", {"p"}),
        ("score sum(n.| for n in cluster.nodes)", {"free", "zone"}),
        ("metric load = |", {"promql"}),
        ("metric load = promql(\"cpu_usage\") |", {"every", "stale after", "default", "for cluster", "by"}),
        ("order by pod.priority |", {"asc", "desc", "strict"}),
        ("preempt if pod.priority > 1 evict where victim.|", {"label", "priority"}),
        ("def share(used, all) = |", {"used", "all"}),
        ("let x = 3\ndef f(a) = a\nmetric m = promql(\"q\")\nscore |", {"x", "f", "m"}),
        ("let broken = 3 +\nscore |", {"broken"}),
        ("canary of |", {"stable"}),
        ("limit sum(|", {"request", "limit"}),
        ("limit sum(request.|", {"cpu", "mem"}),
        ("limit count() to 4 of pods where |", {"pod", "label", "namespace"}),
        ("queue a min |", {"cpu", "memory", "x.io/y"}),
        ("queue a min cpu 4, |", {"memory"}),
        ("filter any(p.|", {"ready", "label"}),
        ("filter any(n.|", {"ready", "free"}),
        ("filter sum(n.free.|", {"cpu", "x.io/y"}),
        ("filter node.conditions.|", {"Ready", "DiskPressure", "KernelDeadlock"}),
        ('filter node.conditions["|', {"Ready", "KernelDeadlock"}),
        ('filter hour("Eur|', {"Europe/Berlin"}),
        ('filter hour("ber|', {"Europe/Berlin"}),
        ('filter between("22:00", "06:00", "|', {"Europe/Berlin", "UTC"}),
        ('score predicted(promql("|', {"cpu_usage"}),
        ("queue top\nqueue a of |", {"top"}),
    ],
)  # fmt: skip
def test_what_is_possible_is_offered(text: str, some: set[str]) -> None:
    assert some <= set(offered(text, stable="policy stable\nfilter node.ready"))


@pytest.mark.parametrize(
    ("text", "not_those"),
    [
        ("filter node.ready |", {"weight", "over", "max skew", "size", "target"}),
        ("score 3 if node.ready |", {"else", "if"}),
        ("score 3 weight |", {"as", "strict"}),
        ("reclaim above max |", {"fair", "after", "rest", "if"}),
        ("reclaim fair |", {"above max"}),
        ("reclaim if pod.priority > 3 |", {"above max", "if"}),
        ("let x = |", {"x"}),
        ("filter node.free.|", {"ready"}),
        ("filter count(p in |", {"p"}),
        ("filter count(p in node.pods where p.|", {"waiting", "queued", "attempts", "breaks_budget", "previous_node"}),
        ("preempt if true evict where victim.|", {"queued", "attempts", "waiting"}),
        ("filter pod.|", {"ready", "started", "running", "breaks_budget", "node"}),
        ("require |", {"node", "rank", "victim"}),
        ("spread by pod.|", {"priority", "created", "request", "attempts"}),
        ("limit sum(|", {"node", "queued"}),
        ("filter |", {"rank", "normalize", "device_value"}),
        ('filter hour("ber|', {"UTC"}),
    ],
)
def test_what_is_impossible_is_not(text: str, not_those: set[str]) -> None:
    assert not not_those & set(offered(text))


@pytest.mark.parametrize(
    "text",
    [
        "# fil|",
        "filter node.ready # n|",
        "let |",
        "score 12|",
        "policy |",
        "scor |",
        'scor node.free.cpu * "a"|',
        'filter node.ready\nscor node.free.cpu * "a" |',
    ],
)
def test_where_nothing_is_known_nothing_is_offered(text: str) -> None:
    assert not offered(text)


def test_names_of_used_files_are_offered() -> None:
    found = offered('use "common.policy"\nscore |', common="let busy = node.used_fraction.cpu > 80%")
    assert "busy" in found
    assert "let busy" in found["busy"].doc
    assert "common.policy" in found["busy"].doc
    assert set(offered('use "|', common="let busy = 1", other="filter node.ready")) == {"common.policy", "other.policy"}


def test_functions_come_with_signature_unit_and_manual() -> None:
    clamp = offered("score |")["clamp"]
    assert clamp.detail == ENVIRONMENT.builtins["clamp"].signature
    assert ENVIRONMENT.builtins["clamp"].doc in clamp.doc
    free = offered("score node.|")["free"]
    assert ENVIRONMENT.fields["node.free"].doc in free.doc
    assert "amount" in free.detail


def written(text: str, item: Item) -> str:
    offset = text.index("|")
    return text[: item.start] + (item.text or item.label).replace("$0", "") + text[offset + 1 :]


def test_keys_that_are_no_words_replace_the_dot() -> None:
    text = "score 1 if node.label.|"
    assert written(text, offered(text)["example.com/rack"]) == 'score 1 if node.label["example.com/rack"]'


@pytest.mark.parametrize("path", sorted(ENVIRONMENT.fields))
def test_every_field_can_be_reached_by_completion(path: str) -> None:
    is_of_running_pods = ENVIRONMENT.fields[path].depends & Depends.RUN
    text = "preempt if true evict where " if is_of_running_pods else "filter "
    for step in path.replace("pod.", "victim.").split(".") if is_of_running_pods else path.split("."):
        assert step in offered(f"{text}|"), path
        text += f"{step}."


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.written[:40])
def test_every_word_of_an_example_is_offered(form: StatementForm) -> None:
    """Words of the language that stand in the examples of the reference; names and numbers are free."""
    example = form.example
    if form.subject == WORKLOADS and not example.startswith("for "):
        example = f"for workloads where true\n\n{example}"
    own = {token.start: token.text for token in tokens(Source("example", example)) if token.kind in keywords()}
    for start, word in own.items():
        found = {each.split()[0] for each in offered(f"{example[:start]}|")}
        assert word in found or example[:start].endswith(f"{_before(word)} "), (example, word)


def _before(word: str) -> str:
    """Return the word that a word is offered with: `max skew` is one proposal."""
    return next((clause.split()[0] for clause in CLAUSES if clause.split()[1:2] == [word]), word)


def test_the_call_around_the_cursor() -> None:
    found = open_call(*at_cursor("score clamp(node.free.cpu, max(1, 2), |"))
    assert found is not None
    assert (found[0].name, found[1]) == ("clamp", 2)
    assert open_call(*at_cursor("score clamp(1, 2, 3) + |")) is None
    found = open_call(*at_cursor('score promql("up|'))
    assert found is not None
    assert found[0].name == "promql"


def test_a_missing_source_offers_nothing() -> None:
    assert complete(project("filter node.ready"), f"{NAME}.gone", 0, WORDS) == ()

"""A first test file passes at once, covers what it says, and says what it does not show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cli.coverage import Coverage
from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.cli.suites import load_suite
from kube_policy_scheduler.lang.environment import Key
from kube_policy_scheduler.lang.types import CORES, PLAIN, SECONDS, SHARE, Depends, Kind
from kube_policy_scheduler.tooling.coverage.measure import totals
from kube_policy_scheduler.tooling.first_test.writing import common, difference
from tests.shipped import POLICIES

NOT_VARIED = (
    "claimed-gpus.policy",
    "gpu-drivers.policy",
    "inference-evicted-first.policy",
    "nvlink-groups.policy",
    "smallest-gpu.policy",
    "batch-with-backfill.policy",
    "fair-teams.policy",
    "first-replicas-on-demand.policy",
    "nodes-per-user.policy",
)
"""Policies about what `--init` does not vary: devices that pods claim, pods that `preempt` or fair shares may evict,
pods that wait, and on which of several nodes pods are."""
DEAR = (
    "budgets.policy",
    "clustering.policy",
    "elastic-jobs.policy",
    "fgd-reserve.policy",
    "fgd-thrifty.policy",
    "flink-taskmanagers.policy",
    "gentle-starts.policy",
    "night-batch.policy",
    "noisy-neighbours.policy",
    "packing.policy",
    "research-and-production.policy",
)
"""Their tests take 1.5 to 8 s to find; what they have, others have, too."""
OF_PODS = [path for path in POLICIES if "\nfor workloads where" not in path.read_text(encoding="utf-8")]
"""First cases are made for policies of pods only."""
SHIPPED = [
    # quick: every third one, for what each shows most others show, too
    pytest.param(path, id=path.stem, marks=[pytest.mark.long] * (path.name in DEAR or position % 3 != 0))
    for position, path in enumerate(OF_PODS)
    if path.name not in NOT_VARIED
]


@pytest.mark.long
@pytest.mark.parametrize("policy", SHIPPED)
def test_of_our_own_policies_every_clause_and_branch_is_shown(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "first.test.yaml"
    assert run(["test", "--init", str(policy), "-o", str(path)]) == 0, capsys.readouterr().err
    loaded, coverage = load_suite(path), Coverage()
    results = list(coverage.run(loaded, shuffle=True).results())
    assert {result.state.value for result in results} == {"pass"}
    clauses, branches = totals(coverage.measured())
    assert (clauses.percent, branches.percent) == (100, 100)


def first(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, int]:
    path = folder / "p.policy"
    path.write_text(text)
    code = run(["test", "--init", str(path), "-o", "-"])
    done = capsys.readouterr()
    return done.out + done.err, code


CANNOT_VARY = "The tool cannot vary what these read. Write cases for them by hand:"
SHOWN = [
    'for pods where pod.label.team == "core" and pod.namespace == "prod"\nfilter node.ready',
    "filter node.age > 1h\nrequire pod.attempts < 5",
    "filter tolerated()",
    'filter number(pod.label["slots"]) ?? 1 <= 4 else "too many slots"',
    'hold if between("18:00", "20:00")',
    "filter node.used_fraction.mem < 50%",
    'limit sum(request.mem) by pod.namespace to 4Gi if pod.namespace == "small"',
    'def near(z) = node.zone == z\nfilter near("a") or near("b") if pod.label.zoned',
    'filter all(p.label.tenant == pod.label.tenant for p in node.pods) if pod.label.exclusive == "true"',
    'filter node.arch == "arm64" if pod.label.arch == "arm"',
    "filter not node.unschedulable",
    "filter any(p in node.pods where p.ready)",
    "filter count(p in node.pods where p.restarts > 3) < 2",
    "filter count(p in node.pods where not p.started and p.running < 10min) < 3",
    "filter quantity(node.label.slots) ?? 0 > 4Gi",
    "require duration(pod.annotation.wait) ?? 0s < 10min",
    'filter version(node.label.driver) ?? version("0") >= version("535.1")',
    "require time(pod.annotation.until) ?? now() > now()",
    "score 50 if node.name == pod.previous_node",
    'filter node.provider == "aws"',
    'filter fits_numa(cpu, mem) ?? false if pod.qos == "Guaranteed"',
    "filter pod.limit.cpu < 4 or not pod.host_network",
    'require pod.runtime_class == "gvisor" and pod.service_account != "root"',
    'filter node.kubelet matches "v1.3.*" and node.kernel == "5.1"',
    'limit count() to 1 over node of pods where pod.runtime_class == "gvisor"',
    'filter pod.owner.name == "db" or pod.limit.cpu > 3',
    'filter "x" in node.taints or all(i matches "registry/.*" for i in pod.images)',
    'filter count(p in cluster.pods where p.label.role == "driver" and p.ready) >= 1',
    "filter count(n in cluster.nodes where n.ready) > 2",
    'metric w = promql("w") by rack as node.label.rack\nfilter predicted(w, 300) ?? 0 < 12000',
    'filter volume_room("fast") ?? 0Gi > 10Gi',
    'score scale(volume_room("slow disks") ?? 0Gi, 0Gi, 1Ti) if volume_room("fast") is missing',
    "gang by pod.label.job size 5 with 1 of role=driver, 2 of role in (worker, helper)",
    "gang by pod.label.job size number(pod.label.pods) ?? 1 with 1 of main if pod label job",
    'queue a for pods where pod.namespace == "a" max memory 8Gi\nqueue b by pod.label.b min cpu 4 lend cpu 1\nreclaim',
    "queue top max example.com/npu 5\nqueue low of top for pods where pod.priority < 10\nscore 1",
    "gang by pod.label.job size 5 within one zone or any\ngang by pod.label.s size 3 within one node if pod label s",
    'hold if pod.label.gate == "shut"\norder by pod.label.tier == "gold" desc, pod.priority desc, pod.queued',
]


@pytest.mark.parametrize("policy", SHOWN)
def test_a_policy_is_shown_in_full(policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, code = first(tmp_path, policy, capsys)
    assert code == 0, text
    assert "No case was found" not in text, text


@pytest.mark.parametrize(
    ("policy", "killed"),
    [
        ('require pod.request.cpu < 8 else "too large"\nfilter label disk=ssd or not pod.label.fast', "14/14"),
        ('filter node.conditions.MemoryPressure != "True" and node.conditions.DiskPressure != "True"', "8/8"),
        ('metric busy = promql("busy") stale after 5min\nscore 100 - busy ?? 50', None),
    ],
)
def test_the_first_tests_notice_changes_of_the_policy_and_say_how_many(
    policy: str, killed: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.policy").write_text(policy)
    assert run(["test", "--init", str(tmp_path / "p.policy")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert run(["test", "-q", "--mutate", str(tmp_path / "p.test.yaml")]) == 0
    counted = capsys.readouterr().out.splitlines()[-1]

    assert said[0].endswith(counted)
    if killed is None:
        assert said[1] == f"to see what no case detects yet: policyctl test --mutate -q {tmp_path / 'p.test.yaml'}"
    else:
        assert f"mutants {killed} killed" in said[0]
        assert len(said) == 1


QUEUES = """queue company max nvidia.com/gpu 8
queue research of company for pods where pod.namespace == "research" min nvidia.com/gpu 4
queue production of company for pods where pod.namespace == "production" min nvidia.com/gpu 4
order by queue.share, pod.queued
reclaim after 30s evict where victim.priority < 1000
"""
GANGS = """gang by pod.label.job size number(pod.label.size) ?? 1 within one rack or block if pod label job
gang by pod.label.slice size 3 within one node if pod label slice
filter node.ready
"""


@pytest.mark.parametrize(
    ("policy", "keys"),
    [
        (QUEUES, ("evicts: [there-2]", "evicts: []", "queue: {company: 4")),
        (GANGS, ("domain: rack-1", "domain: block-1")),
    ],
    ids=["queues", "gangs"],
)
def test_without_any_line_of_the_policy_a_case_fails(
    policy: str, keys: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, made = tmp_path / "p.policy", tmp_path / "p.test.yaml"
    path.write_text(policy)
    assert run(["test", "--init", str(path)]) == 0
    assert run(["test", "-q", str(made)]) == 0, capsys.readouterr().out
    assert all(key in made.read_text() for key in keys)
    lines = policy.splitlines(keepends=True)
    for number in range(len(lines)):
        path.write_text("".join((*lines[:number], *lines[number + 1 :])))
        assert run(["test", "-q", str(made)]) != 0, lines[number]


def test_what_could_not_be_shown_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, code = first(tmp_path, "filter volumes_ok()", capsys)
    assert code == 0
    assert "# No case was found in which\n# - volumes_ok() is false (line 1)" in text


@pytest.mark.parametrize("fact", ['claimed_least("memory") ?? 0 > 10', "node.volumes_attached > 5"])
def test_facts_that_no_case_varies_are_named(fact: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, code = first(tmp_path, f"filter {fact}", capsys)
    named = fact.split(" ?? ")[0].split(" > ")[0]
    assert code == 0
    assert f"# {CANNOT_VARY}\n# - {named} (line 1)" in text


def conditions() -> Iterator[tuple[str, str]]:
    """Yield each field of the language as a policy writes it, with a condition on it."""
    keys = {Key.LABEL: "disk", Key.ANNOTATION: "note", Key.CONDITION: "DiskPressure", Key.RESOURCE: "cpu"}
    bounds = {CORES: "3", SECONDS: "10min", SHARE: "50%", PLAIN: "3"}
    for path, field in environment().fields.items():
        if path == "pod.breaks_budget":
            continue  # only of victims
        read = f"{path}.{keys[field.key]}" if field.key else path
        info = field.info(keys[field.key] if field.key else None)
        of_running = Depends.RUN in field.depends
        read = read.replace("pod.", "p.", 1) if of_running else read
        match info.type.kind:
            case Kind.TRUTH:
                condition = read
            case Kind.NUMBER:
                bound = bounds[info.type.unit]
                value = f"now() - {read}" if path in ("pod.created", "pod.queued") else read
                condition = f"({value} ?? {bound}) > {bound}" if info.maybe else f"{value} > {bound}"
            case Kind.LIST:
                condition = f'"{"x=y" if path == "pod.node_selector" else "x"}" in {read}'
            case _:
                condition = f'{read} == "{next(iter(sorted(info.words or ())), "x")}"'
        yield read, f"any(p in node.pods where {condition})" if of_running else condition


@pytest.mark.parametrize(("read", "condition"), list(conditions()))
def test_every_field_is_varied_or_named(
    read: str, condition: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, code = first(tmp_path, f"filter {condition}", capsys)
    assert code == 0, text
    assert "No case was found" not in text or f"# {CANNOT_VARY}\n# - {read} (line 1)" in text, text


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("", "has no clauses to test"),
        ("let x = 1", "has no clauses"),
        ("filter nod.ready", "did you mean `node`?"),
    ],
)
def test_a_policy_that_cannot_be_tested(
    policy: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, code = first(tmp_path, policy, capsys)
    assert code == 2
    assert message in text


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.policy").write_text("filter node.ready\n")
    assert run(["test", "--init", str(tmp_path / "p.policy")]) == 0
    before = (tmp_path / "p.test.yaml").read_text()
    capsys.readouterr()
    assert run(["test", "--init", str(tmp_path / "p.policy")]) == 2
    assert "already exists" in capsys.readouterr().err
    assert (tmp_path / "p.test.yaml").read_text() == before


def test_the_same_policy_gives_the_same_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = SHOWN[6]
    assert first(tmp_path, policy, capsys) == first(tmp_path, policy, capsys)


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=4), min_size=1, max_size=4))
def test_a_form_is_what_is_common_and_its_difference(forms: list[dict[str, int]]) -> None:
    base = common(forms)
    for form in forms:
        assert {**base, **difference(form, base)} == form

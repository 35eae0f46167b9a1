"""`policyctl doctor --karmada` of a control plane behind HTTP; the permissions are those of the manifests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.embedded import User
from kube_policy_scheduler.tooling.doctor.estimators import EstimatorAnswer, estimator_findings
from kube_policy_scheduler.tooling.doctor.findings import Status
from kube_policy_scheduler.tooling.doctor.fleet import NEEDED_FOR_FLEET
from tests.fakes.secure_cluster import SecureCluster
from tests.fleet.karmada.bindings import raw_binding, raw_cluster
from tests.fleet.worlds import cluster

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def control() -> Iterator[Any]:
    with SecureCluster(kubelets=None, controllers=None).in_thread() as running:
        running.load(raw_cluster(name) for name in ("a", "b"))
        web = raw_binding("web", has={"a": 3})
        del web["metadata"]["resourceVersion"]
        rules = [
            {"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": ["work.karmada.io"], "resources": ["resourcebindings"], "verbs": ["get", "list", "watch"]},
        ]
        version = "rbac.authorization.k8s.io/v1"
        running.load(
            [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
                web,
                {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": rules},
                {
                    "apiVersion": version,
                    "kind": "ClusterRoleBinding",
                    "metadata": {"name": "reader"},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
                    "subjects": [{"kind": "User", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}],
                },
            ]
        )
        yield running


def flags(folder: Path, config: Path | None = None) -> list[str]:
    given = ["--policies", str(folder / "a.policy"), "--kubeconfig", str(folder / "config"), "--format=json"]
    return [*given, *(["--config", str(config)] if config is not None else [])]


def findings(
    control: Any,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    user: User | None = None,
    policy: str = "divide evenly",
    config: Path | None = None,
) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Return the exit code, and the findings by their check."""
    control.kubeconfig(folder / "config", **({"user": user} if user is not None else {}))
    (folder / "a.policy").write_text(f"for workloads where true\n{policy}\n")
    code = run(["doctor", "--karmada", *flags(folder, config)])
    found: dict[str, list[dict[str, Any]]] = {}
    for each in json.loads(capsys.readouterr().out)["findings"]:
        found.setdefault(each["check"], []).append(each)
    return code, found


def test_a_fleet_in_which_all_is_well(control: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = findings(control, tmp_path, capsys)
    assert code == 0
    assert found["clusters"][0]["text"] == "2 clusters, all ready"
    assert found["workloads"][0]["text"] == "governs 1 of 1 workload"
    assert {each["status"] for each in found["permissions"]} == {"ok"}


@pytest.mark.parametrize(
    "clause",
    [
        "limit sum(replicas) to 9 over region",
        "spread by workload.name over region",
        "spread by workload.name over region max skew 1",
    ],
)
def test_what_clauses_are_over_is_looked_for_as_the_field_that_says_it(
    clause: str, control: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, found = findings(control, tmp_path, capsys, policy=clause)
    said = [(each["subject"], each["status"]) for each in found["fields"]]
    assert said == [("cluster.region", "warning")]
    assert "labels" not in found


def test_what_the_account_may_not_do(control: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = findings(control, tmp_path, capsys, User("reader"))
    assert code == 1
    problem, events = found["permissions"]
    assert (problem["status"], events["status"]) == ("problem", "warning")
    assert "patch resourcebindings.work.karmada.io" in problem["text"]
    assert "get/list/watch/patch clusterresourcebindings.work.karmada.io" in problem["text"]
    assert "clusters.cluster.karmada.io" not in problem["text"]
    assert events["text"].endswith("no events are written")
    assert any("clusterresourcebindings" in each["text"] for each in found["fleet"])
    assert {each["status"] for each in found["fleet"]} == {"could-not-check"}


def test_estimators_of_the_configuration_are_asked(
    control: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "fleet.yaml"
    config.write_text("fleet: {estimators: {address: '{cluster}.invalid:1', timeout: 1s}}\n")
    code, found = findings(control, tmp_path, capsys, config=config)
    (problem,) = found["estimators"]
    assert (code, problem["status"], problem["subject"]) == (1, "problem", "a, b")
    assert problem["text"].startswith("no answer: ")
    config.write_text("fleet: {parallelWrites: 2}\n")
    assert "estimators" not in findings(control, tmp_path, capsys, config=config)[1]
    config.write_text("fleet: {estimators: {address: '{cluster}:1', caFile: none.crt}}\n")
    (problem,) = findings(control, tmp_path, capsys, config=config)[1]["estimators"]
    assert "none.crt" in problem["text"]
    config.write_text("fleet: {estimators: {address: 'x:1'}}\n")
    assert run(["doctor", "--karmada", *flags(tmp_path, config)]) == 2
    assert "expected an address with `{cluster}`" in capsys.readouterr().err


NOW = 1_800_000_000.0


def answer(**given: Any) -> EstimatorAnswer:
    fine = {"problem": "", "seconds": 0.1, "room": 5, "source": "capacity", "version": "1.0", "expires": NOW + 1e8}
    return EstimatorAnswer(**{"cluster": "a", **fine, **given})


@pytest.mark.parametrize(
    ("given", "status", "text"),
    [
        ({}, Status.OK, "1 estimator answers"),
        ({"source": "estimator", "version": "", "expires": None}, Status.OK, "1 estimator answers"),
        ({"problem": "UNAVAILABLE: x"}, Status.PROBLEM, "no answer: UNAVAILABLE: x; room follows from the status"),
        ({"room": -1}, Status.WARNING, "no opinion: room follows from the status of the cluster"),
        ({"room": 7}, Status.WARNING, "more room than the sums of the status allow"),
        ({"cluster": "unknown", "room": 7}, Status.OK, "1 estimator answers"),
        ({"seconds": 1.6}, Status.WARNING, "slow: it takes more than half of the 3 s that it has"),
        ({"version": "0.9"}, Status.WARNING, "another version: 0.9; this is 1.0"),
        ({"version": ""}, Status.WARNING, "another version: an older version that does not say which; this is 1.0"),
        ({"expires": NOW + 86_400}, Status.WARNING, "its certificate ends 2027-01-16 08:00:00"),
    ],
)
def test_what_estimators_say(given: dict[str, Any], status: Status, text: str) -> None:
    known = {"a": cluster("a", 6)}
    (found,) = estimator_findings([answer(**given)], known, timeout=3.0, version="1.0", now=NOW)
    assert found.status is status
    assert found.text.startswith(text)


def test_clusters_with_the_same_finding_are_named_together() -> None:
    answers = [answer(cluster=name, room=-1) for name in "abcdefgh"] + [answer(cluster="z")]
    grouped, fine = estimator_findings(answers, {}, timeout=3.0, version="1.0", now=NOW)
    assert grouped.subject.startswith("a, b")
    assert fine.text == "1 estimator answers"


def test_the_manifests_grant_what_is_needed() -> None:
    text = (ROOT / "deploy/fleet/control-plane/access.yaml").read_text()
    (role,) = (each for each in yaml.safe_load_all(text) if each["kind"] == "ClusterRole")
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {(each.group, each.resource, each.verb) for each in NEEDED_FOR_FLEET}
    assert needed <= granted
    assert {group for group, _, _ in granted - needed} == {"apps", "batch"}, "of templates"

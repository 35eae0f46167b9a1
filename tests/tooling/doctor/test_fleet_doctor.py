"""`policyctl doctor --karmada` of a control plane behind HTTP; the permissions are those of the manifests."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
import yaml

from kube_policy_scheduler.adapters.kube.errors import KubeError, NotFound
from kube_policy_scheduler.adapters.kube.member_probe import needed_of_members, probe_members
from kube_policy_scheduler.adapters.kube.served_apis import served_apis
from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.embedded import EmbeddedCluster, User
from kube_policy_scheduler.fleet.live_answers import MemberAnswer, NeededApi, ServedApi
from kube_policy_scheduler.tooling.doctor.engines import ENGINES, engine_findings
from kube_policy_scheduler.tooling.doctor.estimators import EstimatorAnswer, estimator_findings
from kube_policy_scheduler.tooling.doctor.findings import Status
from kube_policy_scheduler.tooling.doctor.members import member_findings
from tests.daemon.test_members import Karmada, pem_of, server_tls
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


@pytest.mark.parametrize("engine", ENGINES)
def test_the_manifests_grant_what_is_needed(engine: str) -> None:
    """And a live engine is asked about nothing less: what else they grant is of other namespaces, or of templates."""
    needs = ENGINES[engine]
    text = (ROOT / needs.manifests / "access.yaml").read_text()
    roles = [each for each in yaml.safe_load_all(text) if each["kind"] in ("ClusterRole", "Role")]
    granted = {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {(each.group, each.resource, each.verb) for each in needs.permissions}
    assert needed <= granted
    beside = {(resource, verb) for group, resource, verb in granted - needed if group not in ("apps", "batch")}
    assert {what for what in beside if what[0] != "leases"} == BESIDE.get(engine, set())


BESIDE = {"clusterprofile": {("placementdecisions", verb) for verb in ("create", "patch", "delete")}}
"""What is granted in a namespace that the settings say, so that it is not known which."""


# --- what the engine serves ----------------------------------------------------------------------------------

FINE = ServedApi(("v1alpha2",), is_served=True)


@pytest.mark.parametrize(
    ("given", "status", "text"),
    [
        ({}, Status.OK, "serves cluster.karmada.io/v1alpha1, work.karmada.io/v1alpha2 with all fields"),
        ({"versions": (), "is_served": False}, Status.PROBLEM, "is not served in v1alpha1"),
        ({"versions": ("v2",), "is_served": False}, Status.PROBLEM, "is not served in v1alpha1, only in v2"),
        ({"unknown": ("spec.x",)}, Status.PROBLEM, "has no spec.x in v1alpha1: the API server drops what is written"),
        ({"problem": "no answer"}, Status.UNCHECKED, "whether it is served: no answer"),
        ({"unchecked": "no schema"}, Status.UNCHECKED, "whether it has all fields that are written: no schema"),
    ],
)
def test_what_an_engine_serves(given: dict[str, Any], status: Status, text: str) -> None:
    answers = [dataclasses.replace(FINE, **given)] + [FINE] * (len(ENGINES["karmada"].apis) - 1)
    (found,) = engine_findings(ENGINES["karmada"], answers)
    assert (found.status, found.text[: len(text)]) == (status, text)


def test_what_an_engine_need_not_serve_is_no_problem() -> None:
    needs = ENGINES["multikueue"]
    answers = [ServedApi(is_served=each.plural != "clusterprofiles") for each in needs.apis]
    (found,) = engine_findings(needs, answers)
    assert (found.subject, found.status) == ("clusterprofiles.multicluster.x-k8s.io", Status.OK)


SCHEMA = {
    "components": {
        "schemas": {
            "io.karmada.work.v1alpha2.ResourceBinding": {
                "x-kubernetes-group-version-kind": [
                    {"group": "work.karmada.io", "version": "v1alpha2", "kind": "ResourceBinding"}
                ],
                "properties": {
                    "metadata": {"allOf": [{"$ref": "#/components/schemas/Meta"}], "default": {}},
                    "spec": {
                        "properties": {
                            "clusters": {"type": "array", "items": {"properties": {"name": {"type": "string"}}}},
                            "free": {"x-kubernetes-preserve-unknown-fields": True},
                            "words": {"additionalProperties": {"type": "string"}},
                            "loop": {"$ref": "#/components/schemas/Loop"},
                        }
                    },
                },
            },
            "Meta": {"properties": {"name": {"type": "string"}}},
            "Loop": {"properties": {"loop": {"$ref": "#/components/schemas/Loop"}}},
        }
    }
}


class Discovery:
    """What an API server says of itself, by path."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers

    async def request(self, verb: str, path: str, **given: Any) -> bytes:
        found = self._answers.get(path, NotFound("no", status=404))
        if isinstance(found, Exception):
            raise found
        return json.dumps(found).encode()


GROUP, VERSION = "/apis/work.karmada.io", "/apis/work.karmada.io/v1alpha2"
SERVED = {
    GROUP: {"versions": [{"version": "v1alpha2"}, {"version": "v1alpha1"}]},
    VERSION: {"resources": [{"name": "resourcebindings", "kind": "ResourceBinding"}]},
    f"/openapi/v3{VERSION}": SCHEMA,
}
BOTH = ("v1alpha2", "v1alpha1")
FIELDS = (
    "metadata.name", "metadata.none", "spec.clusters.name", "spec.clusters.replicas", "spec.free.x.y", "spec.words.a",
    "spec.loop.loop.loop", "status.x",
)  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (SERVED, ServedApi(BOTH, True, ("metadata.none", "spec.clusters.replicas", "status.x"))),
        ({}, ServedApi()),
        (SERVED | {GROUP: {"versions": [{"version": "v1"}]}}, ServedApi(("v1",))),
        (SERVED | {VERSION: {"resources": []}}, ServedApi(BOTH)),
        (SERVED | {GROUP: KubeError("no answer")}, ServedApi(problem="no answer")),
        (
            SERVED | {f"/openapi/v3{VERSION}": {}},
            ServedApi(BOTH, True, unchecked="the API server publishes no schema of it"),
        ),
        (SERVED | {f"/openapi/v3{VERSION}": KubeError("no")}, ServedApi(BOTH, True, unchecked="no")),
        *(
            (
                SERVED | {f"/openapi/v3{VERSION}": {"components": odd}},
                ServedApi(BOTH, True, unchecked="the API server publishes no schema of it"),
            )
            for odd in ([], {"schemas": 1}, {"schemas": {"a": {"x-kubernetes-group-version-kind": 1}, "b": 2}})
        ),
    ],
)
async def test_versions_and_fields_that_an_api_server_knows(answers: dict[str, Any], expected: ServedApi) -> None:
    asked = NeededApi("work.karmada.io", "v1alpha2", "resourcebindings", FIELDS)
    (found,) = await served_apis(cast(Any, Discovery(answers)), [asked])
    assert found == expected


# --- the nodes and pods of clusters --------------------------------------------------------------------------


def member(**given: Any) -> MemberAnswer:
    fine = {"problem": "", "seconds": 0.1, "is_verified": True, "may_list": {"nodes": True, "pods": True}}
    return MemberAnswer(**{"cluster": "a", **fine, **given})


NO_NODES, NO_CSI = {"nodes": False, "csinodes": False}, {"nodes": True, "csinodes": False}


@pytest.mark.parametrize(
    ("given", "status", "text", "advice"),
    [
        ({}, Status.OK, "nodes and pods of 1 cluster can be read", ""),
        ({"problem": "403 Forbidden: secrets"}, Status.PROBLEM, "nodes and pods cannot be read: 403", "apply deploy/"),
        ({"problem": "its Cluster has no spec.secretRef"}, Status.PROBLEM, "nodes and pods cannot", "clusters in pull"),
        ({"problem": "cannot reach x"}, Status.PROBLEM, "nodes and pods cannot be read: cannot", "look at `spec`"),
        ({"may_list": NO_NODES}, Status.PROBLEM, "its credentials do not allow to list nodes;", "let the account"),
        ({"may_list": NO_CSI}, Status.WARNING, "its credentials do not allow to list csinodes:", "let the account"),
        ({"may_list": {"nodes": "no answer"}}, Status.UNCHECKED, "what its credentials allow: no answer", ""),
        ({"is_verified": False}, Status.WARNING, "the certificate of its API server is not verified", "set `caBundle`"),
        ({"seconds": 3.0}, Status.WARNING, "slow: one small answer takes more than 2 s", "look at its API server"),
    ],
)
def test_what_is_said_of_members(given: dict[str, Any], status: Status, text: str, advice: str) -> None:
    (found,) = member_findings([member(**given)], needed=("nodes", "pods"), asked=("count(n in cluster.nodes)",))
    assert found.status is status
    assert found.text.startswith(text)
    assert found.advice.startswith(advice)


def test_members_are_looked_at_if_policies_read_them(
    control: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "members" not in findings(control, tmp_path, capsys)[1]
    code, found = findings(control, tmp_path, capsys, policy="score count(n in cluster.nodes) ?? 0\ndivide evenly")
    (problem,) = found["members"]
    assert (code, problem["subject"], problem["status"]) == (1, "a, b", "problem")
    assert "its Cluster has no spec.apiEndpoint" in problem["text"]
    assert "the values of policies are missing there" in problem["text"]
    config = tmp_path / "fleet.yaml"
    config.write_text("fleet: {estimators: {members: true}}\n")
    (problem,) = findings(control, tmp_path, capsys, config=config)[1]["members"]
    assert "room follows from the status of the cluster" in problem["text"]


def test_members_are_asked_what_the_credentials_of_karmada_allow() -> None:
    async def look() -> list[MemberAnswer]:
        authority = trustme.CA()
        async with EmbeddedCluster(kubelets=None, controllers=None, ssl_context=server_tls(authority)) as there:
            karmada = Karmada(there.url, authority=pem_of(authority), insecureSkipTLSVerification=True)
            return await probe_members(cast(Any, karmada), ["member1", "gone"])

    found, gone = asyncio.run(look())
    assert (found.problem, found.is_verified) == ("", False)
    assert {*needed_of_members()} == {"nodes", "pods"}
    assert found.may_list["nodes"] is found.may_list["pods"] is True
    assert gone.problem


@pytest.mark.parametrize("engine", ENGINES)
def test_a_live_engine_is_asked_what_it_serves_and_allows(
    engine: str, control: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control.kubeconfig(tmp_path / "config")
    (tmp_path / "a.policy").write_text("for workloads where true\ndivide evenly\n")
    given = flags(tmp_path)
    if engine != "karmada":  # nothing is looked at but the engine
        at = given.index("--policies")
        given = [*given[:at], *given[at + 2 :]]
    code = run(["doctor", "--for", engine, *given])
    found = [each for each in json.loads(capsys.readouterr().out)["findings"] if each["check"] == "engine"]
    texts = {each["text"] for each in found}
    assert (code, {each["status"] for each in found}) == (0, {"could-not-check"})
    assert texts == {"whether it has all fields that are written: the API server publishes no schema of it"}


def test_flags_that_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.policy").write_text("for workloads where true\ndivide evenly\n")
    excluding = (
        ["--karmada", "--for", "ocm"], ["--for", "ocm", "--cluster", "x.yaml"], ["--for", "ocm", "--fleet", "x.yaml"],
    )  # fmt: skip
    for given in excluding:
        assert run(["doctor", "--policies", str(tmp_path), *given]) == 2
        assert "use one of" in capsys.readouterr().err
    for given in ([], ["--karmada"], ["--for", "karmada"], ["--fleet", "x.yaml"]):
        assert run(["doctor", *given]) == 2
        assert "Missing option '--policies'" in capsys.readouterr().err

"""The configuration file: its settings and its errors."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from jsonschema import Draft202012Validator
from msgspec.inspect import is_struct_type
from msgspec.structs import fields
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.daemon.configuration.settings import Settings, load_settings, parse_settings, settings_schema
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.report import camel_case
from kube_policy_scheduler.documents.yaml_document import DocumentError

FOLDER = Path("/etc/policy-scheduler")
CA_DATA = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()
HEAD = "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"


def settings(text: str) -> Settings:
    return parse_settings(Source("config.yaml", HEAD + text), folder=FOLDER)


def test_nothing_has_to_be_set() -> None:
    assert settings("") == Settings()


def test_a_section_with_every_line_commented_out_is_the_default() -> None:
    assert settings("http:\n  # port: 1\nprometheus:\nschedulerNames:\n") == Settings()


CASES: dict[str, tuple[str, object, str]] = {
    "mode": ("shadow", "shadow", "shadows"),
    "schedulerNames": ("[batch, default-scheduler]", ("batch", "default-scheduler"), "[]"),
    "kubernetes.kubeconfig": ("admin.conf", FOLDER / "admin.conf", "[admin.conf]"),
    "kubernetes.context": ("prod", "prod", "1"),
    "kubernetes.nodeSelector": ("cell=3", "cell=3", "1"),
    "kubernetes.podSelector": ("cell=3", "cell=3", "1"),
    "kubernetes.qps": ("50.5", 50.5, "-1"),
    "kubernetes.burst": ("200", 200, "0"),
    "kubernetes.version": ('"1.37"', "1.37", "1.37"),
    "kubernetes.featureGates": (
        "[VolumeLimitScaling=false]",
        ("VolumeLimitScaling=false",),
        "[SchedulerAsyncPreemption=false]",
    ),
    "policies.path": ("rules", FOLDER / "rules", "7"),
    "policies.configMap": ("kube-system/policies", "kube-system/policies", "policies"),
    "policies.checksums": ("true", True, "1"),
    "policies.publicKeyFile": ("key.pem", FOLDER / "key.pem", "[]"),
    "policies.extensions": ("[our-functions]", ("our-functions",), "[Our_Functions]"),
    "policies.owners[].name": ("team-b", "team-b", "Team_B"),
    "policies.owners[].path": ("team-b", FOLDER / "team-b", "7"),
    "policies.owners[].schedulingPolicies": ("team-b", "team-b", "team-*"),
    "policies.owners[].configMap": ("team-b/policies", "team-b/policies", "policies"),
    "policies.owners[].namespaces": ("[team-b-*]", ("team-b-*",), "[]"),
    "policies.owners[].pods": ("pod label tier=web", "pod label tier=web", "pod label"),
    "policies.owners[].maxPriority": ("10", 10, "1.5"),
    "policies.owners[].statements": ("[filter, score]", ("filter", "score"), "[policy]"),
    "policies.owners[].schedulerNames": ("[batch]", ("batch",), "[Batch_]"),
    "prometheus.url": ("https://prometheus.monitoring:9090/x", "https://prometheus.monitoring:9090/x", "p:9090"),
    "prometheus.bearerTokenFile": ("/var/run/token", Path("/var/run/token"), "true"),
    "prometheus.caFile": ("ca.pem", FOLDER / "ca.pem", "[]"),
    "prometheus.clientCertificateFile": ("tls.crt", FOLDER / "tls.crt", "{}"),
    "prometheus.clientKeyFile": ("tls.key", FOLDER / "tls.key", "{}"),
    "prometheus.timeout": ("2s", 2.0, "5m"),
    "prometheus.nodeLabel": ("kubernetes_node", "kubernetes_node", "1"),
    "prometheus.primeTimeout": ("0s", 0.0, "-1s"),
    "http.host": ("0.0.0.0", "0.0.0.0", "[]"),
    "http.port": ("8443", 8443, "70000"),
    "http.tls.certificateFile": ("serving.crt", FOLDER / "serving.crt", "1"),
    "http.tls.keyFile": ("serving.key", FOLDER / "serving.key", "1"),
    "http.tls.clientCaFile": ("ca.pem", FOLDER / "ca.pem", "1"),
    "http.tls.clientNames": ("[kube-scheduler]", ("kube-scheduler",), "kube-scheduler"),
    "http.authentication": ("kubernetes", "kubernetes", "basic"),
    "log.format": ("json", "json", "jsno"),
    "log.level": ("debug", "debug", "trace"),
    "decisionLog.kept": ("0", 0, "-1"),
    "decisionLog.directory": ("log", FOLDER / "log", "1"),
    "decisionLog.fileMebibytes": ("1", 1, "0"),
    "decisionLog.files": ("2", 2, "0"),
    "decisionLog.repeatAfter": ("1min", 60.0, "1m"),
    "decisionLog.detailShare": ("0.5", 0.5, "2"),
    "decisionLog.bestNodes": ("1", 1, "0"),
    "leaderElection.enabled": ("false", False, "yes"),
    "leaderElection.leaseName": ("batch", "batch", "My_Lease"),
    "leaderElection.leaseNamespace": ("batch-system", "batch-system", "-"),
    "leaderElection.leaseDuration": ("1min", 60.0, "15"),
    "leaderElection.renewDeadline": ("12s", 12.0, "20s"),
    "leaderElection.retryPeriod": ("5s", 5.0, "9s"),
    "rebalancing.dryRun": ("false", False, "no"),
    "rebalancing.every": ("10min", 600.0, "0s"),
    "rebalancing.most": ("9", 9, "-1"),
    "rebalancing.mostPerNode": ("9", 9, "-1"),
    "rebalancing.mostPerWorkload": ("9", 9, "-1"),
    "rebalancing.mostPerNamespace": ("9", 9, "-1"),
    "rebalancing.mostPerHour": ("9", 9, "-1"),
    "rebalancing.reserve": ("1min", 60.0, "0s"),
    "rebalancing.moveLocalStorage": ("true", True, "on"),
    "sharding.enabled": ("true", True, "on"),
    "sharding.unit": ("pod", "pod", "node"),
    "scheduling.seed": ("7", 7, "-1"),
    "scheduling.parallelBinds": ("16", 16, "1.5"),
    "scheduling.deviceAnnotation": ("trusted", "trusted", "ignored"),
    "scheduling.recountEvery": ("0s", 0.0, "0"),
    "scheduling.cacheMebibytes": ("64", 64, "0"),
    "scheduling.compiledKernels": ("false", False, "off"),
    "scheduling.preemptForResizes": ("true", True, "on"),
    "scheduling.percentageOfNodesToAsk": ("30", 30, "101"),
    "extenders[].urlPrefix": ("https://x:1/y", "https://x:1/y", "x:1"),
    "extenders[].filterVerb": ("filter", "filter", "a b"),
    "extenders[].prioritizeVerb": ("prioritize", "prioritize", "a b"),
    "extenders[].preemptVerb": ("preempt", "preempt", "a b"),
    "extenders[].bindVerb": ("bind", "bind", "1"),
    "extenders[].weight": ("5", 5, "-1"),
    "extenders[].enableHTTPS": ("true", True, "yes"),
    "extenders[].tlsConfig.insecure": ("true", True, "1"),
    "extenders[].tlsConfig.serverName": ("x.y", "x.y", "1"),
    "extenders[].tlsConfig.certFile": ("c.pem", FOLDER / "c.pem", "1"),
    "extenders[].tlsConfig.keyFile": ("k.pem", FOLDER / "k.pem", "1"),
    "extenders[].tlsConfig.caFile": ("ca.pem", FOLDER / "ca.pem", "1"),
    "extenders[].tlsConfig.caData": (CA_DATA, CA_DATA, "bm90aGluZw=="),
    "extenders[].httpTimeout": ("10s", 10.0, "0s"),
    "extenders[].nodeCacheCapable": ("true", True, "on"),
    "extenders[].managedResources[].name": ("example.com/gpu", "example.com/gpu", "cpu"),
    "extenders[].managedResources[].ignoredByScheduler": ("true", True, "on"),
    "extenders[].ignorable": ("true", True, "on"),
    "shadow.schedulerNames": ("[batch]", ("batch",), "[a, a]"),
    "shadow.giveUpAfter": ("1min", 60.0, "0s"),
    "shadow.kept": ("10", 10, "-1"),
    "extender.path": ("/rules/v1", "/rules/v1", "rules"),
    "estimator.clusterName": ("member1", "member1", "Member_1"),
    "estimator.host": ("0.0.0.0", "0.0.0.0", "[]"),
    "estimator.port": ("0", 0, "65536"),
    "estimator.certificateFile": ("tls.crt", FOLDER / "tls.crt", "[]"),
    "estimator.keyFile": ("tls.key", FOLDER / "tls.key", "[]"),
    "estimator.clientCaFile": ("ca.crt", FOLDER / "ca.crt", "[]"),
    "estimator.computation": ("2s", 2.0, "0s"),
    "fleet.leaseName": ("fleet", "fleet", "Fleet_1"),
    "fleet.featureGates": ("[WorkloadAffinity]", ("WorkloadAffinity",), "[WorkloadAfinity]"),
    "fleet.enableEmptyWorkloadPropagation": ("true", True, "1"),
    "fleet.estimators.address": ("'e.{cluster}.x:10352'", "e.{cluster}.x:10352", "e.x:10352"),
    "fleet.estimators.members": ("true", True, "1"),
    "fleet.estimators.caFile": ("ca.crt", FOLDER / "ca.crt", "[]"),
    "fleet.estimators.certificateFile": ("tls.crt", FOLDER / "tls.crt", "[]"),
    "fleet.estimators.keyFile": ("tls.key", FOLDER / "tls.key", "[]"),
    "fleet.estimators.timeout": ("2s", 2.0, "0s"),
    "fleet.parallelWrites": ("4", 4, "0"),
    "fleet.engine": ("multikueue", "multikueue", "kueue"),
    "fleet.nominateMoreAfter": ("1min", 60.0, "0s"),
    "fleet.profilesNamespace": ("clusters", "clusters", "Not A Name"),
    "extender.kubernetesRules": ("true", True, "1"),
    "extender.maxRequestMebibytes": ("16", 16, "0"),
    "tracing.endpoint": ("https://collector:4318", "https://collector:4318", "collector"),
    "tracing.sampledShare": ("0.5", 0.5, "50"),
}
"""By setting: a valid value as it is written, the same as it is read, and an invalid one."""
NEEDED: dict[str, dict[str, str]] = {
    "policies.owners[]": {"name": "team-a", "namespaces": "[team-a]", "path": "team-a"},
    "policies.owners[].schedulingPolicies": {"path": "null"},
    "extenders[]": {"urlPrefix": "http://x"},
    "extenders[].prioritizeVerb": {"weight": "1"},
    "extenders[].tlsConfig.certFile": {"keyFile": "k"},
    "extenders[].tlsConfig.keyFile": {"certFile": "c"},
    "extenders[].managedResources[].ignoredByScheduler": {"name": "example.com/gpu"},
    "prometheus": {"url": "http://p"},
    "prometheus.clientCertificateFile": {"clientKeyFile": "k"},
    "prometheus.clientKeyFile": {"clientCertificateFile": "c"},
    "http.tls.certificateFile": {"keyFile": "k"},
    "http.tls.keyFile": {"certificateFile": "c"},
    "http.tls.clientNames": {"clientCaFile": "ca"},
    "estimator.certificateFile": {"keyFile": "k"},
    "estimator.keyFile": {"certificateFile": "c"},
    "estimator.clientCaFile": {"certificateFile": "c", "keyFile": "k"},
    "fleet.estimators": {"address": "'e.{cluster}.x:1'"},
    "fleet.estimators.certificateFile": {"keyFile": "k", "caFile": "c"},
    "fleet.estimators.keyFile": {"certificateFile": "c", "caFile": "c"},
    "tracing": {"endpoint": "http://c"},
}
"""What else must be set, by section or setting."""


def keys(kind: Any, prefix: str = "") -> Iterator[str]:
    """Every setting as the file names it, with its sections; `[]` marks a list of sections."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        key, hint = prefix + camel_case(field.name), hints[field.name]
        sections = [each for each in (hint, *get_args(hint)) if is_struct_type(each)]
        many = "[]" if get_origin(hint) is tuple else ""
        yield from keys(sections[0], f"{key}{many}.") if sections else [key]


def written(key: str, value: str) -> str:
    """A file that sets one setting, and what it needs beside it."""
    *sections, name = key.split(".")
    given = {**NEEDED.get(".".join(sections), {}), **NEEDED.get(key, {}), name: value}
    text = ", ".join(f"{each}: {set_to}" for each, set_to in given.items())
    for depth, section in reversed([*enumerate(sections)]):
        around = NEEDED.get(".".join(sections[:depth]), {}) if depth else {}
        outer = "".join(f", {each}: {set_to}" for each, set_to in around.items())
        text = (f"{section[:-2]}: [{{{text}}}]" if section.endswith("[]") else f"{section}: {{{text}}}") + outer
    return text


def test_every_setting_has_a_case() -> None:
    assert set(CASES) == set(keys(Settings))


def _as_in_python(found: re.Match[str]) -> str:
    return f"_{found[0]}" if len(found[0]) > 1 else f"_{found[0].lower()}"


@pytest.mark.parametrize("key", CASES)
def test_each_setting_is_read(key: str) -> None:
    text, value, _ = CASES[key]
    found: Any = settings(written(key, text))
    default: Any = Settings()
    for name in key.split("."):
        snake = re.sub("[A-Z]+", _as_in_python, name.removesuffix("[]"))
        found, default = getattr(found, snake), getattr(default, snake, None)
        found = found[0] if name.endswith("[]") else found
    assert found == value
    assert found != default


@pytest.mark.parametrize("key", CASES)
def test_an_invalid_value_of_each_setting_is_an_error_that_names_it(key: str) -> None:
    with pytest.raises(DocumentError) as raised:
        settings(written(key, CASES[key][2]))
    assert re.search(rf"\b{key.rpartition('.')[2]}\b", str(raised.value).splitlines()[0]), raised.value


@pytest.mark.parametrize(
    "text",
    [
        "prometheus: {}",
        "prometheus: {url: prometheus:9090, timeout: 5m, primeTimeout: -1s}",
        "prometheus: {url: 'http://p', clientKeyFile: k}",
        "http: {tls: {keyFile: k}}",
        "http: {tls: {}, authentication: basic}",
        "decisionLog: {kept: -1, detailShare: 2, files: 0}",
        "schedulerNames: []",
        "schedulerNames: [a, a, My_Scheduler]",
        "log: {format: jsno, levle: info}",
        "leaderElection: {enabled: yes, renewDeadline: 20s}",
        "leaderElection: {renewDeadline: 20s}",
        "leaderElection: {renewDeadline: 10s, retryPeriod: 9s}",
        "http: {port: 70000}\nscheduling: {seed: -1, parallelBinds: 1.5}",
        "policies: {configMap: policies}\nmetrics: {}",
        "http: [1]",
        "mode: shadows\nextender: {path: extender}\nshadow: {schedulerNames: []}",
        "http: {tls: {clientNames: [scheduler]}}",
        "mode: estimator\nestimator: {clientCaFile: ca.pem}",
        "mode: scheduler\nfleet: {estimators: {address: 'e.{cluster}.x:1', certificateFile: a, keyFile: b}}",
        "mode: scheduler\nfleet: {estimators: {members: false}}",
        "mode: scheduler\nfleet: {estimators: {members: true, caFile: ca.crt}}",
        "mode: scheduler\nestimator: {keyFile: tls.key}",
    ],
)
def test_a_wrong_configuration_is_explained(text: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(DocumentError) as raised:
        settings(text)
    assert str(raised.value) == snapshot


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schedulerNames: [a]", "config.yaml:1:1: error[D0012]: key `apiVersion` is missing"),
        (HEAD.replace("v1alpha1", "v1"), "apiVersion: expected policy-scheduler/v1alpha1, got policy-scheduler/v1"),
        (HEAD.replace("Policy", "Kube"), "kind: expected PolicySchedulerConfiguration, got KubeSchedulerConfiguration"),
        (HEAD + "decisionLog: {detailShare: .nan}", "decisionLog.detailShare: expected a number, got NaN"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as raised:
        parse_settings(Source("config.yaml", text))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("forecasting: {horizon: 1h, models: [a]}", ["forecasting (config.yaml, line 3)"]),
        ("http: {port: 1, websockets: true}", ["http.websockets (config.yaml, line 3)"]),
        ("http:\n  port: 1\n  tls:\n    cipherSuites: [x]", ["http.tls.cipherSuites (config.yaml, line 6)"]),
        (
            "policies:\n  owners:\n  - {name: a, path: /a, namespaces: [a], forecast: x}\nzebra: 1",
            ["policies.owners[0].forecast (config.yaml, line 5)", "zebra (config.yaml, line 6)"],
        ),
        ("http: {port: 1}", []),
    ],
)
def test_keys_of_a_later_version_can_be_left_out(text: str, ignored: list[str]) -> None:
    source, found = Source("config.yaml", HEAD + text), []  # type: ignore[var-annotated]
    made = parse_settings(source, folder=FOLDER, ignored=found)
    assert found == ignored
    assert made.http.port == (1 if "port" in text else Settings().http.port)
    if ignored:
        with pytest.raises(DocumentError, match="unknown key"):
            settings(text)


@pytest.mark.parametrize(
    "text",
    [
        "polices: {path: x}",
        "policies: {publickeyFile: key.pem}",
        "policies: {publicKeysFile: key.pem}",
        "publicKeyFile: key.pem",
        "http: {clientCaFile: ca.pem}",
        "http: {tls: {clientCAFile: ca.pem}}",
        "http: {autentication: kubernetes}",
        "leaderelection: {enabled: false}",
        "leaseDuration: 30s",
        "policies: {owners: [{name: a, path: /a, namespaces: [a], maxPriorty: 1}]}",
    ],
)
def test_a_key_that_is_mistyped_or_misplaced_is_an_error_in_every_case(text: str) -> None:
    """What it was to switch on, such as signatures, would be off."""
    with pytest.raises(DocumentError, match="unknown key"):
        parse_settings(Source("config.yaml", HEAD + text), folder=FOLDER, ignored=[])


def test_a_file_is_read_with_paths_relative_to_it(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + "policies: {path: here}\n")
    assert load_settings(path).policies.path == tmp_path / "here"


def test_the_schema_is_a_valid_one_and_can_be_published() -> None:
    schema = json.loads(json.dumps(settings_schema()))
    Draft202012Validator.check_schema(schema)
    assert set(schema["properties"]) >= {"apiVersion", "kind", "schedulerNames", "prometheus"}

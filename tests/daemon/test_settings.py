"""The configuration file: what it means, and what is said about a wrong one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.daemon.configuration.settings import Settings, load_settings, parse_settings, settings_schema
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.yaml_document import DocumentError

HEAD = "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"


def settings(text: str) -> Settings:
    return parse_settings(Source("config.yaml", HEAD + text), folder=Path("/etc/policy-scheduler"))


def test_nothing_has_to_be_set() -> None:
    assert settings("") == Settings()


def test_a_section_with_every_line_commented_out_is_the_default() -> None:
    assert settings("http:\n  # port: 1\nprometheus:\nschedulerNames:\n") == Settings()


def test_everything_can_be_set() -> None:
    found = settings(
        """\
schedulerNames: [batch-scheduler, default-scheduler]
kubernetes: {kubeconfig: admin.conf, context: prod}
policies: {path: policies, configMap: kube-system/policies, checksums: true, publicKeyFile: key.pem}
prometheus:
  url: https://prometheus.monitoring:9090/prefix
  bearerTokenFile: /var/run/secrets/token
  caFile: ca.pem
  clientCertificateFile: tls.crt
  clientKeyFile: tls.key
  timeout: 2s
  nodeLabel: kubernetes_node
  primeTimeout: 0s
http: {host: 0.0.0.0, port: 0, tls: {certificateFile: serving.crt, keyFile: serving.key}, authentication: kubernetes}
log: {format: json, level: debug}
decisionLog: {kept: 100, directory: log, fileMebibytes: 1, files: 2, repeatAfter: 1min, detailShare: 0.5, bestNodes: 1}
leaderElection:
  enabled: false
  leaseName: batch
  leaseNamespace: batch-system
  leaseDuration: 1min
  renewDeadline: 40s
  retryPeriod: 5s
sharding: {enabled: true, unit: pod}
scheduling: {seed: 7, parallelBinds: 16}
mode: shadow
shadow: {schedulerNames: [default-scheduler, batch], giveUpAfter: 1min, kept: 10}
extender: {path: /rules/v1, kubernetesRules: true, maxRequestMebibytes: 16}
tracing: {endpoint: "https://collector:4318", sampledShare: 0.5}
"""
    )
    assert found.scheduler_names == ("batch-scheduler", "default-scheduler")
    assert found.kubernetes.kubeconfig == Path("/etc/policy-scheduler/admin.conf")
    assert found.policies.path == Path("/etc/policy-scheduler/policies")
    assert found.prometheus is not None
    assert found.prometheus.bearer_token_file == Path("/var/run/secrets/token")
    assert (found.prometheus.timeout, found.prometheus.node_label) == (2.0, "kubernetes_node")
    assert found.prometheus.prime_timeout == 0.0
    assert found.leader_election.lease_duration == 60.0
    assert found.http.tls is not None
    assert found.http.tls.key_file == Path("/etc/policy-scheduler/serving.key")
    assert found.decision_log.directory == Path("/etc/policy-scheduler/log")
    assert found.scheduling.parallel_binds == 16
    unset = [name for name in Settings.__dataclass_fields__ if getattr(found, name) == getattr(Settings(), name)]
    assert unset == [], "the text above is meant to set every section"


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
    ],
)
def test_a_file_of_another_kind_is_refused(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as raised:
        parse_settings(Source("config.yaml", text))
    assert message in str(raised.value)


def test_a_file_is_read_with_paths_relative_to_it(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + "policies: {path: here}\n")
    assert load_settings(path).policies.path == tmp_path / "here"


def test_the_schema_is_a_valid_one_and_can_be_published() -> None:
    schema = json.loads(json.dumps(settings_schema()))
    Draft202012Validator.check_schema(schema)
    assert set(schema["properties"]) >= {"apiVersion", "kind", "schedulerNames", "prometheus"}

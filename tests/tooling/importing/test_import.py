"""Imported policies: their texts, that they compile, and that they decide as kube-scheduler's plugins would."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.configuration.settings import Settings, parse_settings
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_document
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.default_profile import kubernetes_filters
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Weighted
from kube_policy_scheduler.framework.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from kube_policy_scheduler.framework.plugins.image_locality import ImageLocality
from kube_policy_scheduler.framework.plugins.resource_scores import LeastAllocated
from kube_policy_scheduler.framework.plugins.taint_toleration import TaintToleration
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.importing.settings import ImportedSettings, import_settings
from kube_policy_scheduler.tooling.importing.translation import Imported, import_configuration
from tests.benchmarks.manifests import add_node, node, pod, pod_info

Json = dict[str, Any]


def imported(*profiles: Json, **beside: Any) -> tuple[Imported, ...]:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": list(profiles),
    }
    text = yaml.safe_dump(configuration | beside)
    return import_configuration(parse_document(Source("config.yaml", text)))


def scoring(*enabled: Json, disabled: Sequence[str] = (), arguments: Json | None = None) -> Json:
    """A profile with other scores, and arguments by plugin."""
    plugins = {"score": {"enabled": list(enabled), "disabled": [{"name": name} for name in disabled]}}
    configs = [{"name": name, "args": args} for name, args in (arguments or {}).items()]
    return {"schedulerName": "mine", "plugins": plugins, "pluginConfig": configs}


SHAPE = [{"utilization": 0, "score": 0}, {"utilization": 70, "score": 10}, {"utilization": 100, "score": 8}]
TERMS = [
    {
        "matchExpressions": [
            {"key": "pool", "operator": "In", "values": ["a", "b"]},
            {"key": "generation", "operator": "Gt", "values": ["5"]},
        ]
    },
    {"matchExpressions": [{"key": "spot", "operator": "DoesNotExist"}]},
]
PROFILES: dict[str, Json] = {
    "default": {},
    "weights": scoring({"name": "ImageLocality", "weight": 5}, disabled=["NodeResourcesBalancedAllocation"]),
    "storage by a shape": scoring(
        arguments={
            "VolumeBinding": {
                "bindTimeoutSeconds": 60,
                "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
            }
        }
    ),
    "storage alone": scoring({"name": "VolumeBinding", "weight": 3}, disabled=["*"]),
    "most allocated": scoring(
        arguments={
            "NodeResourcesFit": {
                "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3},
                                                                            {"name": "memory", "weight": 1}]}
            }
        }
    ),
    "ratio": scoring(
        arguments={
            "NodeResourcesFit": {
                "scoringStrategy": {
                    "type": "RequestedToCapacityRatio",
                    "resources": [{"name": "cpu", "weight": 3}, {"name": "nvidia.com/gpu", "weight": 5}],
                    "requestedToCapacityRatio": {"shape": SHAPE},
                }
            }
        }
    ),
    "no score": scoring(disabled=["*"]),
    "no preemption": {"schedulerName": "mine", "plugins": {"postFilter": {"disabled": [{"name": "*"}]}}},
    "without a filter": {"schedulerName": "mine", "plugins": {"filter": {"disabled": [{"name": "VolumeZone"}]}}},
    "added affinity": scoring(
        arguments={
            "NodeAffinity": {
                "addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": TERMS}}
            }
        }
    ),
    "default constraints": scoring(
        arguments={
            "PodTopologySpread": {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
                ],
            }
        }
    ),
    "trimaran": {
        "schedulerName": "mine",
        "plugins": {
            "multiPoint": {
                "enabled": [
                    {"name": "TargetLoadPacking", "weight": 4},
                    {"name": "LoadVariationRiskBalancing"},
                    {"name": "Peaks"},
                ]
            }
        },
        "pluginConfig": [
            {"name": "TargetLoadPacking", "args": {"targetUtilization": 70, "defaultRequests": {"cpu": "2000m"}}},
            {"name": "LoadVariationRiskBalancing", "args": {"safeVarianceMargin": 1, "safeVarianceSensitivity": 2}},
        ],
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_becomes_a_policy_that_compiles(name: str, snapshot: SnapshotAssertion) -> None:
    (policy,) = imported(PROFILES[name])
    loaded = load([Source("mine.policy", policy.text)])
    assert loaded.policy_set is not None, loaded.diagnostics
    assert policy.text == snapshot


@pytest.mark.parametrize("seed", range(5))
def test_other_weights_decide_as_the_plugins_with_these_weights(seed: int) -> None:
    weights = {"TaintToleration": 1, "NodeResourcesFit": 7, "NodeResourcesBalancedAllocation": 2, "ImageLocality": 4}
    enabled = [{"name": name, "weight": weight} for name, weight in weights.items()]
    (policy,) = imported(scoring(*enabled, disabled=["*"]))
    scores = (
        Weighted(TaintToleration(), 1),
        Weighted(LeastAllocated(), 7),
        Weighted(NodeResourcesBalancedAllocation(), 2),
        Weighted(ImageLocality(), 4),
    )
    theirs = Profile("theirs", kubernetes_filters(), scores)
    loaded = load([Source("mine.policy", policy.text)])
    assert loaded.policy_set is not None
    ours = loaded.policy_set.policies[0].profile

    drawn = random.Random(seed)
    cluster = Cluster()
    for number in range(20):
        taints = [{"key": "old", "value": "", "effect": "PreferNoSchedule"}] if drawn.random() < 0.3 else []
        add_node(cluster, node(f"node-{number}", taints=taints))
    for number in range(150):
        info = pod_info(
            cluster, pod(f"pod-{number}", cpu=f"{drawn.randint(1, 300)}m", memory=f"{drawn.randint(1, 2000)}Mi")
        )
        frame = Frame(info, cluster, 0.0)
        expected = Cycle().decide(frame, theirs)
        assert Cycle().decide(frame, ours).host == expected.host
        assert expected.host is not None
        cluster.place(info, expected.host)


def test_what_a_policy_cannot_express_is_written_in_notes() -> None:
    (policy,) = imported(
        PROFILES["trimaran"],
        percentageOfNodesToScore=30,
        extenders=[{"urlPrefix": "http://gpu"}],
        clientConnection={"kubeconfig": "/etc/kubernetes/scheduler.conf", "qps": 50, "burst": 100},
    )
    assert any("`kubernetes: {qps: 50, burst: 100}`" in note for note in policy.notes)
    assert any("http://gpu" in note for note in policy.notes)
    assert any(note.startswith("Peaks:") for note in policy.notes)
    assert all(f"# - {note}" in policy.text for note in policy.notes)


EXTENDER = {
    "urlPrefix": "https://gpu.kube-system:8888/scheduler",
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "weight": 5,
    "enableHTTPS": True,
    "httpTimeout": "1m30s",
    "tlsConfig": {"caFile": "/etc/ca.pem", "serverName": "gpu"},
    "nodeCacheCapable": True,
    "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": True}],
    "ignorable": True,
}


def carried_over(**beside: Any) -> ImportedSettings:
    configuration = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **beside}
    return import_settings(parse_document(Source("config.yaml", yaml.safe_dump(configuration))))


def test_extenders_and_limits_become_settings_that_load() -> None:
    plain = {"urlPrefix": "http://plain", "httpTimeout": "0s", "bindVerb": "", "tlsConfig": None}
    found = carried_over(
        extenders=[EXTENDER, plain], clientConnection={"qps": 50, "burst": 100}, percentageOfNodesToScore=30
    )
    assert found.notes == ()
    settings = parse_settings(Source("config.yaml", found.text))
    first, second = settings.extenders
    assert (first.url_prefix, first.http_timeout, first.weight) == (EXTENDER["urlPrefix"], 90.0, 5)
    assert first.enable_HTTPS
    assert first.tls_config is not None
    assert (first.tls_config.ca_file, first.tls_config.server_name) == (Path("/etc/ca.pem"), "gpu")
    assert [(each.name, each.ignored_by_scheduler) for each in first.managed_resources] == [("example.com/gpu", True)]
    assert (second.http_timeout, second.bind_verb, second.tls_config) == (5.0, "", None)
    assert (settings.kubernetes.qps, settings.kubernetes.burst) == (50.0, 100)
    assert settings.scheduling.percentage_of_nodes_to_ask == 30


def test_without_extenders_and_limits_the_settings_are_the_defaults() -> None:
    assert parse_settings(Source("config.yaml", carried_over().text)) == Settings()


def test_keys_are_not_copied_into_the_settings() -> None:
    found = carried_over(extenders=[EXTENDER | {"tlsConfig": {"certData": "QQ==", "keyData": "SECRET"}}])
    assert "SECRET" not in found.text
    assert "certFile and keyFile" in found.notes[0]


@pytest.mark.parametrize(
    ("extender", "problem"),
    [
        ({"filterVerb": "filter"}, "key `urlPrefix` is missing in extenders[0]"),
        ({"urlPrefix": "gpu:1"}, "extenders[0].urlPrefix: expected a URL"),
        ({"urlPrefix": "http://x", "prioritizeVerb": "p"}, "extenders[0].prioritizeVerb needs a `weight` above 0"),
        ({"urlPrefix": "http://x", "httpTimeout": "5"}, "extenders[0].httpTimeout: expected a duration"),
        ({"urlPrefix": "http://x", "filterverb": "f"}, "unknown key `filterverb` in extenders[0]"),
        ({"urlPrefix": "http://x", "managedResources": [{"name": "cpu"}]}, "managedResources[0].name: expected"),
        (
            {"urlPrefix": "http://x", "managedResources": [{"name": "a.kubernetes.io/x"}]},
            "a.kubernetes.io/x is not an extended resource",
        ),
        ({"urlPrefix": "http://x", "tlsConfig": {"certFile": "c"}}, "tlsConfig.certFile needs `keyFile`"),
        ({"urlPrefix": "http://x", "tlsConfig": {"insecure": True, "caFile": "c"}}, "no CA certificate is used"),
    ],
)
def test_an_extender_that_kube_scheduler_would_refuse_is_an_error(extender: Json, problem: str) -> None:
    with pytest.raises(DocumentError, match=re.escape(problem)):
        carried_over(extenders=[extender])


def test_only_one_extender_can_bind_and_a_resource_has_one_extender() -> None:
    both = EXTENDER | {"bindVerb": "bind"}
    with pytest.raises(DocumentError) as raised:
        carried_over(extenders=[both, both])
    assert "only one can bind" in str(raised.value)
    assert "example.com/gpu appears twice" in str(raised.value)


def test_without_profiles_it_is_the_default_one() -> None:
    configuration = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    (policy,) = import_configuration(parse_document(Source("config.yaml", configuration)))
    assert (policy.name, policy.notes) == ("default-scheduler", ())
    assert "use kubernetes scores" in policy.text


@pytest.mark.parametrize("name", ["my-scheduler.example.com", "my_scheduler", "v1.2", "7", "policy"])
def test_a_scheduler_keeps_its_name(name: str) -> None:
    (policy,) = imported({"schedulerName": name})
    assert f"scheduler {name}\n" in policy.text
    loaded = load([Source("a.policy", policy.text)])
    assert loaded.policy_set is not None, loaded.diagnostics
    assert loaded.policy_set.policies[0].scheduler == name


def test_a_note_stays_a_comment() -> None:
    (policy,) = imported(scoring({"name": "Mine\nfilter false"}))
    assert any("Mine filter false" in note for note in policy.notes)
    assert "\nfilter" not in policy.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Pod"}, "KubeSchedulerConfiguration"),
        ({"apiVersion": "kubescheduler.config.k8s.io/v1alpha1"}, "kubescheduler.config.k8s.io/v1"),
        ({"profiles": [{}, {}]}, "two profiles have the schedulerName `default-scheduler`"),
        ({"profiles": [{"plugins": {"scores": {}}}]}, "unknown extension point `scores`"),
        ({"profiles": [{"plugins": {"score": {"enabled": [{"weight": 2}]}}}]}, "name"),
        ({"profiles": {"schedulerName": "mine"}}, "profiles"),
        ({"profiles": [{"schedulerName": "my scheduler"}]}, "no policy can name the scheduler `my scheduler`"),
        ({"profiles": [{"schedulerName": "-a"}]}, "no policy can name the scheduler `-a`"),
        ({"profiles": [{"schedulerName": "ä"}]}, "no policy can name the scheduler `ä`"),
        ({"profiles": [{"schedulerName": "a\nfilter false"}]}, "no policy can name the scheduler"),
    ],
)
def test_what_kube_scheduler_would_refuse_is_refused_with_its_line(change: Json, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        imported(**change)
    assert message in str(caught.value)
    assert str(caught.value).startswith("config.yaml:")

"""What a snapshot keeps decides the same; what it must never keep is not in it."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.signals import Query, Reading, Series, Signals
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import parse_objects
from kube_policy_scheduler.documents.writing import json_list_lines, yaml_list_lines
from kube_policy_scheduler.documents.yaml_document import parse_document
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.policy.policy_set import PolicySet, load
from kube_policy_scheduler.tooling.cluster_state import READ_KINDS, cluster_state, stored_objects
from kube_policy_scheduler.tooling.policy_reads import annotation_keys, key_reads, literals
from kube_policy_scheduler.tooling.snapshot.fields import API_VERSIONS, recorded_objects
from kube_policy_scheduler.tooling.snapshot.metrics import recorded_metrics
from kube_policy_scheduler.tooling.snapshot.pseudonyms import KEPT_LABELS, Pseudonyms, anonymised, kept_texts
from kube_policy_scheduler.tooling.tester.metrics import Metrics
from tests.framework.worlds import EVENTS, PODS, World, make_pod

PROFILE = kubernetes_profile()


def policies(text: str) -> PolicySet:
    loaded = load([Source("a.policy", text)])
    assert loaded.policy_set is not None, loaded.diagnostics
    return loaded.policy_set


def read_back(things: list[dict[str, Any]], *, yaml: bool = False) -> list[Any]:
    lines = yaml_list_lines if yaml else json_list_lines
    text = "".join(lines(things, annotations={"policyctl/taken-at": "2026-01-01T00:00:00Z"}))
    return stored_objects(parse_objects(Source("snapshot", text)), scheduler="policy-scheduler")


def verdict(cluster: Cluster, pod: objects.Pod) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the refusing plugin, and the total, by node."""
    frame = Frame(cluster.templates.pod(pod), cluster, 2e9)
    made = evaluate(frame, PROFILE)
    names = cluster.nodes.names
    statuses = {name: status.plugin for name, status in zip(names, made.diagnosis.statuses(), strict=True)}
    totals = zip(made.feasible, made.totals, strict=True)
    return statuses, {names[row]: float(total) for row, total in totals}


def taken(events: list[Any], variant: int) -> tuple[list[Any], objects.Pod]:
    kept = World()
    for event in events:
        kept.happen(event)
    placed = []
    for pod, node in kept.pods.values():
        pod.spec.node_name = node
        placed.append(pod)
    return [*kept.nodes.values(), *placed], make_pod("incoming", PODS[variant])


@settings(max_examples=20)
@given(EVENTS, st.integers(0, len(PODS) - 1), st.booleans())
def test_a_snapshot_decides_as_the_cluster_it_was_taken_of(events: list[Any], variant: int, yaml: bool) -> None:
    things, incoming = taken(events, variant)
    before = cluster_state(read_back(recorded_objects([*things, incoming])))
    # the API server adds two tolerations to every pod: what a cluster stores has them already
    stored = [*(info.node for info in before.cluster.nodes.infos), *before.pods.values()]

    after = cluster_state(read_back(recorded_objects(stored), yaml=yaml))

    pod = before.pods["default/incoming"]
    assert verdict(after.cluster, after.pods["default/incoming"]) == verdict(before.cluster, pod)


@settings(max_examples=20)
@given(EVENTS, st.integers(0, len(PODS) - 1))
def test_an_anonymised_snapshot_decides_the_same_under_other_names(events: list[Any], variant: int) -> None:
    things, incoming = taken(events, variant)
    plain = recorded_objects([*things, incoming])
    names = Pseudonyms(kept=kept_texts(plain, labels=KEPT_LABELS))

    hidden = cluster_state(read_back(anonymised(plain, names)))

    before = cluster_state(read_back(plain))
    statuses, totals = verdict(before.cluster, before.pods["default/incoming"])
    pod = hidden.find(names.of("incoming"))
    assert verdict(hidden.cluster, pod) == (
        {names.of(name): plugin for name, plugin in statuses.items()},
        {names.of(name): total for name, total in totals.items()},
    )


def test_every_kind_that_rules_read_is_in_a_snapshot() -> None:
    assert API_VERSIONS.keys() == {objects.Node, objects.Pod, *READ_KINDS}


SECRET = "correct-horse"
TELLING: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-0",
        "namespace": "shop",
        "uid": "u",
        "labels": {"app": "web"},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": SECRET,
            "vault.hashicorp.com/token": SECRET,
            "acme.com/team": "blue",
        },
        "managedFields": [{"manager": SECRET}],
        "finalizers": [SECRET],
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "registry.example/web:1",
                "command": ["sh", "-c", SECRET],
                "args": [SECRET],
                "env": [{"name": "PASSWORD", "value": SECRET}],
                "envFrom": [{"secretRef": {"name": SECRET}}],
                "volumeMounts": [{"name": "tls", "mountPath": f"/{SECRET}"}],
                "livenessProbe": {"exec": {"command": [SECRET]}},
                "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
                "workingDir": f"/{SECRET}",
            }
        ],
        "imagePullSecrets": [{"name": SECRET}],
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": [SECRET]}],
        "hostname": SECRET,
        "dnsConfig": {"searches": [SECRET]},
        "volumes": [
            {"name": f"{SECRET}-a", "secret": {"secretName": SECRET}},
            {"name": f"{SECRET}-b", "configMap": {"name": SECRET}},
            {"name": f"{SECRET}-c", "hostPath": {"path": f"/{SECRET}"}},
            {"name": f"{SECRET}-d", "projected": {"sources": [{"secret": {"name": SECRET}}]}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}},
        ],
    },
    "status": {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SECRET}],
        "message": SECRET,
        "containerStatuses": [{"name": "main", "state": {"terminated": {"message": SECRET}}, "imageID": SECRET}],
    },
}
TELLING_NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "blade-7.acme.corp", "labels": {"kubernetes.io/hostname": "blade-7.acme.corp"}},
    "spec": {"providerID": f"aws:///{SECRET}"},
    "status": {
        "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}],
        "nodeInfo": {"machineID": SECRET, "systemUUID": SECRET},
        "allocatable": {"cpu": "4", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True", "message": SECRET}],
    },
}


def stored_object(*given: dict[str, Any]) -> list[Any]:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": given})
    return stored_objects(parse_objects(Source("live", text)), scheduler="default-scheduler")


def test_nothing_that_scheduling_does_not_read_is_written() -> None:
    things = recorded_objects(stored_object(TELLING_NODE, TELLING), annotations=["acme.com/team"])
    text = json.dumps(things)

    assert SECRET not in text
    assert things[1]["metadata"]["annotations"] == {"acme.com/team": "blue"}
    assert things[1]["spec"]["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}},
        {"name": "local-1", "hostPath": {}},
    ]


def test_no_name_is_left_in_an_anonymised_snapshot() -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-web-0", "namespace": "shop"},
        "spec": {"volumeName": "pv-acme", "storageClassName": "acme-gold"},
    }
    plain = recorded_objects(stored_object(TELLING_NODE, TELLING, claim), annotations=["acme.com/team"])
    things = anonymised(plain, Pseudonyms(kept=kept_texts(plain, labels=KEPT_LABELS)))
    text = json.dumps(things)

    for name in ("blade", "acme.corp", "shop", "web", "registry", "data-", "pv-acme", "gold", "10.1.2.3", "blue"):
        assert name not in text.replace("topology", ""), name
    node, pod, hidden = things
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == node["metadata"]["name"] == "node-1"
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == hidden["metadata"]["name"]
    assert pod["metadata"]["namespace"] == hidden["metadata"]["namespace"]


def hidden(*given: dict[str, Any], texts: Collection[str] = ()) -> tuple[list[dict[str, Any]], str]:
    """Return objects as an anonymised snapshot has them, and all of it as one text."""
    plain = recorded_objects(stored_object(*given))
    made = anonymised(plain, Pseudonyms(kept=kept_texts(plain, labels=KEPT_LABELS) | frozenset(texts)))
    return made, json.dumps(made)


def curious(*expressions: dict[str, Any]) -> dict[str, Any]:
    """Return a pod that selects nodes by comparing labels."""
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    containers = [{"name": "main", "image": "i"}]
    return {**TELLING, "spec": {"containers": containers, "affinity": affinity}}


def test_a_comparison_with_numbers_shows_the_numbers_of_nodes_and_nothing_else() -> None:
    wanted = [
        {"key": "acme.com/customer", "operator": "Gt", "values": ["5"]},
        {"key": "acme.com/cores", "operator": "Lt", "values": ["1234567"]},
        {"key": "app", "operator": "Gt", "values": ["not a number"]},
    ]
    labels = {"acme.com/customer": "initech", "acme.com/cores": "7654321", "account": "8888888"}
    node = {**TELLING_NODE, "metadata": {"name": "blade", "labels": labels}}
    pod = curious(*wanted)
    pod["metadata"] = {**pod["metadata"], "labels": {"app": "web", "acme.com/cores": "9999999"}}

    (there, asks), text = hidden(node, pod)

    for name in ("initech", "web", "not a number", "8888888", "9999999"):
        assert name not in text, name
    assert there["metadata"]["labels"]["acme.com/cores"] == "7654321"
    assert '"1234567"' in json.dumps(asks)


@pytest.mark.parametrize(
    ("version", "kind", "shown"),
    [
        ("apps/v1", "StatefulSet", True),
        ("batch/v1", "Job", True),
        ("acme.com/v1", "InitechJob", False),
        ("v1", "My", False),
    ],
)
def test_of_owners_only_kubernetes_own_kinds_are_shown(version: str, kind: str, shown: bool) -> None:
    owner = {"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": True}
    owned = {**TELLING, "metadata": {**TELLING["metadata"], "ownerReferences": [owner]}}

    (pod,), text = hidden(owned)

    assert (kind in text) is shown
    assert ("acme.com" in text) is False
    (reference,) = pod["metadata"]["ownerReferences"]
    assert reference["controller"] is True
    assert hidden(owned, texts=[kind])[0][0]["metadata"]["ownerReferences"][0]["kind"] == kind, "a policy reads it"


def test_of_conditions_only_kubernetes_own_words_are_shown() -> None:
    conditions = [
        {"type": "Ready", "status": "True"},
        {"type": "InitechChip", "status": "Melting"},
        {"type": "CustomProblem", "status": "False"},
    ]
    node = {**TELLING_NODE, "status": {"allocatable": {"cpu": "4", "pods": "10"}, "conditions": conditions}}
    waits = {"type": "PodScheduled", "status": "False", "reason": "WaitsForInitech"}
    preempted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    pod = {**TELLING, "status": {"conditions": [waits, preempted]}}
    read = literals(policies('filter node.conditions.CustomProblem != "True"\n').policies)

    (there, asked), text = hidden(node, pod, texts=read)

    assert "Initech" not in text
    assert "Melting" not in text
    assert [one["type"] for one in there["status"]["conditions"]] == ["Ready", "condition-1", "CustomProblem"]
    assert asked["status"]["conditions"] == [{**waits, "reason": "reason-1"}, preempted]


def test_the_claim_of_an_ephemeral_volume_is_still_found() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "u"},
        "spec": {
            "containers": [{"name": "main", "image": "i"}],
            "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["A"]}}}}],
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "web-0-scratch", "namespace": "shop"},
    }
    hidden, its = anonymised(recorded_objects(stored_object(pod, claim)), Pseudonyms())

    assert its["metadata"]["name"] == f"{hidden['metadata']['name']}-{hidden['spec']['volumes'][0]['name']}"


def test_a_key_gives_the_same_pseudonyms_in_every_snapshot() -> None:
    first, second, other = (Pseudonyms(key=key) for key in (b"k" * 16, b"k" * 16, b"o" * 16))
    second.of("somebody else")

    assert first.of("shop", "ns") == second.of("shop", "pod") != other.of("shop", "ns")
    assert first.of("shop", "ns") != first.of("shops", "ns")


POD_NAMES = st.sampled_from(["a", "b", "a-b", "a-b-c", "b-c", "7", "a-7"])
VOLUMES = st.sampled_from(["b", "c", "7"])


@given(pods=st.lists(st.tuples(POD_NAMES, POD_NAMES, VOLUMES), max_size=6), keyed=st.booleans())
def test_one_text_has_one_pseudonym_and_a_made_name_those_of_its_parts(
    pods: list[tuple[str, str, str]], keyed: bool
) -> None:
    """Each pod has a name, a label and a volume; the volume's claim is named after pod and volume."""
    plain = [
        {
            "kind": "Pod",
            "metadata": {"labels": {"app": label}, "name": name},
            "spec": {"volumes": [{"name": volume, "ephemeral": {}}]},
        }
        for name, label, volume in pods
    ]
    hidden = anonymised(plain, names := Pseudonyms(key=b"k" * 16 if keyed else None))

    found: dict[str, str] = {}
    for (name, label, volume), pod in zip(pods, hidden, strict=True):
        its = pod["metadata"]["name"], pod["metadata"]["labels"]["app"], pod["spec"]["volumes"][0]["name"]
        for text, pseudonym in zip((name, label, volume), its, strict=True):
            assert found.setdefault(text, pseudonym) == pseudonym
    assert len(set(found.values())) == len(found)
    firsts: dict[str, tuple[str, str]] = {}
    for name, _, volume in pods:
        firsts.setdefault(f"{name}-{volume}", (name, volume))
    for whole, (name, volume) in firsts.items():
        assert names.of(whole) == f"{found[name]}-{found[volume]}"


def test_no_two_texts_share_a_pseudonym_and_none_is_taken_from_what_is_kept() -> None:
    names = Pseudonyms(kept=["ns-1", "gold"])

    assert [names.of(text, "ns") for text in ("gold", "a", "b", "a", "12345", "")] == [
        "gold", "ns-2", "ns-3", "ns-2", "12345", "",
    ]  # fmt: skip


def test_the_texts_of_the_policies_are_kept_and_so_are_the_annotations_they_read() -> None:
    found = policies(
        'for pods where pod.namespace == "batch"\n'
        'filter node.label.pool in ["gold", "silver"] if pod.annotation["acme.com/team"] == "blue"\n'
        "spread by pod.label.app over rack\n"
        'score 1 if node.label["acme.com/disk"] != "hdd"\n'
    ).policies

    assert {"batch", "gold", "silver", "blue", "hdd"} <= literals(found)
    assert annotation_keys(found) == {"acme.com/team"}
    reads = {(read.subject, read.what, read.key): (set(read.values), read.negated) for read in key_reads(found)}
    assert reads == {
        ("node", "label", "pool"): ({"gold", "silver"}, False),
        ("pod", "annotation", "acme.com/team"): ({"blue"}, False),
        ("pod", "label", "app"): (set(), False),
        ("node", "label", "rack"): (set(), False),
        ("node", "label", "acme.com/disk"): ({"hdd"}, True),
    }


def test_metrics_come_back_as_they_were_measured() -> None:
    found = policies('score -promql("load") ?? 0\nscore promql("scalar(x)") ?? 0\nscore promql("gone") ?? 0\n').queries
    cluster = Cluster()
    for thing in stored_object(TELLING_NODE):
        cluster.set_node(thing)
    now = 2e9
    load_ = (Series({"instance": "10.1.2.3:9100"}, 12.25, now - 40), Series({"instance": "elsewhere"}, 1.0, now))
    signals = Signals.of(
        [
            Reading("load", load_, evaluated_at=now - 10, fetched_at=now - 10),
            Reading("scalar(x)", (), evaluated_at=now, fetched_at=now, scalar=3.0),
        ]
    )

    form = recorded_metrics(found, signals=signals, nodes=cluster.nodes, now=now)

    assert form == {
        "load": {"blade-7.acme.corp": {"value": 12.25, "age": "40.000s"}},
        "scalar(x)": 3,
        "absent": ["gone"],
    }
    again = Metrics().over(form)
    reading = again.reading(Query("load"), now=now)
    assert reading is not None
    assert reading.series[0].value == 12.25
    assert reading.series[0].timestamp == pytest.approx(now - 40)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=12)
        | st.sampled_from(["1e3", "yes", "0o17", "12:30", "2026-01-01", "~", "<<", ": ", "- a", "'", '"', "a\nb"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=6), inner, max_size=3),
        max_leaves=8,
    )
)  # fmt: skip
def test_what_is_written_as_yaml_is_read_as_it_was(value: Any) -> None:
    from kube_policy_scheduler.documents.writing import yaml_text

    assert parse_document(Source("a.yaml", yaml_text({"key": value}))).value == {"key": value}

"""Decision records: what is written is read again, and what cannot be read is said clearly."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.tooling.decision_record import (
    DecisionRecord,
    Outcome,
    Ranked,
    Reading,
    Reason,
    RecordError,
    decode,
    decode_lines,
    encode,
    recorded_pod,
)

POD: dict[str, Any] = {
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "uid": "u1",
        "labels": {"app": "web"},
        "annotations": {"team": "a"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "uid": "r", "controller": True}],
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "nginx",
                "env": [{"name": "PASSWORD", "value": "s3cret"}],
                "command": ["sh", "-c", "echo s3cret"],
                "resources": {"requests": {"cpu": "100m"}},
            }
        ],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "token", "secret": {"secretName": "s3cret"}},
        ],
        "nodeSelector": {"disk": "ssd"},
        "priority": 5,
    },
}


def info() -> PodInfo:
    return Cluster().templates.pod(msgspec.convert(POD, objects.Pod))


def record(**changes: Any) -> DecisionRecord:
    fields: dict[str, Any] = {"time": 100.0, "pod": recorded_pod(info()), "outcome": Outcome.ASSIGNED, "node": "n1"}
    return DecisionRecord(**fields | changes)


FULL = record(
    policy="web",
    hash="abc",
    seed=7,
    queued=99.0,
    attempt=3,
    nodes=4,
    feasible=2,
    score=1.5,
    detailed=True,
    top=(Ranked(node="n1", total=1.5, scores={"free": 1.5}),),
    refused={"NodeResourcesFit": 2},
    metrics=(Reading(query="load", age_seconds=3.5, missing=1), Reading(query="never")),
    victims=("shop/old",),
    seconds=0.001,
    repeats=4,
    replica="host_1",
    reasons=(Reason(text="Insufficient cpu", nodes=2, plugin="NodeResourcesFit"),),
)


@pytest.mark.parametrize("one", [record(), FULL], ids=["least", "full"])
def test_what_is_written_is_read_again(one: DecisionRecord) -> None:
    line = encode(one)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == one
    assert list(decode_lines([line, b"\n", line], name="log")) == [one, one]


def test_a_record_is_one_json_object_with_the_names_of_kubernetes_for_the_pod() -> None:
    value = json.loads(encode(FULL))
    assert value["version"] == 1
    assert value["outcome"] == "assigned"
    assert value["pod"]["metadata"]["ownerReferences"][0]["name"] == "web-1"
    assert value["pod"]["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert value["metrics"][0] == {"query": "load", "ageSeconds": 3.5, "missing": 1}


def test_a_recorded_pod_is_the_same_to_the_scheduler() -> None:
    cluster = Cluster()
    before = cluster.templates.pod(msgspec.convert(POD, objects.Pod))
    after = cluster.templates.pod(decode(encode(record(pod=recorded_pod(before)))).pod)
    assert after.template is before.template
    assert (after.uid, after.key, after.created, after.annotations, after.volumes) == (
        before.uid,
        before.key,
        before.created,
        before.annotations,
        before.volumes,
    )


def test_a_record_holds_nothing_that_scheduling_does_not_read() -> None:
    assert b"s3cret" not in encode(record())


def test_a_last_line_that_was_cut_off_is_left_out() -> None:
    line, told = encode(record()), list[str]()
    for cut in (1, 20, len(line) // 2, len(line) - 2):
        assert len(list(decode_lines([line, line[:cut]], name="log", on_truncated=told.append))) == 1
    assert told == ["log:2"] * 4


def test_a_last_line_that_only_lacks_its_end_is_read() -> None:
    assert len(list(decode_lines([encode(record()).rstrip()], name="log"))) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{}\n", "log:2: expected a decision record"),
        (b"[]\n", "log:2: expected a decision record"),
        (b"not json\n", "log:2: expected a decision record"),
        (b'{"version":2}\n', "log:2: the record has version 2, this program reads version 1"),
        (b'{"version":2}', "log:2: the record has version 2, this program reads version 1"),
        (b'{"version":1}\n', "log:2: Object missing required field `time`"),
        (b'{"version":1,"time":0,"pod":{"metadata":{}},"outcome":"eaten"}\n', "log:2: Invalid enum value 'eaten'"),
    ],
)
def test_an_invalid_record_is_reported_with_its_place(line: bytes, said: str) -> None:
    with pytest.raises(RecordError, match=said.replace("`", ".")):
        list(decode_lines([encode(record()), line, encode(record())][: 3 if line.endswith(b"\n") else 2], name="log"))


def test_keys_of_later_programs_are_passed_over() -> None:
    assert decode(encode(record()).replace(b'{"version":1', b'{"version":1,"weather":"fine"', 1)) == record()

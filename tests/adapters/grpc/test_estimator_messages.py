"""Karmada's estimator protocol as bytes: what other implementations send is read, what is wrong is refused."""

from __future__ import annotations

import contextlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.grpc import estimator_pb2 as messages
from kube_policy_scheduler.adapters.grpc.estimator_messages import (
    MOST_ITEMS,
    WrongRequest,
    metadata_of,
    replicas_question,
    replicas_request,
    sets_question,
    sets_request,
    template_of,
    unschedulable_question,
)
from kube_policy_scheduler.cluster.objects import NodeSelector, NodeSelectorTerm, Requirement, Toleration
from kube_policy_scheduler.fleet.karmada.estimates import (
    Demand,
    Part,
    ReplicasQuestion,
    SetsQuestion,
    TemplateName,
    UnschedulableQuestion,
)

FOLDER = Path(messages.__file__).parent


def field(number: int, body: bytes) -> bytes:
    """Return a field of bytes, by the encoding's own rules."""
    assert len(body) < 128
    return bytes([number << 3 | 2, len(body)]) + body


def entry(number: int, key: bytes, value: bytes) -> bytes:
    return field(number, field(1, key) + field(2, value))


WIRE = field(1, b"member1") + field(
    2,
    field(
        1,
        entry(2, b"disk", b"ssd") + field(4, field(1, field(1, field(1, b"zone") + field(2, b"In") + field(3, b"a")))),
    )
    + field(3, b"shop")
    + field(4, b"high")
    + entry(5, b"cpu", b"\x0a\x04500m"),
)
"""MaxAvailableReplicasRequest, written out by hand."""


def test_the_numbers_of_fields_are_those_of_the_protocol() -> None:
    affinity = NodeSelector([NodeSelectorTerm([Requirement("zone", "In", ["a"])], None)])
    demand = Demand({"cpu": "500m"}, {"disk": "ssd"}, affinity, (), "high")
    assert replicas_question(WIRE) == ReplicasQuestion("member1", "shop", demand)
    assert replicas_question(replicas_request(replicas_question(WIRE))) == replicas_question(WIRE)
    assert messages.MaxAvailableReplicasResponse(max_replicas=-1).SerializeToString() == b"\x08" + b"\xff" * 9 + b"\x01"


def test_sets_and_tolerations_come_back_as_they_went() -> None:
    demand = Demand({"memory": "1Gi"}, tolerations=(Toleration("gpu", "Exists", "", "NoSchedule"),))
    asked = SetsQuestion("member1", "shop", (Part(demand, 1, "manager"), Part(Demand(), 2, "worker")))
    assert sets_question(sets_request(asked)) == asked


def test_a_question_of_the_descheduler_is_read_and_a_wrong_one_is_refused() -> None:
    body = (
        field(1, b"m")
        + field(2, field(2, b"Job") + field(3, b"shop") + field(4, b"train"))
        + b"\x18\x80\xa8\xd6\xb9\x07"
    )
    assert unschedulable_question(body) == UnschedulableQuestion("m", TemplateName("Job", "shop", "train"), 2.0)
    for wrong in (b"\xff", field(2, field(2, b"Job") + field(3, b"..") + field(4, b"a/b")), b""):
        with pytest.raises(WrongRequest):
            unschedulable_question(wrong)


def test_replicas_on_their_way_come_with_the_question() -> None:
    made = messages.MaxAvailableReplicasRequest(cluster="member1")
    made.assumed.add(namespace="shop").components.add(name="web", replicas=3)
    (assumed,) = replicas_question(made.SerializeToString()).assumed
    assert (assumed.namespace, [part.replicas for part in assumed.parts]) == ("shop", [3])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kind=Deployment, name=shop/web", TemplateName("Deployment", "shop", "web")),
        ("kind=Namespace, name=shop", TemplateName("Namespace", "", "shop")),
        ("kind=Deployment, name=shop/../../secrets/token", None),
        ("kind=Deployment, name=a/b/c", None),
        ("name=shop/web", None),
        ("", None),
        ("kind=Deployment, name=" + "a" * 300, None),
    ],
)
def test_metadata_names_a_template_or_none(text: str, found: TemplateName | None) -> None:
    assert template_of(text) == found
    if found is not None:
        assert metadata_of(found) == (("object", text),)


def request(fill: object) -> bytes:
    made = messages.MaxAvailableReplicasRequest()
    fill(made)  # type: ignore[operator]
    body: bytes = made.SerializeToString()
    return body


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\xff\xff\xff", "the request is not a protobuf message of this kind"),
        (
            request(lambda made: made.requirements.requests.update({"cpu": b"\x0a\x04oops"})),
            "the amount of cpu is 'oops'; expected a quantity such as 500m",
        ),
        (
            request(lambda made: made.requirements.requests.update({"cpu": b"\x0a\x02-1"})),
            "the amount of cpu is '-1'; expected a quantity such as 500m",
        ),
        (
            request(lambda made: made.requirements.node_claim.tolerations.extend([b""] * (MOST_ITEMS + 1))),
            "1,001 tolerations; expected at most 1,000",
        ),
        (
            request(lambda made: made.assumed.add().components.add(replicas=2**31 - 1)),
            "2,147,483,647 replicas are in sets and assumed; expected at most 10,000",
        ),
        (
            request(lambda made: made.assumed.add().components.add(replicas=-1)),
            "a component has -1 replicas; expected 0 or more",
        ),
        (
            field(2, field(1, field(4, field(1, field(1, field(2, b"Is")))))),
            "the node affinity has the operator 'Is'; expected DoesNotExist, Exists, Gt, In, Lt, NotIn",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_a_reason(body: bytes, why: str) -> None:
    with pytest.raises(WrongRequest) as refused:
        replicas_question(body)
    assert str(refused.value) == why


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for read in (replicas_question, sets_question, unschedulable_question):
        with contextlib.suppress(WrongRequest):
            assert read(body).cluster is not None


@pytest.mark.long
def test_the_module_is_made_of_the_protocol(tmp_path: Path) -> None:
    make(tmp_path)
    told = f"grpcio-tools {importlib.metadata.version('grpcio-tools')}"
    for name in ("estimator_pb2.py", "estimator_pb2.pyi"):
        assert (tmp_path / name).read_text() == (FOLDER / name).read_text(), f"run: make reference ({told})"


def make(folder: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "grpc_tools.protoc", f"-I{FOLDER}"]
    subprocess.run([*command, f"--python_out={folder}", f"--pyi_out={folder}", "estimator.proto"], check=True)


if __name__ == "__main__":
    make(FOLDER)

"""Asks the estimators of many clusters: one that gives no answer says nothing about the others."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from kube_policy_scheduler.adapters.grpc.estimator_client import EstimatorClient
from kube_policy_scheduler.adapters.grpc.estimator_server import EstimatorServer
from kube_policy_scheduler.cluster.objects import Toleration
from kube_policy_scheduler.daemon.fleet.estimators import (
    LAST_GOOD_SECONDS,
    MOST_CLIENTS,
    PAUSE_SECONDS,
    Estimators,
)
from kube_policy_scheduler.fleet.karmada.estimates import (
    Demand,
    Part,
    Question,
    ReplicasQuestion,
    SetsQuestion,
    question_about,
)
from kube_policy_scheduler.fleet.tallies import Tallies
from tests.daemon.test_estimator import ANTI_AFFINITY, Stage
from tests.fleet.karmada.bindings import binding


class Said(NamedTuple):
    room: int
    source: str


class Servers:
    """Servers of clusters, each with what it says; none for a cluster that is not there."""

    def __init__(self, **room: int) -> None:
        self.now = 100.0
        self.room = room
        self.asked: list[str] = []
        self.closed: list[str] = []
        self.tallies = Tallies()
        self.estimators = Estimators(
            lambda name: Server(self, name), timeout=5.0, count=self.tallies.estimated, steady=lambda: self.now
        )


class Server:
    def __init__(self, servers: Servers, name: str) -> None:
        self.servers, self.name = servers, name

    async def ask(self, question: Question, *, seconds: float) -> Said:
        assert question.cluster == self.name
        self.servers.asked.append(self.name)
        if self.name not in self.servers.room:
            raise ConnectionError("UNAVAILABLE")
        return Said(self.servers.room[self.name], "capacity")

    async def close(self) -> None:
        self.servers.closed.append(self.name)


async def test_one_that_gives_no_answer_says_nothing_about_the_others() -> None:
    servers = Servers(a=3, c=-1)
    assert await servers.estimators.ask(binding(), ["a", "b", "c"]) == {"a": {"capacity": 3}}
    assert servers.tallies.estimates == {"room": 1, "failed": 1, "none": 1}


async def test_the_last_answer_counts_for_a_minute() -> None:
    servers = Servers(a=3)
    await servers.estimators.ask(binding(), ["a"])
    servers.room = {}
    servers.now += LAST_GOOD_SECONDS - 1
    assert await servers.estimators.ask(binding(), ["a"]) == {"a": {"capacity": 3}}
    assert servers.tallies.estimates == {"room": 1, "last": 1}
    assert await servers.estimators.ask(binding(replicaRequirements={"resourceRequest": {"cpu": "2"}}), ["a"]) == {}
    servers.now += 1
    assert await servers.estimators.ask(binding(), ["a"]) == {}


async def test_one_that_gives_no_answer_is_not_asked_for_a_while() -> None:
    servers = Servers()
    for _ in range(5):
        await servers.estimators.ask(binding(), ["a"])
    assert servers.asked == ["a"]
    servers.now += PAUSE_SECONDS
    servers.room = {"a": 3}
    assert await servers.estimators.ask(binding(), ["a"]) == {"a": {"capacity": 3}}
    servers.room = {"a": 4}
    assert await servers.estimators.ask(binding(), ["a"]) == {"a": {"capacity": 4}}


async def test_there_are_no_more_connections_than_so_many() -> None:
    servers = Servers()
    await servers.estimators.ask(binding(), [f"c{at}" for at in range(MOST_CLIENTS + 2)])
    await asyncio.sleep(0)
    assert len(servers.closed) == 2


def test_a_question_has_what_the_binding_says() -> None:
    claim = {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    asked = question_about(
        binding(
            replicaRequirements={"resourceRequest": {"cpu": "500m"}, "nodeClaim": claim, "priorityClassName": "high"}
        ),
        "member1",
    )
    assert isinstance(asked, ReplicasQuestion)
    tolerations = (Toleration(key="gpu", operator="Exists"),)
    assert asked.demand == Demand({"cpu": "500m"}, {"disk": "ssd"}, None, tolerations, "high")
    assert (asked.cluster, asked.namespace, str(asked.template and asked.template.name)) == ("member1", "shop", "web")


@pytest.mark.parametrize("spec", [{"replicas": 0, "replicaRequirements": None}, {"replicas": 0}])
def test_what_has_no_pods_is_not_asked_about(spec: dict[str, object]) -> None:
    assert question_about(binding(**spec), "member1") is None


def test_components_are_asked_about_as_sets() -> None:
    parts = [{"name": name, "replicas": count} for name, count in (("manager", 1), ("worker", 2))]
    asked = question_about(binding(components=parts), "member1")
    assert isinstance(asked, SetsQuestion)
    assert asked.parts == (Part(Demand(), 1, "manager"), Part(Demand(), 2, "worker"))


async def test_a_server_of_ours_says_that_its_answer_is_of_capacity() -> None:
    stage = Stage()
    stage.api.add({"app": "web"}, affinity=ANTI_AFFINITY)
    async with EstimatorServer(stage.estimator, stage.pods, host="127.0.0.1", port=0, certificates=None) as server:
        client = EstimatorClient(server.address, certificates=None)
        asked = Estimators(lambda name: client, timeout=5.0)
        assert await asked.ask(binding(), ["member1", "member2"]) == {"member1": {"capacity": 2}}
        await client.close()

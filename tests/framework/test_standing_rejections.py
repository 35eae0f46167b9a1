"""Rejections that are kept from one pod to the next are those of a look at all nodes."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.kept_views import KeptBytes
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.steps import now
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.evaluate.diagnosis import Diagnosis
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.evaluate.template_cache import TemplateCaches
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.preemption import DefaultPreemption, RejectedPod
from kube_policy_scheduler.framework.preempt.standing_rejections import StandingRejections, standing_rejections

TEMPLATES: tuple[dict[str, Any], ...] = (
    {"cpu": "3", "priority": 10},
    {"cpu": "2", "priority": 5, "nodeSelector": {"zone": "a"}},
    {"cpu": "3", "priority": 7, "tolerations": [{"operator": "Exists"}]},
    {"cpu": "9", "priority": 10},
)


def pod(cluster: Cluster, name: str, *, cpu: str = "1", app: str = "x", **spec: Any) -> PodInfo:
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]} | spec,
    }
    return cluster.templates.pod(msgspec.convert(body, objects.Pod))


def set_node(cluster: Cluster, name: str, rng: Random) -> None:
    body = {
        "metadata": {"name": name, "labels": {"zone": rng.choice("aab")}},
        "spec": {"taints": [{"key": "t", "effect": "NoSchedule"}] if rng.random() < 0.1 else []},
        "status": {"allocatable": {"cpu": rng.choice(["2", "4", "4"]), "pods": "4"}},
    }
    cluster.set_node(msgspec.convert(body, objects.Node))


def set_budget(cluster: Cluster, allowed: int, *, app: str) -> None:
    body = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }
    cluster.set_object(msgspec.convert(body, objects.PodDisruptionBudget))


def plain_values(diagnosis: Diagnosis) -> tuple[Any, ...]:
    rejections = [(plugin, r.code, r.reason, r.where.tolist()) for plugin, r in diagnosis.rejections]
    return diagnosis.plugins, diagnosis.first.tolist(), rejections, diagnosis.rejection


def full_cluster(rng: Random, size: int) -> Cluster:
    cluster = Cluster()
    for number in range(size):
        set_node(cluster, f"n{number}", rng)
        for each in range(rng.randint(1, 4)):
            low = pod(cluster, f"low{number}-{each}", app=rng.choice("xxxy"), priority=rng.choice([-3, 0, 0, 6]))
            cluster.place(low, f"n{number}")
    return cluster


@pytest.mark.parametrize("seed", range(6))
def test_after_any_changes_rejections_and_victims_equal_those_of_the_plain_path(seed: int) -> None:
    rng, cycle, profile = Random(seed), Cycle(seed=1), kubernetes_profile()
    cluster = full_cluster(rng, 150)
    found_before = []
    for serial in range(150):
        names = cluster.nodes.names
        match rng.choice(["pod", "pod", "leave", "started", "node", "come", "go", "budget", "nominated", "", ""]):
            case "pod":
                low = pod(cluster, f"p{serial}", priority=rng.choice([-3, 0, 8]))
                cluster.place(low, rng.choice(names))
            case "leave":
                cluster.displace(rng.choice(sorted(cluster.pods)))
            case "started":
                uid = rng.choice(sorted(cluster.pods))
                known = cluster.pods[uid]
                later = pod(cluster, uid, app=known.labels["app"], priority=known.priority)
                later.started = float(serial)
                cluster.confirm(later, str(cluster.node_of(uid)))
            case "node":
                set_node(cluster, rng.choice(names), rng)
            case "come" if serial % 5 == 0:
                set_node(cluster, f"new{serial}", rng)
                cluster.place(pod(cluster, f"on-new{serial}", cpu="2"), f"new{serial}")
            case "go" if serial % 5 == 0:
                cluster.remove_node(rng.choice(names))
            case "budget":
                set_budget(cluster, rng.choice([0, 1]), app=rng.choice("yyyyx"))
            case "nominated" if serial % 7 == 0:
                cluster.nominate(pod(cluster, f"nominated{serial}", cpu="2", priority=9), rng.choice(names))
            case "nominated":
                for there in list(cluster.nominated.values()):
                    for other in list(there.values()):
                        cluster.nominate(other, "")
        incoming = pod(cluster, f"high{serial}", **TEMPLATES[rng.choice([0, 0, 0, 1, 2, 3])])
        frame = Frame(incoming, cluster, 1e9)
        plain, decision = evaluate(frame, profile), cycle.decide(frame, profile)
        assert decision.feasible == len(plain.feasible)
        if len(plain.feasible):
            continue
        rejection = RejectedPod(frame, profile, plain.pre_filtered, plain.diagnosis)
        wanted = now(DefaultPreemption(seed=1).post_filter(rejection))
        found = decision.preemption
        assert decision.diagnosis is not None
        assert found is not None
        assert plain_values(decision.diagnosis) == plain_values(plain.diagnosis)
        assert (found, found.ties, list(found.candidates)) == (wanted, wanted.ties, list(wanted.candidates))
        if serial % 10 == 0:
            found_before.append((decision.diagnosis, plain_values(plain.diagnosis)))
        if found.nominated_node is not None and rng.random() < 0.7:
            for victim in found.victims:
                cluster.displace(victim.uid)
            cluster.place(incoming, found.nominated_node)
    for diagnosis, values in found_before:
        assert plain_values(diagnosis) == values, "what was given out has changed since"


def test_candidates_that_were_given_out_stay_as_they_were() -> None:
    cluster, cycle, profile = full_cluster(Random(0), 40), Cycle(), kubernetes_profile()
    frame = Frame(pod(cluster, "high", cpu="4", priority=10), cluster, 1e9)
    first = cycle.decide(frame, profile).preemption
    plain = evaluate(frame, profile)
    rejection = RejectedPod(frame, profile, plain.pre_filtered, plain.diagnosis)
    wanted = now(DefaultPreemption().post_filter(rejection))
    assert first is not None
    for victim in first.victims:
        cluster.displace(victim.uid)
        cluster.place(pod(cluster, f"instead-of-{victim.uid}", priority=2), str(first.nominated_node))
    assert cycle.decide(frame, profile).preemption != wanted

    assert first == wanted


def test_what_stands_is_used_again_until_it_no_longer_follows_from_each_node_alone() -> None:
    cluster, kept, profile = full_cluster(Random(1), 40), KeptBytes(), kubernetes_profile()
    caches = TemplateCaches(kept=kept)
    frame = Frame(pod(cluster, "high", cpu="9", priority=10), cluster, 1e9)

    def standing() -> StandingRejections | None:
        return standing_rejections(frame, profile, caches.of(frame, profile), caches=caches)

    before = caches.of(frame, profile) and kept.taken
    first = standing()
    assert kept.taken > before, "they count, and go with the template"
    cluster.place(pod(cluster, "another"), "n3")

    assert first is not None
    assert standing() is first

    cluster.nominate(pod(cluster, "nominated", priority=20), "n3")
    assert standing() is None

    caches.keep_in_use(())
    assert kept.taken < before

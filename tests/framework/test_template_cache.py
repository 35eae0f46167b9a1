"""Kept answers: shared by templates that the plugins see alike, and never by others."""

from __future__ import annotations

import math
from random import Random
from typing import Any
from weakref import ref

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import kept_views, objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.kept_views import KeptBytes, most_kept_bytes
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.templates_in_use import MOST_IDLE
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.evaluate.template_cache import TemplateCaches
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Readings, Reads, Ready, declare
from kube_policy_scheduler.framework.plugins.base import Filter
from kube_policy_scheduler.framework.profile import Profile
from tests.simulation.chaos import policies_of

ROWS = np.arange(4)


def node(name: str, *, zone: str = "a", taint: str = "", image: str = "", cpu: str = "4") -> objects.Node:
    body: dict[str, Any] = {
        "metadata": {"name": name, "labels": {"zone": zone}},
        "spec": {"taints": [{"key": taint, "value": "", "effect": "NoSchedule"}] if taint else []},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "5"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [{"names": [image], "sizeBytes": 500_000_000}] if image else [],
        },
    }
    return msgspec.convert(body, objects.Node)


def pod(cluster: Cluster, name: str, *, cpu: str = "100m", image: str = "i:1", **spec: Any) -> PodInfo:
    """Return a pod with a template of its own: no two names give the same labels."""
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"name": name}},
        "spec": {"containers": [container], **spec},
    }
    return cluster.templates.pod(msgspec.convert(body, objects.Pod))


def frame(pod: PodInfo, cluster: Cluster) -> Frame:
    return Frame(pod, cluster, 0.0)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    for number in range(4):
        made.set_node(node(f"n{number}", image="i:1" if number == 0 else ""))
    return made


def test_templates_that_differ_in_labels_only_share_what_is_kept(cluster: Cluster) -> None:
    kept, profile = TemplateCaches(), kubernetes_profile()
    first, second = pod(cluster, "a"), pod(cluster, "b")

    assert first.template is not second.template
    assert kept.of(frame(first, cluster), profile) is kept.of(frame(second, cluster), profile)


@pytest.mark.parametrize(
    "change",
    [
        {"cpu": "200m"},
        {"image": "i:2"},
        {"nodeSelector": {"zone": "a"}},
        {"tolerations": [{"key": "spot", "operator": "Exists"}]},
        {"tolerations": [{"operator": "Exists"}]},
    ],
    ids=str,
)
def test_templates_that_a_plugin_sees_otherwise_share_nothing_wrong(cluster: Cluster, change: dict[str, Any]) -> None:
    kept, profile = TemplateCaches(), kubernetes_profile()
    first, second = pod(cluster, "a"), pod(cluster, "b", **change)

    assert kept.of(frame(first, cluster), profile) is not kept.of(frame(second, cluster), profile)


@pytest.mark.parametrize(("limit", "is_kept"), [(None, True), (1, False)], ids=["default", "one byte"])
def test_what_is_kept_is_limited_in_bytes(cluster: Cluster, limit: int | None, is_kept: bool) -> None:
    kept, profile = TemplateCaches(kept=KeptBytes(limit)), kubernetes_profile()
    first, second = (frame(pod(cluster, name, cpu=f"{cpu}m"), cluster) for name, cpu in (("a", 100), ("b", 200)))

    found = [ref(kept.of(first, profile)) for _ in range(3)]  # what comes once may be left out in any case
    for _ in range(3):
        kept.of(second, profile)

    assert (found[-1]() is not None) is is_kept


def test_the_limit_follows_the_nodes_unless_it_is_set(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """So as many templates fit into it in a cluster of any size, after nodes came and after they went."""
    monkeypatch.setattr(kept_views, "MIN_KEPT_BYTES", 2_000)
    profile, incoming = kubernetes_profile(), pod(cluster, "a")
    cycle, fixed = Cycle(), Cycle(kept=KeptBytes(5_000))
    limits: list[int] = []
    for many in (True, False):
        for number in range(4, 10):
            cluster.set_node(node(f"n{number}")) if many else cluster.remove_node(f"n{number}")
            for each in (cycle, fixed):
                each.decide(frame(incoming, cluster), profile)
            assert cycle.kept.most == most_kept_bytes(cluster.nodes.size)
            limits.append(cycle.kept.most)
            assert fixed.kept.most == 5_000

    assert limits == [1536 * nodes for nodes in (5, 6, 7, 8, 9, 10, 9, 8, 7, 6, 5, 4)]
    assert most_kept_bytes(1) == 2_000


def test_only_verdicts_are_kept_of_filters_alone(cluster: Cluster) -> None:
    """A score of 0 for each node is not kept, nor totals that nobody asked for."""
    profile, nodes, kept = Profile("odd", filters=(_Odd(Reads.PODS),)), 1_000, KeptBytes()
    for number in range(cluster.nodes.size, nodes):
        cluster.set_node(node(f"n{number}"))
    incoming = frame(pod(cluster, "p1"), cluster)

    TemplateCaches(kept=kept).of(incoming, profile)

    columns = kept.taken - 8 * incoming.template.size
    assert 2 * nodes <= columns < 4 * nodes, "one byte of the filter, one of all of them; a score has eight"


@pytest.mark.parametrize(("spare", "is_kept"), [(1_000, True), (0, False)])
def test_the_rows_that_pass_count_as_kept(cluster: Cluster, spare: int, is_kept: bool) -> None:
    """They take 8 bytes each from when somebody asks for them; what came first makes room for them."""
    profile = Profile("odd", filters=(_Odd(Reads.PODS),))
    first, second = (frame(pod(cluster, name), cluster) for name in ("p1", "p2"))
    together = KeptBytes()
    usual = TemplateCaches(kept=together)
    for each in (first, second):
        usual.of(each, profile)
    without = together.taken
    together = KeptBytes(without + spare)
    limited = TemplateCaches(kept=together)
    earlier = ref(limited.of(first, profile))
    later = limited.of(second, profile)

    later.passing()
    limited.of(second, profile)

    assert (earlier() is not None) is is_kept
    assert not is_kept or together.taken == without + 8 * len(later.passing())


def test_decisions_are_the_same_if_nothing_is_kept(cluster: Cluster) -> None:
    usual, forgetful, profile = Cycle(), Cycle(kept=KeptBytes(2)), kubernetes_profile()
    for number in range(12):
        incoming = pod(cluster, f"p{number}", cpu=f"{100 + number % 3}m")
        expected = usual.decide(frame(incoming, cluster), profile).host

        assert forgetful.decide(frame(incoming, cluster), profile).host == expected
        assert expected is not None
        cluster.place(incoming, expected)


def test_a_pod_with_volumes_is_filtered_by_them_after_one_of_its_template_without(cluster: Cluster) -> None:
    cycle, profile = Cycle(), kubernetes_profile()
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "none"}}
    without, with_volume = (pod(cluster, "a", volumes=[one]) for one in ({"name": "data", "emptyDir": {}}, claim))

    assert without.template is with_volume.template
    assert not without.volumes
    assert cycle.decide(frame(without, cluster), profile).host is not None
    rejected = cycle.decide(frame(with_volume, cluster), profile)
    assert rejected.host is None
    assert 'persistentvolumeclaim "none" not found' in rejected.message


def test_profiles_share_nothing(cluster: Cluster) -> None:
    kept = TemplateCaches()
    incoming = frame(pod(cluster, "a"), cluster)

    assert kept.of(incoming, kubernetes_profile()) is not kept.of(incoming, kubernetes_profile())


class _Odd(Filter):
    """Reads the template without saying so by a key."""

    name = "Odd"

    def __init__(self, reads: Reads) -> None:
        declare(self, reads | Reads.LABELS)

    def pre_filter(self, frame: Frame) -> Ready:
        return Ready(nodes=frozenset({f"n{frame.template.labels['name'][-1]}"}))

    def readings(self, frame: Frame) -> Readings:
        return Readings((), math.inf)

    def filter(self, frame: Frame, state: Any) -> Any:
        return frame.cluster.nodes.pod_count[frame.rows] >= 0


@pytest.mark.parametrize("reads", Reads)
def test_without_a_key_each_template_is_asked_about(cluster: Cluster, reads: Reads) -> None:
    profile, cycle = Profile("odd", filters=(_Odd(reads),)), Cycle()

    hosts = [cycle.decide(frame(pod(cluster, f"p{number}"), cluster), profile).host for number in range(4)]

    assert hosts == ["n0", "n1", "n2", "n3"]


def test_templates_that_were_not_used_recently_are_evaluated_again(cluster: Cluster) -> None:
    kept, profile = TemplateCaches(), kubernetes_profile()
    first = frame(pod(cluster, "first", cpu="1m"), cluster)
    cache = ref(kept.of(first, profile))
    before = kept.of(first, profile).maxima.totals(ROWS).tolist()
    for number in range(600):
        kept.of(frame(pod(cluster, f"p{number}", cpu=f"{number + 2}m"), cluster), profile)

    assert cache() is None
    assert kept.of(first, profile).maxima.totals(ROWS).tolist() == before


RANKED = (
    "filter node.ready\nspread by pod.label.name over zone\nscore normalize(node.free.cpu)\nuse kubernetes scores\n"
)


def profile_of(text: str) -> Profile:
    profile: Profile = policies_of(text).policy_set.policies[0].profile
    return profile


def test_all_that_is_kept_stays_within_one_limit(cluster: Cluster) -> None:
    """What each template takes is counted once, with its ranked totals; beyond the limit, the oldest go."""
    plenty, little, profile = Cycle(), Cycle(kept=KeptBytes(20_000)), profile_of(RANKED)
    for number in range(5, 60):
        cluster.set_node(node(f"n{number}", zone="ab"[number % 2]))
    templates = [pod(cluster, f"p{number}", cpu=f"{100 + number}m") for number in range(40)]
    hosts: dict[Cycle, list[str | None]] = {plenty: [], little: []}
    for turn in range(3):
        for template in templates:
            for cycle, found in hosts.items():
                found.append(cycle.decide(frame(template, cluster), profile).host)
            cluster.set_node(node(f"n{5 + turn}", zone="b", cpu="3"))

    assert hosts[plenty] == hosts[little]
    assert None not in hosts[plenty]
    assert little.kept.taken <= 20_000 < plenty.kept.taken


def test_ranked_totals_come_back_where_there_is_just_room_for_them(cluster: Cluster) -> None:
    """Without them, each decision adds up totals. The memory for that must not leave ranked totals without room."""
    kept, profile = KeptBytes(), profile_of("filter node.ready\nspread by pod.label.name\nscore node.free.cpu\n")
    cycle = Cycle(kept=kept)
    for number in range(5, 400):
        cluster.set_node(node(f"n{number}"))
    pods = [pod(cluster, f"p{number}", cpu=f"{100 + number}m") for number in range(2 * MOST_IDLE)]

    def decide_in_turn(*, rounds: int) -> None:
        for each in pods * rounds:
            cycle.decide(frame(each, cluster), profile)
            cluster.place(each, "n5")

    decide_in_turn(rounds=2)
    before = kept.taken
    kept.given = kept.most = before + before // 16
    for each in pods:
        cluster.displace(each.uid)  # their counters are dropped, and the next decisions make new ones
    decide_in_turn(rounds=20)

    assert kept.taken == pytest.approx(before, rel=0.01)


def test_templates_that_share_all_answers_are_counted_once(cluster: Cluster) -> None:
    together, profile = KeptBytes(), kubernetes_profile()
    kept = TemplateCaches(kept=together)
    first, *others = (pod(cluster, name) for name in "abcdefgh")
    cache = kept.of(frame(first, cluster), profile)
    before = together.taken - first.template.size

    assert all(kept.of(frame(other, cluster), profile) is cache for other in others)
    assert together.taken - before < sum(other.template.size for other in others) * 10


def test_the_only_node_with_the_lowest_value_goes() -> None:
    """It was in the last row, so no row that is left changed; all the same, the others compare differently."""
    cluster, cycle, incoming = Cluster(), Cycle(), pod(Cluster(), "p")
    profile = profile_of("score normalize(number(node.label.size)) + (number(node.label.bonus) ?? 0)\n")
    others = [(f"other-{number}", 7, -500) for number in range(60)]
    for name, size, bonus in (*others, ("small", 5, 70), ("large", 10, 0), ("least", 0, -500)):
        made = node(name)
        made.metadata.labels = {"size": str(size), "bonus": str(bonus)}
        cluster.set_node(made)

    assert cycle.decide(frame(incoming, cluster), profile).host == "small"  # 50 + 70 against 100
    cluster.remove_node("least")
    assert cycle.decide(frame(incoming, cluster), profile).host == "large"  # 0 + 70 against 100


def test_of_policies_that_are_gone_nothing_is_kept(cluster: Cluster) -> None:
    cycle, old, new = Cycle(), profile_of(RANKED), profile_of("filter node.ready\nuse kubernetes scores\n")
    for number in range(5):
        for profile in (old, new):
            cycle.decide(frame(pod(cluster, f"p{number}", cpu=f"{number + 1}m"), cluster), profile)
    both = cycle.kept.taken
    host = cycle.decide(frame(pod(cluster, "p1", cpu="2m"), cluster), new).host

    cycle.keep_only([new])

    assert 0 < cycle.kept.taken < both
    assert cycle.decide(frame(pod(cluster, "p1", cpu="2m"), cluster), new).host == host
    cycle.keep_only([])
    assert cycle.kept.taken == 0


@given(st.data())
def test_with_shared_results_decisions_equal_those_of_the_plain_path(data: st.DataObject) -> None:
    cluster, cycle, profile = Cluster(), Cycle(), kubernetes_profile()
    specs: dict[str, st.SearchStrategy[Any]] = {
        "cpu": st.sampled_from(["100m", "1", "3"]),
        "image": st.sampled_from(["i:1", "i:2"]),
        "nodeSelector": st.sampled_from([None, {"zone": "a"}]),
        "tolerations": st.sampled_from([[], [{"key": "spot", "operator": "Exists"}]]),
    }
    for serial in range(data.draw(st.integers(5, 30))):
        name = f"n{data.draw(st.integers(0, 5))}"
        match data.draw(st.sampled_from(["node", "remove", "leave", "pod", "pod", "pod", "pod"])):
            case "node":
                zone, taint = data.draw(st.sampled_from(["a", "b"])), data.draw(st.sampled_from(["", "spot"]))
                image, cpu = data.draw(st.sampled_from(["", "i:2"])), data.draw(st.sampled_from(["1", "4"]))
                cluster.set_node(node(name, zone=zone, taint=taint, image=image, cpu=cpu))
            case "remove":
                cluster.remove_node(name)
            case "leave":
                if cluster.pods:
                    cluster.displace(data.draw(st.sampled_from(sorted(cluster.pods))))
            case _:
                incoming = pod(cluster, f"p{serial}", **{k: data.draw(v) for k, v in specs.items()})
                wanted = evaluate(frame(incoming, cluster), profile)
                decision = cycle.decide(frame(incoming, cluster), profile)
                names = [cluster.nodes.names[row] for row in wanted.feasible]
                if not names:
                    assert decision.host is None
                    continue
                totals = dict(zip(names, wanted.totals.tolist(), strict=True))
                assert decision.feasible == len(names)
                assert decision.host is not None
                assert totals[decision.host] == max(totals.values())
                if len(names) > 1:
                    assert decision.score == max(totals.values())
                cluster.place(incoming, decision.host)


@pytest.mark.parametrize("size", [50, 500, 5_000])
def test_after_any_node_change_decisions_equal_those_of_the_plain_path(size: int) -> None:
    rng, cluster, cycle, profile = Random(size), Cluster(), Cycle(), kubernetes_profile()
    templates = [
        {"cpu": "100m", "image": "i:1"},
        {"cpu": "1", "image": "i:2", "nodeSelector": {"zone": "a"}},
        {"cpu": "200m", "tolerations": [{"key": "spot", "operator": "Exists"}]},
    ]

    def change(name: str) -> None:
        cpu, image = rng.choice(["2", "4"]), rng.choice(["", "i:1", "i:2"])
        cluster.set_node(node(name, zone=rng.choice("ab"), taint=rng.choice(["", "", "spot"]), image=image, cpu=cpu))

    for number in range(size):
        change(f"n{number}")
    for serial in range(120):
        for _ in range(rng.choice([0, 1, 3])):
            match rng.choice(["change", "change", "come", "go", "leave"]):
                case "change":
                    change(rng.choice(cluster.nodes.names))
                case "come":
                    change(f"new-{serial}")
                case "go":
                    cluster.remove_node(rng.choice(cluster.nodes.names))
                case _ if cluster.pods:
                    cluster.displace(rng.choice(sorted(cluster.pods)))
        incoming = pod(cluster, f"p{serial}", **templates[serial % 3])
        wanted = evaluate(frame(incoming, cluster), profile)
        decision = cycle.decide(frame(incoming, cluster), profile)
        totals = {cluster.nodes.names[r]: t for r, t in zip(wanted.feasible, wanted.totals.tolist(), strict=True)}
        assert decision.feasible == len(totals)
        assert decision.host is not None
        assert decision.score == totals[decision.host] == max(totals.values())
        assert decision.ties == sum(total == decision.score for total in totals.values())
        cluster.place(incoming, decision.host)

"""Queues, priorities, budgets, gangs and limits together: what holds of each decision on any small cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import msgspec
from hypothesis import Phase, event, example, given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import QuotaUsage
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.times import Steady
from tests.policy.worlds import node, pod, policy
from tests.simulation.quota_view import reclaim_of, why_not

KEYS = ("job", "slice")
NOW = 1e9
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
"""Not what explains a failure: each example compiles a policy."""


@dataclass(frozen=True)
class Draft:
    """A pod that is drawn."""

    queue: str
    cpu: int
    priority: int
    labels: tuple[tuple[str, str], ...]
    node: str

    @property
    def all_labels(self) -> dict[str, str]:
        return {key: value for key, value in (("q", self.queue), *self.labels) if value}

    def labels_under(self, text: str) -> dict[str, str]:
        """Return its labels; those of a gang by job as the model of quotas knows it: of one queue, with its size."""
        found = self.all_labels
        if "gang by pod.label.job" in text and "job" in found:
            found |= {"job": f"{found['job']}{self.queue}", "size": "2"}
        return found


def drafts(*, running: bool) -> st.SearchStrategy[Draft]:
    labels = st.tuples(
        st.tuples(st.just("job"), st.sampled_from(["", "", "x", "y"])),
        st.tuples(st.just("slice"), st.sampled_from(["", "", "s"])),
        st.tuples(st.just("tenant"), st.sampled_from(["", "t", "u"])),
        st.tuples(st.just("keep"), st.sampled_from(["", "", "yes"] if running else [""])),
        st.tuples(st.just("guarded"), st.sampled_from(["", "", "yes"])),
    )
    return st.builds(
        Draft,
        queue=st.sampled_from(["a", "b", "c", ""]),
        cpu=st.integers(1, 2),
        priority=st.integers(0, 2) if running else st.integers(0, 3),
        labels=labels,
        node=st.sampled_from(["n0", "n1"]),
    )


@st.composite
def texts(draw: st.DrawFn) -> str:
    low = [draw(st.integers(1, 3)), draw(st.integers(0, 2)), draw(st.integers(0, 2))]
    high = [draw(st.one_of(st.none(), st.integers(1, 4))) for _ in "abc"]
    top = draw(st.one_of(st.none(), st.integers(sum(low), 8)))
    lines = [f"queue all for pods where pod.label.q{f' max cpu {top}' if top else ''}"]
    for name, least, most in zip("abc", low, high, strict=True):
        limit = f" max cpu {max(most, least)}" if most is not None else ""
        lines.append(f'queue {name} of all for pods where pod.label.q == "{name}" min cpu {least}{limit}')
    lines.append(draw(st.sampled_from(["", "reclaim", "reclaim fair", "reclaim evict where victim.priority < 2"])))
    lines.append(draw(st.sampled_from(["", "preempt if true evict where not victim.label.keep", "preempt never"])))
    lines += [f"gang by pod.label.{key} size 2 if pod.label.{key}" for key in KEYS if draw(st.booleans())]
    if draw(st.booleans()):
        lines.append(f"limit count() by pod.label.tenant to {draw(st.integers(1, 4))} if pod.label.tenant")
    return "\n".join(filter(None, lines)) + "\n"


@lru_cache(maxsize=1000)
def compiled(text: str) -> PolicySet:
    return PolicySet.of([policy(text)])


class Scene:
    """A small cluster with a policy, a pod that asks, and the decision."""

    def __init__(self, text: str, running: Sequence[Draft], asks: Draft) -> None:
        self.text = text
        self.cluster = Cluster()
        for name in ("n0", "n1"):
            self.cluster.set_node(node(name, cpu="4"))
        budget = {
            "metadata": {"name": "guard", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"guarded": "yes"}}},
            "status": {"disruptionsAllowed": 0},
        }
        self.cluster.set_object(msgspec.convert(budget, objects.PodDisruptionBudget))
        self.running: dict[str, PodInfo] = {}
        for number, draft in enumerate(running):
            there = self.cluster.pods_on(draft.node).values()
            if sum(other.demand.requests["cpu"] for other in there) + draft.cpu * 1000 <= 4000:
                made = self._pod(f"p{number}", draft)
                made.started = NOW - 1000 + number
                self.running[made.uid] = made
                self.cluster.place(made, draft.node)
        self.incoming = self._pod("incoming", asks)
        self.policies = compiled(text)
        profile = self.policies.profile_of(self.incoming)
        assert profile is not None
        self.profile: Profile = profile
        self.cycle = Cycle()
        self.frame = Frame(self.incoming, self.cluster, NOW, queued=NOW - 100)
        self.decision: Decision = self.cycle.decide(self.frame, profile)
        found = self.decision.preemption
        self.victims = found.victims if found is not None else ()

    def _pod(self, name: str, draft: Draft) -> PodInfo:
        labels = draft.labels_under(self.text)
        return pod(self.cluster, name, labels=labels, cpu=str(draft.cpu), priority=draft.priority)

    @property
    def usage(self) -> QuotaUsage | None:
        """Return what is used; None where the policy has no queues."""
        rules = self.profile.queues
        return self.cluster.track_usage(rules.tree) if rules is not None else None

    def gangs(self) -> list[str]:
        """Return the labels by which the policy has gangs."""
        return [key for key in KEYS if f"gang by pod.label.{key}" in self.text]

    def members(self, key: str, value: str) -> frozenset[str]:
        """Return the running pods of a gang."""
        return frozenset(uid for uid, each in self.running.items() if each.labels.get(key) == value)

    def leaves_gangs_whole(self, going: frozenset[str]) -> bool:
        """Return whether of each gang that loses pods none is left, or as many as it needs."""
        touched = {(key, self.running[uid].labels.get(key, "")) for uid in going for key in self.gangs()}
        left = [len(self.members(key, value) - going) for key, value in touched if value]
        return all(number == 0 or number >= 2 for number in left)

    def may_stay(self, going: frozenset[str]) -> list[frozenset[str]]:
        """Return the smaller sets of victims: without one, or without what is left of a gang."""
        gangs = {(key, self.running[uid].labels.get(key, "")) for uid in going for key in self.gangs()}
        units = [frozenset((uid,)) for uid in going] + [self.members(*gang) & going for gang in gangs if gang[1]]
        return [going - unit for unit in units if self.leaves_gangs_whole(going - unit)]

    def shares_a_gang(self, victim: PodInfo) -> bool:
        """Return whether the pod that asks is in a gang with another."""
        ours = self.incoming.labels
        return any(ours.get(key) and victim.labels.get(key) == ours.get(key) for key in self.gangs())

    @contextmanager
    def without(self, uids: frozenset[str] | set[str]) -> Iterator[None]:
        with self.cluster.dry_run():
            for uid in sorted(uids):
                self.cluster.displace(uid)
            yield

    def fits(self, *, on: str | None = None) -> bool:
        rows = self.cycle.feasible(Frame(self.incoming, self.cluster, NOW, queued=NOW - 100), self.profile)
        names = {self.cluster.nodes.infos[row].name for row in rows}
        return bool(names) if on is None else on in names

    def is_spared(self, victim: PodInfo) -> bool:
        """Return whether the policy's own words spare a pod from whatever could evict it."""
        by_preempt = (
            "preempt never" in self.text
            or victim.priority >= self.incoming.priority
            or ("preempt if" in self.text and bool(victim.labels.get("keep")))
        )
        by_reclaim = "reclaim" not in self.text or ("victim.priority < 2" in self.text and victim.priority >= 2)
        return by_preempt and by_reclaim

    @property
    def is_modelled(self) -> bool:
        """Return whether the model of quotas can say who may go.

        It knows gangs by one key, planned whole, and what is short of resources: in a `limit`, Kubernetes' priorities
        alone apply.
        """
        ours = self.incoming.labels
        in_gang = "job" in self.gangs() and bool(ours.get("job"))
        limited = "limit count()" in self.text and bool(ours.get("tenant"))
        return "slice" not in self.gangs() and not in_gang and not limited

    def why_not(self, victims: Sequence[PodInfo], node: str) -> str:
        """Return why the rules of queues forbid an eviction, by the model of quotas."""
        rules = self.profile.queues
        assert rules is not None
        reclaim = reclaim_of(rules, self.frame)
        return why_not(self.cluster, self.incoming, tuple(victims), node, Steady(NOW), reclaim=reclaim)


def small(queue: str, cpu: int, priority: int, node: str = "n0") -> Draft:
    """Return a pod with no other label."""
    return Draft(queue=queue, cpu=cpu, priority=priority, labels=(), node=node)


NO_RECLAIM = (
    "queue all for pods where pod.label.q\n"
    'queue a of all for pods where pod.label.q == "a" min cpu 3\n'
    'queue b of all for pods where pod.label.q == "b" min cpu 0\n'
    'queue c of all for pods where pod.label.q == "c" min cpu 1\n'
)
FOR_A_GUARANTEE_ALONE = Scene(
    NO_RECLAIM,
    [
        small("b", 1, 0, "n1"),
        small("b", 2, 1, "n1"),
        small("a", 1, 0, "n0"),
        small("a", 1, 0, "n1"),
        small("b", 1, 1, "n0"),
        small("b", 2, 1, "n0"),
    ],
    small("a", 2, 1),
)
"""`all` guarantees the first pod and would not guarantee the one that asks: only a `reclaim` could evict it."""

scenes = st.builds(Scene, texts(), st.lists(drafts(running=True), min_size=5, max_size=9), drafts(running=False))


@settings(phases=PHASES)
@given(scene=scenes)
def test_victims_are_those_that_may_go_whole_enough_and_no_more(scene: Scene) -> None:
    victims, going = scene.victims, frozenset(victim.uid for victim in scene.victims)
    assert len(going) == len(victims), "nobody twice"
    if scene.decision.host is not None:
        assert not victims
    if not victims:
        return
    assert scene.decision.preemption is not None
    where = scene.decision.preemption.nominated_node
    event(f"victims: {len(victims)}, gangs: {len(scene.gangs())}")
    assert scene.leaves_gangs_whole(going)
    assert not any(map(scene.shares_a_gang, victims)), "not its own gang"
    assert not any(map(scene.is_spared, victims))
    if scene.is_modelled:
        assert scene.why_not(victims, where) == ""
    with scene.without(going):
        assert scene.fits(on=where), "it fits then"
    for fewer in scene.may_stay(going):
        with scene.without(fewer):
            assert not scene.fits(on=where), f"{sorted(going - fewer)} could have stayed"


def test_a_running_member_of_its_own_gang_is_not_reclaimed() -> None:
    text = (
        'queue a for pods where pod.label.q == "a" min cpu 3\nqueue c for pods where pod.label.q == "c" min cpu 0\n'
        "reclaim\ngang by pod.label.slice size 2 if pod.label.slice\n"
    )

    def draft(queue: str, cpu: int, node: str, **labels: str) -> Draft:
        return Draft(queue=queue, cpu=cpu, priority=0, labels=tuple(labels.items()), node=node)

    running = [draft("c", 2, "n1", slice="s"), draft("c", 2, "n0"), draft("c", 2, "n1"), draft("c", 2, "n0", slice="t")]
    scene = Scene(text, running, draft("a", 1, "n0", slice="s"))
    assert [victim.name for victim in scene.victims] != []
    assert not any(map(scene.shares_a_gang, scene.victims))


@settings(phases=PHASES)
@example(scene=FOR_A_GUARANTEE_ALONE)
@given(scene=scenes)
def test_preemption_finds_what_there_is_and_spares_budgets_where_that_is_possible(scene: Scene) -> None:
    """Every set of pods on one node that may go is tried."""
    if scene.decision.host is not None or "reclaim" in scene.text or not scene.is_modelled:
        return
    found, gentle = False, False
    for name in ("n0", "n1"):
        there = [pod for pod in scene.cluster.pods_on(name).values() if not scene.is_spared(pod)]
        for number in range(1, len(there) + 1):
            for chosen in combinations(there, number):
                going = frozenset(each.uid for each in chosen)
                if not scene.leaves_gangs_whole(going) or scene.why_not(chosen, name):
                    continue
                with scene.without(going):
                    if scene.fits(on=name):
                        found = True
                        gentle |= not any(each.labels.get("guarded") for each in chosen)
    event(f"found: {found}, without a budget: {gentle}")
    if found:
        assert scene.victims
    if gentle:
        assert not any(victim.labels.get("guarded") for victim in scene.victims)


@settings(phases=PHASES)
@given(scene=scenes)
def test_a_pod_that_gets_a_node_exceeds_no_maximum_and_no_limit(scene: Scene) -> None:
    if scene.decision.host is None:
        return
    scene.cluster.place(scene.incoming, scene.decision.host)
    usage = scene.usage
    queue = usage.quota_of(scene.incoming.template) if usage is not None else None
    for each in queue.path() if queue is not None else ():
        assert each.used[0] <= each.maximum[0], each
    tenant = scene.incoming.labels.get("tenant")
    if tenant and "limit count()" in scene.text:
        most = int(scene.text.partition("tenant to ")[2].split()[0])
        there = sum(pod.labels.get("tenant") == tenant for pod in scene.cluster.pods.values())
        assert there <= most
    assert usage is None or usage.miscounted(scene.cluster.pods.values()) == []

"""The decision maker: what is known of a Karmada control plane, and what is to be written to which binding next.

It does no I/O: its caller hands in what a watch shows, carries out the work that `next` hands out, and says how that
ended. All that it knows follows from the objects; after a restart, a new one goes on where the last one stopped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from kube_policy_scheduler.cluster.resource_versions import version_number
from kube_policy_scheduler.fleet.claims import DECIDED_SECONDS, Claims, claims_of, unhealthy, with_claims
from kube_policy_scheduler.fleet.karmada import reading
from kube_policy_scheduler.fleet.karmada.affinity_groups import AffinityGroups
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster, ObjectReference, ResourceBinding
from kube_policy_scheduler.fleet.karmada.others import OtherBindings
from kube_policy_scheduler.fleet.karmada.triggers import Trigger, serves, trigger
from kube_policy_scheduler.fleet.karmada.writes import Patch, is_observed, observed_patch, placement_patch, status_patch
from kube_policy_scheduler.fleet.model import AffinityTerm, Fleet, FleetCluster, Outcome, Reason, ToldMember, Workload
from kube_policy_scheduler.fleet.placement.affinity import matches, tier_of
from kube_policy_scheduler.fleet.placement.place import place
from kube_policy_scheduler.fleet.running import RunningWorkloads
from kube_policy_scheduler.fleet.tallies import Tallies
from kube_policy_scheduler.fleet.waiting import Position, Waiting, Wake
from kube_policy_scheduler.lang.compiling.member_values import MemberValue
from kube_policy_scheduler.times import Steady

Key: TypeAlias = tuple[str, str]
"""Namespace and name of a binding; the namespace of a ClusterResourceBinding is empty."""
ROOM_SECONDS = 60.0
"""For so long the room that clusters said counts for moves, which nothing asks for. Every other decision asks anew."""
LOOKED_AT = 50
"""Workloads that are looked at in one look for moves: each takes as long as a decision."""
Room: TypeAlias = Mapping[str, Mapping[str, int]]
"""Replicas by cluster and source, as in `Workload.room`."""
TEMPLATE_TRIES = 4
"""To read a template, with pauses of 1, 2 and 4 s. What is forbidden or not there is tried once."""
REREAD_SECONDS = 60.0
"""Until a template that could not be read is asked for again, before the next decision."""
MISSING_SECONDS = 300.0
"""A binding that runs in a cluster that is not known is not decided for so long: an API server that shows no clusters
for a while, or clusters that join again one by one, must not end what runs there. Karmada takes clusters away in
order: they are seen to be deleted first."""
MOST_MISSING = 10_000
"""Clusters of which it is known since when they are missing."""


class Rules(Protocol):
    """By what workloads are decided."""

    @property
    def reads_templates(self) -> bool:
        """Whether labels and annotations of the template may matter."""
        ...

    @property
    def moves(self) -> bool:
        """Whether replicas may move though nothing asks for a decision."""
        ...

    @property
    def counts_decided(self) -> bool:
        """Whether replicas that are decided count before the status of their cluster shows them."""
        ...

    @property
    def counts_others(self) -> bool:
        """Whether they count other workloads, so that it matters when one leaves a cluster."""
        ...

    def member_values_for(self, workload: Workload) -> tuple[MemberValue, ...]:
        """Return what the decision about a workload asks of the nodes and pods of clusters."""
        ...

    @property
    def orders(self) -> bool:
        """Whether they order the workloads that can be decided now; else their priorities do."""
        ...

    def position(self, workload: Workload, fleet: Fleet, now: Steady) -> Position:
        """Return where a workload is among them."""
        ...

    def decide(self, workload: Workload, fleet: Fleet) -> Outcome:
        """Return what becomes of a workload."""
        ...

    def move(self, workload: Workload, fleet: Fleet) -> Outcome | None:
        """Return where a workload that has what it asks for is to go next; None: it stays."""
        ...


class PlacementAlone:
    """Decides by nothing but the Placement of each workload."""

    reads_templates = False
    moves = False
    counts_others = False
    orders = False

    def __init__(self, *, counts_decided: bool = False) -> None:
        """counts_decided: as Karmada's gate SchedulingOvercommitProtection has it."""
        self.counts_decided = counts_decided

    def member_values_for(self, workload: Workload) -> tuple[MemberValue, ...]:
        """Return nothing."""
        return ()

    def position(self, workload: Workload, fleet: Fleet, now: Steady) -> Position:
        """Return the one in which priorities order all."""
        return Position()

    def decide(self, workload: Workload, fleet: Fleet) -> Outcome:
        """Return what becomes of a workload."""
        return place(workload, fleet)

    def move(self, workload: Workload, fleet: Fleet) -> Outcome | None:
        """Return that it stays."""
        return None


class Question(msgspec.Struct, frozen=True, eq=False):
    """A template that must be read before the binding can be decided."""

    key: Key
    template: ObjectReference


class RoomQuestion(msgspec.Struct, frozen=True, eq=False):
    """Clusters that must be asked for their room before the binding can be decided."""

    key: Key
    binding: ResourceBinding
    clusters: tuple[str, ...]


class MembersQuestion(msgspec.Struct, frozen=True, eq=False):
    """Clusters whose nodes and pods must be read before the binding can be decided."""

    key: Key
    clusters: tuple[str, ...]


AnyQuestion: TypeAlias = Question | RoomQuestion | MembersQuestion


class Work(msgspec.Struct, frozen=True, eq=False):
    """What is to be done about a binding: at first the patch of its placement, then that of its status."""

    key: Key
    binding: ResourceBinding
    """As it was decided."""
    outcome: Outcome | None
    """None if there is nothing to decide, but that is to be said."""
    trigger: Trigger | None
    patch: Patch | None
    """Of the object; None if it has all of it."""
    unread: str = ""
    """Why labels and annotations of the template were missing; "" if they were not."""


class Template(msgspec.Struct, frozen=True):
    """What is read of a template; nothing if that is not allowed."""

    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    problem: str = ""
    """Why it could not be read."""


class _Known(msgspec.Struct, eq=False):
    """A binding that is ours."""

    binding: ResourceBinding
    workload: Workload | None = None
    problem: str = ""
    """Why it cannot be read."""
    template: Template | None = None
    """What was read of the template for this generation; None if it was not."""
    read_at: float = -inf
    """On the steady clock: when that was."""
    room: Room = msgspec.field(default_factory=dict)
    """What clusters said last."""
    asked_at: float = -inf
    """On the steady clock: when they said so."""
    was_asked: bool = False
    """Whether they were asked for the next decision."""
    has_waited: bool = False
    """Whether the nodes and pods of its clusters were waited for before the next decision."""
    claims_until: float = -inf
    """On the steady clock: for how long replicas that are not healthy yet count as decided."""
    was_overtaken: bool = False
    """Whether a write was refused, as there is a newer state than this one."""
    claims: Claims = msgspec.field(default_factory=dict)
    """What counts at present."""


class DecisionMaker:
    """Knows the clusters, and the bindings of a scheduler."""

    def __init__(
        self,
        scheduler_names: Iterable[str],
        *,
        rules: Rules,
        features: frozenset[str] = frozenset(),
        keep_empty: bool = False,
        asks_clusters: bool = False,
        reads_members: bool = False,
    ) -> None:
        """Know nothing yet.

        Args:
            scheduler_names: `spec.schedulerName` of the bindings that it decides.
            rules: by which workloads are decided.
            features: feature gates of Karmada that are on.
            keep_empty: whether clusters without replicas are chosen, too.
            asks_clusters: whether they are asked for their room before a decision.
            reads_members: whether somebody reads the nodes and pods of clusters, where policies ask about them.
        """
        self._asks_clusters, self._reads_members = asks_clusters, reads_members
        self._names = frozenset(scheduler_names)
        self._rules = rules
        self._features, self._keep_empty = features, keep_empty
        self._clusters: dict[str, FleetCluster] = {}
        self._shown: dict[str, FleetCluster] = {}
        """The same with what is decided and not there yet, in the order of their names."""
        self._to_show: set[str] = set()
        """Those of which something has changed since."""
        self._generations: dict[str, int] = {}
        self._members: dict[str, ToldMember] = {}
        """By cluster: what is known of its nodes and pods."""
        self._missing: dict[str, float] = {}
        """On the steady clock: since when clusters are missing in which bindings run."""
        self._known: dict[Key, _Known] = {}
        self._fleet: Fleet | None = None
        self._decided: dict[str, dict[str, int]] = {}
        """Billionths by cluster and resource: the sum of all claims."""
        self._claims_end: deque[tuple[float, Key]] = deque()
        """The next one first."""
        self._to_look_at: list[Key] = []
        self._running = RunningWorkloads()
        self._unread: dict[Key, None] = {}
        """Bindings that run somewhere, and whose template is not read: nobody knows for which limits they count."""
        self._freed = False
        """Whether a workload has left a cluster since the last decision."""
        self._held_back: dict[Key, None] = {}
        """Bindings that are decided as soon as all templates are read that limits count by."""
        self._others = OtherBindings(self._running)
        self._groups = AffinityGroups()
        self.waiting: Waiting[Key] = Waiting(self._position)
        self.tallies = Tallies()

    def use(self, rules: Rules, now: Steady) -> None:
        """Decide by other rules from now on; all workloads are looked at again."""
        self._rules, self._fleet = rules, None
        self._to_show.update(self._clusters)
        for key, known in self._known.items():
            self._note_unread(key, known)
        for key in self._others.unread:
            self._ask_other(key, now)
        self.waiting.look_again(now)
        self.look_at_all(now)

    def look_for_moves(self, now: Steady) -> None:
        """Look at some workloads, the next ones each time, if the rules may move some."""
        if not self._rules.moves:
            return
        if not self._to_look_at:
            self._to_look_at = list(reversed(self._known))
        for _ in range(min(LOOKED_AT, len(self._to_look_at))):
            if (key := self._to_look_at.pop()) in self._known:
                self.waiting.wake(key, Wake.SPEC, now)

    def look_at_all(self, now: Steady) -> None:
        """Look at all workloads again: what decides them may have changed."""
        for key in self._known:
            self.waiting.wake(key, Wake.SPEC, now)

    # --- what is there ------------------------------------------------------------------------------

    @property
    def fleet(self) -> Fleet:
        """Return the clusters as they are now."""
        if self._fleet is None:
            self._fleet = Fleet(
                self._with_claims(),
                groups=self._groups.together,
                anti_groups=self._groups.apart,
                running=self._running,
                features=self._features,
                keep_empty=self._keep_empty,
            )
        return self._fleet

    def _with_claims(self) -> tuple[FleetCluster, ...]:
        """Return the clusters in the order of their names; those of which nothing has changed are the same objects."""
        decided, shown = self._decided if self._rules.counts_decided else {}, self._shown
        if shown.keys() != self._clusters.keys():
            shown = self._shown = {name: shown.get(name, self._clusters[name]) for name in sorted(self._clusters)}
        for name in self._to_show & self._clusters.keys():
            shown[name] = self._as_known(name, decided.get(name))
        self._to_show.clear()
        return tuple(shown.values())

    def _as_known(self, name: str, claims: Mapping[str, int] | None) -> FleetCluster:
        cluster, member = with_claims(self._clusters[name], claims), self._members.get(name)
        return cluster if member is None else replace(cluster, member=member)

    @property
    def bindings(self) -> Mapping[Key, ResourceBinding]:
        """Return the bindings that are ours."""
        return {key: known.binding for key, known in self._known.items()}

    def binding(self, key: Key) -> ResourceBinding | None:
        """Return a binding of ours; None if there is none."""
        known = self._known.get(key)
        return known.binding if known is not None else None

    def unread(self, key: Key) -> str:
        """Return why the labels and annotations of a template are missing; "" if they are not."""
        known = self._known.get(key)
        return known.template.problem if known is not None and known.template is not None else ""

    def workload(self, key: Key) -> Workload | None:
        """Return what a binding of ours places; None if there is none, or it cannot be read."""
        known = self._known.get(key)
        return known.workload if known is not None else None

    def replace_clusters(self, clusters: Sequence[KarmadaCluster], now: Steady) -> None:
        """Take a whole list of clusters."""
        gone = self._clusters.keys() - {each.metadata.name for each in clusters}
        for each in clusters:
            self.set_cluster(each, now)
        for name in gone:
            self.delete_cluster(name, now)

    def set_cluster(self, written: KarmadaCluster, now: Steady) -> None:
        """Take a cluster that is new or has changed.

        Its labels, its specification and its end concern the bindings whose affinity matches it. Its status concerns
        those that could not be placed, and them not more often than every few seconds.
        """
        name = written.metadata.name
        before, after = self._clusters.get(name), reading.cluster(written)
        generation, self._generations[name] = self._generations.get(name), written.metadata.generation
        if before == after:
            return
        self._clusters[name], self._fleet = after, None
        self._to_show.add(name)
        self._missing.pop(name, None)
        is_new = before is None or before.labels != after.labels or before.deleting != after.deleting
        if is_new or generation != written.metadata.generation:
            self._wake_matching(tuple(each for each in (before, after) if each is not None), now)
        self.waiting.wake_failing(Wake.STATUS, now)

    def delete_cluster(self, name: str, now: Steady) -> None:
        """Take note that a cluster is gone."""
        before = self._clusters.pop(name, None)
        self._generations.pop(name, None)
        if before is not None:
            self._fleet = None
            self._missing[name] = -inf if before.deleting else now
            self._wake_matching((before,), now)

    def set_member(self, name: str, member: ToldMember | None, now: Steady) -> None:
        """Take what is known of the nodes and pods of a cluster; None: they are not read any more.

        If a value is another one than before, that concerns the bindings that could not be placed and may go there,
        not more often than every few seconds; what a `rebalance` moves, it looks at by itself.
        """
        before, self._fleet = self._members.get(name), None
        self._to_show.add(name)
        if member is None:
            self._members.pop(name, None)
            return
        self._members[name] = member
        cluster = self._clusters.get(name)
        if cluster is None or member.says_the_same(before):
            return
        for key in self.waiting.failing_keys():
            workload = self._known[key].workload
            if workload is not None and _concerns(cluster, workload) and self._rules.member_values_for(workload):
                self.waiting.wake(key, Wake.STATUS, now)

    def members_waited_for(self, key: Key, now: Steady) -> None:
        """Take note that the clusters of a binding, which `next` handed out, were waited for; it is decided now."""
        known = self._known.get(key)
        if known is not None:
            known.has_waited = True
            self.waiting.wake(key, Wake.OWN, now)
        self.waiting.settled(key, now)

    def _wake_matching(self, clusters: tuple[FleetCluster, ...], now: Steady) -> None:
        for key, known in self._known.items():
            workload = known.workload
            if workload is not None and any(_concerns(cluster, workload) for cluster in clusters):
                self.waiting.wake(key, Wake.SPEC, now)

    def replace_bindings(self, bindings: Sequence[ResourceBinding], now: Steady, *, namespaced: bool) -> None:
        """Take a whole list of ResourceBindings, or of ClusterResourceBindings."""
        listed = {key_of(each) for each in bindings}
        for key in [key for key in self._known if bool(key[0]) is namespaced and key not in listed]:
            self.delete_binding(key)
        self._groups.keep(listed, namespaced=namespaced)
        self._freed |= self._others.keep(listed, namespaced=namespaced)
        for each in bindings:
            self.set_binding(each, now)

    def set_binding(self, binding: ResourceBinding, now: Steady) -> None:
        """Take a binding that is new or has changed. What is older than what we know, as of our own write, is not."""
        key = key_of(binding)
        if not serves(self._names, binding):
            self._forget(key)
            self._groups.put(key, binding)
            self._freed |= self._others.put(key, binding)
            self._ask_other(key, now)
            return
        self._others.remove(key)
        known = self._known.get(key)
        if known is not None and known.binding.metadata.uid == binding.metadata.uid:
            mine, theirs = known.binding.metadata.resource_version, binding.metadata.resource_version
            if version_number(theirs) and version_number(theirs) < version_number(mine):
                return
            is_new = known.was_overtaken or known.binding.metadata.generation != binding.metadata.generation
        else:
            is_new = True
        self._know(key, binding, now)
        if is_new:
            priority = binding.spec.schedule_priority.priority if binding.spec.schedule_priority is not None else 0
            self.waiting.wake(key, Wake.OWN, now, priority=priority)

    def delete_binding(self, key: Key) -> None:
        """Take note that a binding is gone."""
        self._groups.remove(key)
        self._freed |= self._others.remove(key)
        self._forget(key)

    def _forget(self, key: Key) -> None:
        known = self._known.pop(key, None)
        self._held_back.pop(key, None)
        self.waiting.forget(key)
        if known is not None and known.workload is not None:
            self._claim(known, {})
            self._count(key, known.workload, None)

    def set_template(self, key: Key, template: Template, now: Steady) -> None:
        """Take what was read of a template; its binding, which `next` handed out, is decided now, if it is ours."""
        if self._others.template(key) is not None:
            self._others.read(key, template.labels, template.annotations)
            self.waiting.forget(key)
            return
        known = self._known.get(key)
        if known is not None:
            known.template, known.read_at = template, now
            if template.problem:
                self.tallies.unread_templates += 1
            if known.workload is not None:
                known.workload = _with(known.workload, template)
                self._count(key, known.workload, known)
            self.waiting.wake(key, Wake.OWN, now)
        self.waiting.settled(key, now)

    def template_failed(self, key: Key, why: str, now: Steady) -> None:
        """Take note that a template could not be read just now: it is asked for again after a pause, and after some
        tries its binding is decided without it."""
        if self.waiting.attempts(key) + 1 < TEMPLATE_TRIES:
            self.waiting.refused(key, now)
        else:
            self.set_template(key, Template(problem=why), now)

    def set_room(self, key: Key, room: Room, now: Steady) -> None:
        """Take what clusters said of their room for a binding, which `next` handed out; it is decided now."""
        known = self._known.get(key)
        if known is not None:
            known.room, known.asked_at, known.was_asked = room, now, True
            self.waiting.wake(key, Wake.OWN, now)
        self.waiting.settled(key, now)

    def _know(self, key: Key, binding: ResourceBinding, now: Steady) -> None:
        self._groups.put(key, binding)
        before = self._known.get(key)
        if before is not None and before.workload is not None:
            self._claim(before, {})
        try:
            workload = reading.workload(binding)
        except reading.BindingError as error:
            self._known[key] = _Known(binding, problem=str(error))
            return
        template = before.template if before is not None and _is_of_one_request(before.binding, binding) else None
        if template is not None:
            workload = _with(workload, template)
        known = self._known[key] = _Known(binding, workload, template=template)
        if before is not None:
            known.read_at = before.read_at
        if before is not None and _asks_for_the_same(before.binding, binding):
            known.room, known.asked_at, known.was_asked = before.room, before.asked_at, before.was_asked
            known.has_waited = before.has_waited
        self._count(key, before.workload if before is not None else None, known)
        if before is not None and before.workload is not None and before.workload.has == workload.has:
            known.claims_until = before.claims_until
        else:
            known.claims_until = now + DECIDED_SECONDS
            self._claims_end.append((known.claims_until, key))
        if now < known.claims_until:
            self._claim(known, claims_of(workload, unhealthy(workload)))

    def _claim(self, known: _Known, claims: Claims) -> None:
        """Count other claims of a binding than before."""
        if known.claims == claims:
            return
        for sign, each in ((-1, known.claims), (1, claims)):
            self._to_show.update(each)
            for name, amounts in each.items():
                total = self._decided.setdefault(name, {})
                for resource, amount in amounts.items():
                    total[resource] = total.get(resource, 0) + sign * amount
                if not any(total.values()):
                    del self._decided[name]
        known.claims = claims
        if self._rules.counts_decided:
            self._fleet = None

    def _count(self, key: Key, before: Workload | None, known: _Known | None) -> None:
        """Count what a binding runs where, instead of what it ran; known: None if it is gone."""
        after = known.workload if known is not None else None
        if before is not None and (after is None or before.identity != after.identity):
            self._running.remove(before)
        if after is not None:
            self._running.put(after)
        left = after.has if after is not None else {}
        self._freed = self._freed or (
            before is not None and any(count > left.get(name, 0) for name, count in before.has.items())
        )
        self._note_unread(key, known)

    def _note_unread(self, key: Key, known: _Known | None) -> None:
        workload = known.workload if known is not None else None
        is_read = known is None or known.template is not None or not self._rules.reads_templates
        if workload is not None and workload.has and not is_read:
            self._unread[key] = None
        else:
            self._unread.pop(key, None)

    def _under_way(self, known: _Known, workload: Workload, outcome: Outcome) -> None:
        """Count what is being written beside what runs: the next decision may come before the write has ended."""
        after = outcome.targets
        has = {name: max(after.get(name, 0), workload.has.get(name, 0)) for name in {*after, *workload.has}}
        self._running.put(replace(workload, has=has))
        self._groups.put(key_of(known.binding), known.binding, decided=after)
        begins = {name: count - workload.has.get(name, 0) for name, count in has.items()}
        not_there = unhealthy(workload)
        claimed = {name: not_there.get(name, 0) + begins.get(name, 0) for name in {*not_there, *begins}}
        self._claim(known, claims_of(workload, claimed))

    def _ended(self, key: Key, now: Steady) -> None:
        """Count what a binding runs as it is known, whatever became of the write."""
        known = self._known.get(key)
        if known is None or known.workload is None:
            return
        self._running.put(known.workload)
        self._groups.put(key, known.binding)
        counts = now < known.claims_until
        self._claim(known, claims_of(known.workload, unhealthy(known.workload)) if counts else {})

    def _end_claims(self, now: Steady) -> None:
        while self._claims_end and self._claims_end[0][0] <= now:
            _, key = self._claims_end.popleft()
            known = self._known.get(key)
            if known is not None and known.claims_until <= now:
                self._claim(known, {})

    # --- what is to be done -------------------------------------------------------------------------

    def next(self, now: Steady) -> Work | AnyQuestion | None:
        """Decide the next binding whose turn it is, and return what is to be done; None if there is nothing to do now.

        Who gets work says how it ended: `done`, `conflicted` or `refused`. Who gets a question answers it:
        `set_template`, `set_room`, `members_waited_for`.
        """
        self._end_claims(now)
        self._wake_for_limits(now)
        while (key := self.waiting.next(now)) is not None:
            if key not in self._known:
                asked = self.question_of_other(key)
                if asked is not None:
                    return asked
                self.waiting.forget(key)
                continue
            known = self._known[key]
            if known.workload is not None and self._rules.reads_templates and known.template is None:
                return Question(key, known.binding.spec.resource)
            if self._runs_in_a_missing_cluster(key, now):
                self.waiting.parked(key, now)
                continue
            work = self._work(key, now)
            if work is not None:
                return work
            self.waiting.settled(key, now)
        return None

    def _ask_other(self, key: Key, now: Steady) -> None:
        """Have the template of a binding of another scheduler read, if policies count by it."""
        if self.question_of_other(key) is not None:
            self.waiting.wake(key, Wake.OWN, now)

    def question_of_other(self, key: Key) -> Question | None:
        """Return what must be read of a binding of another scheduler before policies count it; None: nothing."""
        template = self._others.template(key)
        wanted = self._rules.counts_others and self._rules.reads_templates
        return Question(key, template) if template is not None and wanted else None

    def _position(self, key: Key, now: Steady) -> Position:
        """Return where a binding is among those that can be decided now."""
        if key not in self._known:
            return Position(is_asked=True)
        known, rules = self._known[key], self._rules
        if known.workload is None or not rules.orders:
            return Position()
        if known.template is None and rules.reads_templates:
            return Position(is_asked=True)
        workload = replace(known.workload, attempts=self.waiting.attempts(key))
        return rules.position(workload, self.fleet, now)

    def _runs_in_a_missing_cluster(self, key: Key, now: Steady) -> bool:
        missing = [
            each.name for each in self._known[key].binding.spec.clusters or () if each.name not in self._clusters
        ]
        since = [self._missing.setdefault(name, now) for name in missing]
        while len(self._missing) > MOST_MISSING:
            del self._missing[next(iter(self._missing))]
        return any(now - each < MISSING_SECONDS for each in since)

    def _work(self, key: Key, now: Steady) -> Work | AnyQuestion | None:
        known = self._known[key]
        binding, workload = known.binding, known.workload
        if workload is None:
            outcome = Outcome(Reason.ERROR, known.problem, {})
            return Work(key, binding, outcome, None, None)
        why = trigger(binding, is_leaving=self.is_leaving)
        if why is not None and self._may_be_read_by_now(known, now):
            return Question(key, binding.spec.resource)
        if (
            (why is not None or self._rules.moves)
            and self._rules.counts_others
            and (self._unread or self._others.unread)
        ):
            self._held_back[key] = None
            return None
        if why is not None or self._rules.moves:
            members = self._members_question(key, known, workload)
            if members is not None:
                return members
            asked = self._room_question(key, known, workload, since=now if why is not None else now - ROOM_SECONDS)
            if asked is not None:
                return asked
            known.was_asked = known.has_waited = False
            workload = replace(workload, room=known.room)
        if why is None:
            if not is_observed(binding):
                return Work(key, binding, None, None, None)
            moved = self._rules.move(workload, self.fleet) if self._rules.moves else None
            if moved is None:
                return None
            outcome = moved
        else:
            outcome = self._rules.decide(self._as_observed(workload, why, key), self.fleet)
        self.tallies.decided(outcome.reason.value)
        patch = placement_patch(binding, outcome)
        if patch is not None:
            self._under_way(known, workload, outcome)
        return Work(key, binding, outcome, why, patch, unread=self.unread(key))

    def _may_be_read_by_now(self, known: _Known, now: Steady) -> bool:
        """Return whether a template that could not be read is to be asked for again."""
        template = known.template
        is_due = template is not None and bool(template.problem) and now - known.read_at >= REREAD_SECONDS
        return is_due and self._rules.reads_templates

    def _wake_for_limits(self, now: Steady) -> None:
        """Have those decided that waited for templates of others, or for others to leave."""
        if self._held_back and not self._unread and not (self._others.unread and self._rules.counts_others):
            held, self._held_back = self._held_back, {}
            for key in held:
                if key in self._known:
                    self.waiting.wake(key, Wake.SPEC, now)
        if self._freed and self._rules.counts_others:
            self.waiting.wake_failing(Wake.STATUS, now)
        self._freed = False

    def _room_question(self, key: Key, known: _Known, workload: Workload, *, since: float) -> RoomQuestion | None:
        """Return whom to ask before a decision; None if nobody is asked, or they were, since a time or for this one."""
        if not self._asks_clusters or not workload.has_pods or known.was_asked or known.asked_at > since:
            return None
        clusters = (each for each in self.fleet.clusters if not each.deleting and _concerns(each, workload))
        names = tuple(each.name for each in clusters)
        return RoomQuestion(key, known.binding, names) if names else None

    def _members_question(self, key: Key, known: _Known, workload: Workload) -> MembersQuestion | None:
        """Return which clusters are to be read before a decision; None if none is, or they were waited for."""
        if known.has_waited or not self._reads_members:
            return None
        wanted = self._rules.member_values_for(workload)
        if not wanted:
            return None
        clusters = (each for each in self.fleet.clusters if not each.deleting and _concerns(each, workload))
        told = ((each.name, self._members.get(each.name)) for each in clusters)
        names = tuple(name for name, member in told if member is None or not member.answers(wanted))
        return MembersQuestion(key, names) if names else None

    def _as_observed(self, workload: Workload, why: Trigger, key: Key) -> Workload:
        """Return the workload with what its last decision did not come to say, and how often it was tried."""
        found = replace(workload, attempts=self.waiting.attempts(key))
        if why is not Trigger.INTERRUPTED or not workload.has or not workload.placement.terms:
            return found
        clusters = [self._clusters[name] for name in workload.has if name in self._clusters]
        term = next((each for each in workload.placement.terms if _covers(each, clusters)), None)
        return replace(found, observed_term=term.name) if term is not None else found

    def is_leaving(self, name: str) -> bool:
        """Return whether a cluster is being deleted, or is not known."""
        cluster = self._clusters.get(name)
        return cluster is None or cluster.deleting

    def status_of(self, work: Work, binding: ResourceBinding, *, generation: int, now: float) -> Patch | None:
        """Return the patch of the status after the placement was written; None if it says all of it.

        Args:
            work: what was done.
            binding: as it is now.
            generation: that the write of the placement led to.
            now: Unix seconds.
        """
        if work.outcome is None:
            # replicas may just have moved, by a decision that nobody came to tell: then they rest, too
            return observed_patch(binding, decided=now if self._rules.moves else None)
        return status_patch(binding, work.outcome, generation=generation, now=now)

    def would_decide(self, key: Key) -> Outcome | None:
        """Return what would be decided about a binding now, whether or not anything says that it is to be.

        None if it is none of ours.
        """
        known = self._known.get(key)
        if known is None:
            return None
        if known.workload is None:
            return Outcome(Reason.ERROR, known.problem, {})
        return self._rules.decide(replace(known.workload, room=known.room), self.fleet)

    def question(self, key: Key, now: Steady) -> AnyQuestion | None:
        """Return what must be answered before a decision about a binding; None if nothing is left to ask."""
        known = self._known[key]
        if self._rules.reads_templates and known.template is None:
            return Question(key, known.binding.spec.resource)
        if known.workload is None:
            return None
        asked = self._members_question(key, known, known.workload) or self._room_question(
            key, known, known.workload, since=now
        )
        if asked is None:
            known.was_asked = known.has_waited = False
        return asked

    def would_have_decided(self, binding: ResourceBinding, now: Steady) -> Outcome:
        """Return what would have been decided about a binding of ours in an earlier state: without its replicas of
        now."""
        self._end_claims(now)
        known = self._known[key_of(binding)]
        try:
            workload = reading.workload(binding)
        except reading.BindingError as error:
            return Outcome(Reason.ERROR, str(error), {})
        if known.template is not None:
            workload = _with(workload, known.template)
        claims = known.claims
        self._claim(known, {})
        try:
            return self._rules.decide(replace(workload, room=known.room), self.fleet)
        finally:
            self._claim(known, claims)

    # --- how it ended -------------------------------------------------------------------------------

    def done(self, work: Work, binding: ResourceBinding, now: Steady) -> None:
        """Take note that all was written; binding: as it is now."""
        self._know_newer(work.key, binding, now)
        self._ended(work.key, now)
        known = self._known.get(work.key)
        if known is not None and known.binding.metadata.generation == binding.metadata.generation:
            self.waiting.expected(work.key)  # the watch may have shown our own write already
        if work.outcome is None or work.outcome.placed:
            self.waiting.settled(work.key, now)
        else:
            self.waiting.parked(work.key, now)

    def _know_newer(self, key: Key, binding: ResourceBinding, now: Steady) -> None:
        known = self._known.get(key)
        if known is None:
            return
        mine, theirs = known.binding.metadata.resource_version, binding.metadata.resource_version
        if version_number(theirs) > version_number(mine):
            self._know(key, binding, now)

    def conflicted(self, work: Work, now: Steady) -> None:
        """Take note that the binding had changed: it is decided again, as soon as the watch shows how."""
        self.tallies.conflicts += 1
        self._ended(work.key, now)
        self.waiting.refused(work.key, now)
        known = self._known.get(work.key)
        if known is None:
            return
        mine, newest = work.binding.metadata.resource_version, known.binding.metadata.resource_version
        if version_number(newest) > version_number(mine):
            self.waiting.wake(work.key, Wake.OWN, now)
        else:
            known.was_overtaken = True

    def refused(self, work: Work, binding: ResourceBinding, now: Steady) -> None:
        """Take note that a write failed; it is decided and tried again after a pause. binding: as it is now."""
        self.tallies.failed_writes += 1
        self._know_newer(work.key, binding, now)
        self._ended(work.key, now)
        self.waiting.refused(work.key, now)

    def broke(self, key: Key, now: Steady) -> None:
        """Take note that the work on a binding broke through a fault of ours; it is tried again after a pause."""
        self.tallies.failed_writes += 1
        self._ended(key, now)
        self.waiting.refused(key, now)


def quota_exceeded(work: Work, message: str) -> Outcome:
    """Return what becomes of a decision that a quota does not allow: what runs stays."""
    return _not_written(work, Reason.QUOTA_EXCEEDED, message)


def write_failed(work: Work, message: str) -> Outcome:
    """Return what becomes of a decision that the API server refuses: what runs stays."""
    return _not_written(work, Reason.ERROR, message)


def _not_written(work: Work, reason: Reason, message: str) -> Outcome:
    has = {each.name: each.replicas for each in work.binding.spec.clusters or ()}
    if work.outcome is None:
        return Outcome(reason, message, has)
    return Outcome(reason, message, has, verdicts=work.outcome.verdicts, policy=work.outcome.policy)


def _with(workload: Workload, template: Template) -> Workload:
    return replace(workload, labels=template.labels, annotations=template.annotations)


def _is_of_one_request(before: ResourceBinding, after: ResourceBinding) -> bool:
    """Return whether nothing was asked for in between: the placement alone, which we write, changes no template."""
    return before.spec.resource == after.spec.resource and before.spec.replicas == after.spec.replicas


def _asks_for_the_same(before: ResourceBinding, after: ResourceBinding) -> bool:
    """Return whether clusters would be asked for the same room."""
    asked = before.spec.replica_requirements, before.spec.components
    return asked == (after.spec.replica_requirements, after.spec.components) and _is_of_one_request(before, after)


def key_of(binding: ResourceBinding) -> Key:
    """Return namespace and name of a binding."""
    return binding.metadata.namespace, binding.metadata.name


def _concerns(cluster: FleetCluster, workload: Workload) -> bool:
    """Return whether a change of the cluster may change what becomes of a workload."""
    placement = workload.placement
    if cluster.name in workload.has:
        return True
    if placement.affinity is not None:
        return matches(placement.affinity, cluster)
    return not placement.terms or any(tier_of(term, cluster) is not None for term in placement.terms)


def _covers(term: AffinityTerm, clusters: Sequence[FleetCluster]) -> bool:
    return all(tier_of(term, cluster) is not None for cluster in clusters)

"""Reads the nodes and pods of member clusters from their API servers, to count room and for what policies ask of them.

A member is read in a thread of its own, at most each minute. One other thread makes clusters of what was read, tries
replicas out on them, by the code of the estimator, and evaluates what policies ask of them; nothing else looks at them,
so what others get are numbers. The last reading counts until the next one, for three minutes at most, so a decision
waits for a reading only if there is none. If a member cannot be read, the others still are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b

import msgspec

from kube_policy_scheduler.adapters.kube.client import Client
from kube_policy_scheduler.adapters.kube.errors import KubeError
from kube_policy_scheduler.adapters.kube.member_access import member_access
from kube_policy_scheduler.adapters.kube.member_lists import MemberListing, read_member
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.process.worker_thread import WorkerThread, in_thread
from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.daemon.modes.estimated_pods import MemberTemplate, PodTemplates, ReadsTemplates, tried_out
from kube_policy_scheduler.fleet.karmada.estimates import MOST_REPLICAS, Question, TemplateName
from kube_policy_scheduler.fleet.model import ToldMember
from kube_policy_scheduler.fleet.tallies import MemberReading, Tallies
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.lang.compiling.member_values import MemberValue
from kube_policy_scheduler.policy.members import ReadMember
from kube_policy_scheduler.times import Steady, duration
from kube_policy_scheduler.tooling.capacity.seats import Seats
from kube_policy_scheduler.tooling.cluster_state import ClusterState, cluster_state
from kube_policy_scheduler.tooling.rulesets import Ruleset
from kube_policy_scheduler.wording import plural

logger = logging.getLogger(__name__)

REFRESH_SECONDS = 60.0
"""A member is read again after so long, if somebody asks about it."""
LAST_GOOD_SECONDS = 180.0
"""For so long a reading counts."""
MOST_BYTES_PER_SECOND = 16 << 20
"""Of JSON that is read again and again for policies: making clusters of that much takes a quarter of a core. Above it,
members are read less often, and readings count for longer."""
MOST_PAUSE_SECONDS = 600.0
"""After a reading that failed; the first pause is `REFRESH_SECONDS`, and each doubles."""
READ_AT_ONCE = 4
"""Members: one that hangs must not hold up all others."""
MOST_MEMBERS = 2_000
MOST_KEPT_BYTES = 1 << 30
"""Of JSON that was read for the members that are kept; in memory it takes 0.8 of it, or less."""
MOST_KEPT_ANSWERS = 1_000
"""Of one reading."""
MOST_WAITING = 1_000
"""Questions that are computed or wait for it."""
TEMPLATE_SECONDS = 10.0
"""For so long a template of the control plane counts."""
MOST_TEMPLATES = 1_000
COMPUTATION_SECONDS = 1.0
"""Of one question; what fits so far is the answer then."""
_SCHEDULER = "default-scheduler"
_NOT_READ_AGAIN = "they have not been read since the policies came"


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member as it was read."""

    there: ClusterState
    bytes: int
    """That were read for it."""
    remark: str = ""
    """What is odd about it."""
    values: Mapping[MemberValue, float] = field(default_factory=dict)
    """What policies ask of it."""


@dataclass(slots=True)
class _Reading:
    """What was read of a member last, and the answers that follow from it."""

    view: MemberView
    at: float
    answers: KeptView[bytes, int] = field(default_factory=lambda: KeptView(most=MOST_KEPT_ANSWERS))
    computing: dict[bytes, asyncio.Task[int | None]] = field(default_factory=dict)


@dataclass(slots=True)
class _Member:
    """What is known of a member."""

    last: _Reading | None = None
    told: ToldMember | None = None
    """What policies were told of it."""
    at: float | None = None
    """When it was last read well."""
    bytes: int = 0
    """That were read for it then."""
    remark: str = ""
    """What was odd about it then."""
    due: float = 0.0
    """When it may be read again."""
    failures: int = 0
    """Since it was last read well."""
    problem: str = ""
    """Why it could not be read since; "" if it could."""
    task: asyncio.Task[None] | None = None
    asked: float = 0.0


class MemberClusters:
    """Answers about the members of a fleet."""

    def __init__(
        self,
        read: Callable[[str], Awaitable[MemberListing]],
        templates: ReadsTemplates,
        *,
        note: Callable[[str, MemberReading | None], None] = lambda cluster, reading: None,
        tell: Callable[[str, ToldMember | None], None] = lambda cluster, told: None,
        counts: bool = True,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read nothing yet.

        Args:
            read: reads a member; raises KubeError where it cannot.
            templates: reads templates of workloads.
            note: told how the reading of a member ended, None once it is no longer known.
            tell: given what policies ask of a member, after each reading; None once it is no longer read.
            counts: whether room is counted; otherwise nothing is kept of a reading but what policies ask.
            clock: Unix seconds.
            steady: seconds on a clock that nobody sets.
        """
        self._read, self._templates, self._note, self._tell_policies = read, templates, note, tell
        self._counts = counts
        self._values: tuple[MemberValue, ...] = ()
        """What policies ask."""
        self._bytes = 0
        """That were read for all members."""
        self._clock, self._steady = clock, steady
        self._members: KeptView[str, _Member] = KeptView(most=MOST_MEMBERS, dropped=self._dropped)
        self._permits = asyncio.Semaphore(READ_AT_ONCE)
        self._computing = 0
        self._known_templates: KeptView[TemplateName, tuple[float, asyncio.Task[MemberTemplate | None]]] = KeptView(
            most=MOST_TEMPLATES
        )
        """With the time of their reading."""
        self._thread = WorkerThread("members")
        self._ruleset = Ruleset("Kubernetes' own rules")

    async def ask(self, question: Question, *, seconds: float) -> int | None:
        """Return how many more replicas or sets fit in a member, None if that is not known within so many seconds."""
        member = self._member(question.cluster)
        member.asked = self._steady()
        self._refresh_if_due(question.cluster, member)
        try:
            async with asyncio.timeout(seconds):
                if self._reading(member) is None and member.task is not None:
                    await asyncio.shield(member.task)
                found = self._reading(member)
                return await self._answer(found, question) if found is not None else None
        except TimeoutError:
            return None

    def _member(self, cluster: str) -> _Member:
        member = self._members.get(cluster)
        if member is None:
            member = _Member()
            self._members.set(cluster, member)
        return member

    def _refresh_if_due(self, cluster: str, member: _Member) -> None:
        if member.task is None and self._steady() >= member.due:
            member.task = asyncio.create_task(self._refresh(cluster, member), name="read-member")

    def _reading(self, member: _Member) -> _Reading | None:
        last = member.last
        return last if last is not None and self._steady() - last.at < self._lasts() else None

    def _pause(self) -> float:
        """Return the seconds between two readings of a member."""
        return max(REFRESH_SECONDS, self._bytes / MOST_BYTES_PER_SECOND) if self._values else REFRESH_SECONDS

    def _lasts(self) -> float:
        """Return for how many seconds a reading counts."""
        return LAST_GOOD_SECONDS / REFRESH_SECONDS * self._pause()

    # --- what policies ask -----------------------------------------------------------------------------

    def use(self, values: tuple[MemberValue, ...]) -> None:
        """Answer what policies ask from now on; nothing is read for it before `look` or `wait`."""
        if values == self._values:
            return
        self._values = values
        for cluster, member in list(self._members.items()):
            if values and not member.failures:
                member.due = self._steady()
            elif not values and not self._counts:
                self._members.pop(cluster)
            elif not values and member.told is not None:
                member.told = None
                self._tell_policies(cluster, None)

    def look(self, clusters: Iterable[str]) -> None:
        """Read those members again whose time has come, if policies ask about members: call this from time to time."""
        if not self._values:
            return
        wanted = dict.fromkeys(clusters)
        for cluster in [name for name, _ in self._members.items() if name not in wanted]:
            self._members.pop(cluster)
        for cluster in wanted:
            member = self._member(cluster)
            self._refresh_if_due(cluster, member)
            told = member.told
            if told is not None and not told.problem and member.at is not None:
                age = self._steady() - member.at
                if age >= self._lasts():
                    why = f"they were last read {duration(age)} ago"
                    why = f"{why}: {member.problem}" if member.problem else why
                    self._give(cluster, member, ToldMember({}, told.at, why))

    async def wait(self, clusters: Iterable[str], *, seconds: float) -> None:
        """Wait until policies were told of members what they ask now, or why that is not known."""
        waiting = []
        for cluster in clusters:
            member = self._member(cluster)
            self._refresh_if_due(cluster, member)
            if member.task is not None:
                waiting.append(member.task)
            elif member.told is None or not member.told.answers(self._values):
                at = member.told.at if member.told is not None else None
                self._give(cluster, member, ToldMember({}, at, member.problem or _NOT_READ_AGAIN))
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)

    def _give(self, cluster: str, member: _Member, told: ToldMember) -> None:
        if self._members.get(cluster) is member:  # not dropped while it was read
            member.told = told
            self._tell_policies(cluster, told)

    # --- what is read --------------------------------------------------------------------------------

    async def _refresh(self, cluster: str, member: _Member) -> None:
        """Read a member, and note how it ended."""
        try:
            async with self._permits:
                found = await self._read(cluster)
            values = self._values
            view = await self._thread.call(partial(self._view, found, values))
            if values != self._values:  # other policies are in force by now
                view = replace(view, values=await self._thread.call(partial(self._evaluate, view.there, self._values)))
        except KubeError as error:
            self._failed(cluster, member, str(error))
        except Exception as error:
            logger.exception("unexpected error in the reading of a member cluster", extra={"cluster": cluster})
            self._failed(cluster, member, f"unexpected error: {type(error).__name__}")
        else:
            self._succeeded(cluster, member, view)
        finally:
            member.task = None

    def _failed(self, cluster: str, member: _Member, why: str) -> None:
        if not member.failures:
            logger.warning("Unable to read member cluster", extra={"cluster": cluster, "why": why})
        pause = min(REFRESH_SECONDS * 2.0 ** min(member.failures, 10), MOST_PAUSE_SECONDS)
        member.failures, member.problem = member.failures + 1, why
        member.due = self._steady() + pause
        at = Steady(member.at) if member.at is not None else None
        self._tell(cluster, member, MemberReading(at, why))
        if self._values and (at is None or member.told is None or self._steady() - at >= self._lasts()):
            self._give(cluster, member, ToldMember({}, member.told.at if member.told is not None else None, why))

    def _succeeded(self, cluster: str, member: _Member, view: MemberView) -> None:
        now = self._steady()
        if member.failures:
            logger.info("Member cluster is read again", extra={"cluster": cluster})
        elif member.at is None or member.remark != view.remark:
            fields = {"cluster": cluster, "nodes": view.there.cluster.nodes.size, "bytes": view.bytes}
            logger.log(
                logging.WARNING if view.remark else logging.INFO,
                "Read member cluster",
                extra={**fields, **({"why": view.remark} if view.remark else {})},
            )
        if self._members.get(cluster) is member:
            self._bytes += view.bytes - member.bytes
            member.bytes = view.bytes
        member.at, member.remark, member.failures, member.problem = now, view.remark, 0, ""
        member.last, member.due = _Reading(view, now) if self._counts else None, now + self._pause()
        self._tell(cluster, member, MemberReading(Steady(now), "", view.remark))
        if self._values:
            self._give(cluster, member, ToldMember(view.values, self._clock()))
        self._make_room(member)

    def _make_room(self, newest: _Member) -> None:
        """Forget the readings of the members that nobody has asked about for the longest time, until the rest fits."""
        kept = sorted(
            (one for _, one in self._members.items() if one.last is not None and one is not newest),
            key=lambda one: one.asked,
        )
        taken = sum(one.last.view.bytes for one in (*kept, newest) if one.last is not None)
        for one in kept:
            if taken <= MOST_KEPT_BYTES:
                return
            assert one.last is not None
            taken -= one.last.view.bytes
            one.last = None

    def _dropped(self, cluster: str, member: _Member) -> None:
        self._bytes -= member.bytes
        self._note(cluster, None)
        if member.told is not None:
            self._tell_policies(cluster, None)

    def _tell(self, cluster: str, member: _Member, reading: MemberReading) -> None:
        if self._members.get(cluster) is member:  # not dropped while it was read
            self._note(cluster, reading)

    # --- what is answered ----------------------------------------------------------------------------

    async def _answer(self, reading: _Reading, question: Question) -> int | None:
        key = blake2b(msgspec.json.encode(question, order="deterministic"), digest_size=16).digest()
        known = reading.answers.get(key)
        if known is not None:
            return known
        task = reading.computing.get(key)
        if task is None:
            if self._computing >= MOST_WAITING:
                return None
            task = reading.computing[key] = asyncio.create_task(self._compute(reading, key, question), name="room")
        return await asyncio.shield(task)

    async def _compute(self, reading: _Reading, key: bytes, question: Question) -> int | None:
        """Compute an answer and keep it; None: it cannot be computed, which is logged."""
        self._computing += 1
        try:
            template = await self._template(question.template) if question.template is not None else None
            count = await self._thread.call(partial(self._count, reading.view.there, question, template))
            reading.answers.set(key, count)
            return count
        except ValueError as error:
            logger.warning("cannot count room: %s", str(error)[:200], extra={"cluster": question.cluster})
        except Exception:
            logger.exception("unexpected error in counting room", extra={"cluster": question.cluster})
        finally:
            self._computing -= 1
            reading.computing.pop(key, None)
        return None

    async def _template(self, name: TemplateName) -> MemberTemplate | None:
        """Read a template once for the questions about all members."""
        now, known = self._steady(), self._known_templates.get(name)
        if known is None or now - known[0] >= TEMPLATE_SECONDS:
            known = now, asyncio.create_task(self._templates.read(name), name="read-template")
            self._known_templates.set(name, known)
        return await asyncio.shield(known[1])

    def _view(self, found: MemberListing, values: tuple[MemberValue, ...]) -> MemberView:
        """Return the cluster that a listing makes, with what policies ask of it; runs in the thread. Raises
        KubeError."""
        view = view_of(found)
        return replace(view, values=self._evaluate(view.there, values)) if values else view

    def _evaluate(self, there: ClusterState, values: tuple[MemberValue, ...]) -> Mapping[MemberValue, float]:
        """Return what policies ask of a member; runs in the thread."""
        now = self._clock() + there.cluster.ahead
        return ReadMember(there.cluster).told(values, now).values

    def _count(self, there: ClusterState, question: Question, template: MemberTemplate | None) -> int:
        """Return what fits; runs in the thread."""
        ends = self._steady() + COMPUTATION_SECONDS
        seats = Seats(there, self._ruleset, now=self._clock() + there.cluster.ahead)
        found = tried_out(question, template, seats, scheduler=_SCHEDULER, stop=lambda: self._steady() >= ends)
        return min(found.count, MOST_REPLICAS)


class MemberReader:
    """Reads members by the credentials that the control plane has of them."""

    def __init__(self, transport: Client) -> None:
        """Read nothing yet. transport: to the control plane."""
        self._transport = transport

    async def read(self, cluster: str) -> MemberListing:
        """Read a member in a thread of its own.

        Raises:
            KubeError: it cannot be read, or there are no credentials.
        """
        access = await member_access(self._transport, cluster)
        return await in_thread(lambda: asyncio.run(read_member(access)), name="read-member")


def view_of(found: MemberListing) -> MemberView:
    """Return the cluster that a listing makes. Raises KubeError."""
    listing = found.listing
    rules = KubernetesRules(listing.version) if listing.version is not None else DEFAULT_RULES
    remarks = [] if found.verified else ["the certificate of its API server is not verified, as its Cluster says"]
    forbidden = [each.resource for each in listing.unlisted if each.served]
    if forbidden:
        remarks.append(f"its credentials do not allow to list {', '.join(sorted(forbidden))}")
    if listing.malformed:
        remarks.append(f"{plural(len(listing.malformed), 'object')} cannot be read: {listing.malformed[0][:200]}")
    try:
        there = cluster_state(listing.objects, rules)
    except ValueError as error:
        raise KubeError(f"its objects cannot be read: {error}") from error
    return MemberView(ClusterState(there.cluster, {}), found.bytes, "; ".join(remarks))


def make_members(
    transport: Transport, tallies: Tallies, *, tell: Callable[[str, ToldMember | None], None], counts: bool
) -> MemberClusters:
    """Return what reads members.

    Args:
        transport: to the control plane, which has their credentials.
        tallies: where readings are counted.
        tell: given what policies ask of a member, after each reading.
        counts: whether room is counted.
    """

    def note(cluster: str, reading: MemberReading | None) -> None:
        if reading is None:
            tallies.members.pop(cluster, None)
        else:
            tallies.members[cluster] = reading

    return MemberClusters(MemberReader(transport).read, PodTemplates(transport), note=note, tell=tell, counts=counts)

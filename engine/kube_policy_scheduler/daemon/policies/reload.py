"""Candidate policies accepted or refused; the last good set stays, over a restart too. Knows no files, no language."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from kube_policy_scheduler.adapters.files.policy_sources import PolicySources, PolicySourcesError
from kube_policy_scheduler.adapters.process.loops import Loop, Loops
from kube_policy_scheduler.adapters.process.worker_process import WorkerLost
from kube_policy_scheduler.wording import shortened

log = logging.getLogger(__name__)

PolicySetT = TypeVar("PolicySetT")


class PoliciesLost(Exception):
    """No policy set is known to be whole in force: only a new process helps."""


RETRY_SECONDS, LONGEST_RETRY_SECONDS = 30.0, 600.0
"""Pauses before a candidate is tried again that failed through a fault of ours, or for want of a process."""
EVENT_MESSAGE_LIMIT = 1024
"""Characters; the API server refuses longer messages in Events."""


class Accepted(msgspec.Struct, Generic[PolicySetT], frozen=True):
    """What a compiler answers to good sources."""

    policies: PolicySetT
    warnings: tuple[str, ...] = ()
    """Rendered diagnostics that do not prevent use."""


class Refused(msgspec.Struct, frozen=True):
    """What a compiler answers to bad sources."""

    problems: tuple[str, ...]
    """Rendered diagnostics, each beginning `FILE:LINE:COLUMN: `; may have several lines."""


Compile = Callable[[PolicySources], Accepted[PolicySetT] | Refused]
"""Compiles one generation. Runs in a thread, so it must not touch what the event loop owns. What it raises is no fault
of the candidate."""


class PartOfAll(msgspec.Struct, frozen=True):
    """What a reloader needs to know whose policies decide beside those of others."""

    owner: str
    lock: asyncio.Lock
    """Held by the reloader that works: one owner's policies are taken over at a time, in the order of their arrival."""
    rest_seconds: Callable[[float], float]
    """Returns how long an owner must wait after a change that took this many seconds."""
    withdraw: Callable[[], None]
    """Takes the owner's policies out of those in force."""


class ReloadResult(Enum):
    """How a candidate ended; the value is the `result` label in metrics."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """It does not compile."""
    UNREADABLE = "unreadable"
    """There is nothing to compile."""
    RESTORED = "restored"
    """The newest could not be taken over at the start: a set that was accepted before decides."""
    FAILED = "failed"
    """It could not be compiled or taken over through a fault of the scheduler's own."""


class FormerPolicies(msgspec.Struct, frozen=True):
    """A set that was accepted before this process began."""

    sources: PolicySources
    origin: str
    """How people know it, such as `revision 5 of configMap policy-scheduler/policies`."""


class ReloadRecord(msgspec.Struct, frozen=True):
    """One candidate's end: for the log, metrics, the Event on the ConfigMap and the status page."""

    result: ReloadResult
    hash: str | None
    """Of the candidate; None where it could not be read."""
    generation: int
    """Of the set in use after this: 1 for the first accepted; 0 while there is none."""
    at: float
    """Unix seconds."""
    seconds: float
    """From the candidate's arrival to this record."""
    problems: tuple[str, ...] = ()
    """What is wrong with the candidate; with RESTORED, with the newest policies."""
    warnings: tuple[str, ...] = ()
    origin: str = ""
    """With RESTORED: where the set comes from."""
    owner: str = ""
    """Whose policies these are; "": the administrator's."""

    @property
    def successful(self) -> bool:
        """Whether the newest candidate is what decides now."""
        return self.result is ReloadResult.ACCEPTED

    def summary(self) -> str:
        """Return one message for an Event: what happened, and the first problems, within the API's limit."""
        policies = f"policies of {self.owner}" if self.owner else "policies"
        if self.successful:
            return f"{policies} accepted: generation {self.generation}, hash {self.hash}"
        if self.result is ReloadResult.RESTORED:
            head = f"{policies} restored from {self.origin} (hash {self.hash}), the newest cannot be used: "
        else:
            nothing = "the owner's pods follow other policies" if self.owner else "nothing is scheduled"
            stays = f"generation {self.generation} stays in use" if self.generation else nothing
            head = f"{policies} {self.result.value}, {stays}: "
        lines = [problem.partition("\n")[0] for problem in self.problems]
        room = EVENT_MESSAGE_LIMIT - len(head)
        for count in range(len(lines), 0, -1):
            more = f" (and {len(lines) - count} more)" if count < len(lines) else ""
            text = "; ".join(lines[:count]) + more
            if len(text) <= room:
                return head + text
        return shortened(head + "; ".join(lines), EVENT_MESSAGE_LIMIT)


def report_of(record: ReloadRecord) -> dict[str, Any]:
    """Return what other people's `policyctl rollout status` should know of a candidate's end."""
    in_force = {"active": record.hash or "", "generation": record.generation, "since": record.at}
    if record.result is ReloadResult.RESTORED:
        return in_force  # the candidate was logged before
    fields: dict[str, Any] = {"candidate": record.hash or "", "result": record.result.value}
    fields["problem"] = record.problems[0].partition("\n")[0] if record.problems else ""
    return fields | in_force if record.successful else fields


class _Candidate(msgspec.Struct, frozen=True):
    """What came, and when."""

    found: PolicySources | PolicySourcesError
    arrived_at: float


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


async def _nothing(_: object) -> None:
    return None


async def _none() -> Sequence[FormerPolicies]:
    return ()


def _not_stored(_: PolicySources) -> None:
    return None


class PastPolicies(NamedTuple):
    """Where accepted policies are kept, so that the next start of this process finds them."""

    former: Callable[[], Awaitable[Sequence[FormerPolicies]]] = _none
    """Returns what was accepted before, the newest first."""
    store: Callable[[PolicySources], None] = _not_stored
    """Receives what was accepted; returns at once."""


NOTHING_PAST = PastPolicies()


class PolicyReloader(Generic[PolicySetT]):
    """Takes candidates in the order of their arrival, one at a time; of several that wait, only the newest.

    A candidate is compiled in a thread, prepared (its metrics get first values), then activated in one call on
    the event loop, hence between two decisions. Whatever goes wrong leaves the active set as it is. Where there is none
    yet, the last one that was accepted before this process began is put in force.
    """

    def __init__(
        self,
        *,
        compile_policies: Compile[PolicySetT],
        activate: Callable[[PolicySetT, ReloadRecord], None],
        report: Callable[[ReloadRecord], None],
        clock: Callable[[], float],
        prepare: Callable[[PolicySetT], Awaitable[object]] = _nothing,
        past: PastPolicies = NOTHING_PAST,
        retry_seconds: float = RETRY_SECONDS,
        loops: Loops | None = None,
        part: PartOfAll | None = None,
    ) -> None:
        """Set up; nothing is active yet.

        Args:
            compile_policies: pure and blocking; answers with the set or with what is wrong.
            activate: makes the set the one that decides. Where it raises, it is called with the last good set again.
            report: receives every end of a candidate, after activation; not called on the decision path.
            clock: Unix seconds.
            prepare: awaited before activation, at most as long as it bounds itself.
            past: what was accepted before, for where the first candidate is no good.
            loops: of the process, which ends where no set is whole in force any more; None: its own.
            retry_seconds: before a candidate that FAILED is tried again; longer each time.
            part: where other policies decide beside these; None: these are all.
        """
        self._part = part
        self._lock = part.lock if part is not None else asyncio.Lock()
        self._worked_seconds = 0.0
        """Of this process, for the present candidate: compiling and activating, without waiting for anybody."""
        self._compile = compile_policies
        self._activate = activate
        self._report = report
        self._clock = clock
        self._prepare = prepare
        self._retry_seconds = retry_seconds
        self._candidate: _Candidate | None = None
        self._arrived = asyncio.Event()
        self._loops = loops or Loops()
        self._taking: Loop | None = None
        self._past = past
        self.active: PolicySetT | None = None
        """The last good set; None until there is one."""
        self.active_record: ReloadRecord | None = None
        """Of the active set's activation."""
        self._is_half_way = False
        """Whether an activation broke half-way and no other set was activated since."""
        self.in_force = asyncio.Event()
        """Set once there is an active set; there is one from then on."""
        self.generation = 0
        self.last: ReloadRecord | None = None
        """The end of the newest candidate."""
        self.has_ended = asyncio.Event()
        """Set once a candidate has come to its end and, if it was refused, earlier policies were put in force."""

    @property
    def ready(self) -> bool:
        """Whether there is a set to decide with."""
        return self.active is not None

    def problem(self) -> str | None:
        """Return why the newest policies are not those in force; None where they are."""
        if self.active_record is not None and self.active_record.result is ReloadResult.RESTORED:
            return self.active_record.summary()
        if self.last is None:
            return "no policies have been read yet"
        return None if self.last.successful else self.last.summary()

    async def __aenter__(self) -> PolicyReloader[PolicySetT]:
        """Start taking candidates."""
        name = f"policy-reload-{self._part.owner}" if self._part is not None else "policy-reload"
        self._taking = self._loops.start(name, self._run, restarts=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop; a candidate under way is dropped."""
        if self._taking is not None:
            await self._loops.end(self._taking)
            self._taking = None

    def offer(self, found: PolicySources | PolicySourcesError) -> None:
        """Take a candidate, or the reason why there is none; returns at once. Call on the event loop."""
        self._candidate = _Candidate(found, time.monotonic())
        self._arrived.set()

    async def _run(self) -> str:
        failed: _Candidate | None = None
        pause = self._retry_seconds
        try:
            while True:
                candidate = await self._next(failed, pause)
                self._worked_seconds = 0.0
                record = await self._take(candidate.found, arrived_at=candidate.arrived_at)
                self._record_result(record)
                if record.successful and isinstance(candidate.found, PolicySources):
                    self._past.store(candidate.found)
                if self.active is None:
                    await self._restore()
                self.has_ended.set()
                if self._part is not None:
                    await asyncio.sleep(self._part.rest_seconds(self._worked_seconds))
                pause = min(2 * pause, LONGEST_RETRY_SECONDS) if candidate is failed else self._retry_seconds
                failed = candidate if record.result is ReloadResult.FAILED else None
        except PoliciesLost as lost:
            return str(lost)

    async def _next(self, failed: _Candidate | None, pause: float) -> _Candidate:
        """Return the next candidate, or after a pause again the one that failed through no fault of its own."""
        try:
            async with asyncio.timeout(pause if failed is not None else None):
                await self._arrived.wait()
        except TimeoutError:
            assert failed is not None
            return failed
        self._arrived.clear()
        candidate, self._candidate = self._candidate, None
        assert candidate is not None
        return candidate

    async def _take(self, found: PolicySources | PolicySourcesError, *, arrived_at: float) -> ReloadRecord:
        if isinstance(found, PolicySourcesError):
            return self._record(ReloadResult.UNREADABLE, arrived_at=arrived_at, problems=(str(found),))
        active = self.active_record
        if active is not None and found.hash == active.hash:
            # a bad edit was taken back
            self.active_record = self._record(ReloadResult.ACCEPTED, arrived_at=arrived_at, hash=found.hash)
            return self.active_record
        return await self._put_in_force(found, arrived_at=arrived_at)

    async def _restore(self) -> None:
        """Put in force what was accepted last before this process began; newer policies that come go first.

        Raises:
            PoliciesLost: there is nothing, and something broke half-way before.
        """
        assert self.last is not None
        if self._part is None:
            log.warning("there are no active policies; reading the last accepted policies")
        asking, newer = asyncio.ensure_future(self._past.former()), asyncio.ensure_future(self._arrived.wait())
        try:
            await asyncio.wait((asking, newer), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return
            found = asking.result()
        except Exception:
            log.exception("unexpected error while reading the last accepted policies")
            return
        finally:
            asking.cancel()
            newer.cancel()
        for former in found:
            record = await self._put_in_force(former.sources, arrived_at=time.monotonic(), origin=former.origin)
            if record.result is ReloadResult.RESTORED:
                self._record_result(record)
                return
            log.error("cannot use %s either: %s", former.origin, record.summary())
        if self._part is not None:
            return
        if self._is_half_way:
            raise PoliciesLost("the activation of policies failed, and there are no previous policies")
        log.error("no earlier accepted policies can be used: no pods are scheduled until there are usable policies")

    async def _put_in_force(self, found: PolicySources, *, arrived_at: float, origin: str = "") -> ReloadRecord:
        """As `_put_in_force_alone`, never beside the reloaders of other owners: they share a checker."""
        async with self._lock:
            return await self._put_in_force_alone(found, arrived_at=arrived_at, origin=origin)

    async def _put_in_force_alone(self, found: PolicySources, *, arrived_at: float, origin: str) -> ReloadRecord:
        """Compile, prepare and activate a set; return the result.

        origin: where it comes from, if it is not the newest.

        Raises:
            PoliciesLost: the activation broke half-way, and the last good set's broke, too.
        """
        ended = partial(self._record, arrived_at=arrived_at, hash=found.hash)
        try:
            compiled = await asyncio.to_thread(self._compile_timed, found)
        except WorkerLost as error:
            return ended(ReloadResult.FAILED, problems=(f"they could not be checked: {error}",))
        except Exception as error:
            log.exception("unexpected error while compiling policies")
            return ended(ReloadResult.FAILED, problems=(f"they could not be checked: {_named(error)}",))
        if isinstance(compiled, Refused):
            return ended(ReloadResult.REFUSED, problems=compiled.problems)
        try:
            await self._prepare(compiled.policies)
        except Exception:
            log.exception("unexpected error while preparing new policies; activating them anyway")
        self.generation += 1
        if origin and self.last is not None:
            record = ended(
                ReloadResult.RESTORED, problems=self.last.problems, warnings=compiled.warnings, origin=origin
            )
        else:
            record = ended(ReloadResult.ACCEPTED, warnings=compiled.warnings)
        began = time.monotonic()
        try:
            self._activate(compiled.policies, record)
        except Exception as error:
            log.exception("unexpected error while activating new policies")
            self.generation -= 1
            self._reactivate()
            return ended(ReloadResult.FAILED, problems=(f"activation failed: {_named(error)}",))
        finally:
            self._worked_seconds += time.monotonic() - began
        self.active, self.active_record = compiled.policies, record
        self._is_half_way = False
        self.in_force.set()
        return record

    def _compile_timed(self, found: PolicySources) -> Accepted[PolicySetT] | Refused:
        """Compile in a thread, and note how much of this process' time that took."""
        began = time.thread_time()
        try:
            return self._compile(found)
        finally:
            self._worked_seconds += time.thread_time() - began

    def _reactivate(self) -> None:
        """Undo an activation that broke half-way, if there is something to go back to.

        Raises:
            PoliciesLost: that broke, too.
        """
        if self._part is None and self.active is None:
            self._is_half_way = True
            return
        try:
            if self.active is None or self.active_record is None:
                assert self._part is not None
                self._part.withdraw()
                return
            self._activate(self.active, self.active_record)
        except Exception as again:
            raise PoliciesLost(f"failed to activate the last good policies again: {_named(again)}") from again

    def _record(
        self,
        result: ReloadResult,
        *,
        arrived_at: float,
        hash: str | None = None,  # noqa: A002 - the record's word
        problems: tuple[str, ...] = (),
        warnings: tuple[str, ...] = (),
        origin: str = "",
    ) -> ReloadRecord:
        return ReloadRecord(
            result=result,
            hash=hash,
            generation=self.generation,
            at=self._clock(),
            seconds=time.monotonic() - arrived_at,
            problems=problems,
            warnings=warnings,
            origin=origin,
            owner=self._part.owner if self._part is not None else "",
        )

    def _record_result(self, record: ReloadRecord) -> None:
        if record.result is not ReloadResult.RESTORED:
            self.last = record
        if record.successful:
            log.info("%s (%.0f ms)", record.summary(), 1000 * record.seconds)
        else:
            log.error("%s", record.summary())
        for problem in record.problems if record.result is not ReloadResult.RESTORED else ():
            log.error("%s", problem)
        for warning in record.warnings:
            log.warning("%s", warning)
        try:
            self._report(record)
        except Exception:
            log.exception("unexpected error while reporting a policy reload")

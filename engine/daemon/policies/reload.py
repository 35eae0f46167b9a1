"""Candidate policies accepted or refused; the last good set stays. Knows neither files nor the language."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from engine.adapters.policy_sources import PolicySources, PolicySourcesError

log = logging.getLogger(__name__)

PolicySetT = TypeVar("PolicySetT")


class PoliciesLost(Exception):
    """No policy set is known to be whole in force: only a new process helps."""


EVENT_MESSAGE_LIMIT = 1024
"""Characters; the API server refuses longer messages in Events."""


@dataclass(frozen=True, slots=True)
class Accepted(Generic[PolicySetT]):
    """What a compiler answers to good sources."""

    policies: PolicySetT
    warnings: tuple[str, ...] = ()
    """Rendered diagnostics that do not prevent use."""


@dataclass(frozen=True, slots=True)
class Refused:
    """What a compiler answers to bad sources."""

    problems: tuple[str, ...]
    """Rendered diagnostics, each beginning `FILE:LINE:COLUMN: `; may have several lines."""


Compile = Callable[[PolicySources], Accepted[PolicySetT] | Refused]
"""Compiles one generation. Runs in a thread, so it must not touch what the event loop owns."""


class ReloadResult(Enum):
    """How a candidate ended; the value is the `result` label in metrics."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """It does not compile."""
    UNREADABLE = "unreadable"
    """There is nothing to compile."""
    FAILED = "failed"
    """It could not be compiled or taken over through a fault of the scheduler's own."""


@dataclass(frozen=True, slots=True)
class ReloadRecord:
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
    warnings: tuple[str, ...] = ()

    @property
    def successful(self) -> bool:
        """Whether the newest candidate is what decides now."""
        return self.result is ReloadResult.ACCEPTED

    def summary(self) -> str:
        """Return one message for an Event: what happened, and the first problems, within the API's limit."""
        if self.successful:
            return f"policies accepted: generation {self.generation}, hash {self.hash}"
        stays = f"generation {self.generation} stays in use" if self.generation else "nothing is scheduled"
        head = f"policies {self.result.value}, {stays}: "
        lines = [problem.partition("\n")[0] for problem in self.problems]
        room = EVENT_MESSAGE_LIMIT - len(head)
        for count in range(len(lines), 0, -1):
            more = f" (and {len(lines) - count} more)" if count < len(lines) else ""
            text = "; ".join(lines[:count]) + more
            if len(text) <= room:
                return head + text
        return (head + "; ".join(lines))[: EVENT_MESSAGE_LIMIT - 1] + "…"


def report_of(record: ReloadRecord) -> dict[str, Any]:
    """Return what other people's `policyctl rollout status` should know of a candidate's end."""
    told: dict[str, Any] = {"candidate": record.hash or "", "result": record.result.value}
    told["problem"] = record.problems[0].partition("\n")[0] if record.problems else ""
    if record.successful:
        told |= {"active": record.hash or "", "generation": record.generation, "since": record.at}
    return told


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


async def _nothing(_: object) -> None:
    return None


class PolicyReloader(Generic[PolicySetT]):
    """Takes candidates in the order of their arrival, one at a time; of several that wait, only the newest.

    A candidate is compiled in a thread, prepared (its metrics get first values), then activated in one call on
    the event loop, hence between two decisions. Whatever goes wrong leaves the active set as it is.
    """

    def __init__(
        self,
        *,
        compile_policies: Compile[PolicySetT],
        activate: Callable[[PolicySetT, ReloadRecord], None],
        report: Callable[[ReloadRecord], None],
        clock: Callable[[], float],
        prepare: Callable[[PolicySetT], Awaitable[object]] = _nothing,
    ) -> None:
        """Set up; nothing is active yet.

        Args:
            compile_policies: pure and blocking; answers with the set or with what is wrong.
            activate: makes the set the one that decides. Where it raises, it is called with the last good set again.
            report: told of every end of a candidate, after activation; not called on the decision path.
            clock: Unix seconds.
            prepare: awaited before activation, at most as long as it bounds itself.
        """
        self._compile = compile_policies
        self._activate = activate
        self._report = report
        self._clock = clock
        self._prepare = prepare
        self._candidate: tuple[PolicySources | PolicySourcesError, float] | None = None
        self._arrived = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        """Takes candidates until it is cancelled; ends with `PoliciesLost` where nothing can decide any more."""
        self._active_record: ReloadRecord | None = None
        """Of the set's activation."""
        self.active: PolicySetT | None = None
        """The last good set; None until there is one."""
        self.generation = 0
        self.last: ReloadRecord | None = None
        """The end of the newest candidate."""
        self.last_success: ReloadRecord | None = None
        self.has_ended = asyncio.Event()
        """Set once a candidate has come to its end."""

    @property
    def ready(self) -> bool:
        """Whether there is a set to decide with."""
        return self.active is not None

    async def __aenter__(self) -> PolicyReloader[PolicySetT]:
        """Start taking candidates."""
        self.task = asyncio.create_task(self._run(), name="policy reload")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop; a candidate under way is dropped."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            self.task = None

    def offer(self, found: PolicySources | PolicySourcesError) -> None:
        """Take a candidate, or the reason why there is none; returns at once. Call on the event loop."""
        self._candidate = (found, self._clock())
        self._arrived.set()

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            if self._candidate is not None:
                (found, arrived_at), self._candidate = self._candidate, None
                try:
                    await self._take(found, arrived_at=arrived_at)
                except PoliciesLost as lost:
                    log.critical("stopping: %s", lost)
                    raise

    async def _take(self, found: PolicySources | PolicySourcesError, *, arrived_at: float) -> None:
        if isinstance(found, PolicySourcesError):
            self._end(ReloadResult.UNREADABLE, arrived_at=arrived_at, problems=(str(found),))
            return
        if found.hash == self._active_hash:
            # a bad edit was taken back
            self._end(ReloadResult.ACCEPTED, arrived_at=arrived_at, hash=found.hash)
            return
        try:
            compiled = await asyncio.to_thread(self._compile, found)
        except Exception as error:
            log.exception("unexpected error while compiling policies")
            self._fail(f"the compiler failed: {_named(error)}", arrived_at=arrived_at, hash=found.hash)
            return
        if isinstance(compiled, Refused):
            self._end(ReloadResult.REFUSED, arrived_at=arrived_at, hash=found.hash, problems=compiled.problems)
            return
        try:
            await self._prepare(compiled.policies)
        except Exception:
            log.exception("unexpected error while preparing new policies; they are used nevertheless")
        self.generation += 1
        record = self._record(ReloadResult.ACCEPTED, arrived_at=arrived_at, hash=found.hash, warnings=compiled.warnings)
        try:
            self._activate(compiled.policies, record)
        except Exception as error:
            log.exception("unexpected error while activating new policies")
            self.generation -= 1
            self._reactivate(error)
            self._fail(f"activation failed: {_named(error)}", arrived_at=arrived_at, hash=found.hash)
            return
        self.active, self._active_record = compiled.policies, record
        self._tell(record)

    def _reactivate(self, error: Exception) -> None:
        """Undo an activation that broke half-way.

        Raises:
            PoliciesLost: that broke, too, or there is nothing to go back to.
        """
        if self.active is None or self._active_record is None:
            raise PoliciesLost(f"activating the first policies failed: {_named(error)}") from error
        try:
            self._activate(self.active, self._active_record)
        except Exception as again:
            raise PoliciesLost(f"activating the last good policies again failed: {_named(again)}") from again

    def _fail(self, problem: str, *, arrived_at: float, hash: str) -> None:  # noqa: A002 - the record's word
        self._end(ReloadResult.FAILED, arrived_at=arrived_at, hash=hash, problems=(problem,))

    @property
    def _active_hash(self) -> str | None:
        return self._active_record.hash if self._active_record is not None else None

    def _end(
        self,
        result: ReloadResult,
        *,
        arrived_at: float,
        hash: str | None = None,  # noqa: A002 - the record's word
        problems: tuple[str, ...] = (),
    ) -> None:
        self._tell(self._record(result, arrived_at=arrived_at, hash=hash, problems=problems))

    def _record(
        self,
        result: ReloadResult,
        *,
        arrived_at: float,
        hash: str | None,  # noqa: A002 - the record's word
        problems: tuple[str, ...] = (),
        warnings: tuple[str, ...] = (),
    ) -> ReloadRecord:
        now = self._clock()
        return ReloadRecord(
            result=result,
            hash=hash,
            generation=self.generation,
            at=now,
            seconds=max(0.0, now - arrived_at),
            problems=problems,
            warnings=warnings,
        )

    def _tell(self, record: ReloadRecord) -> None:
        self.last = record
        self.has_ended.set()
        if record.successful:
            self.last_success = record
            log.info("%s (%.0f ms)", record.summary(), 1000 * record.seconds)
            for warning in record.warnings:
                log.warning("%s", warning)
        else:
            log.error("%s", record.summary())
            for problem in record.problems:
                log.error("%s", problem)
        try:
            self._report(record)
        except Exception:
            log.exception("unexpected error while reporting a policy reload")

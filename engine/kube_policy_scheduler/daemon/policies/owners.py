"""Policies of several owners in force together: each has a last good set, so one owner's error blocks no other."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

from kube_policy_scheduler.adapters.loops import Loops
from kube_policy_scheduler.adapters.policy_directory import PolicyDirectory
from kube_policy_scheduler.adapters.policy_sources import OWNER_LIMITS
from kube_policy_scheduler.daemon.configuration.settings import Settings
from kube_policy_scheduler.daemon.policies.checking import PolicyChecker
from kube_policy_scheduler.daemon.policies.live import LivePolicies, PolicyCompiler
from kube_policy_scheduler.daemon.policies.reload import (
    FormerPolicies,
    PartOfAll,
    PolicyReloader,
    ReloadRecord,
)
from kube_policy_scheduler.documents.owner_settings import OwnerSettings, owner_of

FIRST_SECONDS = 5.0
"""So long a start waits for the policies of owners, so that no pod is placed without them; then it goes on."""
LEAST_REST_SECONDS = 1.0
"""Times the number of owners: all together change what is in force once a second at most, as each change lets pods that
wait for their gang be decided again."""
MOST_REST_SECONDS = 300.0
SHARE_OF_TIME = 0.05
"""Of the time, that changes of all owners together may take at most."""
MOST_PROBLEMS = 20
"""Of one owner, in `/policies`."""


class PoliciesTogether:
    """The policies in force: the administrator's, and those of each owner."""

    def __init__(self, owners: Sequence[str], activate: Callable[[LivePolicies, str], None]) -> None:
        """Take note of the owners, in the administrator's order.

        activate: makes policies, with the hash of all of them, those that decide.
        """
        self._order = ("", *owners)
        self._activate = activate
        self._parts: dict[str, tuple[LivePolicies, str]] = {}

    def use(self, owner: str, policies: LivePolicies, record: ReloadRecord) -> None:
        """Replace the policies of one owner; "": the administrator's."""
        self._put({**self._parts, owner: (policies, record.hash or "")})

    def withdraw(self, owner: str) -> None:
        """Take the policies of one owner away."""
        self._put({name: part for name, part in self._parts.items() if name != owner})

    def _put(self, parts: Mapping[str, tuple[LivePolicies, str]]) -> None:
        """Put parts in force, once the administrator's policies are among them: until then nothing decides."""
        if "" in parts:
            ordered = [parts[name] for name in self._order if name in parts]
            self._activate(LivePolicies.together([live for live, _ in ordered]), self._hash(parts))
        self._parts = dict(parts)

    def _hash(self, parts: Mapping[str, tuple[LivePolicies, str]]) -> str:
        """Return the hash of all; that of the administrator's policies where there are no others."""
        if len(parts) == 1:
            return parts[""][1]
        text = "\n".join(f"{name} {parts[name][1]}" for name in self._order if name in parts)
        return blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class OwnerState:
    """Where the policies of one owner stand."""

    owner: str
    active: str | None
    """Hash of the policies in force."""
    generation: int
    problem: str | None
    """Why the newest are not those in force; None where they are."""
    record: ReloadRecord | None
    """Of the newest."""
    policies: tuple[str, ...]

    def as_data(self) -> dict[str, Any]:
        """Return it for programs."""
        last = self.record
        return {
            "active": self.active,
            "generation": self.generation,
            "candidate": last.hash if last is not None else None,
            "accepted": last.successful if last is not None else False,
            "problems": list(last.problems[:MOST_PROBLEMS]) if last is not None else [],
            "policies": list(self.policies),
        }


class _Source:
    """The policies of one owner."""

    def __init__(self, settings: OwnerSettings, reloader: PolicyReloader[LivePolicies]) -> None:
        self.settings = settings
        self.reloader = reloader

    def state(self) -> OwnerState:
        reloader = self.reloader
        active = reloader.active_record
        names = tuple(p.name for p in reloader.active.policy_set.policies) if reloader.active is not None else ()
        return OwnerState(
            self.settings.name,
            active.hash if active is not None else None,
            reloader.generation,
            reloader.problem(),
            reloader.last,
            names,
        )


class Owners:
    """Follows the policies of all owners."""

    def __init__(
        self,
        settings: Settings,
        *,
        together: PoliciesTogether,
        prepare: Callable[[LivePolicies], Awaitable[object]],
        report: Callable[[ReloadRecord], None],
        former: Callable[[str], Awaitable[Sequence[FormerPolicies]]],
        checker: PolicyChecker,
        loops: Loops,
    ) -> None:
        """Set up; nothing is read yet.

        Args:
            settings: of the daemon.
            together: takes the policies.
            prepare: awaited before policies are activated.
            report: told of every end of a candidate.
            former: returns what was accepted from an owner before this process began, the newest first.
            checker: stopped at the end. Not the administrator's: an owner whose policies take too long holds up others
                that have owners only.
            loops: of the process.
        """
        owners = settings.policies.owners
        self._loops = loops
        self._turns = asyncio.Lock()
        self._checker = checker
        self._rest = partial(rest_seconds, owners=len(owners))
        self._sources = [
            _Source(
                each,
                PolicyReloader(
                    compile_policies=PolicyCompiler(
                        frozenset(settings.scheduler_names),
                        watched=settings.watched,
                        checker=self._checker,
                        owner=owner_of(each, owners=len(owners)),
                    ),
                    activate=partial(together.use, each.name),
                    report=report,
                    clock=time.time,
                    prepare=prepare,
                    former=partial(former, each.name),
                    loops=loops,
                    part=PartOfAll(each.name, self._turns, self._rest, partial(together.withdraw, each.name)),
                ),
            )
            for each in owners
        ]

    async def __aenter__(self) -> Owners:
        """Read what there is, then go on watching. A folder that does not answer holds up no other."""
        self._stack = contextlib.AsyncExitStack()
        self._stack.callback(self._checker.stop)
        for source in self._sources:
            await self._stack.enter_async_context(source.reloader)
        await asyncio.gather(*(self._watch(source) for source in self._sources))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop watching."""
        await self._stack.aclose()

    async def _watch(self, source: _Source) -> None:
        directory = PolicyDirectory(
            source.settings.path,
            deliver=source.reloader.offer,
            limits=OWNER_LIMITS,
            name=f"policy-directory-{source.settings.name}",
            loops=self._loops,
        )
        await self._stack.enter_async_context(directory)

    async def first(self) -> None:
        """Wait until each owner's first policies came to their end, for a time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                for source in self._sources:
                    await source.reloader.has_ended.wait()

    def states(self) -> list[OwnerState]:
        """Return where each owner stands, in the administrator's order."""
        return [source.state() for source in self._sources]

    def problem(self) -> str | None:
        """Return which owners' newest policies are not in force; None where all are."""
        found = [state.problem for state in self.states() if state.problem is not None]
        return "; ".join(found) if found else None


def rest_seconds(took: float, *, owners: int) -> float:
    """Return how long an owner waits after a change, so that all owners together take a small share of the time."""
    return min(MOST_REST_SECONDS, owners * max(LEAST_REST_SECONDS, took / SHARE_OF_TIME))

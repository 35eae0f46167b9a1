"""Policies of several owners in force together: each has a last good set, so one owner's error blocks no other."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.files.policy_directory import PolicyDirectory
from kube_policy_scheduler.adapters.files.policy_sources import OWNER_LIMITS, SUFFIX, PolicySources
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.reflector import Reflector
from kube_policy_scheduler.adapters.kube.scheduling_policies import (
    SCHEDULING_POLICIES,
    PolicyStatusWriter,
    PolicyVerdict,
    SchedulingPolicies,
    SchedulingPolicy,
)
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.process.loops import Loops
from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.daemon.configuration.settings import Settings
from kube_policy_scheduler.daemon.policies.live import LivePolicies, PolicyCompiler
from kube_policy_scheduler.daemon.policies.policy_checker import PolicyChecker
from kube_policy_scheduler.daemon.policies.reload import (
    FormerPolicies,
    PartOfAll,
    PastPolicies,
    PolicyReloader,
    ReloadRecord,
)
from kube_policy_scheduler.documents.owner_settings import OwnerSettings, owner_of

FIRST_SECONDS = 5.0
"""A start waits this long for the policies of owners, so that no pod is placed without them; then it continues."""
LEAST_REST_SECONDS = 1.0
"""Times the number of owners: all together change what is in force once a second at most, as each change lets pods that
wait for their gang be decided again."""
MOST_REST_SECONDS = 300.0
SHARE_OF_TIME = 0.05
"""Of the time, that changes of all owners together may take at most."""
KEPT_OFFERS = 4
MOST_PROBLEMS = 20
"""Of one owner, in `/policies`."""


class PoliciesTogether:
    """The policies in force: the administrator's, and those of each owner."""

    def __init__(self, owners: Sequence[str], activate: Callable[[LivePolicies, str], None]) -> None:
        """Note the owners, in the administrator's order.

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


class OwnerState(msgspec.Struct, frozen=True):
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
        self.home = settings.scheduling_policies
        """The namespace of its SchedulingPolicies."""
        self._offered: KeptView[str, Mapping[str, tuple[str, int]]] = KeptView(most=KEPT_OFFERS)
        """By hash: name, uid and generation of the objects that were offered."""

    def offer(self, objects: SchedulingPolicies) -> None:
        """Offer the policies of the owner's namespace."""
        assert self.home is not None
        found = objects.sources(self.home)
        key = found.hash if isinstance(found, PolicySources) else ""
        offered = {
            name: (each.metadata.uid, each.metadata.generation) for name, each in objects.objects(self.home).items()
        }
        self._offered.set(key, offered)
        self.reloader.offer(found)

    def verdicts(self) -> Iterator[tuple[str, PolicyVerdict]]:
        """Yield what to say of each object after its newest policies, or earlier ones, came to an end."""
        owner, active, record = self.settings.name, self.reloader.active, self.reloader.last
        if record is None:
            return
        files = {p.compiled.checked.source.name for p in active.policy_set.policies} if active is not None else set()
        in_force = self.reloader.active_record
        for name, (uid, generation) in (self._offered.get(record.hash or "") or {}).items():
            file = f"{owner}/{name}{SUFFIX}"
            if record.successful:
                accepted = True, "Accepted", f"generation {record.generation} of the policies of {owner}"
            else:
                own = [problem for problem in record.problems if problem.startswith(f"{file}:")]
                said = [problem.partition("\n")[0] for problem in own or record.problems]
                reason = record.result.value.capitalize() if own else "OtherPolicy"
                accepted = False, reason, "; ".join(said)
            is_active = record.successful or file in files
            why = "Newest" if record.successful else "Earlier" if is_active else "Never"
            text = f"an earlier version of {name} is in force" if why == "Earlier" else ""
            hash_ = (in_force.hash or "") if in_force is not None else ""
            yield name, PolicyVerdict(uid, generation, owner, hash_, accepted, (is_active, why, text))

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


class OwnersApi(msgspec.Struct, frozen=True):
    """How SchedulingPolicies are read and told how they fare."""

    transport: Transport
    random: Random
    fence: Fence | None
    """Who may write; None: nobody."""


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
        store: Callable[..., None],
        checker: PolicyChecker,
        loops: Loops,
        api: OwnersApi | None = None,
    ) -> None:
        """Set up; nothing is read yet.

        Args:
            settings: of the daemon.
            together: takes the policies.
            prepare: awaited before policies are activated.
            report: told of every end of a candidate.
            former: returns what was accepted from an owner before this process began, the newest first.
            store: receives what is accepted from an `owner`, so that the next start finds it.
            checker: stopped at the end. Not the administrator's: an owner whose policies take too long holds up others
                that have owners only.
            loops: of the process.
            api: where SchedulingPolicies are; None: nowhere.
        """
        owners = settings.policies.owners
        self._loops = loops
        self._lock = asyncio.Lock()
        self._checker = checker
        self._told = report
        homes = {each.scheduling_policies: each.name for each in owners if each.scheduling_policies is not None}
        self._objects = SchedulingPolicies(list(homes), changed=self._changed)
        self._reflector: Reflector[SchedulingPolicy] | None = None
        self._statuses: PolicyStatusWriter | None = None
        if api is not None and homes:
            self._reflector = Reflector(
                api.transport, SCHEDULING_POLICIES, self._objects, optional=True, random=api.random
            )
            if api.fence is not None:
                self._statuses = PolicyStatusWriter(api.transport, find=self._find, random=api.random, fence=api.fence)
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
                    report=self._report,
                    clock=time.time,
                    prepare=prepare,
                    past=PastPolicies(partial(former, each.name), partial(store, owner=each.name)),
                    loops=loops,
                    part=PartOfAll(each.name, self._lock, self._rest, partial(together.withdraw, each.name)),
                ),
            )
            for each in owners
        ]

    async def __aenter__(self) -> Owners:
        """Read the policies of all owners at the same time, so that a slow folder delays no other; then watch them."""
        self._stack = contextlib.AsyncExitStack()
        self._stack.callback(self._checker.stop)
        for source in self._sources:
            await self._stack.enter_async_context(source.reloader)
        for name, work in (("watch-schedulingpolicies", self._reflector), ("scheduling-policy-status", self._statuses)):
            if work is not None:
                self._stack.push_async_callback(self._loops.end, self._loops.start(name, work.run, restarts=True))
        await asyncio.gather(*(self._watch(source) for source in self._sources))
        return self

    def _changed(self, namespace: str) -> None:
        for source in self._sources:
            if source.home == namespace:
                source.offer(self._objects)

    def _find(self, namespace: str, name: str) -> SchedulingPolicy | None:
        return self._objects.objects(namespace).get(name)

    def _report(self, record: ReloadRecord) -> None:
        """Report the result for an owner's policies, also in the objects that they were read from."""
        self._told(record)
        for source in self._sources:
            if source.settings.name == record.owner and source.home is not None and self._statuses is not None:
                for name, verdict in source.verdicts():
                    self._statuses.put(source.home, name, verdict)

    async def __aexit__(self, *_: object) -> None:
        """Stop watching."""
        await self._stack.aclose()

    async def _watch(self, source: _Source) -> None:
        if source.settings.path is None:
            return
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

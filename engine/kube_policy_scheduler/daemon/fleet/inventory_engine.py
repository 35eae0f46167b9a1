"""A cluster inventory: ClusterProfiles in, PlacementDecisions out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.client import JSON, MERGE_PATCH
from kube_policy_scheduler.adapters.kube.errors import Conflict, KubeError, NotFound
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.fleet_resources import INVENTORY_GROUP, PROFILE_DECISIONS
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.daemon.fleet.engine import FleetDecision, Shown, Surroundings, lasts, shown_choice
from kube_policy_scheduler.daemon.watching.resources import Handler
from kube_policy_scheduler.fleet.cluster_profile import ClusterProfile
from kube_policy_scheduler.fleet.inventory.inventory import CHOSEN, Choice, Inventory, Slice
from kube_policy_scheduler.fleet.inventory.objects import ProfileDecision
from kube_policy_scheduler.policy.fleet_rules import FleetRules
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.workload_record import RecordedWorkload, WorkloadOutcome

Json = dict[str, Any]
_API_VERSION = PROFILE_DECISIONS.root.removeprefix("/apis/")


class InventoryEngine:
    """Hands what is watched to the inventory, and writes what policies choose."""

    def __init__(self, given: Surroundings, *, steady: Callable[[], float] = time.monotonic) -> None:
        """Know nothing yet; without policies, nothing is chosen. steady: seconds on a clock that nobody sets."""
        self.lease_namespace = given.settings.fleet.profiles_namespace
        self.maker = Inventory(self.lease_namespace, given.settings.scheduler_names[0])
        self._writer = ChoiceWriter(given.transport, self.maker, fence=given.fence)
        self._steady = steady
        self.shown: Mapping[str, Shown] = {"/debug/placements": self._shown}

    def use(self, rules: FleetRules, now: Steady) -> None:
        """Choose by these policies from now on."""
        self.maker.use(rules.names_of(CHOSEN), rules.decide_by_name, now)

    def handler(self, kind: type) -> Handler[Any]:
        """Return what takes the objects of a kind."""
        maker, now = self.maker, self._now
        handlers: Mapping[type, Handler[Any]] = {
            ClusterProfile: Handler(
                lambda listed: maker.replace_profiles(listed, now()),
                lambda thing: maker.set_profile(thing, now()),
                lambda thing: maker.delete_profile(thing, now()),
            ),
            ProfileDecision: Handler(
                lambda listed: maker.replace_decisions(listed, now()),
                lambda thing: maker.set_decision(thing, now()),
                lambda thing: maker.delete_decision(thing, now()),
            ),
        }
        return handlers[kind]

    def next(self, now: Steady) -> Choice | None:
        """Return the next choice; None if there is none now."""
        return self.maker.next(now)

    async def carry_out(self, work: Choice) -> FleetDecision | None:
        """Write a choice."""
        return await self._writer.carry_out(work, self._now)

    def broke(self, work: Choice, now: Steady) -> None:
        """Take note that the work on a choice broke through a fault of ours."""
        self.maker.refused(work, now)

    def look_again(self, now: Steady) -> None:
        """Ask some policies again."""
        self.maker.look_at_some(now)

    def placements(self) -> Iterable[Mapping[str, int]]:
        """Return the clusters that each policy chose; there are no replicas."""
        return (dict.fromkeys(names, 0) for names in list(self.maker.selected()))

    def _shown(self, key: tuple[str, str]) -> Mapping[str, Any] | None:
        """Return what a policy would choose now, by its name."""
        found = self.maker.choice(key[1])
        if found is None:
            return None
        return shown_choice(found.before, found.chosen, found.outcome)

    def _now(self) -> Steady:
        return Steady(self._steady())


class ChoiceWriter:
    """Writes one choice of a policy at a time; those of several may be under way."""

    def __init__(self, transport: Transport, inventory: Inventory, *, fence: Fence) -> None:
        """Make one.

        Args:
            transport: to the API server.
            inventory: is told how each write ended.
            fence: whether this replica may write.
        """
        self._transport, self._inventory, self._fence = transport, inventory, fence

    async def carry_out(self, work: Choice, now: Callable[[], Steady]) -> FleetDecision | None:
        """Write what is not there yet, and say how that ended. Raises nothing of the API's.

        Returns:
            What became of it; None if nothing is new, or it is decided again because an object has changed.
        """
        attempt = self._inventory.waiting.attempts(work.key) + 1
        try:
            for each in work.slices:
                await self._write(work, each)
            for name in work.superfluous:
                known = work.known[name].metadata
                condition = {"preconditions": {"uid": known.uid, "resourceVersion": known.resource_version}}
                await self._send("DELETE", name, condition)
        except (Conflict, NotFound) as error:  # the watch shows what somebody else wrote
            self._inventory.conflicted(work, now())
            return self._decision(work, WorkloadOutcome.FAILED, attempt, problem=str(error)) if lasts(attempt) else None
        except KubeError as error:
            self._inventory.refused(work, now())
            return self._decision(work, WorkloadOutcome.FAILED, attempt, problem=str(error))
        self._inventory.done(work, now())
        if not work.outcome.placed:
            return self._decision(work, WorkloadOutcome.UNPLACED, attempt)
        return self._decision(work, WorkloadOutcome.PLACED, attempt) if work.writes else None

    async def _write(self, work: Choice, wanted: Slice) -> None:
        profile = {"apiVersion": f"{INVENTORY_GROUP}/v1alpha1", "kind": ClusterProfile.__name__}
        refs = [{**profile, "name": name, "namespace": self._inventory.namespace} for name in wanted.clusters]
        said = {
            "decisions": [{"clusterProfileRef": ref} for ref in refs],
            "schedulerName": self._inventory.scheduler,
        }
        labels, known = wanted.labels(work.policy), work.known.get(wanted.name)
        if known is not None:
            meta = {"labels": labels, "resourceVersion": known.metadata.resource_version}
            await self._send("PATCH", wanted.name, {"metadata": meta, **said})
            return
        head = {"name": wanted.name, "namespace": self._inventory.namespace, "labels": labels}
        await self._send("POST", "", {"apiVersion": _API_VERSION, "kind": CHOSEN, "metadata": head, **said})

    async def _send(self, verb: str, name: str, body: Json) -> None:
        where = PROFILE_DECISIONS
        namespace = self._inventory.namespace
        await self._transport.request(
            verb,
            where.path(name, namespace=namespace) if name else where.collection(namespace=namespace),
            body=msgspec.json.encode(body),
            content_type=MERGE_PATCH if verb == "PATCH" else JSON,
            resource=where.label,
            fence=self._fence,
        )

    def _decision(self, work: Choice, became: WorkloadOutcome, attempt: int, *, problem: str = "") -> FleetDecision:
        namespace = self._inventory.namespace
        return FleetDecision(
            key=(namespace, work.policy),
            generation=0,
            workload=RecordedWorkload(kind=CHOSEN, name=work.policy, namespace=namespace, uid="", replicas=1),
            outcome=msgspec.structs.replace(work.outcome, targets=dict.fromkeys(work.chosen, 1)),
            became=became,
            before=dict.fromkeys(work.before, 1),
            attempt=attempt,
            problem=problem,
        )

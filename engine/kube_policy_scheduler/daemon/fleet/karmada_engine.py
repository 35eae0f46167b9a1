"""Karmada: bindings in, placements out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from kube_policy_scheduler.adapters.kube.errors import Forbidden, KubeError, NotFound
from kube_policy_scheduler.adapters.kube.templates import MOST_KINDS, TemplateMetadata
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.daemon.fleet.binding_writer import BindingWriter
from kube_policy_scheduler.daemon.fleet.engine import Due, FleetDecision, Shown, Surroundings
from kube_policy_scheduler.daemon.fleet.estimators import make_estimators
from kube_policy_scheduler.daemon.fleet.members import make_members
from kube_policy_scheduler.daemon.watching.resources import Handler
from kube_policy_scheduler.fleet.karmada.decision_maker import (
    AnyQuestion,
    DecisionMaker,
    Key,
    MembersQuestion,
    PlacementAlone,
    RoomQuestion,
    Template,
    Work,
)
from kube_policy_scheduler.fleet.karmada.objects import (
    ClusterResourceBinding,
    KarmadaCluster,
    ObjectReference,
    ResourceBinding,
)
from kube_policy_scheduler.fleet.model import ToldMember
from kube_policy_scheduler.policy.fleet_rules import FleetRules
from kube_policy_scheduler.times import Steady

logger = logging.getLogger(__name__)

MEMBER_SECONDS = 10.0
"""A decision waits at most so long for the first reading of the nodes and pods that its policy asks about."""
OVERCOMMIT_PROTECTION = "SchedulingOvercommitProtection"


class Bindings(Protocol):
    """Takes the bindings that are watched."""

    def replace_bindings(self, bindings: Sequence[ResourceBinding], now: Steady, *, namespaced: bool) -> None:
        """Take a whole list of ResourceBindings, or of ClusterResourceBindings."""
        ...

    def set_binding(self, binding: ResourceBinding, now: Steady) -> None:
        """Take a binding that is new or has changed."""
        ...

    def delete_binding(self, key: Key) -> None:
        """Take note that a binding is gone."""
        ...


class KarmadaEngine:
    """Hands what is watched to the decision maker, and its work to the writer."""

    lease_namespace = "karmada-system"
    """Each Karmada control plane has it."""

    def __init__(self, given: Surroundings, *, steady: Callable[[], float] = time.monotonic) -> None:
        """Know nothing yet. steady: seconds on a clock that nobody sets."""
        settings, fleet = given.settings, given.settings.fleet
        self.maker = DecisionMaker(
            settings.scheduler_names if settings.watched is None else settings.watched,
            rules=PlacementAlone(counts_decided=OVERCOMMIT_PROTECTION in fleet.feature_gates),
            features=frozenset(fleet.feature_gates),
            keep_empty=fleet.enable_empty_workload_propagation,
            asks_clusters=fleet.estimators is not None,
            reads_members=True,
        )
        self._steady = steady
        asked = fleet.estimators
        counts = asked is not None and asked.members
        self._make_members = partial(
            make_members, given.transport, self.maker.tallies, tell=self._tell_member, counts=counts
        )
        self._members = self._make_members() if counts else None
        """None: nobody asks about the nodes and pods of clusters."""
        self._estimators = make_estimators(asked, self.maker.tallies, self._members) if asked is not None else None
        self._writer = BindingWriter(given.transport, self.maker, given.events, fence=given.fence)
        self._templates = TemplateReader(given.transport)
        self.shown: Mapping[str, Shown] = {"/debug/bindings": self._shown}

    def use(self, rules: FleetRules, now: Steady) -> None:
        """Decide by these policies from now on."""
        if rules.member_values and self._members is None:
            self._members = self._make_members()
        if self._members is not None:
            self._members.use(rules.member_values)
        self.maker.use(rules, now)

    def _tell_member(self, cluster: str, told: ToldMember | None) -> None:
        self.maker.set_member(cluster, told, self._now())

    def look_at_members(self) -> None:
        """Read the nodes and pods of clusters again whose time has come, if policies ask about them."""
        if self._members is not None:
            self._members.look(each.name for each in self.maker.fleet.clusters if not each.deleting)

    def handler(self, kind: type) -> Handler[Any]:
        """Return what takes the objects of a kind."""
        maker, bindings, now = self.maker, self.bindings, self._now

        def listed_bindings(listed: Any) -> None:
            bindings.replace_bindings(listed, now(), namespaced=kind is ResourceBinding)

        if kind is KarmadaCluster:
            return Handler(
                lambda listed: maker.replace_clusters(listed, now()),
                lambda thing: maker.set_cluster(thing, now()),
                lambda thing: maker.delete_cluster(thing.metadata.name, now()),
            )
        assert kind in (ResourceBinding, ClusterResourceBinding)
        return Handler(
            listed_bindings,
            lambda thing: bindings.set_binding(thing, now()),
            lambda thing: bindings.delete_binding((thing.metadata.namespace, thing.metadata.name)),
        )

    @property
    def bindings(self) -> Bindings:
        """Return what takes bindings."""
        return self.maker

    def next(self, now: Steady) -> Due | None:
        """Return what is to be done next; None if there is nothing now."""
        return self.maker.next(now)

    async def carry_out(self, work: Any) -> FleetDecision | None:
        """Read the template or ask for the room that is asked for, or write the decision."""
        if isinstance(work, Work):
            return await self._writer.carry_out(work)
        await self.answer(work)
        return None

    async def answer(self, question: AnyQuestion) -> None:
        """Read the template or the clusters, or ask for the room, that is asked for."""
        if isinstance(question, MembersQuestion):
            assert self._members is not None, "nobody asks otherwise"
            await self._members.wait(question.clusters, seconds=MEMBER_SECONDS)
            self.maker.members_waited_for(question.key, self._now())
        elif isinstance(question, RoomQuestion):
            assert self._estimators is not None, "nobody asks otherwise"
            room = await self._estimators.ask(question.binding, question.clusters)
            self.maker.set_room(question.key, room, self._now())
        else:
            try:
                template = await self._templates.read(question.template)
            except KubeError as error:
                self.maker.template_failed(question.key, str(error), self._now())
            else:
                self.maker.set_template(question.key, template, self._now())

    def broke(self, work: Due, now: Steady) -> None:
        """Take note that the work on a binding broke through a fault of ours."""
        self.maker.broke(work.key, now)

    def look_again(self, now: Steady) -> None:
        """Look for replicas that may move, and at members."""
        self.look_at_members()
        self.maker.look_for_moves(now)

    def placements(self) -> Iterable[Mapping[str, int]]:
        """Return the replicas by cluster of each binding."""
        return ({each.name: each.replicas for each in one.spec.clusters or ()} for one in self.maker.bindings.values())

    def _shown(self, key: tuple[str, str]) -> Mapping[str, Any] | None:
        """Return what would be decided about a binding now."""
        workload, outcome = self.maker.workload(key), self.maker.would_decide(key)
        if outcome is None:
            return None
        has = dict(workload.has) if workload is not None else {}
        return {
            "has": has,
            "missing": sorted(has.keys() - {each.name for each in self.maker.fleet.clusters}),
            "unread": self.maker.unread(key),
            "reason": outcome.reason.value,
            "message": outcome.message,
            "targets": dict(outcome.targets),
            "term": outcome.term,
            "clusters": msgspec.to_builtins(dict(outcome.verdicts)),
        }

    def _now(self) -> Steady:
        return Steady(self._steady())


class TemplateReader:
    """Reads labels and annotations of templates from the control plane; logs once for each kind that it cannot."""

    def __init__(self, transport: Transport) -> None:
        self._templates = TemplateMetadata(transport)
        self._told: set[tuple[str, str]] = set()

    async def read(self, template: ObjectReference) -> Template:
        """Return labels and annotations, or why the template may not be read or is not there.

        Raises:
            KubeError: it cannot be read just now.
        """
        try:
            meta = await self._templates.read(template)
        except (Forbidden, NotFound) as error:
            self._tell(template, str(error))
            return Template(problem=str(error))
        except KubeError as error:
            self._tell(template, str(error))
            raise
        if meta is None:
            problem = f"the API server does not serve {template.kind} of {template.api_version}"
            self._tell(template, problem)
            return Template(problem=problem)
        return Template(meta.labels or {}, meta.annotations or {})

    def _tell(self, template: ObjectReference, why: str) -> None:
        """Log once for each kind that its templates cannot be read."""
        kind = template.api_version, template.kind
        if kind not in self._told and len(self._told) < MOST_KINDS:
            self._told.add(kind)
            fields = {"kind": template.kind, "apiVersion": template.api_version, "why": why}
            logger.warning("labels of templates cannot be read; to policies they are missing", extra=fields)

"""The HTTP extenders of the configuration, asked about pods one after the other, as kube-scheduler does.

Pods that no extender is interested in are decided meanwhile. What extenders answer is a verdict (`ExtenderVerdict`):
the pod is decided once more, on the cluster as it is then, among the nodes that they allowed.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from kube_policy_scheduler.adapters.http.extender_error import ExtenderError, Observe
from kube_policy_scheduler.adapters.kube.api_texts import ApiTexts
from kube_policy_scheduler.adapters.kube.binding import Bound, Outcome, Outdated, Reason, Refused, Unknown
from kube_policy_scheduler.adapters.kube.errors import KubeError
from kube_policy_scheduler.adapters.kube.fence import OPEN, Fence
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.daemon.configuration.settings import Settings
from kube_policy_scheduler.daemon.observing.live_metrics import ExtenderState
from kube_policy_scheduler.framework.evaluate.extender_verdict import ExtenderVerdict
from kube_policy_scheduler.framework.preempt.preemption import EvictionRules
from kube_policy_scheduler.framework.preempt.victims import Budgets, Victims, by_importance
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod, SchedulingQueue

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.http.extender import HttpExtender

logger = logging.getLogger(__name__)

SCALE = 10
"""`MaxNodeScore / MaxExtenderPriority` of kube-scheduler: a score of 10 counts as much as 100 of a plugin."""
MOST_CANDIDATES = 1_000
"""Nodes with victims that an extender is asked about; preemption looks at a tenth of the nodes, at least 100."""

Portion = Callable[[frozenset[str]], Sequence[str]]
"""From the nodes that were asked about to the next ones to ask about, the best first; empty if there are none."""


class PodGone(Exception):
    """The pod was deleted while extenders were asked about it."""


class Extenders:
    """All extenders: those that are ignorable come last."""

    def __init__(
        self,
        extenders: Iterable[HttpExtender],
        cluster: Cluster,
        texts: ApiTexts,
        *,
        fence: Fence = OPEN,
        percentage_of_nodes: int = 0,
    ) -> None:
        """Make one.

        Args:
            extenders: in the order of the configuration.
            cluster: whose pods and nodes they are asked about.
            texts: pods and nodes as JSON.
            fence: asked right before a pod is given to an extender for binding.
            percentage_of_nodes: see `nodes_to_ask`.
        """
        self._extenders = sorted(extenders, key=lambda extender: extender.settings.ignorable)
        self._cluster, self._texts, self._fence = cluster, texts, fence
        self.percentage_of_nodes = percentage_of_nodes

    async def close(self) -> None:
        """Close the connections."""
        for extender in self._extenders:
            await extender.close()

    def states(self) -> tuple[ExtenderState, ...]:
        """Return what the status page shows."""
        return tuple(
            ExtenderState(
                each.name, each.settings.ignorable, each.requests, each.errors, each.seconds, problem=each.problem
            )
            for each in self._extenders
        )

    def are_asked(self, pod: PodInfo) -> bool:
        """Return whether an extender filters or scores nodes for a pod."""
        return any(
            (each.settings.filter_verb or each.settings.prioritize_verb) for each in self._interested(pod.template)
        )

    def preempt(self, pod: PodInfo) -> bool:
        """Return whether an extender is asked before pods are evicted for a pod."""
        return any(each.settings.preempt_verb for each in self._interested(pod.template))

    def binder(self, pod: PodInfo) -> HttpExtender | None:
        """Return the extender that binds a pod; None: we do."""
        return next((each for each in self._interested(pod.template) if each.settings.bind_verb), None)

    def _interested(self, template: PodTemplate) -> tuple[HttpExtender, ...]:
        found: tuple[HttpExtender, ...] | None = template.memo.get("extenders")
        if found is None:
            named = _resources(template.spec)
            found = template.memo["extenders"] = tuple(
                each
                for each in self._extenders
                if not (managed := each.settings.managed_resources)
                or any(resource.name in named for resource in managed)
            )
        return found

    # --- filter and prioritize -----------------------------------------------------------------------

    async def ask(self, pod: PodInfo, portion: Portion) -> ExtenderVerdict:
        """Return what the extenders say about nodes for a pod.

        They are asked about the nodes of one portion; only if they reject all of these, about those of the next one.

        Raises:
            ExtenderError: an extender that is not ignorable gave no usable answer.
            PodGone: the pod does not exist any more.
        """
        text = await self._text(pod)
        rejected: dict[str, str] = {}
        while names := portion(frozenset(rejected)):
            left = await self._filter(pod, text, tuple(names), rejected)
            if left:
                return ExtenderVerdict(await self._scores(pod, text, left), rejected)
        return ExtenderVerdict({}, rejected)

    async def _filter(
        self, pod: PodInfo, text: bytes, names: tuple[str, ...], rejected: dict[str, str]
    ) -> tuple[str, ...]:
        for extender in self._interested(pod.template):
            if not extender.settings.filter_verb:
                continue
            try:
                known, nodes = await self._nodes(extender, names, rejected)
                answer = await extender.filter(text, known, nodes)
            except ExtenderError as error:
                if not extender.settings.ignorable:
                    raise
                logger.warning("an extender is skipped", extra={"pod": pod.key, "why": str(error)})
                continue
            rejected.update(answer.refused)
            names = answer.passed
            if not names:
                break
        return names

    async def _scores(self, pod: PodInfo, text: bytes, names: tuple[str, ...]) -> dict[str, float]:
        totals = dict.fromkeys(names, 0.0)
        if len(names) > 1:  # kube-scheduler takes an only node without scores
            asked = [each for each in self._interested(pod.template) if each.settings.prioritize_verb]
            for extender, scores in zip(
                asked, await asyncio.gather(*(self._prioritize(each, pod, text, names) for each in asked)), strict=True
            ):
                for name, score in scores.items():
                    totals[name] += score * extender.settings.weight * SCALE
        return totals

    async def _prioritize(
        self, extender: HttpExtender, pod: PodInfo, text: bytes, names: tuple[str, ...]
    ) -> Mapping[str, int]:
        try:
            known, nodes = await self._nodes(extender, names, {})
            return await extender.prioritize(text, known, nodes)
        except ExtenderError as error:  # as kube-scheduler, whether it is ignorable or not
            logger.warning("the scores of an extender are left out", extra={"pod": pod.key, "why": str(error)})
            return {}

    async def _nodes(
        self, extender: HttpExtender, names: tuple[str, ...], rejected: dict[str, str]
    ) -> tuple[tuple[str, ...], list[bytes] | None]:
        """Return the nodes to ask an extender about, and their JSON if it wants that; one that is gone is rejected."""
        if extender.settings.node_cache_capable:
            return names, None
        infos, rows = self._cluster.nodes.infos, self._cluster.nodes.rows
        wanted = {name: infos[rows[name]].node.metadata.resource_version for name in names if name in rows}
        try:
            texts = await self._texts.nodes(wanted)
        except KubeError as error:
            raise ExtenderError(f"extender {extender.name}: cannot read the nodes to be sent: {error}") from error
        rejected.update(dict.fromkeys((name for name in names if name not in texts), "node(s) were deleted"))
        known = tuple(name for name in names if name in texts)
        return known, [texts[name] for name in known]

    async def _text(self, pod: PodInfo) -> bytes:
        try:
            text = await self._texts.pod(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        except KubeError as error:
            raise ExtenderError(f"cannot read the pod for extenders: {error}") from error
        if text is None:
            raise PodGone
        return text

    # --- preempt -------------------------------------------------------------------------------------

    async def allowed_victims(
        self, pod: PodInfo, candidates: Mapping[str, Victims], rules: Callable[[], EvictionRules], now: float
    ) -> dict[str, Victims]:
        """Return the candidate nodes that remain, with their victims (`ProcessPreemption`).

        Extenders know of victims on the node alone. The members of their gangs on other nodes are evicted as well; a
        node is no candidate if an extender leaves out a member that is there, as no part of a gang is evicted.

        Args:
            pod: the preemptor.
            candidates: by node.
            rules: returns which pods may be evicted for it, as it is when an extender has answered.
            now: Unix seconds.

        Raises:
            ExtenderError: an extender that is not ignorable gave no usable answer.
            PodGone: the pod does not exist any more.
        """
        text = await self._text(pod)
        left = dict(list(candidates.items())[:MOST_CANDIDATES])
        for extender in self._interested(pod.template):
            if not extender.settings.preempt_verb or not left:
                continue
            sent = {
                node: ([(victim.uid, _pod_text(victim)) for victim in self._on(node, victims.pods)], victims.violations)
                for node, victims in left.items()
            }
            try:
                answer = await extender.preempt(text, sent)
                left = self._found(extender, answer, left, rules(), now)
            except ExtenderError as error:
                if not extender.settings.ignorable:
                    raise
                logger.warning("an extender is skipped", extra={"pod": pod.key, "why": str(error)})
        return left

    def _found(
        self,
        extender: HttpExtender,
        answer: Mapping[str, tuple[tuple[str, ...], int]],
        candidates: Mapping[str, Victims],
        rules: EvictionRules,
        now: float,
    ) -> dict[str, Victims]:
        found, budgets = {}, Budgets(self._cluster)
        for node, (uids, violations) in answer.items():
            if node not in candidates:
                raise ExtenderError(
                    f"extender {extender.name}: it returned node {node[:253]!r}, which was no candidate"
                )
            there = self._cluster.pods_on(node)
            pods = [pod for uid in uids if (pod := there.get(uid)) is not None]
            whole = rules.going_with(pods) if len(pods) == len(uids) else ()
            if uids and not whole:
                raise ExtenderError(
                    f"extender {extender.name}: it returned a victim that is not on node {node}, or must not be evicted"
                )
            if whole:
                if any(each.uid in there and each.uid not in uids for each in whole):
                    names = {"extender": extender.name, "node": node}
                    logger.info("an extender spares a part of a gang, so the node is no candidate", extra=names)
                    continue
                elsewhere = [each for each in whole if each.uid not in there]
                violations += len(budgets.split(elsewhere)[0])
                found[node] = Victims(tuple(by_importance(whole, now)), violations)
            elif not extender.settings.ignorable:
                raise ExtenderError(f"extender {extender.name}: expected at least one victim pod on node {node}")
        return found

    def _on(self, node: str, victims: Iterable[PodInfo]) -> list[PodInfo]:
        """Return the victims that are on the node itself."""
        there = self._cluster.pods_on(node)
        return [victim for victim in victims if victim.uid in there]

    # --- bind ----------------------------------------------------------------------------------------

    async def bind(
        self, extender: HttpExtender, pod: PodInfo, node: str, *, still_holds: Callable[[], bool]
    ) -> Outcome:
        """Let an extender bind a pod; an unclear result is `Unknown`, and must be looked up.

        still_holds: whether the decision still stands, asked together with the fence.
        """
        if not self._fence.allows():
            return Refused(Reason.NOT_LEADER, "no longer the leader")
        if not still_holds():
            return Outdated()
        since = asyncio.get_running_loop().time()
        try:
            error = await extender.bind(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=node)
        except ExtenderError as problem:
            return Unknown(str(problem), since=since)
        return Refused(Reason.DENIED, f"extender {extender.name}: {error}") if error else Bound(node)


def make_extenders(
    settings: Settings, cluster: Cluster, transport: Transport, *, fence: Fence, observe: Observe
) -> Extenders | None:
    """Return the extenders of a configuration, None if there are none; they alone check the resources that they say.

    Raises:
        ExtenderError: a certificate cannot be used.
    """
    if not settings.extenders:
        return None
    from kube_policy_scheduler.adapters.http.extender import HttpExtender

    cluster.ignored_resources = frozenset(
        resource.name
        for extender in settings.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )
    return Extenders(
        [HttpExtender(each, observe=observe) for each in settings.extenders],
        cluster,
        ApiTexts(transport, label_selector=settings.kubernetes.node_selector),
        fence=fence,
        percentage_of_nodes=settings.scheduling.percentage_of_nodes_to_ask,
    )


def _resources(spec: objects.PodSpec) -> frozenset[str]:
    """Return the resources that containers and init containers request or limit."""
    found: set[str] = set()
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        if container.resources is not None:
            found.update(container.resources.requests or (), container.resources.limits or ())
    return frozenset(found)


_encode = msgspec.json.Encoder().encode


def _pod_text(pod: PodInfo) -> bytes:
    """Return the JSON of a pod with what the scheduler knows: metadata, and the part of the spec that places it."""
    metadata = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "labels": dict(pod.template.labels),
        "resourceVersion": pod.resource_version,
    }
    spec = msgspec.structs.replace(pod.template.spec, node_name=pod.node_name)
    return _encode({"metadata": metadata, "spec": spec})


class ExtenderLock:
    """Pods that extenders are to be asked about: one at a time, the one with the highest priority first.

    Of equal priority they keep the order in which the queue gave them, in which tenants take turns.
    kube-scheduler, too, never asks about two pods at the same time, and extenders rely on that: an extender that hands
    out devices sees the first pod placed before it is asked about the second one.
    """

    def __init__(self, queue: SchedulingQueue) -> None:
        self._queue = queue
        self._asking: str | None = None
        self._waiting: list[tuple[int, int, QueuedPod]] = []
        self._numbers = count()
        self._uids: set[str] = set()

    def __len__(self) -> int:
        """Return how many pods wait for their turn."""
        return len(self._waiting)

    def has(self, uid: str) -> bool:
        """Return whether a pod waits for its turn."""
        return uid in self._uids

    def begin(self, queued: QueuedPod) -> bool:
        """Begin the turn of a pod; return False if another pod has it, so that this one waits."""
        if self._asking is None:
            self._asking = queued.pod.uid
            return True
        heapq.heappush(self._waiting, (-queued.pod.priority, next(self._numbers), queued))
        self._uids.add(queued.pod.uid)
        return False

    def end(self) -> None:
        """End the turn."""
        self._asking = None

    def has_next(self) -> bool:
        """Return whether the next pod may begin."""
        return self._asking is None and bool(self._waiting)

    def next(self) -> QueuedPod | None:
        """Take the pod whose turn is next; None while another pod has the turn, or if there is none."""
        while self._asking is None and self._waiting:
            _, _, queued = heapq.heappop(self._waiting)
            self._uids.discard(queued.pod.uid)
            if self._queue.get(queued.pod.uid) is queued and queued.place is Place.IN_FLIGHT:
                return queued
        return None

    def withdraw_all(self) -> list[QueuedPod]:
        """Return the pods that wait for their turn; they wait no longer."""
        waiting = [queued for _, _, queued in self._waiting]
        self._waiting.clear()
        self._uids.clear()
        return waiting

"""DynamicResources: nodes on which the devices that a pod claims can be allocated, as kube-scheduler 1.36 does it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.device_classes import class_by_resource, may_be_provided
from kube_policy_scheduler.cluster.node_selectors import NodeSelector, node_selector
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray, Rows
from kube_policy_scheduler.cluster.object_store import object_key
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.requests import NATIVE
from kube_policy_scheduler.framework.devices.allocations import Allocations, Outcome, allocations
from kube_policy_scheduler.framework.devices.allocator import NodeAllocation, NoDevices
from kube_policy_scheduler.framework.devices.extended_resources import (
    CLAIM_NAME,
    ExtendedRequests,
    claim_in_memory,
    extended_requests,
    provided_resources,
)
from kube_policy_scheduler.framework.devices.group_claims import others_of_group, user_of
from kube_policy_scheduler.framework.devices.pod_claims import (
    ClaimProblem,
    binding_blocks,
    check_allocatable,
    find_claims,
)
from kube_policy_scheduler.framework.devices.thrift import Thrifty, orders_for, without_first
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, Default, PreFilterResult, Reads, Ready
from kube_policy_scheduler.framework.plugins.base import Filter, Score, normalized
from kube_policy_scheduler.framework.status import Code, Rejection, Status

NOT_AVAILABLE = "resourceclaim not available on the node"
STALE_EXTENDED_CLAIM = "cannot schedule extended resource claim"
CANNOT_FIT = "cannot fit resource"

_MOST_ALTERNATIVES = 8
"""Alternatives of one request (`FirstAvailableDeviceRequestMaxSize`)."""


class ClaimOutcome(IntEnum):
    """Filter's result for a node; for nodes that are searched, the values continue those of `Outcome`."""

    FITS = Outcome.ALLOCATED
    CANNOT_ALLOCATE = Outcome.CANNOT_ALLOCATE
    INVALID_POOLS = Outcome.INVALID_POOLS
    ERROR = Outcome.ERROR
    REJECTED = Outcome.REJECTED
    NOT_AVAILABLE = 6
    STALE_EXTENDED_CLAIM = 7
    CANNOT_FIT = 8


# compared with columns, which is slow with members of an enumeration
_NOT_SEARCHED = int(Outcome.UNKNOWN)
_FITS, _ERROR, _REJECTED = int(ClaimOutcome.FITS), int(ClaimOutcome.ERROR), int(ClaimOutcome.REJECTED)
_NOT_AVAILABLE, _STALE = int(ClaimOutcome.NOT_AVAILABLE), int(ClaimOutcome.STALE_EXTENDED_CLAIM)
_REASONS: Mapping[int, str] = {
    int(ClaimOutcome.CANNOT_ALLOCATE): NoDevices.CANNOT_ALLOCATE,
    int(ClaimOutcome.INVALID_POOLS): NoDevices.INVALID_POOLS,
    int(ClaimOutcome.NOT_AVAILABLE): NOT_AVAILABLE,
    int(ClaimOutcome.STALE_EXTENDED_CLAIM): STALE_EXTENDED_CLAIM,
    int(ClaimOutcome.CANNOT_FIT): CANNOT_FIT,
}


class ClaimState(msgspec.Struct):
    """The result of PreFilter for a pod's claims."""

    claims: tuple[objects.ResourceClaim, ...]
    """The pod's claims in order; last that for extended resources, if there is one."""
    extended: objects.ResourceClaim | None = None
    """The claim for extended resources."""
    resources: tuple[str, ...] = ()
    """Extended resources that a DeviceClass provides and the pod requests."""
    selectors: Mapping[int, NodeSelector] = {}
    """Where allocated claims can be used, by their place in `claims`; absent: everywhere."""
    blocked: frozenset[int] = frozenset()
    """Indices of allocated claims to deallocate, because their devices do not bind."""
    unallocated: tuple[objects.ResourceClaim, ...] = ()
    """Those of `claims` that have no devices yet."""
    judged: tuple[Rows, Any, NDArray[np.int8]] | None = None
    """The last query about nodes, and its result."""
    group: _Group | None = None
    """What all nodes need, if they all need the same."""
    found: dict[tuple[str, ...], tuple[Allocations, ExtendedRequests]] = {}
    """What nodes get for which DRA serves these extended resources."""

    def __post_init__(self) -> None:
        self.unallocated = tuple(claim for claim in self.claims if claim.status.allocation is None)

    @property
    def has_user_claims(self) -> bool:
        """Return whether the pod itself names claims."""
        return len(self.claims) > (self.extended is not None)

    @property
    def stale(self) -> bool:
        """Return whether the claim for extended resources is left from an earlier attempt."""
        return self.extended is not None and self.extended.spec.devices.requests is not None


class _LastPrepared(msgspec.Struct):
    """The last result of PreFilter: of one pod it is asked several times."""

    pod: PodInfo | None = None
    stamp: Hashable = None
    result: PreFilterResult = SKIP


class DynamicResources(Filter, Score):
    """Rejects nodes with too few devices, and prefers those that serve earlier alternatives."""

    name = "DynamicResources"
    default = Default(13, weight=2)
    reads = Reads.SPEC | Reads.REQUESTS | Reads.POD | Reads.ELSEWHERE
    events = frozenset(
        {
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_LABEL,
            ClusterEvent.NODE_ALLOCATABLE,
            ClusterEvent.RESOURCE_CLAIM,
            ClusterEvent.RESOURCE_SLICE,
            ClusterEvent.DEVICE_CLASS,
        }
    )
    normalizes = True

    # --- PreFilter -----------------------------------------------------------------------------------

    def may_filter(self, template: PodTemplate) -> bool:
        """Return whether pods of the template name claims, or request what a DeviceClass may provide."""
        if template.spec.resource_claims:
            return True
        requests = template.demand.requests
        return not NATIVE.issuperset(requests) and any(map(may_be_provided, requests))

    may_score = may_filter

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Find the pod's claims; skip pods without any."""
        if frame.cluster.resource_claims.are_held_by(frame.pod.uid):
            return SKIP  # it has its devices, and is only checked again before it is bound
        resources = provided_resources(frame.template, frame.cluster.store)
        if not frame.template.spec.resource_claims and not resources:
            return SKIP
        cluster = frame.cluster
        last: _LastPrepared = cluster.store.keep("last-prepared-claims", None, _LastPrepared)
        stamp = (cluster.resource_claims.version, cluster.store.version(objects.DeviceClass), frame.groups)
        if last.pod is frame.pod and last.stamp == stamp:
            return last.result
        result = self._prepare(frame, resources)
        is_kept = isinstance(result, Ready) and len(result.state.unallocated) == len(result.state.claims)
        # what is allocated may depend on the time
        last.pod, last.stamp, last.result = frame.pod if is_kept else None, stamp, result
        return result

    def _prepare(self, frame: Frame, resources: tuple[str, ...]) -> PreFilterResult:
        try:
            found = find_claims(frame.pod, frame.cluster)
            extended = self._extended_claim(frame) if resources else None
            if not found.claims and extended is None:
                return SKIP
            found = found.joined(frame.cluster, frame.groups)
            check_allocatable(found, frame.cluster)
            if extended is not None and extended.status.allocation is None:
                _check_not_pending(extended, frame)
        except ClaimProblem as problem:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (str(problem),))
        claims = (*found.claims, extended) if extended is not None else found.claims
        selectors: dict[int, NodeSelector] = {}
        blocked: set[int] = set()
        for place, claim in enumerate(claims):
            if claim.status.allocation is not None:
                where = claim.status.allocation.node_selector
                if where is not None:
                    selectors[place] = node_selector(where)
                if binding_blocks(claim, frame.now):
                    blocked.add(place)
        return Ready(ClaimState(claims, extended, resources, selectors, frozenset(blocked)))

    @staticmethod
    def _extended_claim(frame: Frame) -> objects.ResourceClaim:
        pod = frame.pod
        existing = frame.cluster.resource_claims.for_extended_resources(pod.uid)
        return existing or claim_in_memory(pod.name, pod.uid, pod.namespace)

    # --- Filter --------------------------------------------------------------------------------------

    def filter(self, frame: Frame, state: ClaimState) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        return np.equal(self.verdicts(frame, state), _FITS)

    def rejections(self, frame: Frame, state: ClaimState) -> Sequence[Rejection]:
        """Return why nodes do not pass; an error on one ends the attempt for all."""
        verdicts = self.verdicts(frame, state)
        counts = np.bincount(verdicts, minlength=_REJECTED + 1)
        found = [
            Rejection(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reason, verdicts == verdict)
            for verdict, reason in _REASONS.items()
            if verdict < len(counts) and counts[verdict]
        ]
        if counts[_REJECTED]:
            texts = self._texts(frame, state, np.equal(verdicts, _REJECTED))
            found += [Rejection(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, text, where) for text, where in texts.items()]
        if counts[_ERROR]:
            texts = self._texts(frame, state, np.equal(verdicts, _ERROR))
            first = next(iter(texts.values()))  # with it, nodes that were not searched because of it
            np.logical_or(first, np.equal(verdicts, _NOT_SEARCHED), out=first)
            found += [Rejection(Code.ERROR, self._error(text), where) for text, where in texts.items()]
        return found

    def _texts(self, frame: Frame, state: ClaimState, asked: BoolArray) -> dict[str, BoolArray]:
        """Return the texts of some nodes, `bool[rows]`, and for each `bool[rows]`: which of them have it."""
        rows = frame.index()
        texts: dict[str, BoolArray] = {}
        for position in np.flatnonzero(asked).tolist():
            text = self._text(frame, state, int(rows[position]))
            where = texts.get(text)
            if where is None:
                where = texts[text] = np.zeros(frame.size, np.bool_)
            where[position] = True
        return texts

    def errors(self, frame: Frame, state: ClaimState) -> BoolArray | None:
        """Return `bool[rows]`: the nodes on which Filter ends the whole attempt; None if there are none."""
        wrong = np.equal(self.verdicts(frame, state), _ERROR)
        return wrong if wrong.any() else None

    def may_have_errors(self, frame: Frame, state: ClaimState) -> BoolArray:
        """Return `bool[rows]`: the nodes with an error, and those that were not searched."""
        result: BoolArray = np.zeros(frame.size, np.bool_)
        for group in () if state.stale else self._groups(frame, state):
            if group is not None:
                unsettled = group.found.may_have_errors(frame.rows)
                result |= unsettled if group.where is None else unsettled & group.where
        return result

    def error(self, frame: Frame, state: ClaimState, row: int) -> str:
        """Return the text of a node's error."""
        return self._error(self._text(frame, state, row))

    def _error(self, text: str) -> str:
        return f'running "{self.name}" filter plugin: {text}'

    def _text(self, frame: Frame, state: ClaimState, row: int) -> str:
        """Return what was said of the claims on a node."""
        group = self._group_of(frame, state, row)
        assert group is not None
        return group.found.text(row, [object_key(claim.metadata) for claim in state.unallocated])

    def verdicts(self, frame: Frame, state: ClaimState) -> NDArray[np.int8]:
        """Return `int8[rows]`: a `ClaimOutcome` for each node; kept until the next different query."""
        cluster = frame.cluster
        slices, claims = cluster.resource_slices.changed.end, cluster.resource_claims.allocated.changed.end
        stamp = (cluster.nodes.version, slices, claims)
        known = state.judged
        if known is None or known[0] is not frame.rows or known[1] != stamp:
            known = state.judged = (frame.rows, stamp, self._judge(frame, state))
        return known[2]

    def _judge(self, frame: Frame, state: ClaimState) -> NDArray[np.int8]:
        groups = self._groups(frame, state)
        if len(groups) == 1 and groups[0] is not None and groups[0].where is None and not state.stale:
            result = groups[0].found.outcomes(frame.rows).copy()
        else:
            result = self._judge_groups(frame, state, groups)
        away = None if state.stale else self._away(frame, state)
        if away is not None:
            searched = self._searched(frame, state)
            result[away & searched & (result == _FITS)] = _NOT_AVAILABLE
        return result

    @staticmethod
    def _judge_groups(frame: Frame, state: ClaimState, groups: Sequence[_Group | None]) -> NDArray[np.int8]:
        result: NDArray[np.int8] = np.full(frame.size, _STALE if state.stale else _FITS, np.int8)
        if state.stale:
            return result
        rows = frame.index()
        for group in groups:
            if group is None:
                continue
            if group.where is None:
                result[:] = group.found.outcomes(frame.rows)
            else:
                result[group.where] = group.found.outcomes(rows[group.where])
        return result

    def unavailable(self, frame: Frame, state: ClaimState) -> frozenset[int]:
        """Return the indices of allocated claims that were not available on some node of the frame's rows.

        Nodes that are rejected for something else do not count.
        """
        if state.stale:
            return frozenset()
        reached = self.verdicts(frame, state) == _NOT_AVAILABLE
        found = set()
        if reached.any():
            for place in range(len(state.claims)):
                if (self._away_of(frame, state, place) & reached).any():
                    found.add(place)
        return frozenset(found)

    def _away(self, frame: Frame, state: ClaimState) -> BoolArray | None:
        """Return `bool[rows]`: where some allocated claim cannot be used; None if there is none."""
        result: BoolArray | None = None
        for place in {*state.selectors, *state.blocked}:
            away = self._away_of(frame, state, place)
            result = away if result is None else result | away
        return result

    @staticmethod
    def _away_of(frame: Frame, state: ClaimState, place: int) -> BoolArray:
        if place in state.blocked:
            return np.ones(frame.size, np.bool_)
        selector = state.selectors.get(place)
        if selector is None:
            return np.zeros(frame.size, np.bool_)
        return np.logical_not(selector.mask(frame.cluster.nodes, frame.rows))

    # --- extended resources --------------------------------------------------------------------------

    def _by_node(self, frame: Frame, state: ClaimState) -> tuple[list[str], IntArray]:
        """Return the relevant extended resources, and `int64[rows]`: a bit for each that a node has no plugin for."""
        nodes, rows = frame.cluster.nodes, frame.rows
        bits = np.zeros(frame.size, np.int64)
        for place, name in enumerate(state.resources):
            bits |= (nodes.allocatable(name)[rows] == 0).astype(np.int64) << place
        return list(state.resources), bits

    def _searched(self, frame: Frame, state: ClaimState) -> BoolArray:
        """Return `bool[rows]`: the nodes that this plugin checks; not those where a device plugin serves everything."""
        if state.extended is None or state.has_user_claims:
            return np.ones(frame.size, np.bool_)
        _, bits = self._by_node(frame, state)
        return np.not_equal(bits, 0)

    def _groups(self, frame: Frame, state: ClaimState) -> list[_Group | None]:
        """Return the nodes by the claims that they need, with what those get."""
        if not state.unallocated:
            return [None]
        if state.extended is None:
            if state.group is None:
                specs = [claim.spec for claim in state.unallocated]
                state.group = _Group(None, allocations(frame.cluster).of(specs), None)
            return [state.group]
        names, bits = self._by_node(frame, state)
        done: list[_Group | None] = []
        for value in np.unique(bits).tolist():
            if not value and not state.has_user_claims:
                continue
            where: BoolArray | None = bits == value
            done.append(self._group(frame, state, [name for i, name in enumerate(names) if value >> i & 1], where))
        return done

    def _group_of(self, frame: Frame, state: ClaimState, row: int) -> _Group | None:
        """Return what one node needs; None if nothing is to be allocated."""
        if state.extended is None or not state.unallocated:
            return self._groups(frame, state)[0]
        nodes = frame.cluster.nodes
        names = [name for name in state.resources if nodes.allocatable(name)[row] == 0]
        return self._group(frame, state, names, None) if names or state.has_user_claims else None

    @staticmethod
    def _group(frame: Frame, state: ClaimState, names: list[str], where: BoolArray | None) -> _Group:
        known = state.found.get(tuple(names))
        if known is None:
            requests = extended_requests(frame.template, names, class_by_resource(frame.cluster.store))
            specs = [requests.spec if claim is state.extended else claim.spec for claim in state.unallocated]
            known = state.found[tuple(names)] = allocations(frame.cluster).of(specs), requests
        return _Group(where, *known)

    # --- PostFilter ----------------------------------------------------------------------------------

    def post_filter(self, frame: Frame, state: ClaimState) -> Deallocation:
        """Return which claims may be deallocated so that the pod fits; `frame.rows`: the nodes that this rejected."""
        unavailable = self.unavailable(frame, state) if frame.size else frozenset()
        one_of = [
            claim
            for place, claim in enumerate(state.claims)
            if place in unavailable and claim is not state.extended and _is_free_for(claim, frame)
        ]
        if one_of:
            return Deallocation(ClaimsAfter.DEALLOCATED, tuple(one_of))
        extended = state.extended
        if extended is not None and extended.metadata.name != CLAIM_NAME:
            return Deallocation(ClaimsAfter.DELETED, delete=(extended,))
        return Deallocation(ClaimsAfter.STILL_NOT_SCHEDULABLE)

    # --- Reserve -------------------------------------------------------------------------------------

    def allocation(self, frame: Frame, state: ClaimState, row: int) -> ReservedClaims | None:
        """Return what the claims get on a node that passed, in the frame's order of devices; None if nothing."""
        if state.stale:
            return None
        group = self._group_of(frame, state, row)
        if group is None:
            return None
        order, specs = frame.device_order, _specs(group, state)
        kind = group.found
        if isinstance(order, Thrifty) and order.skips:
            kind = allocations(frame.cluster).of([without_first(spec, order.skips) for spec in specs])
            if kind.on(row).claims is None:
                kind = group.found
        found = kind.on(row) if order is None else kind.ordered_on(row, order, pod_uid=frame.pod.uid)
        return ReservedClaims(state.unallocated, specs, found, group.extended)

    def thrifty_orders(self, frame: Frame) -> Sequence[Thrifty]:
        """Return the orders of devices in which a pod may leave more to others than in kube-scheduler's."""
        prepared = self.pre_filter(frame)
        if not isinstance(prepared, Ready):
            return ()
        take_counters = frame.cluster.resource_slices.take_counters
        return orders_for([claim.spec for claim in prepared.state.unallocated], take_counters=take_counters)

    def specs_on(self, frame: Frame, state: ClaimState, row: int) -> tuple[objects.ResourceClaimSpec, ...] | None:
        """Return what the unallocated claims request on one node; None if nothing is to be allocated there."""
        group = None if state.stale else self._group_of(frame, state, row)
        return None if group is None else _specs(group, state)

    # --- Score ---------------------------------------------------------------------------------------

    def pre_score(self, frame: Frame) -> Ready:
        """Score always; 0 if there are no alternatives to choose."""
        prepared = self.pre_filter(frame)
        state = prepared.state if isinstance(prepared, Ready) else None
        adds = state is not None and bool(state.unallocated) and _has_alternatives(state.claims)
        return Ready(state, adds=adds, key=self.name)

    def score(self, frame: Frame, state: ClaimState | None) -> IntArray:
        """Return `int64[rows]`: the sum over the alternatives of 8 minus the index in the list."""
        result = np.zeros(frame.size, np.int64)
        if state is None or not state.unallocated or not _has_alternatives(state.claims):
            return result
        for position, row in enumerate(frame.index().tolist()):
            reserved = self.allocation(frame, state, row)
            if reserved is not None and reserved.found.claims is not None:
                fixed = sum(_score_of_allocated(claim) for claim in state.claims)
                result[position] = fixed + _score_of(reserved.found)
        return result

    def normalize(self, frame: Frame, state: Any, raw: IntArray | FloatArray) -> IntArray:
        """Return final scores, `int64[rows]`: 0 to 100 by the highest."""
        return normalized(raw)


class _Group(msgspec.Struct, frozen=True):
    """Nodes that need the same claims."""

    where: BoolArray | None
    """`bool[rows]`; None: all."""
    found: Allocations
    extended: ExtendedRequests | None


class ReservedClaims(msgspec.Struct, frozen=True):
    """The unallocated claims of a pod, and what they get on a node."""

    claims: tuple[objects.ResourceClaim, ...]
    specs: tuple[objects.ResourceClaimSpec, ...]
    """Of the claims; that for extended resources as this node needs it."""
    found: NodeAllocation
    extended: ExtendedRequests | None
    """What the claim for extended resources requests on this node."""


class ClaimsAfter(Enum):
    """The result of PostFilter for claims, in kube-scheduler's words."""

    NO_CLAIMS = "no new claims to deallocate"
    """The pod has none."""
    STILL_NOT_SCHEDULABLE = "still not schedulable"
    DEALLOCATED = "deallocation of ResourceClaim completed"
    DELETED = "deletion of ResourceClaim completed"
    NOT_FOUND = "not found"
    """PreFilter ended before this plugin could leave its state behind."""


class Deallocation(msgspec.Struct, frozen=True):
    """What PostFilter does about claims if no node fits."""

    result: ClaimsAfter
    one_of: tuple[objects.ResourceClaim, ...] = ()
    """Claims of which any one must lose its devices."""
    delete: tuple[objects.ResourceClaim, ...] = ()
    """Claims for extended resources, left from an earlier attempt, to delete."""

    @property
    def acts(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.one_of or self.delete)


def _specs(group: _Group, state: ClaimState) -> tuple[objects.ResourceClaimSpec, ...]:
    return tuple(
        group.extended.spec if group.extended is not None and claim is state.extended else claim.spec
        for claim in state.unallocated
    )


def _is_free_for(claim: objects.ResourceClaim, frame: Frame) -> bool:
    """Return whether only the frame's pod may use a claim, or only its PodGroup, of which no other pod has a node."""
    users = claim.status.reserved_for or ()
    if not users:
        return True
    user = user_of(frame.pod, claim, frame.cluster)
    return len(users) == 1 and users[0].uid == user.uid and not others_of_group(user, frame.pod, frame.cluster)


def _check_not_pending(claim: objects.ResourceClaim, frame: Frame) -> None:
    if frame.cluster.resource_claims.pending_allocation(claim.metadata.uid) is not None:
        raise ClaimProblem(f"resource claim {object_key(claim.metadata)} is in the process of being allocated")


def _has_alternatives(claims: Sequence[objects.ResourceClaim]) -> bool:
    return any(request.first_available for claim in claims for request in claim.spec.devices.requests or ())


def _score_of(found: NodeAllocation) -> int:
    total = 0
    for taken, requests in zip(found.alternatives, found.requests, strict=True):
        for place, alternatives in zip(taken, requests, strict=True):
            if alternatives[place].parent:
                total += _MOST_ALTERNATIVES - place
    return total


def _score_of_allocated(claim: objects.ResourceClaim) -> int:
    allocation = claim.status.allocation
    if allocation is None:
        return 0
    taken = {result.request for result in allocation.devices.results or ()}
    return sum(
        _MOST_ALTERNATIVES - place
        for request in claim.spec.devices.requests or ()
        for place, sub in enumerate(request.first_available or ())
        if f"{request.name}/{sub.name}" in taken
    )

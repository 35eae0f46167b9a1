"""Why the devices that a pod claims cannot be allocated on a node, and which it gets where they can. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.alpha_fields import with_gate
from kube_policy_scheduler.cluster.devices.attribute_references import ATTRIBUTES, CAPACITY, Reference
from kube_policy_scheduler.cluster.devices.device_selectors import CompiledSelector
from kube_policy_scheduler.cluster.devices.node_devices import WHOLE
from kube_policy_scheduler.cluster.devices.resource_claims import is_in_use
from kube_policy_scheduler.cluster.devices.resource_slices import SlicedDevice
from kube_policy_scheduler.cluster.object_store import object_key
from kube_policy_scheduler.cluster.taints import TaintKey
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.device_columns import devices_of, is_of_class
from kube_policy_scheduler.framework.devices.constraints import attribute_of, list_of
from kube_policy_scheduler.framework.devices.device_order import ClaimableDevices, DeviceFrame, SharedDevices
from kube_policy_scheduler.framework.devices.requests import AllocationError, Request, read_claim
from kube_policy_scheduler.framework.frame import DeviceOrder, Frame
from kube_policy_scheduler.framework.plugin import Ready
from kube_policy_scheduler.framework.plugins.dynamic_resources import ClaimOutcome, ClaimState, DynamicResources
from kube_policy_scheduler.wording import amount, listed, one_line, plural, some

_MOST_DEVICES = 2048
"""Devices of one node that are looked at."""
_MOST_NODES = 256
"""Nodes whose devices are looked at for the cause."""
MOST_COMPARED = 100_000
"""Devices that are compared with requests on these nodes together: a claim may have 32 requests, a node any number of
slices."""
_MOST_TEXT = 120
"""Characters of a selector."""
_BYTES = {"Ti": 2**40, "Gi": 2**30, "Mi": 2**20}
_PLUGIN = DynamicResources()


class Untolerated(NamedTuple):
    """A taint that keeps devices from being allocated."""

    taint: TaintKey
    rule: str
    """The DeviceTaintRule that adds it; "": the driver publishes it."""

    def __str__(self) -> str:
        key, value, effect = self.taint
        return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


@dataclass(slots=True)
class RequestOnNode:
    """How the devices of one node meet one request, or one alternative of it."""

    claim: str
    """Name of the claim."""
    request: Request
    compared: int = 0
    """Devices that were looked at."""
    of_class: int = 0
    allocated: int = 0
    """Of the class and in use."""
    mismatched: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Of the class and not in use, by the selector that they do not meet and the values that it reads."""
    tainted: Counter[Untolerated] = field(default_factory=Counter)
    """Those that meet all selectors, by a taint that the request does not tolerate."""
    unsuitable: int = 0
    """Those that meet all selectors, but do not have the capacity that is requested."""
    fitting: list[SlicedDevice] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Of the class and not in use, by the field that keeps them from being chosen."""
    errors: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Of the class and not in use, by the selector that has an error, and the error."""

    @property
    def wanted(self) -> int:
        """Return how many devices it needs at least."""
        return 1 if self.request.takes_all else self.request.count

    @property
    def missing(self) -> int:
        """Return how many devices it lacks."""
        return max(0, self.wanted - len(self.fitting))

    @property
    def name(self) -> str:
        """Return what it is, in words."""
        many = "all devices" if self.request.takes_all else plural(self.request.count, "device")
        of = f"{many} of class {self.request.device_class.metadata.name}"
        return f"request {self.request.full_name} of claim {self.claim} ({of})"

    @property
    def obstacles(self) -> frozenset[str]:
        """Return the kinds of reasons why devices of the class cannot be used, without how many there are."""
        found = {
            "allocated": self.allocated,
            "mismatched": self.mismatched,
            "tainted": self.tainted,
            "unsuitable": self.unsuitable,
            "left out": self.left_out,
            "fitting": self.fitting,
            "error": self.errors,
        }
        return frozenset(kind for kind, some_are in found.items() if some_are)

    def sentences(self) -> Iterator[str]:
        """Yield what the node lacks for it."""
        name = self.request.device_class.metadata.name
        if not self.of_class:
            yield f"{self.name}: has no device of class {name}"
            return
        parts = []
        if self.allocated:
            many = f"{self.allocated} of {self.of_class}" if self.allocated < self.of_class else f"all {self.of_class}"
            parts.append(f"{many} {'is' if self.allocated == 1 else 'are'} allocated")
        for number in sorted({number for number, _ in self.mismatched}):
            mine = Counter({values: count for (at, values), count in self.mismatched.items() if at == number})
            shown = mine.most_common(3)
            have = [f"{count} {'has' if count == 1 else 'have'} {values or 'other values'}" for values, count in shown]
            if len(mine) > len(shown):
                have.append(f"{mine.total() - sum(count for _, count in shown)} have other values")
            selector = one_line(self.request.selectors[number].expression, _MOST_TEXT)
            parts.append(f"{listed(have)} where the selector wants `{selector}`")
        for taint, count in self.tainted.most_common(2):
            of = f" of the DeviceTaintRule {taint.rule}" if taint.rule else ""
            parts.append(f"{count} {'has' if count == 1 else 'have'} the taint {taint}{of}")
        for alpha_field, count in self.left_out.most_common(2):
            use = "uses" if count == 1 else "use"
            parts.append(f"{count} {use} {with_gate(alpha_field)}, which this scheduler does not follow")
        if self.unsuitable:
            parts.append(f"{self.unsuitable} {'does' if self.unsuitable == 1 else 'do'} not have the capacity")
        for (number, error), count in self.errors.most_common(1):
            selector = one_line(self.request.selectors[number].expression, _MOST_TEXT)
            parts.append(f"for {count} the selector `{selector}` has no result: {one_line(error, _MOST_TEXT)}")
        if self.fitting:
            parts.append(f"{len(self.fitting)} {'fits' if len(self.fitting) == 1 else 'fit'}")
        yield f"{self.name}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class ClaimsOnNode:
    """How the devices of one node meet the claims of a pod that have no devices yet."""

    requests: tuple[tuple[RequestOnNode, ...], ...]
    """For each request its alternatives."""
    constraints: tuple[str, ...] = ()
    """Constraints that the devices that fit cannot meet."""
    pools: tuple[str, ...] = ()
    """What is wrong with resource pools."""
    error: str = ""
    """Why the claims cannot be read."""

    @property
    def unmet(self) -> tuple[RequestOnNode, ...]:
        """Return the requests, or of several alternatives the nearest one, that too few devices meet."""
        nearest = (min(each, key=lambda one: one.missing) for each in self.requests)
        return tuple(one for one in nearest if one.missing)

    @property
    def shortage(self) -> float:
        """Return which share of the requested devices is missing, added up over the requests."""
        return sum(one.missing / one.wanted for one in self.unmet)

    def sentences(self) -> Iterator[str]:
        """Yield what the node lacks."""
        if self.error:
            yield self.error
            return
        yield from self.pools
        for one in self.unmet:
            yield from one.sentences()
        if not self.unmet:
            yield from self.constraints
            if not self.constraints and not self.pools:
                yield "each request has enough devices alone, but they do not suffice for all requests together"


def are_elsewhere(frame: Frame, state: ClaimState, row: int) -> bool:
    """Return whether claims of a pod have devices that a node cannot reach."""
    return bool(_PLUGIN.verdicts(frame.at(np.array([row])), state)[0] == ClaimOutcome.NOT_AVAILABLE)


def claims_on(frame: Frame, state: ClaimState, row: int) -> ClaimsOnNode | None:
    """Return how one node's devices meet the claims of a pod; None if it needs no devices there."""
    specs = _PLUGIN.specs_on(frame, state, row)
    if specs is None:
        return None
    cluster, info = frame.cluster, frame.cluster.nodes.infos[row]
    pools = cluster.resource_slices.pools_of(row)
    wrong = [
        f"resource pool {pool.id} is {f'invalid: {pool.invalid}' if pool.invalid else 'incomplete'}"
        for pool in pools
        if pool.invalid or pool.incomplete
    ]
    devices = list(islice(devices_of(cluster, info), _MOST_DEVICES))
    requests: list[tuple[RequestOnNode, ...]] = []
    constraints: list[str] = []
    for claim, spec in zip(state.unallocated, specs, strict=True):
        try:
            read = read_claim(
                object_key(claim.metadata), spec, lambda name: cluster.get(objects.DeviceClass, name), cluster.rules
            )
        except AllocationError as error:
            return ClaimsOnNode((), error=str(error))
        name = claim.metadata.name
        of_claim = [tuple(_on_node(frame, name, one, devices) for one in each) for each in read.requests]
        requests.extend(of_claim)
        constraints.extend(_constraints(read.constraints, [each[0] for each in of_claim]))
    return ClaimsOnNode(tuple(requests), tuple(constraints), tuple(wrong))


def _on_node(frame: Frame, claim: str, request: Request, devices: Sequence[SlicedDevice]) -> RequestOnNode:
    found = RequestOnNode(claim, request)
    allocated = frame.cluster.resource_claims.allocated
    found.compared = len(devices)
    for device in devices:
        if not is_of_class(device, request.class_selectors):
            continue
        found.of_class += 1
        if not request.admin and is_in_use(device, allocated):
            found.allocated += 1
            continue
        unmet = _unmet_selector(request.selectors, device)
        taint = None if unmet is not None else _taint(request, device)
        if unmet is not None:
            selector, error = request.selectors[unmet[0]], unmet[1]
            if error:
                found.errors[unmet[0], error] += 1
            else:
                found.mismatched[unmet[0], _values(selector, device)] += 1
        elif taint is not None:
            found.tainted[taint] += 1
        elif device.alpha_field:
            found.left_out[device.alpha_field] += 1
        elif request.consumes(device) is None:
            found.unsuitable += 1
        else:
            found.fitting.append(device)
    return found


def _unmet_selector(selectors: Sequence[CompiledSelector], device: SlicedDevice) -> tuple[int, str] | None:
    """Return the first selector that a device does not meet, with its error; None if it meets all."""
    for number, selector in enumerate(selectors):
        if selector.error:
            return number, selector.error
        match = device.match(selector)
        if match.error or not match.matches:
            return number, match.error
    return None


def _taint(request: Request, device: SlicedDevice) -> Untolerated | None:
    taint = request.untolerated_taint(device)
    if taint is None:
        return None
    added = device.slice.taint_rules.taints_of(device.id)
    rule = next((name for name, one in added if one is taint), "")
    return Untolerated(TaintKey(taint.key, taint.value, taint.effect), rule)


def _values(selector: CompiledSelector, device: SlicedDevice) -> str:
    """Return what a selector reads of a device, in words: `memory 40Gi, no model`."""
    parts = [text for one in selector.reads[:4] if (text := _value(one, device))]
    return listed(parts) if parts else ""


def _value(one: Reference, device: SlicedDevice) -> str:
    if one.kind == "device.driver":
        return f"the driver {device.id.driver}"
    if one.name is None or one.kind not in (ATTRIBUTES, CAPACITY):
        return ""
    names = [f"{one.domain}/{one.name}", *([one.name] if one.domain == device.id.driver else [])]
    if one.kind == CAPACITY:
        known = device.capacities
        text = next((str(known[name].value) for name in names if name in known), None)
    else:
        found = next((value for name in names if (value := attribute_of(device, name)) is not None), None)
        listed_values = sorted(str(value) for name in names for _, value in list_of(device, name))
        text = None if found is None else {True: "true", False: "false"}.get(found[1], str(found[1]))  # type: ignore[call-overload]
        text = f"[{', '.join(listed_values)}]" if listed_values else text
    return f"no {one.name}" if text is None else f"{one.name} {one_line(text, 40)}"


def _constraints(constraints: Sequence[objects.DeviceConstraint], requests: Sequence[RequestOnNode]) -> Iterator[str]:
    """Yield the constraints of a claim that the devices that fit cannot meet, counted for each one alone."""
    for one in constraints:
        concerned = [each for each in requests if not one.requests or each.request.base_name in one.requests]
        name = one.match_attribute or one.distinct_attribute
        if name is None:
            continue
        fitting = {device.id: device for each in concerned for device in each.fitting}
        wanted = sum(each.wanted for each in concerned)
        groups = Counter(attribute_of(device, name) for device in fitting.values())
        without = groups.pop(None, 0)
        lacks = f"; {without} {'does' if without == 1 else 'do'} not have it" if without else ""
        if one.match_attribute is not None and max(groups.values(), default=0) < wanted:
            most = max(groups.values(), default=0)
            yield (
                f"{plural(wanted, 'device')} must have the same {name}: of {len(fitting)} that fit,"
                f" at most {most} {'has' if most == 1 else 'have'} one value{lacks}"
            )
        if one.match_attribute is None and len(groups) < len(concerned):
            yield (
                f"{plural(wanted, 'device')} must differ in {name}: the {len(fitting)} that fit"
                f" have {plural(len(groups), 'value')}{lacks}"
            )


# --- of all nodes --------------------------------------------------------------------------------------------


def claim_state(frame: Frame) -> ClaimState | None:
    """Return the claims of a pod, None if it has none or they cannot be looked up."""
    prepared = _PLUGIN.pre_filter(frame)
    return prepared.state if isinstance(prepared, Ready) else None


def unmet_on_nodes(frame: Frame, state: ClaimState) -> dict[int, ClaimsOnNode]:
    """Return what rejected nodes lack for the claims, by row: of at most some nodes, spread over all."""
    rejected = np.flatnonzero(_PLUGIN.verdicts(frame, state) != ClaimOutcome.FITS)
    if len(rejected) > _MOST_NODES:
        rejected = rejected[np.linspace(0, len(rejected) - 1, _MOST_NODES).astype(np.int64)]
    found: dict[int, ClaimsOnNode] = {}
    compared = 0
    for row in rejected.tolist():
        one = claims_on(frame, state, row)
        if one is not None:
            found[row] = one
            compared += sum(each.compared for alternatives in one.requests for each in alternatives)
        if compared > MOST_COMPARED:
            break
    return found


def cause(unmet: dict[int, ClaimsOnNode]) -> str:
    """Return the request that most of the nodes cannot meet, in words; "" if there is none."""
    counts = Counter(one.name for each in unmet.values() for one in each.unmet)
    if not counts:
        constraints = Counter(text for each in unmet.values() for text in each.constraints)
        return "".join(text for text, _ in constraints.most_common(1))
    name, count = counts.most_common(1)[0]
    example = next(one for each in unmet.values() for one in each.unmet if one.name == name)
    selectors = [one_line(one.expression, _MOST_TEXT) for one in example.request.selectors]
    where = f" with {listed(f'`{text}`' for text in selectors)}" if selectors else ""
    return f"too few devices meet {name}{where}" + (" on any of them" if count == len(unmet) > 1 else "")


# --- what a pod gets -----------------------------------------------------------------------------------------


def taken(frame: Frame, decision: Decision) -> Iterator[str]:
    """Yield which devices a pod gets on the node that was chosen, and why these."""
    if decision.host is None:
        return
    order = decision.device_order
    row = frame.cluster.nodes.rows[decision.host]
    for resource, numbers in sorted(decision.devices.items()):
        yield _shared(frame, resource, numbers, row, order)
    state = claim_state(frame)
    if state is None or not state.unallocated:
        return
    reserved = _PLUGIN.allocation(frame.ordered(order), state, row)
    if reserved is None or reserved.found.claims is None:
        return
    devices = list(islice(devices_of(frame.cluster, frame.cluster.nodes.infos[row]), _MOST_DEVICES))
    for claim, chosen in zip(reserved.claims, reserved.found.claims, strict=True):
        by_request: dict[str, list[SlicedDevice]] = {}
        requests: dict[str, Request] = {}
        for one in chosen:
            by_request.setdefault(one.request.full_name, []).append(one.device)
            requests[one.request.full_name] = one.request
        for name, got in by_request.items():
            fitting = _on_node(frame, claim.metadata.name, requests[name], devices).fitting
            ids = some([one.id.device for one in got], limit=8)
            head = f"request {name} of claim {claim.metadata.name} gets {ids}"
            yield f"{head}, {_reason(order, frame, row, got, fitting)}"


def _reason(
    order: DeviceOrder | None, frame: Frame, row: int, got: Sequence[SlicedDevice], fitting: Sequence[SlicedDevice]
) -> str:
    if len(fitting) <= len(got):
        return f"the only {'one' if len(got) == 1 else len(got)} that {'fits' if len(got) == 1 else 'fit'}"
    if order is None:
        return f"first of {len(fitting)} that fit in the order of pools, slices and devices"
    others = [device for device in fitting if device not in got]
    columns = ClaimableDevices(
        [*got, *others], frame.cluster.resource_slices.pools_of(row), frame.cluster.resource_claims.allocated
    )
    head = f"of {len(fitting)} that fit by `devices by {one_line(order.text, _MOST_TEXT)}`"
    if order.keys is None:
        return head
    keys = order.keys(DeviceFrame(columns))
    following = min(range(len(got), columns.size), key=lambda at: keys[at])
    values = [(text, read(DeviceFrame(columns))) for text, read in order.values]
    mine = listed(f"{text} is {_shown(column[0])}" for text, column in values)
    theirs = listed(_shown(column[following]) for _, column in values)
    return f"{head}: {mine}, {theirs} for {others[following - len(got)].id.device}"


def _shared(frame: Frame, resource: str, numbers: Sequence[int], row: int, order: DeviceOrder | None) -> str:
    table = frame.cluster.devices.table(resource)
    free = SharedDevices(table.free[row], int(table.count[row])).free()
    shown = listed(f"device {number} ({amount(float(free[number]) * WHOLE / 1000)} free)" for number in numbers)
    return f"it gets {shown} of {resource}, by `devices by {order.text if order is not None else 'fullest'}`"


def _shown(value: object) -> str:
    if value is None or value != value:
        return "missing"
    if not isinstance(value, float):
        return str(value)
    unit = next((one for one in ("Ti", "Gi", "Mi") if value >= _BYTES[one] and value % _BYTES[one] == 0), None)
    return f"{amount(value / _BYTES[unit])}{unit}" if unit is not None else amount(value)

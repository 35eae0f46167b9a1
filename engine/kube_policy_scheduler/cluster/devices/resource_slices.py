"""The devices that drivers publish: ResourceSlices by node and pool, and the pools that each node can allocate from.

Kept by events: what is derived from slices (which pools a node sees, the result of a selector for a device) is thrown
away with the slice or node that it came from, and with nothing else.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices import alpha_fields
from kube_policy_scheduler.cluster.devices.capacity_names import by_capacity_key
from kube_policy_scheduler.cluster.devices.device_taints import KEEPING_AWAY, DeviceTaintRules, Selection
from kube_policy_scheduler.cluster.journal import Journal
from kube_policy_scheduler.cluster.node_selectors import NodeSelector, node_selector
from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray, NodeTable
from kube_policy_scheduler.cluster.search_work import UNLIMITED, Work
from kube_policy_scheduler.cluster.steps import every
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.quantities.exact_quantity import Quantity, QuantityError, parse

if TYPE_CHECKING:
    from kube_policy_scheduler.cluster.devices.device_selectors import CompiledSelector, Match


class DeviceID(NamedTuple):
    """What names a device in the whole cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return "/".join(self)


class PoolID(NamedTuple):
    """What names a pool in the whole cluster."""

    driver: str
    pool: str

    @property
    def in_bytes(self) -> tuple[bytes, bytes]:
        """Return what pools are sorted by."""
        return self.driver.encode(), self.pool.encode()

    def __str__(self) -> str:
        return "/".join(self)


CounterSets = Mapping[str, Mapping[str, int]]
"""Amounts in billionths by counter, by counter set."""


class SlicedDevice:
    """One device of one version of a slice, with the results of selectors for it."""

    __slots__ = (
        "_matches",
        "_problem",
        "alpha_field",
        "capacities",
        "counters",
        "device",
        "id",
        "is_plain",
        "is_shared",
        "slice",
    )

    def __init__(self, slice_: SliceInfo, device: objects.Device) -> None:
        spec = slice_.slice.spec
        self.id = DeviceID(spec.driver, spec.pool.name, device.name)
        self.device = device
        self.slice = slice_
        self.alpha_field = alpha_fields.of_device(spec, device)
        """The field that keeps it from being chosen; "": none does."""
        self.counters: CounterSets = {
            consumed.counter_set: _amounts(consumed.counters) for consumed in device.consumes_counters or ()
        }
        """What it takes of shared counters."""
        self.capacities: Mapping[str, objects.DeviceCapacity] = by_capacity_key(
            device.capacity or {}, spec.driver, slice_.rules
        )
        """What it has of each capacity, see `capacity_names`."""
        self.is_shared = bool(device.allow_multiple_allocations)
        """Whether several claims may have it, each a share."""
        self.is_plain = not (
            self.counters
            or self.is_shared
            or any(capacity.request_policy is not None for capacity in self.capacities.values())
        )
        """Whether it is used as a whole, takes of no counters, and has no rules about requests of its capacities."""
        self._problem: str | None = None
        self._matches: dict[CompiledSelector, Match] = {}

    @property
    def taints(self) -> Sequence[objects.DeviceTaint]:
        """Return its taints: those that the driver published, and those of DeviceTaintRules."""
        own = self.device.taints or ()
        added = self.slice.taint_rules.taints_of(self.id)
        return [*own, *(taint for _, taint in added)] if added else own

    @property
    def is_tainted(self) -> bool:
        """Return whether only requests with a toleration get it."""
        return any(taint.effect in KEEPING_AWAY for taint in self.taints)

    def capacity(self, key: str) -> Quantity:
        """Return how much it has of one of its `capacities`."""
        return quantity_or_zero(self.capacities[key].value)

    def published_name(self, key: str) -> str:
        """Return the name of one of its `capacities` as the driver writes it."""
        return key if key in (self.device.capacity or {}) else key.partition("/")[2]

    def match(self, selector: CompiledSelector) -> Match:
        """Return the result of a selector for the device; evaluated once."""
        found = self.try_match(selector, UNLIMITED)
        assert found is not None
        return found

    def try_match(self, selector: CompiledSelector, work: Work) -> Match | None:
        """Return the result of a selector for the device; None: first other work gets its turn, then it goes on.

        work: pays if it must be evaluated.
        """
        known = self._matches.get(selector)
        if known is None:
            from kube_policy_scheduler.cluster.devices.device_selectors import (  # most clusters have no devices
                Match,
                problem_of,
            )

            if self._problem is None:
                self._problem = problem_of(self.device)
            problem = self._problem
            known = Match(False, problem) if problem else selector.try_match(self.id.driver, self.device, work)
            if known is None:
                return None
            if len(self._matches) >= _MOST_MATCHES:
                self._matches.clear()
            self._matches[selector] = known
        return known

    def is_on(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node may use the device, by its own node selection."""
        device = self.device
        return _node_matches(device.node_name, device.all_nodes, self.slice.device_selector(device), name, labels)


_MANY_SLICES = 256
"""From which on it is found in steps which nodes see them, and the pools in them."""
_READ_AT_ONCE = 512
"""Slices: 5 ms; more where these have very many devices."""
_MOST_MATCHES = 64
"""Answers of selectors that are kept for one device."""


class SliceInfo:
    """One version of a slice."""

    __slots__ = (
        "_device_selectors",
        "counter_sets",
        "devices",
        "has_counters",
        "pool",
        "rules",
        "selector",
        "selects",
        "slice",
        "taint_rules",
        "takes_counters",
    )

    def __init__(
        self,
        slice_: objects.ResourceSlice,
        rules: KubernetesRules = DEFAULT_RULES,
        taint_rules: DeviceTaintRules | None = None,
    ) -> None:
        """Read it.

        Args:
            slice_: the slice.
            rules: of the Kubernetes whose devices they are.
            taint_rules: what adds taints to its devices; None: nothing does.
        """
        spec = slice_.spec
        self.slice, self.rules = slice_, rules
        self.taint_rules = taint_rules or DeviceTaintRules(rules)
        self.pool = PoolID(spec.driver, spec.pool.name)
        self.devices = tuple(SlicedDevice(self, device) for device in spec.devices or ())
        self.has_counters = bool(spec.shared_counters)
        self.takes_counters = any(device.consumes_counters for device in spec.devices or ())
        self.counter_sets = tuple((one.name, _amounts(one.counters)) for one in spec.shared_counters or ())
        self.selector: NodeSelector | None = None if spec.node_selector is None else node_selector(spec.node_selector)
        self.selects: Hashable = self if self.selector is None else msgspec.msgpack.encode(spec.node_selector)
        """Equal for slices that the same nodes see, of those that some nodes see and others do not."""
        self._device_selectors: dict[int, NodeSelector] = {}

    @property
    def name(self) -> str:
        """Return the name of the object."""
        return self.slice.metadata.name

    @property
    def node_name(self) -> str:
        """Return the only node that sees it, "" for slices of several nodes."""
        return self.slice.spec.node_name or ""

    @property
    def selects_nodes(self) -> bool:
        """Return whether some nodes see it and others do not, by their labels or names."""
        return not (self.slice.spec.node_name or self.slice.spec.all_nodes)

    @property
    def generation(self) -> int:
        """Return the generation of its pool."""
        return self.slice.spec.pool.generation

    def device_selector(self, device: objects.Device) -> NodeSelector | None:
        """Return the node selector of one of its devices, compiled."""
        if device.node_selector is None:
            return None
        known = self._device_selectors.get(id(device))
        if known is None:
            known = self._device_selectors[id(device)] = node_selector(device.node_selector)
        return known

    def mask(self, nodes: NodeTable) -> BoolArray:
        """Return `bool[nodes]`: which may use devices of it, for slices of several nodes."""
        spec = self.slice.spec
        if spec.all_nodes:
            return np.ones(nodes.size, np.bool_)
        if self.selector is not None:
            return self.selector.mask(nodes)
        found: BoolArray = np.zeros(nodes.size, np.bool_)
        selectors: dict[bytes, NodeSelector] = {}
        for each in self.slice.spec.devices or () if spec.per_device_node_selection else ():
            if each.node_name:
                row = nodes.rows.get(each.node_name)
                if row is not None:
                    found[row] = True
            elif each.all_nodes:
                found[:] = True
            elif each.node_selector is not None and (selector := self.device_selector(each)) is not None:
                selectors[msgspec.msgpack.encode(each.node_selector)] = selector
        for selector in selectors.values():
            found |= selector.mask(nodes)
        return found


def _node_matches(
    node_name: str | None, all_nodes: bool | None, selector: NodeSelector | None, name: str, labels: Mapping[str, str]
) -> bool:
    if node_name:
        return node_name == name
    return bool(all_nodes) or (selector is not None and selector.matches(labels, name))


def _amounts(counters: Mapping[str, objects.Counter] | None) -> dict[str, int]:
    return {name: quantity_or_zero(counter.value).nanos for name, counter in (counters or {}).items()}


_ZERO = parse("0")


def quantity_or_zero(text: objects.Quantity) -> Quantity:
    """Return an amount; what a server stored against its own rules counts as nothing."""
    try:
        return parse(text)
    except QuantityError:
        return _ZERO


def _add_newest(seen: list[SliceInfo], info: SliceInfo) -> None:
    """Add a slice to those of its pool, of which only the newest generation counts."""
    if seen and info.generation < seen[0].generation:
        return
    if seen and info.generation > seen[0].generation:
        seen.clear()
    seen.append(info)


class Pool(msgspec.Struct, frozen=True, eq=False):
    """A pool as one node sees it."""

    id: PoolID
    incomplete: bool = False
    invalid: str = ""
    """Why its slices contradict each other, "" if they do not."""
    devices: tuple[SlicedDevice, ...] = ()
    """Those that the node may use, in the order in which they are tried."""
    elsewhere: tuple[SlicedDevice, ...] = ()
    """Devices of the pool on other nodes that take of the same counters."""
    counters: CounterSets = msgspec.field(default_factory=dict)
    has_binding_conditions: bool = False
    is_alike: bool = False
    """Whether other nodes may see the same pool, and each of them may use all devices of it."""


class _View:
    """The slices that several nodes see, and the pools in them if a node sees no others."""

    def __init__(self, parts: Sequence[Sequence[SliceInfo]]) -> None:
        self._parts = parts
        self.pools: tuple[Pool, ...] | None = None
        """In order; None: nobody asked yet."""
        self.identities: frozenset[PoolID] = frozenset()
        """Also of pools that are not among them."""

    @property
    def slices(self) -> Iterator[SliceInfo]:
        """Return the slices, which may be very many."""
        return chain.from_iterable(self._parts)


class ResourceSlices:
    """All slices of the cluster."""

    def __init__(self, nodes: NodeTable, rules: KubernetesRules = DEFAULT_RULES) -> None:
        """Begin without any. rules: of the Kubernetes whose devices they are."""
        self._nodes, self._rules = nodes, rules
        self.taint_rules = DeviceTaintRules(rules)
        """What adds taints to devices."""
        self._slices: dict[str, SliceInfo] = {}
        self._by_node: dict[str, dict[str, SliceInfo]] = {}
        self._shared: dict[str, SliceInfo] = {}
        """Slices that several nodes may see."""
        self._selecting = 0
        """How many of these not every node sees."""
        self._taking_counters = 0
        """How many slices have devices that take of counters."""
        self._by_pool: dict[PoolID, dict[str, SliceInfo]] = {}
        self._pools: dict[str, tuple[Pool, ...]] = {}
        self._pools_version = -1
        self._views: list[_View] = []
        """By what nodes see beside their own slices; empty: to be made."""
        self._view_of: IntArray = np.zeros(0, np.int64)
        """`int64[nodes]`: the view of each node."""
        self._masks: dict[Hashable, BoolArray] = {}
        """`bool[nodes]` by `SliceInfo.selects`: which nodes see such slices."""
        self._masks_version = -1
        self._whole: dict[PoolID, Pool | None] = {}
        """Pools as nodes see them that see all their slices, as far as somebody asked."""
        self.version = 0
        """Changes with every slice."""
        self.changed: Journal[str | None] = Journal()
        """Names of nodes that may see other devices than before; None: any may."""

    def __len__(self) -> int:
        return len(self._slices)

    def __iter__(self) -> Iterator[SliceInfo]:
        return iter(self._slices.values())

    def device_count(self) -> int:
        """Return how many devices drivers publish."""
        return sum(len(info.devices) for info in self._slices.values())

    @property
    def sees_labels(self) -> bool:
        """Return whether labels of nodes may decide which node sees which device."""
        return self._selecting > 0

    @property
    def take_counters(self) -> bool:
        """Return whether any device takes of counters that it shares with others."""
        return self._taking_counters > 0

    def set(self, slice_: objects.ResourceSlice) -> None:
        """Add or update a slice."""
        old, info = self._forget(slice_.metadata.name), SliceInfo(slice_, self._rules, self.taint_rules)
        self._slices[info.name] = info
        self._taking_counters += info.takes_counters
        home = self._by_node.setdefault(info.node_name, {}) if info.node_name else self._shared
        home[info.name] = info
        self._selecting += info.selects_nodes
        self._by_pool.setdefault(info.pool, {})[info.name] = info
        if old is not None and old.pool != info.pool:
            self._touch(old)
            old = None
        self._touch(info, before=old)

    def remove(self, slice_: objects.ResourceSlice) -> None:
        """Forget a slice."""
        old = self._forget(slice_.metadata.name)
        if old is not None:
            self._touch(old)

    def set_taint_rule(self, rule: objects.DeviceTaintRule) -> None:
        """Add or update a DeviceTaintRule."""
        before = self.taint_rules.selection(rule.metadata.name)
        if self.taint_rules.set(rule):
            for selection in {before, self.taint_rules.selection(rule.metadata.name)}:
                self._touch_selected(selection)

    def remove_taint_rule(self, rule: objects.DeviceTaintRule) -> None:
        """Forget a DeviceTaintRule."""
        before = self.taint_rules.selection(rule.metadata.name)
        self.taint_rules.remove(rule.metadata.name)
        self._touch_selected(before)

    def _touch_selected(self, selection: Selection | None) -> None:
        """Note the nodes whose devices may have other taints."""
        if selection is None:
            return
        self.version += 1
        driver, pool, _ = selection
        if driver is None or pool is None:
            self.changed.note(None)
            return
        for name in {info.node_name for info in self._by_pool.get(PoolID(driver, pool), {}).values()}:
            self.changed.note(name or None)

    def _forget(self, name: str) -> SliceInfo | None:
        old = self._slices.pop(name, None)
        if old is None:
            return None
        self._taking_counters -= old.takes_counters
        if old.node_name:
            there = self._by_node[old.node_name]
            del there[name]
            if not there:
                del self._by_node[old.node_name]
        else:
            del self._shared[name]
            self._selecting -= old.selects_nodes
        pool = self._by_pool[old.pool]
        del pool[name]
        if not pool:
            del self._by_pool[old.pool]
        return old

    def _touch(self, info: SliceInfo, *, before: SliceInfo | None = None) -> None:
        """Forget what was derived for the nodes that a slice, or others of its pool, are or were seen by.

        before: the slice that it replaces in the pool.
        """
        self.version += 1
        self._whole.pop(info.pool, None)
        for each in (info, before):
            self._masks.pop(each, None)
        touched = [*self._by_pool.get(info.pool, {}).values(), info, *((before,) if before is not None else ())]
        seen_by = {each.node_name for each in touched}
        if "" in seen_by:
            self._pools.clear()
            self._views.clear()
            self.changed.note(None)
            return
        for name in seen_by:
            self._pools.pop(name, None)
            self.changed.note(name)

    def pools_of(self, row: int) -> tuple[Pool, ...]:
        """Return the pools that a node of the table sees, in the order in which they are tried."""
        self._follow_nodes()
        info = self._nodes.infos[row]
        known = self._pools.get(info.name)
        if known is None:
            known = self._pools[info.name] = self._gather(row, info.name)
        return known

    def make_ready(self) -> bool:
        """Find a part of which nodes see which slices, and of the pools in them; return whether all is found.

        Between two calls anything may happen to nodes and slices.
        """
        self._follow_nodes()
        if self._views or len(self._slices) < _MANY_SLICES:
            return True
        return self._nodes.under_way.go_on(self, lambda: every(_READ_AT_ONCE, self._read_ahead()))

    def _read_ahead(self) -> Generator[None, None, None]:
        """Find in steps what is kept of slices and pools: what changes meanwhile is found again."""
        for info in list(self._shared.values()):
            if info.selects_nodes and self._slices.get(info.name) is info:
                self._mask(info)
            yield
        for identity in list(self._by_pool):
            if (infos := self._by_pool.get(identity)) is not None:
                newest: list[SliceInfo] = []
                for info in infos.values():
                    _add_newest(newest, info)
                    yield
                self._pool(identity, newest)
            yield
        self._follow_nodes()
        if not self._views:
            self._make_views()

    def _follow_nodes(self) -> None:
        if self._selecting and self._pools_version != self._nodes.version:
            self._pools.clear()
            self._views.clear()
            self._pools_version = self._nodes.version

    def rows_of(self, device: DeviceID) -> Sequence[int] | None:
        """Return the rows of the nodes that can see a device; None: any may."""
        infos = self._by_pool.get(PoolID(device.driver, device.pool), {}).values()
        names = {info.node_name for info in infos}
        if "" in names:
            return None
        return [row for name in names if (row := self._nodes.rows.get(name)) is not None]

    def devices_of(self, pool: PoolID) -> Iterator[SlicedDevice]:
        """Return the devices of the newest generation of a pool, wherever they are."""
        return (device for info in self._newest(pool) for device in info.devices)

    def counters_of(self, pool: PoolID) -> CounterSets:
        """Return the counter sets of the newest generation of a pool."""
        return {name: amounts for info in self._newest(pool) for name, amounts in info.counter_sets}

    def _newest(self, pool: PoolID) -> list[SliceInfo]:
        infos = self._by_pool.get(pool, {}).values()
        generation = max((info.generation for info in infos), default=0)
        return [info for info in infos if info.generation == generation]

    # --- the pools of a node -------------------------------------------------------------------------

    def _gather(self, row: int, name: str) -> tuple[Pool, ...]:
        own, view = self._by_node.get(name), self._view(row)
        if view.pools is None:
            view.identities, pools = self._pools_in(view.slices)
            view.pools = self._in_order(pools)
        if own is None:
            return view.pools
        identities, pools = self._pools_in(own.values())
        if identities.isdisjoint(view.identities):
            pools.extend(pool for pool in view.pools if pool.id in view.identities)
            return self._in_order(pools)
        return self._in_order(self._pools_in(chain(own.values(), view.slices))[1])

    def _pools_in(self, slices: Iterable[SliceInfo]) -> tuple[frozenset[PoolID], list[Pool]]:
        """Return the pools of slices that a node sees, and the identities of all, also of those that it cannot use."""
        newest: dict[PoolID, list[SliceInfo]] = {}
        for info in slices:
            _add_newest(newest.setdefault(info.pool, []), info)
        return frozenset(newest), [pool for one in newest.items() if (pool := self._pool(*one)) is not None]

    @staticmethod
    def _in_order(pools: list[Pool]) -> tuple[Pool, ...]:
        """Return pools in the order in which they are tried."""
        return tuple(sorted(pools, key=lambda pool: (pool.has_binding_conditions, *pool.id.in_bytes)))

    def _view(self, row: int) -> _View:
        if not self._views:
            self._make_views()
        return self._views[self._view_of[row] if self._selecting else 0]

    def _make_views(self) -> None:
        """Group the nodes by the slices that they see beside their own: mostly all see the same."""
        everywhere = [info for info in self._shared.values() if info.slice.spec.all_nodes]
        by_selection: dict[Hashable, list[SliceInfo]] = {}
        for info in self._shared.values():
            if not info.slice.spec.all_nodes:
                by_selection.setdefault(info.selects, []).append(info)
        if not by_selection:
            self._views = [_View([everywhere])]
            return
        selections = list(by_selection.values())
        masks = np.array([self._mask(alike[0]) for alike in selections], np.bool_)
        packed = np.ascontiguousarray(np.packbits(masks, axis=0).T)
        number_of: dict[bytes, int] = {}
        views: list[_View] = []
        view_of = np.zeros(self._nodes.size, np.int64)
        for row in range(self._nodes.size):
            sees = packed[row].tobytes()
            number = number_of.setdefault(sees, len(views))
            if number == len(views):
                views.append(_View([everywhere, *(selections[one] for one in np.flatnonzero(masks[:, row]).tolist())]))
            view_of[row] = number
        self._views, self._view_of = views, view_of

    def _mask(self, info: SliceInfo) -> BoolArray:
        """Return `bool[nodes]`: which nodes see a slice."""
        if self._masks_version != self._nodes.version or len(self._masks) > 2 * len(self._shared):
            self._masks, self._masks_version = {}, self._nodes.version
        found = self._masks.get(info.selects)
        if found is None:
            found = self._masks[info.selects] = info.mask(self._nodes)
        return found

    def _pool(self, identity: PoolID, slices: list[SliceInfo]) -> Pool | None:
        """Return a pool from the slices that a node sees; None if a newer generation exists elsewhere."""
        if len(slices) < len(self._by_pool[identity]):
            return self._made(identity, slices)
        if identity not in self._whole:
            self._whole[identity] = self._made(identity, slices)
        return self._whole[identity]

    def _made(self, identity: PoolID, slices: list[SliceInfo]) -> Pool | None:
        """Return a pool from the slices that a node sees; None if a newer generation exists elsewhere.

        If slices contradict each other about how many there are, the first one by name counts. kube-scheduler takes
        the one that its cache happens to list first.
        """
        slices = sorted(slices, key=lambda info: info.name.encode())
        count, generation = slices[0].slice.spec.pool.resource_slice_count, slices[0].generation
        elsewhere: list[SliceInfo] = []
        if len(slices) != count:
            there = self._by_pool[identity].values()
            if any(info.generation > generation for info in there):
                return None
            if sum(info.generation == generation for info in there) != count:
                return Pool(identity, incomplete=True)
            here = {info.name for info in slices}
            elsewhere = [info for info in there if info.generation == generation and info.name not in here]
        return _complete_pool(identity, slices, elsewhere)


def _complete_pool(identity: PoolID, slices: Sequence[SliceInfo], elsewhere: Sequence[SliceInfo]) -> Pool:
    """Return a pool from the slices that a node sees, and those that it does not, as far as they matter to it."""
    devices, others = (
        tuple(device for info in some if not info.has_counters for device in info.devices)
        for some in (slices, elsewhere)
    )
    if len({device.device.name for device in devices}) < len(devices):
        return Pool(identity, invalid="duplicate device name")
    counters: dict[str, Mapping[str, int]] = {}
    for info in (*slices, *elsewhere):
        for set_name, amounts in info.counter_sets:
            if set_name in counters:
                return Pool(identity, invalid=f"duplicate counter set name {set_name}")
            counters[set_name] = amounts
    for device in (*devices, *others):
        for set_name, consumed in device.counters.items():
            if set_name not in counters:
                return Pool(identity, invalid=f"counter set {set_name} not found")
            missing = next((counter for counter in consumed if counter not in counters[set_name]), None)
            if missing is not None:
                return Pool(identity, invalid=f"counter {missing} not found in counter set {set_name}")
    binding = any(device.device.binding_conditions is not None for device in devices)
    alike = not any(info.node_name or info.slice.spec.per_device_node_selection for info in slices)
    return Pool(identity, False, "", devices, others, counters, binding, alike)

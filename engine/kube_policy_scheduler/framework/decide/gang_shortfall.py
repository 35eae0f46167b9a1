"""Why no domain has room for a gang, in one true sentence: the first of several that is true is said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.domains import Topology
from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.decide.device_room import DeviceKind
from kube_policy_scheduler.framework.decide.gang_room import FreeOf, Kind, Resource, are_independent, rooms
from kube_policy_scheduler.quantities.quantity import column_scale
from kube_policy_scheduler.wording import amount, listed, plural

_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")
_MOST_PARTS = 3
"""Kinds of members of which it is said that each has room, but not all together."""
_IN_GIB = ("memory", "ephemeral-storage")


class DomainSearch(msgspec.Struct, frozen=True):
    """What was looked for in the domains of one label."""

    kinds: Sequence[Kind]
    """The members without a place, those with the largest requests first."""
    needed: int
    """How many of them the gang needs."""
    domains: Topology
    candidates: IntArray
    """`int64[...]`: the domains that it may be in."""
    free: FreeOf
    within: BoolArray | None
    """`bool[nodes]`: nodes to choose from; None: all."""

    def nodes(self, domain: int | None = None) -> BoolArray:
        """Return `bool[nodes]`: those of a domain, or of all that the gang may be in."""
        index = self.domains.index
        found: BoolArray = np.isin(index, self.candidates) if domain is None else index == domain
        return found if self.within is None else found & self.within

    @property
    def level(self) -> str:
        """Return what its domains are called."""
        return level_name(self.domains.key)


def level_name(key: str) -> str:
    """Return what the domains of a label are called: the label without its prefix."""
    return key.rpartition("/")[2]


def domain_name(key: str, value: str) -> str:
    """Return a domain for people: `rack r2`."""
    return f"{level_name(key)} {value}"


def shortfall_text(search: DomainSearch, best: int, value: str, *, bound: int) -> str:
    """Return why the gang has no domain, in words.

    Args:
        search: what was looked for.
        best: the domain with the most room.
        value: its name.
        bound: at most this many members fit there; if that is enough for the gang, an attempt to place them failed.
    """
    where, needed = domain_name(search.domains.key, value), search.needed
    said = _too_little(search, best, where) or (_apart(search, best, where, bound) if bound >= needed else "")
    said = said or _nowhere(search)
    if said:
        return said
    if bound >= needed:
        return f"{where} has the resources for {plural(needed, 'pod')}, but not all of them fit there"
    number = str(bound) if _most_seated(search, best) == bound else f"at most {bound}"
    requests = {request_text(kind.members.template.requests, kind.members.devices) for kind in search.kinds}
    each = f"; {needed - bound} more {_requests(needed - bound, requests.pop())}" if len(requests) == 1 else ""
    return f"{where} has room for {number} of {plural(needed, 'pod')}{each}"


def _too_little(search: DomainSearch, best: int, where: str) -> str:
    """Return of which resource all nodes of a domain together have too little; "" if they have enough of each."""
    nodes = search.nodes(best)
    for resource in _strongest_first(search.kinds):
        if isinstance(resource, DeviceKind) and not resource.is_counted:
            continue  # what is free of such devices has no number
        asked = [(dict(kind.requests).get(resource, 0), kind.members.number) for kind in search.kinds]
        wanted, left = 0, search.needed
        for each, number in sorted(asked):  # those that request the least are enough
            wanted += each * min(number, left)
            left -= min(number, left)
        there = int(np.maximum(search.free(resource), 0)[nodes].sum())
        if wanted > there:
            pods, free = plural(search.needed, "pod"), _quantity(resource, there)
            if resource == "pods":
                return f"{where} lacks {plural(wanted - there, 'place')} for pods: {pods} needed, {free} more allowed"
            lacks = f"{where} lacks {_so_many(resource, wanted - there)}"
            return f"{lacks}: {_quantity(resource, wanted)} requested by {pods}, {free} free"
    return ""


def _apart(search: DomainSearch, best: int, where: str, bound: int) -> str:
    """Return that each kind of members has room in a domain, but not all together; "" if that is not known."""
    parts = _parts(search.kinds)
    everybody = sum(kind.members.number for kind in search.kinds) == search.needed
    if (
        not everybody
        or not 1 < len(parts) <= _MOST_PARTS
        or not all(are_independent(kind.members.template) for kind in search.kinds)
    ):
        return ""
    columns = _columns(search)
    for kinds in parts.values():
        if len(kinds) > 1:
            return ""
        (kind,) = kinds
        if int(kind.places(columns, search.nodes(best)).sum()) < kind.members.number:
            return ""
    each = listed([_the(name, kinds) for name, kinds in parts.items()], "or for")
    together = "both" if len(parts) == 2 else "all"
    most, seated = min(bound, search.needed - 1), _most_seated(search, best)
    counted = f"best: {most}" if seated >= most else f"at most {most}"
    return f"{where} has room for {each}, not for {together} ({counted} of {search.needed})"


def _nowhere(search: DomainSearch) -> str:
    """Return which members that are needed fit on no node of any domain, and why; "" if there are none."""
    columns, nodes, level = _columns(search), search.nodes(), search.level
    total = sum(kind.members.number for kind in search.kinds)
    for name, kinds in _parts(search.kinds).items():
        is_needed = total - sum(kind.members.number for kind in kinds) < search.needed
        if not is_needed or any(kind.places(columns, nodes).any() for kind in kinds):
            continue
        whom = _the(name, kinds) if len(search.kinds) > len(kinds) else "any of its pods"
        requests = dict(kinds[0].requests)
        for resource in _strongest_first(kinds) if len(kinds) == 1 else ():
            most = int(columns[resource][nodes].max(initial=0))
            is_number = resource != "pods" and (not isinstance(resource, DeviceKind) or resource.is_counted)
            if is_number and requests[resource] > most:
                wanted, there = _so_many(resource, requests[resource]), _quantity(resource, max(0, most))
                return f"no {level} has a node for {whom}: {wanted} requested, at most {there} free"
        return f"no {level} has a node for {whom}: none has all that it requests and passes the filters"
    return ""


def _most_seated(search: DomainSearch, best: int) -> int:
    """Return for how many members a domain has room at least, if nothing but resources has a say."""
    orders = (search.kinds, search.kinds[::-1])
    found = (rooms(kinds, search.domains, free=search.free, within=search.within) for kinds in orders)
    return min(search.needed, max(int(each[best]) for each in found))


def _columns(search: DomainSearch) -> Mapping[Resource, IntArray]:
    return {name: search.free(name) for kind in search.kinds for name, _ in kind.requests}


def _parts(kinds: Sequence[Kind]) -> dict[object, list[Kind]]:
    """Return the kinds by their role, or by their template without one."""
    found: dict[object, list[Kind]] = {}
    for kind in kinds:
        found.setdefault(kind.members.role or kind.members.template, []).append(kind)
    return found


def _the(name: object, kinds: Sequence[Kind]) -> str:
    """Return some members for people: `the pod with role=leader`, `the 2 pods that request 3 cpu each`."""
    number = sum(kind.members.number for kind in kinds)
    pods = "the pod" if number == 1 else f"the {number} pods"
    if not isinstance(name, PodTemplate):
        return f"{pods} with {name}"
    text = request_text(name.requests, kinds[0].members.devices)
    return f"{pods} that {_requests(number, text)}"


def _requests(number: int, text: str) -> str:
    return f"requests {text}" if number == 1 else f"request {text} each"


def _strongest_first(kinds: Sequence[Kind]) -> Iterator[Resource]:
    """Yield what is requested: devices and extended resources first, then those of Kubernetes in their order."""
    named = list(dict.fromkeys(resource for kind in kinds for resource, _ in kind.requests))
    yield from (each for each in named if each not in _NATIVE)
    yield from (each for each in _NATIVE if each in named)


def _so_many(resource: Resource, value: int) -> str:
    """Return an amount for people: `8 cpu`, `2Gi memory`, `1 device of gpu.example.com`."""
    return resource.text(value) if isinstance(resource, DeviceKind) else f"{_quantity(resource, value)} {resource}"


def _quantity(resource: Resource, value: int) -> str:
    if isinstance(resource, DeviceKind):
        return str(value)
    return f"{amount(value / 2**30)}Gi" if resource in _IN_GIB else amount(value / 10.0 ** column_scale(resource))


def request_text(requests: Mapping[str, int], devices: Sequence[tuple[DeviceKind, int]] = ()) -> str:
    """Return what a pod requests, for people: `8 devices of gpu.example.com, 8 nvidia.com/gpu and 4 cpu`."""
    shown = [kind.text(number) for kind, number in devices]
    last = {"cpu", "memory"}
    names = sorted(requests, key=lambda resource: (resource in last, resource))
    shown += [_so_many(resource, requests[resource]) for resource in names]
    return listed(shown) if shown else "nothing"

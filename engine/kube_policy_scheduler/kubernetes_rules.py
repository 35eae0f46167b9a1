"""By which Kubernetes pods are decided: what differs between its versions, in one table.

`Feature` is the table: each entry has the name of its feature gate, or a name of our own where a repair has no gate,
and the versions in which it holds by default. Nothing else in this project compares versions of Kubernetes: who decides
asks `Feature.X in cluster.rules`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, Self

__all__ = [
    "DEFAULT_RULES",
    "NOTHING_CHOSEN",
    "Feature",
    "KubernetesChoice",
    "KubernetesRules",
    "KubernetesVersion",
    "VersionError",
    "gate_problem",
    "parse_gates",
]


class VersionError(ValueError):
    """A text is no version of Kubernetes, or no feature gate that rules can be changed by."""


class KubernetesVersion(NamedTuple):
    """A version of Kubernetes: 1.`minor`.`patch`."""

    minor: int
    patch: int | None = None
    """None: not said; the newest patch release is meant."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the version that a text such as `1.37`, `v1.36.4-eks-1` or `1.38.0-alpha.1` says.

        Raises:
            VersionError: it says none.
        """
        found = _VERSION.match(text)
        if found is None:
            raise VersionError(f"expected a version of Kubernetes such as 1.37 or 1.36.4, got `{text[:40]}`")
        minor, patch = found.groups()
        return cls(int(minor), None if patch is None else int(patch))

    def __str__(self) -> str:
        return f"1.{self.minor}" if self.patch is None else f"1.{self.minor}.{self.patch}"


_VERSION = re.compile(r"v?1\.([0-9]{1,4})(?:\.([0-9]{1,4}))?(?![0-9.])")

OLDEST, NEWEST = 34, 38
"""The minor versions whose rules are known. Servers beyond them get the rules of the nearest."""


class Entry(NamedTuple):
    """One difference between versions of Kubernetes."""

    name: str
    """The feature gate; for what has none, a name of our own."""
    text: str
    """What holds with it, for people: a sentence without its full stop."""
    since: int | None
    """The minor version from which on it holds by default; None: in none."""
    known_since: int | None = None
    """It is a feature gate: the minor version from which on administrators can switch it; None: it has no gate."""
    locked_since: int | None = None
    """The minor version from which on its gate cannot be switched any more."""

    @property
    def is_gate(self) -> bool:
        """Return whether administrators can switch it."""
        return self.known_since is not None

    def holds(self, version: KubernetesVersion) -> bool:
        """Return whether it holds by default in a version."""
        return self.since is not None and version.minor >= self.since

    def is_switchable(self, version: KubernetesVersion) -> bool:
        """Return whether it has a gate in a version that is not locked."""
        if self.known_since is None or version.minor < self.known_since:
            return False
        return self.locked_since is None or version.minor < self.locked_since


class Feature(Enum):
    """What holds in some versions of Kubernetes and not in others."""

    __hash__ = object.__hash__  # members are compared by identity; `Enum` hashes their names, in Python code

    POD_REQUESTS_MAX_OF_SUMS = Entry(
        "PodRequestsMaxOfSums",
        "a pod in an in-place resize counts for the largest of three sums over its containers: what they want, what was"
        " allocated, and what is in force. Before, the largest of the three was taken for each container",
        since=37,
    )  # fmt: skip
    STORAGE_CAPACITY_SCORING = Entry(
        "StorageCapacityScoring",
        "`VolumeBinding` scores nodes by the storage that their volumes would use of what is there",
        since=37,
        known_since=33,
    )
    VOLUME_LIMIT_SCALING = Entry(
        "VolumeLimitScaling",
        "`NodeVolumeLimits` rejects nodes without the CSI driver of a volume, if its CSIDriver sets"
        " `preventPodSchedulingIfMissing`",
        since=37,
        known_since=35,
    )
    IMAGE_VOLUMES_ARE_CONTAINERS = Entry(
        "ImageVolumesAreContainers",
        "`ImageLocality` counts each image volume as a container for the size at which a score is full",
        since=37,
    )
    PREEMPTION_MESSAGE = Entry(
        "PreemptionMessage",
        "if preemption makes room, the message of the pod names the node and the number of victims; for a PodGroup, the"
        " number",
        since=37,
    )
    EMPTY_SELECTOR_SPREADS = Entry(
        "EmptySelectorSpreads",
        "a topology spread constraint with `labelSelector: {}` counts all pods of the namespace. Before, it counted"
        " none",
        since=38,
    )
    EMPTY_SELECTOR_PROTECTS = Entry(
        "EmptySelectorProtects",
        "a PodDisruptionBudget with `selector: {}` protects all pods of the namespace. Before, it protected none from"
        " preemption, and no budget protected pods without labels",
        since=38,
    )
    POD_GROUPS_EVICTED_WHOLE = Entry(
        "PodGroupsEvictedWhole",
        "preemption for a single pod takes a PodGroup with the `disruptionMode` `{all: {}}` as one victim, on whatever"
        " nodes its pods are. Before, it takes no pod of such a group. Of the same priority, groups are more important"
        " than pods in no group, and larger groups than smaller ones",
        since=37,
    )
    WORKLOAD_AWARE_PREEMPTION = Entry(
        "WorkloadAwarePreemption",
        "preemption for a PodGroup or CompositePodGroup takes away all pods of lower priority, places all pods of the"
        " group that fit, and puts back as many as fit, the most important first. If more than 1,000 pods have a lower"
        " priority, it takes away the least important ones. A pod that its group can do without evicts nobody. Without"
        " it, evictions are searched for each member",
        since=37,
        known_since=36,
        locked_since=37,
    )
    POD_GROUP_PRIORITY_COUNTS = Entry(
        "PodGroupPriorityCounts",
        "a pod is held if its PodGroup has another priority. Before, only the priority of the pod counts",
        since=37,
    )
    POD_GROUP_PREEMPTION_POLICY = Entry(
        "PodGroupPreemptionPolicy",
        "a PodGroup can have a `preemptionPolicy`, and a pod with another one is held. Without it, all pods of such a"
        " group are held",
        since=None,
        known_since=37,
    )
    TOPOLOGY_AWARE_WORKLOAD_SCHEDULING = Entry(
        "TopologyAwareWorkloadScheduling",
        "a PodGroup with `schedulingConstraints.topology` is tried in each domain, and gets the one with the highest"
        " score: the share of cpu and memory that is in use then, and how many of its pods fit. Without it, the"
        " scheduler takes the fullest domain that has room for the pods that the group needs",
        since=None,
        known_since=36,
    )
    PLACEMENTS_LIMITED = Entry(
        "PlacementsLimited",
        "with `TopologyAwareWorkloadScheduling`, the best of only a share of the domains is taken: fewer in larger"
        " clusters, 10 % with 5,000 nodes, 5 % at least",
        since=37,
    )
    NOMINATED_PLACEMENT_FIRST = Entry(
        "NominatedPlacementFirst",
        "with `TopologyAwareWorkloadScheduling`, the domain to which most pods of a PodGroup are nominated is tried"
        " first, and taken if they fit there. Before, all domains are compared. Groups in a CompositePodGroup are"
        " placed as before",
        since=38,
    )
    DEVICE_CONFIG_WRITTEN_ONCE = Entry(
        "DeviceConfigWrittenOnce",
        "parameters of a claim for a driver are written once into its allocation, and those for all requests without"
        " `requests`. Before, they were written once for each request that they name",
        since=37,
    )
    SELECTOR_ERRORS_NAME_DEVICES = Entry(
        "SelectorErrorsNameDevices",
        "the error of a CEL selector names the device, and for a missing key says how to write the selector",
        since=37,
    )
    DRA_LIST_TYPE_ATTRIBUTES = Entry(
        "DRAListTypeAttributes",
        "in a constraint, an attribute that is a list counts for all of its values: devices match if they have one in"
        " common, and differ if they have none. Without it, a device with a list can only be the first that is taken",
        since=None,
        known_since=36,
    )
    DRA_WORKLOAD_RESOURCE_CLAIMS = Entry(
        "DRAWorkloadResourceClaims",
        "a PodGroup can have `resourceClaims`, which are reserved for it and shared by its pods. Without it, the pods"
        " of such a group are held",
        since=None,
        known_since=36,
    )
    DRA_FRACTIONAL_CAPACITY_RANGE = Entry(
        "DRAFractionalCapacityRange",
        "requests of a capacity with a `validRange` that is not of whole numbers are rounded in thousandths. Before,"
        " they were rounded to whole numbers",
        since=37,
        known_since=37,
    )
    DRA_DEVICE_TAINT_RULES = Entry(
        "DRADeviceTaintRules",
        "DeviceTaintRules add taints to devices",
        since=37,
        known_since=35,
        locked_since=38,
    )
    TAINT_RULES_NEED_SELECTORS = Entry(
        "TaintRulesNeedSelectors",
        "a DeviceTaintRule without `deviceSelector` adds its taint to no device. Before, it added it to every device",
        since=38,
    )
    QUALIFIED_CAPACITY_NAMES = Entry(
        "QualifiedCapacityNames",
        "the capacities `memory` and `DRIVER/memory` of a device are one; if it publishes both, the qualified one"
        " counts. Before, requests had to write the name as the device publishes it",
        since=38,
    )
    BROKEN_POOLS_REJECT_NODES = Entry(
        "BrokenPoolsRejectNodes",
        "a request for `All` devices is rejected on nodes with an incomplete or invalid pool. Before, one such node"
        " ended the attempt for all nodes",
        since=38,
    )

    @property
    def entry(self) -> Entry:
        """Return what is known of it."""
        found: Entry = self.value
        return found


class KubernetesRules:
    """The rules of one Kubernetes: its version, and what holds there. Immutable."""

    __slots__ = ("_on", "switched", "version")

    def __init__(self, version: KubernetesVersion, gates: Mapping[str, bool] | None = None) -> None:
        """Take the rules of a version, with feature gates that administrators switched.

        Raises:
            VersionError: a gate is unknown, or cannot be switched in this version.
        """
        self.version = version
        """As it was said; see `followed`."""
        self.switched: Mapping[str, bool] = dict(gates or {})
        """Feature gates that are not as by default, by name."""
        known = self.followed
        self._on = {feature for feature in Feature if feature.entry.holds(known)}
        for name, is_on in self.switched.items():
            feature = _switchable(name, known)
            if is_on:
                self._on.add(feature)
            else:
                self._on.discard(feature)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the rules that a text such as `1.37` or `1.37.1,StorageCapacityScoring=false` says; see `said`.

        Raises:
            VersionError: it says none.
        """
        version, _, gates = text.partition(",")
        return cls(KubernetesVersion.parse(version.strip()), parse_gates(gates) if gates else None)

    @property
    def said(self) -> str:
        """Return the version and the gates that are not as by default, such that `parse` returns the same rules."""
        return ",".join((str(self.version), *self.gates))

    @property
    def gates(self) -> tuple[str, ...]:
        """Return the gates that are not as by default, as administrators write them: `StorageCapacityScoring=false`."""
        return tuple(f"{name}={str(is_on).lower()}" for name, is_on in sorted(self.switched.items()))

    def __contains__(self, feature: Feature) -> bool:
        return feature in self._on

    def __eq__(self, other: object) -> bool:
        """Return whether the same features hold, whatever the patch version is."""
        return isinstance(other, KubernetesRules) and self._on == other._on

    def __hash__(self) -> int:
        return hash(frozenset(self._on))

    @property
    def followed(self) -> KubernetesVersion:
        """Return the version whose rules these are: the nearest that is known."""
        if OLDEST <= self.version.minor <= NEWEST:
            return self.version
        return KubernetesVersion(min(max(self.version.minor, OLDEST), NEWEST))

    @property
    def is_known(self) -> bool:
        """Return whether the rules of just this version are known."""
        return self.followed == self.version

    def may_switch(self, gate: str) -> bool:
        """Return whether administrators can switch a gate in this version."""
        feature = _BY_NAME.get(gate)
        return feature is not None and feature.entry.is_switchable(self.followed)

    @property
    def features(self) -> tuple[Feature, ...]:
        """Return what holds, in the order of the table."""
        return tuple(feature for feature in Feature if feature in self._on)

    def __str__(self) -> str:
        """Return it for people, such as `1.37.1` or `1.38 (the newest whose rules are known, for 1.40.2)`."""
        text = str(self.followed)
        if not self.is_known:
            which = "newest" if self.version.minor > NEWEST else "oldest"
            text = f"{text} (the {which} whose rules are known, for {self.version})"
        return ", ".join((text, *self.gates))

    def __repr__(self) -> str:
        return f"KubernetesRules({self})"


class KubernetesChoice(NamedTuple):
    """What somebody says of the rules: a version, gates, both or nothing."""

    version: KubernetesVersion | None = None
    gates: Mapping[str, bool] = MappingProxyType({})
    """Whether they are on, by name."""

    def __bool__(self) -> bool:
        """Return whether anything is said."""
        return self.version is not None or bool(self.gates)

    def rules(self, otherwise: Callable[[], KubernetesRules]) -> KubernetesRules:
        """Return the rules. otherwise: returns those of which only the gates are changed where no version is said.

        Raises:
            VersionError: a gate is unknown, or cannot be switched in the version.
        """
        if self.version is not None:
            return KubernetesRules(self.version, self.gates)
        others = otherwise()
        return KubernetesRules(others.version, {**others.switched, **self.gates}) if self.gates else others


NOTHING_CHOSEN = KubernetesChoice()


def parse_gates(text: str) -> dict[str, bool]:
    """Return feature gates that are written as for kube-scheduler: `A=true,B=false`.

    Raises:
        VersionError: it is something else, or a gate is unknown.
    """
    found: dict[str, bool] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if value not in ("true", "false"):
            raise VersionError(
                f"expected a feature gate such as StorageCapacityScoring=true, got `{part.strip()[:60]}`"
            )
        if (problem := gate_problem(name)) is not None:
            raise VersionError(problem)
        if found.setdefault(name, value == "true") is not (value == "true"):
            raise VersionError(f"feature gate `{name}` is both true and false: say it once")
    return found


def gate_problem(name: str) -> str | None:
    """Return what is wrong with the name of a feature gate, whatever the version; None if nothing is."""
    feature = _BY_NAME.get(name)
    if feature is not None and feature.entry.is_gate:
        return None
    known = ", ".join(_names(each for each in Feature if each.entry.is_gate))
    return f"unknown feature gate `{name[:60]}`: the gates that change what is decided are {known}"


def _switchable(name: str, version: KubernetesVersion) -> Feature:
    if (problem := gate_problem(name)) is not None:
        raise VersionError(problem)
    feature = _BY_NAME[name]
    if not feature.entry.is_switchable(version):
        entry = feature.entry
        is_locked = entry.locked_since is not None and version.minor >= entry.locked_since
        why = "is always on" if is_locked else "does not exist"
        raise VersionError(f"feature gate `{name}` {why} in Kubernetes {version}: leave it out")
    return feature


def _names(features: Iterable[Feature]) -> list[str]:
    return sorted(feature.entry.name for feature in features)


_BY_NAME: Mapping[str, Feature] = {feature.entry.name: feature for feature in Feature}

DEFAULT_RULES = KubernetesRules(KubernetesVersion(36))
"""Where no server and nobody says a version: the newest whose decisions were compared with those of a real
kube-scheduler as a whole."""

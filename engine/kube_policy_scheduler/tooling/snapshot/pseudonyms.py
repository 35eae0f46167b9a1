"""Names replaced by pseudonyms, such that every decision that compares texts comes out the same.

One text has one pseudonym wherever it stands, and no two texts share one: whatever was equal stays equal, whatever
differed still differs. So a node's name goes on being its hostname label, a selector goes on selecting. What is not
said here to be kept is replaced: a field that is added some day is hidden until somebody looks at it.

What this can't keep: the order of names, parts of texts (`startswith`, `matches` in a policy), and the way ties are
broken, which hashes names.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from kube_policy_scheduler.cluster.prices import PRICE_KEY
from kube_policy_scheduler.tooling.snapshot.fields import RULES_ANNOTATIONS, Json

KEPT_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "karpenter.sh/capacity-type",
)
"""Labels whose values are kept: they say what a node is, not whose."""

_PLAIN = re.compile(r"|true|false|True|False|[0-9]{1,5}|0\.0\.0\.0|127\.0\.0\.1|::|system-(cluster|node)-critical")
"""Texts that name nothing."""
_KEPT_KEYS = frozenset(
    {
        "apiVersion", "kind", "key", "operator", "effect", "topologyKey", "whenUnsatisfiable", "nodeAffinityPolicy",
        "nodeTaintsPolicy", "matchLabelKeys", "mismatchLabelKeys", "schedulerName", "preemptionPolicy", "protocol",
        "restartPolicy", "action", "creationTimestamp", "deletionTimestamp", "startTime", "phase", "qosClass", "type",
        "architecture", "operatingSystem", "kernelVersion", "kubeletVersion", "containerRuntimeVersion",
        "lastTransitionTime", "providerID", "declaredFeatures", "provisioner",
        "volumeBindingMode", "driver", "attacher", "topologyKeys", "accessModes", "volumeMode", "fsType",
        "extendedResourceName", "requests", "limits", "capacity", "allocatable", "overhead", "allocatedResources",
        "maximumVolumeSize", "attributes", "expression", "allocationMode", "deviceClassName", "counters",
        "sharedCounters", "consumesCounters", "consumedCapacity", "matchAttribute", "distinctAttribute",
        "allocationTimestamp", "available", "bindingConditions", "bindingFailureConditions", "request",
        "syncMode", "kubernetesVersion", "groupVersion", "allocated", "allocating", "min", "health", "resourceRequest",
        "spreadByField", "spreadByLabel", "replicaSchedulingType", "replicaDivisionPreference", "dynamicWeight",
        "lastScheduledTime", "rescheduleTriggeredAt",
    }
)  # fmt: skip
"""Fields with words of the API, amounts and times. The names of their resources are kept too."""
_CONDITION_WORDS: Mapping[str, frozenset[str]] = {
    "type": frozenset(
        {
            "Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "PodScheduled",
            "Initialized", "ContainersReady", "PodReadyToStartContainers", "DisruptionTarget", "PodResizePending",
            "PodResizeInProgress", "PodGroupScheduled", "PodGroupInitiallyScheduled",
            "CompositePodGroupInitiallyScheduled", "Scheduled", "FullyApplied", "CompleteAPIEnablements",
        }
    ),
    "status": frozenset({"True", "False", "Unknown"}),
    "reason": frozenset(
        {
            "Unschedulable", "SchedulingGated", "SchedulerError", "PreemptionByScheduler", "DeletionByTaintManager",
            "EvictionByEvictionAPI", "DeletionByPodGC", "TerminationByKubelet", "Infeasible", "Deferred",
            "SchedulingSkipped", "Success", "NoClusterFit", "QuotaExceeded",
        }
    ),
}  # fmt: skip
"""Words of Kubernetes and Karmada in conditions. Others are those of operators and device plugins, and may name
anything."""
_CONDITION_PREFIXES: Mapping[str, str] = {"type": "condition", "status": "status", "reason": "reason"}
_OWNERS: Mapping[str, frozenset[str]] = {
    "v1": frozenset({"ReplicationController", "Node", "Pod"}),
    "apps/v1": frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "Deployment"}),
    "batch/v1": frozenset({"Job", "CronJob"}),
}
"""Kinds of owners that are Kubernetes' own; others name products, or the company that made them."""
_AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_INTEGER = re.compile(r"[-+]?[0-9]{1,19}")
_KEPT_KINDS = frozenset({"CSIDriver", "DeviceClass"})
"""Kinds whose names are products, and parts of other names."""
_PREFIXES: Mapping[str, str] = {
    "namespace": "ns",
    "namespaces": "ns",
    "nodeName": "node",
    "nominatedNodeName": "node",
    "uid": "uid",
    "claimName": "claim",
    "storageClassName": "class",
    "volumeName": "volume",
    "persistentVolumeName": "volume",
    "serviceAccountName": "account",
    "priorityClassName": "priority",
    "nodeID": "id",
}
"""The prefix of a pseudonym, by the field in which the text occurs first."""
_KIND_PREFIXES: Mapping[str, str] = {
    "Namespace": "ns",
    "PersistentVolume": "volume",
    "PersistentVolumeClaim": "claim",
    "StorageClass": "class",
    "PriorityClass": "priority",
}
_IMAGE_KEYS = frozenset({"image", "names", "reference"})
_VALUED = frozenset({"labels", "matchLabels", "nodeSelector", "selector", "annotations"})
"""Mappings whose keys are kept."""


class Pseudonyms:
    """Pseudonyms for texts, given out as they are asked for."""

    def __init__(self, *, kept: Collection[str] = (), key: bytes | None = None) -> None:
        """Begin without any.

        Args:
            kept: texts that stay as they are.
            key: pseudonyms follow from the text and this, the same in every snapshot; without it they are numbered.
        """
        self._kept = frozenset(kept)
        self._key = key
        self._by_text: dict[str, str] = {}
        self._taken: set[str] = set(self._kept)
        self._counts: dict[str, int] = {}
        self._parts: dict[str, tuple[str, str]] = {}
        """Of texts that are made of two others with a dash between, as names are made from names."""

    def of(self, text: str, kind: str = "v") -> str:
        """Return what stands for a text; `kind` begins a new pseudonym, unless they follow from a key."""
        if text in self._kept or _PLAIN.fullmatch(text):
            return text
        found = self._by_text.get(text)
        if found is not None:
            return found
        parts = self._parts.get(text)
        if parts is not None:
            return self._give(text, f"{self.of(parts[0], 'pod')}-{self.of(parts[1], 'storage')}")
        return self._give(text, self._new(text, kind))

    def join(self, first: str, second: str) -> None:
        """Have the pseudonym of `first-second` be those of its parts with a dash between.

        Tell it of all such names before it is asked for any. first: the name of a pod; second: of its volume.
        """
        self._parts.setdefault(f"{first}-{second}", (first, second))

    def image(self, text: str) -> str:
        """Return the pseudonym of an image; it keeps whether the tag is `latest`."""
        name, at, digest = text.partition("@")
        repository, colon, tag = name.rpartition(":")
        if not colon or "/" in tag:
            repository, colon, tag = name, "", ""
        done = self.of(repository, "image")
        if colon:
            done += f":{tag if tag == 'latest' else self.of(tag, 'tag')}"
        algorithm, _, sum_ = digest.partition(":")
        return done + (f"@{algorithm}:{self.of(sum_, 'digest')}" if at else "")

    def _give(self, text: str, pseudonym: str) -> str:
        self._taken.add(pseudonym)
        self._by_text[text] = pseudonym
        return pseudonym

    def _new(self, text: str, kind: str) -> str:
        if self._key is not None:
            digest = hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()
            # in another snapshot the same text may occur elsewhere first: the pseudonym does not say where
            return next(made for size in range(10, 65) if (made := f"v-{digest[:size]}") not in self._taken)
        while True:
            count = self._counts[kind] = self._counts.get(kind, 0) + 1
            if (made := f"{kind}-{count}") not in self._taken:
                return made


def kept_texts(things: Iterable[Json], *, labels: Collection[str]) -> frozenset[str]:
    """Return the values of labels whose values are kept, and numbers on nodes that some affinity compares as such.

    Only numbers, and only what it compares: anyone who may create a pod can write an affinity, and must not have other
    texts shown by it.
    """
    things = list(things)
    kept = {text for thing in things for key, text in _labelled(thing) if key in labels}
    compared = [one for thing in things for one in _requirements(thing) if one.get("operator") in ("Gt", "Lt")]
    keys = {one["key"] for one in compared}
    on_nodes = (text for thing in things if thing["kind"] == "Node" for key, text in _labelled(thing) if key in keys)
    bounds = (text for one in compared for text in one.get("values") or ())
    return frozenset(kept).union(text for text in (*on_nodes, *bounds) if _INTEGER.fullmatch(text))


def anonymised(things: Iterable[Json], names: Pseudonyms) -> list[Json]:
    """Return objects of a snapshot with names replaced; nodes lose their addresses.

    Nodes and pods should come first, so that the pseudonyms of their names say what they are.
    """
    things = list(things)
    for thing in things:
        if thing["kind"] == "Pod":
            _name_claims(thing, names)
    return [_Object(thing, names).done() for thing in things]


def _name_claims(pod: Json, names: Pseudonyms) -> None:
    """A generic ephemeral volume's claim is named after pod and volume: keep it so."""
    name = pod["metadata"]["name"]
    for volume in pod.get("spec", {}).get("volumes") or ():
        if volume.get("ephemeral") is not None:
            names.join(name, volume["name"])


class _Object:
    def __init__(self, thing: Json, names: Pseudonyms) -> None:
        self._thing = thing
        self._names = names
        self._kind = thing["kind"]

    def done(self) -> Json:
        made: Json = {key: self._value(key, value, ()) for key, value in self._thing.items()}
        if self._kind == "Node":
            made.get("status", {}).pop("addresses", None)
        if self._kind in _KEPT_KINDS:
            made["metadata"]["name"] = self._thing["metadata"]["name"]
        return made

    def _value(self, key: str, value: Any, path: tuple[str, ...]) -> Any:
        if key in _CONDITION_WORDS and path[-1:] == ("conditions",):
            return value if value in _CONDITION_WORDS[key] else self._names.of(str(value), _CONDITION_PREFIXES[key])
        if key == "ownerReferences" and isinstance(value, list):
            return [self._owner(one, path) for one in value]
        if key in _KEPT_KEYS:
            return value
        match value:
            case dict() if key in _VALUED and all(isinstance(item, str) for item in value.values()):
                return {name: self._labelled(name, text, key) for name, text in value.items()}
            case dict() if key == "disruptedPods":
                return {self._names.of(name, "pod"): item for name, item in value.items()}
            case dict():
                return {name: self._value(name, item, (*path, key)) for name, item in value.items()}
            case list():
                return [self._value(key, item, path) for item in value]
            case str():
                return self._text(key, value, path)
            case _:
                return value

    def _owner(self, reference: Json, path: tuple[str, ...]) -> Json:
        made: Json = self._value("ownerReferences", reference, path)
        version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
        if kind in _OWNERS.get(version, ()):
            return made
        group, slash, rest = version.rpartition("/")
        if "kind" in made:
            made["kind"] = self._names.of(kind, "kind")
        if "apiVersion" in made:
            made["apiVersion"] = f"{self._names.of(group, 'group')}{slash}{rest}"
        return made

    def _labelled(self, name: str, text: str, key: str) -> str:
        if key == "annotations" and name in RULES_ANNOTATIONS and re.search("[,=]", text):
            return text  # names of plugins, numbers of devices
        if name == PRICE_KEY and _AMOUNT.fullmatch(text):
            return text
        return self._names.of(text)

    def _text(self, key: str, text: str, path: tuple[str, ...]) -> str:
        if key in _IMAGE_KEYS:
            return self._names.image(text)
        if key == "name" and path == ("metadata",):
            return self._names.of(text, _KIND_PREFIXES.get(self._kind, self._kind.lower()))
        if key == "name" and path[-1:] in (("drivers",), ("zones",), ("resources",), ("ranges",)):
            return text
        if key == "name":
            return self._names.of(text, _PART_PREFIXES.get(path[-1] if path else "", "name"))
        return self._names.of(text, _PREFIXES.get(key, "v"))


_PART_PREFIXES: Mapping[str, str] = {
    "containers": "container",
    "initContainers": "container",
    "containerStatuses": "container",
    "initContainerStatuses": "container",
    "volumes": "storage",
    "claimRef": "claim",
    "ownerReferences": "owner",
    "schedulingGates": "gate",
    "clusters": "cluster",
    "resource": "workload",
    "components": "component",
}


def _requirements(value: Any) -> Iterator[Json]:
    """Yield what looks like an expression of a selector, wherever it stands."""
    if isinstance(value, dict):
        if "key" in value and "operator" in value:
            yield value
        for item in value.values():
            yield from _requirements(item)
    elif isinstance(value, list):
        for item in value:
            yield from _requirements(item)


def _labelled(value: Any) -> Iterator[tuple[str, str]]:
    """Yield labels and what selectors compare them with, wherever they stand."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name in _VALUED and isinstance(item, dict):
                yield from ((key, text) for key, text in item.items() if isinstance(text, str))
            yield from _labelled(item)
        if isinstance(value.get("key"), str):
            yield from ((value["key"], text) for text in value.get("values") or ())
    elif isinstance(value, list):
        for item in value:
            yield from _labelled(item)

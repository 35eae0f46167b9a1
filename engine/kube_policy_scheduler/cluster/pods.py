"""Pods as the scheduler keeps them: a shared template, and the few facts that differ from pod to pod.

A *template* is everything that decides where a pod may run and that pods of one workload have in common.
Equal templates are one object, so that what follows from a template is computed once.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from sys import intern
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.kept_views import KeptBytes, KeptView
from kube_policy_scheduler.cluster.requests import PodRequests, existing, incoming, is_resize_infeasible
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.times import unix_seconds

_RECENT_TEMPLATES = 4096
"""Templates kept alive for a while after their last pod is gone: jobs come back, and their masks with them."""
_RECENT_BYTES = 32 * 2**20
"""Of their sizes together. What plugins and policies derive from a template comes on top: up to three times as much."""
_ITEM_BYTES = 64
"""A field, string or list in memory, besides its text; between the 56 of an empty list and the 96 of a small struct."""
_TEXT = bytes(range(128))
"""What is not the marker of a MessagePack item, in texts of ASCII."""
_LONG_KEY = 4096
"""Templates with longer encodings are compared by a digest."""
PASSED_ON = "policy-scheduler/PassedOn"
"""Condition of a pod that one replica has decided and another, the owner of the node that it names, is to bind."""
_READ_CONDITIONS = frozenset({"PodScheduled", "DisruptionTarget", "PodResizePending", PASSED_ON})
"""Conditions of pods that are read; other conditions are not kept."""
_NOTHING: dict[str, Any] = {}
"""Of most pods: annotations, and names of claims."""
_EXISTING = "existing-demand"
"""What an unresized pod of a template counts for once it is on a node."""
_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_Kin: TypeAlias = tuple[str, str | None, str | None]
"""The uid of a controller, and the zone and region that its pods have as labels."""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_CLAIM_SOURCES = (
    "persistent_volume_claim",
    "ephemeral",
    "gce_persistent_disk",
    "aws_elastic_block_store",
    "azure_disk",
    "cinder",
    "portworx_volume",
    "vsphere_volume",
    "iscsi",
    "rbd",
)


class SharedMemo(dict[Any, Any]):
    """A memo of several templates."""

    __slots__ = ("__weakref__",)


class OwnWords(NamedTuple):
    """What a pod says of itself besides its template. Fields of existing pods read it as they read a `PodInfo`."""

    name: str
    annotations: Mapping[str, str]


NO_WORDS = OwnWords("", MappingProxyType({}))


@dataclass(eq=False, slots=True, weakref_slot=True)
class PodTemplate:
    """What pods of one workload have in common; compared by identity.

    `memo` is where plugins and policies keep what they derived from the template (parsed terms, masks by
    node-table version); the key's first item is the owner's name.
    """

    namespace: str
    labels: Mapping[str, str]
    spec: objects.PodSpec
    """The scheduling part of the spec; without volumes (they differ by pod) except images."""
    controller: objects.OwnerReference | None
    demand: PodRequests
    size: int
    """Bytes that it takes in memory, estimated: what caches that keep it count it as."""
    shape: SharedMemo
    """The memo for what follows from the spec alone, without what its containers and the pod request: templates whose
    specs do not differ in anything else share it. Where each pod has requests of its own, the rest is known."""
    memo: dict[Any, Any] = field(default_factory=dict)
    own: OwnWords = NO_WORDS
    """What its pods say of themselves, if they are seen as pods of different templates for it (`cluster.own_facts`)."""
    priority: int = field(init=False)
    """A pod without one counts as 0."""

    def __post_init__(self) -> None:
        self.priority = self.spec.priority or 0

    @property
    def requests(self) -> Mapping[str, int]:
        """Return the effective requests in column units, zero ones left out."""
        return self.demand.requests

    @property
    def labels_read(self) -> tuple[str, ...]:
        """Return the keys of node labels that its node selectors and topologies name, each once."""
        known: tuple[str, ...] | None = self.shape.get("labels read")
        if known is None:
            known = self.shape["labels read"] = tuple(dict.fromkeys(_labels_read(self.spec)))
        return known


def _labels_read(spec: objects.PodSpec) -> Iterator[str]:
    yield from spec.node_selector or ()
    for constraint in spec.topology_spread_constraints or ():
        yield constraint.topology_key
    affinity = spec.affinity or objects.Affinity()
    if (of_nodes := affinity.node_affinity) is not None:
        terms = list((of_nodes.required and of_nodes.required.node_selector_terms) or ())
        terms += [each.preference for each in of_nodes.preferred or () if each.preference is not None]
        yield from (each.key for term in terms for each in term.match_expressions or ())
    for of_pods in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if of_pods is not None:
            yield from (each.topology_key for each in of_pods.required or ())
            weighted = (each.pod_affinity_term for each in of_pods.preferred or ())
            yield from (each.topology_key for each in weighted if each is not None)


class PodInfo(msgspec.Struct, eq=False, gc=False):
    """One pod. Compared by identity; a newer state of the same pod is another object with the same `uid`.

    There may be a million: the garbage collector does not look at them, as nothing that they hold leads back to them.
    """

    uid: str
    namespace: str
    name: str
    template: PodTemplate
    node_name: str
    """Where it is bound, "" while it is not."""
    nominated_node: str
    created: float
    """Unix seconds of its creation."""
    started: float | None
    """Unix seconds of `status.startTime`."""
    ready: bool
    """Whether its condition Ready is True."""
    all_started: bool
    """Whether each of its containers has started, or has ended."""
    terminating: bool
    terminal: bool
    """Succeeded or Failed: it holds nothing any more."""
    resource_version: str
    generation: int
    demand: PodRequests
    """What it counts for on its node; differs from the template's after an in-place resize."""
    volumes: tuple[objects.Volume, ...]
    """Volumes that storage rules look at."""
    annotations: Mapping[str, str]
    conditions: tuple[objects.PodCondition, ...]
    claim_names: Mapping[str, str | None]
    """Names of ResourceClaims that were made of templates, by the pod's own name for them; None: none was needed."""
    local_volumes: tuple[str, ...] = ()
    """Names of the volumes whose data is lost with the node: `emptyDir` on disk, and `hostPath`."""
    restarts: int = 0
    """How often its containers were restarted, all together, without init containers that end."""

    @property
    def size(self) -> int:
        """Return about how many bytes it takes in memory, those of the template included."""
        return self.template.size + self.own_size

    @property
    def own_size(self) -> int:
        """Return about how many bytes it takes in memory besides its template."""
        size = 0
        if self.annotations:
            size += sum([len(key) + len(value) + 2 * _ITEM_BYTES for key, value in self.annotations.items()])
        if self.local_volumes:
            size += sum([len(name) + _ITEM_BYTES for name in self.local_volumes])
        if self.volumes:
            size += _memory(msgspec.msgpack.encode(self.volumes))
        return size

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the pod's labels."""
        return self.template.labels

    @property
    def priority(self) -> int:
        """Return the pod's priority; absent counts as 0."""
        return self.template.priority

    @property
    def scheduler_name(self) -> str:
        """Return the scheduler that the pod names."""
        return self.template.spec.scheduler_name


class AlikePods(msgspec.Struct):
    """Pods of a list, and what they have in common."""

    pods: list[PodInfo]
    kinds: list[int]
    """By pod: its place in `examples`."""
    examples: list[PodInfo]
    """Pods that others are like in all but name, uid, resource version, node and times."""


class Templates:
    """The set of templates in use: equal ones are one object, unused ones go."""

    def __init__(self, rules: KubernetesRules = DEFAULT_RULES) -> None:
        """Begin empty. rules: what pods count for on their nodes."""
        self._rules = rules
        self._by_key: WeakValueDictionary[bytes, PodTemplate] = WeakValueDictionary()
        self._recent: KeptView[bytes, PodTemplate] = KeptView(
            KeptBytes(_RECENT_BYTES), most=_RECENT_TEMPLATES, size_of=lambda key, template: template.size
        )
        self._long_unused: set[bytes] = set()
        """The keys of those that were without pods when it was last looked for such."""
        self._by_controller: WeakValueDictionary[_Kin, PodTemplate] = WeakValueDictionary()
        """The template of the last pod of each controller, "" for pods without: most of its pods are alike. With their
        binding they get the zone and region of their node as labels, and are alike by these."""
        self._shapes: WeakValueDictionary[bytes, SharedMemo] = WeakValueDictionary()
        self._encoder = msgspec.msgpack.Encoder()

    def __len__(self) -> int:
        return len(self._by_key)

    def pod(self, pod: objects.Pod | objects.ListedPod) -> PodInfo:
        """Return the pod as it is kept, with its template shared."""
        return self._made(pod) if isinstance(pod, objects.Pod) else self._alike(pod)

    def pods(self, pods: objects.ListedPods, nodes: Sequence[str]) -> AlikePods:
        """Return the pods as `pod` does each. nodes: the names of their nodes, interned.

        Raises:
            ValueError: one of them cannot be used.
        """
        likes, names, uids, versions, _, created, started, restarts = pods.columns()
        number_of = dict(zip(dict.fromkeys(likes), count()))
        examples = [self._derived(like) for like in number_of]
        kinds, copies = list(map(number_of.__getitem__, likes)), [example.__copy__ for example in examples]
        found: list[PodInfo] = [copies[kind]() for kind in kinds]
        for info, name, uid, version, node, made, began, again in zip(
            found, names, uids, versions, nodes, created, started, restarts, strict=True
        ):
            info.name, info.uid, info.resource_version = name, uid, version
            info.node_name, info.created, info.started, info.restarts = node, made or 0.0, began, again
        return AlikePods(found, kinds, examples)

    def _derived(self, like: objects.PodLikeness) -> Any:
        """Return the pod that others are like, as it is kept."""
        if like.derived is None or like.derived[0] is not self:
            like.derived = self, self._made(like.pod)
        return like.derived[1]

    def _alike(self, pod: objects.ListedPod) -> PodInfo:
        """Return what `_made` would of the whole pod."""
        found: PodInfo = self._derived(pod.like).__copy__()  # `copy.copy` takes three times as long
        found.uid = pod.uid
        found.name = pod.name
        found.node_name = intern(pod.node_name)
        found.created = pod.created or 0.0
        found.started = pod.started
        found.restarts = pod.restarts
        found.resource_version = pod.resource_version
        return found

    def _made(self, pod: objects.Pod) -> PodInfo:
        meta, spec, status = pod.metadata, pod.spec, pod.status
        template = self._template(meta, spec)
        demand = template.demand
        if template.spec.resources is not None:  # else scoring counts the same on a node
            if _EXISTING not in template.memo:
                unresized = objects.Pod(metadata=objects.ObjectMeta(), spec=template.spec)
                template.memo[_EXISTING] = existing(unresized, self._rules)
            demand = template.memo[_EXISTING]
        volumes: list[objects.Volume] = []
        local_volumes: list[str] = []
        for volume in spec.volumes or ():
            if volume != objects.Volume(name=volume.name):  # most are those that every pod has, which name no source
                if _has_claim_source(volume):
                    volumes.append(volume)
                if is_local(volume):
                    local_volumes.append(volume.name)
        annotations = meta.annotations
        if annotations and _LAST_APPLIED in annotations:
            annotations = {k: v for k, v in annotations.items() if k != _LAST_APPLIED}
        ready = False
        conditions: list[objects.PodCondition] = []
        for condition in status.conditions or ():
            kind = condition.type
            if kind == "Ready":
                ready = ready or condition.status == "True"
            elif kind in _READ_CONDITIONS and (kind != "PodScheduled" or condition.status != "True"):
                conditions.append(condition)  # but for what all bound pods have
        if _may_differ(pod, conditions):
            demand = existing(pod, self._rules)
        has_run = status.container_statuses or status.init_container_statuses
        # in the order of the fields: their names would take a quarter of what a pod takes
        return PodInfo(
            meta.uid,
            template.namespace,
            meta.name,
            template,
            intern(spec.node_name),
            status.nominated_node_name,
            unix_seconds(meta.creation_timestamp) or 0.0,
            unix_seconds(status.start_time) if status.start_time else None,
            ready,
            _all_started(status.container_statuses) if status.container_statuses else False,
            meta.deletion_timestamp is not None,
            status.phase in ("Succeeded", "Failed"),
            meta.resource_version,
            meta.generation,
            demand,
            tuple(volumes),
            _shared(annotations, template) if annotations else _NOTHING,
            tuple(conditions),
            (
                {one.name: one.resource_claim_name for one in status.resource_claim_statuses}
                if status.resource_claim_statuses
                else _NOTHING
            ),
            tuple(local_volumes),
            objects.restarts_of(pod) if has_run else 0,
        )

    def _template(self, meta: objects.ObjectMeta, spec: objects.PodSpec) -> PodTemplate:
        controller = None
        for owner in meta.owner_references or ():
            if owner.controller:
                controller = owner
                break
        volumes = [volume for volume in spec.volumes if volume.image] if spec.volumes else None
        made_by = controller.uid if controller is not None else ""
        labels = meta.labels or _NOTHING
        kin = made_by, labels.get(_ZONE), labels.get(_REGION)
        known = self._by_controller.get(kin)
        if known is not None and not volumes and _is_of(known, meta, spec, controller):
            return known
        common = spec
        if spec.node_name or spec.volumes is not None:
            common = msgspec.structs.replace(spec, node_name="", volumes=volumes or None)
        content = (meta.namespace, meta.labels, controller, common)
        try:
            key = self._encoder.encode(content)
        except OverflowError:  # a quantity that is written as a number beyond 64 bits; it counts as the largest
            key = repr(content).encode()
        encoded = key
        if len(encoded) > _LONG_KEY:
            key = blake2b(encoded).digest()
        template = self._by_key.get(key)
        if template is None:
            size = _memory(encoded)
            pending = self._by_controller.get((made_by, None, None))
            if pending is not None and pending.spec == common:  # bound pods are compared with pending ones
                common, demand, shape = pending.spec, pending.demand, pending.shape
            else:
                demand, shape = incoming(common), self._shape(common)
            template = PodTemplate(meta.namespace, meta.labels or {}, common, controller, demand, size, shape)
            self._by_key[key] = template
        if self._recent.get(key) is None:
            self._recent.set(key, template)
        self._long_unused.discard(key)
        self._by_controller[kin] = template
        return template

    def forget_long_unused(self, in_use: Container[PodTemplate]) -> None:
        """Keep templates alive no longer that had no pods when this was called last, and have none now.

        in_use: the templates that have pods.
        """
        unused = {key for key, template in self._recent.items() if template not in in_use}
        for key in self._long_unused & unused:
            self._recent.pop(key)
        self._long_unused = unused - self._long_unused

    def _shape(self, spec: objects.PodSpec) -> SharedMemo:
        kinds = spec.containers or (), spec.init_containers or ()
        containers = [
            [(c.name, c.image, c.ports, c.restart_policy, c.restart_policy_rules, _mount_options(c)) for c in kind]
            for kind in kinds
        ]
        rest = msgspec.structs.replace(spec, containers=None, init_containers=None, overhead=None, resources=None)
        key = self._encoder.encode((rest, containers))
        if len(key) > _LONG_KEY:
            key = blake2b(key).digest()
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = SharedMemo()
        return shape


def _mount_options(container: objects.Container) -> list[list[str]]:
    """Return the options of the volume mounts of a container that have some."""
    return [mount.bind_mount_options for mount in container.volume_mounts or () if mount.bind_mount_options]


def _shared(annotations: dict[str, str], template: PodTemplate) -> dict[str, str]:
    """Return the same annotations as an object that pods of the template share, where the last one had the same."""
    last: dict[str, str] | None = template.memo.get("annotations")
    if last == annotations:
        return last
    template.memo["annotations"] = annotations
    return annotations


def _is_of(
    template: PodTemplate, meta: objects.ObjectMeta, spec: objects.PodSpec, controller: objects.OwnerReference | None
) -> bool:
    """Return whether a pod, which has no volumes of images, is of a template: the same as by its encoding, faster."""
    if (
        meta.namespace != template.namespace
        or (meta.labels or _NOTHING) != template.labels
        or controller != template.controller
        or template.spec.volumes
    ):
        return False
    node_name, volumes = spec.node_name, spec.volumes
    spec.node_name, spec.volumes = "", template.spec.volumes
    try:
        return spec == template.spec
    finally:
        spec.node_name, spec.volumes = node_name, volumes


def _memory(encoded: bytes) -> int:
    """Return about how many bytes an object takes in memory: a tenant can write 50,000 items of one byte each."""
    return len(encoded) + _ITEM_BYTES * len(encoded.translate(None, _TEXT))


def _may_differ(pod: objects.Pod, conditions: list[objects.PodCondition]) -> bool:
    """Return whether the status names resources other than the spec's, as after an in-place resize.

    conditions: those of the pod that are read.
    """
    status = pod.status
    if status.resources is not None or status.allocated_resources is not None:
        return True
    if conditions and is_resize_infeasible(conditions):
        return True
    if not status.container_statuses and not status.init_container_statuses:
        return False
    reported = [each for each in status.container_statuses or () if each.resources or each.allocated_resources]
    if status.init_container_statuses:
        reported += [each for each in status.init_container_statuses if each.resources or each.allocated_resources]
    if not reported:
        return False
    requests = {
        c.name: c.resources.requests if c.resources else None
        for c in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    }
    for current in reported:
        wanted = requests.get(current.name) or {}
        if current.resources is not None and (current.resources.requests or {}) != wanted:
            return True
        if current.allocated_resources and current.allocated_resources != wanted:
            return True
    return False


def _all_started(statuses: list[objects.ContainerStatus] | None) -> bool:
    """Return whether each container passed its startup probe, or ended; one that crashed and waits has done neither."""
    for each in statuses or ():
        if not each.started and not _has_ended(each):
            return False
    return bool(statuses)


def _has_ended(status: objects.ContainerStatus) -> bool:
    return status.state is not None and status.state.terminated is not None


def is_local(volume: objects.Volume) -> bool:
    """Return whether the data of a volume is lost with the node."""
    on_disk = volume.empty_dir is not None and volume.empty_dir.medium != "Memory"
    return on_disk or volume.host_path is not None


def _has_claim_source(volume: objects.Volume) -> bool:
    """Return whether storage rules look at a volume."""
    return any(getattr(volume, source) is not None for source in _CLAIM_SOURCES)

"""Reads the queues of Kueue, YuniKorn, Volcano and KAI, and ElasticQuotas. Knows what each of their fields means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.codes import WRONG_VALUE
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError, parse_documents
from kube_policy_scheduler.tooling.importing.queue_forest import (
    Fields,
    ForeignQueue,
    Forest,
    Selection,
    Step,
    checked_label,
    checked_name,
    policy_text,
    repair,
)

KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
VOLCANO_LABEL = "volcano.sh/queue-name"
KAI_LABEL = "kai.scheduler/queue"
YUNIKORN_LABEL = "queue"
KOORDINATOR = "quota.scheduling.koordinator.sh/"
ROOT = "cluster"
"""The queue above those that have no other, so that they lend to each other."""
UNLIMITED = -1
MB = 1_000_000
_COMMON = ("apiVersion", "kind", "metadata", "status")

Things = list[tuple[str, str, Fields]]
"""Group of the API, kind, fields."""


@dataclass(frozen=True, slots=True)
class ImportedQueues:
    """The queues of another scheduler as one policy."""

    text: str
    notes: tuple[str, ...]


def has_queues(documents: Sequence[Document]) -> bool:
    """Return whether there is an object that `import_queues` reads."""
    return any(_reader(group, kind) is not None for group, kind, _ in _things(documents, []))


def import_queues(documents: Sequence[Document]) -> ImportedQueues:
    """Return one policy with the queues of all documents.

    Raises:
        DocumentError: they cannot be used: a wrong value, a circle, too many queues, or queues of two schedulers.
    """
    forest = Forest()
    things = _things(documents, forest.notes)
    readers = {reader: fields for group, kind, fields in things if (reader := _reader(group, kind)) is not None}
    if len(readers) > 1:
        names = ", ".join(_NAMES[reader] for reader in readers)
        list(readers.values())[1].fail((), f"the input has queues of several schedulers ({names}); import each alone")
    (reader,) = readers
    for group, kind, fields in things:
        if _reader(group, kind) is None:
            fields.note("the object is not converted: this program does not know its kind")
    reader([(group, kind, fields) for group, kind, fields in things if _reader(group, kind) is not None], forest)
    if not forest.queues:
        things[0][2].fail((), "there is no queue in the input")
    forest.require_tree(things[0][2])
    repair(forest)
    return ImportedQueues(
        policy_text(forest, of=_NAMES[reader]), tuple(" ".join(note.split()) for note in forest.notes)
    )


def _things(documents: Sequence[Document], notes: list[str]) -> Things:
    """Return all objects: those of lists, and the configuration in YuniKorn's ConfigMap, too."""
    found: Things = []
    for document in documents:
        value = document.value
        if not isinstance(value, Mapping):
            continue
        items = value.get("items")
        if value.get("kind") == "List" and isinstance(items, list):
            for index, item in enumerate(items):
                if isinstance(item, Mapping):
                    found.append(_thing(document, item, ("items", index), notes))
            continue
        data = value.get("data")
        if value.get("kind") == "ConfigMap" and isinstance(data, Mapping) and isinstance(data.get("queues.yaml"), str):
            inner = parse_documents(Source(f"{document.span().source.name} (queues.yaml)", data["queues.yaml"]))
            found.extend(_things(inner, notes))
            continue
        found.append(_thing(document, value, (), notes))
    return found


def _thing(
    document: Document, value: Mapping[str, Any], path: tuple[Step, ...], notes: list[str]
) -> tuple[str, str, Fields]:
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind is None and isinstance(value.get("partitions"), list):
        return "yunikorn", "queues.yaml", Fields(document, value, path, "queues.yaml", notes)
    title = f"{kind} {name}" if isinstance(name, str) else str(kind)
    return str(version).partition("/")[0], str(kind), Fields(document, value, path, title[:120], notes)


# --- Kueue ---------------------------------------------------------------------------------------------


def _kueue(things: Things, forest: Forest) -> None:
    """KKEP-79: a cohort's quota is what its members have, and its own beside it."""
    cohort_parents: dict[str, str] = {}
    own: dict[str, Fields] = {}
    members: list[tuple[str, Fields]] = []
    pods: dict[str, list[Selection]] = {}
    flavors: dict[str, Fields] = {}
    for _, kind, fields in things:
        name = checked_name(fields, fields.get("metadata", "name"))
        if kind == "LocalQueue":
            namespace = checked_label(fields, fields.get("metadata", "namespace", default="default"), "metadata")
            of = checked_name(fields, fields.get("spec", "clusterQueue"))
            pods.setdefault(of, []).append(Selection(KUEUE_LABEL, checked_label(fields, name, "metadata"), namespace))
            fields.lost("spec", "fairSharing", why="only ClusterQueues have weights here")
            fields.lost("spec", "stopPolicy", why="write `hold if …`")
            fields.unread(*_COMMON)
        elif kind == "ResourceFlavor":
            flavors[name] = fields
            for key, why in (
                ("nodeLabels", "write `filter label …` for the pods of the flavor"),
                ("nodeTaints", "taints of nodes apply as they are"),
                ("tolerations", "add them to the pods"),
                ("topologyName", "write `gang … within one …`"),
            ):
                fields.lost("spec", key, why=why)
            fields.unread(*_COMMON)
        elif kind == "Cohort":
            own[name] = fields
            cohort_parents[name] = fields.text("spec", "parentName") or fields.text("spec", "parent")
        else:
            cohort = fields.text("spec", "cohortName") or fields.text("spec", "cohort")
            members.append((cohort, fields))
            if cohort:
                cohort_parents.setdefault(checked_name(fields, cohort), "")
    for parent in list(cohort_parents.values()):
        if parent:
            cohort_parents.setdefault(parent, "")
    called = {checked_name(fields, fields.get("metadata", "name")) for _, fields in members}
    cohort_names = {cohort: f"cohort-{cohort}" if cohort in called else cohort for cohort in cohort_parents}
    for cohort, parent in cohort_parents.items():
        fields = own.get(cohort) or members[0][1]
        queue = ForeignQueue(checked_name(fields, cohort_names[cohort]), cohort_names.get(parent, ""))
        forest.add(fields, queue)
        if cohort in own:
            _kueue_quotas(own[cohort], queue, borrows=bool(parent))
            own[cohort].unread(*_COMMON)
    reclaimers: list[str] = []
    for cohort, fields in members:
        name = checked_name(fields, fields.get("metadata", "name"))
        queue = ForeignQueue(name, cohort_names.get(cohort, ""), pods.pop(name, []))
        if not queue.pods:
            queue.pods = [Selection(KUEUE_LABEL, checked_label(fields, name, "metadata", "name"))]
            fields.note(f"no LocalQueue names it; its pods are those with the label {KUEUE_LABEL}={name}")
        forest.add(fields, queue)
        _kueue_quotas(fields, queue, borrows=bool(cohort))
        if _kueue_preemption(fields):
            reclaimers.append(name)
        fields.get("spec", "namespaceSelector", default={})
        if fields.get("spec", "namespaceSelector", default={}):
            fields.lost("spec", "namespaceSelector", why="the namespaces are those of the LocalQueues")
        if fields.text("spec", "queueingStrategy", default="BestEffortFIFO") != "BestEffortFIFO":
            fields.note(
                "spec.queueingStrategy StrictFIFO is not converted: pods of the queue do not wait for each other"
            )
        if fields.text("spec", "stopPolicy", default="None") != "None":
            fields.note("spec.stopPolicy is not converted: write `hold if …` for its pods")
        fields.lost("spec", "admissionChecks", why="there are no admission checks here")
        fields.lost("spec", "admissionChecksStrategy", why="there are no admission checks here")
        fields.lost("spec", "flavorFungibility", why="there are no flavors here; the pod gets the best node")
        fields.lost("spec", "admissionScope", why="shares of usage over time are `remember DURATION` at a root")
        fields.unread(*_COMMON)
    for name, selections in pods.items():
        forest.notes.append(
            f"LocalQueue {selections[0].value}: it is not converted, because ClusterQueue {name} is not in the input"
        )
    _kueue_roots(forest)
    if pods or members:
        forest.notes.append(f"pods need the label {KUEUE_LABEL} themselves; Kueue reads it of the Job")
    if reclaimers:
        forest.reclaim = "reclaim"
        if len(reclaimers) < len(members):
            rest = sorted(called - set(reclaimers))
            forest.notes.append(
                f"reclaimWithinCohort is Never for {', '.join(rest[:10])}, but `reclaim` holds for all queues; write"
                " `reclaim if …` to leave pods out"
            )


def _kueue_quotas(fields: Fields, queue: ForeignQueue, *, borrows: bool) -> None:
    """Sum the quotas over all flavors."""
    limits: dict[str, int] = {}
    unlimited: set[str] = set()
    lends: dict[str, int] = {}
    lends_all: set[str] = set()
    names: dict[str, set[str]] = {}
    for at, group in enumerate(fields.items("spec", "resourceGroups")):
        path: tuple[Step, ...] = ("spec", "resourceGroups", at)
        part = fields.child(group, *path)
        part.get("coveredResources")
        for number, flavor in enumerate(part.items("flavors")):
            one = part.child(flavor, "flavors", number)
            flavor_name = one.text("name", default="default")
            for index, written in enumerate(one.items("resources")):
                quota = one.child(written, "resources", index)
                resource = quota.text("name")
                nominal = quota.quantity(resource, quota.get("nominalQuota", default=0), "nominalQuota")
                names.setdefault(resource, set()).add(flavor_name)
                queue.minimum[resource] = queue.minimum.get(resource, 0) + nominal
                borrowing, lending = quota.get("borrowingLimit"), quota.get("lendingLimit")
                if borrowing is None:
                    unlimited.add(resource)
                else:
                    limits[resource] = limits.get(resource, 0) + quota.quantity(resource, borrowing, "borrowingLimit")
                if lending is None:
                    lends_all.add(resource)
                lends[resource] = lends.get(resource, 0) + (
                    nominal if lending is None else quota.quantity(resource, lending, "lendingLimit")
                )
                quota.unread()
            one.unread()
        part.unread()
    for resource in queue.minimum:
        if not borrows:
            queue.maximum[resource] = queue.minimum[resource]
        elif resource not in unlimited:
            queue.maximum[resource] = queue.minimum[resource] + limits.get(resource, 0)
        if resource not in lends_all or lends[resource] < queue.minimum[resource]:
            queue.lend[resource] = lends[resource]
        if len(names[resource]) > 1:
            fields.note(
                f"the quotas of {resource} in the flavors {', '.join(sorted(names[resource])[:5])} are added up; write"
                " a `limit … if …` for each kind of node"
            )
    if (weight := fields.number("spec", "fairSharing", "weight")) == 0:
        fields.note("spec.fairSharing.weight 0 is not converted: a weight is above 0")
    queue.weight = weight or 1.0


def _kueue_preemption(fields: Fields) -> bool:
    """Return whether the queue reclaims what others borrow."""
    reclaims = fields.text("spec", "preemption", "reclaimWithinCohort", default="Never")
    if reclaims not in ("Never", "Any"):
        fields.note(
            f"spec.preemption.reclaimWithinCohort {reclaims} is not converted: pods of any priority are reclaimed"
        )
    within = fields.text("spec", "preemption", "withinClusterQueue", default="Never")
    if within == "Never":
        fields.note(
            "spec.preemption.withinClusterQueue Never is not converted: Kubernetes' preemption by priority goes on"
        )
    elif within != "LowerPriority":
        fields.note(
            f"spec.preemption.withinClusterQueue {within} is not converted: only pods of lower priority are evicted"
        )
    if fields.text("spec", "preemption", "borrowWithinCohort", "policy", default="Never") != "Never":
        fields.note(
            "spec.preemption.borrowWithinCohort is not converted: without `reclaim fair`, pods of higher priority may"
            " evict what other queues borrow"
        )
    fields.get("spec", "preemption", "borrowWithinCohort", "maxPriorityThreshold")
    return reclaims != "Never"


def _kueue_roots(forest: Forest) -> None:
    """A cohort lends what its members have, so that is the most of it; its own quota is beside theirs."""
    children = forest.children()
    order = list(children.get("", ()))
    seen = {queue.name for queue in order}
    for queue in order:  # grows
        for child in children.get(queue.name, ()):
            if child.name not in seen:
                seen.add(child.name)
                order.append(child)
    for queue in reversed(order):
        below = children.get(queue.name, ())
        if not below:
            continue
        limits = {name: most - queue.minimum.get(name, 0) for name, most in queue.maximum.items()}
        for child in below:
            for resource, least in child.minimum.items():
                queue.minimum[resource] = queue.minimum.get(resource, 0) + least
        if not queue.parent:
            queue.maximum = dict(queue.minimum)
        else:
            queue.maximum = {name: queue.minimum[name] + more for name, more in limits.items()}


# --- YuniKorn ------------------------------------------------------------------------------------------


def _yunikorn(things: Things, forest: Forest) -> None:
    for _, _, fields in things:
        reclaims = False
        for at, written in enumerate(fields.items("partitions")):
            part = fields.child(written, "partitions", at)
            name = part.text("name", default="default")
            if at:
                part.note(f"the partition {name} is not converted: Kubernetes uses only the first")
                continue
            reclaims = part.get("preemption", "enabled", default=True) is not False
            delay = _yunikorn_queues(part, forest)
            for key, why in (
                ("placementrules", "a pod names its queue with the label `queue`; write `queue … by pod.namespace`"),
                ("limits", "limits of users and groups cannot be said"),
                ("nodesortpolicy", "write `score most_allocated(cpu, mem)` or `score least_allocated(cpu, mem)`"),
                ("statedumpfilepath", "it does not bear on scheduling"),
            ):
                part.lost(key, why=why)
            part.unread()
            if reclaims:
                forest.reclaim = f"reclaim after {delay or '30s'}"
        forest.notes.append(
            "pods need the label `queue` with the whole path; YuniKorn also reads an annotation and rules"
        )
        fields.unread()


def _yunikorn_queues(part: Fields, forest: Forest) -> str:
    """Add all queues of a partition; return the preemption delay that one of them sets, or ""."""
    delays: list[str] = []
    stack = [(part.child(each, "queues", at), "") for at, each in enumerate(part.items("queues"))]
    if len(stack) != 1 or stack[0][0].text("name") != "root":
        stack = [(fields, "root") for fields, _ in stack]
        forest.add(part, ForeignQueue("root", takes_all=True))
    while stack:
        fields, parent = stack.pop(0)
        short = fields.text("name")
        name = f"{parent}.{short}" if parent else short
        fields.title = f"queue {name[:120]}"
        checked_name(fields, name)
        queue = ForeignQueue(name, parent, takes_all=not parent)
        if parent:
            queue.pods = [Selection(YUNIKORN_LABEL, checked_label(fields, name, "name"))]
        forest.add(fields, queue)
        queue.minimum, queue.maximum = (_yunikorn_amounts(fields, "resources", key) for key in ("guaranteed", "max"))
        properties = fields.mapping("properties")
        for key, value in properties.items():
            fields.get("properties", key)
            if key == "preemption.delay":
                delays.append(str(value))
            elif key == "application.sort.policy" and value == "fair":
                continue
            else:
                fields.note(f"properties.{key} is not converted: it cannot be said of a queue")
        for key, why in (
            ("maxapplications", "write `limit count() by pod.label.queue to …`"),
            ("limits", "limits of users and groups cannot be said"),
            ("submitacl", "use RBAC"),
            ("adminacl", "use RBAC"),
            ("childtemplate", "write `queue … by KEY` for queues that come and go"),
        ):
            fields.lost(key, why=why)
        fields.get("parent")
        below = [(fields.child(each, "queues", at), name) for at, each in enumerate(fields.items("queues"))]
        stack[:0] = below
        fields.unread()
    delays = sorted(set(delays))
    if len(delays) > 1:
        forest.notes.append(f"preemption.delay differs ({', '.join(delays[:5])}); `reclaim` has the first")
    delay = delays[0] if delays else ""
    if delay and not _is_duration(delay):
        part.note(f"preemption.delay {delay[:40]} is not converted: it is not a whole number of s, m or h")
        return ""
    return delay.replace("m", "min") if delay.endswith("m") else delay


def _is_duration(text: str) -> bool:
    return text[-1:] in ("s", "m", "h") and text[:-1].isdecimal() and len(text) < 10


def _yunikorn_amounts(fields: Fields, *steps: Step) -> dict[str, int]:
    """YuniKorn calls cpu `vcore`; a number of it without a unit is whole cores."""
    found = {}
    for name, written in fields.mapping(*steps).items():
        resource = {"vcore": "cpu"}.get(str(name), str(name))
        found[resource] = fields.quantity(resource, written, *steps, name)
    return found


# --- KAI -----------------------------------------------------------------------------------------------


def _kai(things: Things, forest: Forest) -> None:
    """Cpu in millicores, memory in megabytes; -1 is without a limit."""
    root = ForeignQueue(ROOT, takes_all=True)
    forest.add(things[0][2], root)
    names = {fields.get("metadata", "name") for _, _, fields in things}
    for _, _, fields in things:
        name = checked_name(fields, fields.get("metadata", "name"))
        parent = fields.text("spec", "parentQueue") or ROOT
        if parent not in names and parent != ROOT:
            fields.fail(("spec", "parentQueue"), f"its parent `{parent[:60]}` is not in the input")
        queue = ForeignQueue(name, parent, [Selection(KAI_LABEL, checked_label(fields, name, "metadata", "name"))])
        forest.add(fields, queue)
        weights = {}
        for ours, theirs, scale in (("cpu", "cpu", 1), ("memory", "memory", MB), ("nvidia.com/gpu", "gpu", 1)):
            if not fields.mapping("spec", "resources").get(theirs):
                continue
            part = fields.child(fields.get("spec", "resources", theirs), "spec", "resources", theirs)
            quota, limit = (_kai_amount(part, key, scale) for key in ("quota", "limit"))
            if quota is None:
                part.note(f"resources.{theirs}.quota -1 is not converted: a guarantee without end cannot be said")
            elif quota:
                queue.minimum[ours] = quota
            if limit is not None:
                queue.maximum[ours] = limit
            weights[theirs] = part.number("overQuotaWeight")
            part.unread()
        queue.weight = weights.get("gpu", next(iter(weights.values()), 1.0)) or 1.0
        if len(set(weights.values())) > 1:
            fields.note(f"overQuotaWeight differs between resources; the queue has {queue.weight:g} for all")
        if 0 in weights.values():
            fields.note(
                "overQuotaWeight 0 is not converted: a weight is above 0; a `max` keeps the queue within its quota"
            )
        fields.get("spec", "displayName")
        fields.lost("spec", "priority", why="shares decide between queues, and priorities of pods within one")
        fields.lost("spec", "preemptMinRuntime", why="write `preempt if … evict where victim.running > …`")
        fields.lost("spec", "reclaimMinRuntime", why="write `reclaim rest …`, which does not delay a guarantee")
        fields.unread(*_COMMON)
    forest.reclaim = "reclaim fair"


def _kai_amount(part: Fields, key: str, scale: int) -> int | None:
    """Return an amount in column units; None: without a limit. A quota that is absent is 0."""
    written = part.get(key)
    if written is None:
        return 0 if key == "quota" else None
    if written == UNLIMITED:
        return None
    value = part.number(key)
    if value != int(value):
        part.note(f"{key} {value:g} is rounded up: shares of a GPU are a resource of their own here")
    return -int(-value // 1) * scale


# --- Volcano -------------------------------------------------------------------------------------------


def _volcano(things: Things, forest: Forest) -> None:
    """guarantee is never lent, deserved is lent and reclaimed, capability is the most."""
    names = {fields.get("metadata", "name") for _, _, fields in things}
    root = "root" if "root" in names else ROOT
    if root == ROOT:
        forest.add(things[0][2], ForeignQueue(ROOT, takes_all=True))
    for _, _, fields in things:
        name = checked_name(fields, fields.get("metadata", "name"))
        parent = fields.text("spec", "parent") or "root"
        queue = ForeignQueue(name, "" if name == "root" else root if parent == "root" else parent)
        queue.takes_all = not queue.parent
        if queue.parent:
            queue.pods = [Selection(VOLCANO_LABEL, checked_label(fields, name, "metadata", "name"))]
        if queue.parent and queue.parent not in names and queue.parent != root:
            fields.fail(("spec", "parent"), f"its parent `{parent[:60]}` is not in the input")
        forest.add(fields, queue)
        kept = fields.amounts("spec", "guarantee", "resource")
        deserved = fields.amounts("spec", "deserved")
        queue.maximum = fields.amounts("spec", "capability")
        for resource, least in kept.items():
            if deserved.get(resource, least) < least:
                fields.note(f"its guarantee of {resource} is above what it deserves; the guarantee counts")
        queue.minimum = {each: max(deserved.get(each, 0), kept.get(each, 0)) for each in {**deserved, **kept}}
        queue.lend = {each: queue.minimum[each] - least for each, least in kept.items()}
        if (weight := fields.number("spec", "weight")) == 0:
            fields.note("spec.weight 0 is not converted: a weight is above 0")
        queue.weight = weight or 1.0
        if fields.get("spec", "reclaimable", default=True) is False:
            fields.note("spec.reclaimable false is not converted: write `reclaim evict where …` to spare its pods")
        fields.lost("spec", "type", why="there is one kind of queue")
        fields.lost("spec", "priority", why="shares decide between queues, and priorities of pods within one")
        fields.lost("spec", "affinity", why="write `filter label …` for its pods")
        fields.lost("spec", "dequeueStrategy", why="pods of the queue do not wait for each other")
        fields.lost("spec", "extendClusters", why="there is one cluster")
        fields.unread(*_COMMON)
    forest.reclaim = "reclaim"
    forest.notes.append(f"pods need the label {VOLCANO_LABEL}; Volcano also reads the queue of a Job or a PodGroup")


# --- ElasticQuota --------------------------------------------------------------------------------------


def _elastic_quota(things: Things, forest: Forest) -> None:
    """scheduler-plugins has one for each namespace, Koordinator trees by labels of the quotas."""
    is_koordinator = any(_is_of_koordinator(fields) for _, _, fields in things)
    forest.add(things[0][2], root := ForeignQueue(ROOT, takes_all=True))
    named = {fields.get("metadata", "name") for _, _, fields in things}
    for _, _, fields in things:
        name = checked_name(fields, fields.get("metadata", "name"))
        namespace = checked_label(
            fields, fields.get("metadata", "namespace", default="default"), "metadata", "namespace"
        )
        labels, notes = fields.mapping("metadata", "labels"), fields.mapping("metadata", "annotations")
        parent = labels.get(f"{KOORDINATOR}parent") or ROOT
        if parent == "koordinator-root-quota":
            parent = ROOT
        if parent not in named and parent != ROOT:
            fields.fail(("metadata", "labels"), f"its parent `{str(parent)[:60]}` is not in the input")
        own = name if is_koordinator or name not in forest.queues else f"{namespace}.{name}"
        queue = ForeignQueue(checked_name(fields, own), str(parent))
        if is_koordinator:
            value = checked_label(fields, name, "metadata", "name")
            queue.pods = [Selection(f"{KOORDINATOR}name", value)]
        else:
            queue.pods = [Selection(namespace=namespace)]
        forest.add(fields, queue)
        queue.minimum, queue.maximum = fields.amounts("spec", "min"), fields.amounts("spec", "max")
        if str(labels.get(f"{KOORDINATOR}allow-lent-resource", "true")) == "false":
            queue.lend = dict.fromkeys(queue.minimum, 0)
        for key in labels:
            if str(key).startswith(KOORDINATOR) and key not in _KOORDINATOR_READ:
                fields.note(f"the label {str(key)[:120]} is not converted: it cannot be said of a queue")
        for key in notes:
            if str(key).startswith(KOORDINATOR):
                fields.note(f"the annotation {str(key)[:120]} is not converted: write `weight N`, or `lend …`")
        fields.unread(*_COMMON)
    forest.reclaim = "reclaim"
    if not is_koordinator:
        for queue in forest.queues.values():
            for resource, least in queue.minimum.items() if queue is not root else ():
                root.maximum[resource] = root.maximum.get(resource, 0) + least
    else:
        forest.notes.append(f"pods need the label {KOORDINATOR}name; Koordinator also goes by namespaces")


_KOORDINATOR_READ = {f"{KOORDINATOR}{key}" for key in ("parent", "is-parent", "allow-lent-resource", "name")}


def _is_of_koordinator(fields: Fields) -> bool:
    return any(str(key).startswith(KOORDINATOR) for key in fields.mapping("metadata", "labels"))


# --- which is which ------------------------------------------------------------------------------------

_Reader = Callable[[Things, Forest], None]
_READERS: tuple[tuple[str, frozenset[str], _Reader], ...] = (
    ("kueue.x-k8s.io", frozenset({"ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor"}), _kueue),
    ("yunikorn", frozenset({"queues.yaml"}), _yunikorn),
    ("scheduling.run.ai", frozenset({"Queue"}), _kai),
    ("scheduling.volcano.sh", frozenset({"Queue"}), _volcano),
    ("scheduling.x-k8s.io", frozenset({"ElasticQuota"}), _elastic_quota),
    ("scheduling.sigs.k8s.io", frozenset({"ElasticQuota"}), _elastic_quota),
)
_NAMES: Mapping[_Reader, str] = {
    _kueue: "Kueue's ClusterQueues",
    _yunikorn: "YuniKorn's queues",
    _kai: "KAI's Queues",
    _volcano: "Volcano's Queues",
    _elastic_quota: "ElasticQuotas",
}


def _reader(group: str, kind: str) -> _Reader | None:
    return next((reader for known, kinds, reader in _READERS if known == group and kind in kinds), None)


def wrong_kind(documents: Sequence[Document]) -> DocumentError:
    """Return the error for documents that hold nothing to convert."""
    message = (
        "expected a KubeSchedulerConfiguration, or queues: ClusterQueue, Cohort and LocalQueue of Kueue, queues.yaml of"
        " YuniKorn, Queue of Volcano or KAI, ElasticQuota"
    )
    return DocumentError([documents[0].error((), WRONG_VALUE, message=message)])

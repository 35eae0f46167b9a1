"""Conformance cases: a recorded cluster and pod, decided here, held against what kube-scheduler said.

So is a recorded binding with its clusters, against what Karmada's scheduler said (`fleet_conformance`).

A case is a line `{"case": {...}, "family": str, "want": {...}}`. `want` may be partial, as in cases made from
unit-test tables: what it does not name is not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.object_store import key_of, object_key
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.steps import now
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.devices.extended_resources import CLAIM_NAME
from kube_policy_scheduler.framework.devices.pod_claims import ClaimProblem, find_claims
from kube_policy_scheduler.framework.evaluate.evaluation import Evaluation
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugins.dynamic_resources import DynamicResources
from kube_policy_scheduler.framework.preempt.preemption import DefaultPreemption, Preemption, RejectedPod
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.reserve.claim_reservation import (
    ClaimWrite,
    ReservedClaim,
    allocated_on,
    reserve,
    undo,
    waits_for_binding_conditions,
    writes,
)
from kube_policy_scheduler.framework.status import Code, Status
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules, KubernetesVersion, VersionError
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, Rules
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling import fleet_conformance
from kube_policy_scheduler.tooling.cluster_state import without_nulls
from kube_policy_scheduler.tooling.differences import Difference, differences

Json: TypeAlias = dict[str, Any]

NOW = 4_102_444_800.0
"""When cases are decided, in unix seconds: 2100, after everything in them."""
KINDS: Mapping[str, type] = {
    "namespaces": objects.Namespace,
    "services": objects.Service,
    "replicationControllers": objects.ReplicationController,
    "replicaSets": objects.ReplicaSet,
    "statefulSets": objects.StatefulSet,
    "persistentVolumeClaims": objects.PersistentVolumeClaim,
    "persistentVolumes": objects.PersistentVolume,
    "storageClasses": objects.StorageClass,
    "csiNodes": objects.CSINode,
    "csiDrivers": objects.CSIDriver,
    "csiStorageCapacities": objects.CSIStorageCapacity,
    "volumeAttachments": objects.VolumeAttachment,
    "priorityClasses": objects.PriorityClass,
    "podDisruptionBudgets": objects.PodDisruptionBudget,
    "podGroups": objects.PodGroup,
    "compositePodGroups": objects.CompositePodGroup,
    "deviceClasses": objects.DeviceClass,
    "resourceSlices": objects.ResourceSlice,
    "deviceTaintRules": objects.DeviceTaintRule,
    "resourceClaims": objects.ResourceClaim,
}
"""The lists of a case beside nodes and pods, and what they hold."""


RECORDED = KubernetesRules(KubernetesVersion(36, 2))
"""Of lines that do not say a version: the first cases are of Kubernetes 1.36.2."""


class CaseError(ValueError):
    """A line is not a conformance case."""


@dataclass(frozen=True, slots=True)
class Case:
    """One recorded decision."""

    id: str
    family: str
    content: Json
    want: Json
    rules: KubernetesRules = RECORDED
    """Of the Kubernetes that decided it."""

    @property
    def plugin(self) -> str | None:
        """Return the only plugin that the case is about, None for a whole decision."""
        plugin: str | None = self.want.get("plugin")
        return plugin


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case decided and compared."""

    id: str
    family: str
    differences: tuple[Difference, ...]
    recorded: str = "kube-scheduler"
    """Who decided it when it was recorded."""


@dataclass(slots=True)
class FamilyReport:
    """All cases of one family."""

    cases: int = 0
    agreements: int = 0
    first_differences: list[CaseResult] = field(default_factory=list)
    """The first few cases that disagree."""


def parse_case(line: Mapping[str, Any], position: int, rules: KubernetesRules | None = None) -> Case:
    """Return a decoded line as a case.

    Args:
        line: the JSON object.
        position: the line's number, which names cases without an id.
        rules: by which Kubernetes the case is to be decided; None: by the one that it says in `kubernetes`.

    Raises:
        CaseError: the line has another form.
    """
    if fleet_conformance.is_case(line):
        name = str(line.get("name") or f"line-{position}")
        return Case(name, fleet_conformance.family(name), dict(line), line["want"])
    content, want = line.get("case"), line.get("want")
    if not isinstance(content, dict) or not isinstance(want, dict):
        raise CaseError(f"line {position} is not a conformance case: expected objects `case` and `want`")
    if not isinstance(content.get("pod"), dict):
        raise CaseError(f"line {position} has no pod to schedule: expected an object `case.pod`")
    name = content.get("id") or line.get("test") or f"line-{position}"
    if rules is None and "kubernetes" in line:
        try:
            rules = KubernetesRules.parse(str(line["kubernetes"]))
        except VersionError as error:
            raise CaseError(f"line {position}, `kubernetes`: {error}") from error
    rules = rules or RECORDED
    if "resourceClaims" in content and Feature.STORAGE_CAPACITY_SCORING in rules:
        # cases of devices were recorded without this score, which is 0 without volumes
        rules = KubernetesRules(rules.version, {**rules.switched, Feature.STORAGE_CAPACITY_SCORING.entry.name: False})
    return Case(str(name), str(line.get("family") or "unnamed"), content, want, rules)


# --- deciding -------------------------------------------------------------------------------------------


def load(content: Mapping[str, Any], rules: KubernetesRules = RECORDED) -> tuple[Cluster, PodInfo]:
    """Return the cluster of a case and the pod to schedule.

    rules: of the Kubernetes that decided it.

    Raises:
        CaseError: an object does not have the shape of its kind.
    """
    cluster = Cluster(rules)
    for key, kind in KINDS.items():
        for thing in content.get(key) or ():
            cluster.set_object(_convert(thing, kind, key))
    for claim in content.get("inFlightClaims") or ():
        cluster.resource_claims.start_allocation(_convert(claim, objects.ResourceClaim, "inFlightClaims"))
    for node in content.get("nodes") or ():
        cluster.set_node(_convert(node, objects.Node, "nodes"))
    for number, item in enumerate(content.get("pods") or ()):
        pod = cluster.templates.pod(_pod(item, f"case-pod-{number}"))
        if pod.terminal:
            continue
        if pod.node_name:
            cluster.place(pod, pod.node_name)
        elif pod.nominated_node:
            cluster.nominate(pod, pod.nominated_node)
    return cluster, cluster.templates.pod(_pod(content["pod"], "case-incoming"))


def _pod(item: Any, fallback_uid: str) -> objects.Pod:
    pod: objects.Pod = _convert(item, objects.Pod, "pods")
    if not pod.metadata.uid:
        pod.metadata.uid = fallback_uid
    return pod


def _convert(item: Any, kind: type, where: str) -> Any:
    try:
        return msgspec.convert(without_nulls(item), kind)
    except msgspec.ValidationError as error:
        raise CaseError(f"{where}: {error}") from error


def decide(case: Case, profile: Profile | None = None) -> Json:
    """Return what is decided about a case, in the form of `want`."""
    cluster, pod = load(case.content, case.rules)
    chosen = profile or kubernetes_profile()
    inputs = DecisionInputs(pod, cluster, Rules(chosen), now=NOW)
    frame, evaluation = inputs.frame(), inputs.evaluate()
    preemption = None
    if not len(evaluation.feasible) and not evaluation.diagnosis.errors:
        rejection = RejectedPod(frame, chosen, evaluation.pre_filtered, evaluation.diagnosis)
        preemption = now(DefaultPreemption(every_node=True).post_filter(rejection))
    got = verdict(frame, evaluation, preemption)
    if "resourceClaims" in case.content:
        got |= claim_verdict(frame, evaluation, preemption, got["hosts"])
    return got


def verdict(frame: Frame, evaluation: Evaluation, preemption: Preemption | None) -> Json:
    """Return a decision in the form of `want`."""
    names = frame.cluster.nodes.names
    feasible = [names[row] for row in evaluation.feasible]
    totals = evaluation.totals
    scores = {
        name: {
            **{plugin: _whole(values[i]) for plugin, values in evaluation.scores.items()},
            "total": _whole(totals[i]),
        }
        for i, name in enumerate(feasible)
    }
    message = None
    if preemption is not None:
        message = evaluation.diagnosis.message(preemption.message)
    return {
        "prefilter": _prefilter(evaluation),
        "filters": {name: _status(status) for name, status in zip(names, evaluation.diagnosis.statuses(), strict=True)},
        "scores": scores,
        "hosts": sorted(name for i, name in enumerate(feasible) if totals[i] == totals.max()),
        "preemption": None if preemption is None else _preemption(preemption),
        "message": message,
    }


def claim_verdict(frame: Frame, evaluation: Evaluation, preemption: Preemption | None, hosts: Sequence[str]) -> Json:
    """Return what was decided about the pod's claims, in the form of `want`."""
    active = [(p, state) for p, state in evaluation.pre_filtered.active if isinstance(p, DynamicResources)]
    passed = np.flatnonzero(evaluation.diagnosis.first < 0) if evaluation.pre_filtered.rejection is None else ()
    allocated: Json = {frame.cluster.nodes.infos[row].name: [] for row in passed}
    written = {"host": hosts[0], "calls": [], "waits": False} if hosts else None
    if not frame.template.spec.resource_claims:
        written = None
    for plugin, state in active:
        for row in passed:
            name = frame.cluster.nodes.infos[row].name
            allocated[name] = [_allocated(one) for one in allocated_on(plugin, frame, state, int(row))]
        if hosts:
            reservation = reserve(plugin, frame, state, frame.cluster.nodes.rows[hosts[0]], share_id="")
            calls = [
                _call(one)
                for one in writes(
                    reservation, timestamp="*", extended_name=f"{frame.pod.name}-extended-resources-xxxxx"
                )
            ]
            undo(reservation, frame.cluster)
            if calls or frame.template.spec.resource_claims:
                waits = waits_for_binding_conditions(reservation)
                written = {"host": hosts[0], "calls": calls, "waits": waits}
                if reservation.failure:
                    text = f'running PreBind plugin "{plugin.name}": {reservation.failure}'
                    written |= {"error": text, "waits": False}
    claims = preemption.claims if preemption is not None else None
    deallocate = None
    if claims is not None and (claims.one_of or claims.delete):
        deallocate = {
            "oneOf": sorted({object_key(claim.metadata) for claim in claims.one_of}),
            "delete": sorted({object_key(claim.metadata) for claim in claims.delete}),
        }
    return {
        "preEnqueue": _pre_enqueue(frame),
        "error": list(evaluation.diagnosis.errors) or None,
        "allocations": allocated,
        "writes": written,
        "deallocate": deallocate,
    }


_MOST_USERS = 20
"""Consumers of a claim that a case lists; of more only the last one."""


def _pre_enqueue(frame: Frame) -> Json | None:
    try:
        find_claims(frame.pod, frame.cluster)
    except ClaimProblem as problem:
        return _status(Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, DynamicResources.name, (str(problem),)))
    return None


def _allocated(one: ReservedClaim) -> Json:
    made = one.claim.metadata.name == CLAIM_NAME
    found: Json = {
        "claim": CLAIM_NAME if made else object_key(one.claim.metadata),
        "allocation": _masked(msgspec.to_builtins(one.allocation)),
    }
    if made:
        found["requests"] = msgspec.to_builtins(one.claim.spec.devices.requests) or None
    return found


def _masked(allocation: Json) -> Json:
    """Hide what kube-scheduler draws by lot or takes from the clock."""
    if "allocationTimestamp" in allocation:
        allocation["allocationTimestamp"] = "*"
    for result in allocation.get("devices", {}).get("results", ()):
        if "shareID" in result:
            result["shareID"] = "*"
    return allocation


def _call(write: ClaimWrite) -> Json:
    found: Json = {"verb": write.verb, "resource": write.resource}
    if write.subresource:
        found["subresource"] = write.subresource
    if write.verb != "create":
        found["name"] = key_of(write.namespace, write.name)
    if write.verb == "create":
        found["object"] = {**write.body, "status": {}}
    elif write.verb == "patch":
        found |= {"patch": write.body, "type": "application/strategic-merge-patch+json"}
    elif write.subresource:
        status = dict(write.body["status"])
        status["allocation"] = _masked(status["allocation"])
        users = status.get("reservedFor", ())
        if len(users) > _MOST_USERS:
            status |= {"reservedForCount": len(users), "reservedFor": users[-1:]}
        found["status"] = status
    else:
        found["finalizers"] = write.body["metadata"]["finalizers"]
    return found


def _whole(value: np.number[Any]) -> int | float:
    number = float(value)
    return int(number) if number.is_integer() else number


def _status(status: Status) -> Json:
    return {"code": status.code.value, "plugin": status.plugin, "reasons": list(status.reasons)}


def _prefilter(evaluation: Evaluation) -> Json:
    prepared = evaluation.pre_filtered
    if prepared.rejection is not None:
        return {**_status(prepared.rejection), "nodeNames": None}
    names = None if prepared.nodes is None else sorted(prepared.nodes)
    return {"code": "Success", "plugin": "", "reasons": [], "nodeNames": names}


def _preemption(preemption: Preemption) -> Json:
    return {
        "nominatedNode": preemption.nominated_node,
        "victims": [pod.key for pod in preemption.victims],
        "message": preemption.message,
        "ties": list(preemption.ties),
        "candidates": {
            name: {"victims": [pod.key for pod in victims.pods], "pdbViolations": victims.violations}
            for name, victims in preemption.candidates.items()
        },
    }


# --- comparing ------------------------------------------------------------------------------------------


def check(case: Case, profile: Profile | None = None) -> CaseResult:
    """Decide a case and compare.

    A case about one plugin asserts what that plugin says, whichever other rejects a node first: what the whole
    profile answers otherwise, the plugin alone is asked as well, and agreement of either counts.

    Raises:
        CaseError: the case holds something that is no API object.
    """
    if fleet_conformance.is_case(case.content):
        try:
            found = fleet_conformance.compare(case.content)
        except fleet_conformance.FleetCaseError as error:
            raise CaseError(str(error)) from error
        return CaseResult(case.id, case.family, tuple(found), recorded="Karmada")
    wanted = {**case.want, "writes": without_nulls(case.want["writes"])} if "writes" in case.want else case.want
    found = differences(wanted, decide(case, profile))
    if found and case.plugin is not None:
        alone = _alone(case.plugin, profile or kubernetes_profile())
        if alone.filters or alone.scores:
            still = {d.path for d in differences(case.want, _decide_alone(case, alone))}
            found = [d for d in found if d.path in still]
    return CaseResult(case.id, case.family, tuple(found))


def check_by_policies(case: Case, policies: PolicySet) -> CaseResult:
    """Decide a case by the policy that serves the scheduler of its pod, and compare.

    A policy may say with clauses of its own what a plugin scores in kube-scheduler; then only the total is compared.

    Raises:
        CaseError: the case holds something that is no API object.
    """
    if fleet_conformance.is_case(case.content):
        raise CaseError("a binding is decided by its Placement, not by a profile of kube-scheduler")
    _, pod = load(case.content)
    policy = policies.governing(pod)
    if policy is None:
        wanted, got = (
            f"a profile for schedulerName {pod.scheduler_name}",
            f"only {', '.join(sorted(policies.schedulers))}",
        )
        return CaseResult(case.id, case.family, (Difference("case", wanted, got),))
    family = f"{pod.scheduler_name}: {case.family}" if len(policies.policies) > 1 else case.family
    known = {weighted.plugin.name for weighted in policy.profile.scores} | {"total"}
    scores = {
        node: {name: value for name, value in by_plugin.items() if name in known}
        for node, by_plugin in (case.want.get("scores") or {}).items()
    }
    result = check(replace(case, family=family, want={**case.want, "scores": scores}), policy.profile)
    return CaseResult(case.id, family, result.differences)


def _alone(plugin: str, whole: Profile) -> Profile:
    return Profile(
        plugin,
        tuple(p for p in whole.filters if p.name == plugin),
        tuple(w for w in whole.scores if w.plugin.name == plugin),
    )


def _decide_alone(case: Case, alone: Profile) -> Json:
    """Return what one plugin decides; where it skips at PreFilter the code says so, as its unit tests do."""
    got = decide(case, alone)
    if alone.filters:
        cluster, pod = load(case.content, case.rules)
        inputs = DecisionInputs(pod, cluster, Rules(alone), now=NOW)
        if not inputs.probe(alone.filters[0]).applies:
            got["prefilter"]["code"] = Code.SKIP.value
    return got


def report(results: Iterable[CaseResult], *, keep: int = 3) -> dict[str, FamilyReport]:
    """Return results by family, in the order in which families first come; `keep` disagreements each."""
    families: dict[str, FamilyReport] = {}
    for result in results:
        family = families.setdefault(result.family, FamilyReport())
        family.cases += 1
        if not result.differences:
            family.agreements += 1
        elif len(family.first_differences) < keep:
            family.first_differences.append(result)
    return families

"""Whether policies of workloads, a fleet and its metrics fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan

from kube_policy_scheduler.cluster.prices import PRICE_KEY, prices
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.fleet.columns import PROVIDER_KEY, REGION_KEY, ZONE_KEY, FleetColumns
from kube_policy_scheduler.fleet.model import FleetCluster, Workload
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.tooling.doctor.examine import key_findings
from kube_policy_scheduler.tooling.doctor.findings import Finding, Status
from kube_policy_scheduler.tooling.fleet_state import FleetState
from kube_policy_scheduler.tooling.policy_reads import KeyRead, first_reads, key_reads
from kube_policy_scheduler.wording import part_of, plural, some


@dataclass(frozen=True)
class FleetInspection:
    """What is examined."""

    state: FleetState
    policies: FleetPolicies
    signals: Signals = Signals.EMPTY
    failures: Mapping[str, str] = field(default_factory=dict)
    """By query: why it has no value."""
    measured: bool = False
    """Whether there are metrics at all."""
    unread: tuple[str, ...] = ()
    """What of the control plane could not be read, as sentences."""


def examine_fleet(inspection: FleetInspection) -> tuple[Finding, ...]:
    """Return everything that was found, and what could not be looked at."""
    return (
        *_cluster_findings(inspection),
        *_workload_findings(inspection),
        *_label_findings(inspection),
        *_field_findings(inspection),
        *_metric_findings(inspection),
        *(Finding("fleet", "control plane", Status.UNCHECKED, text) for text in inspection.unread),
    )


def _cluster_findings(inspection: FleetInspection) -> Iterator[Finding]:
    """Look at what each cluster says: without it, Karmada's filters reject the cluster, or it has no room."""
    clusters = inspection.state.fleet.clusters
    if not clusters:
        yield Finding("clusters", "fleet", Status.PROBLEM, "it has no clusters", advice="join one: `karmadactl join`")
        return
    lacking: tuple[tuple[Status, str, Callable[[FleetCluster], bool], str], ...] = (
        (
            Status.PROBLEM,
            "no resource summary: they have no room",
            lambda each: not each.summarized,
            "look at the status of the Cluster, and at karmada-controller-manager or karmada-agent",
        ),
        (
            Status.PROBLEM,
            "no list of APIs: the filter APIEnablement rejects them for new workloads",
            lambda each: not each.apis,
            "look at the status of the Cluster: its condition CompleteAPIEnablements says why",
        ),
        (Status.WARNING, "not ready", lambda each: not each.ready, "look at the condition Ready of the Cluster"),
    )
    is_fine = True
    for status, text, lacks, advice in lacking:
        found = [each.name for each in clusters if lacks(each)]
        if found:
            is_fine = False
            yield Finding("clusters", some(found), status, text, advice=advice)
    if is_fine:
        yield Finding("clusters", "fleet", Status.OK, f"{plural(len(clusters), 'cluster')}, all ready")


def _workload_findings(inspection: FleetInspection) -> Iterator[Finding]:
    """Look at which policies govern which workloads, and where these run."""
    decided = [each.workload for each in inspection.state.bound if each.is_decided]
    counts = dict.fromkeys((policy.name for policy in inspection.policies.policies), 0)
    without: list[str] = []
    for workload in decided:
        policy = inspection.policies.governing(workload)
        if policy is not None:
            counts[policy.name] += 1
        else:
            without.append(_named(workload))
    for name, count in counts.items():
        status = Status.OK if count else Status.WARNING if decided else Status.UNCHECKED
        text = f"governs {part_of(count, len(decided), 'workload')}"
        advice = "" if count or not decided else "compare its `for workloads where` with your workloads"
        yield Finding("workloads", f"policy {name}", status, text, advice=advice)
    if without:
        text = f"{plural(len(without), 'workload')}, for example {some(without)}"
        yield Finding("workloads", "by their Placement alone", Status.OK, text)
    known = {each.name for each in inspection.state.fleet.clusters}
    for name in sorted({name for each in decided for name in each.has} - known):
        users = [_named(each) for each in decided if name in each.has]
        text = f"it is not in the fleet, and {some(users)} {'runs' if len(users) == 1 else 'run'} there"
        yield Finding("workloads", f"cluster {name}", Status.WARNING, text)


def _named(workload: Workload) -> str:
    return f"{workload.namespace}/{workload.name}" if workload.namespace else workload.name


def _label_findings(inspection: FleetInspection) -> Iterator[Finding]:
    """Look at every label and annotation that the policies read."""
    groups: dict[tuple[str, str, str], list[KeyRead]] = {}
    for read in key_reads(inspection.policies.policies):
        if read.key in _PLACES:
            continue
        # spreading over a label is over one of clusters, which are the rows as nodes are elsewhere
        subject = "cluster" if read.subject in ("node", "cluster") else "workload"
        groups.setdefault((subject, read.what, read.key), []).append(read)
    for (subject, what, key), reads in groups.items():
        things = _things(inspection, subject, what)
        if things:
            yield from key_findings(key, reads, things)
        else:
            text = "the fleet has no clusters" if subject == "cluster" else "of no workload the template was read"
            yield Finding(f"{what}s", f"{subject} {what} {key}", Status.UNCHECKED, text, str(reads[0].span))


def _things(inspection: FleetInspection, subject: str, what: str) -> dict[str, Mapping[str, str]]:
    """Return the labels, or annotations, of clusters or of templates that were read, by name."""
    if subject == "cluster":
        clusters = inspection.state.fleet.clusters
        return {each.name: each.labels if what == "label" else each.annotations for each in clusters}
    found: dict[str, Mapping[str, str]] = {}
    for each in inspection.state.workloads:
        texts = each.labels if what == "label" else each.annotations
        if texts is not None and inspection.policies.governing(each) is not None:
            found[f"{each.kind} {_named(each)}"] = texts
    return found


_SAID: Mapping[str, Callable[[FleetCluster], bool]] = {
    "cluster.provider": lambda each: bool(each.provider),
    "cluster.region": lambda each: bool(each.region),
    "cluster.zone": lambda each: bool(each.zones),
    "cluster.zones": lambda each: bool(each.zones),
}
"""Fields of the specification that a cluster may leave out: whether it says them."""


_PLACES: Mapping[str, str] = {
    PROVIDER_KEY: "cluster.provider",
    REGION_KEY: "cluster.region",
    ZONE_KEY: "cluster.zone",
}
"""What clauses are `over`, as the fields that say it."""

_WRITTEN_AS: Mapping[str, str] = {"cluster.price": f"the annotation {PRICE_KEY}", "cluster.zone": "`spec.zones`"}
"""Fields that the object does not call so."""


def _field_findings(inspection: FleetInspection) -> Iterator[Finding]:
    """Say how many clusters have what the policies read of their specification, and a price."""
    clusters = inspection.state.fleet.clusters
    columns = FleetColumns(clusters)
    costs = dict(zip(columns.rows, prices(columns.cluster.nodes).tolist(), strict=True))

    def is_priced(each: FleetCluster) -> bool:
        return not isnan(costs[each.name])

    policies = inspection.policies.policies
    over = {_PLACES[each.key]: each.span for each in key_reads(policies) if each.key in _PLACES}
    for path, span in (over | dict(first_reads(policies, (*_SAID, "cluster.price")))).items():
        says = _SAID.get(path, is_priced)
        without = [each.name for each in clusters if not says(each)]
        having = len(clusters) - len(without)
        text = f"stated by {part_of(having, len(clusters), 'cluster')}" + (
            f"; not by {some(without)}" if without else ""
        )
        status = Status.OK if having else Status.WARNING if clusters else Status.UNCHECKED
        wanted = _WRITTEN_AS.get(path, f"`spec.{path.partition('.')[2]}`")
        advice = f"give Clusters {wanted}, or remove the clause" if status is Status.WARNING else ""
        yield Finding("fields", path, status, text, str(span), advice)


def _metric_findings(inspection: FleetInspection) -> Iterator[Finding]:
    """Say which metrics have a value."""
    for query in inspection.policies.queries:
        if not inspection.measured:
            advice = "use --prometheus-url or --metrics"
            yield Finding("metrics", query.promql, Status.UNCHECKED, "no metrics were given", advice=advice)
        elif inspection.signals.reading(query) is None:
            why = inspection.failures.get(query.promql, "it has no value")
            yield Finding("metrics", query.promql, Status.PROBLEM, why)
        else:
            yield Finding("metrics", query.promql, Status.OK, "it has a value")

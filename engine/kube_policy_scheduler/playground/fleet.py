"""A workload and the clusters of a fleet, as the page shows them: what is written, and what is decided. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kube_policy_scheduler.cluster.signals import Query, Signals
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.yaml_document import Document, parse_document
from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import FleetCluster, Workload
from kube_policy_scheduler.fleet.running import ONE
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.times import rfc3339
from kube_policy_scheduler.tooling.short_forms import Json
from kube_policy_scheduler.tooling.tester.suite_file import as_text
from kube_policy_scheduler.tooling.tester.written_fleet import FleetText, read_fleet_text
from kube_policy_scheduler.tooling.text_table import Terminal
from kube_policy_scheduler.tooling.why.scores import amount_text
from kube_policy_scheduler.tooling.why.workloads import WhyWorkload, data, explain_workload, lines

_SHOWN = ("cpu", "memory", "pods")
_COLUMN_UNITS = {"cpu": 1000, "memory": 1, "pods": 1}
"""Of one core, byte or pod, as `amount_text` takes them."""
_MOST_PODS = 1_000_000
"""From so many pods on, a cluster counts as one that says nothing of them."""


class FleetQuestion:
    """The clusters and the workload that are written, ready to be asked about."""

    def __init__(self, source: Source, *, now: float) -> None:
        """Read them.

        Args:
            source: YAML with the keys `clusters`, `workload`, `workloads`, `metrics` and `now` of test files.
            now: Unix seconds of the decision, unless the text says it.

        Raises:
            DocumentError: it cannot be read; every problem has its place.
        """
        self.document: Document = parse_document(source)
        self._read: FleetText = read_fleet_text(self.document, now=now)

    @property
    def workload(self) -> Workload:
        """Return the workload that is asked about."""
        return self._read.written.workload

    def signals(self, queries: Sequence[Query]) -> Signals | None:
        """Return what queries answer by the text; None if it says nothing of metrics."""
        return self._read.signals(queries)

    def why(self, policies: FleetPolicies, signals: Signals) -> WhyWorkload:
        """Return what is decided, as `policyctl why` says it."""
        written = self._read.written
        return explain_workload(written.workload, written.fleet, policies, Given(self._read.now, signals))

    def shown(self, policies: FleetPolicies, signals: Signals) -> dict[str, Any]:
        """Return what is decided, and for each cluster, in the order of the text, what is written and said of it."""
        found = self.why(policies, signals)
        answer = data(found)
        forms: Mapping[str, Json] = {form["name"]: form for form in self.document.value["clusters"]}
        clusters = {cluster.name: cluster for cluster in self._read.written.fleet.clusters}
        said = {row["cluster"]: row for row in answer.pop("verdicts")}
        rows = [
            said[name] | {"facts": _facts(form), "ready": clusters[name].ready, "free": _free(clusters[name])}
            for name, form in forms.items()
            if name in said
        ]
        return answer | {
            "workload": _fields(self.document.value["workload"]),
            "rows": rows,
            "text": "\n".join(lines(found, to=Terminal())),
            "clauses": list(_notes(found, policies)),
        }

    def test(self, policies: FleetPolicies, signals: Signals) -> Json:
        """Return a test file that repeats the decision, but for `policy`."""
        value: Json = self.document.value
        outcome = self.why(policies, signals).outcome
        expect: Json = {"clusters": dict(outcome.targets)} if outcome.placed else {"schedulable": False}
        kept: Json = {key: value[key] for key in ("clusters", "workloads", "metrics") if key in value}
        name = "it goes to these clusters" if outcome.placed else "it goes nowhere"
        case = {"name": name, "workload": value["workload"], "expect": expect}
        return {"now": rfc3339(self._read.now), **kept, "cases": [case]}


def _fields(form: Json) -> dict[str, str]:
    """Return what is written of the workload, as texts to edit."""
    fields = {key: as_text(form.get(key, "")) for key in ("kind", "namespace", "name", "replicas", "cpu", "mem")}
    return fields | {"labels": _labels(form)}


def _labels(form: Json) -> str:
    return ", ".join(f"{key}={value}" for key, value in form.get("labels", {}).items())


def _facts(form: Json) -> dict[str, str | None]:
    """Return what is written of a cluster, as texts to edit; None: it is a list, which a cell does not hold."""
    facts = {key: as_text(form.get(key, "")) for key in ("region", "provider", "price", "cpu", "mem", "pods")}
    zones = form.get("zones")
    return facts | {"zone": None if zones is not None else form.get("zone", ""), "labels": _labels(form)}


def _free(cluster: FleetCluster) -> dict[str, str]:
    """Return what is allocatable and not requested, by resource."""
    found = {}
    for resource in _SHOWN:
        there, free = cluster.allocatable.get(resource), cluster.free(resource)
        if there is None or free is None or (resource == "pods" and there >= _MOST_PODS * ONE):
            continue
        unit = _COLUMN_UNITS[resource]
        left, whole = (amount_text(resource, amount * unit // ONE) for amount in (free, there))
        found[resource] = f"{left} of {whole}"
    return found


def _notes(found: WhyWorkload, policies: FleetPolicies) -> Iterator[dict[str, Any]]:
    """Yield for each filter, and whatever else rejects clusters, how many: of a cluster, the first that rejects counts.

    Karmada's own filters have no line.
    """
    governing = policies.governing(found.workload)
    counts = Counter(each.rejected_by for each in found.outcome.verdicts.values())
    clauses = governing.clauses if governing is not None else ()
    for clause in clauses:
        rejects = counts.pop(clause.name, 0)
        if not rejects and clause.kind is not ClauseKind.FILTER:
            continue
        yield {
            "file": clause.span.source.name,
            "line": clause.span.source.position(clause.span.start)[0],
            "kind": "filter",
            "rejects": rejects,
            "note": f"rejects {rejects:,}" if rejects else "rejects none",
        }
    for name in sorted(filter(None, counts)):
        rejects = counts[name]
        yield {
            "file": None,
            "line": None,
            "kind": "rule",
            "text": name,
            "rejects": rejects,
            "note": f"rejects {rejects:,}",
        }

"""Whether the estimators of a fleet answer, and whether what they say can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kube_policy_scheduler.fleet.model import FleetCluster
from kube_policy_scheduler.fleet.placement.room import replicas_of
from kube_policy_scheduler.quantities.quantity import NANO
from kube_policy_scheduler.times import date_and_time
from kube_policy_scheduler.tooling.doctor.findings import Finding, Status
from kube_policy_scheduler.wording import plural, some

SLOW_SHARE = 0.5
"""Of the timeout."""
_IN_VAIN = "look at `fleet.estimators.address`, the Service in the cluster, and the certificates of both sides"
SOON_SECONDS = 30 * 86_400.0
"""A certificate that ends within this time is to be renewed."""
CAPACITY = "capacity"
"""The source of an estimator that tries replicas out, as ours does."""


@dataclass(frozen=True, slots=True)
class EstimatorAnswer:
    """How the estimator of a cluster answered."""

    cluster: str
    problem: str
    """Why it gave no answer; "" if it did."""
    seconds: float
    room: int
    """Of pods of one core; -1: it has no opinion."""
    source: str
    version: str
    """Of the server; "" if it does not say it."""
    expires: float | None
    """When its certificate ends, Unix seconds; None if it has none."""


def estimator_findings(
    answers: Sequence[EstimatorAnswer],
    clusters: Mapping[str, FleetCluster],
    *,
    timeout: float,
    version: str,
    now: float,
) -> Iterator[Finding]:
    """Look at each answer; clusters with the same finding are named together.

    Args:
        answers: one for each cluster.
        clusters: by name.
        timeout: seconds that an estimator has.
        version: of this program.
        now: Unix seconds.
    """
    told: dict[tuple[Status, str, str], list[str]] = {}
    failed: dict[str, list[EstimatorAnswer]] = {}
    for answer in answers:
        if answer.problem:
            failed.setdefault(answer.problem.partition(":")[0], []).append(answer)
    for alike in failed.values():
        text = f"no answer: {alike[0].problem}; room follows from the status of the cluster"
        told[Status.PROBLEM, text, _IN_VAIN] = [each.cluster for each in alike]
    for answer in answers:
        for status, text, advice in _about(answer, clusters.get(answer.cluster), timeout, version, now):
            told.setdefault((status, text, advice), []).append(answer.cluster)
    for (status, text, advice), names in told.items():
        yield Finding("estimators", some(names), status, text, advice=advice)
    fine = {answer.cluster for answer in answers} - {name for names in told.values() for name in names}
    if fine:
        text = f"{plural(len(fine), 'estimator')} {'answers' if len(fine) == 1 else 'answer'}"
        yield Finding("estimators", "fleet", Status.OK, text)


def _about(
    answer: EstimatorAnswer, cluster: FleetCluster | None, timeout: float, version: str, now: float
) -> Iterator[tuple[Status, str, str]]:
    """Yield status, text and advice of what is not as it should be."""
    if answer.problem:
        return
    if answer.room < 0:
        advice = "compare `estimator.clusterName` in the cluster with the name of the Cluster, and look at its /readyz"
        yield Status.WARNING, "no opinion: room follows from the status of the cluster", advice
    elif cluster is not None and cluster.summarized:
        sums, _ = replicas_of({"cpu": 10**NANO})(cluster)
        if answer.room > sums:
            text = "more room than the sums of the status allow: it answers for another cluster, or the status is old"
            yield Status.WARNING, text, "compare `kubectl get nodes` of the cluster with `status.resourceSummary`"
    if answer.seconds > SLOW_SHARE * timeout:
        text = f"slow: it takes more than half of the {timeout:g} s that it has"
        yield Status.WARNING, text, "give it more cores, or raise `fleet.estimators.timeout`"
    if answer.source == CAPACITY and answer.version != version:
        said = answer.version or "an older version that does not say which"
        yield Status.WARNING, f"another version: {said}; this is {version}", "update the estimator"
    if answer.expires is not None and answer.expires - now < SOON_SECONDS:
        text = f"its certificate ends {date_and_time(answer.expires)}"
        yield Status.WARNING, text, "renew it; the estimator reads the files again"

"""Whether the decision maker could read the nodes and pods of the clusters of a fleet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_policy_scheduler.fleet.live_answers import MemberAnswer
from kube_policy_scheduler.tooling.doctor.access import Permission
from kube_policy_scheduler.tooling.doctor.findings import Finding, Status
from kube_policy_scheduler.wording import plural, some

SLOW_SECONDS = 2.0
NEEDED_FOR_MEMBERS = (
    Permission("", "secrets", "get", "karmada-cluster", otherwise="the nodes and pods of clusters are not read"),
)
"""What the decision maker asks of the control plane, too, where it reads clusters; see deploy/fleet/members."""
MANIFESTS = "deploy/fleet/members"


def member_findings(
    answers: Sequence[MemberAnswer], *, needed: Sequence[str], asked: Sequence[str]
) -> Iterator[Finding]:
    """Look at each answer; clusters with the same finding are named together.

    Args:
        answers: one for each cluster.
        needed: resources without which a cluster is not read.
        asked: what policies ask of nodes and pods, as it is written; empty: only room is counted.
    """
    lost = "the values of policies are missing there" if asked else "room follows from the status of the cluster"
    told: dict[tuple[Status, str, str], list[str]] = {}

    def tell(status: Status, text: str, advice: str, cluster: str) -> None:
        told.setdefault((status, text, advice), []).append(cluster)

    for answer in answers:
        name = answer.cluster
        if answer.problem:
            tell(
                Status.PROBLEM,
                f"nodes and pods cannot be read: {answer.problem}; {lost}",
                _advice(answer.problem),
                name,
            )
            continue
        refused = sorted(what for what, may in answer.may_list.items() if may is False)
        unknown = next((may for may in answer.may_list.values() if isinstance(may, str)), "")
        fatal = [what for what in refused if what in needed]
        if fatal:
            text = f"its credentials do not allow to list {', '.join(fatal)}; {lost}"
            tell(Status.PROBLEM, text, "let the account of the Secret list them in the cluster", name)
        elif refused:
            text = f"its credentials do not allow to list {', '.join(refused)}: they are taken not to exist"
            tell(Status.WARNING, text, "let the account of the Secret list them in the cluster", name)
        if unknown:
            tell(Status.UNCHECKED, f"what its credentials allow: {unknown}", "", name)
        if not answer.is_verified:
            advice = "set `caBundle` in the Secret, and `spec.insecureSkipTLSVerification: false`"
            tell(Status.WARNING, "the certificate of its API server is not verified", advice, name)
        if answer.seconds > SLOW_SECONDS:
            text = f"slow: one small answer takes more than {SLOW_SECONDS:g} s"
            tell(Status.WARNING, text, "look at its API server, and at the network to it", name)
    for (status, text, advice), names in told.items():
        yield Finding("members", some(names), status, text, advice=advice)
    fine = len(answers) - len({name for names in told.values() for name in names})
    if fine:
        yield Finding("members", "fleet", Status.OK, f"nodes and pods of {plural(fine, 'cluster')} can be read")


def _advice(problem: str) -> str:
    if "secretRef" in problem:
        return "clusters in pull mode have none; use `??` in the policy, or join the cluster in push mode"
    if problem.startswith("403"):
        return f"apply {MANIFESTS} to the Karmada API server"
    return "look at `spec` of the Cluster and at its Secret; the policy needs a value after `??` meanwhile"

"""`policyctl doctor`: whether policies, a cluster and its metrics fit together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli import cluster_sources
from kube_policy_scheduler.cli.given import Given, with_given
from kube_policy_scheduler.cli.owners import owner_options
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import say_json, say_lines, terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kube_policy_scheduler.fleet.model import FleetCluster
    from kube_policy_scheduler.policy.policy_set import PolicySet
    from kube_policy_scheduler.tooling.doctor.access import Access, Permission
    from kube_policy_scheduler.tooling.doctor.extenders import ExtenderAnswer
    from kube_policy_scheduler.tooling.doctor.findings import Finding
    from kube_policy_scheduler.tooling.doctor.unknown_fields import UnknownFields

DEFAULT_NAMESPACE = "policy-scheduler"
PAST_USAGE_LEASE = "policy-scheduler-queues"
MOVES_LEASE = "policy-scheduler-moves"
"""As deploy/ names them."""
EPILOG = """
\b
Examples:
  policyctl doctor --policies policies/ --prometheus-url http://prometheus:9090   # your kubectl context
  policyctl doctor --policies policies/ --cluster now.json.gz --metrics now.metrics.yaml
  policyctl doctor --policies policies/ --cluster now.json.gz --html doctor.html
  policyctl doctor --policies policies/ --config config.yaml                  # its extenders, too
  policyctl doctor --policies policies/fleet/ --karmada --kubeconfig karmada.config    # a live Karmada fleet
  policyctl doctor --policies policies/fleet/ --karmada --config config.yaml           # its estimators, too
  policyctl doctor --policies policies/fleet/ --fleet fleet.json.gz
  policyctl doctor --for ocm --kubeconfig hub.config                                    # a live hub of OCM
  policyctl doctor --policies policies/ --format json | jq '.findings[] | select(.status == "problem")'

\b
Exit codes: 0 no findings; 1 a warning or a problem; 2 the command could not run. The report lists what could not be
checked; with --strict, this counts as a finding.
"""


SECTION = Section.UNDERSTAND


@click.command(epilog=EPILOG)
@click.option(
    "--policies", multiple=True, type=click.Path(path_type=Path), metavar="PATH",
    help="Policies: a file or a folder; may be repeated.",
)  # fmt: skip
@cluster_sources.cluster_options
@click.option(
    "--fleet", "fleets", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="Check policies of workloads against a saved Karmada fleet; may be repeated.",
)  # fmt: skip
@click.option("--karmada", is_flag=True, help="Check them against the live Karmada control plane of the kubeconfig.")
@click.option(
    "--for", "engine", type=click.Choice(["karmada", "multikueue", "ocm", "clusterprofile"]),
    help="Check what a live engine of several clusters serves and allows. `karmada` is the same as --karmada; for the"
        " others, you need no --policies.",
)  # fmt: skip
@cluster_sources.decision_options
@click.option("-q", "--quiet", is_flag=True, help="Show only problems.")
@click.option("--strict", is_flag=True, help="Exit with 1 also if something could not be checked.")
@cluster_sources.output_options
@owner_options
@with_given
def command(
    given: Given,
    fleets: tuple[Path, ...],
    karmada: bool,
    engine: str | None,
    quiet: bool,
    strict: bool,
    form: str,
    html: Path | None,
) -> int:
    """Check policies against a cluster and its metrics.

    The command reports:

    \b
      - labels that no node or pod has, with similar labels
      - metrics that fail, are stale, or match no node
      - trained models whose inputs are unlike those of their training
      - filters that reject every node, and scores without effect
      - policies that govern no pod, and pods that no policy governs
      - queues that contradict the cluster, such as guarantees above what the nodes offer
      - missing permissions, and clocks that differ
      - admission webhooks and policies that can refuse bindings or the status of pods
      - with --config, HTTP extenders that do not answer, or are slow
      - fields of objects that this version does not know
      - with --fleet or --karmada: clusters without status, and what policies read that no cluster or template has
      - with --karmada and --config, estimators that do not answer, or say what cannot be, and their certificates
      - with --karmada, clusters whose nodes and pods cannot be read, if policies or --config ask for them
      - with --karmada or --for, APIs and fields that the engine does not serve, and missing permissions
      - in large clusters, whether compiled kernels are available, and how much memory kept results may take
    """
    from kube_policy_scheduler.tooling.doctor.examine import is_found
    from kube_policy_scheduler.tooling.doctor.findings import Status, data, lines

    ruleset = given.ruleset()
    policy_set = ruleset.policy_set
    if karmada and engine not in (None, "karmada"):
        raise click.UsageError("use one of --karmada and --for")
    if engine is not None and engine != "karmada":
        if given.clusters or fleets:
            raise click.UsageError("use one of --cluster, --fleet and --for")
        examined, found = f"the live {engine}", _examined_engine(given, engine, ())
    elif policy_set is None:
        raise click.UsageError("Missing option '--policies'.")
    elif fleets or karmada or engine == "karmada":
        examined, found = _examined_fleet(given, policy_set, fleets, live=karmada or engine == "karmada")
    else:
        examined, found = _examined_cluster(given, policy_set)
    if form == "json":
        say_json(data(found))
    else:
        say_lines(lines(found, to=terminal(), quiet=quiet))
    if html is not None:
        from kube_policy_scheduler.pages.reports import doctor_page

        measures = given.prometheus_url or given.metrics
        examined = f"{examined} and {f'the metrics of {measures}' if measures else 'no metrics'}"
        texts = {source.name: source.text for source in ruleset.sources}
        cluster_sources.write_page(html, doctor_page(data(found), sources=texts, examined=examined))
    unchecked = strict and any(one.status is Status.UNCHECKED for one in found)
    return 1 if is_found(found) or unchecked else 0


def _examined_cluster(given: Given, policy_set: PolicySet) -> tuple[str, tuple[Finding, ...]]:
    """Return what was examined, and what was found."""
    from kube_policy_scheduler.adapters.compute.compiled_kernels import NODES_FOR_KERNELS, find_numba
    from kube_policy_scheduler.builtins.environment import environment
    from kube_policy_scheduler.tooling.doctor.examine import examine
    from kube_policy_scheduler.tooling.doctor.findings import Inspection
    from kube_policy_scheduler.tooling.doctor.kernels import KernelSupport

    cluster = given.cluster()
    metered = given.measured(policy_set, now=cluster.now)
    answers = _extenders()
    inspection = Inspection(
        cluster.state(),
        policy_set,
        cluster.now,
        metered.signals,
        unanswered=metered.unanswered,
        refused=metered.refused,
        measured=given.metrics is not None or given.prometheus_url is not None,
        live_metrics=given.prometheus_url is not None,
        seed=given.seed,
        counted=environment().pods,
    )
    numba = find_numba()
    found = examine(
        inspection,
        access=None if given.clusters else _access(given, policy_set),
        kernels=KernelSupport(numba.version, numba.problem, NODES_FOR_KERNELS),
        extenders=answers,
        unknown=_unknown_fields(given, cluster),
    )
    return ", ".join(str(path) for path in given.clusters) or "the live cluster", found


def _examined_fleet(
    given: Given, policy_set: PolicySet, fleets: tuple[Path, ...], *, live: bool
) -> tuple[str, tuple[Finding, ...]]:
    """Return what was examined of a fleet, and what was found."""
    from kube_policy_scheduler.cli.fleets import fleet_in, live_fleet
    from kube_policy_scheduler.cluster.signals import Signals
    from kube_policy_scheduler.tooling.doctor.access import access_findings
    from kube_policy_scheduler.tooling.doctor.engines import KARMADA
    from kube_policy_scheduler.tooling.doctor.fleet import FleetInspection, examine_fleet
    from kube_policy_scheduler.tooling.doctor.members import NEEDED_FOR_MEMBERS

    if given.clusters or (live and fleets):
        raise click.UsageError("use one of --cluster, --fleet, --karmada and --for")
    if not policy_set.fleet.policies:
        raise click.ClickException("the policies are about pods: one of workloads begins with `for workloads where …`")
    unread: tuple[str, ...] = ()
    if live:
        fleet, unread = live_fleet(kubeconfig=given.kubeconfig, context=given.context)
    else:
        fleet = fleet_in(fleets, now=given.now)
    queries, failures, signals = policy_set.fleet.queries, dict[str, str](), Signals.EMPTY
    if given.prometheus_url is not None:
        asked = cluster_sources.measured(given.prometheus_url, queries)
        signals, failures = asked.signals, asked.failures
    elif given.metrics is not None:
        signals = given.signals_for(queries, now=fleet.now)
    is_measured = given.metrics is not None or given.prometheus_url is not None
    inspection = FleetInspection(fleet.state, policy_set.fleet, signals, failures, is_measured, unread)
    found = examine_fleet(inspection)
    if not live:
        access = tuple(access_findings(None, manifests=KARMADA.manifests))
        return ", ".join(str(path) for path in fleets), (*found, *access)
    clusters = fleet.state.fleet.clusters
    values = tuple(each.text for each in policy_set.fleet.member_values)
    are_read = bool(values) or _counts_members()
    members = _members(given, clusters, values) if are_read else ()
    estimators = _estimators(clusters, now=fleet.now)
    more = NEEDED_FOR_MEMBERS if are_read else ()
    return "the live fleet", (*found, *_examined_engine(given, "karmada", more), *members, *estimators)


def _counts_members() -> bool:
    """Return whether the configuration of `--config` says to count room in members."""
    from kube_policy_scheduler.cli.owners import config_file
    from kube_policy_scheduler.documents.estimator_settings import read_estimators

    config = config_file()
    asked = read_estimators(config) if config is not None else None
    return asked is not None and asked.members


def _members(given: Given, clusters: Sequence[FleetCluster], asked: Sequence[str]) -> tuple[Finding, ...]:
    """Return what is found about reading the nodes and pods of clusters."""
    import asyncio

    from kube_policy_scheduler.adapters.kube.errors import KubeError
    from kube_policy_scheduler.adapters.kube.member_probe import needed_of_members, probe_members
    from kube_policy_scheduler.adapters.kube.official_client import OfficialClient
    from kube_policy_scheduler.fleet.live_answers import MemberAnswer
    from kube_policy_scheduler.tooling.doctor.findings import Finding, Status
    from kube_policy_scheduler.tooling.doctor.members import member_findings

    where = {"kubeconfig": str(given.kubeconfig) if given.kubeconfig else None, "context": given.context}

    async def look() -> list[MemberAnswer]:
        async with OfficialClient.of(**where) as client:
            return await probe_members(client, [each.name for each in clusters if not each.deleting])

    try:
        answers = asyncio.run(look())
    except KubeError as error:
        return (Finding("members", "fleet", Status.UNCHECKED, str(error)),)
    return tuple(member_findings(answers, needed=needed_of_members(), asked=asked))


def _estimators(clusters: Sequence[FleetCluster], *, now: float) -> tuple[Finding, ...]:
    """Return what is found about the estimators that the configuration of `--config` names."""
    from importlib import metadata

    from kube_policy_scheduler.adapters.grpc.available import require_grpc
    from kube_policy_scheduler.adapters.http.port import ServerError
    from kube_policy_scheduler.adapters.tls.serving_certificate import CertificateError
    from kube_policy_scheduler.cli.owners import config_file
    from kube_policy_scheduler.documents.estimator_settings import read_estimators
    from kube_policy_scheduler.installation import PACKAGE
    from kube_policy_scheduler.tooling.doctor.estimators import EstimatorAnswer, estimator_findings
    from kube_policy_scheduler.tooling.doctor.findings import Finding, Status

    config = config_file()
    asked = read_estimators(config) if config is not None else None
    if asked is None or asked.address is None:
        return ()
    try:
        require_grpc()
        from kube_policy_scheduler.adapters.grpc.estimator_probe import probe

        answers = probe(asked, [each.name for each in clusters])
    except CertificateError as error:
        return (Finding("estimators", "fleet", Status.PROBLEM, str(error), advice="look at `fleet.estimators`"),)
    except ServerError as error:
        return (Finding("estimators", "fleet", Status.UNCHECKED, str(error)),)
    known = {each.name: each for each in clusters}
    told = [EstimatorAnswer(*each) for each in answers]
    return tuple(estimator_findings(told, known, timeout=asked.timeout, version=metadata.version(PACKAGE), now=now))


def _examined_engine(given: Given, engine: str, more: Sequence[Permission]) -> tuple[Finding, ...]:
    """Return what is found about the APIs and permissions of a live engine. more: permissions that are needed, too."""
    import asyncio

    from kube_policy_scheduler.adapters.kube.access import clock_skew, reviews
    from kube_policy_scheduler.adapters.kube.errors import KubeError
    from kube_policy_scheduler.adapters.kube.official_client import OfficialClient
    from kube_policy_scheduler.adapters.kube.served_apis import served_apis
    from kube_policy_scheduler.fleet.live_answers import ServedApi
    from kube_policy_scheduler.tooling.doctor.access import Access, access_findings
    from kube_policy_scheduler.tooling.doctor.engines import ENGINES, engine_findings

    needs = ENGINES[engine]
    where = {"kubeconfig": str(given.kubeconfig) if given.kubeconfig else None, "context": given.context}
    permissions = (*needs.permissions, *more)
    wanted = {(one.group, one.resource, one.verb, one.namespace, one.name): one for one in permissions}

    async def ask() -> tuple[list[ServedApi], Access]:
        async with OfficialClient.of(**where) as client:
            served = await served_apis(client, needs.apis)
            answers = await reviews(wanted, client)
            return served, Access({wanted[key]: answer for key, answer in answers.items()}, await clock_skew(client))

    try:
        served, access = asyncio.run(ask())
    except KubeError as error:
        served = [ServedApi(problem=str(error))] * len(needs.apis)
        access = Access(dict.fromkeys(permissions, str(error)), str(error))
    return (*engine_findings(needs, served), *access_findings(access, manifests=needs.manifests))


_MOST_LOOKED_AT = 500
"""Objects of each kind of a live cluster in which unknown fields are looked for."""


def _unknown_fields(given: Given, cluster: cluster_sources.GivenCluster) -> UnknownFields | None:
    """Return which fields are not known; None where nobody could look."""
    import asyncio

    from kube_policy_scheduler.adapters.kube.errors import KubeError
    from kube_policy_scheduler.adapters.kube.lists import raw_objects
    from kube_policy_scheduler.tooling.doctor.unknown_fields import DECIDING, find_unknown

    if given.clusters:
        return find_unknown(one.value for one in cluster.recorded)
    where = {"kubeconfig": str(given.kubeconfig) if given.kubeconfig else None, "context": given.context}
    try:
        found, are_more = asyncio.run(raw_objects(**where, kinds=DECIDING.keys(), most=_MOST_LOOKED_AT))
    except KubeError:
        return None
    return find_unknown(found, is_sample=are_more)


def _extenders() -> list[ExtenderAnswer]:
    """Return how the extenders in the configuration of `--config` answer."""
    from kube_policy_scheduler.adapters.http.extender_probe import probe
    from kube_policy_scheduler.cli.owners import config_file
    from kube_policy_scheduler.documents.extender_settings import read_extenders
    from kube_policy_scheduler.tooling.doctor.extenders import ExtenderAnswer

    config = config_file()
    asked = probe(read_extenders(config)) if config is not None else ()
    return [ExtenderAnswer(each.settings, each.name, each.problem, each.seconds, each.absent) for each in asked]


def _access(given: Given, policy_set: PolicySet) -> Access:
    import asyncio

    from kube_policy_scheduler.adapters.kube.access import clock_skew, reviews
    from kube_policy_scheduler.adapters.kube.admission_configurations import PLURALS, admission_configurations
    from kube_policy_scheduler.adapters.kube.credentials import own_namespace
    from kube_policy_scheduler.adapters.kube.errors import KubeError
    from kube_policy_scheduler.adapters.kube.official_client import OfficialClient
    from kube_policy_scheduler.tooling.doctor.access import NEEDED, Access, to_keep_past_usage, to_move_pods
    from kube_policy_scheduler.tooling.doctor.admission import AdmissionConfiguration

    needed, rules = NEEDED, policy_set.queues
    if rules is not None and rules.tree.half_life_seconds is not None:
        needed += to_keep_past_usage(own_namespace() or DEFAULT_NAMESPACE, PAST_USAGE_LEASE)
    if any(policy.compiled.rebalances for policy in policy_set.policies):
        needed += to_move_pods(own_namespace() or DEFAULT_NAMESPACE, MOVES_LEASE)
    where = {"kubeconfig": str(given.kubeconfig) if given.kubeconfig else None, "context": given.context}
    wanted = {(one.group, one.resource, one.verb, one.namespace, one.name): one for one in needed}

    async def ask() -> Access:
        async with OfficialClient.of(**where) as client:
            answers = await reviews(wanted, client)
            skew = await clock_skew(client)
            found = await admission_configurations(client)
        admission = found if isinstance(found, str) else AdmissionConfiguration(*(found[each] for each in PLURALS))
        return Access({wanted[key]: answer for key, answer in answers.items()}, skew, admission)

    try:
        return asyncio.run(ask())
    except KubeError as error:
        return Access(dict.fromkeys(needed, str(error)), str(error), str(error))

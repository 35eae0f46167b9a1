"""Where commands get a cluster, metrics and recorded decisions from, and the options that say so."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kube_policy_scheduler.cli import files
from kube_policy_scheduler.cli.kubernetes_option import chosen_rules, kubernetes_option
from kube_policy_scheduler.cli.terminal import format_option, say, status_line

if TYPE_CHECKING:
    from kube_policy_scheduler.cluster import objects
    from kube_policy_scheduler.cluster.pods import PodInfo
    from kube_policy_scheduler.cluster.signals import Query, Signals
    from kube_policy_scheduler.diagnostics import Source
    from kube_policy_scheduler.documents.fixtures import FixtureObject
    from kube_policy_scheduler.kubernetes_rules import KubernetesChoice, KubernetesRules, KubernetesVersion
    from kube_policy_scheduler.policy.policy import Policy
    from kube_policy_scheduler.policy.policy_set import PolicySet
    from kube_policy_scheduler.tooling.cluster_state import ClusterState
    from kube_policy_scheduler.tooling.cost import PriceSources
    from kube_policy_scheduler.tooling.decision_record import DecisionRecord


DEFAULT_SCHEDULER = "default-scheduler"
_OWN_RULES = "  [default: Kubernetes' own rules]"
_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


class Moment(click.ParamType):  # type: ignore[type-arg]  # older clicks know no arguments
    """A time: RFC 3339, or Unix seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return Unix seconds."""
        from kube_policy_scheduler.times import unix_seconds

        try:
            seconds: float | None = float(value)
        except ValueError:
            seconds = unix_seconds(value)
        if seconds is None or not 0 <= seconds < _LAST_MOMENT:
            self.fail(
                f"{value!r} is not a time: expected for example 2026-11-21T10:00:00Z, or Unix seconds", param, ctx
            )
        return seconds


_CREATE = "create it with `kubectl get nodes,pods -A -o yaml` or `policyctl snapshot`"
_DOCUMENTS = frozenset((".yaml", ".yml", ".json"))
"""How files of objects end, where an argument may also be something else."""
_LAST_MOMENT = 253_402_300_800.0  # the year 10000


class Url(click.ParamType):  # type: ignore[type-arg]  # older clicks know no arguments
    """An address of HTTP."""

    name = "URL"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as it is."""
        from kube_policy_scheduler.documents.http_url import is_http_url

        if not is_http_url(value):
            self.fail(f"expected a URL such as http://127.0.0.1:9090, got {value!r}", param, ctx)
        return str(value)


class Duration(click.ParamType):  # type: ignore[type-arg]  # older clicks know no arguments
    """A duration such as 30min."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        from kube_policy_scheduler.times import parse_duration

        if not re.fullmatch(r"([0-9]{1,6}(s|min|h|d)){1,4}", str(value)):
            self.fail(f"expected a duration such as 10min or 1h30min, got {value!r}", param, ctx)
        return parse_duration(str(value))


def price_option(command: _CommandT) -> _CommandT:
    """Add `--prices`; `with_prices` uses them."""
    option = click.option(
        "--prices", multiple=True, metavar="FILE|URL", expose_value=False, callback=_keep_prices,
        help="What nodes cost: a price list, or the URL of a Prometheus with OpenCost's metrics; may be repeated."
        "  [default: annotations and labels of the nodes]",
    )  # fmt: skip
    return option(command)


_PRICES, _PRICED = f"{__name__}.prices", f"{__name__}.priced"
OPENCOST = "node_total_hourly_cost"


def _keep_prices(context: click.Context, _: click.Parameter, value: tuple[str, ...]) -> None:
    context.meta[_PRICES] = value


def with_prices(things: list[Any]) -> list[Any]:
    """Write onto the nodes of a cluster what the command line says that they cost; `price_sources` tells from where.

    Raises:
        DocumentError: a price list cannot be read.
        click.ClickException: Prometheus does not answer.
    """
    from kube_policy_scheduler.cluster import objects
    from kube_policy_scheduler.documents.http_url import is_http_url
    from kube_policy_scheduler.documents.price_list import read_prices
    from kube_policy_scheduler.tooling.cost import set_prices

    context = click.get_current_context(silent=True)
    if context is None or _PRICES not in context.meta:
        return things
    given: tuple[str, ...] = context.meta[_PRICES]
    lists = [read_prices(files.source(Path(text))) for text in given if not is_http_url(text)]
    nodes = [thing for thing in things if isinstance(thing, objects.Node)]
    measures = [(f"{OPENCOST} of {url}", _measured_prices(url, nodes)) for url in given if is_http_url(url)]
    context.meta[_PRICED] = set_prices(nodes, lists, measures)
    return things


def price_sources() -> PriceSources:
    """Return where the prices of the nodes come from that `with_prices` saw last."""
    from kube_policy_scheduler.tooling.cost import PriceSources

    found: PriceSources = click.get_current_context().meta.get(_PRICED) or PriceSources()
    return found


def _measured_prices(url: str, nodes: Sequence[objects.Node]) -> dict[str, float]:
    from kube_policy_scheduler.builtins.metrics import column_of
    from kube_policy_scheduler.cluster.nodes import NodeTable
    from kube_policy_scheduler.cluster.signals import Query

    query = Query(OPENCOST)
    found = measured(url, (query,))
    for text in found.failures.values():
        raise click.ClickException(f"--prices {url}: no value of {OPENCOST}: {text}")
    table = NodeTable()
    for node in nodes:
        table.set(node)
    column = column_of(query, table, signals=found.signals, now=time.time())
    return {name: float(price) for name, price in zip(table.names, column.tolist(), strict=True) if price == price}


METRICS_OPTION = click.option(
    "--metrics", type=click.Path(path_type=Path), metavar="FILE",
    help="Metrics, in the format of `metrics` in policy tests.",
)  # fmt: skip


def cluster_options(command: _CommandT) -> _CommandT:
    """Add `--cluster` (as `clusters`), `--kubeconfig`, `--context`, `--kubernetes` and `--prices`."""
    command = price_option(command)
    command = kubernetes_option("that of the snapshot or the live cluster, or 1.36")(command)
    for option in (
        click.option("--context", help="Context of the kubeconfig."),
        click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file.  [default: as kubectl]"),
        click.option(
            "--cluster", "clusters", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
            help="Use a saved cluster instead of a live one; may be repeated.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def policies_option(
    *, what: str = "Policies that decide", more: str = "", required: bool = False
) -> Callable[[_CommandT], _CommandT]:
    """Return the option `--policies`; its help begins with `what` and ends with `more`."""
    text = f"{what}: a file, a folder, or a ConfigMap; may be repeated.{more if required else _OWN_RULES}"
    return click.option(
        "--policies", multiple=True, required=required, type=click.Path(path_type=Path), metavar="PATH", help=text
    )


def decision_options(command: _CommandT) -> _CommandT:
    """Add `--metrics`, `--prometheus-url`, `--seed` and `--now`."""
    for option in (
        click.option(
            "--now", type=Moment(), help="Time of the decision.  [default: that of the snapshot, or now]"
        ),
        click.option("--seed", default=0, show_default=True, help="Seed of the tie-break between equal nodes."),
        click.option(
            "--prometheus-url", type=Url(), help="Query metrics from this Prometheus, instead of --metrics."
        ),
        METRICS_OPTION,
    ):  # fmt: skip
        command = option(command)
    return command


def output_options(command: _CommandT) -> _CommandT:
    """Add `--format` (as `form`) and `--html`."""
    for option in (
        format_option(),
        click.option(
            "--html", type=click.Path(path_type=Path), metavar="FILE", help="Also write an HTML report to this file."
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def policies_in(paths: Sequence[Path]) -> tuple[Source, ...]:
    """Return the policies of files, folders and ConfigMaps (`.yaml`).

    Raises:
        DocumentError: a file cannot be read.
        click.ClickException: a path is not there, or holds no policy.
    """
    from kube_policy_scheduler.cli.policies import SUFFIX

    found: list[Source] = []
    for path in paths:
        if path.suffix in _DOCUMENTS and path.is_file():
            found.extend(_in_config_maps(path))
        else:
            found.extend(files.source(one) for one in files.expanded([path], suffix=SUFFIX))
    return tuple(dict.fromkeys(found))


def _in_config_maps(path: Path) -> list[Source]:
    from kube_policy_scheduler.cli.policies import SUFFIX
    from kube_policy_scheduler.diagnostics import Source
    from kube_policy_scheduler.documents.fixtures import parse_objects

    maps = [one for one in parse_objects(files.source(path)) if one.kind == "ConfigMap"]
    found = [
        Source(f"{path}/{key}", text)
        for one in maps
        for key, text in sorted((one.value.get("data") or {}).items())
        if key.endswith(SUFFIX) and isinstance(text, str)
    ]
    if not found:
        raise click.ClickException(f"{path} contains no ConfigMap with a key that ends with {SUFFIX}")
    return found


@dataclass(frozen=True, slots=True)
class GivenCluster:
    """A cluster to decide in."""

    objects: list[Any]
    """As the API server has them."""
    now: float
    """When decisions are made, Unix seconds."""
    kubernetes: KubernetesRules
    """By whose rules."""
    recorded: Sequence[FixtureObject] = ()
    """What the files hold, as it is written there; nothing of a live cluster."""

    def state(self) -> ClusterState:
        """Return the cluster that the objects make."""
        from kube_policy_scheduler.tooling.cluster_state import cluster_state

        return cluster_state(self.objects, self.kubernetes)


def pod_of(
    pod: str, cluster: GivenCluster, *, namespace: str | None, scheduler: str
) -> tuple[ClusterState, objects.Pod]:
    """Return a cluster and a pod in it: one that it has by that name, or one of a file, which is added to it.

    Raises:
        UnknownPod: the cluster has no such pod, or several.
        DocumentError: the file cannot be read, or has no pod.
    """
    from kube_policy_scheduler.tooling.cluster_state import UnknownPod, pod_in, stored_objects

    path = Path(pod)
    if pod == "-" or (path.suffix in _DOCUMENTS and path.is_file()):
        given: objects.Pod = stored_objects([pod_in(files.source(path))], scheduler=scheduler)[0]
        given.metadata.uid = given.metadata.uid or f"{given.metadata.namespace}/{given.metadata.name}"
        made = cluster.state()
        made.create(given)
        return made, given
    made = cluster.state()
    try:
        return made, made.find(pod, namespace=namespace)
    except UnknownPod:
        if path.suffix in _DOCUMENTS:
            files.source(path)  # what is asked about is no pod, so it is a file; this says why it cannot be read
        raise


def cluster_at(
    clusters: Sequence[Path],
    *,
    kubeconfig: Path | None,
    context: str | None,
    now: float | None,
    kubernetes: KubernetesChoice,
    scheduler: str = DEFAULT_SCHEDULER,
) -> GivenCluster:
    """Return the API objects of recorded clusters, or of the live one where none is given.

    Args:
        clusters: files.
        kubeconfig: of the live cluster.
        context: of the kubeconfig.
        now: when decisions are made; None: when the newest recorded cluster was taken, as `policyctl snapshot` writes
            it down; else the clock.
        kubernetes: by whose rules; what it does not say, the snapshot or the live cluster says; else the default.
        scheduler: the scheduler name of recorded pods that name none.

    Raises:
        DocumentError: a file cannot be read.
        click.ClickException: the live cluster cannot be read, or a recorded one is empty.
        click.UsageError: both are asked for.
    """
    if not clusters:
        return _live(kubeconfig, context, now=now, kubernetes=kubernetes)
    if kubeconfig is not None or context is not None:
        raise click.UsageError("--cluster is a saved cluster: do not use --kubeconfig or --context with it")
    from kube_policy_scheduler.tooling.cluster_state import stored_objects, taken_at

    found = _recorded(clusters)
    things = with_prices(stored_objects(found, scheduler=scheduler))
    if now is None:
        now = taken_at(found)
    rules = chosen_rules(kubernetes, lambda: rules_of_files(clusters, found))
    return GivenCluster(things, time.time() if now is None else now, rules, found)


def rules_of_files(clusters: Sequence[Path], found: Iterable[FixtureObject]) -> KubernetesRules:
    """Return the rules of the Kubernetes that recorded clusters are of, the default ones where none says it.

    Raises:
        click.ClickException: a file says no version, or several say different ones.
    """
    from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, VersionError
    from kube_policy_scheduler.tooling.cluster_state import recorded_rules

    try:
        return recorded_rules(found) or DEFAULT_RULES
    except VersionError as error:
        raise click.ClickException(f"{', '.join(map(str, clusters))}: {error}; use --kubernetes VERSION") from error


def rules_of_record(record: DecisionRecord) -> KubernetesRules | None:
    """Return the rules that a recorded decision was made by, None where it does not say.

    Raises:
        click.ClickException: what it says is no version.
    """
    from kube_policy_scheduler.kubernetes_rules import KubernetesRules, VersionError

    try:
        return KubernetesRules.parse(record.kubernetes) if record.kubernetes else None
    except VersionError as error:
        raise click.ClickException(f"the decision about {record.key}: {error}; use --kubernetes VERSION") from error


def rules_of_records(records: Iterable[DecisionRecord]) -> KubernetesRules | None:
    """Return the rules that all recorded decisions were made by, None where none says it.

    Raises:
        click.ClickException: what one says is no version, or two were made by different rules.
    """
    rules: KubernetesRules | None = None
    for record in records:
        other = rules_of_record(record)
        if rules is not None and other is not None and rules != other:
            raise click.ClickException(
                f"the decisions were made by the rules of Kubernetes {rules} and {other}; use --kubernetes VERSION"
            )
        rules = rules or other
    return rules


def objects_in(path: Path) -> tuple[FixtureObject, ...]:
    """Return the objects of a saved cluster.

    Raises:
        DocumentError: it cannot be read.
        click.ClickException: it is empty.
    """
    from kube_policy_scheduler.documents.fixtures import parse_objects

    text = files.source(path)
    if not text.text.strip():
        raise click.ClickException(f"{path} is empty: {_CREATE}")
    return parse_objects(text)


def _recorded(clusters: Sequence[Path]) -> list[FixtureObject]:
    found: list[FixtureObject] = []
    for path in clusters:
        read = objects_in(path)
        if not read:
            raise click.ClickException(f"{path} has no objects: {_CREATE}")
        found += read
    return found


def _live(
    kubeconfig: Path | None, context: str | None, *, now: float | None, kubernetes: KubernetesChoice
) -> GivenCluster:
    import asyncio

    from kube_policy_scheduler.adapters.kube.errors import KubeError
    from kube_policy_scheduler.adapters.kube.lists import survey

    try:
        found = asyncio.run(survey(kubeconfig=str(kubeconfig) if kubeconfig else None, context=context))
    except KubeError as error:
        recorded = "" if kubeconfig or context else "; or use a saved cluster: --cluster FILE"
        raise click.ClickException(f"cannot read the cluster: {error}{recorded}") from error
    if found.unlisted:
        missing = ", ".join(one.resource for one in found.unlisted)
        say(f"policyctl: assumed to be empty, because the server does not serve them: {missing}", err=True)
    moment = time.time() if now is None else now
    rules = chosen_rules(kubernetes, lambda: rules_of_server(found.version))
    return GivenCluster(with_prices(found.objects), moment, rules)


def rules_of_server(version: KubernetesVersion | None) -> KubernetesRules:
    """Return the rules of the version that an API server says, the default ones where it says none; say what is odd."""
    from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules

    if version is None:
        say(f"policyctl: the API server does not say its version: assuming Kubernetes {DEFAULT_RULES}", err=True)
        return DEFAULT_RULES
    rules = KubernetesRules(version)
    if not rules.is_known:
        say(f"policyctl: using the rules of Kubernetes {rules}", err=True)
    return rules


def governing_policy(policy_set: PolicySet, pod: PodInfo, *, name: str | None) -> Policy:
    """Return the policy that governs a pod, or the one that is named, whichever governs it.

    Raises:
        click.ClickException: there is none.
    """
    governing = policy_set.named(name) if name is not None else policy_set.governing(pod)
    if governing is not None:
        return governing
    known = ", ".join(policy.name for policy in policy_set.policies)
    if not policy_set.policies and policy_set.fleet.policies:
        raise click.ClickException("the policies are about workloads of a fleet, and govern no pods: use --fleet FILE")
    if name is not None:
        raise click.ClickException(f"there is no policy `{name}`; the policies are: {known}")
    raise click.ClickException(
        f"no policy governs the pod: its scheduler is `{pod.scheduler_name}`, the policies serve"
        f" {', '.join(sorted(policy_set.schedulers))}; to use one anyway: --policy NAME ({known})"
    )


def signals_of(
    policy_sets: Sequence[PolicySet], *, metrics: Path | None, prometheus_url: str | None, now: float
) -> Signals:
    """Return the metrics that policies read, from a file or asked now; says which of them have no value.

    Raises:
        DocumentError: the file cannot be read.
    """
    queries = tuple(dict.fromkeys(query for policy_set in policy_sets for query in policy_set.queries))
    return signals_for(queries, metrics=metrics, prometheus_url=prometheus_url, now=now)


def signals_for(queries: tuple[Query, ...], *, metrics: Path | None, prometheus_url: str | None, now: float) -> Signals:
    """Return the metrics of queries, from a file or asked now; says which of them have no value.

    Raises:
        DocumentError: the file cannot be read.
    """
    from kube_policy_scheduler.cluster.signals import Signals
    from kube_policy_scheduler.documents.yaml_document import parse_document
    from kube_policy_scheduler.tooling.tester.suite_file import read_metrics

    if prometheus_url is not None:
        return _measured(prometheus_url, queries)
    if metrics is None:
        if queries:
            names = ", ".join(query.promql for query in queries)
            say(f"policyctl: without --metrics, these have no value: {names}", err=True)
        return Signals.EMPTY
    found = read_metrics(parse_document(files.source(metrics)))
    missing = [query.promql for query in queries if not found.says(query)]
    if missing:
        say(f"policyctl: {metrics} has no value for: {', '.join(missing)}", err=True)
    return found.signals(queries, now=now)


def _measured(url: str, queries: Sequence[Query]) -> Signals:
    from kube_policy_scheduler.cli.cluster_sources import measured

    found = measured(url, queries)
    for query, text in found.failures.items():
        say(f"policyctl: no value of {query}: {text}", err=True)
    return found.signals


def write_page(path: Path, text: str, *, plots: bool = False) -> None:
    """Write a report, and say so where it has no plots though it could.

    Args:
        path: where to.
        text: the page.
        plots: whether it has plots where matplotlib is installed.

    Raises:
        click.ClickException: the file cannot be written.
    """
    files.replace_file(path, text)
    if plots:
        from kube_policy_scheduler.installation import command_for
        from kube_policy_scheduler.pages.charts import NEEDS, can_draw

        if not can_draw():
            say(f"policyctl: {path} has no plots: {NEEDS}: run {command_for('reports')}", err=True)


@dataclass(frozen=True, slots=True)
class Measured:
    """What Prometheus said."""

    signals: Signals
    unanswered: dict[str, str]
    """By query: why nobody knows its value."""
    refused: dict[str, str]
    """By query: why Prometheus itself has no value for it."""

    @property
    def failures(self) -> dict[str, str]:
        """Return why queries have no answer, no matter who is to blame."""
        return {**self.unanswered, **self.refused}


def measured(url: str, queries: Iterable[Query]) -> Measured:
    """Ask each query once."""
    from kube_policy_scheduler.adapters.prometheus.queries import (
        PrometheusClient,
        PrometheusEndpoint,
        PrometheusError,
        PrometheusUnreachableError,
        QueryTimedOutError,
    )
    from kube_policy_scheduler.cluster.signals import Signals

    client = PrometheusClient(PrometheusEndpoint(url))
    readings = []
    unanswered: dict[str, str] = {}
    refused: dict[str, str] = {}
    try:
        with status_line() as show:
            for query in queries:
                show(f"metric: {query.promql}")
                try:
                    readings.append(client.fetch(query))
                except (PrometheusUnreachableError, QueryTimedOutError) as error:
                    unanswered[query.promql] = str(error)
                except PrometheusError as error:
                    refused[query.promql] = str(error)
    finally:
        client.close()
    return Measured(Signals.of(readings), unanswered, refused)


def records_in(path: Path) -> list[DecisionRecord]:
    """Return the records of a decision log, oldest first.

    Raises:
        click.ClickException: it cannot be read, has no record, or a line is none.
    """
    from kube_policy_scheduler.cli.past_decisions import decisions_in

    return decisions_in(path).of_pods()

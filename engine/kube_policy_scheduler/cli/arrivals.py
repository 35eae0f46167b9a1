"""Where simulations get their cluster, their pods and their metrics from, and the options that say so."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kube_policy_scheduler.cli import cluster_sources, files
from kube_policy_scheduler.cli.kubernetes_option import chosen_rules, kubernetes_option
from kube_policy_scheduler.cli.terminal import say, status_line
from kube_policy_scheduler.kubernetes_rules import NOTHING_CHOSEN, KubernetesChoice

if TYPE_CHECKING:
    from kube_policy_scheduler.cluster.signals import Query
    from kube_policy_scheduler.tooling.simulation.metrics_over_time import MetricsOverTime
    from kube_policy_scheduler.tooling.simulation.scenario import PolicyVariant, Scenario

_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ArrivalSources:
    """What the options of a command in which pods arrive say."""

    clusters: tuple[Path, ...]
    pods: Path | None
    metrics: Path | None
    prometheus_url: str | None
    begin: float | None
    """Of the range that Prometheus is asked for, Unix seconds."""
    end: float | None
    step: float | None
    events: Path | None
    autoscale: Path | None
    now: float | None
    """When the simulation starts; None: as its metrics do."""
    kubernetes: KubernetesChoice = NOTHING_CHOSEN
    """By whose rules pods are decided; None: as the snapshot says."""

    @property
    def paths(self) -> list[Path]:
        """Return the files that are read."""
        others = (self.pods, self.metrics, self.events, self.autoscale)
        return [*self.clusters, *(path for path in others if path is not None)]


def arrival_options(command: _CommandT, *, cluster_is_required: bool = True) -> _CommandT:
    """Add the options of commands in which pods arrive; the command gets them as `sources`.

    cluster_is_required: False if the command may be about something else than a cluster.
    """

    @functools.wraps(command)
    def with_sources(*args: Any, **kwargs: Any) -> Any:
        given = {each.name: kwargs.pop(each.name) for each in fields(ArrivalSources)}
        return command(*args, sources=ArrivalSources(**given), **kwargs)

    result: Any = with_sources
    for option in (
        click.option(
            "--now", type=cluster_sources.Moment(),
            help="Start time.  [default: that of the first sample of --metrics, if these have dates; or 1970]",
        ),
        click.option(
            "--autoscale", type=click.Path(path_type=Path), metavar="FILE", shell_complete=files.complete_path,
            help="Add and remove nodes of the shapes in this file, as an autoscaler does.",
        ),
        click.option(
            "--events", type=click.Path(path_type=Path), metavar="FILE", shell_complete=files.complete_path,
            help="Nodes that are added, removed, cordoned and changed over time.",
        ),
        click.option(
            "--step", type=cluster_sources.Duration(), metavar="DURATION",
            help="With --prometheus-url: time between two samples.  [default: a 500th of the range, at least 15s]",
        ),
        click.option("--to", "end", type=cluster_sources.Moment(), help="With --prometheus-url: end of the metrics."),
        click.option(
            "--from", "begin", type=cluster_sources.Moment(), help="With --prometheus-url: start of the metrics."
        ),
        click.option(
            "--prometheus-url", type=cluster_sources.Url(),
            help="Query metrics from --from to --to from this Prometheus, instead of --metrics.",
        ),
        click.option(
            "--metrics", type=click.Path(path_type=Path), metavar="FILE", shell_complete=files.complete_path,
            help="Metrics: over time as CSV, or as saved answers of /api/v1/query_range (.json); or in the format of"
            " `metrics` in policy tests.",
        ),
        click.option(
            "--pods", type=click.Path(path_type=Path), metavar="FILE", shell_complete=files.complete_path,
            help="Pods that arrive: YAML, or the pods of a trace (.csv).  [default: the pending pods of the cluster]",
        ),
        kubernetes_option("that of the snapshot, or 1.36"),
        click.option(
            "--cluster", "clusters", multiple=True, required=cluster_is_required, type=click.Path(path_type=Path),
            metavar="FILE", shell_complete=files.complete_path,
            help="A saved cluster, or the nodes of a trace (.csv). Saved clusters may be repeated.",
        ),
    ):  # fmt: skip
        result = option(result)
    made: _CommandT = result
    return made


# --- metrics ---------------------------------------------------------------------------------------------


def with_metrics(
    variants: Sequence[PolicyVariant], sources: ArrivalSources, *, also: Sequence[Query] = ()
) -> tuple[tuple[PolicyVariant, ...], ArrivalSources]:
    """Return variants with the metrics that their policies read; and the sources with the time of the start.

    also: other queries, whose values over time the variants with policies get too.

    Raises:
        DocumentError: a file cannot be read.
        click.ClickException: Prometheus does not answer, or not with samples.
        click.UsageError: options contradict each other.
    """
    sets = [variant.policy_set for variant in variants if variant.policy_set is not None]
    read = (query for policy_set in sets for query in policy_set.queries)
    queries = {query.promql: query for query in itertools.chain(read, also)}
    found = recorded_metrics(tuple(queries.values()), sources)
    if found is None:
        now = sources.now or 0.0
        signals = cluster_sources.signals_of(sets, metrics=sources.metrics, prometheus_url=None, now=now)
        constant = [
            replace(variant, signals=signals) if variant.policy_set is not None else variant for variant in variants
        ]
        return tuple(constant), replace(sources, now=now)
    missing = sorted(queries.keys() - found.names())
    if missing:
        say(f"policyctl: without samples, these have no value: {', '.join(missing)}", err=True)
    begins = 0.0 if found.is_relative else found.first
    now = begins if sources.now is None else sources.now
    metrics = found.beginning(now)
    done = [
        replace(variant, metrics=metrics.only((*variant.policy_set.queries, *also)))
        if variant.policy_set is not None
        else variant
        for variant in variants
    ]
    return tuple(done), replace(sources, now=now)


def recorded_metrics(queries: Sequence[Query], sources: ArrivalSources) -> MetricsOverTime | None:
    """Return metrics that change; None where the file has values that hold throughout, or there is none.

    Raises:
        DocumentError: the file cannot be read.
        click.ClickException: Prometheus does not answer, or not with samples.
        click.UsageError: options contradict each other.
    """
    from kube_policy_scheduler.tooling.simulation.metrics_over_time import (
        is_range_answer,
        is_table,
        parse_answers,
        parse_table,
    )

    if sources.prometheus_url is None:
        for name, value in (("--from", sources.begin), ("--to", sources.end), ("--step", sources.step)):
            if value is not None:
                raise click.UsageError(f"{name} is about the metrics of --prometheus-url: also specify it")
    else:
        if sources.metrics is not None:
            raise click.UsageError("use --metrics or --prometheus-url, not both")
        return _fetched(queries, sources)
    if sources.metrics is None:
        return None
    if is_table(sources.metrics.name):
        return parse_table(files.source(sources.metrics), queries)
    text = files.source(sources.metrics)
    return parse_answers(text, queries) if is_range_answer(text.text) else None


def _fetched(queries: Sequence[Query], sources: ArrivalSources) -> MetricsOverTime:
    from kube_policy_scheduler.adapters.prometheus.queries import PrometheusEndpoint, PrometheusError, PrometheusRanges
    from kube_policy_scheduler.tooling.simulation.metrics_over_time import TooMuchError, WrongAnswerError, of_results

    begin, end, url = sources.begin, sources.end, sources.prometheus_url
    assert url is not None
    if begin is None or end is None:
        raise click.UsageError("--prometheus-url: also specify the time of the metrics, --from TIME --to TIME")
    if end <= begin:
        raise click.UsageError("--to must be later than --from")
    begin = float(int(begin))
    step = sources.step if sources.step is not None else max(_LEAST_STEP, float(int((end - begin) / _STEPS)))
    if (end - begin) / step > _MOST_STEPS:
        raise click.UsageError(f"--step: the range has more than {_MOST_STEPS:,} steps; use a longer step")
    client = PrometheusRanges(PrometheusEndpoint(url, timeout_seconds=_PATIENCE_SECONDS))

    def results() -> Iterator[tuple[Query, list[Any]]]:
        for query in queries:
            for number in itertools.count(1):
                show(f"metric: {query.promql}, part {number}")
                try:
                    result = next(parts[query.promql])
                except StopIteration:
                    break
                yield query, result

    parts = {query.promql: client.fetch_range(query, start=begin, end=end, step=step) for query in queries}
    try:
        with status_line() as show:
            return of_results(results())
    except (PrometheusError, WrongAnswerError, TooMuchError) as error:
        raise click.ClickException(f"--prometheus-url {url}: {error}") from error
    finally:
        client.close()


_STEPS = 500
_LEAST_STEP = 15.0
_MOST_STEPS = 100_000
_PATIENCE_SECONDS = 60.0
"""For one answer: range queries take longer than the instant ones of the scheduler."""


# --- clusters and pods -----------------------------------------------------------------------------------


def scenarios(sources: ArrivalSources, *, until: float | None, all_nodes: bool) -> Callable[[int], Scenario]:
    """Return what makes the scenario of a seed.

    Args:
        sources: what the options say, as `with_metrics` returned it.
        until: share of the cluster's GPUs whose arrival ends the experiment; None: pods come and go.
        all_nodes: whether nodes without GPUs take part in the experiment.

    Raises:
        DocumentError: a file cannot be read.
        click.ClickException: what is asked for cannot be done.
    """
    clusters, pods, now = sources.clusters, sources.pods, sources.now or 0.0
    if until is not None:
        for name, value in (("--events", sources.events), ("--autoscale", sources.autoscale)):
            if value is not None:
                raise click.UsageError(f"{name}: with --until no time passes, so no node comes or goes")
    if any(_is_csv(path) for path in clusters):
        if len(clusters) > 1:
            raise click.UsageError("the nodes of a trace are one file: use --cluster once")
        if pods is None or not _is_csv(pods):
            raise click.UsageError("--cluster is a trace: also specify its pods, --pods FILE.csv")
        return _traced(sources, clusters[0], pods, until=until, all_nodes=all_nodes, now=now)
    if until is not None:
        raise click.UsageError("--until requires a trace: --cluster NODES.csv --pods PODS.csv")
    if pods is not None and _is_csv(pods):
        raise click.UsageError("--pods is a trace: also specify its nodes, --cluster FILE.csv")
    scenario = _with_changing_nodes(_recorded(clusters, pods, now=now, kubernetes=sources.kubernetes), sources)
    return lambda seed: scenario


def _with_changing_nodes(scenario: Scenario, sources: ArrivalSources) -> Scenario:
    """Return a scenario whose nodes come and go as the files say.

    Raises:
        DocumentError: a file cannot be read.
        click.ClickException: the cluster has no nodes, and none can come.
    """
    from kube_policy_scheduler.cluster import objects
    from kube_policy_scheduler.tooling.simulation.autoscaling import parse_autoscaling
    from kube_policy_scheduler.tooling.simulation.node_events import parse_node_events

    names = {thing.metadata.name for thing in scenario.things if isinstance(thing, objects.Node)}
    if sources.events is not None:
        if scenario.node_events.events:
            raise click.UsageError("--events: the nodes of the trace have times of their own")
        scenario = replace(scenario, node_events=parse_node_events(files.source(sources.events), nodes=names))
    if sources.autoscale is not None:
        autoscaling = parse_autoscaling(files.source(sources.autoscale), things=scenario.things)
        scenario = replace(scenario, autoscaling=autoscaling)
    if not names and not scenario.nodes_change:
        raise click.ClickException(f"{', '.join(map(str, sources.clusters))}: the cluster has no nodes")
    cluster_sources.with_prices([*scenario.things, *scenario.coming_nodes()])
    return scenario


def _is_csv(path: Path) -> bool:
    return path.name.lower().endswith((".csv", ".csv.gz"))


def _traced(
    sources: ArrivalSources, nodes: Path, pods: Path, *, until: float | None, all_nodes: bool, now: float
) -> Callable[[int], Scenario]:
    from kube_policy_scheduler.documents.trace import parse_nodes, parse_pods
    from kube_policy_scheduler.tooling.simulation.trace import Experiment, TraceError, replayed

    listed = parse_nodes(files.source(nodes))
    coming = parse_pods(files.source(pods))
    if until is None:
        replay = replace(replayed(listed, coming.pods, notes=coming.notes), starts_at=now)
        made = _with_changing_nodes(replay, sources)
        return lambda seed: made
    taking_part = [node for node in listed if node.gpus or all_nodes]
    try:
        return Experiment(taking_part, coming.pods, until=until, notes=coming.notes).scenario
    except TraceError as error:
        raise click.ClickException(f"{nodes}, {pods}: {error}") from error


def _recorded(clusters: Sequence[Path], pods: Path | None, *, now: float, kubernetes: KubernetesChoice) -> Scenario:
    from kube_policy_scheduler.cluster import objects
    from kube_policy_scheduler.tooling.cluster_state import priority_classes, stored_objects
    from kube_policy_scheduler.tooling.simulation.scenario import Scenario
    from kube_policy_scheduler.tooling.simulation.stream import arrivals_of, groups_in, parse_stream

    found = [one for path in clusters for one in cluster_sources.objects_in(path)]
    things = stored_objects(found, scheduler=cluster_sources.DEFAULT_SCHEDULER)
    waiting = [
        thing
        for thing in things
        if isinstance(thing, objects.Pod)
        and not thing.spec.node_name
        and thing.status.phase not in ("Succeeded", "Failed")
    ]
    arrivals = [*arrivals_of(waiting)]
    if pods is not None:
        coming = files.source(pods)
        arrivals += parse_stream(coming, classes=priority_classes(found), scheduler=cluster_sources.DEFAULT_SCHEDULER)
        things += groups_in(coming, scheduler=cluster_sources.DEFAULT_SCHEDULER)
    if not arrivals:
        raise click.ClickException("no pods arrive: the cluster has no pending pods; specify --pods FILE")
    arrivals.sort(key=lambda arrival: arrival.at)
    coming_ids = {id(pod) for pod in waiting}
    standing = [thing for thing in things if id(thing) not in coming_ids]
    rules = chosen_rules(kubernetes, lambda: cluster_sources.rules_of_files(clusters, found))
    return Scenario(standing, arrivals, starts_at=now, kubernetes=rules)

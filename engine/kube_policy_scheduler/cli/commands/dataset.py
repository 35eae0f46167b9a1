"""`policyctl dataset`: the inputs of a model at each decision, and the outcome, as a table to train it on."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from kube_policy_scheduler.cli import cluster_sources, files
from kube_policy_scheduler.cli.arrivals import ArrivalSources, arrival_options, scenarios, with_metrics
from kube_policy_scheduler.cli.extenders import say_not_asked
from kube_policy_scheduler.cli.given import Given, scheduler_of
from kube_policy_scheduler.cli.owners import owner_options, owners
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import interruptible, say, status_line
from kube_policy_scheduler.wording import plural

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.environment import Environment
    from kube_policy_scheduler.policy.policy_set import PolicySet
    from kube_policy_scheduler.tooling.dataset.rows import Dataset, LaterMetric, Recorded
    from kube_policy_scheduler.tooling.dataset.table import TableWriter
    from kube_policy_scheduler.tooling.simulation.scenario import PolicyVariant

EPILOG = """
\b
Examples:
  policyctl dataset learned.policy --config config.yaml --cluster cluster.yaml --pods pods.yaml --output rows.csv
  policyctl dataset learned.policy --config config.yaml --cluster nodes.csv --pods pods.csv --output rows.csv  # a trace
  policyctl dataset learned.policy --config config.yaml --cluster cluster.yaml --pods pods.yaml \\
    --decided-by old.policy --output rows.csv                 # the pods go where another policy places them
  policyctl dataset learned.policy --config config.yaml --cluster cluster.json.gz --record decisions.jsonl \\
    --output rows.csv                                         # what the scheduler decided
  policyctl dataset learned.policy --config config.yaml --cluster cluster.json.gz --record decisions.jsonl \\
    --prometheus-url http://127.0.0.1:9090 --outcome 'cpu_later=instance:node_cpu:ratio@10min' \\
    --pod-outcome 'ran=max_over_time((kube_pod_completion_time - kube_pod_start_time)[1d:5m])@1d' --output rows.parquet

\b
config.yaml names the extension with the function: `policies: {extensions: [onnx]}`. The model file need not exist yet,
and is not read: while the policies place pods for this command, the value of the model is missing.

\b
The columns are: time (Unix seconds), pod, node, each input as the policy writes it, wait_seconds (from the arrival to
the decision), runtime_seconds (as --pods says), each --outcome and each --pod-outcome. A missing value is empty, or
null in Parquet.

\b
With --record, the defaults of --from and --to are the time of the log, until the last outcome.

\b
Ctrl-C ends the command; the file then contains the rows so far.

\b
Exit codes: 0 success; 2 the command could not run; 130 Ctrl-C.
"""
_KUBERNETES = "kubernetes"
_CSV, _PARQUET = "csv", "parquet"
_BY_ENDING = {".csv": _CSV, ".csv.gz": _CSV, ".parquet": _PARQUET}
_INTERRUPTED = 130
_MOST_OUTCOMES = 32
_LONGEST_SECONDS = 30 * 86400.0
_IN_MEMORY_BYTES = 16 << 20
"""Of the table, before it goes to a temporary file."""
_PIECE_BYTES = 1 << 20
_MARGIN_SECONDS = 300.0
"""Metrics are asked for from so long before the first recorded decision, and until so long after the last outcome."""


class LaterParam(click.ParamType):  # type: ignore[type-arg]  # older clicks know no arguments
    """An outcome: NAME=PROMQL@DURATION."""

    name = "NAME=PROMQL@DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> LaterMetric:
        """Return the metric that is read some time after each decision."""
        from kube_policy_scheduler.builtins.metrics import query_of
        from kube_policy_scheduler.cluster.signals import DEFAULT_EVERY_SECONDS, DEFAULT_STALE_AFTER_SECONDS
        from kube_policy_scheduler.tooling.dataset.rows import LaterMetric
        from kube_policy_scheduler.tooling.simulation.metrics_over_time import syntax_problem

        name, is_given, rest = str(value).partition("=")
        promql, _, after = rest.rpartition("@")
        if not is_given or not promql or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", name):
            self.fail(f"expected NAME=PROMQL@DURATION such as 'cpu_later=node_load1@10min', got {value!r}", param, ctx)
        seconds = cluster_sources.Duration().convert(after, param, ctx)
        if not 0 < seconds <= _LONGEST_SECONDS:
            self.fail(f"expected a time after the decision from 1s to 30d, got {after}", param, ctx)
        try:
            query = query_of(promql, max_age=DEFAULT_STALE_AFTER_SECONDS, every=DEFAULT_EVERY_SECONDS)
        except ValueError as error:
            self.fail(f"the query of {name}: {error}", param, ctx)
        if problem := syntax_problem(promql):
            self.fail(f"the query of {name} is not PromQL: {problem}", param, ctx)
        return LaterMetric(name, query, seconds)


SECTION = Section.CHANGE


@click.command(epilog=EPILOG)
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...", shell_complete=files.complete_path)
@arrival_options
@click.option(
    "--record", type=click.Path(path_type=Path), metavar="FILE", shell_complete=files.complete_path,
    help="Use the decisions of this decision log instead of a simulation.",
)  # fmt: skip
@click.option("--model", metavar="FILE", help="The model, if the policies call several.")
@click.option(
    "--outcome", "later", type=LaterParam(), multiple=True,
    help="Add a column with the value that a query has for the chosen node this long after the decision; may be"
    " repeated. It needs metrics over time.",
)  # fmt: skip
@click.option(
    "--pod-outcome", "later_of_pod", type=LaterParam(), multiple=True,
    help="The same for the pod: the value whose labels `namespace` and `pod` name it.",
)  # fmt: skip
@click.option(
    "--decided-by", metavar="POLICY", shell_complete=files.complete_path,
    help="Let another policy place the simulated pods: a file, a folder, or `kubernetes`.  [default: POLICY]",
)  # fmt: skip
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of the simulation.")
@click.option(
    "--max-rows", default=1_000_000, show_default=True, type=click.IntRange(1, 50_000_000), metavar="N",
    help="Stop after this many rows.",
)  # fmt: skip
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", shell_complete=files.complete_path,
    help="Write the table to this file: .csv, .csv.gz or .parquet.  [default: standard output]",
)  # fmt: skip
@click.option(
    "--format", "form", type=click.Choice([_CSV, _PARQUET]),
    help="Format of the table; parquet needs --output, and the extra `parquet`.  [default: by the suffix, or csv]",
)  # fmt: skip
@owner_options
def command(
    policies: tuple[str, ...],
    sources: ArrivalSources,
    record: Path | None,
    model: str | None,
    later: tuple[LaterMetric, ...],
    later_of_pod: tuple[LaterMetric, ...],
    decided_by: str | None,
    seed: int,
    max_rows: int,
    output: Path | None,
    form: str | None,
) -> int:
    """Write the inputs of a model at each decision, and the outcomes, to train it.

    The policies call `model(…)`. For each decision about a pod of these policies, the table has a row with the outcome
    and with the inputs of the model on the chosen node: as the scheduler would evaluate them, before the pod counts
    there. So you train the model on the same inputs that it gets later. The decisions come from a simulation (--pods)
    or from a decision log (--record).
    """
    later += tuple(replace(each, is_of_pod=True) for each in later_of_pod)
    is_parquet = _form(output, form) == _PARQUET
    _check_options(sources, record, later, decided_by)
    asked = _Asked(*_learned(policies), model, later, max_rows)
    decisions = _log(record) if record is not None else None
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, "w+b") as file:
        with interruptible() as stop, _table(file, is_parquet=is_parquet) as table:
            if decisions is None:
                done = _simulated(asked, sources, decided_by, seed=seed, table=table, stop=stop)
            else:
                done = _recorded(asked, sources, decisions, table=table, stop=stop)
            interrupted = stop()
        file.seek(0)
        if output is not None:
            files.replace_file(output, iter(lambda: file.read(_PIECE_BYTES), b""))
        else:
            for line in file:
                say(line.decode(), nl=False)
    _say_what_is_there(done, output, most=max_rows)
    return _INTERRUPTED if interrupted else 0


def _form(output: Path | None, form: str | None) -> str:
    """Return the form of the table: as it is asked for, or as the name of the file ends.

    Raises:
        click.UsageError: the name says another form, or none.
    """
    if output is None:
        if form == _PARQUET:
            raise click.UsageError("--format parquet requires --output FILE")
        return _CSV
    name = output.name.lower()
    by_name = next((known for ending, known in _BY_ENDING.items() if name.endswith(ending)), None)
    if form is not None and (by_name == form or (by_name is None and not name.endswith(".gz"))):
        return form
    if form is not None:
        raise click.UsageError(f"--output {output}: the name does not fit --format {form}; end it with .{form}")
    if by_name is None:
        raise click.UsageError(f"--output {output}: expected a file that ends with .csv, .csv.gz or .parquet")
    return by_name


@contextmanager
def _table(file: IO[bytes], *, is_parquet: bool) -> Iterator[TableWriter]:
    """Yield what writes rows to a file.

    Raises:
        click.ClickException: the package for Parquet is not installed.
    """
    from kube_policy_scheduler.adapters.files.parquet_table import ParquetTable, ParquetUnavailable
    from kube_policy_scheduler.tooling.dataset.table import TEXT_COLUMNS, CsvTable

    if is_parquet:
        try:
            parquet = ParquetTable(file, texts=TEXT_COLUMNS)
        except ParquetUnavailable as error:
            raise click.ClickException(str(error)) from error
        try:
            yield parquet
        finally:
            parquet.close()
    else:
        yield CsvTable(lambda line: file.write(line.encode()))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the table is about."""

    learned: PolicySet
    """The policies that call the model."""
    names: Environment
    """What they were checked with."""
    model: str | None
    later: tuple[LaterMetric, ...]
    max_rows: int

    def dataset(self, variant: PolicyVariant, table: TableWriter) -> Dataset:
        """Return what makes the rows of a table.

        variant: the policies with their metrics.
        """
        from kube_policy_scheduler.tooling.dataset.model_inputs import (
            FIRST_COLUMNS,
            LAST_COLUMNS,
            ModelError,
            inputs_of,
        )
        from kube_policy_scheduler.tooling.dataset.rows import Dataset

        if self.later and variant.metrics is None:
            raise click.UsageError(
                "outcomes require metrics over time: --metrics FILE.csv, or --prometheus-url with --from and --to"
            )
        try:
            inputs = inputs_of(self.learned.policies, model=self.model)
        except ModelError as error:
            raise click.ClickException(str(error)) from error
        taken = {*FIRST_COLUMNS, *LAST_COLUMNS, *inputs.names}
        for each in self.later:
            if each.name in taken:
                raise click.UsageError(
                    f"{_option(each)} {each.name}: the table has a column of this name; use another one"
                )
            taken.add(each.name)
        return Dataset(inputs, variant, pods=self.names.pods, table=table, most=self.max_rows, later=self.later)


def _option(later: LaterMetric) -> str:
    return "--pod-outcome" if later.is_of_pod else "--outcome"


def _check_options(
    sources: ArrivalSources, record: Path | None, later: Sequence[LaterMetric], decided_by: str | None
) -> None:
    """Check options that exclude each other.

    Raises:
        click.UsageError: some do.
    """
    if len(later) > _MOST_OUTCOMES:
        raise click.UsageError(f"expected at most {_MOST_OUTCOMES} outcomes, got {len(later)}")
    simulated = (
        ("--pods", sources.pods), ("--events", sources.events), ("--autoscale", sources.autoscale),
        ("--decided-by", decided_by),
    )  # fmt: skip
    for name, value in simulated if record is not None else ():
        if value is not None:
            raise click.UsageError(f"{name} is about a simulation: do not use it with --record")


def _learned(policies: Sequence[str]) -> tuple[PolicySet, Environment]:
    """Return the policies, checked as if no model were trained yet, and what they were checked with.

    Raises:
        DocumentError: they have errors.
    """
    from kube_policy_scheduler.builtins.environment import untrained_environment
    from kube_policy_scheduler.cli.policies import beside
    from kube_policy_scheduler.documents.yaml_document import DocumentError
    from kube_policy_scheduler.policy.policy_set import load

    owned, sources = owners(), cluster_sources.policies_in([Path(each) for each in policies])
    names = untrained_environment()
    owner = owned.owner_of(sources[0]) if owned is not None else None
    made = load(sources, names, library=beside(sources), rules=False, owner=owner)
    if made.policy_set is None:
        raise DocumentError(made.diagnostics)
    return made.policy_set, names


def _log(record: Path) -> Recorded:
    from kube_policy_scheduler.tooling.dataset.rows import recorded

    found = recorded(cluster_sources.records_in(record))
    if not found.placements:
        raise click.ClickException(f"{record}: no decision gave a pod a node")
    return found


def _simulated(
    asked: _Asked,
    sources: ArrivalSources,
    decided_by: str | None,
    *,
    seed: int,
    table: TableWriter,
    stop: Callable[[], bool],
) -> Dataset:
    from kube_policy_scheduler.cli.policies import compiled
    from kube_policy_scheduler.tooling.dataset.rows import add_simulated
    from kube_policy_scheduler.tooling.simulation.scenario import PolicyVariant

    variants = [PolicyVariant("the policies", asked.learned)]
    if decided_by is not None:
        other = None if decided_by == _KUBERNETES else compiled(cluster_sources.policies_in([Path(decided_by)]))
        variants.append(PolicyVariant(decided_by, other))
    queries = [each.query for each in asked.later]
    (variant, *others), sources = with_metrics(variants, sources, also=queries)
    dataset = asked.dataset(variant, table)
    say_not_asked()
    scenario = scenarios(sources, until=None, all_nodes=False)(seed)
    decider = _without_outcomes(others[0] if others else variant)
    for note in (*scenario.notes, *decider.notes(scenario)):
        say(f"policyctl: {note}", err=True)
    with status_line() as show:
        add_simulated(
            dataset, scenario, decider, seed=seed, stopwatch=time.perf_counter, stop=stop,
            progress=lambda done, of: show(f"{done:,} of {of:,} pods, {plural(dataset.rows, 'row')}"),
        )  # fmt: skip
    return dataset


def _without_outcomes(variant: PolicyVariant) -> PolicyVariant:
    """Return a variant with the metrics of its policies alone: changes of others wake no pod."""
    if variant.metrics is None or variant.policy_set is None:
        return variant
    return replace(variant, metrics=variant.metrics.only(variant.policy_set.queries))


def _recorded(
    asked: _Asked,
    sources: ArrivalSources,
    decisions: Recorded,
    *,
    table: TableWriter,
    stop: Callable[[], bool],
) -> Dataset:
    from kube_policy_scheduler.times import rfc3339
    from kube_policy_scheduler.tooling.dataset.rows import add_recorded
    from kube_policy_scheduler.tooling.simulation.metrics_over_time import covers
    from kube_policy_scheduler.tooling.simulation.scenario import PolicyVariant

    records = decisions.placements
    first, last = records[0].time, records[-1].time
    if sources.prometheus_url is not None:
        ends = last + max((each.seconds for each in asked.later), default=0.0) + _MARGIN_SECONDS
        begin = sources.begin if sources.begin is not None else first - _MARGIN_SECONDS
        sources = replace(sources, begin=begin, end=sources.end if sources.end is not None else ends)
    sources = replace(sources, now=first if sources.now is None else sources.now)
    queries = [each.query for each in asked.later]
    (variant,), sources = with_metrics([PolicyVariant("the policies", asked.learned)], sources, also=queries)
    dataset = asked.dataset(variant, table)
    if variant.metrics is not None and covers(variant.metrics, begins=first, ends=last):
        times = f"{rfc3339(first)} to {rfc3339(last)}"
        say(f"policyctl: no metric has a sample in the time of the decisions, {times}", err=True)
    given = Given(clusters=sources.clusters, now=sources.now, kubernetes=sources.kubernetes)
    cluster = given.by_rules_of(records).cluster(scheduler_of(asked.learned))
    with status_line() as show:
        add_recorded(
            dataset, cluster.objects, decisions, kubernetes=cluster.kubernetes, stop=stop,
            progress=lambda done, of: show(f"{done:,} of {of:,} decisions, {plural(dataset.rows, 'row')}"),
        )  # fmt: skip
    return dataset


def _say_what_is_there(dataset: Dataset, output: Path | None, *, most: int) -> None:
    """Say on stderr how many rows there are, and what is left out."""
    if output is not None:
        say(f"{output}: {plural(dataset.rows, 'row')}", err=True)
    if dataset.is_full:
        say(f"policyctl: stopped after {plural(most, 'row')}; use --max-rows for more", err=True)
    if dataset.without_node:
        what = plural(dataset.without_node, "decision")
        say(f"policyctl: {what} left out: the cluster does not have the node", err=True)
    if not dataset.rows:
        say("policyctl: no rows: no pod that a policy with the model governs got a node", err=True)

"""`policyctl tune`: better weights and thresholds for a policy, found on one part of a trace and judged on another."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_policy_scheduler.cli import cluster_sources, files
from kube_policy_scheduler.cli.arrivals import ArrivalSources, arrival_options, scenarios, with_metrics
from kube_policy_scheduler.cli.commands import simulate
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import interruptible, say, say_json, say_lines, status_line, terminal
from kube_policy_scheduler.wording import plural

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.compute.optimizer import Optimizer
    from kube_policy_scheduler.diagnostics import Source
    from kube_policy_scheduler.tooling.simulation.scenario import PolicyVariant
    from kube_policy_scheduler.tooling.tuning.judging import Trial
    from kube_policy_scheduler.tooling.tuning.parameters import Parameter
    from kube_policy_scheduler.tooling.tuning.samples import Purpose, Sample
    from kube_policy_scheduler.tooling.tuning.search import Evaluation, Tuned

EPILOG = """
\b
Examples:
  policyctl tune batch.policy --cluster cluster.yaml --pods pods.yaml --objective wait
  policyctl tune policies/ --cluster nodes.csv --pods pods.csv --objective unplaced --trials 100 --html tuning.html
  policyctl tune fgd.policy --cluster nodes.csv --pods pods.csv --until 130% --objective unused --seeds 3
  policyctl tune policies/ --cluster c.yaml --pods p.yaml --objective price --record search.log   # stop and go on
  policyctl tune policies/ --cluster c.yaml --pods p.yaml --objective wait --output tuned/
  policyctl impact policies/ tuned/ --cluster cluster.json.gz      # then: what it would change now

\b
A policy declares which numbers may change:
  let spare = 20% from 5% to 50%

\b
The trace is split by time into ten windows: four for the search, four to judge its result, and two to confirm it. With
--until, seeds take the place of windows. All numbers are tried on the same windows and seeds, so the differences are
paired. The command prints a diff only if the objective improves by more than two standard errors on the judging part,
no other measure becomes worse by more than 2%, and no number is at the end of its range. It changes none of your files.
Ctrl-C ends the search and judges what was found so far; with --record, the same command continues later.

\b
Exit codes: 0 better numbers were found; 1 none, or they are refused; 2 the command could not run;
130 Ctrl-C.
"""
_BATCH = 4
"""Trials that are proposed together: the same on every machine, so that results do not depend on the cores."""
_INTERRUPTED = 130
_OBJECTIVES = ("unplaced", "wait", "unused", "fragmentation", "nodes", "moves", "price")


SECTION = Section.CHANGE


@click.command(epilog=EPILOG)
@click.argument("policies", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="POLICY...")
@arrival_options
@click.option(
    "--objective", required=True, type=click.Choice(_OBJECTIVES),
    help="What to improve; less is better. unplaced: pods without a node; wait: mean time to binding; unused: capacity"
        " not in use; fragmentation: free device capacity of no use; nodes: nodes with pods; moves: pods evicted;"
        " price: price per hour of the nodes in use.",
)  # fmt: skip
@click.option("--trials", default=60, show_default=True, type=click.IntRange(2, 10_000), help="Trials of the search.")
@click.option(
    "--until", type=simulate.Share(),
    help="Use the experiment of `simulate --until`: pods arrive one by one, none leaves, none waits.",
)  # fmt: skip
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0), help="First seed, and that of the search."
)
@click.option(
    "--seeds", default=2, show_default=True, type=click.IntRange(1, 100),
    help="Runs of each window, each with another seed. With --until: seeds for the search; judging uses twice as many.",
)  # fmt: skip
@click.option(
    "--record", type=click.Path(path_type=Path), metavar="FILE",
    help="Record each trial in this file; with the same file, the same command continues where it stopped.",
)  # fmt: skip
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Also write the policies with better numbers into this directory.",
)  # fmt: skip
@click.option("--jobs", default=-1, metavar="N", help="Runs at the same time.  [default: one for each core]")
@click.option(
    "--backend", type=click.Choice(("processes", "ray", "dask")), default="processes", show_default=True,
    help="Where runs take place: on this machine, or on a Ray or Dask cluster.",
)  # fmt: skip
@click.option("--address", metavar="ADDRESS", help="With --backend ray or dask: the cluster.  [default: a local one]")
@cluster_sources.price_option
@cluster_sources.output_options
def command(
    policies: tuple[Path, ...],
    sources: ArrivalSources,
    objective: str,
    trials: int,
    until: float | None,
    seed: int,
    seeds: int,
    record: Path | None,
    output: Path | None,
    jobs: int,
    backend: str,
    address: str | None,
    form: str,
    html: Path | None,
) -> int:
    """Find better weights and thresholds for policies.

    The command changes the numbers that the policies declare with a range, and simulates a trace with each choice. It
    looks for better numbers on one part of the trace, and judges them on another.
    """
    from kube_policy_scheduler.adapters.compute.optimizer import Optimizer, OptimizerError, Range
    from kube_policy_scheduler.adapters.process.parallel import ParallelError, workers
    from kube_policy_scheduler.cli.policies import beside, compiled
    from kube_policy_scheduler.tooling.simulation.scenario import PolicyVariant
    from kube_policy_scheduler.tooling.tuning.samples import TooShortError, by_seed, by_time

    if jobs == 0 or jobs < -1:
        raise click.UsageError("--jobs: expected a number above 0")
    if address is not None and backend == "processes":
        raise click.UsageError("--address names a cluster: also specify --backend ray or --backend dask")
    try:
        texts = cluster_sources.policies_in(policies)
        library = tuple(beside(texts))
        (variant,), sources = with_metrics([PolicyVariant("tuned", compiled(texts))], sources)
        made = scenarios(sources, until=until, all_nodes=False)
        parameters = _parameters(texts, library)
        chosen_seeds = range(seed, seed + seeds)
        samples = by_seed(made, chosen_seeds) if until is not None else by_time(made(seed), chosen_seeds)
    except TooShortError as error:
        raise click.ClickException(str(error)) from error
    by_name = {each.name: each for each in parameters}
    try:
        optimizer = Optimizer(
            [Range(each.name, each.low, each.high, each.logarithmic) for each in parameters],
            seed=seed,
            rounded=lambda name, value: by_name[name].rounded(value),
            file=record,
            fingerprint=_fingerprint(texts, sources, objective, until, seed, seeds),
        )
        with (
            workers(backend, jobs=jobs, address=address) as run_all,
            status_line() as show,
            interruptible() as stop,
        ):
            search = _Search(texts, library, parameters, samples, variant, objective, run_all, show, stop)
            found = search.run(optimizer, trials=trials)
            interrupted = stop()
    except (OptimizerError, ParallelError) as error:
        raise click.ClickException(str(error)) from error
    _report(found, form=form, html=html)
    if output is not None and found.accepted:
        _write(output, search.tuned_sources(found.values))
    if interrupted:
        return _INTERRUPTED
    return 0 if found.accepted else 1


def _parameters(sources: Sequence[Source], library: Sequence[Source]) -> tuple[Parameter, ...]:
    """Return the numbers to be found.

    Raises:
        click.ClickException: the policies declare none, or too many.
    """
    from kube_policy_scheduler.builtins.environment import environment
    from kube_policy_scheduler.lang.load import check_sources
    from kube_policy_scheduler.tooling.tuning.parameters import MOST_PARAMETERS, declared_in

    declared = declared_in(check_sources(sources, environment(), library=library).policies)
    for name in declared.unused:
        say(f"policyctl: `{name}` is not tuned: no statement uses it", err=True)
    for name in declared.unlike:
        say(f"policyctl: `{name}` is not tuned: write the number and its range with the same unit", err=True)
    given = {source.name for source in sources}
    parameters = tuple(each for each in declared.parameters if each.span.source.name in given)
    if not parameters:
        example = "let spare = 20% from 5% to 50%"
        raise click.ClickException(f"the policies declare no number with a range; for example: {example}")
    if len({each.name for each in parameters}) < len(parameters):
        raise click.ClickException("two policies declare a range for the same name: rename one of them")
    if len(parameters) > MOST_PARAMETERS:
        raise click.ClickException(
            f"the policies declare {len(parameters)} numbers with a range; the limit is {MOST_PARAMETERS}:"
            " remove the range of those that matter least"
        )
    return parameters


def _fingerprint(texts: Sequence[Source], sources: ArrivalSources, *options: object) -> str:
    asked = (sources.prometheus_url, sources.begin, sources.end, sources.step, sources.now)
    digest = hashlib.sha256(repr((options, asked)).encode())
    for source in (*texts, *(files.source(path) for path in sources.paths)):
        digest.update(hashlib.sha256(source.text.encode()).digest())
    return digest.hexdigest()


def evaluated(what: Evaluation) -> dict[str, float]:
    """Return the measures of a run. A worker calls this."""
    from kube_policy_scheduler.tooling.tuning.search import evaluate

    return evaluate(what, stopwatch=time.perf_counter)


class _Search:
    """The search, and the runs that judge its outcome."""

    def __init__(
        self,
        sources: tuple[Source, ...],
        library: tuple[Source, ...],
        parameters: tuple[Parameter, ...],
        samples: list[Sample],
        variant: PolicyVariant,
        objective: str,
        run_all: Callable[..., Iterator[Any]],
        show: Callable[[str], None],
        stop: Callable[[], bool],
    ) -> None:
        self._sources, self._library, self._parameters = sources, library, parameters
        self._samples, self._variant, self._objective = samples, variant, objective
        self._run_all, self._show, self._stop = run_all, show, stop

    def run(self, optimizer: Optimizer, *, trials: int) -> Tuned:
        """Search, choose and judge."""
        from kube_policy_scheduler.tooling.tuning.judging import chosen, compared, refusals
        from kube_policy_scheduler.tooling.tuning.samples import Purpose
        from kube_policy_scheduler.tooling.tuning.search import Tuned

        today = {each.name: each.today for each in self._parameters}
        done = self._search(optimizer, today, trials)
        best = chosen(done, self._parameters) if done else None
        values = self._without_idle_changes(best, today) if best is not None else today
        found = []
        if best is not None and values != today:
            for purpose in (Purpose.JUDGE, Purpose.CONFIRM):
                self._show(f"judging: {purpose.value}")
                before, after = self._measured([today, values], purpose)
                found += compared(before, after, purpose)
        why = refusals(self._objective, found, self._parameters, values)
        difference = "" if why else self._difference(values)
        return Tuned(
            self._objective, self._parameters, tuple(self._samples), tuple(done), values, tuple(found), tuple(why),
            difference, complete=len(done) >= trials,
        )  # fmt: skip

    def tuned_sources(self, values: Any) -> tuple[Source, ...]:
        """Return the policies with other numbers."""
        from kube_policy_scheduler.tooling.tuning.parameters import with_values

        return with_values(self._sources, self._parameters, values)

    def _search(self, optimizer: Optimizer, today: dict[str, float], trials: int) -> list[Trial]:
        from kube_policy_scheduler.tooling.tuning.judging import Trial
        from kube_policy_scheduler.tooling.tuning.samples import Purpose

        while (made := len(optimizer.done())) < trials and not self._stop():
            best = min((sum(each.costs) / len(each.costs) for each in optimizer.done()), default=None)
            self._progress(made, trials, best)
            proposed = optimizer.propose(min(_BATCH, trials - made), first=today if not made else None)
            for number, measures in enumerate(self._measured(proposed, Purpose.SEARCH)):
                costs = [each.get(self._objective) for each in measures]
                known = [each for trial in optimizer.done() for each in trial.costs]
                if None in costs and not known:
                    raise click.UsageError(f"--objective {self._objective}: {_WHY_MISSING[self._objective]}")
                # with today's numbers it has a value, with these it has none, such as a wait where nothing is bound
                instead = 2 * max(known, default=0.0) + 1
                optimizer.report(number, proposed[number], [instead if cost is None else cost for cost in costs])
        return [Trial(each.values, each.costs) for each in optimizer.done()]

    def _without_idle_changes(self, best: Trial, today: dict[str, float]) -> dict[str, float]:
        """Return the numbers, but today's for each that can go back without a loss: it did not matter."""
        from kube_policy_scheduler.tooling.tuning.judging import Trial, is_as_good
        from kube_policy_scheduler.tooling.tuning.samples import Purpose

        values = dict(best.values)
        for name in today:
            changed = [each for each in values if values[each] != today[each]]
            if name not in changed or len(changed) == 1 or self._stop():
                continue
            self._show(f"trying whether `{name}` matters")
            (measures,) = self._measured([{**values, name: today[name]}], Purpose.SEARCH)
            costs = tuple(each.get(self._objective, math.inf) for each in measures)
            if all(map(math.isfinite, costs)) and is_as_good(Trial({}, costs), best):
                values[name] = today[name]
        return values

    def _progress(self, made: int, trials: int, best: float | None) -> None:
        from kube_policy_scheduler.tooling.tuning.judging import MEASURES

        bar = "#" * int(20 * made / trials)
        so_far = f", best {self._objective} {MEASURES[self._objective].text(best)}" if best is not None else ""
        self._show(f"[{bar:<20}] {made} of {trials} trials{so_far}")

    def _measured(self, choices: Sequence[dict[str, float]], purpose: Purpose) -> list[list[dict[str, float]]]:
        """Return the measures of each choice of numbers on the samples for a purpose."""
        from kube_policy_scheduler.tooling.tuning.search import Evaluation

        samples = [each for each in self._samples if each.purpose is purpose]
        work = [
            Evaluation(self.tuned_sources(values), self._library, sample, self._variant.signals, self._variant.metrics)
            for values in choices
            for sample in samples
        ]
        results = list(self._run_all(evaluated, work))
        return [results[at : at + len(samples)] for at in range(0, len(results), len(samples))]

    def _difference(self, values: dict[str, float]) -> str:
        pairs = zip(self._sources, self.tuned_sources(values), strict=True)
        return "".join(files.difference(old, new.text, done="tuned") for old, new in pairs if new is not old)


_WHY_MISSING = {
    "fragmentation": "the cluster has no devices that can be shared",
    "price": "nodes have no price: specify --prices",
    "wait": "no pod was bound, or with --until no pod waits",
    "moves": "with --until no pod waits or moves",
}


def _report(found: Tuned, *, form: str, html: Path | None) -> None:
    from kube_policy_scheduler.tooling.tuning.search import measure_rows, number_rows

    if form == "json":
        say_json(found.data())
    else:
        to = terminal()
        say_lines([found.verdict(), *(f"  because {why}" for why in found.refusals if found.comparisons), ""])
        say_lines(to.table(number_rows(found), right_from=2))
        if found.comparisons:
            say_lines(["", *to.table(measure_rows(found.comparisons), right_from=2)])
        if found.difference:
            say()
            say(found.difference, nl=False)
    if html is not None:
        from kube_policy_scheduler.pages.tuning import tuning_page

        cluster_sources.write_page(html, tuning_page(found.data(), number_rows(found), measure_rows(found.comparisons)),
                                   plots=True)  # fmt: skip


def _write(folder: Path, sources: Sequence[Source]) -> None:
    """Write policies by the names of their files.

    Raises:
        click.ClickException: the folder cannot be made, or a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"cannot create {folder}: {(error.strerror or str(error)).lower()}") from error
    for source in sources:
        files.replace_file(folder / Path(source.name).name, source.text)
    say(f"policyctl: wrote {plural(len(sources), 'file')} to {folder}" if len(sources) > 1 else
        f"policyctl: wrote {folder / Path(sources[0].name).name}", err=True)  # fmt: skip

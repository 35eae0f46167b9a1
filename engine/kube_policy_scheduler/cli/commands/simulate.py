"""`policyctl simulate`: a cluster and a stream of pods through the real cycle, for several policies side by side."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli import cluster_sources, files
from kube_policy_scheduler.cli.arrivals import ArrivalSources, arrival_options, scenarios, with_metrics
from kube_policy_scheduler.cli.extenders import say_not_asked
from kube_policy_scheduler.cli.fleet_simulation import KARMADA, FleetSources, simulate_fleet
from kube_policy_scheduler.cli.owners import owner_options
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import interruptible, say, say_json, say_lines, terminal
from kube_policy_scheduler.times import short_duration
from kube_policy_scheduler.wording import plural

if TYPE_CHECKING:
    from kube_policy_scheduler.tooling.simulation.results import Result
    from kube_policy_scheduler.tooling.simulation.run import Run
    from kube_policy_scheduler.tooling.simulation.scenario import PolicyVariant, Scenario
    from kube_policy_scheduler.tooling.tuning.judging import Comparison

EPILOG = """
\b
Examples:
  kubectl get nodes,pods -A -o yaml > cluster.yaml
  policyctl simulate kubernetes policies/ --cluster cluster.yaml --pods pods.yaml --html report.html
  policyctl simulate a.policy b.policy --cluster nodes.csv --pods pods.csv        # a trace with its own times
  policyctl simulate policies/gpu/*.policy --cluster nodes.csv --pods pods.csv --until 130% --seeds 10
  policyctl simulate new.policy --against old.policy --cluster cluster.yaml --pods pods.yaml --seeds 5 --html both.html
  policyctl simulate cool.policy --cluster cluster.yaml --pods pods.yaml --metrics usage.csv   # metrics over time
  policyctl simulate cool.policy --cluster cluster.yaml --pods pods.yaml --prometheus-url http://127.0.0.1:9090 \\
    --from 2026-11-16T00:00:00Z --to 2026-11-17T00:00:00Z --step 1min
  policyctl simulate a.policy b.policy --cluster cluster.yaml --pods pods.yaml --autoscale shapes.yaml
  policyctl simulate a.policy --cluster cluster.yaml --pods pods.yaml --events nodes.yaml   # nodes come and go
  policyctl simulate lends.policy fixed.policy --cluster cluster.yaml --pods pods.yaml --shares shares.svg   # queues

\b
For the workloads of a Karmada fleet:
  policyctl snapshot --fleet --kubeconfig karmada-apiserver.config -o fleet.json.gz
  policyctl simulate policies/ --fleet fleet.json.gz --events loss.yaml     # a region is lost, and comes back
  policyctl simulate new.policy --against karmada --fleet fleet.yaml --workloads workloads.yaml --html both.html

\b
pods.yaml lists pods in the short form of policy tests, with times:
  pods:
  - {name: web, cpu: 500m, mem: 1Gi, count: 200, every: 5s, lasts: 2h}
  - {name: train, cpu: 8, mem: 32Gi, resources: {nvidia.com/gpu: 2}, at: 10min, lasts: 1d}

\b
loss.yaml says what happens to a fleet:
  events:
  - {at: 10min, lose: {region: eu}, for: 30min}
  - {at: 2h, change: {name: iowa, price: 9}}
  - {at: 3h, scale: {workload: shop/web, replicas: 20}}

\b
Ctrl-C ends the simulation and shows what is done so far.

\b
Exit codes: 0 success; 2 the command could not run; 130 Ctrl-C.
"""
_KUBERNETES = "kubernetes"
_INTERRUPTED = 130


class Share(click.ParamType[float]):
    """A share such as 130%."""

    name = "PERCENT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share of one that a text with % says."""
        found = re.fullmatch(r"(\d{1,4}(?:\.\d+)?)\s*%", str(value))
        if found is None or not 0 < float(found[1]) <= 1000:
            self.fail(f"expected a share such as 130%, found {value!r}", param, ctx)
        return float(found[1]) / 100


SECTION = Section.CHANGE


@click.command(epilog=EPILOG)
@click.argument("policies", nargs=-1, metavar="POLICY...", shell_complete=files.complete_path)
@partial(arrival_options, cluster_is_required=False)
@click.option(
    "--until", type=Share(),
    help="Run the experiment with a trace: pods arrive one by one in random order until they request this share of"
        " the cluster's GPUs. No pod leaves; pods that do not fit are dropped.",
)  # fmt: skip
@click.option("--all-nodes", is_flag=True, help="With --until: include nodes without GPUs.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of the first run.")
@click.option(
    "--seeds",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Number of runs, each with a different seed.",
)
@click.option(
    "--against", metavar="POLICY", shell_complete=files.complete_path,
    help="Compare with this policy, and show the differences: paired by seed, with the standard error.",
)  # fmt: skip
@click.option(
    "--shares", type=click.Path(path_type=Path), metavar="FILE",
    help="Also write what each queue uses over time to this file: .csv, or a plot as .svg.",
)  # fmt: skip
@click.option(
    "--fleet", "fleets", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    shell_complete=files.complete_path,
    help="Simulate the workloads of a Karmada fleet instead of pods: a file with its Clusters and ResourceBindings, and"
        " the Deployments or others that these name; may be repeated.",
)  # fmt: skip
@click.option(
    "--workloads", type=click.Path(path_type=Path), metavar="FILE", shell_complete=files.complete_path,
    help="With --fleet: workloads that arrive and end.",
)  # fmt: skip
@click.option(
    "--duration", type=cluster_sources.Duration(), metavar="DURATION",
    help="With --fleet: length in virtual time.  [default: until nothing has changed for an hour]",
)  # fmt: skip
@cluster_sources.price_option
@cluster_sources.output_options
@owner_options
def command(
    policies: tuple[str, ...],
    sources: ArrivalSources,
    fleets: tuple[Path, ...],
    workloads: Path | None,
    duration: float | None,
    until: float | None,
    all_nodes: bool,
    seed: int,
    seeds: int,
    against: str | None,
    shares: Path | None,
    form: str,
    html: Path | None,
) -> int:
    """Simulate policies with a stream of pods, or with a fleet that loses clusters.

    The command compares each POLICY with the others: a file, a folder whose policies work together, or the word
    `kubernetes` for Kubernetes' own rules. Pods arrive and leave in virtual time, and use the scheduling queue and the
    scheduling cycle of the scheduler. Unschedulable pods wait, and the members of a gang start together. The policies
    also decide pods that name another scheduler. The results are: the utilization and its balance, the free
    GPU capacity that cannot be used, and the waiting times. With queues, the results also say what each queue used and
    borrowed, and how many of its pods were evicted. With several seeds, the results are mean and standard deviation.
    With --against, the results say for each measure whether it is better by more than chance.

    With --fleet, workloads are decided over the clusters of a Karmada fleet, with the decision maker of
    `policy-scheduler fleet`; `karmada` stands for the Placements of the workloads alone. The command prints what
    happens, where replicas are, how many were evicted and moved, how long replicas did not run, and the price.
    """
    from kube_policy_scheduler.documents.report import report_values
    from kube_policy_scheduler.tooling.simulation import results as reporting

    fleet = FleetSources(fleets, workloads, duration)
    if fleets:
        _check_fleet(sources, until=until, all_nodes=all_nodes, seeds=seeds, shares=shares)
        return simulate_fleet(
            _names(policies, against, own=KARMADA), fleet, sources, against=against, form=form, html=html
        )
    if workloads is not None or duration is not None:
        raise click.UsageError("--workloads and --duration require --fleet")
    if not sources.clusters:
        raise click.UsageError("specify --cluster FILE for pods, or --fleet FILE for the workloads of a Karmada fleet")
    if shares is not None and shares.suffix.lower() not in (".csv", ".svg"):
        raise click.UsageError(f"--shares {shares}: expected a file that ends with .csv or .svg")
    variants, sources = with_metrics(_variants(_names(policies, against)), sources)
    say_not_asked()
    made = scenarios(sources, until=until, all_nodes=all_nodes)
    example = made(seed)
    for note in (*example.notes, *(note for variant in variants for note in variant.notes(example))):
        say(f"policyctl: {note}", err=True)
    if shares is not None and all(variant.tree is None for variant in variants):
        raise click.UsageError("--shares: none of the policies declares a queue")
    with interruptible() as stop:
        results = _run_all(variants, made, range(seed, seed + seeds), stop)
        interrupted = stop()
    differences = _differences(results, example) if against is not None and len(results) == len(variants) else []
    found = reporting.data(results, example) | {
        "against": results[0].name if differences else None,
        "differences": [{"policy": name, **one.data()} for name, each in differences for one in each],
    }
    if form == "json":
        say_json(found | {"prices": report_values(cluster_sources.price_sources())})
    else:
        say(reporting.summary(results, example))
        if any(result.price() is not None for result in results):
            where = cluster_sources.price_sources().sentence()
            which = "all nodes, also of those that are ordered" if example.nodes_change else "the nodes in use"
            say(f"price/h is the mean hourly price of {which}; nodes without a price are not counted; {where}")
        say_lines((*reporting.lines(results, example, to=terminal()), *reporting.rejections(results)))
        for name, each in differences:
            say_lines(["", difference_title(name, results[0]), *terminal().table(difference_rows(each), right_from=1)])
        if sys.stderr.isatty():
            say(reporting.speed(results), err=True)
    if shares is not None:
        _write_shares(shares, results, example)
    if html is not None:
        from kube_policy_scheduler.pages.simulation import simulation_page

        tables = [(difference_title(name, results[0]), difference_rows(each)) for name, each in differences]
        page = simulation_page(found, reporting.summary(results, example), tables)
        cluster_sources.write_page(html, page, plots=True)
    return _INTERRUPTED if interrupted else 0


def _check_fleet(
    sources: ArrivalSources, *, until: float | None, all_nodes: bool, seeds: int, shares: Path | None
) -> None:
    """Check that no option is about pods.

    Raises:
        click.UsageError: one is.
    """
    given = {
        "--cluster": bool(sources.clusters),
        "--pods": sources.pods is not None,
        "--autoscale": sources.autoscale is not None,
        "--until": until is not None,
        "--all-nodes": all_nodes,
        "--seeds": seeds > 1,
        "--shares": shares is not None,
        "--kubernetes": bool(sources.kubernetes),
    }
    wrong = [name for name, is_given in given.items() if is_given]
    if wrong:
        raise click.UsageError(f"{wrong[0]} is about pods: do not use it with --fleet")


def _names(policies: Sequence[str], against: str | None, *, own: str = _KUBERNETES) -> Sequence[str]:
    """Return what is compared; the one that others are compared with comes first."""
    if against is None:
        return tuple(dict.fromkeys(policies)) or (own,)
    if not policies or set(policies) == {against}:
        raise click.UsageError(f"--against {against}: also name the policy to compare with it")
    return (against, *policies)


def _differences(results: Sequence[Result], scenario: Scenario) -> list[tuple[str, list[Comparison]]]:
    """Return for each policy but the first how its measures differ from those of the first."""
    from kube_policy_scheduler.tooling.tuning.judging import compared_runs

    first = results[0]
    return [(each.name, compared_runs(first.runs, each.runs, scenario)) for each in results[1:]]


def difference_title(name: str, against: Result) -> str:
    """Return the title of a table of differences."""
    return f"{name} against {against.name}, {plural(len(against.runs), 'paired run')}"


def difference_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Return a table of differences; less is better in each row."""
    rows: list[tuple[str, ...]] = [("measure, less is better", "against", "policy", "change", "±", "")]
    for one in comparisons:
        before, after = (sum(side) / len(side) for side in (one.today, one.tuned))
        error = one.measure.text(one.standard_error) if len(one.today) > 1 else "–"
        mark = "better" if one.is_better else "worse" if one.is_worse else ""
        text = one.measure.text
        rows.append((one.measure.name, text(before), text(after), text(one.change, sign=True), error, mark))
    return rows


def _write_shares(path: Path, results: Sequence[Result], scenario: Scenario) -> None:
    """Write what queues use over time.

    Raises:
        click.ClickException: the file cannot be written, or plots cannot be drawn.
    """
    from kube_policy_scheduler.tooling.simulation.results import data, shares_csv

    if path.suffix.lower() == ".csv":
        files.replace_file(path, shares_csv(results))
        return
    from kube_policy_scheduler.installation import command_for
    from kube_policy_scheduler.pages.charts import NEEDS, can_draw
    from kube_policy_scheduler.pages.simulation import shares_drawing

    if not can_draw():
        raise click.ClickException(f"{path}: {NEEDS}: run {command_for('reports')}")
    files.replace_file(path, shares_drawing(data(results, scenario)))


def _variants(names: Sequence[str]) -> list[PolicyVariant]:
    from kube_policy_scheduler.cli.policies import compiled
    from kube_policy_scheduler.tooling.simulation.scenario import PolicyVariant

    found = []
    for name in dict.fromkeys(names):
        if name == _KUBERNETES:
            found.append(PolicyVariant(name))
            continue
        policy_set = compiled(cluster_sources.policies_in([Path(name)]))
        only = policy_set.policies[0].name if len(policy_set.policies) == 1 else name
        taken = {variant.name for variant in found}
        found.append(PolicyVariant(name if only in taken else only, policy_set))
    tree = next((variant.tree for variant in found if variant.tree is not None), None)
    return [replace(variant, compared_by=tree) for variant in found]


def _run_all(
    variants: Sequence[PolicyVariant], made: Callable[[int], Scenario], seeds: Sequence[int], stop: Callable[[], bool]
) -> list[Result]:
    """Simulate every variant with every seed; stopped early, return the seeds that all variants have."""
    from kube_policy_scheduler.cli.terminal import status_line
    from kube_policy_scheduler.tooling.simulation.results import Result
    from kube_policy_scheduler.tooling.simulation.run import run

    runs: dict[str, list[Run]] = {variant.name: [] for variant in variants}
    total, number = len(seeds) * len(variants), 0
    with status_line() as show:
        for seed in seeds:
            scenario = made(seed)
            for variant in variants:
                number += 1

                def progress(done: int, *, name: str = variant.name, of: int = len(scenario.arrivals)) -> None:
                    bar = "#" * int(20 * ((number - 1) + done / of) / total)  # noqa: B023
                    show(f"[{bar:<20}] run {number} of {total}: {name}, {done:,} of {of:,} pods")  # noqa: B023

                if stop() and number > 1:
                    break
                done = run(scenario, variant, seed=seed, stopwatch=time.perf_counter, progress=progress, stop=stop)
                runs[variant.name].append(done)
    if stop():
        runs = _complete(runs, len(seeds), drops=scenario.drops)
    return [Result(name, tuple(each)) for name, each in runs.items()]


def _complete(runs: dict[str, list[Run]], seeds: int, *, drops: bool) -> dict[str, list[Run]]:
    """Return the runs of the seeds that are complete; without one, what there is of the first seed.

    Raises:
        click.ClickException: there is nothing to show.
    """
    made = sum(map(len, runs.values()))
    complete, last = (made - 1) // len(runs), list(runs)[(made - 1) % len(runs)]
    if complete:
        say(f"policyctl: stopped: these are the results of {complete} of {plural(seeds, 'seed')}", err=True)
        return {name: each[:complete] for name, each in runs.items()}
    kept = {name: each for name, each in runs.items() if each and not (drops and name == last)}
    if not kept:
        raise click.ClickException("stopped before the first run was complete")
    if not drops:
        at = short_duration(runs[last][0].last.at)
        say(f"policyctl: stopped: the run of {last} is partial: it ends after {at} of virtual time", err=True)
    return kept

"""`policyctl why`: why a pod fits nowhere and what would help, or why it goes to this node and not the next."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.cli import files

if TYPE_CHECKING:
    from engine.cluster import objects
    from engine.cluster.signals import Signals
    from engine.diagnostics import Source
    from engine.policy.policy_set import PolicySet
    from engine.tooling.world import Rules, World

EPILOG = """
\b
Examples:
  kubectl get nodes,pods -A -o yaml > cluster.yaml
  policyctl why web-7f9 --cluster cluster.yaml                    # by Kubernetes' own rules
  policyctl why shop/web-7f9 --cluster cluster.yaml --policies policies/
  policyctl why pod.yaml --cluster cluster.yaml --policies a.policy   # a pod that is not there yet
  policyctl why web-7f9 -n shop --policies policies/              # your current kubectl context

\b
Exit codes: 0 the pod fits; 1 it fits nowhere; 2 it could not be told.
"""
_DEFAULT_SCHEDULER = "default-scheduler"


@click.command(epilog=EPILOG)
@click.argument("pod", metavar="POD")
@click.option(
    "--cluster", "clusters", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="A recorded cluster, instead of a live one; may be repeated.",
)  # fmt: skip
@click.option("-n", "--namespace", help="The pod's namespace, where several have a pod of that name.")
@click.option(
    "--policies", multiple=True, type=click.Path(path_type=Path), metavar="PATH",
    help="Policies that decide: a file, or a folder; may be repeated.  [default: Kubernetes' own rules]",
)  # fmt: skip
@click.option("--policy", metavar="NAME", help="Decide by this policy, whichever governs the pod.")
@click.option(
    "--metrics", type=click.Path(path_type=Path), metavar="FILE", help="Metrics, as under `metrics` of policy tests."
)
@click.option("--prometheus-url", metavar="URL", help="Where metrics are asked, instead of --metrics.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Default: as kubectl.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--top", default=5, show_default=True, type=click.IntRange(1), help="How many nodes to show.")
@click.option("--seed", default=0, show_default=True, help="Draws among nodes that are equally good.")
@click.option("--now", type=float, metavar="SECONDS", help="Unix time of the decision.  [default: the clock]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    pod: str,
    clusters: tuple[Path, ...],
    namespace: str | None,
    policies: tuple[Path, ...],
    policy: str | None,
    metrics: Path | None,
    prometheus_url: str | None,
    kubeconfig: Path | None,
    context: str | None,
    top: int,
    seed: int,
    now: float | None,
    as_json: bool,
) -> int:
    """Explain the decision about one pod.

    POD is the name of a pod of the cluster (or NAMESPACE/NAME), or a file with a pod. Of a pod that fits nowhere
    it is said what stands in the way most, what each rule refuses, what the closest nodes lack, and which single
    changes would make it fit; each of these was decided again with the change made. Of a pod that fits, or is on a
    node: why this node and not the next.
    """
    from engine.documents.yaml_document import DocumentError
    from engine.tooling.why.explain import explain
    from engine.tooling.why.report import data, lines
    from engine.tooling.world import Situation, UnknownPod, waiting

    if clusters and (kubeconfig is not None or context is not None):
        raise click.UsageError("--cluster is a recorded cluster: it needs no --kubeconfig and no --context")
    if metrics is not None and prometheus_url is not None:
        raise click.UsageError("give --metrics or --prometheus-url, not both")
    try:
        sources, policy_set = _policies(policies)
        scheduler = min(policy_set.schedulers) if policy_set is not None else _DEFAULT_SCHEDULER
        world, asked = _world(pod, clusters, namespace, scheduler, kubeconfig, context)
        rules = _rules(asked, world, sources, policy_set, policy)
        moment = time.time() if now is None else now
        if prometheus_url is not None:
            signals = _measured(prometheus_url, policy_set)
        else:
            signals = _signals(metrics, policy_set, moment)
        with waiting(asked, world.cluster) as (free, bound):
            situation = Situation(free, world.cluster, rules, signals, moment, seed)
            found = explain(situation, bound=bound, top=top)
    except DocumentError as error:
        click.echo(files.rendered(error.diagnostics, err=True), err=True)
        return 2
    except UnknownPod as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps(data(found), indent=2, ensure_ascii=False))
    else:
        for line in lines(found, colour=files.colour()):
            click.echo(line)
    return 0 if found.cause is None and found.fits else 1


def _policies(paths: Sequence[Path]) -> tuple[tuple[Source, ...], PolicySet | None]:
    from engine.cli.policies import SUFFIX, compiled

    if not paths:
        return (), None
    sources = tuple(files.source(path) for path in files.expanded(paths, suffix=SUFFIX))
    return sources, compiled(sources)


def _world(
    pod: str,
    clusters: Sequence[Path],
    namespace: str | None,
    scheduler: str,
    kubeconfig: Path | None,
    context: str | None,
) -> tuple[World, objects.Pod]:
    from engine.documents.fixtures import parse_objects
    from engine.tooling.world import pod_in, recorded, world

    things: list[Any] = []
    if clusters:
        found = [one for path in clusters for one in parse_objects(files.source(path))]
        things = recorded(found, scheduler=scheduler)
    else:
        things = _live(kubeconfig, context)
    path = Path(pod)
    if pod == "-" or (path.suffix in (".yaml", ".yml", ".json") and path.is_file()):
        given: objects.Pod = recorded([pod_in(files.source(path))], scheduler=scheduler)[0]
        given.metadata.uid = given.metadata.uid or f"{given.metadata.namespace}/{given.metadata.name}"
        return world(things), given
    made = world(things)
    return made, made.find(pod, namespace=namespace)


def _live(kubeconfig: Path | None, context: str | None) -> list[Any]:
    from engine.adapters.kube.errors import KubeError
    from engine.adapters.kube.lists import list_cluster

    try:
        found, missing = asyncio.run(list_cluster(kubeconfig=str(kubeconfig) if kubeconfig else None, context=context))
    except KubeError as error:
        raise click.ClickException(f"cannot read the cluster: {error}") from error
    if missing:
        click.echo(f"policyctl: taken for empty, as the server does not list them: {', '.join(missing)}", err=True)
    return found


def _rules(
    pod: objects.Pod, world: World, sources: tuple[Source, ...], policy_set: PolicySet | None, name: str | None
) -> Rules:
    from engine.cli.policies import compiled
    from engine.documents.yaml_document import DocumentError
    from engine.tooling.world import KUBERNETES, Rules

    if policy_set is None:
        if name is not None:
            raise click.UsageError("--policy names one of --policies, and none are given")
        return KUBERNETES

    def recompile(changed: Sequence[Source]) -> PolicySet | None:
        try:
            return compiled(changed)
        except DocumentError:
            return None

    governing = policy_set.named(name) if name is not None else policy_set.governing(world.cluster.templates.pod(pod))
    known = ", ".join(policy.name for policy in policy_set.policies)
    if governing is None and name is not None:
        raise click.ClickException(f"there is no policy `{name}`, only: {known}")
    if governing is None:
        raise click.ClickException(
            f"no policy governs the pod: its scheduler is `{pod.spec.scheduler_name}`, the policies serve"
            f" {', '.join(sorted(policy_set.schedulers))}; to decide by one all the same: --policy NAME ({known})"
        )
    return Rules(governing.profile, governing, sources, recompile)


def _signals(path: Path | None, policy_set: PolicySet | None, now: float) -> Signals:
    from engine.cluster.signals import Signals
    from engine.documents.yaml_document import parse_document
    from engine.tooling.tester.metrics import Metrics

    queries = policy_set.queries if policy_set is not None else ()
    if path is None:
        if queries:
            names = ", ".join(query.promql for query in queries)
            click.echo(f"policyctl: without --metrics these have no value: {names}", err=True)
        return Signals.EMPTY
    value = parse_document(files.source(path)).value
    if not isinstance(value, dict):
        raise click.ClickException(f"{path}: expected a mapping from queries to values, as under `metrics` of tests")
    metrics = Metrics().over(value)
    return metrics.signals(queries, now=now)


def _measured(url: str, policy_set: PolicySet | None) -> Signals:
    from engine.adapters.prometheus import PrometheusClient, PrometheusEndpoint, PrometheusError
    from engine.cluster.signals import Signals

    client = PrometheusClient(PrometheusEndpoint(url))
    readings = []
    try:
        for query in policy_set.queries if policy_set is not None else ():
            try:
                readings.append(client.fetch(query))
            except PrometheusError as error:
                click.echo(f"policyctl: no value of {query.promql}: {error}", err=True)
    finally:
        client.close()
    return Signals.of(readings)

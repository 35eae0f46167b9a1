"""`policyctl playground`: a page on this machine that shows what policies do while you write them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli import cluster_sources, files
from kube_policy_scheduler.cli.terminal import say

if TYPE_CHECKING:
    from kube_policy_scheduler.cluster.signals import Query, Signals
    from kube_policy_scheduler.playground.session import Measure, OpenedCluster, Session

EPILOG = """
\b
Examples:
  policyctl playground                                       # an example policy on an example cluster
  policyctl playground card.policy --cluster cluster.yaml    # your policy on a saved cluster
  policyctl playground policies/ --live                      # your current kubectl context, read-only
  policyctl playground policies/ --cluster now.json.gz --metrics now.metrics.yaml
  policyctl playground shared.json                           # what somebody shared with you
  policyctl playground --no-open --port 8765                 # on another machine, with ssh -L 8765:127.0.0.1:8765

\b
Exit codes: 0 or 130 you ended it with Ctrl-C; 2 the command could not run.
"""
_MOST_KEPT = 64
"""Sets of queries whose answers are kept; a policy that is edited asks the same ones again."""


@click.command(epilog=EPILOG)
@click.argument("policies", nargs=-1, type=click.Path(path_type=Path), metavar="[POLICY|SHARED]...")
@click.option(
    "--cluster", "clusters", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="Use a saved cluster; may be repeated.  [default: an example cluster]",
)  # fmt: skip
@click.option("--live", is_flag=True, help="List the cluster of your kubectl context once, and again when you ask.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file; implies --live.")
@click.option("--context", help="Context of the kubeconfig; implies --live.")
@cluster_sources.decision_options
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port on this machine.  [default: a free one]")
@click.option("--no-open", is_flag=True, help="Print the address only, and open no browser.")
def command(
    policies: tuple[Path, ...],
    clusters: tuple[Path, ...],
    live: bool,
    kubeconfig: Path | None,
    context: str | None,
    metrics: Path | None,
    prometheus_url: str | None,
    seed: int,
    now: float | None,
    port: int,
    no_open: bool,
) -> int:
    """Try policies in the browser while you write them.

    The command serves a page on this machine: your policies on the left, the nodes of a cluster on the right. After
    each key the page shows what the scheduler would decide. The page can be used only with the address that the
    command prints, and nothing leaves this machine. End the command with Ctrl-C.
    """
    from kube_policy_scheduler.documents.yaml_document import DocumentError
    from kube_policy_scheduler.playground.opening import POLICY_NAME, start_policy
    from kube_policy_scheduler.playground.session import Session

    try:
        texts = _policies(policies) if policies else {POLICY_NAME: start_policy()}
        cluster, measure = _cluster(
            clusters, live=live, kubeconfig=kubeconfig, context=context, now=now, metrics=metrics, url=prometheus_url
        )
        session = Session(texts, cluster, measure=measure, seed=seed)
    except DocumentError as error:
        say(files.rendered(error.diagnostics, err=True), err=True)
        return 2
    asyncio.run(_serve(session, port=port, opens=not no_open))
    return 0


def _policies(paths: Sequence[Path]) -> dict[str, str]:
    return {source.name: source.text for source in cluster_sources.policies_in(paths)}


def _cluster(
    clusters: Sequence[Path],
    *,
    live: bool,
    kubeconfig: Path | None,
    context: str | None,
    now: float | None,
    metrics: Path | None,
    url: str | None,
) -> tuple[OpenedCluster, Measure]:
    from kube_policy_scheduler.playground.opening import start
    from kube_policy_scheduler.playground.session import OpenedCluster, Origin

    live = live or kubeconfig is not None or context is not None
    if live and clusters:
        raise click.UsageError("--cluster is a saved cluster: do not use --live, --kubeconfig or --context with it")
    if not live and not clusters:
        started = start()
        moment = started.cluster.now
        if metrics is None and url is None:
            return started.cluster, lambda queries: started.metrics.signals(queries, now=moment)
        return started.cluster, _measure(metrics, url, moment)
    things, moment = cluster_sources.cluster_at(clusters, kubeconfig=kubeconfig, context=context, now=now)
    if live:
        opened = OpenedCluster(context or "current context", Origin.LIVE, things, moment)
    else:
        name = ", ".join(map(str, clusters))
        opened = OpenedCluster(name, Origin.SNAPSHOT, things, moment)
    return opened, _measure(metrics, url, moment)


def _measure(metrics: Path | None, url: str | None, now: float) -> Measure:
    """Return what knows the metrics: a file, Prometheus, which is asked once for each query, or nothing."""
    from kube_policy_scheduler.cluster.signals import Signals
    from kube_policy_scheduler.documents.yaml_document import parse_document
    from kube_policy_scheduler.tooling.tester.suite_file import read_metrics

    if metrics is not None and url is not None:
        raise click.UsageError("use --metrics or --prometheus-url, not both")
    if metrics is not None:
        found = read_metrics(parse_document(files.source(metrics)))
        return lambda queries: found.signals(queries, now=now)
    if url is None:
        return lambda queries: Signals.EMPTY
    return _asked_once(url)


def _asked_once(url: str) -> Measure:
    from kube_policy_scheduler.cluster.signals import Signals

    known: dict[tuple[Query, ...], Signals] = {}

    def measure(queries: Sequence[Query]) -> Signals:
        key = tuple(queries)
        if key not in known:
            if len(known) >= _MOST_KEPT:
                known.clear()
            known[key] = cluster_sources.measured(url, key).signals if key else Signals.EMPTY
        return known[key]

    return measure


async def _serve(session: Session, *, port: int, opens: bool) -> None:
    from kube_policy_scheduler.playground.server import Playground, PortTaken

    try:
        async with Playground(session, port=port) as playground:
            say(f"Playground: {playground.url}")
            sys.stdout.flush()  # also where it is read by a program
            if opens:
                click.launch(playground.url)
            await asyncio.Event().wait()
    except PortTaken as error:
        raise click.ClickException(f"{error}; choose another with --port") from error

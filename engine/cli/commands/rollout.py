"""`policyctl rollout`: whether all replicas decide by the policies that were written to the cluster."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine.cli.terminal import terminal

if TYPE_CHECKING:
    from engine.adapters.kube.rollout_view import RolloutPlaces, RolloutView
    from engine.tooling.rollout import Rollout

EPILOG = """
\b
Examples:
  policyctl rollout status                                     # your kubectl context
  kubectl apply -k mine && policyctl rollout status --watch    # until all replicas have them
  policyctl rollout status --config-map team-a/policies --watch --timeout 5min
  policyctl rollout status --json | jq '.states[] | select(.state != "live")'

\b
Exit codes: 0 all replicas decide by them; 1 not yet, or they are refused; 2 it could not be found out.
"""
LOOK_EVERY_SECONDS = 1.0


@click.group(epilog=EPILOG)
def command() -> None:
    """Follow new policies to the replicas of a scheduler."""


@command.command(epilog=EPILOG)
@click.option(
    "--config-map", default="policy-scheduler/policies", show_default=True, metavar="NAMESPACE/NAME",
    help="Where the policies are.",
)  # fmt: skip
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Default: as kubectl.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option(
    "--lease", default="policy-scheduler-status", show_default=True, help="Where replicas say what they have."
)
@click.option("--deployment", default="policy-scheduler", show_default=True, help="Says how many replicas there are.")
@click.option("--watch", is_flag=True, help="Wait until all replicas decide by them, or one refuses them.")
@click.option("--timeout", default="2min", show_default=True, metavar="DURATION", help="With --watch: for how long.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --watch when it ends.")
def status(
    config_map: str,
    kubeconfig: Path | None,
    context: str | None,
    lease: str,
    deployment: str,
    watch: bool,
    timeout: str,
    as_json: bool,
) -> int:
    """Compare the policies in the API server with those that each replica decides by.

    Each replica says so once a minute and at every change, in annotations of one Lease. Asks three reads of you: the
    ConfigMap, the Lease, and the Deployment.
    """
    from engine.adapters.kube.errors import KubeError
    from engine.adapters.kube.rollout_view import RolloutPlaces
    from engine.adapters.policy_sources import PolicySourcesError
    from engine.tooling.rollout import data, lines

    namespace, slash, name = config_map.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.UsageError(f"--config-map: expected NAMESPACE/NAME, got {config_map}")
    seconds = _seconds(timeout) if watch else 0.0
    places = RolloutPlaces(namespace, name, lease, deployment)
    try:
        found = asyncio.run(_follow(places, kubeconfig, context, seconds, told=not as_json and watch))
    except (KubeError, PolicySourcesError) as error:
        click.echo(f"policyctl rollout status: {error}", err=True)
        return 2
    if as_json:
        click.echo(json.dumps(data(found), indent=2, ensure_ascii=False))
    else:
        for line in lines(found, where=f"configMap {config_map}", to=terminal()):
            click.echo(line)
    return 0 if found.is_done else 1


def _seconds(text: str) -> float:
    import re

    from engine.documents.shape import DURATION_SECONDS, parse_duration_seconds

    if not re.fullmatch(DURATION_SECONDS.schema["pattern"], text):
        raise click.UsageError(f"--timeout: expected a duration such as 30s or 2min, got {text}")
    return parse_duration_seconds(text)


async def _follow(
    places: RolloutPlaces, kubeconfig: Path | None, context: str | None, seconds: float, *, told: bool
) -> Rollout:
    """Look until it is settled or time is up; meanwhile say on standard error what changes."""
    from engine.adapters.kube.rollout_view import RolloutView
    from engine.tooling.rollout import verdict

    ends = time.monotonic() + seconds
    said = ""
    async with RolloutView(places, kubeconfig=str(kubeconfig) if kubeconfig else None, context=context) as view:
        while True:
            found = await _look(view)
            if found.is_done or found.is_refused or time.monotonic() >= ends:
                return found
            if told and (now := f"{found.wanted}: {verdict(found)}") != said:
                click.echo(now, err=True)
                said = now
            await asyncio.sleep(LOOK_EVERY_SECONDS)


async def _look(view: RolloutView) -> Rollout:
    from engine.adapters.kube.replica_reports import STALE_SECONDS
    from engine.tooling.rollout import Heard, judge

    policies, reports, expected = await asyncio.gather(view.policies(), view.reports(), view.replicas())
    now = time.time()
    heard = [
        Heard(
            each.replica,
            each.active,
            max(0.0, now - each.since) if each.active else 0.0,
            max(0.0, now - each.renewed),
            each.candidate,
            each.result,
            each.problem,
        )
        for each in reports
    ]
    return judge(heard, wanted=policies.hash, expected=expected, stale_seconds=STALE_SECONDS)

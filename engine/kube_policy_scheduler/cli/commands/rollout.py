"""`policyctl rollout`: whether all replicas decide by the policies that were written, and the way back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kube_policy_scheduler.cli import files
from kube_policy_scheduler.cli.policies import asked, named
from kube_policy_scheduler.cli.terminal import format_option, say, say_json, say_lines, terminal

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.kube.config_maps import ConfigMapData
    from kube_policy_scheduler.adapters.kube.policy_history import Revision
    from kube_policy_scheduler.adapters.kube.rollout_view import RolloutPlaces, RolloutView
    from kube_policy_scheduler.tooling.rollout import Rollout

GROUP_EPILOG = """
\b
Examples:
  policyctl rollout status --watch      # wait until all replicas use the new policies
  policyctl rollout history             # list the last ten accepted versions
  policyctl rollout undo                # go back to the previous version
"""
EPILOG = """
\b
Examples:
  policyctl rollout status                                     # your kubectl context
  kubectl apply -k mine && policyctl rollout status --watch    # wait until all replicas use them
  policyctl rollout status --config-map team-a/policies --watch --timeout 5min
  policyctl rollout status --config-map policy-scheduler/policies-team-a --owner team-a
  policyctl rollout status --format json | jq '.states[] | select(.state != "live")'

\b
Exit codes: 0 all replicas use them; 1 not yet, or a replica rejects them; 2 the command could not run.
"""
UNDO_EPILOG = """
\b
Examples:
  policyctl rollout undo --dry-run            # show what would change
  policyctl rollout undo && policyctl rollout status --watch
  policyctl rollout undo --to-revision 3

\b
Exit codes: 0 success; 1 the version does not exist, or the ConfigMap already contains it; 2 the command failed.
"""
LOOK_EVERY_SECONDS = 1.0
_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


@click.group(epilog=GROUP_EPILOG)
def command() -> None:
    """Show the rollout of policies to the replicas, or go back to an earlier version."""


def _where(subcommand: _CommandT) -> _CommandT:
    """Add what says which ConfigMap of which cluster."""
    for option in (
        click.option("--context", help="Context of the kubeconfig."),
        click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file.  [default: as kubectl]"),
        click.option(
            "--config-map", default="policy-scheduler/policies", show_default=True, metavar="NAMESPACE/NAME",
            help="ConfigMap with the policies.",
        ),
    ):  # fmt: skip
        subcommand = option(subcommand)
    return subcommand


@command.command(epilog=EPILOG)
@_where
@click.option(
    "--lease",
    default="policy-scheduler-status",
    show_default=True,
    help="Lease in which replicas report their policies.",
)
@click.option(
    "--owner", default="", metavar="NAME",
    help="Owner of the policies in the ConfigMap (`policies.owners`).  [default: the administrator]",
)  # fmt: skip
@click.option("--deployment", default="policy-scheduler", show_default=True, help="Deployment of the scheduler.")
@click.option("--watch", is_flag=True, help="Wait until all replicas use the policies, or one rejects them.")
@click.option(
    "--timeout", default="2min", show_default=True, metavar="DURATION", help="With --watch: the longest time to wait."
)
@format_option()
def status(
    config_map: str,
    kubeconfig: Path | None,
    context: str | None,
    lease: str,
    owner: str,
    deployment: str,
    watch: bool,
    timeout: str,
    form: str,
) -> int:
    """Compare the policies in the API server with those of each replica.

    Each replica reports its policies in an annotation of a Lease, once a minute and after every change. You need
    permission to read the ConfigMap, the Lease, and the Deployment.
    """
    from kube_policy_scheduler.adapters.kube.errors import KubeError
    from kube_policy_scheduler.adapters.kube.rollout_view import RolloutPlaces
    from kube_policy_scheduler.adapters.policy_sources import PolicySourcesError
    from kube_policy_scheduler.tooling.rollout import data, lines

    namespace, name = named(config_map)
    seconds = _seconds(timeout) if watch else 0.0
    places = RolloutPlaces(namespace, name, lease, deployment)
    try:
        found = asyncio.run(
            _follow(places, kubeconfig, context, seconds, owner=owner, shows_progress=form == "text" and watch)
        )
    except (KubeError, PolicySourcesError) as error:
        say(f"policyctl rollout status: {error}", err=True)
        return 2
    if form == "json":
        say_json(data(found))
    else:
        say_lines(lines(found, where=f"configMap {config_map}", to=terminal()))
    return 0 if found.is_done else 1


@command.command(epilog="\b\nExamples:\n  policyctl rollout history --config-map team-a/policies")
@_where
def history(config_map: str, kubeconfig: Path | None, context: str | None) -> int:
    """List the accepted versions of the policies, newest last.

    The scheduler stores the last ten accepted versions as ControllerRevisions beside the ConfigMap.
    """
    now, revisions = _read(config_map, kubeconfig, context)
    live = _policy_set(now)
    rows = [(str(r.number), r.policy_set, r.since, "in the ConfigMap" * (r.policy_set == live)) for r in revisions]
    if not rows:
        say(f"no version of configMap {config_map} is stored")
        return 1
    say_lines(terminal().table([("revision", "policy set", "in use since", ""), *reversed(rows)], right_from=4))
    return 0


@command.command(epilog=UNDO_EPILOG)
@_where
@click.option(
    "--to-revision",
    type=click.IntRange(min=1),
    metavar="N",
    help="Revision to restore.  [default: the newest revision that differs]",
)
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
def undo(config_map: str, kubeconfig: Path | None, context: str | None, to_revision: int | None, dry_run: bool) -> int:
    """Restore an earlier version of the ConfigMap.

    Placed pods stay where they are. If the ConfigMap comes from Git, also revert the commit; otherwise the next apply
    writes the ConfigMap again.
    """
    from kube_policy_scheduler.adapters.kube.config_maps import change_config_map

    now, revisions = _read(config_map, kubeconfig, context)
    former = _former(revisions, live=_policy_set(now), number=to_revision)
    if isinstance(former, str):
        say(former)
        return 1
    texts = _change(now.texts, former.texts)
    binaries = _change(now.binaries, former.binaries)
    for name, text in texts.items():
        _show(name, now.texts.get(name, ""), text, former.number)
    for name in binaries:
        say(f"{name} is not text, and differs")
    if dry_run:
        return 0
    namespace, name = named(config_map)
    change = change_config_map(
        namespace, name, texts=texts, binaries=binaries, resource_version=now.resource_version,
        kubeconfig=str(kubeconfig) if kubeconfig else None, context=context,
    )  # fmt: skip
    asked(change, about=config_map)
    say(f"configMap {config_map} is restored to revision {former.number} (policy set {former.policy_set})")
    return 0


def _former(revisions: Sequence[Revision], *, live: str, number: int | None) -> Revision | str:
    """Return the version to go back to, or why there is none; revisions come with the newest first."""
    if number is None:
        return next((each for each in revisions if each.policy_set != live), "no other version is stored")
    found = next((each for each in revisions if each.number == number), None)
    if found is None:
        known = ", ".join(str(each.number) for each in reversed(revisions)) or "none"
        return f"revision {number} is not stored: the revisions are {known}"
    return found if found.policy_set != live else f"revision {number} is already in the ConfigMap"


_ValueT = TypeVar("_ValueT")


def _change(old: Mapping[str, _ValueT], new: Mapping[str, _ValueT]) -> dict[str, _ValueT | None]:
    """Return the entries that differ; None for those to be removed."""
    return {name: new.get(name) for name in sorted({*old, *new}) if old.get(name) != new.get(name)}


def _show(name: str, old: str, new: str | None, number: int) -> None:
    from kube_policy_scheduler.diagnostics import Source

    if new is None:
        say(f"{name} is not in revision {number}")
    else:
        say(files.difference(Source(name, old), new, done=f"revision {number}"), nl=False)


def _read(config_map: str, kubeconfig: Path | None, context: str | None) -> tuple[ConfigMapData, tuple[Revision, ...]]:
    from kube_policy_scheduler.adapters.kube.policy_history import read_history

    namespace, name = named(config_map)
    reading = read_history(namespace, name, kubeconfig=str(kubeconfig) if kubeconfig else None, context=context)
    return asked(reading, about=config_map)


def _policy_set(config_map: ConfigMapData) -> str:
    """Return the hash of the policies, "" where there are none that could be read."""
    from kube_policy_scheduler.adapters.policy_sources import PolicySourcesError, policies_of_config_map

    try:
        return policies_of_config_map(config_map.texts, config_map.binaries, shown="").hash
    except PolicySourcesError:
        return ""


def _seconds(text: str) -> float:
    import re

    from kube_policy_scheduler.documents.shape import DURATION_SECONDS
    from kube_policy_scheduler.times import parse_duration

    if not re.fullmatch(DURATION_SECONDS.schema["pattern"], text):
        raise click.UsageError(f"--timeout: expected a duration such as 30s or 2min, got {text}")
    return parse_duration(text)


async def _follow(
    places: RolloutPlaces,
    kubeconfig: Path | None,
    context: str | None,
    seconds: float,
    *,
    owner: str,
    shows_progress: bool,
) -> Rollout:
    """Look until it is settled or time is up; meanwhile say on standard error what changes."""
    from kube_policy_scheduler.adapters.kube.rollout_view import RolloutView
    from kube_policy_scheduler.tooling.rollout import verdict

    ends = time.monotonic() + seconds
    said = ""
    async with RolloutView(places, kubeconfig=str(kubeconfig) if kubeconfig else None, context=context) as view:
        while True:
            found = await _look(view, owner)
            if found.is_done or found.is_refused or time.monotonic() >= ends:
                return found
            if shows_progress and (now := f"{found.wanted}: {verdict(found)}") != said:
                say(now, err=True)
                said = now
            await asyncio.sleep(LOOK_EVERY_SECONDS)


async def _look(view: RolloutView, owner: str) -> Rollout:
    from kube_policy_scheduler.adapters.kube.replica_reports import STALE_SECONDS, SetReport
    from kube_policy_scheduler.tooling.rollout import ReplicaReport, judge

    policies, published, expected = await asyncio.gather(view.policies(), view.reports(), view.replicas())
    now = time.time()
    told = [(each, each.owners.get(owner, SetReport()) if owner else each) for each in published]
    reports = [
        ReplicaReport(
            each.replica,
            about.active,
            max(0.0, now - about.since) if about.active else 0.0,
            max(0.0, now - each.renewed),
            about.candidate,
            about.result,
            about.problem,
        )
        for each, about in told
    ]
    return judge(reports, wanted=policies.hash, expected=expected, stale_seconds=STALE_SECONDS)

"""`policyctl rollout`: whether all replicas decide by the policies that were written, and the way back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kube_policy_scheduler.cli import files
from kube_policy_scheduler.cli.policies import SUFFIX, asked, named
from kube_policy_scheduler.cli.sections import Section, SentenceGroup
from kube_policy_scheduler.cli.terminal import format_option, say, say_json, say_lines, terminal

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.kube.policy_history import Revision
    from kube_policy_scheduler.adapters.kube.rollout_view import RolloutView
    from kube_policy_scheduler.adapters.kube.scheduling_policies import SchedulingPolicy
    from kube_policy_scheduler.tooling.rollout import Rollout

GROUP_EPILOG = """
\b
Examples:
  policyctl rollout status --watch      # wait until all replicas use the new policies
  policyctl rollout history             # list the last ten accepted versions
  policyctl rollout undo                # go back to the previous version
  policyctl rollout history --scheduling-policies team-a --owner team-a
"""
EPILOG = """
\b
Examples:
  policyctl rollout status                                     # your kubectl context
  kubectl apply -k mine && policyctl rollout status --watch    # wait until all replicas use them
  policyctl rollout status --config-map team-a/policies --watch --timeout 5min
  policyctl rollout status --config-map policy-scheduler/policies-team-a --owner team-a
  policyctl rollout status --scheduling-policies team-a --owner team-a
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
  policyctl rollout undo --scheduling-policies team-a --owner team-a

\b
Exit codes: 0 success; 1 the version does not exist, or the ConfigMap already contains it; 2 the command failed.
"""
LOOK_EVERY_SECONDS = 1.0
DEFAULT_NAMESPACE = "policy-scheduler"
_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


SECTION = Section.CHANGE


@click.group(cls=SentenceGroup, epilog=GROUP_EPILOG)
def command() -> None:
    """Show the rollout of policies to the replicas, or go back to an earlier version."""


def _where(subcommand: _CommandT) -> _CommandT:
    """Add what says where the policies are in which cluster."""
    for option in (
        click.option("--context", help="Context of the kubeconfig."),
        click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file.  [default: as kubectl]"),
        click.option(
            "--namespace", metavar="NAME",
            help="With --scheduling-policies: namespace of the scheduler.  [default: policy-scheduler]",
        ),
        click.option(
            "--owner", default="", metavar="NAME",
            help="Owner of the policies (`policies.owners`).  [default: the administrator]",
        ),
        click.option(
            "--scheduling-policies", "home", metavar="NAMESPACE",
            help="Instead of a ConfigMap: the SchedulingPolicies of this namespace; requires --owner.",
        ),
        click.option(
            "--config-map", metavar="NAMESPACE/NAME",
            help="ConfigMap with the policies.  [default: policy-scheduler/policies]",
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
@click.option("--deployment", default="policy-scheduler", show_default=True, help="Deployment of the scheduler.")
@click.option("--watch", is_flag=True, help="Wait until all replicas use the policies, or one rejects them.")
@click.option(
    "--timeout", default="2min", show_default=True, metavar="DURATION", help="With --watch: the longest time to wait."
)
@format_option()
def status(*, lease: str, deployment: str, watch: bool, timeout: str, form: str, **where: Any) -> int:
    """Compare the policies in the API server with those of each replica.

    Each replica reports its policies in an annotation of a Lease, once a minute and after every change. You need
    permission to read the ConfigMap (or the SchedulingPolicies), the Lease, and the Deployment.
    """
    from kube_policy_scheduler.adapters.files.policy_sources import PolicySourcesError
    from kube_policy_scheduler.adapters.kube.errors import KubeError
    from kube_policy_scheduler.tooling.rollout import data, lines

    place = _place(**where)
    seconds = _seconds(timeout) if watch else 0.0
    try:
        following = _follow(place, lease, deployment, seconds, shows_progress=form == "text" and watch)
        found = asyncio.run(following)
    except (KubeError, PolicySourcesError) as error:
        say(f"policyctl rollout status: {error}", err=True)
        return 2
    if form == "json":
        say_json(data(found))
    else:
        say_lines(lines(found, where=str(place), to=terminal(), mounted=isinstance(place, _ConfigMap)))
    return 0 if found.is_done else 1


@command.command(epilog="\b\nExamples:\n  policyctl rollout history --config-map team-a/policies")
@_where
def history(**where: Any) -> int:
    """List the accepted versions of the policies, newest last.

    The scheduler stores the last ten accepted versions as ControllerRevisions: those of a ConfigMap beside it, those of
    SchedulingPolicies in the namespace of the scheduler.
    """
    place = _place(**where)
    place.read()
    rows = [
        (str(r.number), r.policy_set, r.since, f"in the {place.kind}" * (r.policy_set == place.live))
        for r in place.revisions
    ]
    if not rows:
        say(f"no version of {place} is stored")
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
def undo(*, to_revision: int | None, dry_run: bool, **where: Any) -> int:
    """Restore an earlier version of the policies.

    Placed pods stay where they are. If the policies come from Git, also revert the commit; otherwise the next apply
    writes them again.
    """
    place = _place(**where)
    place.read()
    former = _former(place, number=to_revision)
    if isinstance(former, str):
        say(former)
        return 1
    texts = _change(place.texts, former.texts)
    binaries = _change(place.binaries, former.binaries)
    for name, text in texts.items():
        _show(name, place.texts.get(name, ""), text, former.number)
    for name in binaries:
        say(f"{name} is not text, and differs")
    if dry_run:
        return 0
    place.write(texts, binaries)
    say(f"{place} {place.verb} restored to revision {former.number} (policy set {former.policy_set})")
    return 0


def _former(place: _ConfigMap | _Objects, *, number: int | None) -> Revision | str:
    """Return the version to go back to, or why there is none."""
    revisions, live = place.revisions, place.live
    if number is None:
        return next((each for each in revisions if each.policy_set != live), "no other version is stored")
    found = next((each for each in revisions if each.number == number), None)
    if found is None:
        known = ", ".join(str(each.number) for each in reversed(revisions)) or "none"
        return f"revision {number} is not stored: the revisions are {known}"
    return found if found.policy_set != live else f"revision {number} is already in the {place.kind}"


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


# --- where policies are -------------------------------------------------------------------------------------


def _place(
    *,
    config_map: str | None,
    home: str | None,
    owner: str,
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
) -> _ConfigMap | _Objects:
    access = {"kubeconfig": str(kubeconfig) if kubeconfig else None, "context": context}
    if home is None:
        if namespace is not None:
            raise click.UsageError("--namespace requires --scheduling-policies")
        return _ConfigMap(*named(config_map or f"{DEFAULT_NAMESPACE}/policies"), owner, access)
    if config_map is not None or not owner:
        raise click.UsageError("--scheduling-policies requires --owner, and excludes --config-map")
    return _Objects(namespace or DEFAULT_NAMESPACE, home, owner, access)


@dataclass
class _ConfigMap:
    """A ConfigMap."""

    namespace: str
    name: str
    owner: str
    """Whose policies it contains; "": the administrator's."""
    access: dict[str, str | None]
    """kubeconfig and context."""
    texts: Mapping[str, str] = field(default_factory=dict)
    binaries: Mapping[str, bytes] = field(default_factory=dict)
    revisions: Sequence[Revision] = ()
    """Those that are stored, the newest first."""
    live: str = ""
    """Hash of the policies that it contains; "": they cannot be read."""
    kind = "ConfigMap"
    verb = "is"
    _version: str = ""

    def __str__(self) -> str:
        return f"configMap {self.namespace}/{self.name}"

    def view(self, lease: str, deployment: str) -> RolloutView:
        """Return what to compare with the replicas."""
        from kube_policy_scheduler.adapters.kube.rollout_view import RolloutPlaces, RolloutView

        return RolloutView(RolloutPlaces(self.namespace, self.name, lease, deployment), **self.access)

    def read(self) -> None:
        """Read it, and its stored versions."""
        from kube_policy_scheduler.adapters.files.policy_sources import PolicySourcesError, policies_of_config_map
        from kube_policy_scheduler.adapters.kube.policy_history import read_history

        reading = read_history(self.namespace, self.name, **self.access)
        now, self.revisions = asked(reading, about=f"ConfigMap {self.namespace}/{self.name}")
        self.texts, self.binaries, self._version = now.texts, now.binaries, now.resource_version
        with contextlib.suppress(PolicySourcesError):
            self.live = policies_of_config_map(self.texts, self.binaries, shown="").hash

    def write(self, texts: Mapping[str, str | None], binaries: Mapping[str, bytes | None]) -> None:
        """Change entries in one step; None: remove."""
        from kube_policy_scheduler.adapters.kube.config_maps import change_config_map

        change = change_config_map(
            self.namespace, self.name, texts=texts, binaries=binaries, resource_version=self._version, **self.access
        )
        asked(change, about=f"ConfigMap {self.namespace}/{self.name}")


@dataclass
class _Objects:
    """The SchedulingPolicies of a namespace."""

    namespace: str
    """The scheduler's."""
    home: str
    """Theirs."""
    owner: str
    access: dict[str, str | None]
    """kubeconfig and context."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """By `NAME.policy`."""
    binaries: Mapping[str, bytes] = field(default_factory=dict)
    revisions: Sequence[Revision] = ()
    live: str = ""
    kind = "namespace"
    verb = "are"
    _known: Mapping[str, SchedulingPolicy] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"SchedulingPolicies of namespace {self.home}"

    def view(self, lease: str, deployment: str) -> RolloutView:
        """Return what to compare with the replicas."""
        from kube_policy_scheduler.adapters.kube.rollout_view import RolloutPlaces, RolloutView

        return RolloutView(RolloutPlaces(self.namespace, "", lease, deployment, self.home), **self.access)

    def read(self) -> None:
        """Read them, and their stored versions."""
        from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
        from kube_policy_scheduler.adapters.kube.policy_history import read_owner_history

        reading = read_owner_history(self.namespace, self.owner, home=self.home, **self.access)
        now, self.revisions = asked(reading, about=str(self))
        self._known = now.objects(self.home)
        self.texts = {f"{name}{SUFFIX}": each.spec.policy or "" for name, each in self._known.items()}
        sources = now.sources(self.home)
        self.live = sources.hash if isinstance(sources, PolicySources) else ""

    def write(self, texts: Mapping[str, str | None], _: Mapping[str, bytes | None]) -> None:
        """Change the objects, one after another; None: delete."""
        from kube_policy_scheduler.adapters.kube.scheduling_policies import change_scheduling_policies

        by_name = {name.removesuffix(SUFFIX): text for name, text in texts.items()}
        change = change_scheduling_policies(self.home, texts=by_name, known=self._known, **self.access)
        asked(change, about=str(self))


def _seconds(text: str) -> float:
    import re

    from kube_policy_scheduler.documents.shape import DURATION_PATTERN
    from kube_policy_scheduler.times import parse_duration

    if not re.fullmatch(DURATION_PATTERN, text):
        raise click.UsageError(f"--timeout: expected a duration such as 30s or 2min, got {text}")
    return parse_duration(text)


async def _follow(
    place: _ConfigMap | _Objects, lease: str, deployment: str, seconds: float, *, shows_progress: bool
) -> Rollout:
    """Look until it is settled or time is up; meanwhile say on standard error what changes."""
    from kube_policy_scheduler.tooling.rollout import verdict

    ends = time.monotonic() + seconds
    said = ""
    async with place.view(lease, deployment) as view:
        while True:
            found, owners = await _look(view, place.owner)
            if found.is_done or found.is_refused or time.monotonic() >= ends:
                if place.owner and found.replicas and place.owner not in owners:
                    known = ", ".join(owners) or "none"
                    text = f"no replica has reported policies of owner {place.owner}; the owners are: {known}"
                    say(f"policyctl: {text}", err=True)
                return found
            if shows_progress and (now := f"{found.wanted}: {verdict(found)}") != said:
                say(now, err=True)
                said = now
            await asyncio.sleep(LOOK_EVERY_SECONDS)


async def _look(view: RolloutView, owner: str) -> tuple[Rollout, list[str]]:
    """Return where the rollout stands, and the owners that replicas have reported."""
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
    rollout = judge(reports, wanted=policies.hash, expected=expected, stale_seconds=STALE_SECONDS)
    return rollout, sorted({name for each in published for name in each.owners})

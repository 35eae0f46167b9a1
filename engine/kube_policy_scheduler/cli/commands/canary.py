"""`policyctl canary`: which canaries there are, and their end: promoted to all pods, or taken back, by one command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kube_policy_scheduler.cli import files
from kube_policy_scheduler.cli.owners import owner_options, use_config_map
from kube_policy_scheduler.cli.policies import asked, named
from kube_policy_scheduler.cli.sections import Section, SentenceGroup
from kube_policy_scheduler.cli.terminal import say

if TYPE_CHECKING:
    from kube_policy_scheduler.diagnostics import Source
    from kube_policy_scheduler.policy.policy_set import PolicySet
    from kube_policy_scheduler.tooling.canary import Outcome, Pair

_GROUP_EPILOG = """
\b
Examples:
  policyctl canary list policies/
  policyctl canary promote policies/ --dry-run    # show what would change; change nothing
  policyctl canary promote policies/              # apply the rules of the canary to all pods
  policyctl canary abort --config-map policy-scheduler/policies   # in the cluster: restore the old rules
  policyctl canary list --config config.yaml owners/team-a        # with what the administrator allows

\b
Exit codes: 0 success; 1 there is no canary; 2 the command failed and changed nothing.
"""
_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


SECTION = Section.CHANGE


@click.group(cls=SentenceGroup, epilog=_GROUP_EPILOG)
def command() -> None:
    """List canaries, promote them, or remove them.

    A canary is the next version of a policy, which governs some of its pods: a file with a line such as `canary of web
    for 10%`. The policies are in a folder, or in a ConfigMap of the live cluster.
    """


def _where(subcommand: _CommandT) -> _CommandT:
    """Add what says where the policies are."""
    for option in (
        click.option("--context", help="Context of the kubeconfig."),
        click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file.  [default: as kubectl]"),
        click.option("--config-map", metavar="NAMESPACE/NAME", help="A ConfigMap of the cluster, instead of a folder."),
        click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[FOLDER]"),
    ):
        subcommand = option(subcommand)
    return owner_options(subcommand)


def _change(subcommand: _CommandT) -> _CommandT:
    """Add what every change needs."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Show what would change; change nothing."),
        click.option("--canary", "name", metavar="NAME", help="Name of the canary, if there are several."),
    ):
        subcommand = option(subcommand)
    return _where(subcommand)


@command.command("list", epilog="\b\nExamples:\n  policyctl canary list policies/")
@_where
def list_(folder: Path | None, config_map: str | None, kubeconfig: Path | None, context: str | None) -> int:
    """List each canary and the pods that it governs."""
    pairs = _canaries(_place(folder, config_map, kubeconfig, context))
    for pair in pairs:
        say(pair.shown)
    if not pairs:
        say("there is no canary")
    return 0 if pairs else 1


@command.command(epilog="\b\nExamples:\n  policyctl canary promote policies/ --dry-run")
@_change
def promote(
    folder: Path | None,
    config_map: str | None,
    kubeconfig: Path | None,
    context: str | None,
    name: str | None,
    dry_run: bool,
) -> int:
    """Apply the rules of the canary to all pods of its stable policy, and remove the canary.

    The file of the stable policy gets the text of the canary. Its name, scheduler, `for pods` and priority stay the
    same.
    """
    from kube_policy_scheduler.tooling.canary import promoted

    return _end(_place(folder, config_map, kubeconfig, context), name, promoted, dry_run=dry_run)


@command.command(epilog="\b\nExamples:\n  policyctl canary abort --config-map policy-scheduler/policies")
@_change
def abort(
    folder: Path | None,
    config_map: str | None,
    kubeconfig: Path | None,
    context: str | None,
    name: str | None,
    dry_run: bool,
) -> int:
    """Remove the canary, so that its stable policy governs all pods again.

    Placed pods stay where they are.
    """
    from kube_policy_scheduler.tooling.canary import aborted

    return _end(_place(folder, config_map, kubeconfig, context), name, aborted, dry_run=dry_run)


def _end(
    place: _Folder | _ConfigMap, name: str | None, end: Callable[[Pair, Sequence[Source]], Outcome], *, dry_run: bool
) -> int:
    """Show what the end of a canary changes, and do it."""
    from kube_policy_scheduler.cli.policies import compiled

    pair = _chosen(_canaries(place), name)
    if pair is None:
        say("there is no canary")
        return 1
    outcome = end(pair, place.sources)
    with files.explaining("the resulting policies have errors, so nothing was changed"):
        compiled(outcome.sources)
    before = {source.name: source for source in place.sources}
    for source in outcome.changed:
        say(files.difference(before[source.name], source.text, done="promoted"), nl=False)
    for source in outcome.removed:
        say(f"{source.name} is removed" if not dry_run else f"{source.name} would be removed")
    if dry_run:
        return 0
    return 0 if place.apply(outcome) else 2


def _canaries(place: _Folder | _ConfigMap) -> tuple[Pair, ...]:
    """Return the canaries of a place; with `--config` the policies of other owners are compiled, too."""
    from kube_policy_scheduler.tooling.canary import canaries

    policies = place.policies()
    names = {source.name for source in place.sources}
    return tuple(pair for pair in canaries(policies) if pair.canary.source.name in names)


def _chosen(pairs: Sequence[Pair], name: str | None) -> Pair | None:
    if name is not None:
        found = next((pair for pair in pairs if pair.canary.name == name), None)
        if found is None:
            known = ", ".join(pair.canary.name for pair in pairs) or "there are none"
            raise click.ClickException(f"there is no canary `{name}`: {known}")
        return found
    if len(pairs) > 1:
        names = ", ".join(pair.canary.name for pair in pairs)
        raise click.ClickException(f"there are {len(pairs)} canaries: specify --canary NAME, one of {names}")
    return pairs[0] if pairs else None


# --- where policies are -------------------------------------------------------------------------------------


def _place(
    folder: Path | None, config_map: str | None, kubeconfig: Path | None, context: str | None
) -> _Folder | _ConfigMap:
    if (folder is None) == (config_map is None):
        raise click.UsageError("specify the policies: a folder, or --config-map NAMESPACE/NAME")
    if folder is not None:
        if kubeconfig is not None or context is not None:
            raise click.UsageError("do not use --kubeconfig or --context with a folder")
        if folder.is_file():
            raise click.UsageError(f"{folder} is a file: specify the folder with the canary and its stable policy")
        return _Folder(folder)
    assert config_map is not None
    return _ConfigMap(*named(config_map), kubeconfig=str(kubeconfig) if kubeconfig else None, context=context)


def _compiled(sources: Sequence[Source]) -> PolicySet:
    from kube_policy_scheduler.cli.policies import compiled

    with files.explaining("the policies have errors"):
        return compiled(sources)


@dataclass
class _Folder:
    """Files."""

    path: Path
    sources: tuple[Source, ...] = field(default=())

    def policies(self) -> PolicySet:
        """Read them.

        Raises:
            DocumentError: a file cannot be read.
            click.ClickException: the policies have errors.
        """
        from kube_policy_scheduler.cli.policies import SUFFIX

        self.sources = tuple(files.source(each) for each in files.expanded([self.path], suffix=SUFFIX))
        return _compiled(self.sources)

    def apply(self, outcome: Outcome) -> bool:
        """Write what changed, then remove the canary: between the two it says the same as its stable policy."""
        if not all(files.rewrite_file(Path(source.name), source.text) for source in outcome.changed):
            return False
        for source in outcome.removed:
            try:
                Path(source.name).unlink()
            except OSError as error:
                say(f"{source.name}: cannot be removed: {(error.strerror or str(error)).lower()}", err=True)
                return False
        return True


@dataclass
class _ConfigMap:
    """Keys of a ConfigMap in the cluster."""

    namespace: str
    name: str
    kubeconfig: str | None
    context: str | None
    sources: tuple[Source, ...] = field(default=())
    _version: str = ""

    def policies(self) -> PolicySet:
        """Read them."""
        from kube_policy_scheduler.adapters.kube.config_maps import read_config_map
        from kube_policy_scheduler.cli.policies import SUFFIX
        from kube_policy_scheduler.diagnostics import Source

        reading = read_config_map(self.namespace, self.name, kubeconfig=self.kubeconfig, context=self.context)
        found = asked(reading, about=f"ConfigMap {self.namespace}/{self.name}")
        self._version = found.resource_version
        self.sources = tuple(Source(key, text) for key, text in sorted(found.texts.items()) if key.endswith(SUFFIX))
        if not self.sources:
            raise click.ClickException(f"ConfigMap {self.namespace}/{self.name} has no key that ends with {SUFFIX}")
        use_config_map(f"{self.namespace}/{self.name}")
        return _compiled(self.sources)

    def apply(self, outcome: Outcome) -> bool:
        """Change all keys in one step, unless somebody else changed the ConfigMap since it was read."""
        from kube_policy_scheduler.adapters.kube.config_maps import change_config_map

        texts: dict[str, str | None] = {source.name: source.text for source in outcome.changed}
        texts |= {source.name: None for source in outcome.removed}
        change = change_config_map(
            self.namespace,
            self.name,
            texts=texts,
            binaries={},
            resource_version=self._version,
            kubeconfig=self.kubeconfig,
            context=self.context,
        )
        asked(change, about=f"ConfigMap {self.namespace}/{self.name}")
        return True

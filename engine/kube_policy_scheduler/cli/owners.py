"""`--config` and `--owner`: policies of several owners for the commands, with what the administrator allows each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kube_policy_scheduler.cli.terminal import say
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.wording import plural

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.owner import Owner

_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])
_CONFIG, _OWNER, _OWNERS = (f"{__name__}.{word}" for word in ("config", "owner", "owners"))


def owner_options(command: _CommandT) -> _CommandT:
    """Add `--config` and `--owner`; `owners` returns what they say."""
    for option in (
        click.option(
            "--owner", metavar="NAME", expose_value=False, callback=_kept(_OWNER), shell_complete=_complete_owner,
            help="Owner of the policies; requires --config.  [default: the owner whose `path` contains them, or the"
            " administrator]",
        ),
        click.option(
            "--config", type=click.Path(path_type=Path), metavar="FILE", expose_value=False,
            callback=_kept(_CONFIG), is_eager=True,
            help="Configuration of the scheduler: check the policies of each owner against what it allows, and add"
            " the policies of the other owners, if their paths exist here.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def _kept(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        context.meta[key] = value

    return keep


def _complete_owner(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the owners in the configuration that the command line names before."""
    from kube_policy_scheduler.documents.owner_settings import read_shared
    from kube_policy_scheduler.documents.yaml_document import DocumentError

    config = context.meta.get(_CONFIG)
    try:
        names = [each.name for each in read_shared(config)[1].owners] if config is not None else []
    except DocumentError:
        return []
    return [name for name in names if name.startswith(incomplete)]


@dataclass(frozen=True, slots=True)
class Part:
    """The policies of one owner."""

    owner: Owner | None
    """None: the administrator."""
    sources: tuple[Source, ...]
    given: bool
    """Whether they are what the command is about, not only what applies beside it."""

    @property
    def name(self) -> str:
        """Return the owner's name; "": the administrator."""
        return self.owner.name if self.owner is not None else ""


@dataclass(frozen=True)
class Owners:
    """Owners of a configuration."""

    owners: tuple[Owner, ...] = ()
    paths: dict[str, Path] = field(default_factory=dict)
    """Where the policies of each are; "": the administrator's."""
    chosen: str | None = None
    """Whose the given policies are; "": the administrator's; None: see their paths."""
    config_maps: dict[str, str] = field(default_factory=dict)
    """Owners by the `NAMESPACE/NAME` of their ConfigMaps."""
    _left_out: set[str] = field(default_factory=set)

    def owner_of(self, source: Source) -> Owner | None:
        """Return whose a policy is; None: the administrator."""
        if self.chosen is not None:
            return next((owner for owner in self.owners if owner.name == self.chosen), None)
        file = Path(source.name).resolve()
        homes = ((owner, self.paths.get(owner.name)) for owner in self.owners)
        return next((owner for owner, path in homes if path and file.is_relative_to(path.resolve())), None)

    def parts(self, sources: Iterable[Source]) -> list[Part]:
        """Return policies by owner, the administrator's first: those given, and those of the others.

        Raises:
            DocumentError: a file cannot be read.
        """
        given: dict[str, list[Source]] = {}
        for source in sources:
            owner = self.owner_of(source)
            given.setdefault(owner.name if owner is not None else "", []).append(source)
        every = ("", None), *((owner.name, owner) for owner in self.owners)
        return [
            Part(owner, tuple(given[name]) if name in given else self._there(name), name in given)
            for name, owner in every
        ]

    def absent(self, namespace: str, sources: Iterable[Source]) -> list[str]:
        """Return the owners that may govern pods of a namespace, but whose policies are not on this machine."""
        here = {part.name for part in self.parts(sources) if part.sources or part.given}
        return [owner.name for owner in self.owners if owner.name not in here and owner.may_govern(namespace)]

    def left_out(self, part: Part) -> None:
        """Say once that the policies of an owner take no part because of their errors."""
        if part.name not in self._left_out:
            self._left_out.add(part.name)
            whose = f"owner {part.name}" if part.name else "the administrator"
            say(f"policyctl: the policies of {whose} have errors and are left out", err=True)

    def _there(self, name: str) -> tuple[Source, ...]:
        """Return the policies of an owner that the command was not given, where they are on this machine."""
        from kube_policy_scheduler.cli.files import expanded
        from kube_policy_scheduler.documents.yaml_document import read_source

        path = self.paths.get(name)
        if path is None or not path.exists() or (path.is_dir() and not any(path.glob("*.policy"))):
            return ()
        return tuple(read_source(file) for file in expanded([path], suffix=".policy"))


def config_file() -> Path | None:
    """Return the running command's `--config`; None without one."""
    context = click.get_current_context(silent=True)
    found: Path | None = context.meta.get(_CONFIG) if context is not None else None
    return found


def owners() -> Owners | None:
    """Return the owners of the running command's `--config`; None without one.

    Raises:
        click.ClickException: the file has errors.
        click.UsageError: `--owner` without `--config`, or of no owner.
    """
    context, config = click.get_current_context(silent=True), config_file()
    chosen = context.meta.get(_OWNER) if context is not None else None
    if context is None or config is None:
        if chosen is not None:
            raise click.UsageError("--owner requires --config")
        return None
    if _OWNERS not in context.meta:
        context.meta[_OWNERS] = _read(config, chosen)
    found: Owners = context.meta[_OWNERS]
    return found


def use_config_map(name: str) -> None:
    """Let the given policies be those of a ConfigMap, unless `--owner` says whose they are. name: `NAMESPACE/NAME`."""
    found = owners()
    if found is not None and found.chosen is None:
        chosen = found.config_maps.get(name, "")
        click.get_current_context().meta[_OWNERS] = replace(found, chosen=chosen)


def _say_without_value() -> None:
    """Say how often a function of an extension had no value, such as a model that took too long."""
    from kube_policy_scheduler.builtins.environment import extension_failures

    for (function, reason), number in extension_failures().items():
        if number:
            said = "failed" if reason == "failed" else "had no value"
            say(f"policyctl: `{function}` {said} in {plural(number, 'call')}", err=True)


def _read(config: Path, chosen: str | None) -> Owners:
    from kube_policy_scheduler.builtins.environment import install_extensions
    from kube_policy_scheduler.builtins.extensions import ExtensionError
    from kube_policy_scheduler.documents.owner_settings import owner_of, read_shared, scope_problems
    from kube_policy_scheduler.documents.yaml_document import DocumentError
    from kube_policy_scheduler.policy.policy_set import scope_problem

    try:
        document, shared = read_shared(config)
        install_extensions(shared.extensions, stopwatch=None)
        click.get_current_context().call_on_close(_say_without_value)
        own, settings = shared.path, shared.owners
        if problems := tuple(scope_problems(document, settings, scope_problem)):
            raise DocumentError(problems)
    except ExtensionError as error:
        raise click.ClickException(f"{config}: {error}") from error
    found = tuple(owner_of(each, owners=len(settings)) for each in settings)
    names = [owner.name for owner in found]
    if chosen is not None and chosen not in names:
        listed = ", ".join(names) or "none"
        raise click.UsageError(f"--owner: {config} has no owner {chosen}; the owners are: {listed}")
    paths = {each.name: each.path for each in settings if each.path is not None}
    config_maps = {each.config_map: each.name for each in settings if each.config_map is not None}
    return Owners(found, paths | ({"": own} if own is not None else {}), chosen, config_maps)

"""The options `--kubernetes` and `--feature-gates`: by which Kubernetes a command decides."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kube_policy_scheduler.kubernetes_rules import (
    NEWEST,
    OLDEST,
    KubernetesChoice,
    KubernetesRules,
    KubernetesVersion,
    VersionError,
    parse_gates,
)

_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


class _Version(click.ParamType[KubernetesVersion]):
    name = "VERSION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> KubernetesVersion:
        try:
            return KubernetesVersion.parse(str(value))
        except VersionError as error:
            self.fail(str(error), param, ctx)


class _Gates(click.ParamType[str]):
    name = "GATES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parse_gates(str(value))
        except VersionError as error:
            self.fail(str(error), param, ctx)
        return str(value)


def kubernetes_option(default: str) -> Callable[[_CommandT], _CommandT]:
    """Add `--kubernetes` and `--feature-gates`, together as `kubernetes`: a KubernetesChoice.

    default: where the version comes from without the first.
    """

    def add(command: _CommandT) -> _CommandT:
        @functools.wraps(command)
        def run(
            *args: Any, kubernetes: KubernetesVersion | None, feature_gates: tuple[str, ...], **options: Any
        ) -> Any:
            return command(*args, kubernetes=_choice(kubernetes, feature_gates), **options)

        version_text = f"Apply the rules of this version of Kubernetes, 1.{OLDEST} to 1.{NEWEST}. Default: {default}."
        gates_text = (
            "Feature gates that you enable or disable in your kube-scheduler, such as `A=true,B=false`. May be"
            " repeated."
        )
        made: Any = click.option("--feature-gates", type=_Gates(), multiple=True, metavar="GATES", help=gates_text)(run)
        made = click.option("--kubernetes", type=_Version(), metavar="VERSION", help=version_text)(made)
        result: _CommandT = made
        return result

    return add


def _choice(version: KubernetesVersion | None, gates: tuple[str, ...]) -> KubernetesChoice:
    try:
        chosen = KubernetesChoice(version, parse_gates(",".join(gates)) if gates else {})
        if version is not None:
            chosen.rules(lambda: KubernetesRules(version))
    except VersionError as error:
        raise click.UsageError(f"--feature-gates: {error}") from error
    return chosen


def chosen_rules(choice: KubernetesChoice, otherwise: Callable[[], KubernetesRules]) -> KubernetesRules:
    """Return the rules that options choose; otherwise: returns those where they say no version.

    Raises:
        click.UsageError: a gate cannot be switched in the version.
    """
    try:
        return choice.rules(otherwise)
    except VersionError as error:
        raise click.UsageError(f"--feature-gates: {error}") from error

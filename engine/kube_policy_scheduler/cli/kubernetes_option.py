"""The option `--kubernetes`: by which Kubernetes a command decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kube_policy_scheduler.kubernetes_rules import NEWEST, OLDEST, KubernetesRules, KubernetesVersion, VersionError

_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


class _Rules(click.ParamType[KubernetesRules]):
    name = "VERSION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> KubernetesRules:
        if isinstance(value, KubernetesRules):
            return value
        try:
            return KubernetesRules(KubernetesVersion.parse(str(value)))
        except VersionError as error:
            self.fail(str(error), param, ctx)


def kubernetes_option(default: str) -> Callable[[_CommandT], _CommandT]:
    """Add `--kubernetes` (as `kubernetes`): rules, or None. default: where the version comes from without it."""
    help_text = f"Decide by the rules of this version of Kubernetes, 1.{OLDEST} to 1.{NEWEST}. Default: {default}."
    return click.option("--kubernetes", type=_Rules(), metavar="VERSION", help=help_text)

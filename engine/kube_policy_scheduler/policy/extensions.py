"""Functions of installed packages, for processes that know the builtins only through policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kube_policy_scheduler.builtins import environment
from kube_policy_scheduler.builtins.extensions import ExtensionError

__all__ = ["ExtensionError", "install_extensions"]


def install_extensions(names: Sequence[str], *, stopwatch: Callable[[], float]) -> None:
    """As `builtins.environment.install_extensions`."""
    environment.install_extensions(names, stopwatch=stopwatch)

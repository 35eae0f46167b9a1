"""A case that was found, and what it is there for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from kube_policy_scheduler.tooling.coverage.sites import ClauseSites, Outcome
from kube_policy_scheduler.tooling.first_test.scene import CaseForm
from kube_policy_scheduler.tooling.first_test.values import World

Goal: TypeAlias = tuple[Any, Outcome | None]
"""A site's key and an outcome; or a clause's span and None: that it has a say."""


@dataclass(frozen=True, slots=True)
class Witness:
    """A case, and which outcomes it is there for."""

    world: World
    form: CaseForm
    clause: ClauseSites
    """The one that it is about."""
    goals: tuple[Goal, ...]
    notices: str = ""
    """Which change of the policy no other case would notice, "" where the case is there for its goals."""

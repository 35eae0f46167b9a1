"""By which Kubernetes pods are decided: what the API server says it is, or what the configuration says.

An API server that is upgraded is noticed. What is kept of decisions, and what pods count for, follows from the rules,
so the process then ends, and a new one starts afresh by the new rules.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from kube_policy_scheduler.adapters.kube.errors import KubeError, Unreachable
from kube_policy_scheduler.daemon.configuration.settings import KubernetesSettings
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules, KubernetesVersion

logger = logging.getLogger(__name__)

FIRST_ANSWER_SECONDS = 5.0
"""A start waits so long for the version; the lists come meanwhile, and nothing is decided before them."""
ASK_SECONDS = 60.0
OUT_OF_REACH_SECONDS = 1.0
"""From one question to the next while no server has been reached: what is assumed should not last."""
AGREEING_ANSWERS = 3
"""This many answers in a row must say other rules: while a control plane is upgraded, its API servers differ."""


class RulesInForce(msgspec.Struct, frozen=True):
    """The rules, and who says them."""

    rules: KubernetesRules
    source: str
    """For people: `from the API server`, `from the configuration`, or why they are assumed."""

    def __str__(self) -> str:
        return f"{self.rules}, {self.source}"


ASSUMED = RulesInForce(DEFAULT_RULES, "assumed, as the API server did not say its version")


class VersionWatch:
    """Asks the API server for its version."""

    def __init__(self, settings: KubernetesSettings, *, ask: Callable[[], Awaitable[KubernetesVersion | None]]) -> None:
        """Ask nothing yet. ask: returns the version of the API server, None where it says none; raises KubeError."""
        self._gates = settings.switched_gates
        self._ask = ask
        self._first: asyncio.Task[KubernetesVersion] | None = None
        said = settings.version
        self._is_out_of_reach = False
        self._said = None if said is None else self._of(KubernetesVersion.parse(said), "from the configuration")
        self.in_force = self._said or ASSUMED
        """Once `first` has returned, what everything is decided by."""
        self._upgrade = ""
        """What the API server says now, while it is not sure that it was upgraded."""

    @property
    def remark(self) -> str:
        """Return by which rules everything is decided, for people, and whether that is about to change."""
        return f"{self.in_force}{self._upgrade}"

    def begin(self) -> None:
        """Ask for the first time; `first` gets the answer."""
        if self._said is None:
            self._first = asyncio.create_task(self._first_answer(), name="kubernetes-version")

    async def end(self) -> None:
        """Stop asking for the first time."""
        if self._first is not None:
            self._first.cancel()
            await asyncio.gather(self._first, return_exceptions=True)

    async def first(self) -> RulesInForce:
        """Return the rules to decide by, once they are known or it takes too long."""
        if self._first is not None:
            try:
                async with asyncio.timeout(FIRST_ANSWER_SECONDS):
                    version = await asyncio.shield(self._first)
                self.in_force = self._of(version, "from the API server")
            except (KubeError, TimeoutError) as error:
                why = str(error) or f"no answer within {FIRST_ANSWER_SECONDS:g} s"
                self._is_out_of_reach = isinstance(error, Unreachable | TimeoutError)
                logger.log(  # that nobody can be reached is warned of elsewhere
                    logging.INFO if isinstance(error, Unreachable) else logging.WARNING,
                    "assuming Kubernetes %s: the API server does not say its version: %s",
                    ASSUMED.rules,
                    why,
                )
        rules = self.in_force.rules
        if not rules.is_known:
            logger.warning("the rules of this version of Kubernetes are not known: using those of %s", rules)
        return self.in_force

    async def run(self) -> str:
        """Ask again from time to time; return what changed, once pods must be decided by other rules."""
        if self._said is not None:
            await asyncio.Event().wait()
        agreeing, last = 0, self.in_force.rules
        while True:
            await asyncio.sleep(OUT_OF_REACH_SECONDS if self._is_out_of_reach else ASK_SECONDS)
            try:
                version = await self._answer()
            except KubeError as error:
                logger.debug("cannot ask for the version of the API server: %s", error)
                self._is_out_of_reach = self._is_out_of_reach and isinstance(error, Unreachable)
                continue
            self._is_out_of_reach = False
            now = self._of(version, "from the API server")
            if now.rules == self.in_force.rules:
                agreeing, self.in_force, self._upgrade = 0, now, ""
                continue
            agreeing = agreeing + 1 if now.rules == last else 1
            last = now.rules
            self._upgrade = (
                f"; the API server now says {version}: after {AGREEING_ANSWERS} such answers, the scheduler starts"
                " again to decide by its rules"
            )
            if agreeing >= AGREEING_ANSWERS or self.in_force is ASSUMED:
                return (
                    f"the API server is of Kubernetes {version} now, and pods were decided by the rules of"
                    f" {self.in_force}; start again to decide by its rules"
                )

    async def _first_answer(self) -> KubernetesVersion:
        return await self._answer()

    async def _answer(self) -> KubernetesVersion:
        version = await self._ask()
        if version is None:
            raise KubeError("its answer names no version of Kubernetes")
        return version

    def _of(self, version: KubernetesVersion, source: str) -> RulesInForce:
        rules = KubernetesRules(version)
        gates = {name: on for name, on in self._gates.items() if rules.may_switch(name)}
        for name in self._gates.keys() - gates.keys():
            logger.warning("feature gate %s cannot be switched in Kubernetes %s: ignoring it", name, version)
        return RulesInForce(KubernetesRules(version, gates), source)

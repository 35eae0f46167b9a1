"""What commands are given to decide with: policies, then a cluster for their scheduler, then metrics that they read.

A command has the options that it needs of these, gets them as one value, and asks that for `inputs` in one step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from kube_policy_scheduler.cli import cluster_sources
from kube_policy_scheduler.cli.extenders import say_not_asked
from kube_policy_scheduler.kubernetes_rules import NOTHING_CHOSEN, KubernetesChoice

if TYPE_CHECKING:
    from kube_policy_scheduler.cluster.signals import Query, Signals
    from kube_policy_scheduler.policy.policy_set import PolicySet
    from kube_policy_scheduler.tooling.decision_record import DecisionRecord
    from kube_policy_scheduler.tooling.rulesets import Ruleset

_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])
_OWN_RULES = "Kubernetes' own rules"


@dataclass(frozen=True, slots=True)
class Inputs:
    """What decides, and about what."""

    ruleset: Ruleset
    cluster: cluster_sources.GivenCluster
    signals: Signals
    """The metrics that the policies read."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the options say that commands share."""

    clusters: tuple[Path, ...] = ()
    kubeconfig: Path | None = None
    context: str | None = None
    policies: tuple[Path, ...] = ()
    metrics: Path | None = None
    prometheus_url: str | None = None
    seed: int = 0
    now: float | None = None
    kubernetes: KubernetesChoice = NOTHING_CHOSEN

    def __post_init__(self) -> None:
        """Check that metrics come from one place.

        Raises:
            click.UsageError: both a file and Prometheus are given.
        """
        if self.metrics is not None and self.prometheus_url is not None:
            raise click.UsageError("use --metrics or --prometheus-url, not both")

    def inputs(self) -> Inputs:
        """Return what decides and about what, and say which metrics have no value.

        Raises:
            DocumentError: a file cannot be read, or the policies have errors.
            click.ClickException: the live cluster cannot be read, or something is empty.
            click.UsageError: options contradict each other.
        """
        ruleset = self.ruleset()
        cluster = self.cluster(scheduler_of(ruleset.policy_set))
        return Inputs(ruleset, cluster, self.signals((ruleset.policy_set,), now=cluster.now))

    def as_recorded(self, record: DecisionRecord) -> Self:
        """Return it with the time and the Kubernetes of a recorded decision, where the options say nothing else.

        Raises:
            click.ClickException: the record says no version of Kubernetes.
        """
        now = record.time if self.now is None else self.now
        return replace(self.by_rules_of((record,)), now=now)

    def by_rules_of(self, records: Iterable[DecisionRecord]) -> Self:
        """Return it with the Kubernetes of recorded decisions, where the options say no version.

        Raises:
            click.ClickException: they say no version of Kubernetes, or different ones.
        """
        if self.kubernetes.version is not None:
            return self
        rules = cluster_sources.rules_of_records(records)
        if rules is None:
            return self
        gates = {**rules.switched, **self.kubernetes.gates}
        return replace(self, kubernetes=KubernetesChoice(rules.version, gates))

    def ruleset(self) -> Ruleset:
        """Return the policies, compiled together; Kubernetes' own rules where there are none.

        Raises:
            DocumentError: a file cannot be read, or they have errors.
        """
        return ruleset_of(self.policies, name=", ".join(str(path) for path in self.policies) or _OWN_RULES)

    def cluster(self, scheduler: str = cluster_sources.DEFAULT_SCHEDULER) -> cluster_sources.GivenCluster:
        """Return the cluster to decide in; see `cluster_at`.

        scheduler: the scheduler name of recorded pods that name none.
        """
        return cluster_sources.cluster_at(
            self.clusters,
            kubeconfig=self.kubeconfig,
            context=self.context,
            now=self.now,
            kubernetes=self.kubernetes,
            scheduler=scheduler,
        )

    def signals(self, policy_sets: Sequence[PolicySet | None], *, now: float) -> Signals:
        """Return the metrics that policies read, and say what is not asked and which have no value."""
        say_not_asked()
        sets = [each for each in policy_sets if each is not None]
        return cluster_sources.signals_of(sets, metrics=self.metrics, prometheus_url=self.prometheus_url, now=now)

    def signals_for(self, queries: tuple[Query, ...], *, now: float) -> Signals:
        """Return the metrics of queries, and say which have no value."""
        return cluster_sources.signals_for(queries, metrics=self.metrics, prometheus_url=self.prometheus_url, now=now)

    def measured(self, policy_set: PolicySet, *, now: float) -> cluster_sources.Measured:
        """Return the metrics that policies read, and why some have no value; without a source there are none.

        Raises:
            DocumentError: the file cannot be read.
        """
        from kube_policy_scheduler.cluster.signals import Signals

        if self.prometheus_url is not None:
            return cluster_sources.measured(self.prometheus_url, policy_set.queries)
        if self.metrics is None:
            return cluster_sources.Measured(Signals.EMPTY, {}, {})
        found = cluster_sources.signals_of([policy_set], metrics=self.metrics, prometheus_url=None, now=now)
        return cluster_sources.Measured(found, {}, {})


def ruleset_of(paths: Sequence[Path], *, name: str) -> Ruleset:
    """Return policies, compiled together; Kubernetes' own rules where there are none.

    Raises:
        DocumentError: a file cannot be read, or they have errors.
    """
    from kube_policy_scheduler.cli.policies import compiled
    from kube_policy_scheduler.tooling.rulesets import Ruleset

    if not paths:
        return Ruleset(name)
    sources = cluster_sources.policies_in(paths)
    return Ruleset(name, compiled(sources), sources)


def scheduler_of(*policy_sets: PolicySet | None) -> str:
    """Return the scheduler that pods mean which name none: the first that the policies serve."""
    served = [name for each in policy_sets if each is not None for name in each.schedulers]
    return min(served, default=cluster_sources.DEFAULT_SCHEDULER)


def with_given(command: _CommandT) -> _CommandT:
    """Hand a command the options that it shares with others as `given`."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> Any:
        shared = {each.name: options.pop(each.name) for each in fields(Given) if each.name in options}
        return command(*args, given=Given(**shared), **options)

    made: Any = run
    result: _CommandT = made
    return result

"""What trained models get and predict, beside what they were trained on and what came of it. Changes nothing.

A sample of the decisions is looked at: for a model that a policy calls, its inputs and its prediction on the chosen
node, as `policyctl dataset` writes them, and the outcome when it is known. Only models with a card are watched
(`lang.model_card`).
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric, Summary
from prometheus_client.registry import Collector, CollectorRegistry

from kube_policy_scheduler.daemon.observing.live_metrics import label_value, series_labels
from kube_policy_scheduler.daemon.observing.metrics import Children
from kube_policy_scheduler.daemon.observing.observers import Decided, Observer
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.environment import Pods
from kube_policy_scheduler.lang.model_card import ModelCard
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.models.calls import ModelCall, model_calls
from kube_policy_scheduler.tooling.models.drift import InputDrift

logger = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
"""At most one decision is looked at in this time, for each model of each policy."""
MOST_PENDING = 1_000
"""Predictions of a model that wait for their outcome; if that comes late, fewer decisions are looked at."""
MOST_INPUTS = 500
"""Of all models together that are watched: a series each, and 200 bytes."""
LATE_SECONDS = 60.0
"""An outcome that nobody could look at for so long, because nothing was decided, is not known."""


class _Predicted(NamedTuple):
    """A prediction whose outcome is not known yet."""

    at: float
    """Unix seconds of the decision."""
    node: str
    value: float


class _Watched:
    """One model of one policy."""

    def __init__(self, call: ModelCall) -> None:
        self.call = call
        self.labels = (call.policy, label_value(call.model))
        self.names = tuple(series_labels(call.names).values())
        self.card: ModelCard | None = None
        """None: it has none, or it is not about these inputs."""
        self._seen: ModelCard | None = None
        self.drifts: tuple[InputDrift, ...] = ()
        self.pending: deque[_Predicted] = deque(maxlen=MOST_PENDING)
        self._looked_at = -math.inf
        """Steady seconds of the last decision that was looked at."""

    @property
    def outcome_seconds(self) -> float:
        """Return the time from a decision to its outcome; 0: the card names none."""
        return self.card.outcome.after_seconds if self.card is not None and self.card.outcome is not None else 0.0

    def take_turn(self, now: float) -> bool:
        """Look at a decision, if it is time to: return whether it is. now: steady seconds."""
        if now - self._looked_at < max(EVERY_SECONDS, self.outcome_seconds / MOST_PENDING):
            return False
        self._looked_at = now
        return True

    def refresh(self) -> None:
        """Take over the card of the version that is in use now; what is known of another version is forgotten."""
        card = self.call.card()
        if card == self._seen:
            return
        self._seen = self.card = card
        self.drifts = ()
        self.pending.clear()
        if card is None:
            return
        if problem := self.call.card_problem(card):
            about = {"policy": self.call.policy, "model": self.call.model, "why": problem}
            logger.warning("a model is not watched", extra=about)
            self.card = None
            return
        self.drifts = tuple(InputDrift(each) for each in card.inputs)

    def look(self, frame: Frame, row: int, now: float) -> None:
        """Count the inputs on a node, and predict; now: Unix seconds."""
        for reader, drift in zip(self.call.inputs, self.drifts, strict=True):
            value = reader.value(frame, row)
            if value is not None:
                drift.add(value, now)
        if self.outcome_seconds:
            predicted = self.call.prediction.value(frame, row)
            if predicted is not None:
                self.pending.append(_Predicted(now, frame.cluster.nodes.names[row], predicted))

    def errors(self, frame: Frame, now: float) -> Iterator[float]:
        """Yield the errors of the predictions whose outcome is known now, without sign."""
        outcome = self.card.outcome if self.card is not None else None
        read = self.call.outcome(outcome.query) if outcome is not None else None
        while outcome is not None and self.pending and now >= self.pending[0].at + outcome.after_seconds:
            predicted = self.pending.popleft()
            row = frame.cluster.nodes.rows.get(predicted.node)
            if read is None or row is None or now > predicted.at + outcome.after_seconds + LATE_SECONDS:
                continue
            query, reader = read
            reading = frame.signals.reading(query)
            if reading is None or reading.evaluated_at <= predicted.at:
                continue
            value = reader.value(frame, row)
            if value is not None:
                yield abs(value - predicted.value)


class ModelWatch(Observer, Collector):
    """Watches the models of the policies in use."""

    def __init__(self, registry: CollectorRegistry, *, pods: Pods, stopwatch: Callable[[], float]) -> None:
        """Make the metrics.

        Args:
            registry: where they are exported.
            pods: of the environment of the policies.
            stopwatch: seconds, never going back.
        """
        self._pods = pods
        self._stopwatch = stopwatch
        self._watched: dict[str, list[_Watched]] = {}
        """By policy."""
        self._errors = Children(
            Summary(
                "policy_scheduler_model_prediction_error",
                "Difference between the prediction of a model and the outcome, without sign, in the unit of the"
                " outcome: of a sample of the decisions.",
                ("policy", "model"),
                registry=registry,
            )
        )
        registry.register(self)

    def use_policies(self, policies: PolicySet) -> None:
        """Note the policies that decide from now on; what is known of a call that stays the same is kept."""
        before = {each.labels: each for watched in self._watched.values() for each in watched}
        watching: dict[str, list[_Watched]] = {}
        inputs = 0
        for policy in policies.policies:
            for call in model_calls(policy, self._pods):
                if call.problem:
                    continue
                inputs += len(call.inputs)
                if inputs > MOST_INPUTS:
                    logger.warning(
                        "models with more than %d inputs in all: this one is not watched",
                        MOST_INPUTS,
                        extra={"policy": call.policy, "model": call.model},
                    )
                    continue
                made = _Watched(call)
                known = before.get(made.labels)
                if known is not None and known.call.names == call.names:
                    known.call = call
                    made = known
                watching.setdefault(policy.name, []).append(made)
        self._watched = watching  # in one step: a scrape may be under way
        labels = {each.labels for watched in self._watched.values() for each in watched}
        self._errors.keep(lambda values: values in labels)

    def on_decided(self, decided: Decided) -> None:
        """Look at the decision, if it is time to, and at the outcomes that are known by now."""
        for watched in self._watched.get(decided.policy or "", ()):
            if not watched.take_turn(self._stopwatch()):
                continue
            watched.refresh()
            for error in watched.errors(decided.frame, decided.at):
                self._errors.of(*watched.labels).observe(error)
            row = decided.frame.cluster.nodes.rows.get(decided.decision.host or "")
            if row is not None and watched.card is not None:
                watched.look(decided.frame, row, decided.at)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values."""
        return self._families()

    def collect(self) -> Iterator[Metric]:
        """Yield what is known now."""
        drift, trained = self._families()
        for watched in (each for every in self._watched.values() for each in every):
            for name, one in zip(watched.names, watched.drifts, strict=False):
                index = one.index()
                if index is not None:
                    drift.add_metric([*watched.labels, name], index)
            if watched.card is not None and watched.card.outcome is not None:
                trained.add_metric(watched.labels, watched.card.outcome.mean_absolute_error)
        yield drift
        yield trained

    def _families(self) -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily(
                "policy_scheduler_model_input_drift",
                "How far the values of a model's input on the chosen nodes are from those of its training, as"
                " population stability index: 0 for the same, above 0.25 for a large change. Values count less the"
                " older they are, half after a day; absent for the first day, and for a model without a card.",
                labels=("policy", "model", "input"),
            ),
            GaugeMetricFamily(
                "policy_scheduler_model_trained_error",
                "Mean difference between the predictions of a model and the outcome on the days that its training did"
                " not see, without sign, as its card says.",
                labels=("policy", "model"),
            ),
        )

"""Trained models that policies call: whether their inputs are what they were trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.model_card import InputCard, ModelCard
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.tooling.cluster_state import waiting
from kube_policy_scheduler.tooling.doctor.findings import Finding, Inspection, Status
from kube_policy_scheduler.tooling.doctor.rules import kinds_of
from kube_policy_scheduler.tooling.models.calls import ModelCall, model_calls
from kube_policy_scheduler.wording import plural

_MANY = 0.05
"""Share of the values outside of the training above which this is a warning."""
_MOST_PODS = 10
"""Kinds of pods whose inputs are looked at, on all nodes."""
_TRAIN_AGAIN = "train the model on newer data"


def model_findings(inspection: Inspection) -> Iterator[Finding]:
    """Look at each model that a policy calls."""
    if inspection.counted is None:
        return
    for policy in inspection.policy_set.policies:
        for call in model_calls(policy, inspection.counted):
            yield from _of_call(inspection, policy, call)


def _of_call(inspection: Inspection, policy: Policy, call: ModelCall) -> Iterator[Finding]:
    def finding(status: Status, text: str, advice: str = "") -> Finding:
        return Finding("models", f"{call.model} of policy {call.policy}", status, text, advice=advice)

    if call.problem:
        yield finding(Status.UNCHECKED, f"its inputs are not watched: {call.problem}")
        return
    card = call.card()
    if card is None:
        advice = "add a card when you train it, as examples/learned/train.py does"
        yield finding(Status.UNCHECKED, "the file has no card: drift and errors are not watched", advice)
        return
    if problem := call.card_problem(card):
        yield finding(Status.PROBLEM, problem, "give the model the inputs that it was trained on, in this order")
        return
    if card.outcome is not None and call.outcome(card.outcome.query) is None:
        text = f"the policy does not read its outcome, `{card.outcome.query}`: errors of predictions are not watched"
        yield finding(Status.WARNING, text, "let the model read this metric as an input")
    pods = list(islice(kinds_of(inspection, inspection.governed[policy.name]), _MOST_PODS))
    if not pods or not inspection.state.cluster.nodes.size:
        what = "the policy governs no pods" if not pods else "the cluster has no nodes"
        yield finding(Status.UNCHECKED, f"its inputs: {what}")
        return
    frames: list[list[FloatArray]] = []
    cluster = inspection.state.cluster
    for pod in pods:
        with waiting(pod, cluster) as (free, _):
            frame = Frame(cluster.templates.pod(free), cluster, inspection.now, signals=inspection.signals)
            frames.append([each.values(frame) for each in call.inputs])
    columns = [np.concatenate(each) for each in zip(*frames, strict=True)]
    outside = [text for each, column in zip(card.inputs, columns, strict=True) if (text := _outside(each, column))]
    for text in outside:
        yield finding(Status.WARNING, text, _TRAIN_AGAIN)
    if not outside:
        yield finding(Status.OK, _within(card, columns))


def _outside(card: InputCard, values: FloatArray) -> str:
    """Say how many values are outside of the training; "" for few or none."""
    known = values[~np.isnan(values)]
    if not known.size:
        return f"input `{card.name}` has no value on any node"
    number = int(((known < card.low) | (known > card.high)).sum())
    if number <= _MANY * known.size:
        return ""
    trained = f"{card.low:.6g} to {card.high:.6g}"
    now = f"{known.min():.6g} to {known.max():.6g}"
    of_all = f"{number} of {plural(known.size, 'value')} on nodes"
    return f"input `{card.name}`: {of_all} are outside of its training, {trained}; they are {now}"


def _within(card: ModelCard, columns: Sequence[FloatArray]) -> str:
    rows = f", on {card.rows:,} decisions" if card.rows else ""
    return f"{plural(len(columns), 'input')} within what it was trained on{rows}"

"""The calls of trained models in policies, each with its card and what evaluates it on one node."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.signals import About, Query
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.compiling.expressions import Compiler, Evaluate
from kube_policy_scheduler.lang.environment import Pods
from kube_policy_scheduler.lang.model_card import ModelCard
from kube_policy_scheduler.lang.types import Shape
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.tooling.dataset.model_inputs import ModelError, inputs_of, models_of
from kube_policy_scheduler.tooling.policy_reads import expressions_of
from kube_policy_scheduler.tooling.why.scores import value_at


class OnNodes:
    """Evaluates a number on nodes."""

    __slots__ = ("_evaluate", "_info")

    def __init__(self, value: typed.Typed, compiler: Compiler) -> None:
        self._evaluate: Evaluate = compiler.compile(value)
        self._info = value.info

    def value(self, frame: Frame, row: int) -> float | None:
        """Return the value that a model gets on a node: what is too large for its numbers is missing.

        Args:
            frame: of a decision.
            row: of the node.
        """
        at_node = msgspec.structs.replace(frame, rows=np.array([row]))
        found = value_at(self._evaluate(at_node), 0, self._info)
        with np.errstate(over="ignore"):
            return float(found) if isinstance(found, float | int) and np.isfinite(np.float32(found)) else None

    def values(self, frame: Frame) -> NDArray[np.float64]:
        """Return `float64[rows]` of a frame, NaN where missing."""
        found = np.asarray(self._evaluate(frame), np.float64)
        return np.broadcast_to(found, (frame.size,))


class ModelCall(msgspec.Struct, frozen=True):
    """What a policy gives a model."""

    policy: str
    model: str
    """The file, as the policy names it."""
    names: tuple[str, ...]
    """Of the inputs, as the policy writes them."""
    inputs: tuple[OnNodes, ...]
    prediction: OnNodes
    problem: str = ""
    """Why its inputs cannot be looked at one node at a time; "" where they can. There are none then."""
    outcomes: tuple[tuple[Query, OnNodes], ...] = ()
    """Metrics of nodes that the policy reads."""
    _call: typed.Apply | None = None

    def card(self) -> ModelCard | None:
        """Return the card of the version of the model that is in use; None: it has none."""
        assert self._call is not None
        card = self._call.builtin.words.card
        return card(*(value for _, value in self._call.constants)) if card is not None else None

    def card_problem(self, card: ModelCard) -> str:
        """Return why a card is not about these inputs; "" where it is."""
        trained = tuple(each.name for each in card.inputs)
        if trained == self.names:
            return ""
        wanted, given = ", ".join(trained), ", ".join(self.names)
        return f"it was trained on {wanted}; the policy gives {given}"

    def outcome(self, promql: str) -> tuple[Query, OnNodes] | None:
        """Return a query, and what reads it on a node; None: the policy does not read it."""
        return next((each for each in self.outcomes if each[0].promql == promql), None)


def model_calls(policy: Policy, pods: Pods) -> Iterator[ModelCall]:
    """Yield the calls of a policy, one for each model.

    pods: of the environment that the policy was checked with.
    """
    compiler = Compiler(pods, policy.profile.devices)
    reads = tuple(_metrics(policy, compiler))
    for model, call in models_of(policy):
        prediction = OnNodes(call, compiler)
        try:
            found = inputs_of([policy], model=model)
        except ModelError as error:
            yield ModelCall(policy.name, model, (), (), prediction, problem=str(error), _call=call)
            continue
        inputs = tuple(OnNodes(value, compiler) for value in found.values)
        yield ModelCall(policy.name, model, found.names, inputs, prediction, outcomes=reads, _call=call)


def _metrics(policy: Policy, compiler: Compiler) -> Iterator[tuple[Query, OnNodes]]:
    """Yield the metrics of nodes that a policy reads, each once."""
    seen: set[str] = set()
    for root in expressions_of(policy):
        for part in typed.below(root):
            match part:
                case typed.Apply(inputs=(Query(about=About.NODES, promql=promql) as query,)) if (
                    part.info.shape is Shape.NODE and not typed.free(part) and promql not in seen
                ):
                    seen.add(promql)
                    yield query, OnNodes(part, compiler)
                case _:
                    pass

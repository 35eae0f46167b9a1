"""A function `model` as one of a trained model, with a card and without a process: the mean of its inputs."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.lang.environment import Environment
from kube_policy_scheduler.lang.model_card import ModelCard
from kube_policy_scheduler.lang.signature import ConstantText, MaybeNumber, Words, builtin
from kube_policy_scheduler.lang.types import Depends, Shape

CARDS: dict[str, ModelCard] = {}
"""By file."""


@builtin(
    shape=Shape.NODE,
    depends=Depends.CLUSTER,
    scores_only=True,
    words=Words(trained=True, card=lambda name: CARDS.get(name)),
)
def model(frame: Any, file: ConstantText, *inputs: MaybeNumber) -> MaybeNumber:
    """Return the mean of the inputs."""
    return np.mean([np.broadcast_to(np.asarray(each, np.float64), (frame.size,)) for each in inputs], axis=0)


def names_with_model() -> Environment:
    """What a policy may name, and `model`."""
    known = environment()
    return msgspec.structs.replace(known, builtins=MappingProxyType({**known.builtins, "model": model}))

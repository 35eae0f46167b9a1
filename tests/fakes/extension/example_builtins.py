"""Functions of an example company for policies."""

from __future__ import annotations

import numpy as np

from kube_policy_scheduler.lang.signature import ConstantText, Number, NumberReader, Text, Truth, builtin


@builtin(bounds=(0.0, 100.0))
def comfort(used: Number, best: Number) -> Number:
    """Return 100 where the used share is the best one, and less the further it is away."""
    return np.clip(100.0 - 100.0 * np.abs(used - best), 0.0, 100.0)


@builtin()
def licensed(name: Text) -> Truth:
    """Return whether a node with this name has a licence."""
    return name.startswith("lic-")


@builtin(staged=True)
def site(name: ConstantText) -> NumberReader:
    """Return the price of a site, the same for all nodes."""
    prices = {"north": 1.0, "south": 2.0}
    if name not in prices:
        raise ValueError(f"there is no site {name}; the sites are {', '.join(prices)}")
    price = prices[name]
    return lambda frame: np.full(frame.size, price)


@builtin()
def broken(x: Number) -> Number:
    """Fail at every call."""
    raise ZeroDivisionError("no such price")


@builtin()
def short(x: Number) -> Number:
    """Return too few values."""
    return np.zeros(1)

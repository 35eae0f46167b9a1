"""How old the values are that an expression reads from Prometheus. Knows no policy language but its compiled parts."""

from __future__ import annotations

from kube_policy_scheduler.builtins.metrics import MetricReader, sample_ages
from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.compiling.compiled import Part


def metric_ages(part: Part, frame: Frame) -> FloatArray | None:
    """Return `float64[rows]`: the age of each node's sample, seconds, NaN where there is none.

    None where the part is no metric by itself, or its query has had no answer yet.
    """
    return sample_ages(part.evaluate.query, frame) if isinstance(part.evaluate, MetricReader) else None

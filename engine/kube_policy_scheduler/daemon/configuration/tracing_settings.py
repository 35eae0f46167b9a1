"""What an operator can set about traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from kube_policy_scheduler.daemon.configuration.setting_types import Url
from kube_policy_scheduler.documents.shape import Shape


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """Attempts to schedule pods as OpenTelemetry traces; needs the extra `tracing`."""

    endpoint: Url
    """Of a collector that takes OTLP over HTTP; without a path, `/v1/traces`. Tokens and certificates are read from
    OpenTelemetry's variables, such as OTEL_EXPORTER_OTLP_HEADERS."""
    sampled_share: Annotated[float, Shape({"minimum": 0, "maximum": 1})] = 0.01
    """Share of the pods that are traced, each with all of its attempts. One takes up to a millisecond, so no more than
    50 a second are sent."""

"""Finished spans to an OpenTelemetry collector, by OTLP over HTTP. The only module that knows OpenTelemetry's SDK.

The SDK comes with the extra `tracing` and is imported when an exporter is made. Spans are sent in batches by a thread
of the SDK; where the collector does not keep up, spans are dropped. Headers (such as a token) and certificates are read
from OpenTelemetry's own variables: `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_CERTIFICATE`, ….
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import msgspec

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

TRACES_PATH = "/v1/traces"
MOST_WAITING_SPANS = 8192
"""In memory until they are sent, about 1 KB each."""
SEND_SECONDS = 5.0
"""For one batch, and for what is left at the end."""

Attributes: TypeAlias = Mapping[str, str | int | float | bool]


class TracingUnavailable(Exception):
    """OpenTelemetry is not installed; the text says what to install."""


class FinishedSpan(msgspec.Struct, frozen=True):
    """Something that took time, with its parts."""

    name: str
    began: float
    """Unix seconds."""
    ended: float
    attributes: Attributes
    children: tuple[FinishedSpan, ...] = ()
    error: str = ""
    """What went wrong; "" where nothing did."""


class SpanExporter:
    """Sends spans; never waits for the network but in `close`."""

    def __init__(self, endpoint: str, *, service: str, instance: str, version: str) -> None:
        """Connect to nothing yet.

        Args:
            endpoint: URL of the collector; without a path, `/v1/traces` is its path.
            service: `service.name` of the spans; `OTEL_RESOURCE_ATTRIBUTES` adds more.
            instance: `service.instance.id`.
            version: `service.version`.

        Raises:
            TracingUnavailable: the SDK is not installed.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ALWAYS_ON
        except ImportError as error:
            from kube_policy_scheduler.installation import command_for  # reads metadata, which a start does without

            raise TracingUnavailable(f"traces need OpenTelemetry: run {command_for('tracing')}") from error
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # it logs an error per batch
        self._ids = _trace_ids()
        resource = Resource.create(
            {"service.name": service, "service.instance.id": instance, "service.version": version}
        )
        self._provider: TracerProvider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, id_generator=self._ids, shutdown_on_exit=False
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                OTLPSpanExporter(endpoint=_with_path(endpoint), timeout=SEND_SECONDS),
                max_queue_size=MOST_WAITING_SPANS,
            )
        )
        self._tracer = self._provider.get_tracer("policy-scheduler", version)

    def send(self, span: FinishedSpan, *, trace: str) -> None:
        """Have a span and its parts sent; returns at once.

        Args:
            span: the outermost one.
            trace: 32 hexadecimal digits; spans with the same are one trace.
        """
        self._ids.next_trace = int(trace, 16)
        self._emit(span, None)

    def _emit(self, span: FinishedSpan, parent: Any) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        # a context of our own: what the process happens to trace has nothing to do with it
        context = Context() if parent is None else set_span_in_context(parent, Context())
        made = self._tracer.start_span(
            span.name, context, attributes=dict(span.attributes), start_time=int(span.began * 1e9)
        )
        for child in span.children:
            self._emit(child, made)
        if span.error:
            made.set_status(Status(StatusCode.ERROR, span.error))
        made.end(end_time=int(max(span.began, span.ended) * 1e9))

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        # the SDK's own pauses between tries may be longer than a pod has to end
        ending = threading.Thread(target=self._provider.shutdown, name="tracing-end", daemon=True)
        ending.start()
        ending.join(SEND_SECONDS)


def _with_path(endpoint: str) -> str:
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + TRACES_PATH


def _trace_ids() -> Any:
    """Return what draws span numbers, and takes trace numbers as they are given."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class TraceIds(RandomIdGenerator):
        next_trace = 0

        def generate_trace_id(self) -> int:
            return self.next_trace or super().generate_trace_id()

    return TraceIds()

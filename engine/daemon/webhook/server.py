"""The validating admission webhook: an HTTPS server that API servers ask before they write a ConfigMap.

What it cannot answer in time it does not answer: then the webhook's `failurePolicy` decides.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from engine.adapters.admission_review import AdmissionRequest, ReviewError, decode_review, encode_answer
from engine.adapters.http_server import Check, HealthChecks, HttpServer
from engine.adapters.loops import Loops
from engine.adapters.serving_certificate import ServingCertificate
from engine.daemon.webhook.admission import Verdict, judge

logger = logging.getLogger(__name__)

PATH = "/validate"
MAX_BODY_BYTES = 8 << 20
"""A ConfigMap has up to 1 MiB; a review holds the old and the new one, as JSON with its escapes."""
ANSWER_SECONDS = 8.0
"""Less than the ten that API servers wait."""
CHECKS_AT_ONCE = 2
"""More would only take each other's time: checking is computing."""

Judge = Callable[[AdmissionRequest], Verdict]


class Webhook:
    """Answers reviews, with its metrics and probes."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        certificate: ServingCertificate,
        judge: Judge = judge,
        ready: Check = lambda: None,
        version: str = "",
        answer_seconds: float = ANSWER_SECONDS,
        loops: Loops | None = None,
    ) -> None:
        """Set up; nothing is opened yet.

        Args:
            host: address to listen at.
            port: 0 takes a free one.
            certificate: that API servers check against their `caBundle`.
            judge: blocking; called in a thread.
            ready: why reviews cannot be expected to arrive yet; None where they can.
            version: of the program, for the metrics.
            answer_seconds: how long a check may take.
            loops: of the process; None: its own.
        """
        self._judge = judge
        self._answer_seconds = answer_seconds
        self._free = asyncio.Semaphore(CHECKS_AT_ONCE)
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        build = Gauge("policy_scheduler_build_info", "The program, always 1", ["version"], registry=registry)
        build.labels(version).set(1)
        self._reviews = Counter(
            "policy_scheduler_admission_reviews",
            "ConfigMaps that were to be written, by result: allowed, refused, not_policies, malformed, too_slow",
            ["result"],
            registry=registry,
        )
        self._seconds = Histogram(
            "policy_scheduler_admission_duration_seconds", "Checking one ConfigMap", registry=registry
        )
        self.http = HttpServer(
            host=host,
            port=port,
            checks=HealthChecks(live={"ping": lambda: None}, ready={"certificate": ready}),
            registry=registry,
            posts={PATH: self._validate},
            certificate=certificate,
            loops=loops,
        )

    async def _validate(self, request: web.Request) -> web.Response:
        body = await _read(request)
        if body is None:
            return self._failed("malformed", 413, f"a review has at most {MAX_BODY_BYTES >> 20} MiB")
        try:
            review = await asyncio.to_thread(decode_review, body)
        except ReviewError as error:
            return self._failed("malformed", 400, str(error))
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._answer_seconds):
                await self._free.acquire()
                checking = asyncio.create_task(asyncio.to_thread(self._judge, review))
                checking.add_done_callback(self._release)
                verdict = await asyncio.shield(checking)
        except TimeoutError:
            return self._failed("too_slow", 503, f"the policies could not be checked in {self._answer_seconds:g} s")
        except Exception:
            logger.exception("checking policies failed in an unforeseen way", extra=_about(review))
            return self._failed("failed", 500, "checking the policies failed; the webhook's log says why")
        self._seconds.observe(time.monotonic() - began)
        self._note(review, verdict)
        answer = encode_answer(review.uid, refusal=verdict.refusal, warnings=verdict.warnings)
        return web.Response(body=answer, content_type="application/json")

    def _release(self, done: asyncio.Task[Verdict]) -> None:
        """Let the next check begin; one that nobody waits for any longer ends here."""
        self._free.release()
        if not done.cancelled():
            done.exception()

    def _note(self, review: AdmissionRequest, verdict: Verdict) -> None:
        if not verdict.concerns_us:
            self._reviews.labels("not_policies").inc()
            return
        result = "allowed" if verdict.refusal is None else "refused"
        self._reviews.labels(result).inc()
        logger.info("policies %s", result, extra={**_about(review), "hash": verdict.hash})

    def _failed(self, result: str, status: int, text: str) -> web.Response:
        self._reviews.labels(result).inc()
        return web.Response(status=status, text=f"{text}\n")


def _about(review: AdmissionRequest) -> dict[str, str]:
    return {"namespace": review.namespace, "configMap": review.name, "user": review.user}


async def _read(request: web.Request) -> bytes | None:
    """Return the body, None where it is too large."""
    if (request.content_length or 0) > MAX_BODY_BYTES:
        return None
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            return None
    return bytes(body)

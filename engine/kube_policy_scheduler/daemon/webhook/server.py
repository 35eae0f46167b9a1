"""The validating admission webhook: an HTTPS server that API servers ask before they write a ConfigMap.

What it cannot answer in time it does not answer: then the webhook's `failurePolicy` decides.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from kube_policy_scheduler.adapters.http.health_checks import Check, HealthChecks
from kube_policy_scheduler.adapters.http.port import HttpPort
from kube_policy_scheduler.adapters.http.server import HttpServer, Routes, Scrapes
from kube_policy_scheduler.adapters.process.loops import Loops
from kube_policy_scheduler.adapters.process.worker_process import WorkerExceeded, WorkerLate, WorkerLost
from kube_policy_scheduler.adapters.tls.serving_certificate import ServingCertificate
from kube_policy_scheduler.daemon.webhook.bodies import Bodies, TooLarge, TooMany
from kube_policy_scheduler.daemon.webhook.review_checker import ReviewChecker, ReviewResult

logger = logging.getLogger(__name__)

PATH = "/validate"
ANSWER_SECONDS = 8.0
"""From the request to its answer; less than the ten that API servers wait."""
CHECKS_AT_ONCE = 2
"""Processes. More would only take each other's time: checking is computing."""
RETRY_SECONDS = 5.0
"""After a process that could not be started."""


class Webhook:
    """Answers reviews, with its metrics and probes."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        certificate: ServingCertificate,
        checkers: Sequence[ReviewChecker],
        ready: Check = lambda: None,
        version: str = "",
        answer_seconds: float = ANSWER_SECONDS,
        bodies: Bodies | None = None,
        loops: Loops | None = None,
    ) -> None:
        """Set up; nothing is opened yet.

        Args:
            host: address to listen at.
            port: 0 takes a free one.
            certificate: that API servers check against their `caBundle`.
            checkers: each checks one review at a time; those that wait take the next that is free.
            ready: why reviews cannot be expected to arrive yet; None where they can.
            version: of the program, for the metrics.
            answer_seconds: how long a request may take.
            bodies: of the requests; None: bounded as usual.
            loops: of the process; None: its own.
        """
        self._checkers = checkers
        self._answer_seconds = answer_seconds
        self._bodies = bodies or Bodies()
        self._free: asyncio.LifoQueue[ReviewChecker] = asyncio.LifoQueue()
        """Those whose process is there and has nothing to do; the one that was used last comes first."""
        self._starting: set[asyncio.Task[None]] = set()
        self._has_started = self._is_stopping = False
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        build = Gauge(
            "policy_scheduler_build_info", "Version of the scheduler; always 1", ["version"], registry=registry
        )
        build.labels(version).set(1)
        self._reviews = Counter(
            "policy_scheduler_admission_reviews",
            "ConfigMaps and SchedulingPolicies that were to be written, by result: allowed, refused, not_policies,"
            " malformed, too_large, too_many, too_slow, exceeded, failed",
            ["result"],
            registry=registry,
        )
        self._seconds = Histogram(
            "policy_scheduler_admission_duration_seconds", "Checking one of them", registry=registry
        )
        self.http = HttpServer(
            port=HttpPort(host, port),
            checks=HealthChecks(
                live={"ping": lambda: None}, ready={"certificate": ready, "checker": self._not_started}
            ),
            scrapes=Scrapes(registry),
            routes=Routes(posts={PATH: self._validate}),
            certificate=certificate,
            loops=loops,
        )

    async def __aenter__(self) -> Webhook:
        """Listen, and start the processes.

        Raises:
            ServerError: the address is taken or not ours.
        """
        await self.http.__aenter__()
        for checker in self._checkers:
            self._start(checker)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening, and end the processes."""
        self._is_stopping = True
        await self.http.__aexit__()
        for starting in self._starting:
            starting.cancel()
        for checker in self._checkers:
            checker.stop()

    def _start(self, checker: ReviewChecker) -> None:
        """Have a checker take reviews once its process is there."""

        async def started() -> None:
            while True:
                try:
                    await asyncio.to_thread(checker.start)
                    break
                except (WorkerExceeded, WorkerLost) as error:
                    logger.error("cannot start the process that checks policies: %s", error)
                    await asyncio.sleep(RETRY_SECONDS)
            self._has_started = True
            self._free.put_nowait(checker)

        task = asyncio.create_task(started(), name="start-review-checker")
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    def _not_started(self) -> str | None:
        return None if self._has_started else "the process that checks policies has not started yet"

    async def _validate(self, request: web.Request) -> web.Response:
        began = time.monotonic()
        try:
            reviewed = await self._reviewed(request)
        except TooLarge as error:
            return self._failed("too_large", 413, str(error))
        except TooMany as error:
            return self._failed("too_many", 503, str(error))
        except (TimeoutError, WorkerLate):
            return self._failed("too_slow", 503, f"the policies could not be checked in {self._answer_seconds:g} s")
        except WorkerExceeded as error:
            logger.warning("checking policies takes too much: %s", error)
            said = f"checking these policies takes too much: {error}; split or remove large policies"
            return self._failed("exceeded", 503, said)
        except Exception as error:
            if isinstance(error, WorkerLost):
                logger.error("the process that checks policies died: %s", error)
            else:
                logger.exception("unexpected error while checking policies")
            return self._failed("failed", 500, "failed to check the policies; see the log of the webhook")
        self._reviews.labels(reviewed.result).inc()
        if reviewed.result == "malformed":
            return web.Response(status=400, text=f"{reviewed.problem}\n")
        self._seconds.observe(time.monotonic() - began)
        if reviewed.result != "not_policies":
            logger.info("policies %s", reviewed.result, extra=reviewed.about)
        return web.Response(body=reviewed.answer, content_type="application/json")

    async def _reviewed(self, request: web.Request) -> ReviewResult:
        async with self._bodies.one(self._answer_seconds) as body:
            await body.read(request)
            checker = await self._free.get()
            content = body.taken()
            seconds = body.deadline - asyncio.get_running_loop().time()
            checking = asyncio.create_task(asyncio.to_thread(checker.check, content, seconds))
            checking.add_done_callback(partial(self._release, checker))
            return await asyncio.shield(checking)

    def _release(self, checker: ReviewChecker, done: asyncio.Task[ReviewResult]) -> None:
        """Let the next check begin, after one that killed its process in a new one."""
        if done.cancelled() or done.exception() is not None:
            if not self._is_stopping:
                self._start(checker)
        else:
            self._free.put_nowait(checker)

    def _failed(self, result: str, status: int, text: str) -> web.Response:
        self._reviews.labels(result).inc()
        return web.Response(status=status, text=f"{text}\n")

"""What a daemon has besides where it places no pods: a shadow's report, an extender's routes, an estimator's port."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, assert_never

import msgspec

from kube_policy_scheduler.adapters.http.port import ServerError
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.daemon.configuration.settings import Settings
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.scheduling.context import Binder, SchedulerContext
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.loopback import is_loopback

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.http.server import Handler
    from kube_policy_scheduler.daemon.modes.shadow_report import ShadowReport


logger = logging.getLogger(__name__)


class Mode(msgspec.Struct, frozen=True):
    """What a mode adds to the port, and who looks on."""

    routes: Mapping[str, Handler] = msgspec.field(default_factory=dict)
    posts: Mapping[str, Handler] = msgspec.field(default_factory=dict)
    observers: tuple[Observer, ...] = ()
    shadow: ShadowReport | None = None
    port: AbstractAsyncContextManager[object] | None = None
    """A port of its own."""


def make_scheduler(settings: Settings, context: SchedulerContext, *, leading: bool) -> Scheduler:
    """Return the scheduler of a mode; arguments as of `Scheduler`."""
    if settings.mode != "shadow":
        return Scheduler(context, leading=leading)
    from kube_policy_scheduler.daemon.modes.shadow import ShadowScheduler

    return ShadowScheduler(context, leading=leading, give_up_seconds=settings.shadow.give_up_after)


def make_mode(
    settings: Settings,
    *,
    scheduler: Scheduler,
    binder: Binder,
    transport: Transport,
    metrics: SchedulerMetrics,
    observer: Observer,
    problem: Callable[[], str | None],
) -> Mode:
    """Return what the mode of the settings adds.

    Args:
        settings: of the daemon.
        scheduler: as `make_scheduler` made it.
        binder: binds for an extender.
        transport: to the API server.
        metrics: of the daemon.
        observer: receives what an extender answers.
        problem: why nothing may be decided at present, None where it may.

    Raises:
        ServerError: a port of the mode cannot be served as the settings say.
        CertificateError: there is no certificate to serve it with.
    """
    match settings.mode:
        case "scheduler":
            return Mode()
        case "shadow":
            from kube_policy_scheduler.daemon.modes.shadow_report import ShadowReport
            from kube_policy_scheduler.daemon.modes.shadow_routes import shadow_routes

            names = settings.shadow.scheduler_names
            report = ShadowReport(metrics.shadow, kept=settings.shadow.kept, clock=time.time, names=names)
            return Mode(shadow_routes(report), observers=(report,), shadow=report)
        case "extender":
            from kube_policy_scheduler.daemon.modes.extender import Extender
            from kube_policy_scheduler.daemon.modes.extender_routes import ExtenderRoutes

            asked = settings.extender
            extender = Extender(
                scheduler,
                binder=binder,
                problem=problem,
                metrics=metrics.extender,
                observer=observer,
                stopwatch=time.perf_counter,
                kubernetes_rules=asked.kubernetes_rules,
            )
            routes = ExtenderRoutes(
                extender,
                metrics=metrics.extender,
                max_bytes=asked.max_request_mebibytes * 2**20,
                binds=knows_clients(settings),
            )
            return Mode(posts=routes.handlers(asked.path))
        case "estimator":
            return Mode(port=_estimator_port(settings, scheduler, transport, metrics, problem))
        case _:
            assert_never(settings.mode)


def _estimator_port(
    settings: Settings,
    scheduler: Scheduler,
    transport: Transport,
    metrics: SchedulerMetrics,
    problem: Callable[[], str | None],
) -> AbstractAsyncContextManager[object]:
    from kube_policy_scheduler.adapters.grpc.available import require_grpc

    asked = settings.estimator
    if asked.cluster_name is None:
        raise ServerError("mode estimator needs `estimator.clusterName`: set the name of this cluster in Karmada")
    require_grpc()
    from kube_policy_scheduler.adapters.grpc.estimator_server import EstimatorServer
    from kube_policy_scheduler.adapters.grpc.grpc_tls import Renewed, TlsFiles
    from kube_policy_scheduler.daemon.modes.estimated_pods import PodTemplates
    from kube_policy_scheduler.daemon.modes.estimator import Estimator
    from kube_policy_scheduler.daemon.modes.pods_without_node import PodsWithoutNode

    def why_not() -> str | None:
        return problem() or (None if scheduler.view() else "the cache is not current: the API server does not answer")

    estimator = Estimator(
        scheduler,
        cluster_name=asked.cluster_name,
        scheduler_name=settings.scheduler_names[0],
        templates=PodTemplates(transport),
        problem=why_not,
        metrics=metrics.estimator,
        stopwatch=time.monotonic,
        most_seconds=asked.computation,
    )
    files = TlsFiles(asked.certificate_file, asked.key_file, asked.client_ca_file)
    certificates = Renewed(files) if files.certificate is not None else None
    if certificates is None and not is_loopback(asked.host):
        logger.warning("the port of the estimator is not encrypted, and everybody who can connect may ask")
    pods = PodsWithoutNode(transport, cluster_name=asked.cluster_name, metrics=metrics.estimator)
    return EstimatorServer(estimator, pods, host=asked.host, port=asked.port, certificates=certificates)


def knows_clients(settings: Settings) -> bool:
    """Return whether those who reach the verbs are known, or are on this machine."""
    http = settings.http
    has_authority = http.tls is not None and http.tls.client_ca_file is not None
    return has_authority or http.authentication != "none" or is_loopback(http.host)

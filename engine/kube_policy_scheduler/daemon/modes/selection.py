"""What a daemon has besides where another scheduler places the pods: a shadow's report, an extender's routes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, assert_never

import msgspec

from kube_policy_scheduler.daemon.configuration.settings import Settings
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.scheduling.context import Binder, SchedulerContext
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.loopback import is_loopback

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.http.server import Handler
    from kube_policy_scheduler.daemon.modes.shadow_report import ShadowReport


class Mode(msgspec.Struct, frozen=True):
    """What a mode adds to the port, and who looks on."""

    routes: Mapping[str, Handler] = msgspec.field(default_factory=dict)
    posts: Mapping[str, Handler] = msgspec.field(default_factory=dict)
    observers: tuple[Observer, ...] = ()
    shadow: ShadowReport | None = None


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
    metrics: SchedulerMetrics,
    observer: Observer,
    problem: Callable[[], str | None],
) -> Mode:
    """Return what the mode of the settings adds.

    Args:
        settings: of the daemon.
        scheduler: as `make_scheduler` made it.
        binder: binds for an extender.
        metrics: of the daemon.
        observer: receives what an extender answers.
        problem: why nothing may be decided at present, None where it may.
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
        case _:
            assert_never(settings.mode)


def knows_clients(settings: Settings) -> bool:
    """Return whether those who reach the verbs are known, or are on this machine."""
    http = settings.http
    has_authority = http.tls is not None and http.tls.client_ca_file is not None
    return has_authority or http.authentication != "none" or is_loopback(http.host)

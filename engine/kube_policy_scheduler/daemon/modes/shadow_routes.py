"""What a shadow has found, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from kube_policy_scheduler.adapters.http import parameters
from kube_policy_scheduler.adapters.http.server import Handler
from kube_policy_scheduler.daemon.modes.shadow_report import ComparisonReport


def shadow_routes(report: ComparisonReport) -> Mapping[str, Handler]:
    """Return the handlers by path."""

    async def show(request: web.Request) -> web.Response:
        return web.json_response({**report.summary(), "last": report.last(parameters.limit(request))})

    return {"/debug/shadow": show}

"""What a shadow has found, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from kube_policy_scheduler.adapters.http.server import Handler
from kube_policy_scheduler.daemon.modes.shadow_report import ComparisonReport

DEFAULT_LIMIT = 100


def shadow_routes(report: ComparisonReport) -> Mapping[str, Handler]:
    """Return the handlers by path."""

    async def show(request: web.Request) -> web.Response:
        limit = request.query.get("limit", str(DEFAULT_LIMIT))
        if not limit.isascii() or not limit.isdecimal() or len(limit) > 7:
            return web.Response(status=400, text=f"expected limit to be a number such as 100, got {limit[:40]}\n")
        return web.json_response({**report.summary(), "last": report.last(int(limit))})

    return {"/debug/shadow": show}

"""What a fleet's daemon answers over HTTP about its decisions: those of before, and those it would make now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any

from aiohttp import web

from kube_policy_scheduler.daemon.fleet.engine import Shown
from kube_policy_scheduler.daemon.fleet.fleet_records import FleetRecords
from kube_policy_scheduler.daemon.policies.reload import PolicyReloader
from kube_policy_scheduler.daemon.serving.server import (
    DEFAULT_LIMIT,
    JSON_LINES,
    MOST_ANSWER_BYTES,
    policies_in_force,
    wrong,
)
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.tooling.decision_record import encode
from kube_policy_scheduler.tooling.workload_record import WorkloadOutcome


class FleetRoutes:
    """The answers."""

    def __init__(self, records: FleetRecords, *, reloader: PolicyReloader[FleetPolicies] | None) -> None:
        self._records = records
        self._reloader = reloader

    @staticmethod
    def now(shown: Shown) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Return what answers what would be decided about an object now: `?namespace=shop&name=web-deployment`."""

        async def answer(request: web.Request) -> web.Response:
            unknown = sorted(request.query.keys() - {"namespace", "name"})
            if unknown:
                return wrong(f"unknown parameter {unknown[0]}; the parameters are: namespace, name")
            found = shown((request.query.get("namespace", ""), request.query.get("name", "")))
            if found is None:
                return web.Response(status=404, text="nothing that is decided here has this namespace and name\n")
            return web.json_response(found)

        return answer

    async def policies(self, _: web.Request) -> web.Response:
        """Answer which policies are active, and what became of the newest."""
        if self._reloader is None:
            return web.Response(status=404, text="there is no folder of policies: what users ask for alone decides\n")
        return web.json_response(policies_in_force(self._reloader))

    async def decisions(self, request: web.Request) -> web.Response:
        """Answer the newest decisions, oldest first: `?workload=shop/web&cluster=berlin&outcome=placed&limit=10`."""
        wanted: dict[str, Any] = {name: request.query.get(name, "") for name in ("workload", "cluster", "outcome")}
        outcomes = [outcome.value for outcome in WorkloadOutcome]
        unknown = sorted(request.query.keys() - {*wanted, "limit"})
        if unknown:
            return wrong(f"unknown parameter {unknown[0]}; the parameters are: {', '.join(wanted)}, limit")
        if wanted["outcome"] and wanted["outcome"] not in outcomes:
            return wrong(f"expected outcome to be one of {', '.join(outcomes)}, got {wanted['outcome'][:40]}")
        limit = request.query.get("limit", str(DEFAULT_LIMIT))
        if not limit.isascii() or not limit.isdecimal() or len(limit) > 7:
            return wrong(f"expected limit to be a number such as 100, got {limit[:40]}")
        body = await self._records.spare_time.run(self._lines(wanted, int(limit)))
        return web.Response(body=body, content_type=JSON_LINES)

    def _lines(self, wanted: Mapping[str, str], limit: int) -> Generator[None, None, bytes]:
        """Return the newest decisions that are wanted, oldest first; no more of them than fit an answer."""
        lines: list[bytes] = []
        room = MOST_ANSWER_BYTES
        for record in (yield from self._records.log.select(**wanted, limit=limit)):
            line = encode(record)
            room -= len(line)
            if room < 0:
                break
            lines.append(line)
            yield
        return b"".join(reversed(lines))

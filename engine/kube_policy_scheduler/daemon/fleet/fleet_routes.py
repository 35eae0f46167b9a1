"""What a fleet's daemon answers over HTTP about its decisions: those of before, and those it would make now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping

from aiohttp import web

from kube_policy_scheduler.adapters.http import parameters
from kube_policy_scheduler.daemon.fleet.engine import Shown
from kube_policy_scheduler.daemon.fleet.fleet_records import FleetRecords
from kube_policy_scheduler.daemon.policies.reload import PolicyReloader
from kube_policy_scheduler.daemon.serving.server import policies_in_force
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
            asked = parameters.texts(request, ("namespace", "name"))
            found = shown((asked["namespace"], asked["name"]))
            if found is None:
                return web.Response(status=404, text="this scheduler decides no object with this namespace and name\n")
            return web.json_response(found)

        return answer

    async def policies(self, _: web.Request) -> web.Response:
        """Answer which policies are active, and what became of the newest."""
        if self._reloader is None:
            return web.Response(status=404, text="there is no folder of policies: only what users request applies\n")
        return web.json_response(policies_in_force(self._reloader))

    async def decisions(self, request: web.Request) -> web.Response:
        """Answer the newest decisions, oldest first: `?workload=shop/web&cluster=berlin&outcome=placed&limit=10`."""
        outcomes = (outcome.value for outcome in WorkloadOutcome)
        wanted, limit = parameters.selection(request, ("workload", "cluster"), outcomes=outcomes)
        body = await self._records.spare_time.run(self._lines(wanted, limit))
        return web.Response(body=body, content_type=parameters.JSON_LINES)

    def _lines(self, wanted: Mapping[str, str], limit: int) -> Generator[None, None, bytes]:
        found = yield from self._records.log.select(**wanted, limit=limit)
        return (yield from parameters.last_lines(map(encode, found)))

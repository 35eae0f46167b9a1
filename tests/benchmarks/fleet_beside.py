"""`python -m tests.benchmarks.fleet_beside`: bindings decided per second and their CPU, beside karmada-scheduler.

One control plane has 500 clusters. For each scheduler in turn, bindings that ask for it are created; then it is started
and decides them all, with its writes and events. The time and the CPU time of its process count from the first binding
that has its condition to the last one. Both schedulers get the same bindings. KUBEBUILDER_ASSETS and KARMADA_ASSETS
name their programs; karmada-scheduler may send 5,000 requests a second instead of its 40.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.benchmarks.end_to_end.api import Api, together
from tests.benchmarks.end_to_end.processes import Process, Scene, end_in_order, running, scene
from tests.benchmarks.fleet import CLUSTERS, Json, written_binding, written_cluster
from tests.integration.karmada import KINDS, NAMESPACE, definition_of
from tests.integration.karmada_programs import assets, karmada_scheduler_command

SCHEDULERS = {"ours": "fleet", "karmada": "default-scheduler"}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP_CLUSTERS = "/apis/cluster.karmada.io/v1alpha1/clusters"
BINDINGS = f"/apis/work.karmada.io/v1alpha2/namespaces/{NAMESPACE}/resourcebindings"
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
AT_A_TIME = 500
"""Objects that are deleted by one request: it answers with all of them."""
MERGE = "application/merge-patch+json"
IS_DECIDED = b'"type":"Scheduled"'
NAME = re.compile(rb'"name":"([^"]+)"')
PATIENCE_SECONDS = 1800.0
SERVED_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Run:
    """What one scheduler did."""

    scheduler: str
    bindings: int
    per_second: float
    cpu_ms: float
    """Of its process, per binding."""
    rss_mb: float
    load_average: float
    reasons: dict[str, int]


@contextlib.contextmanager
def scheduler(kind: str, there: Scene) -> Iterator[Process]:
    """Run a scheduler of bindings, and end it by its process id."""
    ours = [
        *(sys.executable, "-m", "kube_policy_scheduler.daemon", "fleet", f"--kubeconfig={there.kubeconfig}"),
        *(f"--scheduler-name={SCHEDULERS['ours']}", "--no-leader-election", "--http-address=127.0.0.1:0"),
    ]
    command = ours if kind == "ours" else karmada_scheduler_command(there.kubeconfig)
    log = there.directory / f"{kind}.log"
    with running(command, log) as process:
        yield process


async def prepare(api: Api) -> None:
    """Have the API server serve Karmada's resources, and make the clusters."""
    for group, version, plural, kind, scope in KINDS:
        await api.send("POST", DEFINITIONS, definition_of(group, version, plural, kind, scope))
    for path in (GROUP_CLUSTERS, BINDINGS):
        await _served(api, path)
    for name in (NAMESPACE, "karmada-system"):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await api.send("POST", "/api/v1/namespaces", body)
    await together(_add_cluster(api, written_cluster(number)) for number in range(CLUSTERS))


async def _served(api: Api, path: str) -> None:
    async with asyncio.timeout(SERVED_SECONDS):
        while True:
            with contextlib.suppress(Exception):
                await api.get(path)
                return
            await asyncio.sleep(0.1)


async def _add_cluster(api: Api, wanted: Json) -> None:
    status = wanted.pop("status")
    del wanted["metadata"]["generation"]
    await api.send("POST", GROUP_CLUSTERS, wanted)
    path = f"{GROUP_CLUSTERS}/{wanted['metadata']['name']}"
    await api.send("PATCH", f"{path}/status", {"status": status}, content_type=MERGE)


async def measure(kind: str, count: int, there: Scene) -> Run:
    """Have one scheduler decide so many bindings."""
    bindings = [written_binding(number, schedulerName=SCHEDULERS[kind]) for number in range(count)]
    for each in bindings:
        del each["status"]
        for key in ("uid", "resourceVersion", "generation"):
            del each["metadata"][key]
    await together(there.api.send("POST", BINDINGS, each) for each in bindings)
    version = (await there.api.get(f"{BINDINGS}?limit=1"))["metadata"]["resourceVersion"]
    seen = _decided(there.api, version)
    load = os.getloadavg()[0]
    with scheduler(kind, there) as process:
        async with asyncio.timeout(PATIENCE_SECONDS):
            names = {await anext(seen)}
            began, used = time.monotonic(), process.cpu_seconds
            async for name in seen:
                names.add(name)
                if len(names) == count:
                    break
        took, spent, rss = time.monotonic() - began, process.cpu_seconds - used, process.rss_mb
    await seen.aclose()
    reasons = await _reasons(there.api)
    return Run(
        kind, count, round((count - 1) / took, 1), round(1000 * spent / count, 2), round(rss), round(load, 1), reasons
    )


async def _decided(api: Api, version: str) -> AsyncIterator[bytes]:
    """Yield the name of each binding whenever it is seen to have its condition."""
    async for line in api.watch_lines(f"{BINDINGS}?watch=1&resourceVersion={version}"):
        if IS_DECIDED in line and (name := NAME.search(line)) is not None:
            yield name[1]


async def _reasons(api: Api) -> dict[str, int]:
    """Return how the decisions ended."""
    found: dict[str, int] = {}
    more = ""
    while True:
        page = await api.get(f"{BINDINGS}?limit=1000{more}")
        for each in page["items"]:
            reason = each["status"]["conditions"][0]["reason"]
            found[reason] = found.get(reason, 0) + 1
        if not (token := page["metadata"].get("continue")):
            return found
        more = f"&continue={token}"


async def _take_away(api: Api, path: str) -> None:
    while (await api.get(f"{path}?limit=1"))["items"]:
        await api.send("DELETE", f"{path}?limit={AT_A_TIME}", {})


async def run(counts: Sequence[int], kinds: Sequence[str], times: int) -> AsyncIterator[Run]:
    """Measure all on one control plane."""
    async with scene() as there:
        await prepare(there.api)
        for count in counts:
            for _ in range(times):
                for kind in kinds:
                    yield await measure(kind, count, there)
                    for path in (BINDINGS, EVENTS):
                        await _take_away(there.api, path)


async def _print(options: argparse.Namespace) -> None:
    found = []
    print(f"{CLUSTERS} clusters, {os.cpu_count()} cores")
    async for each in run(options.bindings, options.scheduler or list(SCHEDULERS), options.times):
        found.append(each)
        print(
            f"{each.scheduler:8} {each.bindings:>7,} bindings {each.per_second:>8,.0f}/s {each.cpu_ms:>7.2f} ms CPU"
            f" {each.rss_mb:>6,.0f} MB   load {each.load_average:g}   {each.reasons}",
            flush=True,
        )
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "fleet_beside.json").write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.fleet_beside",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bindings", type=int, nargs="*", default=[2_000, 10_000])
    parser.add_argument("--scheduler", action="append", choices=tuple(SCHEDULERS), help="default: both")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), help="folder for the JSON")
    options = parser.parse_args(arguments)
    if assets() is None:
        parser.error("KUBEBUILDER_ASSETS must name a folder with kube-apiserver and etcd, KARMADA_ASSETS Karmada's")
    asyncio.run(_print(options))
    return 0


if __name__ == "__main__":
    end_in_order()
    sys.exit(main(sys.argv[1:]))

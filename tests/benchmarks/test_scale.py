"""The benchmark of the largest clusters, on a small one: it decides as the plain path does, and its report is whole."""

from __future__ import annotations

import gzip
import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube_policy_scheduler.adapters.kube.decoding import ObjectDecoder, WatchEvent
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from tests.benchmarks.reference import Reference
from tests.benchmarks.scale import recorded
from tests.benchmarks.scale.__main__ import INTERRUPTED, Run, main, page
from tests.benchmarks.scale.api import synthetic_api
from tests.benchmarks.scale.daemon_loop import measure_daemon
from tests.benchmarks.scale.gang import SIZES, gang_row, measure_gangs, measure_gangs_in_racks
from tests.benchmarks.scale.gated import measure_gated
from tests.benchmarks.scale.growth import Size
from tests.benchmarks.scale.loads import LOADS, THRESHOLDS
from tests.benchmarks.scale.shards import SHARDS, Fragmentation, measure_shards
from tests.benchmarks.scale.site import Load, Started, measure, started
from tests.benchmarks.scale.stalls import BOUNDS_MS, Stalls
from tests.benchmarks.workloads import WORKLOADS

NODES, PODS = 60, 240


def test_nodes_and_pods_have_the_size_of_real_ones() -> None:
    assert 7_000 < len(recorded.node(7)) < 12_000
    assert 4_000 < len(recorded.pod(7, node_name="node-7")) < 7_000


def test_a_heartbeat_changes_nothing_and_every_other_state_of_a_node_does() -> None:
    cluster, decoder = Cluster(), ObjectDecoder(objects.Node)
    found = []
    for state, beat in ((0, 0), (0, 1), (1, 2), (2, 3), (3, 4), (4, 5)):
        line = recorded.line("MODIFIED", recorded.node(3, state=state, beat=beat, version=beat + 1))
        (event,) = decoder.events(line)
        assert isinstance(event, WatchEvent)
        found.append(cluster.set_node(event.object))

    assert found[:2] == [{"added"}, set()]
    assert [sorted(changes) for changes in found[2:]] == [
        ["labels"],
        ["labels", "taints"],
        ["conditions", "taints"],
        ["conditions", "images"],
    ]


@pytest.mark.long
@pytest.mark.parametrize(("accepted", "encoding"), [("gzip", "gzip"), ("identity", "")])
def test_lists_come_in_chunks_and_compressed_where_that_is_accepted(accepted: str, encoding: str) -> None:
    with synthetic_api(nodes=NODES, pods=PODS) as url:
        asked = urllib.request.Request(f"{url}/api/v1/nodes", headers={"Accept-Encoding": accepted})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            body = answer.read()

    assert answer.headers.get("Content-Encoding", "") == encoding
    assert answer.headers["Transfer-Encoding"] == "chunked"
    content = gzip.decompress(body) if encoding else body
    assert [node["metadata"]["name"] for node in json.loads(content)["items"]] == [f"node-{n}" for n in range(NODES)]


@pytest.mark.long
@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
async def test_decisions_beside_changes_are_those_of_the_plain_path(load: Load, tmp_path: Path) -> None:
    with synthetic_api(nodes=NODES, pods=PODS) as url:
        async with started(url, tmp_path, Reference(), nodes=NODES, pods=PODS) as (site, start):
            found = measure(site, load, Reference(), seconds=10.0, checks=2, most=NODES // 2)

            assert (start.nodes, start.pods) == (NODES, PODS)
            assert found.checked == 2
            assert len(site.scheduler.cluster.pods) <= PODS, "what was placed has been taken back"


@pytest.mark.long
async def test_gangs_of_any_size_are_bound(tmp_path: Path) -> None:
    with synthetic_api(nodes=NODES, pods=PODS) as url:
        async with started(url, tmp_path, Reference(), nodes=NODES, pods=PODS) as (site, _):
            found = await measure_gangs(site, Reference(), gangs=3, size=4)

            assert (found.name, found.gangs * found.size) == ("gang 3x4", site.hands.bound_pods)


async def test_gangs_in_racks_are_bound() -> None:
    found = await measure_gangs_in_racks(Reference(), gangs=3, size=4, nodes=12, racks=2)

    assert (found.workload, found.decisions) == ("gangs in racks 3x4", 12)


async def test_pods_are_bound_beside_gated_ones() -> None:
    found = await measure_gated(Reference(), gated=20, pods=10)

    assert (found.workload, found.decisions) == ("SchedulingWhileGated", 10)


def test_every_threshold_names_what_is_measured() -> None:
    rows = {load.name for load in LOADS} | {gang_row(*size) for size in SIZES}
    workloads = {workload.name for workload in WORKLOADS} | {"SchedulingWhileGated"}

    assert [ours for *_, ours, nodes in THRESHOLDS if ours not in (workloads if nodes else rows)] == []


def test_only_what_is_slower_by_more_than_noise_is_named() -> None:
    run = _run()
    run.noise = {"start/60/240": 1.5}

    assert run.slower({"start/60/240": 2_000.0 / 1.9}) == []
    assert run.slower({"start/60/240": 1_000.0}) == [
        "start/60/240: 2.00 times its baseline; up to 1.95 is noise",
    ]


def _run() -> Run:
    start = Started(NODES, PODS, cpu_seconds=0.5, relative=2_000.0, memory_mb=90.0, empty_mb=80.0)
    stalls = Stalls("relist", "all again", 1.0, 10, 12.0, 9.0, 1.0, (9,) + (0,) * (len(BOUNDS_MS) - 1) + (1,))
    sizes = [Size(1_000, 90.0, 0.1, {"plain": 80.0}), Size(5_000, 99.0, 0.4, {"plain": 81.0}, "no <memory> left")]
    return Run("3.11", "2.4", "x86_64", 25.0, start, stalls=[stalls], growth=sizes)


def test_the_page_says_what_was_measured_and_why_growth_ended() -> None:
    text = page(_run())

    assert "60 nodes, 240 pods" in text
    assert "all again: 1.0 s" in text
    assert "no &lt;memory&gt; left" in text
    assert text.count("<polyline") == 1


@pytest.mark.long
def test_small_runs_take_options_and_write_json_and_html(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--nodes", "40", "--pods", "120", "--only", "rules,pod", "--seconds", "0.005", "--out", str(tmp_path))

    assert main(list(options)) == 0

    assert json.loads((tmp_path / "scale.json").read_text())["start"]["nodes"] == 40
    assert "<h2>Goals</h2>" in (tmp_path / "scale.html").read_text()
    shown = capsys.readouterr().out
    assert "50 templates in turn" in shown
    assert "pods/s on one core" in shown


@pytest.mark.long
def test_the_daemon_binds_what_the_synthetic_server_shows(tmp_path: Path) -> None:
    found = measure_daemon(tmp_path, Reference(), nodes=20, placed=40, pods=30)

    assert (found.nodes, found.placed, found.pods) == (20, 40, 30)
    ticks = 4 * 1e6 / os.sysconf("SC_CLK_TCK") / found.pods  # both are read in ticks, user and system apart
    assert 0.0 < found.loop_us <= found.cpu_us + ticks, "the loop's thread is one of the process"


def test_shards_never_overcommit_and_lose_no_more_than_their_part() -> None:
    found = list(measure_shards(nodes=64, say=lambda text: None))

    assert [one.shards for one in found] == [1, SHARDS, SHARDS, SHARDS]
    assert all(one.overcommitted == 0 and one.placed + one.lost == one.pods for one in found)
    alone, in_turn, *_ = found
    assert alone.lost <= in_turn.lost
    assert alone.used >= in_turn.used


def test_a_row_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "rules,plain"])

    assert "plain is unknown: there are start, rules" in capsys.readouterr().err


def test_an_interrupted_run_keeps_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(**_: object) -> Iterator[Fragmentation]:
        yield Fragmentation(1, "one scheduler", 64, 10, 9, 1, 0.9, 0.8, 0)
        raise KeyboardInterrupt

    monkeypatch.setattr("tests.benchmarks.scale.__main__.measure_shards", interrupted)

    assert main(["--only", "shards", "--out", str(tmp_path)]) == INTERRUPTED
    assert "interrupted: rows are missing" in capsys.readouterr().out
    assert json.loads((tmp_path / "scale.json").read_text())["shards"][0]["lost"] == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--nodes", "3"], "argument --nodes: 3: expected at least 10"),
        (["--seconds", "nan"], "argument --seconds: nan: expected seconds above 0"),
        (["--checks", "-1"], "argument --checks: -1: expected at least 0"),
        (["--only", "rules", "--causes", "relist"], "--causes: these rows have no causes; add stalls to --only"),
        (["--out", "/dev/null/here"], "--out: "),
        (["--nodes", "10", "--pods", "10", "--only", "rules"], "the cluster is too small: after "),
    ],
)
def test_what_cannot_be_measured_is_an_error(
    arguments: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--out", str(tmp_path), *arguments])

    assert ended.value.code == 2
    assert f"error: {problem}" in capsys.readouterr().err

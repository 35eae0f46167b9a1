"""Names of a live cluster for completion: what is read of it, when, and what happens where it cannot be read."""

from __future__ import annotations

import http.server
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cli.language_server import make_server
from kube_policy_scheduler.cli.live_words import FRESH_SECONDS, RETRY_SECONDS, LiveSources, LiveWords
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.editor.cluster_words import ClusterWords, together, words_in
from kube_policy_scheduler.editor.completion import complete
from kube_policy_scheduler.editor.project import look_at
from tests.adapters.test_prometheus import Answer, answering

NODES = {
    "items": [
        {
            "metadata": {"name": "a1", "labels": {"disk": "ssd"}},
            "status": {"allocatable": {"nvidia.com/gpu": "1"}, "conditions": [{"type": "Stalled", "status": "False"}]},
        }
    ]
}
PODS = {"items": [{"metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"a": "1", "doc": "x" * 64}}}]}


def reply(asked: list[str]) -> Callable[[http.server.BaseHTTPRequestHandler], Answer]:
    """Answer as an API server and as a Prometheus; note what was asked."""

    def answer(request: http.server.BaseHTTPRequestHandler) -> Answer:
        parts = urlsplit(request.path)
        asked.append(f"{request.command} {request.path}")
        match parts.path:
            case "/api/v1/nodes":
                found: object = NODES
            case "/api/v1/pods":
                found = PODS
            case "/api/v1/label/__name__/values":
                most = int(parse_qs(parts.query)["limit"][0])
                # a server that does not know the limit
                found = {"status": "success", "data": ["up", *(f"m{each}" for each in range(most))]}
            case _:
                return 404, "application/json", '{"kind": "Status", "code": 404}'
        return 200, "application/json", json.dumps(found)

    return answer


def kubeconfig(path: Path, server: str) -> str:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
    }
    path.write_text(json.dumps(document))
    return str(path)


def test_labels_resources_and_metrics_are_read_and_nothing_is_written(tmp_path: Path) -> None:
    asked: list[str] = []
    with answering(reply(asked)) as url:
        sources = LiveSources(True, kubeconfig(tmp_path / "kubeconfig", url), prometheus_url=url)
        words, failures = sources.read()

    assert failures == ()
    assert words.node_labels == {"disk": {"ssd": 1}}
    assert words.pod_labels == {"app": {"web": 1}}
    assert words.pod_annotations == {"a": {"1": 1}, "doc": {}}
    assert (set(words.resources), set(words.nodes), set(words.conditions)) == ({"nvidia.com/gpu"}, {"a1"}, {"Stalled"})
    assert (len(words.metrics), words.metrics["up"]) == (10_000, 1)
    assert all(each.startswith("GET ") for each in asked)
    assert {each.partition("?")[2] for each in asked if each.startswith("GET /api/v1/nodes")} == {"limit=1000"}


def test_of_what_can_be_read_the_words_are_there_though_the_rest_cannot_be(tmp_path: Path) -> None:
    with answering(lambda request: (503, "text/plain", "")) as broken, answering(reply([])) as url:
        words, failures = LiveSources(True, kubeconfig(tmp_path / "k", url), prometheus_url=broken).read()
        assert words.node_labels == {"disk": {"ssd": 1}}
        (failure,) = failures
        assert failure.startswith("cannot read the metrics for completion: ")

        words, failures = LiveSources(True, str(tmp_path / "none"), prometheus_url=url).read()
        assert "up" in words.metrics
        (failure,) = failures
        assert "none does not exist" in failure


class Reader:
    """What is read, and how often it was."""

    def __init__(self) -> None:
        self.now = 0.0
        self.times = 0
        self.reported: list[str] = []
        self.next: tuple[ClusterWords, tuple[str, ...]] | Exception = (words_of("a"), ())
        self.words = LiveWords(self.read, report=self.reported.append, clock=lambda: self.now)

    def read(self) -> tuple[ClusterWords, tuple[str, ...]]:
        self.times += 1
        if isinstance(self.next, Exception):
            raise self.next
        return self.next

    async def known(self) -> list[str]:
        """Ask twice: at once, and after what is being read has come."""
        self.words.words()
        await self.words.settled()
        return list(self.words.words().node_labels)


def words_of(key: str) -> ClusterWords:
    return words_in([{"kind": "Node", "metadata": {"name": "n", "labels": {key: "v"}}}])


async def test_names_are_read_once_and_again_after_a_while() -> None:
    reader = Reader()

    assert reader.words.words().node_labels == {}  # asking does not wait
    assert await reader.known() == ["a"]
    reader.next, reader.now = (words_of("b"), ()), FRESH_SECONDS - 1
    assert await reader.known() == ["a"]
    reader.now = FRESH_SECONDS
    assert await reader.known() == ["b"]
    assert reader.times == 2


async def test_what_cannot_be_read_is_reported_once_and_what_is_known_stays() -> None:
    reader = Reader()
    assert await reader.known() == ["a"]
    for failed in ((ClusterWords(), ("cannot reach it",)), RuntimeError("a fault"), (words_of("c"), ())):
        for _ in range(2):
            reader.next, reader.now = failed, reader.now + FRESH_SECONDS
            last = await reader.known()
    assert last == ["c"]
    assert reader.reported == ["cannot reach it", "cannot read names for completion: RuntimeError('a fault')"]


async def test_after_a_failure_it_is_tried_again_sooner() -> None:
    reader = Reader()
    reader.next = ClusterWords(), ("cannot reach it",)
    assert await reader.known() == []
    reader.next, reader.now = (words_of("a"), ()), RETRY_SECONDS
    assert await reader.known() == ["a"]


async def test_the_language_server_has_the_words_of_the_cluster_once_they_were_read(tmp_path: Path) -> None:
    with answering(reply([])) as url:
        where = kubeconfig(tmp_path / "kubeconfig", url)
        server = make_server(environment(), live=LiveSources(True, where, prometheus_url=url))
        assert server.live is not None
        name = str(tmp_path / "card.policy")
        (tmp_path / "card.test.yaml").write_text("nodes: [{name: b, labels: {rack: r1}}]\n")
        assert set(server.words(name).node_labels) == {"rack"}
        await server.live.settled()
        found = server.words(name)

    assert set(found.node_labels) == {"rack", "disk"}
    assert "up" in found.metrics
    assert "Europe/Berlin" in found.time_zones


def test_completion_has_the_words_of_the_fixtures_and_of_the_cluster() -> None:
    text = "filter label "
    project = look_at([Source("p.policy", text)], environment())
    found = complete(project, "p.policy", len(text), together(words_of("disk"), words_of("rack")))

    assert {"disk", "rack"} <= {item.label for item in found}

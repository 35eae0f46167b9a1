"""Asking a real Prometheus, and servers that only look like one."""

from __future__ import annotations

import contextlib
import http.server
import json
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme

from kube_policy_scheduler.adapters.prometheus import queries as prometheus
from kube_policy_scheduler.adapters.prometheus.queries import (
    PrometheusClient,
    PrometheusEndpoint,
    PrometheusError,
    PrometheusRanges,
    PrometheusUnreachableError,
    QueryFailedError,
    QueryRefusedError,
)
from kube_policy_scheduler.cluster.signals import Query, Reading, SeriesColumns
from tests.fakes.prometheus_server import PrometheusServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    prometheus = PrometheusServer(tmp_path_factory.mktemp("prometheus"))
    prometheus.backfill(
        {
            "cpu_usage": [
                ({"node": "a", "cpu": "0"}, 10.0),
                ({"node": "a", "cpu": "1"}, 30.0),
                ({"node": "b", "cpu": "0"}, 50.0),
            ],
            "zero": [({"node": "a"}, 0.0)],
        },
        age_seconds=20,
    )
    with prometheus:
        yield prometheus


@pytest.fixture(scope="module")
def client(server: PrometheusServer) -> Iterator[PrometheusClient]:
    made = PrometheusClient(PrometheusEndpoint(server.url))
    yield made
    made.close()


def by_node(reading: Reading) -> dict[str, float]:
    return {series.labels["node"]: series.value for series in reading.series}


@pytest.mark.long
def test_one_query_answers_for_all_nodes(client: PrometheusClient) -> None:
    reading = client.fetch(Query("avg by (node) (cpu_usage)"))
    assert by_node(reading) == {"a": 20.0, "b": 50.0}
    assert reading.scalar is None
    assert reading.warnings == ()
    assert abs(reading.evaluated_at - time.time()) < 30
    assert reading.age_seconds(time.time()) < 30


@pytest.mark.long
def test_a_plain_selector_knows_the_age_of_its_samples(client: PrometheusClient) -> None:
    for promql in ("cpu_usage", 'cpu_usage{node=~"a|b", cpu!="}"}', " cpu_usage{} "):
        reading = client.fetch(Query(promql))
        assert len(reading.series) == 3
        for series in reading.series:
            assert 19 < reading.evaluated_at - series.timestamp < 60, promql


@pytest.mark.long
def test_a_computed_value_has_the_time_of_its_evaluation(client: PrometheusClient) -> None:
    reading = client.fetch(Query("cpu_usage * 1"))
    assert {series.timestamp for series in reading.series} == {reading.evaluated_at}


@pytest.mark.long
def test_a_scalar_and_a_vector_are_distinguished(client: PrometheusClient) -> None:
    reading = client.fetch(Query("scalar(avg(cpu_usage))"))
    assert reading.scalar == 30.0
    assert reading.series == ()


@pytest.mark.long
def test_not_a_number_arrives_as_such(client: PrometheusClient) -> None:
    (series,) = client.fetch(Query("zero / zero")).series
    assert series.value != series.value


@pytest.mark.long
def test_a_metric_that_no_one_has_is_an_empty_reading(client: PrometheusClient) -> None:
    reading = client.fetch(Query("no_such_metric"))
    assert len(reading.series) == 0
    assert reading.age_seconds(time.time()) < 30


@pytest.mark.long
@pytest.mark.parametrize(
    ("promql", "text"),
    [
        (
            "cpu_usage{",
            "Prometheus rejected the query: 1:11: parse error: unexpected end of input inside braces",
        ),
        (
            "cpu_usage[5m]",
            "the query returns a matrix, expected one value per node (an instant vector) or a scalar",
        ),
        ('"text"', "the query returns a string, expected one value per node (an instant vector) or a scalar"),
        (
            "nonsense(cpu_usage)",
            'Prometheus rejected the query: 1:1: parse error: unknown function with name "nonsense"',
        ),
    ],
)
def test_a_wrong_query_is_refused_with_the_servers_words(client: PrometheusClient, promql: str, text: str) -> None:
    with pytest.raises(QueryRefusedError) as raised:
        client.fetch(Query(promql))
    assert str(raised.value) == text


@pytest.mark.long
def test_a_query_that_cannot_be_evaluated_now_is_not_called_wrong(client: PrometheusClient) -> None:
    with pytest.raises(QueryFailedError, match=r"Prometheus cannot evaluate the query: .*many-to-many"):
        client.fetch(Query("cpu_usage * on(node) cpu_usage"))


@pytest.mark.long
def test_a_closed_port_is_unreachable_at_once(server: PrometheusServer, tmp_path: Path) -> None:
    gone = PrometheusServer(tmp_path)
    gone.start()
    gone.stop()
    started = time.monotonic()
    with pytest.raises(PrometheusUnreachableError) as raised:
        PrometheusClient(PrometheusEndpoint(gone.url)).fetch(Query("up"))
    assert str(raised.value) == f"cannot reach Prometheus at {gone.url}: connection refused"
    assert time.monotonic() - started < 5, "the library's own retries take six seconds"


Answer = tuple[int, str, str]  # status, content type, body


@contextmanager
def answering(
    reply: Callable[[http.server.BaseHTTPRequestHandler], Answer],
    *,
    tls: ssl.SSLContext | None = None,
    headers: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Serve canned answers on loopback."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content_type, body = reply(self)
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            for name, text in (headers or {}).items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # refused handshakes are what some tests are about

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


VECTOR = {"resultType": "vector", "result": [{"metric": {"node": "a"}, "value": [1.0, "2"]}]}


def vector_answer(_: object = None, **more: object) -> Answer:
    return 200, "application/json", json.dumps({"status": "success", "data": VECTOR, **more})


def failure(url: str, **given: object) -> PrometheusError:
    with pytest.raises(PrometheusError) as raised:
        PrometheusClient(PrometheusEndpoint(url, **given)).fetch(Query("up + 0"))  # type: ignore[arg-type]
    return raised.value


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (
            (200, "text/html", "<html>please log in</html>"),
            QueryFailedError,
            "URL does not answer like Prometheus (text/html): check the url, and that no login page is in front",
        ),
        (
            (200, "application/json", "{}"),
            QueryFailedError,
            "URL does not answer like Prometheus (application/json): check the url, and that no login page is in front",
        ),
        ((404, "text/plain", "not found"), QueryFailedError, "URL answered HTTP 404: check the url"),
        (
            (401, "text/plain", "no"),
            PrometheusUnreachableError,
            "URL rejected the credentials (HTTP 401): check the bearer token file",
        ),
        ((503, "text/plain", "starting"), PrometheusUnreachableError, "URL is not available (HTTP 503)"),
        (
            (503, "application/json", '{"status":"error","errorType":"timeout","error":"query timed out"}'),
            QueryFailedError,
            "Prometheus cannot evaluate the query: query timed out (HTTP 503)",
        ),
        (
            (200, "application/json", '{"data":{"resultType":"vector","result":[{"metric":{},"value":3}]}}'),
            QueryFailedError,
            "the answer is not a valid instant vector",
        ),
        (
            (200, "application/json", '{"data":{"resultType":"vector","result":[{"metric":{},"histogram":[]}]}}'),
            QueryRefusedError,
            "the query returns histograms, expected one number per node",
        ),
        (
            (200, "application/json", '{"status":"error","errorType":"internal","error":"expanding series"}'),
            QueryFailedError,
            "URL does not answer like Prometheus (application/json): check the url, and that no login page is in front",
        ),
        (
            (200, "application/json", '{"data":{"resultType":"vector","result":[{"metric":"a","value":[1,"2"]}]}}'),
            QueryFailedError,
            "the answer is not a valid instant vector",
        ),
        (
            (200, "application/json", '{"data":{"resultType":"vector","result":[{"metric":{"n":3},"value":[1,"2"]}]}}'),
            QueryFailedError,
            "the answer is not a valid instant vector",
        ),
        (
            (200, "application/json", '{"data":{"resultType":"scalar","result":[1]}}'),
            QueryFailedError,
            "the answer is not a valid scalar",
        ),
        (
            (200, "application/json", "[" * 100_000),
            QueryFailedError,
            "URL does not answer like Prometheus (application/json): check the url, and that no login page is in front",
        ),
    ],
    ids=lambda given: given[2][:60] if isinstance(given, tuple) else "",
)
def test_each_bad_answer_has_its_own_short_text(answer: Answer, kind: type[Exception], text: str) -> None:
    with answering(lambda _: answer) as url:
        raised = failure(url)
    assert isinstance(raised, kind)
    assert str(raised) == text.replace("URL", url)


def test_an_answer_that_is_too_long_is_refused() -> None:
    with answering(lambda _: (200, "application/json", " " * (65 << 20))) as url:
        raised = failure(url)
    assert isinstance(raised, QueryRefusedError)
    assert str(raised) == "the answer is longer than 64 MiB: aggregate, for example by (node)"


def test_warnings_about_partial_answers_are_kept() -> None:
    with answering(lambda _: vector_answer(warnings=["store-1 is down"])) as url:
        reading = PrometheusClient(PrometheusEndpoint(url)).fetch(Query("up + 0"))
    assert reading.warnings == ("store-1 is down",)


@pytest.mark.long
def test_as_many_series_as_the_largest_clusters_have_nodes() -> None:
    labels = ",".join(f'"label{place}":"some text of usual length"' for place in range(6))
    one = '{"metric":{"__name__":"load","node":"n%d",' + labels + '},"value":[1700000000.5,"%d"]}'
    result = ",".join(one % (row, row) for row in range(130_000))
    body = '{"status":"success","data":{"resultType":"vector","result":[' + result + "]}}"
    with answering(lambda _: (200, "application/json", body)) as url:
        client = PrometheusClient(PrometheusEndpoint(url))
        first, second = (client.fetch(Query("load + 0")) for _ in range(2))
    assert len(first.series) == 130_000
    assert first.series[129_999].labels["node"] == "n129999"
    assert first.series[129_999].value == 129_999.0
    assert isinstance(first.series, SeriesColumns)
    assert isinstance(second.series, SeriesColumns)
    assert first.series.labels is second.series.labels, "what has not changed is kept once"


def test_the_answers_to_all_queries_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kube_policy_scheduler.adapters.prometheus.queries.MAX_KEPT_BYTES", 1000)
    long = {"resultType": "vector", "result": [{"metric": {"node": "a" * 600}, "value": [1.0, "2"]}]}
    body = json.dumps({"status": "success", "data": long})
    with answering(lambda _: (200, "application/json", body)) as url:
        client = PrometheusClient(PrometheusEndpoint(url))
        kept = client.fetch(Query("one + 0"))
        assert by_node(client.fetch(Query("one + 0"))) == by_node(kept), "an answer takes the place of the one before"
        with pytest.raises(QueryRefusedError, match="all answers together are longer than"):
            client.fetch(Query("two + 0"))
        del kept
        client.fetch(Query("two + 0"))


def test_of_an_error_page_a_part_is_read() -> None:
    with answering(lambda _: (500, "text/html", "\0" * (32 << 20))) as url:
        tracemalloc.start()
        raised = failure(url)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert str(raised) == f"{url} answered HTTP 500: check the url"
    assert most < 80 << 20, "which the stand-in takes by itself"


def test_an_answer_that_is_compressed_more_than_once_is_not_unpacked() -> None:
    with answering(vector_answer, headers={"Content-Encoding": "gzip, gzip"}) as url:
        assert str(failure(url)) == "the answer is compressed more than once"


def test_redirects_do_not_go_on_for_long() -> None:
    asked: list[str] = []

    def around(request: http.server.BaseHTTPRequestHandler) -> Answer:
        asked.append(request.path)
        return 302, "text/plain", ""

    with answering(around, headers={"Location": "/again"}) as url:
        assert "cannot reach Prometheus" in str(failure(url))
    assert len(asked) <= 4


@pytest.mark.parametrize("at", ["in the same order", "in another order"])
def test_times_of_samples_are_found_by_their_labels(at: str) -> None:
    series = [
        ({"__name__": "load", "node": node, "Z": "1"}, value) for node, value in (("a", "1"), ("b", "2"), ("c", "3"))
    ]

    def reply(request: http.server.BaseHTTPRequestHandler) -> Answer:
        result = [{"metric": labels, "value": [1000.0, value]} for labels, value in series]
        if "timestamp%28" in request.path:
            times = {"a": "990", "b": "980", "c": "1600"}
            result = [
                {"metric": {"node": labels["node"], "Z": "1"}, "value": [1000.0, times[labels["node"]]]}
                for labels, _ in (series if at == "in the same order" else series[::-1])
            ]
        data = {"resultType": "vector", "result": result}
        return 200, "application/json", json.dumps({"data": data}, separators=(",", ":"))

    with answering(reply) as url:
        reading = PrometheusClient(PrometheusEndpoint(url)).fetch(Query("load"))
    assert [(one.labels["node"], one.value, one.timestamp) for one in reading.series] == [
        ("a", 1.0, 990.0),
        ("b", 2.0, 980.0),
        ("c", 3.0, 1000.0),  # the clock of its exporter is ahead: it would be used for ten minutes longer
    ]


def test_a_server_that_never_answers_costs_one_timeout() -> None:
    release = threading.Event()

    def hang(_: object) -> Answer:
        release.wait(20)
        return vector_answer()

    with answering(hang) as url:
        started = time.monotonic()
        raised = failure(url, timeout_seconds=0.2)
        took = time.monotonic() - started
        release.set()
    assert str(raised) == f"no answer from {url} within 0.2 s"
    assert took < 5


def test_the_server_is_asked_only_for_samples_that_the_query_accepts() -> None:
    asked: list[str] = []

    def remember(request: http.server.BaseHTTPRequestHandler) -> Answer:
        asked.append(request.path)
        return vector_answer()

    with answering(remember) as url:
        PrometheusClient(PrometheusEndpoint(url + "/prefix/")).fetch(Query("up + 0", stale_after_seconds=90))
    (path,) = asked
    assert path.startswith("/prefix/api/v1/query?")
    assert "lookback_delta=90s" in path


def test_a_bearer_token_is_read_again_for_each_request_and_never_shown(tmp_path: Path) -> None:
    token = tmp_path / "token"
    sent: list[str | None] = []

    def remember(request: http.server.BaseHTTPRequestHandler) -> Answer:
        sent.append(request.headers["Authorization"])
        return vector_answer()

    with answering(remember) as url:
        client = PrometheusClient(PrometheusEndpoint(url, bearer_token_file=token))
        for text in ("first\n", "second\n"):
            token.write_text(text)
            client.fetch(Query("up + 0"))
        token.write_text("two secrets\n")
        broken = failure(url, bearer_token_file=token)
        token.unlink()
        absent = failure(url, bearer_token_file=token)
    assert sent == ["Bearer first", "Bearer second"]
    assert str(broken) == f"bearer token file {token} must contain one token"
    assert str(absent) == f"cannot read bearer token file {token}: No such file or directory"


def test_a_password_in_the_url_is_used_but_not_shown() -> None:
    sent: list[str | None] = []

    def remember(request: http.server.BaseHTTPRequestHandler) -> Answer:
        sent.append(request.headers["Authorization"])
        return 404, "text/plain", ""

    with answering(remember) as url:
        raised = failure(url.replace("//", "//someone:hidden@"))
    assert sent[0] is not None
    assert sent[0].startswith("Basic ")
    assert str(raised) == f"{url} answered HTTP 404: check the url"


def test_own_certificate_authority_and_mutual_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca_file, pair = tmp_path / "ca.pem", tmp_path / "client.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    authority.issue_cert("scheduler").private_key_and_cert_chain_pem.write_to_path(str(pair))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED

    with answering(vector_answer, tls=context) as url:
        trusted = PrometheusEndpoint(url, ca_file=ca_file, client_certificate_file=pair)
        assert by_node(PrometheusClient(trusted).fetch(Query("up + 0"))) == {"a": 2.0}
        unknown = failure(url)
        without_certificate = failure(url, ca_file=ca_file)
        no_ca_file = failure(url, ca_file=tmp_path / "absent.pem")
    assert "certificate not accepted" in str(unknown)
    assert isinstance(without_certificate, PrometheusUnreachableError)
    assert "cannot set up TLS" in str(no_ca_file)
    assert "absent.pem" in str(no_ca_file)


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)], ids=["in CI", "elsewhere"]
)
def test_without_the_debian_package_tests_are_left_out_but_fail_in_ci(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="apt-get install --no-install-recommends prometheus"):
        PrometheusServer(tmp_path)


def test_a_range_is_asked_in_parts_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MAX_RANGE_BYTES", 3000)
    asked: list[tuple[int, int]] = []

    def reply(handler: http.server.BaseHTTPRequestHandler) -> Answer:
        query = parse_qs(urlsplit(handler.path).query)
        assert urlsplit(handler.path).path == "/api/v1/query_range"
        start, end, step = (int(query[key][0]) for key in ("start", "end", "step"))
        values = [[at, "12345678"] for at in range(start, end + 1, step)]
        asked.append((start, end))
        return 200, "application/json", json.dumps({"data": {"resultType": "matrix", "result": [{"values": values}]}})

    with answering(reply) as url:
        client = PrometheusRanges(PrometheusEndpoint(url))
        answers = list(client.fetch_range(Query("x"), start=1000, end=7000, step=10))
        client.close()
    times = [at for (series,) in answers for at, _ in series["values"]]
    assert times == list(range(1000, 7001, 10)), "each step once"
    assert len(answers) > 1
    assert len(asked) < 2 * len(answers) + 10


def test_a_range_query_fails_as_an_instant_one_does() -> None:
    refusal = (400, "application/json", '{"errorType": "bad_data", "error": "parse error"}')
    with answering(lambda _: refusal) as url, pytest.raises(QueryRefusedError, match="parse error"):
        ranges(url)


def ranges(url: str, **endpoint: Any) -> list[list[Any]]:
    client = PrometheusRanges(PrometheusEndpoint(url, **endpoint))
    try:
        return list(client.fetch_range(Query("x("), start=0, end=10, step=5))
    finally:
        client.close()


@pytest.mark.parametrize("text", ["<html>log in", "{}", '{"data": []}', '{"data": {"results": []}}', "[" * 100_000])
def test_what_does_not_answer_like_prometheus_is_said_to_do_so(text: str) -> None:
    with (
        answering(lambda _: (200, "text/html", text)) as url,
        pytest.raises(QueryFailedError, match=r"does not answer like Prometheus \(text/html\)"),
    ):
        ranges(url)


def test_a_range_query_is_repeated_where_the_server_cannot_answer_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    answers = iter(
        [(503, "text/plain", ""), (429, "text/plain", ""), (200, "application/json", '{"data":{"result":[]}}')]
    )
    with answering(lambda _: next(answers)) as url:
        assert ranges(url) == [[]]
    with answering(lambda _: (503, "text/plain", "")) as url, pytest.raises(PrometheusUnreachableError, match="503"):
        ranges(url)


def test_an_answer_that_comes_for_ever_is_given_up() -> None:
    def drip(handler: http.server.BaseHTTPRequestHandler) -> Answer:
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(b" " * 2**17)
                time.sleep(0.01)
        return 0, "", ""

    with answering(drip) as url, pytest.raises(PrometheusError, match=r"no complete answer within 0\.3 s|longer than"):
        ranges(url, timeout_seconds=0.1)

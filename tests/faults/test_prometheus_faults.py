"""A Prometheus that is slow, wrong or gone: pods are placed with the default of the policy."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.configmap_volume import ConfigMapVolume
from tests.faults.accounts import books_right, recovery, sound
from tests.faults.conftest import Size
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import node, pod

# what has no value counts as fully used, and the labelled node is then the best
POLICY = """\
metric cpu = promql("avg by (node) (cpu_usage)") every 1s stale after 2s
score 100 - cpu ?? 100
score 1 if label preferred=yes
"""
CONFIG = """\
apiVersion: policy-scheduler/v1alpha1
kind: PolicySchedulerConfiguration
prometheus: {url: "%s", timeout: 1s}
"""
USAGE = {"cool": 10, "labelled": 50}


def vector(*series: tuple[dict[str, str], str]) -> str:
    result = [{"metric": labels, "value": [time.time(), value]} for labels, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


def right() -> str:
    return vector(*(({"node": name}, str(percent)) for name, percent in USAGE.items()))


FAULTS: dict[str, Callable[[], str]] = {
    "a page": lambda: "<html>please log in</html>",
    "not a number": lambda: vector(({"node": "cool"}, "NaN"), ({"node": "labelled"}, "+Inf")),
    "two values for a node": lambda: vector(({"node": "cool"}, "1"), ({"node": "cool", "x": "y"}, "2")),
    "other nodes": lambda: vector(*(({"node": f"x{number}"}, "1") for number in range(1000))),
    "an error that says it is well": lambda: '{"status":"error","errorType":"internal","error":"no"}',
    "odd labels": lambda: '{"data":{"resultType":"vector","result":[{"metric":{"node":7},"value":[1,"2"]}]}}',
    "cut": lambda: right()[:60],
    "too much": lambda: vector(*(({"node": f"x{number}"}, "1") for number in range(100_001))),
    "slow": lambda: (time.sleep(3.0), right())[1],
}


class Server:
    """Answers every query as the test sets it."""

    def __init__(self) -> None:
        self.answer = right
        self.answered = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer.answer().encode()
                outer.answered += 1
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                pass  # who asked did not wait for a slow answer

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def prometheus() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def test_whatever_prometheus_answers_pods_are_placed_and_it_is_used_again_when_it_is_well(
    cluster: Cluster,
    scheduler: StartScheduler,
    policies: ConfigMapVolume,
    prometheus: Server,
    size: Size[int],
    tmp_path: Path,
) -> None:
    cluster.add_nodes(
        node("cool", cpu="64", pods="9999"), node("labelled", cpu="64", pods="9999", labels={"preferred": "yes"})
    )
    policies.update({"default.policy": POLICY})
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG % prometheus.url)
    process = scheduler(f"--config={config}").start_ready()
    numbers = iter(range(10_000))

    def binds() -> str:
        time.sleep(0.1)
        name = f"p{next(numbers)}"
        cluster.add_pods(pod(name, cpu="1m", memory="1Mi"))
        return cluster.wait_bound(name)[name]

    assert binds() == "cool"
    for name in list(FAULTS)[: size(2, len(FAULTS))]:
        prometheus.answer = FAULTS[name]
        eventually(lambda: binds() == "labelled", else_=lambda name=name: (name, process.log()[-3000:]))  # type: ignore[misc]
        assert process.get("/readyz")[0] == 200
        prometheus.answer = right
        with recovery(f"prometheus well again after: {name}"):
            eventually(lambda: binds() == "cool", else_=lambda name=name: (name, process.log()[-3000:]))  # type: ignore[misc]
    sound(cluster)
    books_right(process)

"""How fast `policyctl test` runs: a thousand cases over a recorded cluster of a hundred nodes.

python -m tests.benchmarks.policy_tests [--cases 1000] [--nodes 100] [--shuffle]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from kube_policy_scheduler.cli.suites import load_suite
from kube_policy_scheduler.documents.writing import yaml_text
from kube_policy_scheduler.tooling.tester.run import State
from kube_policy_scheduler.tooling.tester.suite_file import suite_text

POLICY = """\
filter node.ready and fits(cpu, mem) as room
score 2 * (100 - (promql("cpu_usage") ?? 50))
score -1 if label node=hello
spread by pod.label.tenant
"""


def main() -> None:
    """Write the files, run them, and say how long reading and deciding took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--shuffle", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), cases=options.cases, nodes=options.nodes)
        start = time.perf_counter()
        loaded = load_suite(path)
        read = time.perf_counter()
        states = [result.state for result in loaded.run(shuffle=options.shuffle).results()]
        end = time.perf_counter()
    passed = sum(state is State.PASSED for state in states)
    print(
        f"{len(states)} cases over {options.nodes} nodes, {passed} passed: {end - start:.2f} s,"
        f" {read - start:.2f} s of them reading; {1000 * (end - read) / len(states):.2f} ms a case"
    )


def write(folder: Path, *, cases: int, nodes: int) -> Path:
    """Write a policy, a cluster with ten pods a node, and the cases; return the test file."""
    chance = random.Random(1)
    (folder / "spread.policy").write_text(POLICY)
    objects = [_node(index) for index in range(nodes)] + [_pod(index, nodes) for index in range(10 * nodes)]
    (folder / "cluster.yaml").write_text(yaml_text({"apiVersion": "v1", "kind": "List", "items": objects}))
    series = {f'cpu_usage{{node="n{index}"}}': f"{chance.randint(1, 99)}+0.5x20" for index in range(nodes)}
    suite = {
        "policy": "spread.policy",
        "cluster": "cluster.yaml",
        "tie": "ok",
        "metrics": {"interval": "30s", "series": series},
        "templates": {"small": {"cpu": "500m", "mem": "256Mi"}},
        "cases": [_case(index, nodes, chance) for index in range(cases)],
    }
    path = folder / "many.test.yaml"
    path.write_text(suite_text(suite))
    return path


def _node(index: int) -> dict[str, object]:
    labels = {"topology.kubernetes.io/zone": "abc"[index % 3], "node": "hello" if index % 10 == 0 else "other"}
    status = {
        "capacity": {"cpu": "16", "memory": "64Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    metadata = {"name": f"n{index}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def _pod(index: int, nodes: int) -> dict[str, object]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    metadata = {"name": f"p{index}", "namespace": "default", "labels": {"tenant": f"t{index % 20}"}}
    spec = {"nodeName": f"n{index % nodes}", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _case(index: int, nodes: int, chance: random.Random) -> dict[str, object]:
    node = f"n{index % nodes}"
    pod = {"from": "small", "labels": {"tenant": f"t{index % 25}"}, "cpu": chance.randint(1, 9)}
    case: dict[str, object] = {"name": f"case {index}", "at": f"{index % 10}min", "pod": pod}
    if index % 4 == 0:
        case["pods"] = [{"node": node, "cpu": 6}]
    if index % 5 == 0:
        case["nodes"] = [{"name": node, "ready": False}]
        return case | {"expect": {"filtered": {node: {"clause": "node.ready"}}}}
    return case | {"expect": {"schedulable": True, "margin": ">= 0"}}


if __name__ == "__main__":
    main()

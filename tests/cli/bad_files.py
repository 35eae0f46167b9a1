"""Every command of policyctl with files of each kind, and what it says of one that is something else."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from kube_policy_scheduler.cli.main import run

FILES = Path(__file__).parent / "files"
"""A good file for every option, by the names in `COMMANDS`."""
COMMANDS = {
    name: tuple(arguments.split())
    for name, arguments in {
        "why": "why web --cluster cluster.yaml --policies p.policy --metrics metrics.yaml --config config.yaml",
        "capacity": "capacity --cluster cluster.yaml --policies p.policy --metrics metrics.yaml --pod pod.yaml",
        "capacity --lose": "capacity --cluster cluster.yaml --policies p.policy --lose topology.kubernetes.io/zone",
        "capacity --removable": "capacity --cluster cluster.yaml --removable",
        "capacity --pending": "capacity --cluster cluster.yaml --pending",
        "capture": "capture web --cluster cluster.yaml --policies p.policy --metrics metrics.yaml",
        "doctor": "doctor --cluster cluster.yaml --policies p.policy --metrics metrics.yaml",
        "drift": "drift --cluster cluster.yaml --policies p.policy --metrics metrics.yaml",
        "impact": "impact p.policy q.policy --cluster cluster.yaml --metrics metrics.yaml",
        "queues": "queues --cluster cluster.yaml --policies p.policy",
        "rebalance": "rebalance --cluster cluster.yaml --policies p.policy --metrics metrics.yaml",
        "simulate": "simulate p.policy --cluster cluster.yaml --pods pods.yaml --metrics usage.csv --events events.yaml"
        " --autoscale shapes.yaml",
        "simulate --fleet": "simulate w.policy --fleet fleet.yaml --workloads workloads.yaml --events losses.yaml",
        "simulate a cluster": "simulate q.policy --cluster cluster.yaml",
        "snapshot": "snapshot --anonymise --cluster cluster.yaml --key-file key --policies p.policy",
        "test": "test x.test.yaml",
        "lint": "lint p.policy --config config.yaml",
        "fmt": "fmt --check p.policy",
        "import": "import prof.yaml",
        "conformance": "conformance good.jsonl --scheduler-config prof.yaml",
        "why --kubeconfig": "why web --kubeconfig kubeconfig --policies p.policy",
        "why --daemon": "why web --daemon https://127.0.0.1:9 --token-file token --ca-file ca.pem",
        "why --record FILE": "why web --record decisions.jsonl --cluster cluster.yaml --policies p.policy",
        "impact --record": "impact p.policy q.policy --record decisions.jsonl --cluster cluster.yaml",
        "dataset": "dataset m.policy --cluster cluster.yaml --pods pods.yaml --metrics usage.csv --events events.yaml"
        " --autoscale shapes.yaml --config onnx.yaml",
        "dataset --record": "dataset m.policy --cluster cluster.yaml --record decisions.jsonl --config onnx.yaml",
        "canary": "canary list p.policy",
    }.items()
}
CODES = (0, 1, 2)
"""Of these commands: as it should be, not so, could not run."""


def asked(command: str) -> tuple[int, str]:
    """Run a command in the working directory; return its exit code and all that it printed."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        code = run(list(COMMANDS[command]))
    return code, printed.getvalue()


def problem(command: str) -> str:
    """Run a command; return what no file may make it say, "" where it says none of that."""
    code, printed = asked(command)
    is_well = code in CODES and "Traceback" not in printed and "bug in policyctl" not in printed
    return "" if is_well else f"{command}: exit code {code}\n{printed[-3000:]}"


def files_of(command: str) -> list[str]:
    """Return the files that a command is given."""
    return [word for word in COMMANDS[command][1:] if (FILES / word).is_file()]

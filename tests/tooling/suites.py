"""A policy and its test file, given as texts, ready to run."""

from __future__ import annotations

from pathlib import Path

from kube_policy_scheduler.cli.suites import LoadedSuite, load_suite

NODES = "nodes: [{name: n1, cpu: 4, mem: 8Gi, zone: a, labels: {disk: ssd}}, {name: n2, cpu: 4, mem: 8Gi, zone: b}]"


def suite(folder: Path, policy: str, cases: str, *, name: str = "p", more: str = NODES) -> LoadedSuite:
    """Return the suite; `cases` are the items of the YAML list, with `tie: ok` for all of them."""
    (folder / f"{name}.policy").write_text(policy)
    path = folder / f"{name}.test.yaml"
    path.write_text(f"policy: {name}.policy\ntie: ok\n{more}\ncases:\n{cases}\n")
    return load_suite(path)

"""Take a small cluster and two lists of pods out of the GPU trace: weeks to train on, and the days after them.

    python gpu_days.py openb_node_list_all_node.csv openb_pod_list_default.csv gpu

The trace is Alibaba's cluster-trace-gpu-v2023 (github.com/alibaba/clusterdata). At its own times, its pods use few of
its 6,212 GPUs, so the cluster here has six nodes with eight GPUs each, and the pods are those that request GPUs.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

MODEL, NODES = "G2", 6
TRAIN_DAYS, TEST_DAYS = (120, 141), (141, 150)
"""Of the trace: the first day, and the day after the last."""
DAY = 86_400


def read(file: Path) -> list[dict[str, str]]:
    """Return the rows of a list."""
    try:
        with file.open(newline="") as opened:
            return list(csv.DictReader(opened))
    except OSError as error:
        sys.exit(f"gpu_days.py: cannot read {file}: {(error.strerror or str(error)).lower()}")


def between(pods: list[dict[str, str]], days: tuple[int, int], *, all_ended: bool) -> list[dict[str, str]]:
    """Return the pods that arrive within some days, with times from the first of them on.

    all_ended: leave out those that run longer: their runtime is not known by then.
    """
    first, last = days[0] * DAY, days[1] * DAY
    found = []
    for pod in pods:
        created, deleted = float(pod["creation_time"]), float(pod["deletion_time"])
        if first <= created < last and (deleted < last or not all_ended):
            found.append(pod | {"creation_time": f"{created - first:g}", "deletion_time": f"{deleted - first:g}"})
    return found


def write(file: Path, rows: list[dict[str, str]]) -> None:
    """Write a list."""
    if not rows:
        sys.exit(f"gpu_days.py: nothing to write into {file}: is this the trace?")
    with file.open("w", newline="") as opened:
        table = csv.DictWriter(opened, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    print(f"{file}: {len(rows)} rows")


def main() -> None:
    """Write the lists."""
    parser = argparse.ArgumentParser(description="Take a small cluster and two lists of pods out of the GPU trace.")
    parser.add_argument("nodes", type=Path)
    parser.add_argument("pods", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    nodes = [node for node in read(given.nodes) if node.get("model") == MODEL and node.get("gpu") == "8"]
    pods = [pod for pod in read(given.pods) if pod.get("num_gpu", "0") != "0" and not pod.get("gpu_spec")]
    given.folder.mkdir(parents=True, exist_ok=True)
    write(given.folder / "nodes.csv", nodes[:NODES])
    write(given.folder / "train.csv", between(pods, TRAIN_DAYS, all_ended=True))
    write(given.folder / "test.csv", between(pods, TEST_DAYS, all_ended=False))


if __name__ == "__main__":
    main()

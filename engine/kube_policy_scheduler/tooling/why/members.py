"""How old what was known of the nodes and pods of clusters is, and why nothing is known of others: for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kube_policy_scheduler.diagnostics import printable
from kube_policy_scheduler.times import ago
from kube_policy_scheduler.wording import some

MOST_REASONS = 5


def member_lines(clusters: Iterable[tuple[str, float | None, str]], *, now: float) -> Iterator[str]:
    """Say it of clusters of which a policy reads nodes and pods.

    Args:
        clusters: name, when they were read (Unix seconds; None: they were not, or that does not matter), and why they
            are not known ("" if they are).
        now: Unix seconds.
    """
    read: list[tuple[float, str]] = []
    unread: dict[str, list[str]] = {}
    for name, at, problem in clusters:
        if problem:
            unread.setdefault(problem, []).append(name)
        elif at is not None:
            read.append((now - at, name))
    if read:
        oldest, name = max(read)
        newest = f", the oldest (of {name}) {ago(oldest)}" if len(read) > 1 else f" {ago(oldest)}"
        yield printable(f"Nodes and pods were read of {some([each for _, each in sorted(read)])}{newest}.")
    for problem, names in list(unread.items())[:MOST_REASONS]:
        yield printable(f"Nodes and pods are not known of {some(names)}: {problem}")

"""The process that checks candidate sets of policies; `policy_checker` has the other side."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.process.worker_process import serve
from kube_policy_scheduler.builtins.environment import install_extensions
from kube_policy_scheduler.daemon.policies.policy_checker import CheckRequest, CheckResult, dump_tree
from kube_policy_scheduler.diagnostics import Diagnostic, Severity, Source, render
from kube_policy_scheduler.lang.memo import Memo
from kube_policy_scheduler.policy.policy_set import load

MOST_SHOWN = 100
"""Diagnostics of one set in the log."""


class PolicyChecks:
    """Checks sets; of what is as it was in the last good one, nothing is done again."""

    def __init__(self) -> None:
        self._known: dict[str, Mapping[Hashable, Any]] = {}
        """By owner."""

    def check(self, work: bytes) -> bytes:
        """Return the verdict about a set."""
        request = msgspec.msgpack.decode(work, type=CheckRequest)
        install_extensions(request.extensions, stopwatch=time.perf_counter)
        owner = request.owner.name if request.owner is not None else ""
        memo = Memo(self._known.get(owner, {}))
        sources = [Source(name, text) for name, text in request.files]
        loaded = load(sources, default_schedulers=frozenset(request.default_schedulers), memo=memo, owner=request.owner)
        found = verdict(loaded.diagnostics)
        if loaded.policy_set is not None:
            self._known[owner] = memo.known
            wanted = frozenset(request.trees)
            found.trees = {
                file.source.name: dump_tree(file) for file in loaded.checked.files if file.source.name in wanted
            }
        return msgspec.msgpack.encode(found)


def verdict(diagnostics: Sequence[Diagnostic]) -> CheckResult:
    """Return diagnostics in words: of very many of a kind the first, and how many more there are."""
    bad = [each for each in diagnostics if each.severity is Severity.ERROR]
    rest = [each for each in diagnostics if each.severity is not Severity.ERROR]
    return CheckResult(_rendered(bad), _rendered(rest))


def _rendered(diagnostics: Sequence[Diagnostic]) -> tuple[str, ...]:
    texts = [render(diagnostic) for diagnostic in diagnostics[:MOST_SHOWN]]
    if len(diagnostics) > MOST_SHOWN:
        texts.append(f"and {len(diagnostics) - MOST_SHOWN} more: `policyctl lint` shows all")
    return tuple(texts)


def prepare() -> Callable[[bytes], bytes]:
    """Have the parser's tables and the builtins there before the first set comes, for which a start waits.

    Returns what checks sets.
    """
    load([Source("warm-up.policy", "filter node.ready\nuse kubernetes scores\n")], default_schedulers=frozenset())
    return PolicyChecks().check


if __name__ == "__main__":
    serve(prepare())

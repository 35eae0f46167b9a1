"""Owners: who wrote a set of policies, which pods these may govern, and what they may use, as administrators decide."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal, TypeAlias, get_args

import msgspec

ALWAYS_ALLOWED = frozenset({"language", "policy", "for", "priority", "ties", "let", "def", "metric", "use"})
"""Keywords that each owner may use: they name things, or allow less than the owner's own limits do."""
ADMINISTRATORS = frozenset({"queue", "reclaim", "for workloads", "choose", "divide", "keep", "use karmada"})
"""Words that no owner may use: they share resources among the pods of all owners, or choose clusters for all."""
Restrictable: TypeAlias = Literal[
    "require",
    "filter",
    "score",
    "hold",
    "order",
    "backfill",
    "spread",
    "pack",
    "limit",
    "devices",
    "domains",
    "canary",
    "use kubernetes scores",
    "gang",
    "preempt",
    "rebalance",
    "use kubernetes without",
    "promql",
]
"""What an administrator can allow: keywords, two forms of `use`, and `promql` for metrics."""
RESTRICTABLE: tuple[Restrictable, ...] = get_args(Restrictable)
ALLOWED_BY_DEFAULT = RESTRICTABLE[: RESTRICTABLE.index("gang")]
"""These decide about the owner's own pods only. `gang` keeps places for pods that may never come, `preempt` selects
pods of others, `rebalance` evicts running pods, `use kubernetes without` can overload nodes for all pods, and `promql`
reads the metrics of all."""


class SetLimits(msgspec.Struct, frozen=True):
    """Size limits of a set of policies."""

    statements: int = 10_000
    """Of all policies together, those of a used file counted for each policy that uses it: seconds of checking."""
    steps: int = 200_000
    """Expressions looked at to check all policies together."""
    governs_cost: int = 10_000
    """Operations of all `for pods where` conditions together: at 0.3 µs each 3 ms for a pod of a new kind."""
    inputs: int = 500
    """Metric queries of all policies together: each is sent about every 15 s."""

    def share(self, owners: int) -> SetLimits:
        """Return what each of several owners may use: a tenth of the whole, or less where there are more than ten."""
        parts = max(owners, 10)
        return SetLimits(
            self.statements // parts, self.steps // parts, self.governs_cost // parts, self.inputs // parts
        )


ONE_SHARE = SetLimits().share(1)
"""Of one among few owners."""


class Owner(msgspec.Struct, frozen=True):
    """One owner, with what the administrator allows."""

    name: str
    namespaces: tuple[str, ...]
    """Of the pods that the owner's policies may govern; `*` in a name matches any characters."""
    pods: str = ""
    """A condition as after `for pods where`, that these pods must also match; "": all of them."""
    max_priority: int = 0
    """Highest `priority` of the owner's policies."""
    allowed: frozenset[str] = frozenset(ALLOWED_BY_DEFAULT)
    """Words of `RESTRICTABLE`."""
    schedulers: frozenset[str] = frozenset()
    """Names that may follow `scheduler`."""
    limits: SetLimits = ONE_SHARE

    @property
    def scope(self) -> str:
        """Return the condition of the pods that the owner's policies may govern, as policies write it; "": all."""
        exact = sorted(name for name in self.namespaces if "*" not in name)
        patterns = sorted(name for name in self.namespaces if "*" in name)
        listed = ", ".join(f'"{name}"' for name in exact)
        tests = [f"pod.namespace in [{listed}]"] if exact else []
        tests += [f'pod.namespace matches "^{name.replace("*", "[a-z0-9-]*")}$"' for name in patterns]
        namespaces = "" if "*" in self.namespaces else f"({' or '.join(tests)})"
        return " and ".join(part for part in (namespaces, f"({self.pods})" if self.pods else "") if part)

    def may_govern(self, namespace: str) -> bool:
        """Return whether the owner may govern pods of a namespace, judged by its name."""
        return any(fnmatchcase(namespace, pattern) for pattern in self.namespaces)

    def may_meet(self, other: Owner) -> bool:
        """Return whether both may govern pods of one namespace, judged by the names."""
        return any(_may_meet(one, two) for one in self.namespaces for two in other.namespaces)


def _may_meet(one: str, two: str) -> bool:
    """Return whether some text may match two patterns: what stands before their first and behind their last `*` does.

    Exact if one of them has no `*`.
    """
    for exact, pattern in ((one, two), (two, one)):
        if "*" not in exact:
            return fnmatchcase(exact, pattern)
    heads = sorted((one.split("*")[0], two.split("*")[0]), key=len)
    tails = sorted((one.split("*")[-1], two.split("*")[-1]), key=len)
    return heads[1].startswith(heads[0]) and tails[1].endswith(tails[0])

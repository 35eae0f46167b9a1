"""Where a decision differs from the one that was wanted, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.framework.plugins.dynamic_resources import ClaimsAfter

_ORDER = ("prefilter", "filters", "scores", "hosts", "preemption", "message")
WHOLE = frozenset(_ORDER)
"""What a `want` holds that is meant to be complete: then anything beyond it is a difference too."""
_SETS = frozenset({"victims", "ties", "hosts", "nodeNames", "reasons"})
"""Lists whose order means nothing."""
_COMPLETE = frozenset({"candidates"})
"""Objects that are complete wherever they are wanted at all."""
_NOTHING: tuple[Any, ...] = (None, "", [], {})
_NO_CLAIMS = ClaimsAfter.NO_CLAIMS.value
_PREEMPTION_PREFIXES = ("", f"{_NO_CLAIMS}, ", f"{_NO_CLAIMS}, preemption: ", "preemption: ")
"""What stands before DefaultPreemption's own words in a message."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that was decided otherwise."""

    path: str
    """Where, such as `filters/node-00/reasons`."""
    want: Any
    got: Any


def differences(want: Mapping[str, Any], got: Mapping[str, Any]) -> list[Difference]:
    """Return where a decision differs from what was wanted.

    A want with all of `WHOLE` is complete. Any other compares only what it names: some nodes, some keys; in one
    about a single plugin null in place of a score says that the plugin has none.
    """
    plugin: str | None = want.get("plugin")
    comparison = _Comparison(whole=plugin is None and want.keys() >= WHOLE, plugin=plugin)
    for key in sorted(want, key=lambda key: (_ORDER.index(key) if key in WHOLE else len(_ORDER), key)):
        value = want[key]
        if key == "scores" and plugin is not None:
            comparison.scores_of(plugin, value, got.get(key) or {})
        elif key != "plugin":
            comparison.compare(key, value, got.get(key))
    return comparison.found


class _Comparison:
    def __init__(self, *, whole: bool, plugin: str | None) -> None:
        self.found: list[Difference] = []
        self._whole = whole
        self._plugin = plugin

    def scores_of(self, plugin: str, want: Any, got: Mapping[str, Mapping[str, Any]]) -> None:
        """Compare one plugin's scores; null for a node, or for all, says that the plugin has none there."""
        for node, wanted in (want if want is not None else dict.fromkeys(got)).items():
            scores = got.get(node, {})
            if isinstance(wanted, Mapping):
                self.compare(f"scores/{node}", wanted, scores)
            elif wanted != scores.get(plugin):
                self._differ(f"scores/{node}/{plugin}", wanted, scores.get(plugin))

    def compare(self, path: str, want: Any, got: Any) -> None:
        """Compare a value and what is inside it."""
        key = path.rsplit("/", 1)[-1]
        if isinstance(want, Mapping) and isinstance(got, Mapping):
            self._members(path, key, want, got)
        elif key in _SETS and isinstance(want, list) and isinstance(got, list):
            if sorted(want) != sorted(got):
                self._differ(path, want, got)
        elif path == "preemption/message" and self._plugin is not None:
            if got not in {f"{prefix}{want}" for prefix in _PREEMPTION_PREFIXES}:
                self._differ(path, want, got)
        elif want != got and not (want in _NOTHING and got in _NOTHING):
            self._differ(path, want, got)

    def _members(self, path: str, key: str, want: Mapping[str, Any], got: Mapping[str, Any]) -> None:
        for name, value in want.items():
            if name == "nominatedNodeIn":
                if got.get("nominatedNode") not in value:
                    self._differ(f"{path}/nominatedNode", value, got.get("nominatedNode"))
            else:
                self.compare(f"{path}/{name}", value, got.get(name))
        if self._whole or key in _COMPLETE:
            for name in got.keys() - want.keys():
                self._differ(f"{path}/{name}", None, got[name])

    def _differ(self, path: str, want: Any, got: Any) -> None:
        self.found.append(Difference(path, want, got))

"""Which templates have pods: what is kept for one goes soon after its last pod has gone.

A pod that waits and a pod on a node both count. Without that, counters and totals of pods that came and went would be
kept up to date, and paid for by every other pod.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakMethod

from kube_policy_scheduler.cluster.pods import PodTemplate

MOST_IDLE, MOST_IDLE_BYTES = 32, 256 * 2**10
"""Templates without pods for which everything is kept for a while, and of their sizes together: a workload whose only
pod is replaced finds it again. A template that asks for very much is large itself."""

_LET_GO_AT_ONCE = 256
"""10 ms; it is called with each pod that goes, and before each decision."""


class TemplatesInUse:
    """How many holders each template has, and the last few templates without any."""

    def __init__(self) -> None:
        self._holders: dict[PodTemplate, int] = {}
        self._idle: dict[PodTemplate, None] = {}
        """Those without holders for which something may be kept; the one that has had none for longest first."""
        self._idle_bytes = 0
        self._long_idle: set[PodTemplate] = set()
        """Those of them that were there when it was last looked for long idle ones."""
        self._on_end: list[WeakMethod[Callable[[PodTemplate], None]]] = []

    def on_end(self, ended: Callable[[PodTemplate], None]) -> None:
        """Call this method with each template that was let go, from now on. It does not keep its object."""
        self._on_end = [each for each in self._on_end if each() is not None]
        self._on_end.append(WeakMethod(ended))

    def hold(self, template: PodTemplate) -> None:
        """Count one more holder: a pending pod, or all pods of the template on nodes."""
        number = self._holders.get(template, 0)
        self._holders[template] = number + 1
        if not number and template in self._idle:
            self._drop(template)

    def release(self, template: PodTemplate) -> None:
        """Count one holder less; nothing is let go yet: `let_go` does that."""
        number = self._holders[template] - 1
        if number:
            self._holders[template] = number
        else:
            del self._holders[template]
            self._add(template)

    def __contains__(self, template: object) -> bool:
        """Return whether a template has pods, or had some lately."""
        return template in self._holders or template in self._idle

    def asked(self, template: PodTemplate) -> None:
        """Note that something is kept for a template, perhaps one without pods."""
        if template not in self._holders:
            if template in self._idle:
                self._drop(template)
            self._add(template)

    def _add(self, template: PodTemplate) -> None:
        self._idle[template] = None
        self._idle_bytes += template.size

    def _drop(self, template: PodTemplate) -> None:
        del self._idle[template]
        self._idle_bytes -= template.size
        self._long_idle.discard(template)

    def let_go(self) -> None:
        """Let go of templates that have had no pods for longest, if too many are kept; of very many, the next time.

        Not while a pod is decided or tried on other nodes: it may be about to use what is kept.
        """
        left = _LET_GO_AT_ONCE
        while (len(self._idle) > MOST_IDLE or self._idle_bytes > MOST_IDLE_BYTES) and left:
            self._end(next(iter(self._idle)))
            left -= 1

    def let_long_idle_go(self) -> None:
        """Let go of templates that nobody has had a pod of, or asked for, since this was called last.

        Not while a pod is decided, as `let_go`.
        """
        for template in list(self._long_idle):
            self._end(template)
        self._long_idle = set(self._idle)

    def _end(self, template: PodTemplate) -> None:
        self._drop(template)
        for each in self._on_end:
            if (ended := each()) is not None:
                ended(template)

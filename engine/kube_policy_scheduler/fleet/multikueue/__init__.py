"""MultiKueue: which worker clusters a Workload of Kueue is nominated to."""

from __future__ import annotations

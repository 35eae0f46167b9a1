"""The engines for which it can be decided."""

from __future__ import annotations

from kube_policy_scheduler.daemon.fleet.engine import EngineKind
from kube_policy_scheduler.daemon.fleet.karmada_engine import KarmadaEngine
from kube_policy_scheduler.daemon.fleet.resources import FLEET

KARMADA = EngineKind(FLEET, KarmadaEngine)

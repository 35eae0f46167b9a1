"""The engines for which it can be decided, by the name that `--for` has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kube_policy_scheduler.adapters.kube.fleet_resources import KARMADA, MULTIKUEUE, OCM
from kube_policy_scheduler.daemon.configuration.settings import FleetEngine
from kube_policy_scheduler.daemon.fleet.engine import EngineKind
from kube_policy_scheduler.daemon.fleet.karmada_engine import KarmadaEngine
from kube_policy_scheduler.daemon.fleet.multikueue_engine import MultiKueueEngine
from kube_policy_scheduler.daemon.fleet.ocm_engine import OcmEngine

ENGINES: Mapping[FleetEngine, EngineKind] = MappingProxyType(
    {
        "karmada": EngineKind(KARMADA, KarmadaEngine),
        "multikueue": EngineKind(MULTIKUEUE, MultiKueueEngine),
        "ocm": EngineKind(OCM, OcmEngine),
    }
)

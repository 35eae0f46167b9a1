"""The engines for which it can be decided, by the name that `--for` has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kube_policy_scheduler.adapters.kube.fleet_resources import INVENTORY, KARMADA, MULTIKUEUE, OCM
from kube_policy_scheduler.daemon.configuration.settings import FleetEngine, Settings
from kube_policy_scheduler.daemon.fleet.engine import EngineKind
from kube_policy_scheduler.daemon.fleet.inventory_engine import InventoryEngine
from kube_policy_scheduler.daemon.fleet.karmada_engine import KarmadaEngine
from kube_policy_scheduler.daemon.fleet.karmada_shadow import KarmadaShadow
from kube_policy_scheduler.daemon.fleet.multikueue_engine import MultiKueueEngine
from kube_policy_scheduler.daemon.fleet.ocm_engine import OcmEngine

ENGINES: Mapping[FleetEngine, EngineKind] = MappingProxyType(
    {
        "karmada": EngineKind(KARMADA, KarmadaEngine),
        "multikueue": EngineKind(MULTIKUEUE, MultiKueueEngine),
        "ocm": EngineKind(OCM, OcmEngine),
        "clusterprofile": EngineKind(INVENTORY, InventoryEngine),
    }
)

_SHADOWS: Mapping[FleetEngine, EngineKind] = MappingProxyType({"karmada": EngineKind(KARMADA, KarmadaShadow)})


class UnsupportedModeError(Exception):
    """The command has no such mode, or not for the engine. The text says which there are."""


def engine_kind(settings: Settings) -> EngineKind:
    """Return how the engine of the settings is made, for their mode.

    Raises:
        UnsupportedModeError: there is none.
    """
    engine = settings.fleet.engine
    match settings.mode:
        case "scheduler":
            return ENGINES[engine]
        case "shadow" if engine in _SHADOWS:
            return _SHADOWS[engine]
        case "shadow":
            raise UnsupportedModeError(f"mode shadow is only for the engine {', '.join(_SHADOWS)}, got {engine}")
    raise UnsupportedModeError(f"expected mode scheduler or shadow, got {settings.mode}")

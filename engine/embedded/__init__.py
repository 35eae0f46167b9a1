"""A Kubernetes cluster inside the process: the REST API on loopback and simulated nodes. Knows no scheduler."""

from engine.embedded.audit import Permission, Record, RequestLog
from engine.embedded.cluster import ClusterThread, EmbeddedCluster
from engine.embedded.controllers import ControllerSettings
from engine.embedded.faults import Fault, FaultInjector
from engine.embedded.identity import User, service_account
from engine.embedded.kubelets import KubeletSettings
from engine.embedded.security import SecuritySettings
from engine.embedded.server import ServerSettings

__all__ = [
    "ClusterThread",
    "ControllerSettings",
    "EmbeddedCluster",
    "Fault",
    "FaultInjector",
    "KubeletSettings",
    "Permission",
    "Record",
    "RequestLog",
    "SecuritySettings",
    "ServerSettings",
    "User",
    "service_account",
]

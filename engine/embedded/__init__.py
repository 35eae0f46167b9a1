"""A Kubernetes cluster inside the process: the REST API on loopback and simulated nodes. Knows no scheduler."""

from engine.embedded.cluster import ClusterThread, EmbeddedCluster
from engine.embedded.kubelets import KubeletSettings
from engine.embedded.server import ServerSettings

__all__ = ["ClusterThread", "EmbeddedCluster", "KubeletSettings", "ServerSettings"]

"""A Kubernetes cluster inside the process: the REST API on loopback and simulated nodes. Knows no scheduler.

    async with EmbeddedCluster() as cluster:          # in a loop; `with cluster.in_thread():` without one
        cluster.load(objects)                         # as if they had always been there, with defaults
        cluster.kubeconfig(Path("kubeconfig"))        # for kubectl and for any client

kubectl (1.20 to 1.36), the official client and kube-scheduler itself work with it; the answers to some three
hundred requests are compared with recorded ones of a real API server. Its limits: it stores nothing on disk, has
no webhooks, custom resources or quotas, keeps no field ownership (server-side apply is the last writer's), speaks
JSON only (protobuf is read), and its controllers do no rolling updates.
"""

from kube_policy_scheduler.embedded.access import User, service_account
from kube_policy_scheduler.embedded.cluster import ClusterThread, EmbeddedCluster
from kube_policy_scheduler.embedded.controllers import ControllerSettings
from kube_policy_scheduler.embedded.kubelets import KubeletSettings
from kube_policy_scheduler.embedded.server import ServerSettings

__all__ = [
    "ClusterThread",
    "ControllerSettings",
    "EmbeddedCluster",
    "KubeletSettings",
    "ServerSettings",
    "User",
    "service_account",
]

"""The API server as a test sees it: plain JSON through the official client, beside the scheduler."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from kubernetes.client import ApiClient, Configuration, CoreV1Api
from kubernetes.watch import Watch

Json = dict[str, Any]

_OCM = "/apis/cluster.open-cluster-management.io"
_PATHS = {
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "pods": "/api/v1/namespaces/{namespace}/pods",
    "configmaps": "/api/v1/namespaces/{namespace}/configmaps",
    "serviceaccounts": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "services": "/api/v1/namespaces/{namespace}/services",
    "persistentvolumeclaims": "/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "events": "/apis/events.k8s.io/v1/namespaces/{namespace}/events",
    "leases": "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
    "deployments": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "replicasets": "/apis/apps/v1/namespaces/{namespace}/replicasets",
    "controllerrevisions": "/apis/apps/v1/namespaces/{namespace}/controllerrevisions",
    "poddisruptionbudgets": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "podgroups": "/apis/scheduling.k8s.io/v1alpha2/namespaces/{namespace}/podgroups",
    "storageclasses": "/apis/storage.k8s.io/v1/storageclasses",
    "deviceclasses": "/apis/resource.k8s.io/v1/deviceclasses",
    "resourceslices": "/apis/resource.k8s.io/v1/resourceslices",
    "resourceclaims": "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
    "resourceclaimtemplates": "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates",
    "roles": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "clusterroles": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "clusterrolebindings": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "workloads": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads",
    "admissionchecks": "/apis/kueue.x-k8s.io/v1beta2/admissionchecks",
    "multikueueclusters": "/apis/kueue.x-k8s.io/v1beta2/multikueueclusters",
    "multikueueconfigs": "/apis/kueue.x-k8s.io/v1beta2/multikueueconfigs",
    "managedclusters": f"{_OCM}/v1/managedclusters",
    "addonplacementscores": _OCM + "/v1alpha1/namespaces/{namespace}/addonplacementscores",
    "managedclustersets": f"{_OCM}/v1beta2/managedclustersets",
    "managedclustersetbindings": _OCM + "/v1beta2/namespaces/{namespace}/managedclustersetbindings",
    "placements": _OCM + "/v1beta1/namespaces/{namespace}/placements",
    "placementdecisions": _OCM + "/v1beta1/namespaces/{namespace}/placementdecisions",
    "clusterprofiles": "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{namespace}/clusterprofiles",
    "schedulingpolicies": "/apis/policy-scheduler.dev/v1alpha1/namespaces/{namespace}/schedulingpolicies",
    "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "clusters": "/apis/cluster.karmada.io/v1alpha1/clusters",
    "resourcebindings": "/apis/work.karmada.io/v1alpha2/namespaces/{namespace}/resourcebindings",
    "clusterresourcebindings": "/apis/work.karmada.io/v1alpha2/clusterresourcebindings",
    "secrets": "/api/v1/namespaces/{namespace}/secrets",
    "validatingwebhookconfigurations": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "validatingadmissionpolicies": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "validatingadmissionpolicybindings": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "mutatingadmissionpolicies": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
    "apiservices": "/apis/apiregistration.k8s.io/v1/apiservices",
}


@dataclass(frozen=True)
class Endpoint:
    """Where an API server is and how its administrator presents himself."""

    url: str
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None


class ApiRefusal(AssertionError):
    """The API server refused; `code` is the HTTP status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Api:
    """Create, read, change and delete, as the cluster's administrator."""

    def __init__(self, endpoint: Endpoint) -> None:
        configuration = Configuration(
            host=endpoint.url,
            ssl_ca_cert=_text(endpoint.ca_file),
            cert_file=_text(endpoint.certificate_file),
            key_file=_text(endpoint.key_file),
        )
        configuration.proxy = None  # whatever the environment says
        self._client = ApiClient(configuration)

    def close(self) -> None:
        self._client.close()

    def request(
        self, verb: str, path: str, body: Json | None = None, *, content_type: str = "application/json"
    ) -> Json:
        """Send one request and return the object in the answer.

        Raises:
            ApiRefusal: the answer is not 2xx.
        """
        headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if body is not None else {})
        url = self._client.configuration.host + path
        answer = self._client.call_api(verb, url, header_params=headers, body=body, _request_timeout=30)
        content = answer.read()
        if not 200 <= answer.status < 300:
            raise ApiRefusal(answer.status, content.decode())
        return msgspec.json.decode(content, type=Json)

    @staticmethod
    def path(plural: str, name: str = "", *, namespace: str = "default") -> str:
        collection = _PATHS[plural].format(namespace=namespace)
        return f"{collection}/{name}" if name else collection

    def create(self, plural: str, thing: Mapping[str, Any]) -> Json:
        namespace = thing["metadata"].get("namespace", "default")
        return self.request("POST", self.path(plural, namespace=namespace), dict(thing))

    def get(self, plural: str, name: str, *, namespace: str = "default") -> Json:
        return self.request("GET", self.path(plural, name, namespace=namespace))

    def list(self, plural: str, *, namespace: str = "default", query: str = "") -> list[Json]:
        found: list[Json] = self.request("GET", self.path(plural, namespace=namespace) + query)["items"]
        return found

    def patch(
        self, plural: str, name: str, change: Mapping[str, Any], *, namespace: str = "default", subresource: str = ""
    ) -> Json:
        """Apply a merge patch."""
        path = self.path(plural, name, namespace=namespace) + (f"/{subresource}" if subresource else "")
        return self.request("PATCH", path, dict(change), content_type="application/merge-patch+json")

    def delete(self, plural: str, name: str, *, namespace: str = "default") -> None:
        path = f"{self.path(plural, name, namespace=namespace)}?gracePeriodSeconds=0"
        self.request("DELETE", path)

    def changes_of_pods(self, *, after: str, within: float) -> Iterator[tuple[str, Json]]:
        """Watch pods: yield the kind of each change after a resource version, with the pod, for so many seconds."""
        every = CoreV1Api(self._client).list_pod_for_all_namespaces
        watched = Watch().stream(every, resource_version=after, timeout_seconds=math.ceil(within), deserialize=False)
        with closing(watched):
            yield from ((event["type"], event["object"]) for event in watched)

    def delete_all(self, plural: str, *, namespace: str = "default") -> None:
        self.request("DELETE", f"{self.path(plural, namespace=namespace)}?gracePeriodSeconds=0")


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)

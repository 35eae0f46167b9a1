"""The defaults of a pod's spec that depend only on itself. Pure functions on plain dictionaries.

They follow `pkg/apis/core/v1/defaults.go` of Kubernetes 1.36; pod templates get them too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from kube_policy_scheduler.quantities.quantity import QuantityError, scaled

Json: TypeAlias = dict[str, Any]

DEFAULT_SCHEDULER_NAME = "default-scheduler"
_MAX_POD_LEVEL = ("cpu", "memory")
"""Resources that may be overcommitted, so their requests and limits at pod level can differ."""
_FILE_MODE = 0o644
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_DEFAULTS: Mapping[str, int] = MappingProxyType(
    {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
)
_MODE_SOURCES = ("configMap", "downwardAPI", "projected", "secret")


def default_pod_spec(spec: Json) -> None:
    """Fill a pod spec, in place, with the defaults that depend only on itself."""
    for name, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", DEFAULT_SCHEDULER_NAME),
    ):
        if not spec.get(name) and spec.get(name) is not False and spec.get(name) != 0:
            spec[name] = value
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if spec.get("serviceAccount") and not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    for container in containers(spec):
        _default_container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for constraint in spec.get("topologySpreadConstraints") or ():
        constraint.setdefault("maxSkew", 1)
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")
    _default_pod_level_resources(spec)
    round_quantities(spec.get("overhead"))


def _default_container(container: Json, *, host_network: bool) -> None:
    container.setdefault("resources", {})
    resources = container["resources"]
    if resources is None:
        resources = container["resources"] = {}
    limits = resources.get("limits")
    if limits:
        requests = resources.setdefault("requests", {})
        if requests is None:
            requests = resources["requests"] = {}
        for name, amount in limits.items():
            requests.setdefault(name, amount)
    round_quantities(resources.get("limits"))
    round_quantities(resources.get("requests"))
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if host_network and not port.get("hostPort"):
            port["hostPort"] = port["containerPort"]
    for name in _PROBES:
        if isinstance(container.get(name), dict):
            _default_probe(container[name])
    for variable in container.get("env") or ():
        if reference := (variable.get("valueFrom") or {}).get("fieldRef"):
            reference.setdefault("apiVersion", "v1")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        image = str(container.get("image") or "")
        tag = image.rpartition("/")[2].partition(":")[2]
        latest = "@" not in image and tag in ("", "latest")
        container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"


def _default_probe(probe: Json) -> None:
    for name, value in _PROBE_DEFAULTS.items():
        if not probe.get(name):
            probe[name] = value
    if isinstance(probe.get("httpGet"), dict):
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _default_volume(volume: Json) -> None:
    for name in _MODE_SOURCES:
        if isinstance(volume.get(name), dict):
            volume[name].setdefault("defaultMode", _FILE_MODE)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")


def containers(spec: Mapping[str, Any]) -> Iterable[Json]:
    """Yield the containers of a pod, those that initialise first."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _default_pod_level_resources(spec: Json) -> None:
    resources = spec.get("resources")
    if not isinstance(resources, dict):
        return
    limits = resources.get("limits") or {}
    aggregated = aggregate_requests(spec)
    if limits:
        for name, amount in aggregated.items():
            if name.startswith("hugepages-"):
                limits.setdefault(name, amount)
        requests = resources.setdefault("requests", {})
        for name, amount in limits.items():
            if name in requests or not (name in _MAX_POD_LEVEL or name.startswith("hugepages-")):
                continue
            requests[name] = aggregated.get(name, amount) if name in _MAX_POD_LEVEL else amount
    round_quantities(resources.get("limits"))
    round_quantities(resources.get("requests"))


def aggregate_requests(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return what the containers of a pod together request: sum of containers, or the largest init step.

    Restartable init containers (sidecars) count with the containers and with the init steps after them.
    """
    total: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    largest: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, own)
            step = dict(sidecars)
        else:
            step = dict(sidecars)
            _add(step, own)
        for name, amount in step.items():
            largest[name] = max(largest.get(name, 0), amount)
    for container in spec.get("containers") or ():
        _add(total, _requests(container))
    _add(total, sidecars)
    for name, amount in largest.items():
        total[name] = max(total.get(name, 0), amount)
    return {name: format_millis(amount) for name, amount in total.items()}


def _requests(container: Mapping[str, Any]) -> dict[str, int]:
    requests = (container.get("resources") or {}).get("requests") or {}
    return {name: scaled(amount, 3) for name, amount in requests.items()}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def format_millis(thousandths: int) -> str:
    """Return a quantity of thousandths as text: `1500` is `1500m`, `2000` is `2`."""
    whole, rest = divmod(thousandths, 1000)
    return f"{thousandths}m" if rest else str(whole)


def round_quantities(resources: Json | None) -> None:
    """Round quantities finer than a thousandth up, in place; what is not a quantity is left for validation."""
    if not isinstance(resources, dict):
        return
    for name, amount in resources.items():
        if (isinstance(amount, str) and amount.endswith(("n", "u"))) or "." in str(amount):
            try:
                exact = scaled(amount, 9)
            except QuantityError:
                continue
            if exact % 1_000_000:
                resources[name] = format_millis(scaled(amount, 3))


def qos_class(spec: Mapping[str, Any]) -> str:
    """Return a pod's quality of service: Guaranteed, Burstable or BestEffort."""
    if spec.get("resources"):
        return _qos([spec["resources"]])
    return _qos([container.get("resources") or {} for container in containers(spec)])


def _qos(resources: list[Mapping[str, Any]]) -> str:
    positive: Callable[[Mapping[str, Any], str], bool] = lambda amounts, name: _millis(amounts.get(name)) > 0  # noqa: E731
    any_set, guaranteed = False, True
    for item in resources:
        requests, limits = item.get("requests") or {}, item.get("limits") or {}
        for name in _MAX_POD_LEVEL:
            any_set |= positive(requests, name) or positive(limits, name)
            same = _millis(requests.get(name)) == _millis(limits.get(name))
            guaranteed &= positive(limits, name) and same
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _millis(amount: Any) -> int:
    if amount is None:
        return 0
    try:
        return scaled(amount, 3)
    except QuantityError:
        return 0

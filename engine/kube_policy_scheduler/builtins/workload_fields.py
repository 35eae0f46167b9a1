"""What a policy of workloads can read of the workload to be placed: `workload.…`."""

from kube_policy_scheduler.fleet.columns import FleetFrame
from kube_policy_scheduler.lang.compiling.over_time import Line
from kube_policy_scheduler.lang.environment import Key, pod_field
from kube_policy_scheduler.lang.signature import Amount, Duration, MaybeText, Number, Text, TextList
from kube_policy_scheduler.lang.types import Depends

_MOST = 1e19
_NANOS = 1e9
_QUEUE = Depends.POD | Depends.QUEUE


@pod_field("workload.kind")
def kind(frame: FleetFrame) -> Text:
    """The kind of the workload, such as `Deployment` or `ConfigMap`."""
    return frame.workload.kind


@pod_field("workload.api_version", foreign=("apiversion", "api", "group"))
def api_version(frame: FleetFrame) -> Text:
    """The API group and version of the workload, such as `apps/v1`."""
    return frame.workload.api_version


@pod_field("workload.name")
def name(frame: FleetFrame) -> Text:
    """The name of the workload."""
    return frame.workload.name


@pod_field("workload.namespace", foreign=("ns",))
def namespace(frame: FleetFrame) -> Text:
    """The namespace of the workload; "" for kinds without one."""
    return frame.workload.namespace


@pod_field("workload.label", key=Key.LABEL)
def label(frame: FleetFrame, key: str) -> MaybeText:
    """A label of the workload; absent if it does not have it, or if the workload could not be read."""
    return (frame.workload.labels or {}).get(key)


@pod_field("workload.annotation", key=Key.ANNOTATION)
def annotation(frame: FleetFrame, key: str) -> MaybeText:
    """An annotation of the workload; absent if it does not have it, or if the workload could not be read."""
    return (frame.workload.annotations or {}).get(key)


@pod_field("workload.replicas", low=0, high=2**31, foreign=("count", "size", "scale"))
def replicas(frame: FleetFrame) -> Number:
    """How many replicas the workload asks for; 0 for kinds without pods, such as a ConfigMap."""
    return float(frame.workload.replicas)


@pod_field("workload.request", key=Key.RESOURCE, low=0, high=_MOST, foreign=("requests", "resources"))
def request(frame: FleetFrame, resource: str) -> Amount:
    """The request of a resource by each replica: cpu in cores, memory in bytes; 0 if there is none."""
    if resource == "pods":
        return 1.0
    return (frame.workload.requests or {}).get(resource, 0) / _NANOS


@pod_field("workload.priority", low=-(2**31), high=2**31)
def priority(frame: FleetFrame) -> Number:
    """The priority of the workload (`spec.schedulePriority`); 0 if it has none."""
    return float(frame.workload.priority)


@pod_field("workload.priority_class", foreign=("priorityclass", "priority_class_name"))
def priority_class(frame: FleetFrame) -> Text:
    """The name of the priority class of the pods; "" if there is none."""
    return frame.workload.priority_class


@pod_field("workload.components")
def components(frame: FleetFrame) -> TextList:
    """The names of the kinds of pods that make up the workload, such as `jobmanager`; empty for most kinds."""
    return tuple(component.name for component in frame.workload.components)


@pod_field("workload.created", depends=Depends.POD, low=0, high=1e11)
def created(frame: FleetFrame) -> Duration:
    """When the workload's binding was created, as time since 1970."""
    return frame.workload.created or 0.0


def _waits_since(frame: FleetFrame) -> float | None:
    """Return since when the workload has waited, in Unix seconds; None if it does not, or nobody knows."""
    workload = frame.workload
    short = sum(workload.has.values()) < workload.replicas or not workload.has
    since = workload.created if workload.decided is None else workload.decided
    return since if short else None


def _waiting_over_time(frame: FleetFrame) -> Line:
    since = _waits_since(frame)
    if since is None:
        return Line(0.0)
    return Line(-since, 1.0) if frame.now >= since else Line(0.0, 0.0, since)


@pod_field("workload.waiting", depends=_QUEUE | Depends.CLOCK, low=0, high=1e11, over_time=_waiting_over_time)
def waiting(frame: FleetFrame) -> Duration:
    """How long the workload has waited for clusters; 0 if it has all that it asks for."""
    since = _waits_since(frame)
    return max(frame.now - since, 0.0) if since is not None else 0.0


@pod_field("workload.attempts", depends=_QUEUE, low=0, high=1e9)
def attempts(frame: FleetFrame) -> Number:
    """Number of failed attempts since the workload was last placed."""
    return float(frame.workload.attempts)

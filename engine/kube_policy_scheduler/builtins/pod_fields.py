"""What a policy can read of the pod to be placed: `pod.…`. Those of the template serve for running pods too."""

from typing import Annotated, Any, TypeAlias

from kube_policy_scheduler.cluster.pod_states import running_seconds
from kube_policy_scheduler.cluster.requests import amounts, quality_of_service
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.victims import Budgets
from kube_policy_scheduler.lang.compiling.over_time import Line
from kube_policy_scheduler.lang.environment import Key, pod_field
from kube_policy_scheduler.lang.signature import Amount, Duration, MaybeText, Number, Text, TextList, Truth, TypeSpec
from kube_policy_scheduler.lang.types import Depends, Kind

QualityOfService: TypeAlias = Annotated[Any, TypeSpec(Kind.TEXT, words=("Guaranteed", "Burstable", "BestEffort"))]
_POD = Depends.POD | Depends.TEMPLATE
_OWN = Depends.OWN | Depends.TEMPLATE
_MOST = 1e19


def _amount(amounts_: Any, resource: str) -> float:
    value: int = amounts_.get(resource, 0)
    return value / 1000 if resource == "cpu" else float(value)


@pod_field("pod.name", depends=_OWN)
def name(frame: Frame) -> Text:
    """The name of the pod."""
    return frame.pod.name


@pod_field("pod.namespace", foreign=("ns",))
def namespace(frame: Frame) -> Text:
    """The namespace of the pod."""
    return frame.template.namespace


@pod_field("pod.label", key=Key.LABEL)
def label(frame: Frame, key: str) -> MaybeText:
    """A label of the pod; absent if the pod does not have it."""
    return frame.template.labels.get(key)


@pod_field("pod.annotation", key=Key.ANNOTATION, depends=_OWN)
def annotation(frame: Frame, key: str) -> MaybeText:
    """An annotation of the pod; absent if the pod does not have it."""
    return frame.pod.annotations.get(key)


@pod_field(
    "pod.priority",
    low=-(2**31),
    high=2**31,
    foreign=("priorityclassname", "priority_class", "priorityclass"),
    advice="write `pod.priority`, a number",
)
def priority(frame: Frame) -> Number:
    """The priority of the pod; 0 if it has none."""
    return float(frame.template.priority)


@pod_field("pod.created", depends=_POD, low=0, high=1e11)
def created(frame: Frame) -> Duration:
    """The creation time of the pod, as time since 1970. `now() - pod.created` is its age."""
    return frame.pod.created


@pod_field("pod.queued", depends=_POD | Depends.QUEUE, low=0, high=1e11)
def queued(frame: Frame) -> Duration:
    """The time when the pod first entered the scheduling queue, as time since 1970."""
    return frame.queued


@pod_field(
    "pod.waiting",
    depends=_POD | Depends.QUEUE | Depends.CLOCK,
    low=0,
    high=1e11,
    foreign=("age",),
    advice="write `pod.waiting`, or `now() - pod.created`",
    over_time=lambda frame: Line(-frame.queued, 1.0),
)
def waiting(frame: Frame) -> Duration:
    """The time that the pod has waited for a node."""
    return max(frame.now - frame.queued, 0.0)


@pod_field("pod.attempts", depends=_POD | Depends.QUEUE, low=0, high=1e9)
def attempts(frame: Frame) -> Number:
    """The number of earlier scheduling attempts of the pod."""
    return float(frame.attempts)


@pod_field(
    "pod.request",
    key=Key.RESOURCE,
    low=0,
    high=_MOST,
    foreign=("resources", "requests", "containers", "container"),
    advice="write `pod.request.cpu` or `pod.limit.cpu`",
)
def request(frame: Frame, resource: str) -> Amount:
    """The pod's request of a resource, summed over its containers as in Kubernetes; 0 if there is none."""
    if resource == "pods":
        return 1.0
    return _amount(frame.template.requests, resource)


@pod_field("pod.limit", key=Key.RESOURCE, low=0, high=_MOST)
def limit(frame: Frame, resource: str) -> Amount:
    """The sum of the containers' limits of a resource; 0 if none is set."""
    total = sum(
        amounts(c.resources.limits).get(resource, 0) for c in frame.template.spec.containers or () if c.resources
    )
    return total / 1000 if resource == "cpu" else float(total)


@pod_field("pod.owner.kind", foreign=("kind", "controller"))
def owner_kind(frame: Frame) -> MaybeText:
    """The kind of the controller that owns the pod, such as `ReplicaSet` or `Job`; absent if it has none."""
    controller = frame.template.controller
    return controller.kind if controller is not None else None


@pod_field("pod.owner.name")
def owner_name(frame: Frame) -> MaybeText:
    """The name of the controller that owns the pod; absent if it has none."""
    controller = frame.template.controller
    return controller.name if controller is not None else None


@pod_field("pod.qos")
def qos(frame: Frame) -> QualityOfService:
    """The quality of service class, by cpu and memory as in Kubernetes."""
    known: str | None = frame.template.memo.get("field pod.qos")
    if known is None:
        known = frame.template.memo["field pod.qos"] = quality_of_service(frame.template.spec)
    return known


@pod_field("pod.images", foreign=("image",))
def images(frame: Frame) -> TextList:
    """The images of the pod's containers."""
    return tuple(container.image for container in frame.template.spec.containers or ())


@pod_field("pod.node_selector")
def node_selector(frame: Frame) -> TextList:
    """The pod's node selector as `key=value` texts."""
    return tuple(f"{key}={value}" for key, value in (frame.template.spec.node_selector or {}).items())


@pod_field("pod.tolerations")
def tolerations(frame: Frame) -> TextList:
    """The taint keys that the pod tolerates."""
    return tuple(toleration.key for toleration in frame.template.spec.tolerations or () if toleration.key)


@pod_field("pod.service_account")
def service_account(frame: Frame) -> Text:
    """The service account of the pod; "" if none is set."""
    return frame.template.spec.service_account_name


@pod_field("pod.volumes", depends=_POD)
def volumes(frame: Frame) -> TextList:
    """The names of the PersistentVolumeClaims that the pod mounts."""
    claims = (volume.persistent_volume_claim for volume in frame.pod.volumes)
    return tuple(claim.claim_name for claim in claims if claim is not None)


@pod_field("pod.runtime_class")
def runtime_class(frame: Frame) -> MaybeText:
    """The name of the pod's RuntimeClass, such as `gvisor`; absent if it has none."""
    return frame.template.spec.runtime_class_name or None


@pod_field("pod.host_network")
def host_network(frame: Frame) -> Truth:
    """Whether the pod uses the network of its node."""
    return frame.template.spec.host_network


@pod_field("pod.previous_node", depends=_POD | Depends.CLUSTER, foreign=("last_node", "previousnode", "lastnode"))
def previous_node(frame: Frame) -> MaybeText:
    """The node where the pod ran before it was replaced: `score 50 if node.name == pod.previous_node`.

    A pod of a StatefulSet follows the pod of the same name, a pod of an indexed Job the one with its index. A pod of
    another workload follows the pod of the workload that went last, also of an earlier rollout of a Deployment.
    The scheduler remembers the pods that it saw going, 1,024 for each namespace, 32,768 in all. It forgets them when it
    restarts; a standby replica remembers them too. Absent if nothing is known. The node may be gone.
    """
    return frame.cluster.previous_nodes.of(frame.pod)


_RUN = Depends.RUN


@pod_field("pod.ready", depends=_RUN)
def ready(frame: Frame) -> Truth:
    """Whether the condition Ready of a running pod is True: `any(p.ready for p in node.pods where …)`."""
    return frame.pod.ready


@pod_field("pod.started", depends=_RUN)
def started(frame: Frame) -> Truth:
    """Whether all containers of a running pod have started: each passed its startup probe, or ended.

    A pod that has a node but does not run yet has not started. A container that crashed and waits to be restarted has
    not started either: to let such pods count for some time only, write `not p.started and p.running < 10min`.
    """
    return frame.pod.all_started


@pod_field("pod.running", depends=_RUN | Depends.CLOCK, low=0, high=1e11)
def running(frame: Frame) -> Duration:
    """How long the kubelet has had a running pod (`status.startTime`); 0 before it starts the pod.

    Compare it with a constant, as in `count(p in node.pods where p.running < 10min)`, or take the smallest or largest:
    `min(p.running for p in node.pods)`. Other uses look at each pod, which takes long in large clusters.
    """
    return running_seconds(frame.pod.started, frame.now)


@pod_field(
    "pod.restarts",
    depends=_RUN,
    low=0,
    high=2**31,
    foreign=("restart_count", "restartcount", "crashes", "crashing"),
    advice="write `pod.restarts > 3`",
)
def restarts(frame: Frame) -> Number:
    """How often containers of a running pod were restarted, all together: `count(p in node.pods where p.restarts > 3)`.

    It is the number that `kubectl get pods` shows: sidecars count, init containers that end do not. Compare it with a
    constant. Other uses look at each pod, which takes long in large clusters.
    """
    return float(frame.pod.restarts)


@pod_field(
    "pod.breaks_budget",
    depends=_RUN | Depends.CLUSTER,
    foreign=("pdb", "budget", "disruption_budget", "protected"),
    advice="write `pod.breaks_budget`",
)
def breaks_budget(frame: Frame) -> Truth:
    """Only `victim.breaks_budget`: whether a PodDisruptionBudget does not allow the eviction of the pod."""
    return Budgets(frame.cluster).forbid(frame.pod)

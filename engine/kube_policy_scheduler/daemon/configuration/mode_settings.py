"""What an operator can set where another scheduler places the pods: shadow and extender mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from kube_policy_scheduler.daemon.configuration.setting_types import Name, PositiveDuration
from kube_policy_scheduler.documents.schema import EXPECTED
from kube_policy_scheduler.documents.shape import Shape

UrlPath: TypeAlias = Annotated[str, Shape({"pattern": r"^(/[-A-Za-z0-9_.~]+)+$", EXPECTED: "a path such as /extender"})]


@dataclass(frozen=True, slots=True)
class ShadowSettings:
    """With `mode: shadow`: whose pods are looked at."""

    scheduler_names: Annotated[tuple[Name, ...], Shape({"minItems": 1, "uniqueItems": True})] = ("default-scheduler",)
    """`spec.schedulerName` of the pods that another scheduler places. They are decided as though they asked for one of
    the top level's `schedulerNames`."""
    give_up_after: PositiveDuration = 600.0
    """Seconds after which a pod that we would place and nobody does is counted as such, once."""
    kept: Annotated[int, Shape({"minimum": 0, "maximum": 100_000})] = 1000
    """Comparisons kept for `/debug/shadow`."""


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """With `mode: extender`: how kube-scheduler asks."""

    path: UrlPath = "/extender"
    """The end of kube-scheduler's `urlPrefix`; behind it are the verbs `filter`, `prioritize`, `preempt`, `bind`."""
    kubernetes_rules: bool = False
    """On: Kubernetes' own filters and scores are asked too, as the policy has them. Off: kube-scheduler does that."""
    max_request_mebibytes: Annotated[int, Shape({"minimum": 1, "maximum": 1024})] = 128
    """Of one request. 5,000 names are 0.1 MiB; with `nodeCacheCapable: false` 5,000 nodes are 50 MiB and more."""

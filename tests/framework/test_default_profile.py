"""The default profile is kube-scheduler's, in its order: `getDefaultPlugins` of Kubernetes 1.36."""

from __future__ import annotations

from kube_policy_scheduler.framework.default_profile import (
    kube_scheduler_filters,
    kubernetes_filters,
    kubernetes_scores,
)


def test_filters_are_asked_in_kube_schedulers_order_and_then_ours() -> None:
    names = tuple(plugin.name for plugin in kubernetes_filters())
    assert names[:14] == kube_scheduler_filters()
    assert kube_scheduler_filters() == (
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    )


def test_scores_have_kube_schedulers_weights() -> None:
    assert {weighted.plugin.name: weighted.weight for weighted in kubernetes_scores()} == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "VolumeBinding": 1,
    }

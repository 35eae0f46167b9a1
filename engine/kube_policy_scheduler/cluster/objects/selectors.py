"""What picks objects by their labels, and nodes by their labels and fields."""

from __future__ import annotations

from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Labels


class Requirement(ApiStruct):
    """One expression of a label selector or of a node selector term."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(ApiStruct):
    match_labels: Labels | None = None
    match_expressions: list[Requirement] | None = None


class NodeSelectorTerm(ApiStruct):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(ApiStruct):
    node_selector_terms: list[NodeSelectorTerm] | None = None

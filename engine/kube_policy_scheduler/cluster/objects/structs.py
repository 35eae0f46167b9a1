"""The parts of every kind of API object: the base of all structs, metadata, amounts, labels and selectors."""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from kube_policy_scheduler.quantities.quantity import Quantity

Resources: TypeAlias = dict[str, Quantity]
Labels: TypeAlias = dict[str, str]
Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""As in Kubernetes: larger values are an error, and no column of `int64` overflows."""


class ApiStruct(Struct, rename="camel", gc=False, kw_only=True, omit_defaults=True):
    """Base of all API structs: camelCase on the wire, untracked by the cyclic collector (they hold no cycles)."""


class ResourceRequirements(ApiStruct):
    requests: Resources | None = None
    limits: Resources | None = None


class OwnerReference(ApiStruct):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None


class ObjectMeta(ApiStruct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    labels: Labels | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None


class ObjectReference(ApiStruct):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


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

"""Questions to estimators as bytes: a request of Karmada's protocol becomes a question, and the other way round.

Requests come from the network: what is too large, or is not what Kubernetes accepts, is refused with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from kube_policy_scheduler.adapters.grpc import estimator_pb2 as messages
from kube_policy_scheduler.cluster.objects import NodeSelector, NodeSelectorTerm, Requirement, Toleration
from kube_policy_scheduler.fleet.karmada.estimates import (
    Assumed,
    Demand,
    Part,
    ReplicasQuestion,
    SetsQuestion,
    TemplateName,
    UnschedulableQuestion,
)
from kube_policy_scheduler.quantities.quantity import QuantityError, nanos

SERVICE = "github.com.karmada_io.karmada.pkg.estimator.service.Estimator"
REPLICAS, SETS, UNSCHEDULABLE = "MaxAvailableReplicas", "MaxAvailableComponentSets", "GetUnschedulableReplicas"
"""Its methods."""
OBJECT = "object"
"""Key of the metadata that names the template: `kind=Deployment, name=shop/web`."""
SOURCE = "policy-scheduler-source"
"""Key of the metadata of an answer that says how it was found; servers of others send none."""
VERSION = "policy-scheduler-version"
"""Key of the metadata of an answer that says the version of the server, which others do not send either."""
MOST_BYTES = 256 * 1024
"""Of a request: a pod with the longest node affinity that people write has a hundredth of it."""
MOST_ITEMS = 1000
"""Of each kind in a request: expressions, tolerations, resources, parts."""
MOST_PODS = 10_000
"""That a question is about, besides those that are counted: replicas of a set, and those that are assumed."""
_OPERATORS = frozenset(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
_TEMPLATE = re.compile(r"kind=([A-Za-z]{1,63}), ?name=(?:([a-z0-9.-]{1,253})/)?([a-z0-9.-]{1,253})")


class WrongRequest(ValueError):
    """A request that cannot be answered; the text says what is wrong with it."""


# --- what comes in ---------------------------------------------------------------------------------------


def replicas_question(body: bytes, template: str = "") -> ReplicasQuestion:
    """Return what a request asks. Raises WrongRequest."""
    found = _parsed(messages.MaxAvailableReplicasRequest, body, "the request")
    wanted = found.requirements
    demand = _demand(wanted.node_claim, wanted.requests, wanted.priority_class_name)
    return ReplicasQuestion(
        found.cluster, wanted.namespace, demand, _assumed(found.assumed, so_far=0), template_of(template)
    )


def sets_question(body: bytes, template: str = "") -> SetsQuestion:
    """Return what a request asks. Raises WrongRequest."""
    found = _parsed(messages.MaxAvailableComponentSetsRequest, body, "the request")
    parts = _parts(found.components)
    pods = sum(part.replicas for part in parts)
    if pods > MOST_PODS:
        raise WrongRequest(f"a set has {pods:,} replicas; expected at most {MOST_PODS:,}")
    assumed = _assumed(found.assumed, so_far=pods)
    return SetsQuestion(found.cluster, found.namespace, parts, assumed, template_of(template))


def unschedulable_question(body: bytes) -> UnschedulableQuestion:
    """Return what a request asks. Raises WrongRequest."""
    found = _parsed(messages.UnschedulableReplicasRequest, body, "the request")
    if found.threshold_nanoseconds < 0:
        raise WrongRequest(f"the threshold is {found.threshold_nanoseconds} ns; expected 0 or more")
    asked = found.resource
    workload = template_of(f"kind={asked.kind}, name={asked.namespace}/{asked.name}")
    if workload is None:
        raise WrongRequest("the resource has no kind, namespace and name that Kubernetes accepts")
    return UnschedulableQuestion(found.cluster, workload, found.threshold_nanoseconds / 1e9)


def template_of(text: str) -> TemplateName | None:
    """Return the template that the metadata of a request names; None if it names none that Kubernetes could have."""
    found = _TEMPLATE.fullmatch(text)
    return TemplateName(found[1], found[2] or "", found[3]) if found is not None else None


def _assumed(workloads: Sequence[Any], *, so_far: int) -> tuple[Assumed, ...]:
    _few(workloads, "assumed workloads")
    made = tuple(Assumed(each.namespace, _parts(each.components)) for each in workloads)
    pods = so_far + sum(part.replicas for each in made for part in each.parts)
    if pods > MOST_PODS:
        raise WrongRequest(f"{pods:,} replicas are in sets and assumed; expected at most {MOST_PODS:,}")
    return made


def _parts(components: Sequence[Any]) -> tuple[Part, ...]:
    _few(components, "components")
    made = []
    for each in components:
        if each.replicas < 0:
            raise WrongRequest(f"a component has {each.replicas} replicas; expected 0 or more")
        wanted = each.requirements
        demand = _demand(wanted.node_claim, wanted.requests, wanted.priority_class_name)
        made.append(Part(demand, each.replicas, each.name))
    return tuple(made)


def _demand(claim: Any, requests: Mapping[str, bytes], priority_class: str) -> Demand:
    _few(requests, "resources")
    _few(claim.node_selector, "labels in the node selector")
    _few(claim.tolerations, "tolerations")
    return Demand(
        {name: _quantity(name, requests[name]) for name in sorted(requests)},
        dict(sorted(claim.node_selector.items())),
        _node_selector(claim.node_affinity),
        tuple(_toleration(each) for each in claim.tolerations),
        priority_class,
    )


def _quantity(resource: str, body: bytes) -> str:
    text: str = _parsed(messages.Quantity, body, f"the amount of {resource[:63]}").text
    try:
        amount = nanos(text)
    except QuantityError:
        amount = -1
    if amount < 0:
        raise WrongRequest(
            f"the amount of {resource[:63]} is {text[:63]!r}; expected a quantity such as 500m"
        ) from None
    return text


def _node_selector(body: bytes) -> NodeSelector | None:
    if not body:
        return None
    terms = _parsed(messages.NodeSelector, body, "the node affinity").terms
    _few(terms, "terms of the node affinity")
    _few([one for term in terms for one in (*term.expressions, *term.fields)], "expressions of the node affinity")
    made = [NodeSelectorTerm(_requirements(term.expressions), _requirements(term.fields)) for term in terms]
    return NodeSelector(made)


def _requirements(found: Iterable[Any]) -> list[Requirement] | None:
    made = []
    for each in found:
        if each.operator not in _OPERATORS:
            raise WrongRequest(
                f"the node affinity has the operator {each.operator[:63]!r}; expected {', '.join(sorted(_OPERATORS))}"
            )
        made.append(Requirement(each.key, each.operator, list(each.values) or None))
    return made or None


def _toleration(body: bytes) -> Toleration:
    found = _parsed(messages.Toleration, body, "a toleration")
    return Toleration(found.key, found.operator, found.value, found.effect)


def _few(items: Iterable[Any], what: str) -> None:
    count = sum(1 for _ in items)
    if count > MOST_ITEMS:
        raise WrongRequest(f"{count:,} {what}; expected at most {MOST_ITEMS:,}")


def _parsed(kind: Any, body: bytes, what: str) -> Any:
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise WrongRequest(f"{what} is not a protobuf message of this kind") from error


# --- what goes out ---------------------------------------------------------------------------------------


def replicas_request(question: ReplicasQuestion) -> bytes:
    """Return the bytes of a question."""
    made = messages.MaxAvailableReplicasRequest(cluster=question.cluster)
    made.requirements.namespace = question.namespace
    _fill(made.requirements, question.demand)
    body: bytes = made.SerializeToString(deterministic=True)
    return body


def sets_request(question: SetsQuestion) -> bytes:
    """Return the bytes of a question."""
    made = messages.MaxAvailableComponentSetsRequest(cluster=question.cluster, namespace=question.namespace)
    for part in question.parts:
        component = made.components.add(name=part.name, replicas=part.replicas)
        _fill(component.requirements, part.demand)
    body: bytes = made.SerializeToString(deterministic=True)
    return body


def _fill(made: Any, demand: Demand) -> None:
    made.priority_class_name = demand.priority_class
    for name, text in demand.requests.items():
        made.requests[name] = messages.Quantity(text=text).SerializeToString()
    claim = made.node_claim
    claim.node_selector.update(demand.node_selector)
    if demand.node_affinity is not None:
        claim.node_affinity = _selector_message(demand.node_affinity).SerializeToString()
    for each in demand.tolerations:
        told = messages.Toleration(key=each.key, operator=each.operator, value=each.value, effect=each.effect)
        claim.tolerations.append(told.SerializeToString())


def _selector_message(selector: NodeSelector) -> messages.NodeSelector:
    made = messages.NodeSelector()
    for term in selector.node_selector_terms or ():
        told = made.terms.add()
        for given, to in ((term.match_expressions, told.expressions), (term.match_fields, told.fields)):
            for each in given or ():
                to.add(key=each.key, operator=each.operator, values=each.values or ())
    return made


def metadata_of(template: TemplateName | None) -> tuple[tuple[str, str], ...]:
    """Return the metadata that names the template."""
    if template is None:
        return ()
    name = f"{template.namespace}/{template.name}" if template.namespace else template.name
    return ((OBJECT, f"kind={template.kind}, name={name}"),)

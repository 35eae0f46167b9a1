"""What the API server refuses in affinity and topology spread constraints. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kube_policy_scheduler.embedded.errors import Cause, Json
from kube_policy_scheduler.embedded.operations import causes
from kube_policy_scheduler.embedded.operations.causes import required

_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_SPREAD_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")


def affinity(value: Json, at: str) -> list[Cause]:
    """Return what is wrong with the affinity of a pod."""
    found: list[Cause] = []
    node = value.get("nodeAffinity") or {}
    if _REQUIRED in node:
        path = f"{at}.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
        terms = node[_REQUIRED].get("nodeSelectorTerms") or []
        if not terms:
            found.append(required(path, "must have at least one node selector term"))
        for number, term in enumerate(terms):
            found += node_term(term, f"{path}[{number}]")
    for number, item in enumerate(node.get(_PREFERRED) or ()):
        path = f"{at}.nodeAffinity.{_PREFERRED}[{number}]"
        found += _weight(item, path) + node_term(item.get("preference") or {}, f"{path}.preference")
    for side in ("podAffinity", "podAntiAffinity"):
        rules = value.get(side) or {}
        for number, term in enumerate(rules.get(_REQUIRED) or ()):
            found += _pod_term(term, f"{at}.{side}.{_REQUIRED}[{number}]")
        for number, item in enumerate(rules.get(_PREFERRED) or ()):
            path = f"{at}.{side}.{_PREFERRED}[{number}]"
            found += _weight(item, path) + _pod_term(item.get("podAffinityTerm") or {}, f"{path}.podAffinityTerm")
    return found


def _weight(item: Json, at: str) -> list[Cause]:
    weight = item.get("weight", 0)
    return [] if 1 <= weight <= 100 else [causes.invalid(f"{at}.weight", weight, "must be in the range 1-100")]


def node_term(term: Json, at: str) -> list[Cause]:
    """Return what is wrong with one term of a node selector."""
    found: list[Cause] = []
    for number, item in enumerate(term.get("matchExpressions") or ()):
        found += _node_requirement(item, f"{at}.matchExpressions[{number}]")
    for number, item in enumerate(term.get("matchFields") or ()):
        path = f"{at}.matchFields[{number}]"
        if item.get("key") != "metadata.name":
            found.append(causes.invalid(f"{path}.key", item.get("key"), "not a valid field selector key"))
        if item.get("operator") not in ("In", "NotIn"):
            found.append(causes.invalid(f"{path}.operator", item.get("operator"), "not a valid selector operator"))
        elif len(item.get("values") or ()) != 1:
            text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            found.append(required(f"{path}.values", text))
    return found


def _node_requirement(item: Json, at: str) -> list[Cause]:
    values = item.get("values") or []
    found: list[Cause] = []
    match item.get("operator"):
        case "In" | "NotIn":
            if not values:
                found.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                found.append(causes.forbidden(f"{at}.values", text))
        case "Gt" | "Lt":
            if len(values) != 1:
                text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                found.append(required(f"{at}.values", text))
        case operator:
            found.append(causes.invalid(f"{at}.operator", operator or "", "not a valid selector operator"))
    return found + causes.qualified_name(f"{at}.key", item.get("key") or "")


def label_selector(selector: Json | None, at: str) -> list[Cause]:
    """Return what is wrong with a LabelSelector."""
    if selector is None:
        return []
    found = causes.labels(f"{at}.matchLabels", selector.get("matchLabels") or {})
    for number, item in enumerate(selector.get("matchExpressions") or ()):
        path, values = f"{at}.matchExpressions[{number}]", item.get("values") or []
        match item.get("operator"):
            case "In" | "NotIn":
                if not values:
                    found.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
            case "Exists" | "DoesNotExist":
                if values:
                    text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                    found.append(causes.forbidden(f"{path}.values", text))
            case operator:
                found.append(causes.invalid(f"{path}.operator", operator or "", "not a valid selector operator"))
        found += causes.qualified_name(f"{path}.key", item.get("key") or "")
        for at_value, value in enumerate(values):
            found += causes.label_value(f"{path}.values[{at_value}]", value)
    return found


def _topology_key(key: str | None, at: str) -> list[Cause]:
    if not key:
        return [required(f"{at}.topologyKey", "can not be empty")]
    return causes.qualified_name(f"{at}.topologyKey", key)


def _pod_term(term: Json, at: str) -> list[Cause]:
    found = label_selector(term.get("labelSelector"), f"{at}.labelSelector")
    found += label_selector(term.get("namespaceSelector"), f"{at}.namespaceSelector")
    for name in term.get("namespaces") or ():
        found += causes.dns_label(f"{at}.namespace", name)
    if not term.get("topologyKey"):
        found.append(required(f"{at}.topologyKey", "can not be empty"))
    return found + causes.qualified_name(f"{at}.topologyKey", term.get("topologyKey") or "")


def spread(constraints: Iterable[Json], at: str) -> list[Cause]:
    """Return what is wrong with topology spread constraints."""
    found: list[Cause] = []
    seen: list[tuple[object, object]] = []
    for number, item in enumerate(constraints):
        path = f"{at}[{number}]"
        skew = item.get("maxSkew", 0)
        if skew <= 0:
            found.append(causes.invalid(f"{path}.maxSkew", skew, "must be greater than zero"))
        found += _topology_key(item.get("topologyKey"), path)
        action = item.get("whenUnsatisfiable")
        if action not in _SPREAD_ACTIONS:
            found.append(causes.unsupported(f"{path}.whenUnsatisfiable", action or "", _SPREAD_ACTIONS))
        pair = (item.get("topologyKey"), action)
        if pair in seen:
            path = f"{at}[{seen.index(pair)}]"
            found.append(causes.duplicate(f"{path}.{{topologyKey, whenUnsatisfiable}}", f"{{{pair[0]}, {pair[1]}}}"))
        seen.append(pair)
        path = f"{at}[{number}]"
        domains = item.get("minDomains")
        if domains is not None and domains <= 0:
            found.append(causes.invalid(f"{path}.minDomains", domains, "must be greater than 0"))
        if domains is not None and action != "DoNotSchedule":
            text = "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"
            found.append(causes.invalid(f"{path}.minDomains", domains, text))
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            found += causes.one_of(f"{path}.{field}", item.get(field), _POLICIES)
        found += label_selector(item.get("labelSelector"), f"{path}.labelSelector")
    return found

"""`node.free.cpu`, `pod.label["my-key"]`: paths to fields."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kube_policy_scheduler.diagnostics import Diagnostic, closest
from kube_policy_scheduler.lang import codes_meaning as codes
from kube_policy_scheduler.lang import codes_syntax, expressions, typed
from kube_policy_scheduler.lang.checking import operators
from kube_policy_scheduler.lang.checking.operators import unknown
from kube_policy_scheduler.lang.checking.scope import Scope
from kube_policy_scheduler.lang.checking.unknown import Step, unknown_field
from kube_policy_scheduler.lang.environment import Field, Key
from kube_policy_scheduler.lang.reading import foreign
from kube_policy_scheduler.lang.reading.literals import label_problem
from kube_policy_scheduler.lang.types import NATIVE_RESOURCES, RESOURCE_WORDS, Info, Kind, Shape, Type, resource_name

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.checking.infer import Inference


def read_member(
    inference: Inference, expr: expressions.Member | expressions.Index | expressions.Name, scope: Scope
) -> typed.Typed:
    """Return the field that a path leads to, or an element of a list."""
    path = _path(expr)
    if path is None:
        return _element(inference, expr, scope)
    root, steps = path
    item = root.name in scope.items
    subject = "pod" if item else root.name
    if scope.bare_item and not item and subject not in ("node", "pod"):
        item, subject = True, "pod"
        steps = [Step(root.name, root.span, False), *steps]
    elif scope.bare_item and subject == "pod":
        item = True
    if subject not in ("node", "pod"):
        return _no_root(inference, root, expr, scope)
    chosen = _field(inference, subject, steps)
    if chosen is None:
        inference.found.append(unknown_field(inference, subject, root, steps))
        return unknown(expr.span)
    found, rest = chosen
    if item and found.depends & ~scope.item_depends:
        message = f"`{_shown(expr)}` is not known of pods that already run"
        known = sorted(f.written for f in inference.environment.fields.values() if not f.depends & ~scope.item_depends)
        advice = f"what is known of them: {', '.join(known)}"
        inference.found.append(codes.UNKNOWN_FIELD.at(expr.span, message, help=advice))
        return unknown(expr.span)
    key: str | None = None
    if found.key is not None:
        if not rest:
            inference.found.append(_key_missing(found, expr))
            return unknown(expr.span)
        key = _key(inference, found.key, rest[0])
        if key is None:
            return unknown(expr.span)
        rest = rest[1:]
    info = found.info(key)
    if found.key is Key.RESOURCE and key not in NATIVE_RESOURCES:
        info = replace(info, maybe=info.maybe or found.shape is Shape.NODE)
    if item:
        info = replace(info, shape=Shape.ITEM)
    value: typed.Typed = typed.Read(info, expr.span, found, key)
    if not inference.allowed(value, scope):
        return unknown(expr.span)
    for step in rest:
        value = _step(inference, value, step)
    return value


def _path(expr: expressions.Expr) -> tuple[expressions.Name, list[Step]] | None:
    """Return the root and the steps of a path; None where it does not begin with a name."""
    steps: list[Step] = []
    while True:
        match expr:
            case expressions.Name():
                return expr, steps[::-1]
            case expressions.Member(base=base, name=name, name_span=span):
                steps.append(Step(name, span, False))
                expr = base
            case expressions.Index(base=base, key=expressions.Text(value=text, span=span)):
                steps.append(Step(text, span, True))
                expr = base
            case expressions.Index(base=base, key=expressions.Number(value=value, suffix="", span=span)):
                position = int(value) if value == int(value) else None
                steps.append(Step("", span, True, position))
                expr = base
            case _:
                return None


def _shown(expr: expressions.Expr) -> str:
    return " ".join(expr.span.text.split())


def _field(inference: Inference, subject: str, steps: list[Step]) -> tuple[Field, list[Step]] | None:
    """Return the field with the longest matching path, and the steps after it."""
    fields = inference.environment.fields
    for length in (2, 1):
        if len(steps) >= length and not any(step.bracket for step in steps[:length]):
            found = fields.get(".".join([subject, *(step.text for step in steps[:length])]))
            if found is not None:
                return found, steps[length:]
    return None


def _no_root(inference: Inference, root: expressions.Name, expr: expressions.Expr, scope: Scope) -> typed.Typed:
    if root.name in inference.definitions or root.name in scope.parameters:
        value = inference.infer(root, scope)
        if isinstance(expr, expressions.Index):
            return _element(inference, expr, scope)
        if not operators.bad(value):
            inference.found.append(operators.wrong_type(value, "something that has fields"))
        return unknown(expr.span)
    if root.name in ("zone", "region", "cluster", *inference.environment.topologies):
        message = f"`{_shown(expr)}` is no value by itself"
        advice = f"go over its pods: `count(p in {root.name}.pods where …)`; the zone of a node is `node.zone`"
        inference.found.append(codes.UNKNOWN_FIELD.at(expr.span, message, help=advice))
        return unknown(expr.span)
    meant = closest(root.name, ("node", "pod", *scope.items))
    advice = foreign.NAMES.get(root.name.lower(), "") or "paths begin with `node.` or `pod.`"
    advice = f"did you mean `{meant}`?" if meant else advice
    inference.found.append(codes.UNKNOWN_NAME.at(root.span, f"unknown name `{root.name}`", help=advice))
    return unknown(expr.span)


def _key_missing(found: Field, expr: expressions.Expr) -> Diagnostic:
    example = {Key.RESOURCE: "cpu", Key.LABEL: "app", Key.ANNOTATION: "owner", Key.CONDITION: "MemoryPressure"}
    assert found.key is not None
    message = f"`{_shown(expr)}` needs the {found.key.value} after it"
    advice = f'write `{found.path}.{example[found.key]}`, or `{found.path}["…"]` for other keys'
    return codes.UNKNOWN_FIELD.at(expr.span, message, help=advice)


def _key(inference: Inference, kind: Key, step: Step) -> str | None:
    """Return the key that a step names, in Kubernetes' spelling, or None after reporting."""
    if step.position is not None or (step.bracket and not step.text):
        message = f"a {kind.value} is a text"
        inference.found.append(codes.WRONG_TYPE.at(step.span, message, help="write it in quotes"))
        return None
    match kind:
        case Key.RESOURCE:
            resource = resource_name(step.text)
            if not step.bracket and step.text not in RESOURCE_WORDS and "/" not in resource:
                meant = closest(step.text, RESOURCE_WORDS) if step.text not in ("gpu", "gpus") else None
                advice = f"did you mean `{meant}`?" if meant else 'other resources in brackets: ["nvidia.com/gpu"]'
                message = f"unknown resource `{step.text}`"
                inference.found.append(codes.UNKNOWN_FIELD.at(step.span, message, help=advice))
                return None
            return resource
        case Key.LABEL | Key.ANNOTATION:
            problem = label_problem(step.text, of="key")
            if problem:
                message = f"`{step.text}` can't be a {kind.value}"
                inference.found.append(codes_syntax.LABEL.at(step.span, message, help=problem))
                return None
            return step.text
        case Key.CONDITION:
            return step.text


def _element(inference: Inference, expr: expressions.Expr, scope: Scope) -> typed.Typed:
    """Return an element of a list, or report that the value has none."""
    if isinstance(expr, expressions.Index):
        base = inference.infer(expr.base, scope)
        position = expr.key.value if isinstance(expr.key, expressions.Number) and expr.key.suffix == "" else None
        if position is None or position != int(position):
            kind, advice = inference.infer(expr.key, scope), "elements are counted from 0: `[0]`"
            if not operators.bad(kind, base):
                message = "the number of the element must be written out"
                inference.found.append(codes.NOT_CONSTANT.at(expr.key.span, message, help=advice))
            return unknown(expr.span)
        return _step(inference, base, Step("", expr.key.span, True, int(position)))
    assert isinstance(expr, expressions.Member)
    base = inference.infer(expr.base, scope)
    if not operators.bad(base):
        message = f"{base.info.type} has no field `{expr.name}`"
        advice = "only `node` and `pod` have fields"
        inference.found.append(codes.UNKNOWN_FIELD.at(expr.name_span, message, help=advice))
    return unknown(expr.span)


def _step(inference: Inference, value: typed.Typed, step: Step) -> typed.Typed:
    """Return what a step beyond a field leads to: an element of a list."""
    span = value.span.to(step.span)
    if operators.bad(value):
        return unknown(span)
    if value.info.type.kind is Kind.LIST and step.position is not None:
        item = value.info.type.item or Kind.TEXT
        info = Info(Type(item), value.info.shape, True, value.info.depends)
        return typed.Element(info, span, value, step.position)
    message = f"{value.info.type} has no field `{step.text}`"
    advice = "only `node` and `pod` have fields"
    if step.position is not None:
        message, advice = f"{value.info.type} has no elements", "only lists have"
    elif isinstance(value, typed.Read) and value.field.key in (Key.LABEL, Key.ANNOTATION):
        advice = f'a key with dots stands in brackets: `{value.field.path}["{value.key}.{step.text}"]`'
    inference.found.append(codes.UNKNOWN_FIELD.at(step.span, message, help=advice))
    return unknown(span)

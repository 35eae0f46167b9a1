"""What to say of names, fields and functions that there are none of. The tables of what was meant: `foreign`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Fix, Span, closest
from kube_policy_scheduler.lang import codes_meaning as codes
from kube_policy_scheduler.lang import expressions
from kube_policy_scheduler.lang.checking.scope import Scope
from kube_policy_scheduler.lang.reading import foreign
from kube_policy_scheduler.lang.reading.lower_expressions import AGGREGATES
from kube_policy_scheduler.lang.statements import STATEMENTS
from kube_policy_scheduler.lang.types import RESOURCE_WORDS
from kube_policy_scheduler.wording import some

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.checking.infer import Inference

_MOST_NAMES = 20
"""Listed in an advice."""
_GROUPING = frozenset(statement.keyword for statement in STATEMENTS if statement.groups)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a path: `.name` or `["key"]`."""

    text: str
    span: Span
    bracket: bool
    position: int | None = None


def unknown_name(inference: Inference, expr: expressions.Name, scope: Scope) -> Diagnostic:
    """Return the diagnostic of a bare name that nothing has."""
    name = expr.name
    if name in ("node", "pod") or name in scope.items:
        root = "pod" if name in scope.items else name
        message = f"`{name}` by itself is no value"
        advice = f"name a field of it, such as `{name}.{'label.app' if root == 'pod' else 'ready'}`"
        return codes.UNKNOWN_NAME.at(expr.span, message, help=advice)
    if name in inference.environment.builtins:
        advice = f"call it: `{inference.environment.builtins[name].signature}`"
        return codes.UNKNOWN_NAME.at(expr.span, f"`{name}` is a function", help=advice)
    fields = [path for path in inference.environment.fields if path.split(".")[-1] == name]
    known = [*inference.definitions, *scope.parameters, *scope.items]
    meant = closest(name, known)
    if name.lower() in foreign.NAMES and not meant:
        advice = foreign.NAMES[name.lower()]
    elif meant:
        advice = f"did you mean `{meant}`?"
    elif scope.bare_item and name in RESOURCE_WORDS:
        advice = f"did you mean `request.{name}`?"
    elif scope.statement in _GROUPING and not fields:
        advice = f"did you mean `pod.label.{name}`?"
    elif fields:
        advice = f"did you mean `{fields[0]}`?"
    elif scope.parameters or known:
        advice = f"the names here are {some(sorted(known), limit=_MOST_NAMES)}; texts stand in quotes"
    else:
        metric = f', metrics in `promql("{name}")`' if scope.scores else ""
        advice = f'texts stand in quotes: "{name}"{metric}; names are made with `let {name} = …`'
    return codes.UNKNOWN_NAME.at(expr.span, f"unknown name `{name}`", help=advice)


def unknown_field(inference: Inference, subject: str, root: expressions.Name, steps: list[Step]) -> Diagnostic:
    """Return the diagnostic of a path that leads to no field."""
    first = steps[0]
    names = sorted({p.split(".")[1] for p in inference.environment.fields if p.startswith(f"{subject}.")})
    inner = sorted(p.split(".")[2] for p in inference.environment.fields if p.startswith(f"{subject}.{first.text}."))
    if inner:
        at = steps[1] if len(steps) > 1 else first
        what = f"`{root.name}.{first.text}` has no field `{at.text}`" if len(steps) > 1 else "a field is missing here"
        return codes.UNKNOWN_FIELD.at(at.span, what, help=f"it has {', '.join(inner)}")
    if first.text == "pods":
        message = f"`{root.name}.pods` can only be counted"
        advice = f"write `count(p in {root.name}.pods where …)`"
        return codes.WRONG_TYPE.at(first.span, message, help=advice)
    meant = closest(first.text, names)
    advice, fix = foreign.field_advice(subject, first.text), None
    if first.text in ("labels", "annotations"):
        meant, rest = first.text[:-1], root.span.source.text[first.span.end : steps[-1].span.end]
        advice = f"write `{root.name}.{meant}{rest}{']' if rest.startswith('[') else ''}`"
        if len(steps) == 1:
            advice = f"ask for one of them: `{root.name}.{meant}.KEY`, or `label KEY=VALUE` of the node"
        else:
            fix = Fix(f"write {meant}", (Edit(first.span, meant),))
    elif not advice:
        advice = f"did you mean `{root.name}.{meant}`?" if meant else f"a {subject} has {', '.join(names)}"
    message = f"unknown field `{first.text}` of a {subject}"
    return codes.UNKNOWN_FIELD.at(first.span, message, help=advice, fix=fix)


def unknown_function(inference: Inference, expr: expressions.Call) -> Diagnostic:
    """Return the diagnostic of a function that there is none of."""
    name = expr.function
    if name in AGGREGATES:
        advice = {
            "count": "write `count(p in node.pods where …)`",
            "any": "write `any(p in node.pods where …)`",
            "all": "write `all(CONDITION for p in node.pods)`",
        }.get(name, f"write `{name}(p.request.cpu for p in node.pods)`")
        first = expr.arguments[0] if expr.arguments else None
        if isinstance(first, expressions.Call) and first.function == "promql":
            advice = f'aggregate inside the query: `promql("{name} by (node) (…)")`'
        elif name == "sum" and len(expr.arguments) > 1:
            advice = "add with `+`"
        return codes.ARGUMENTS.at(expr.span, f"`{name}` goes over pods", help=advice)
    known = [*inference.environment.builtins, *inference.definitions, *AGGREGATES]
    advice = foreign.function_advice(name)
    meant = closest(name, known)
    if meant and (not advice or meant.replace("_", "") == name.lower().replace("_", "")):
        advice = f"did you mean `{meant}`?"
    advice = advice or "`policyctl functions` lists all of them"
    return codes.UNKNOWN_FUNCTION.at(expr.name_span, f"unknown function `{name}`", help=advice)

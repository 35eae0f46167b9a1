"""The typed tree: what an expression means. Names are resolved, definitions expanded, every part has its `Info`.

Checking makes it; compiling, proofs and explanations read it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias, get_args

import msgspec

from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.lang.environment import Field
from kube_policy_scheduler.lang.signature import Builtin
from kube_policy_scheduler.lang.types import Depends, Info, Shape


class Constant(msgspec.Struct, frozen=True, eq=False):
    """A number, text, truth, or tuple of them."""

    info: Info
    span: Span
    value: Any


class Read(msgspec.Struct, frozen=True, eq=False):
    """A field, of the pod or nodes of the decision, or (shape ITEM) of an existing pod."""

    info: Info
    span: Span
    field: Field
    key: str | None


class Apply(msgspec.Struct, frozen=True, eq=False):
    """A builtin with its arguments; constants are bound already."""

    info: Info
    span: Span
    builtin: Builtin
    kernel: Callable[..., Any]
    """Takes the frame if `builtin.reads_frame` or it is staged, then `arguments` in order."""
    arguments: tuple[Typed, ...]
    inputs: tuple[Any, ...] = ()
    """What it reads from outside, such as metric queries."""
    constants: tuple[tuple[str, Hashable], ...] = ()
    """The parameters that are constants, with what was written for them."""


class Negative(msgspec.Struct, frozen=True, eq=False):
    """`-x`"""

    info: Info
    span: Span
    operand: Typed


class Arithmetic(msgspec.Struct, frozen=True, eq=False):
    """`+ - * / %`"""

    info: Info
    span: Span
    operator: str
    left: Typed
    right: Typed


class Compare(msgspec.Struct, frozen=True, eq=False):
    """A comparison of numbers: `== != < <= > >=`"""

    info: Info
    span: Span
    operator: str
    left: Typed
    right: Typed


class Same(msgspec.Struct, frozen=True, eq=False):
    """`==` and `!=` of texts or of truth values."""

    info: Info
    span: Span
    negated: bool
    left: Typed
    right: Typed


class Contained(msgspec.Struct, frozen=True, eq=False):
    """`in`, `not in`"""

    info: Info
    span: Span
    negated: bool
    item: Typed
    list: Typed


class Not(msgspec.Struct, frozen=True, eq=False):
    """`not x`"""

    info: Info
    span: Span
    operand: Typed


class Logic(msgspec.Struct, frozen=True, eq=False):
    """A chain of `and` or of `or`."""

    info: Info
    span: Span
    operator: str
    operands: tuple[Typed, ...]


class Conditional(msgspec.Struct, frozen=True, eq=False):
    """`if condition then then else otherwise`"""

    info: Info
    span: Span
    condition: Typed
    then: Typed
    otherwise: Typed


class Otherwise(msgspec.Struct, frozen=True, eq=False):
    """`left ?? right`"""

    info: Info
    span: Span
    left: Typed
    right: Typed


class Missing(msgspec.Struct, frozen=True, eq=False):
    """`x is missing`; negated also a label where a truth value is required."""

    info: Info
    span: Span
    negated: bool
    operand: Typed
    implied: bool = False
    """A text where a truth value is required: whether it is there."""


class Element(msgspec.Struct, frozen=True, eq=False):
    """`list[2]`: an element counted from 0, missing beyond the end."""

    info: Info
    span: Span
    list: Typed
    position: int


class ListOf(msgspec.Struct, frozen=True, eq=False):
    """`[a, b]` with an item that is not constant."""

    info: Info
    span: Span
    items: tuple[Typed, ...]


class Aggregate(msgspec.Struct, frozen=True, eq=False):
    """`count(p in node.pods where …)` and similar calls."""

    info: Info
    span: Span
    function: str
    topology: str | None
    """Label key of the domains; None is the node, "*" the cluster."""
    value: Typed | None
    where: Typed | None


class NodeAggregate(msgspec.Struct, frozen=True, eq=False):
    """`sum(n.free.cpu for n in cluster.nodes where …)` and the like. What is read of the nodes has the shape ITEM."""

    info: Info
    span: Span
    function: str
    """As it is written; `distinct` for `count(distinct …)`."""
    topology: str
    """Label key of the domains; "*" is the cluster."""
    value: Typed | None
    where: Typed | None


class MemberAggregate(msgspec.Struct, frozen=True, eq=False):
    """`count(n in cluster.nodes where …)` in a policy of workloads: over the nodes or pods in each member cluster."""

    info: Info
    span: Span
    inside: Typed
    """What it is in a member, where `cluster` is all there is. It is no part of this: its fields are other ones."""


class Binder:
    """Which list aggregate a variable belongs to: each has one, compared by identity."""

    __slots__ = ()


class ListAggregate(msgspec.Struct, frozen=True, eq=False):
    """`all(i matches "…" for i in pod.images)` and similar calls."""

    info: Info
    span: Span
    function: str
    """As it is written; `distinct` for `count(distinct …)`."""
    list: Typed
    binder: Binder
    value: Typed | None
    where: Typed | None


class Variable(msgspec.Struct, frozen=True, eq=False):
    """An item of the list that an aggregate iterates over."""

    info: Info
    span: Span
    name: str
    binder: Binder


class Reference(msgspec.Struct, frozen=True, eq=False):
    """The use of a `let`, a `metric` or a parameter."""

    info: Info
    span: Span
    name: str
    value: Typed


class Unknown(msgspec.Struct, frozen=True, eq=False):
    """Something wrong that was reported."""

    info: Info
    span: Span


Typed: TypeAlias = (
    Constant
    | Read
    | Apply
    | Negative
    | Arithmetic
    | Compare
    | Same
    | Contained
    | Not
    | Logic
    | Conditional
    | Otherwise
    | Missing
    | Element
    | ListOf
    | Aggregate
    | NodeAggregate
    | MemberAggregate
    | ListAggregate
    | Variable
    | Reference
    | Unknown
)


_TYPED = get_args(Typed)


def parts(typed: Typed) -> tuple[Typed, ...]:
    """Return the values directly below one, in the order they were written."""
    match typed:
        case Constant() | Read() | Variable() | Unknown():
            return ()
        case Apply(arguments=arguments):
            return arguments
        case Negative(operand=operand) | Not(operand=operand) | Missing(operand=operand):
            return (operand,)
        case Arithmetic(left=left, right=right) | Compare(left=left, right=right):
            return left, right
        case Same(left=left, right=right) | Otherwise(left=left, right=right):
            return left, right
        case Contained(item=item, list=list_):
            return item, list_
        case Logic(operands=operands):
            return operands
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            return condition, then, otherwise
        case Element(list=list_):
            return (list_,)
        case ListOf(items=items):
            return items
        case Aggregate(value=value, where=where) | NodeAggregate(value=value, where=where):
            return tuple(part for part in (value, where) if part is not None)
        case MemberAggregate():
            return ()
        case ListAggregate(list=list_, value=value, where=where):
            return tuple(part for part in (list_, value, where) if part is not None)
        case Reference(value=value):
            return (value,)


def below(typed: Typed) -> Iterator[Typed]:
    """Yield the value and everything below it once, parents first."""
    stack, seen = [typed], set()
    while stack:
        top = stack.pop()
        if id(top) in seen:
            continue
        seen.add(id(top))
        yield top
        stack.extend(reversed(parts(top)))


def cost(typed: Typed, known: dict[int, int]) -> int:
    """Return how many operations one evaluation takes; what is used twice counts twice."""
    found = known.get(id(typed))
    if found is None:
        own = _AGGREGATE_COST if isinstance(typed, Aggregate | NodeAggregate | ListAggregate) else 1
        times = _LIST_LENGTH if isinstance(typed, ListAggregate) else 1
        found = known[id(typed)] = own + times * sum(cost(part, known) for part in parts(typed))
    return found


_AGGREGATE_COST = 20
"""Operations of an aggregate: its domains are added up, its members looked up."""
_LIST_LENGTH = 8
"""Items that a list is taken to have."""


@lru_cache(maxsize=4096)
def free(value: Typed) -> frozenset[Binder]:
    """Return to which aggregates around a value its variables belong: without those it cannot be evaluated."""
    match value:
        case Variable(binder=binder):
            return frozenset((binder,))
        case ListAggregate(binder=binder):
            return frozenset().union(*(free(part) for part in parts(value))) - {binder}
        case _:
            return frozenset().union(*(free(part) for part in parts(value)))


def of_rows(value: Typed) -> Typed:
    """Return a value of each node that an aggregate iterates over as one of each row of a frame."""
    if value.info.shape is not Shape.ITEM:
        return value
    changed: dict[str, Any] = {"info": msgspec.structs.replace(value.info, shape=Shape.NODE)}
    for name in value.__struct_fields__:
        part = getattr(value, name)
        if isinstance(part, _TYPED):
            changed[name] = of_rows(part)
        elif name in ("arguments", "operands", "items"):
            changed[name] = tuple(of_rows(one) for one in part)
    return msgspec.structs.replace(value, **changed)


def conjuncts(value: Typed) -> tuple[Typed, ...]:
    """Return the conditions that a truth joins with `and`; any other value alone."""
    meant = inner(value)
    if isinstance(meant, Logic) and meant.operator == "and":
        return tuple(part for operand in meant.operands for part in conjuncts(operand))
    return (value,)


def reads_only(value: Typed, path: str) -> bool:
    """Return whether a value follows from one field of a pod's template, or from nothing."""
    return not value.info.depends & ~Depends.TEMPLATE and all(
        part.field.path == path for part in below(value) if isinstance(part, Read)
    )


def reads_its_node(value: Typed) -> bool:
    """Return whether an expression over existing pods reads the node of each."""
    return any(isinstance(part, Read) and _is_of_item(part, Shape.NODE) for part in below(value))


def reads_pod(value: Typed) -> bool:
    """Return whether an expression over existing pods reads the pod itself."""
    return any(isinstance(part, Read) and _is_of_item(part, Shape.DECISION) for part in below(value))


def _is_of_item(read: Read, shape: Shape) -> bool:
    return read.info.shape is Shape.ITEM and read.field.shape is shape


def inner(value: Typed) -> Typed:
    """Return the meaning of a name; anything else unchanged."""
    while isinstance(value, Reference):
        value = value.value
    return value


@lru_cache(maxsize=4096)
def key(value: Typed) -> Hashable:
    """Return what two expressions have in common that are always equal: their structure, names expanded."""
    value = inner(value)
    match value:
        case Constant(value=constant):
            return "constant", constant
        case Read(info=info, field=field_, key=key_):
            return field_.path, key_, info.shape is Shape.ITEM
        case Apply(builtin=builtin, arguments=given, inputs=inputs, constants=constants):
            return (builtin.name, inputs, constants, *(key(argument) for argument in given))
        case Variable(name=name):
            return "variable", name
        case Arithmetic(operator=operator, left=left, right=right):
            return operator, key(left), key(right)
        case Negative(operand=operand):
            return "-", key(operand)
        case Otherwise(left=left, right=right):
            return "??", key(left), key(right)
        case _:
            # the same text of the same parts; in a `def`, the parts differ by the arguments
            shown = " ".join(value.span.text.split())
            return ("text", shown, type(value).__name__, *(key(part) for part in parts(value)))

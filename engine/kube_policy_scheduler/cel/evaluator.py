"""Checked expressions as functions of their variables, with the cost that cel-go counts.

Errors are exceptions that `&&`, `||`, macros over lists and `optional` functions may absorb, as in CEL; the cost
limit is one that nothing absorbs. Costs are those of cel-go's run-time tracker with Kubernetes' own functions.

An evaluation may pause between two rounds of a macro, and is asked again later. It then repeats what is outside of
macros, which is as short as the expression, and takes from its memory where each macro was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, TypeAlias

from kube_policy_scheduler.cel import functions
from kube_policy_scheduler.cel.syntax import Call, Comprehension, Constant, Ident, ListOf, MapOf, Node, Select
from kube_policy_scheduler.cel.values import (
    ABSENT,
    COST_EXCEEDED,
    NONE,
    CelError,
    CostLimitExceeded,
    Map,
    MissingKeyError,
    Optional,
    Uint,
    as_text,
    map_key,
    no_overload,
    size_of,
)

_LIST_COST = 10
_MAP_COST = 30


_NODES_A_STEP = 8
"""Nodes, or units of cost, that are evaluated in a step: 2 µs."""


class Paused(Exception):
    """The evaluation took the work that it may take now; it goes on when it is asked again."""


class _Rounds:
    """The macros of one level: those that have a result by now, in order, and the one that is under way."""

    __slots__ = ("done", "under_way")

    def __init__(self) -> None:
        self.done: list[tuple[Any, int]] = []
        """A value, or the error in its place, and the cost until then."""
        self.under_way: _Fold | None = None


class _Fold:
    """How far one evaluation of a macro is."""

    __slots__ = ("accumulated", "cost", "inner", "is_begun", "pairs", "phase", "place")

    def __init__(self, cost: int) -> None:
        self.phase = 0
        self.pairs: list[tuple[Any, Any]] = []
        self.place = 0
        self.accumulated: Any = None
        self.cost = cost
        """When the phase, or the round, began."""
        self.is_begun = False
        """Whether the round has begun."""
        self.inner = _Rounds()
        """The macros within it."""

    def next(self, phase: int, cost: int) -> None:
        """Begin a phase or a round."""
        self.phase, self.cost, self.is_begun = phase, cost, False
        if self.inner.done:
            self.inner.done.clear()


class Run:
    """The state of one evaluation."""

    __slots__ = ("_limit", "_most", "_must_go_on", "_names", "at", "cost", "names", "nodes", "rounds")

    def __init__(self, names: Mapping[str, Any], limit: int) -> None:
        self._names = names
        self.names = dict(names)
        self.cost = 0
        self.nodes = 0
        """Evaluated so far, about, with the members and characters that functions looked at."""
        self.rounds = _Rounds()
        self.at = 0
        """How many macros of this level are behind."""
        self._limit = limit
        self._most: float = inf
        self._must_go_on = True

    def begin(self, most_steps: float) -> None:
        """Begin, or go on after a pause, for this many steps."""
        self.names, self.cost, self.at = dict(self._names), 0, 0
        self._most = self.nodes + most_steps * _NODES_A_STEP
        self._must_go_on = True

    @property
    def steps(self) -> int:
        """Return the steps that it took."""
        return self.nodes // _NODES_A_STEP

    def enter(self, fold: _Fold) -> None:
        """Go on within a macro."""
        self.rounds, self.at, self.cost = fold.inner, 0, fold.cost

    def begin_round(self, fold: _Fold, nodes: int) -> None:
        """Count a round of a macro.

        Raises:
            Paused: first other work gets its turn.
        """
        self.nodes += nodes
        if not fold.is_begun:
            if self.nodes > self._most and not self._must_go_on:
                raise Paused
            self._must_go_on, fold.is_begun = False, True

    def charge(self, cost: int) -> None:
        """Count the cost of a step.

        Raises:
            CostLimitExceeded: with it, the evaluation exceeds the cost limit.
        """
        self.cost += cost
        if self.cost > self._limit:
            raise CostLimitExceeded(COST_EXCEEDED)


Step: TypeAlias = Callable[[Run], Any]


def compile_node(node: Node) -> Step:
    """Return a function that evaluates a node."""
    match node:
        case Constant(value, unsigned):
            constant = Uint(value) if unsigned and isinstance(value, int) else value
            return lambda run: constant
        case Ident(name):
            return _ident(name)
        case Select(operand, field, test):
            inner = compile_node(operand)
            return _has(inner, field) if test else _select(inner, field)
        case Call():
            return _call(node)
        case ListOf(elements, optional):
            return _list(tuple(map(compile_node, elements)), optional)
        case MapOf(entries):
            return _map(tuple((compile_node(key), compile_node(value), maybe) for key, value, maybe in entries))
        case Comprehension():
            return _fold(node)


def _ident(name: str) -> Step:
    if name in functions.TYPES:
        value = functions.TYPES[name]
        return lambda run: value

    def evaluate(run: Run) -> Any:
        run.charge(1)
        found = run.names.get(name, ABSENT)
        if found is ABSENT:
            raise CelError(f"no such attribute(s): {name}")
        if type(found) is CelError:  # an accumulator may hold one
            raise found
        return found

    return evaluate


def member(value: Any, key: Any) -> Any:
    """Return a member of a map or list, `ABSENT` if there is none.

    Raises:
        CelError: the value has no members.
    """
    kind = type(value)
    if kind is Map:
        return value.find(key)
    if kind is tuple:
        if type(key) is float and key.is_integer():
            key = int(key)
        if type(key) not in (int, Uint):
            raise CelError(f"unsupported index type '{functions.type_name(key)}' in list")
        return value[key] if 0 <= key < len(value) else ABSENT
    raise no_overload()


def _absent(value: Any, key: Any) -> CelError:
    if type(value) is tuple:
        return CelError(f"index out of bounds: {as_text(key)}")
    return MissingKeyError(f"no such key: {as_text(key)}")


def _select(operand: Step, field: str) -> Step:
    def evaluate(run: Run) -> Any:
        value = operand(run)
        run.charge(1)
        if type(value) is Optional:
            found = member(value.value, field)
            return NONE if found is ABSENT else Optional(found)
        if value is NONE:
            return NONE
        found = member(value, field)
        if found is ABSENT:
            raise _absent(value, field)
        return found

    return evaluate


def _has(operand: Step, field: str) -> Step:
    def evaluate(run: Run) -> Any:
        value = operand(run)
        if type(value) is Optional:
            value = value.value
        elif value is NONE:
            return False
        if type(value) is not Map:
            raise no_overload()
        return field in value or value.default is not None

    return evaluate


def _list(elements: tuple[Step, ...], optional: frozenset[int]) -> Step:
    def evaluate(run: Run) -> Any:
        done = []
        for place, element in enumerate(elements):
            value = element(run)
            if place in optional:
                if value is NONE:
                    continue
                value = value.value if type(value) is Optional else value
            done.append(value)
        run.charge(_LIST_COST)
        return tuple(done)

    return evaluate


def _map(entries: tuple[tuple[Step, Step, bool], ...]) -> Step:
    def evaluate(run: Run) -> Any:
        done: dict[Any, tuple[Any, Any]] = {}
        for key_of, value_of, maybe in entries:
            key, value = key_of(run), value_of(run)
            if maybe:
                if value is NONE:
                    continue
                value = value.value if type(value) is Optional else value
            done[map_key(key)] = (key, value)
        run.charge(_MAP_COST)
        return Map(done)

    return evaluate


def _fold(node: Comprehension) -> Step:
    over, start = compile_node(node.over), compile_node(node.start)
    condition, step, result = (compile_node(part) for part in (node.condition, node.step, node.result))
    first, second, accumulator = node.variable, node.second_variable, node.accumulator
    nodes = 1 + node_count(node.condition) + node_count(node.step)

    def go_on(run: Run, fold: _Fold, outer: dict[str, Any]) -> Any:
        run.enter(fold)
        if fold.phase == 0:
            fold.pairs = _pairs(over(run), with_values=bool(second))
            fold.next(1, run.cost)
            run.at = 0
        names = run.names
        if fold.phase == 1:
            fold.accumulated = _held(start, run)
            fold.next(2, run.cost)
            run.at = 0
        if fold.phase == 2:
            names[accumulator] = fold.accumulated
            pairs = fold.pairs
            while fold.place < len(pairs):
                run.begin_round(fold, nodes)
                names[first], value = pairs[fold.place]
                if second:
                    names[second] = value
                if not condition(run):
                    break
                names[accumulator] = fold.accumulated = _held(step, run)
                fold.place += 1
                fold.next(2, run.cost)
                run.at = 0
            fold.next(3, run.cost)
            run.at = 0
        run.names = {**outer, accumulator: fold.accumulated}
        return result(run)

    def evaluate(run: Run) -> Any:
        rounds, at = run.rounds, run.at
        if at < len(rounds.done):
            value, run.cost = rounds.done[at]
            run.at += 1
        else:
            fold = rounds.under_way
            if fold is None:
                fold = rounds.under_way = _Fold(run.cost)
            outer = run.names
            run.names = dict(outer)
            try:
                value = go_on(run, fold, outer)
            except CelError as error:
                value = _Failed(error)
            finally:
                run.names, run.rounds, run.at = outer, rounds, at + 1
            rounds.under_way = None
            rounds.done.append((value, run.cost))
        if type(value) is _Failed:
            raise value.error
        return value

    return evaluate


class _Failed:
    """The error of a macro, in the place of its value."""

    __slots__ = ("error",)

    def __init__(self, error: CelError) -> None:
        self.error = error


def _pairs(values: Any, *, with_values: bool) -> list[tuple[Any, Any]]:
    """Return what a macro runs over."""
    kind = type(values)
    if kind is Map:
        return [(key, values.find(key)) for key in values] if with_values else [(key, None) for key in values]
    if kind is tuple:
        return list(enumerate(values)) if with_values else [(value, None) for value in values]
    raise no_overload()


def node_count(node: Node) -> int:
    """Return how many nodes are evaluated at most without the rounds of the macros among them."""
    match node:
        case Constant() | Ident():
            return 1
        case Select(operand, _, _):
            return 1 + node_count(operand)
        case Call(_, arguments):
            return 1 + sum(map(node_count, arguments))
        case ListOf(elements, _):
            return 1 + sum(map(node_count, elements))
        case MapOf(entries):
            return 1 + sum(node_count(key) + node_count(value) for key, value, _ in entries)
        case Comprehension():
            return 1 + sum(map(node_count, (node.over, node.start, node.result)))


def _held(step: Step, run: Run) -> Any:
    """Return a value, or the error in its place."""
    try:
        return step(run)
    except CelError as error:
        return error


# --- calls ------------------------------------------------------------------------------------------------


def _call(node: Call) -> Step:
    arguments = node.arguments
    match node.function:
        case "_&&_":
            return _logical(_chain(node, "_&&_"), settles=False)
        case "_||_":
            return _logical(_chain(node, "_||_"), settles=True)
        case "_?_:_":
            return _conditional(*map(compile_node, arguments))
        case "_[_]":
            return _index(*map(compile_node, arguments))
        case "_?._" | "_[?_]":
            return _index(*map(compile_node, arguments), is_optional=True)
        case "@not_strictly_false" | "__not_strictly_false__":
            return _not_strictly_false(compile_node(arguments[0]))
        case "_!=_":
            return _not_equal(*map(compile_node, arguments))
        case "orValue":
            return _or_value(*map(compile_node, arguments), keeps=False)
        case "or":
            return _or_value(*map(compile_node, arguments), keeps=True)
    return _plain(node.function, tuple(map(compile_node, arguments)))


def _chain(node: Call, operator: str) -> tuple[Step, ...]:
    """Return the terms of a chain of one logical operator, from left to right."""
    terms: list[Step] = []
    waiting: list[Node] = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Call) and item.function == operator:
            waiting.extend(reversed(item.arguments))
        else:
            terms.append(compile_node(item))
    return tuple(terms)


def _logical(terms: tuple[Step, ...], *, settles: bool) -> Step:
    def evaluate(run: Run) -> Any:
        first: CelError | None = None
        for term in terms:
            try:
                value = term(run)
            except CelError as error:
                first = first or error
                continue
            if value is settles:
                return settles
            if type(value) is not bool:
                first = first or no_overload()
        if first is not None:
            raise first
        return not settles

    return evaluate


def _conditional(test: Step, yes: Step, no: Step) -> Step:
    def evaluate(run: Run) -> Any:
        value = test(run)
        if value is True:
            return yes(run)
        if value is False:
            return no(run)
        raise no_overload()

    return evaluate


def _index(operand: Step, key_of: Step, *, is_optional: bool = False) -> Step:
    def evaluate(run: Run) -> Any:
        value, key = operand(run), key_of(run)
        run.charge(1)
        if value is NONE:
            return NONE
        inner = value.value if type(value) is Optional else value
        found = member(inner, key)
        if is_optional or type(value) is Optional:
            return NONE if found is ABSENT else Optional(found)
        if found is ABSENT:
            raise _absent(value, key)
        return found

    return evaluate


def _not_strictly_false(argument: Step) -> Step:
    def evaluate(run: Run) -> Any:
        run.charge(1)
        try:
            return argument(run) is not False
        except CelError:
            return True

    return evaluate


def _not_equal(left: Step, right: Step) -> Step:
    def evaluate(run: Run) -> Any:
        mine, theirs = left(run), right(run)
        run.charge(functions.equality_cost("_!=_", mine, theirs))
        try:
            return not functions.equal(mine, theirs)
        except CelError:
            return True

    return evaluate


def _or_value(operand: Step, other: Step, *, keeps: bool) -> Step:
    def evaluate(run: Run) -> Any:
        value = operand(run)
        if type(value) is Optional:
            return value if keeps else value.value
        if value is NONE:
            return other(run)
        raise no_overload()

    return evaluate


def _plain(function: str, arguments: tuple[Step, ...]) -> Step:
    known = functions.FUNCTIONS.get(function)
    cost_of = functions.COSTS.get(function)
    if known is None:
        raise CelError(f"function {function} is not supported")

    def evaluate(run: Run) -> Any:
        values = [argument(run) for argument in arguments]
        if cost_of is None:
            run.charge(1)
        elif cost_of is not functions.BY_RESULT:
            cost = cost_of(values)
            run.nodes += cost
            run.charge(cost)
        try:
            result = known(*values)
        except functions.NoOverload:
            if function in functions.STANDARD:
                raise
            types = ", ".join(map(functions.type_name, values))
            raise CelError(f"no such overload: {function}({types})") from None
        if cost_of is functions.BY_RESULT:
            run.charge(functions.traversal(2 * size_of(result)))
        return result

    return evaluate

"""The arguments of one call laid on the parameters of a builtin: kinds, units, constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kube_policy_scheduler.diagnostics import closest
from kube_policy_scheduler.lang import codes_meaning as codes
from kube_policy_scheduler.lang import expressions, typed
from kube_policy_scheduler.lang.checking import operators
from kube_policy_scheduler.lang.checking.operators import unknown
from kube_policy_scheduler.lang.checking.scope import Scope
from kube_policy_scheduler.lang.checking.units import common_unit, constant_number, in_unit
from kube_policy_scheduler.lang.signature import Builtin, Parameter, Takes
from kube_policy_scheduler.lang.types import PLAIN, RESOURCE_WORDS, Info, Kind, Type, Unit, number, resource_name

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.checking.infer import Inference


@dataclass(slots=True)
class Binding:
    """The arguments of one call laid on the parameters of a builtin."""

    inference: Inference
    builtin: Builtin
    expr: expressions.Call
    scope: Scope

    def apply(self) -> typed.Typed:
        """Return the value of the call."""
        assigned = self._assign()
        if assigned is None:
            return unknown(self.expr.span)
        before = len(self.inference.found)
        positional: list[Any] = []
        named: dict[str, Any] = {}
        values: list[typed.Typed] = []
        unit: typed.Typed | None = None
        for parameter, argument in assigned:
            if parameter.takes.constant:
                bound = self._constant(parameter, argument)
            else:
                value = self._value(parameter, argument)
                if parameter.takes.unit is None and not operators.bad(value):
                    unit = self._same_unit(unit, value)
                values.append(value)
                bound = _Hole(len(values) - 1)
            if parameter.named_only:
                named[_python_name(self.builtin, parameter)] = bound
            else:
                positional.append(bound)
        if len(self.inference.found) > before or operators.bad(*values):
            return unknown(self.expr.span)
        return self._typed(positional, named, values, unit)

    def _assign(self) -> list[tuple[Parameter, expressions.Expr]] | None:
        """Return each given argument with its parameter, or None after reporting that they don't match."""
        parameters = self.builtin.parameters
        places = [p for p in parameters if not p.named_only]
        assigned: list[tuple[Parameter, expressions.Expr]] = []
        problem = ""
        for at, argument in enumerate(self.expr.arguments):
            if at < len(places):
                assigned.append((places[at], argument))
            elif places and places[-1].variadic:
                assigned.append((places[-1], argument))
            else:
                problem = f"`{self.builtin.name}` takes {len(places)} arguments, not {len(self.expr.arguments)}"
        taken = {parameter.name for parameter, _ in assigned}
        for given in self.expr.named:
            found = next((p for p in parameters if p.name == given.name and not p.variadic), None)
            if found is None:
                meant = closest(given.name, [p.name for p in parameters])
                problem = f"`{self.builtin.name}` has no argument `{given.name}`"
                problem += f"; did you mean `{meant}`?" if meant else ""
            elif found.name in taken:
                problem = f"the argument `{given.name}` is given twice"
            else:
                taken.add(found.name)
                assigned.append((found, given.value))
        lacking = [p.name for p in parameters if p.required and p.name not in taken]
        if lacking and not problem:
            problem = f"`{self.builtin.name}` also needs `{lacking[0]}`"
        if problem:
            self.inference.found.append(
                codes.ARGUMENTS.at(self.expr.span, problem, help=f"write it as `{self.builtin.signature}`")
            )
            return None
        return assigned

    def _value(self, parameter: Parameter, argument: expressions.Expr) -> typed.Typed:
        value = self.inference.infer(argument, self.scope)
        takes = parameter.takes
        if operators.bad(value):
            return value
        found = self.inference.found
        if takes.kind is Kind.TRUTH:
            return operators.truth(value, found)
        if value.info.type.kind is not takes.kind:
            found.append(operators.wrong_type(value, f"{_kind(takes)} as `{parameter.name}`"))
            return unknown(argument.span)
        if takes.kind is Kind.NUMBER and takes.unit is not None:
            return self._in_unit(value, takes.unit)
        return value

    def _in_unit(self, value: typed.Typed, unit: Unit) -> typed.Typed:
        found = self.inference.found
        return value if in_unit(value, unit, found) else unknown(value.span)

    def _same_unit(self, known: typed.Typed | None, value: typed.Typed) -> typed.Typed:
        if known is None:
            return value
        unit = common_unit(known, value, "mix {left} and {right} here", self.inference.found, value.span)
        if unit is None:
            return known
        both = known.info.literal and value.info.literal
        return typed.Constant(Info(number(unit), literal=known.info.literal if both else None), value.span, 0.0)

    def _constant(self, parameter: Parameter, argument: expressions.Expr) -> Any:
        """Return what the kernel takes for a constant argument, or None after reporting."""
        takes, found = parameter.takes, self.inference.found
        if takes.word and isinstance(argument, expressions.Name) and argument.name not in self.inference.definitions:
            if argument.name not in RESOURCE_WORDS:
                meant = closest(argument.name, RESOURCE_WORDS)
                advice = f"did you mean `{meant}`?" if meant else 'other resources stand in quotes: "nvidia.com/gpu"'
                found.append(codes.UNKNOWN_NAME.at(argument.span, f"unknown resource `{argument.name}`", help=advice))
                return None
            constant: Any = resource_name(argument.name)
        else:
            value = self.inference.infer(argument, self.scope)
            if operators.bad(value):
                return None
            if value.info.type.kind is not takes.kind:
                advice = f"write names of resources: `{self.builtin.name}(cpu, mem)`" if takes.word else ""
                found.append(operators.wrong_type(value, f"{_kind(takes)} as `{parameter.name}`", advice=advice))
                return None
            constant = constant_of(value)
            if constant is None:
                message = f"`{parameter.name}` of `{self.builtin.name}` must be written out"
                found.append(codes.NOT_CONSTANT.at(argument.span, message, help="write the text or number itself here"))
                return None
            if takes.kind is Kind.NUMBER and operators.bad(self._in_unit(value, takes.unit or PLAIN)):
                return None
        if takes.prepare is None:
            return constant
        try:
            return takes.prepare(constant)
        except ValueError as error:
            message, _, advice = str(error).partition("; ")
            found.append(codes.BAD_ARGUMENT.at(argument.span, message, help=advice))
            return None

    def _typed(
        self, positional: list[Any], named: dict[str, Any], values: list[typed.Typed], unit: typed.Typed | None
    ) -> typed.Typed:
        builtin, gives = self.builtin, self.builtin.gives
        shape, _, depends = operators.joined(*values)
        maybe = gives.maybe or any(v.info.maybe for v in values if v.info.type.kind is not Kind.TEXT)
        if gives.kind is not Kind.TRUTH:
            maybe = maybe or any(v.info.maybe for v in values)
        kernel = builtin.kernel
        inputs = _inputs(values) if builtin.reads_inputs else ()
        if builtin.reads_inputs and not inputs:
            message = f"`{builtin.name}` goes with a metric, and there is none in its arguments"
            advice = f'write it like `{builtin.name}(promql("cpu_usage"), 5)`'
            self.inference.found.append(codes.ARGUMENTS.at(self.expr.span, message, help=advice))
            return unknown(self.expr.span)
        if inputs:
            kernel = _with_inputs(kernel, inputs)
        if builtin.staged:
            try:
                kernel = kernel(*positional, **named)
            except ValueError as error:
                message, _, advice = str(error).partition("; ")
                self.inference.found.append(codes.BAD_ARGUMENT.at(self.expr.span, message, help=advice))
                return unknown(self.expr.span)
        else:
            kernel = _bound(kernel, positional, named, frame=builtin.reads_frame)
        result = Type(gives.kind, gives.unit or (unit.info.type.unit if unit else PLAIN), gives.item)
        low, high = -1e308, 1e308
        if builtin.bounds is not None:
            pairs = [(v.info.low, v.info.high) for v in values if v.info.type.kind is Kind.NUMBER]
            low, high = builtin.bounds(*pairs)
        info = Info(result, builtin.shape or shape, maybe, depends | builtin.depends, low, high)
        reads = tuple(getattr(kernel, "inputs", ()))
        self.inference.inputs.update(reads)
        value = typed.Apply(info, self.expr.span, builtin, kernel, tuple(values), reads)
        return value if self.inference.allowed(value, self.scope) else unknown(self.expr.span)


def _inputs(values: Sequence[typed.Typed]) -> tuple[Any, ...]:
    """Return what the arguments of a call read from outside, each once."""
    calls = (part for value in values for part in typed.below(value) if isinstance(part, typed.Apply))
    return tuple(dict.fromkeys(each for part in calls for each in part.inputs))


def _with_inputs(kernel: Callable[..., Any], inputs: tuple[Any, ...]) -> Callable[..., Any]:
    return lambda frame, *values, **named: kernel(frame, inputs, *values, **named)


@dataclass(frozen=True, slots=True)
class _Hole:
    """Where a value goes among constants."""

    position: int


def _bound(
    kernel: Callable[..., Any], positional: Sequence[Any], named: dict[str, Any], *, frame: bool
) -> Callable[..., Any]:
    """Return the kernel with its constants bound: it takes the frame, if it reads it, and the values."""
    plain = not named and all(isinstance(p, _Hole) and p.position == at for at, p in enumerate(positional))
    if plain:
        return kernel
    shift = 1 if frame else 0

    def fill(bound: Any, given: tuple[Any, ...]) -> Any:
        return given[bound.position + shift] if isinstance(bound, _Hole) else bound

    def apply(*given: Any) -> Any:
        return kernel(
            *given[:shift],
            *(fill(bound, given) for bound in positional),
            **{name: fill(bound, given) for name, bound in named.items()},
        )

    return apply


def constant_of(value: typed.Typed) -> Any:
    """Return the value of a constant expression, also through names; None where it is none."""
    match value:
        case typed.Constant(value=constant):
            return constant
        case typed.Reference(value=inner):
            return constant_of(inner)
        case _:
            return constant_number(value)


def _kind(takes: Takes) -> str:
    return f"a {takes.kind.value}" if takes.kind in (Kind.NUMBER, Kind.LIST) else str(takes.kind.value)


def _python_name(builtin: Builtin, parameter: Parameter) -> str:
    """Return the name of a parameter in Python, which may end in `_` where the word is taken."""
    names = builtin.kernel.__code__.co_varnames
    return parameter.name if parameter.name in names else f"{parameter.name}_"

"""Functions of the language as values: a builtin's Python annotations are its signature, its docstring its manual."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, TypeAlias, get_args, get_origin

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.lang.model_card import ModelCard
from kube_policy_scheduler.lang.types import (
    BYTES,
    CONDITION_WORDS,
    PLAIN,
    SECONDS,
    SHARE,
    Depends,
    Kind,
    Literal,
    Shape,
    Unit,
)

FloatColumn: TypeAlias = NDArray[np.float64]
BoolColumn: TypeAlias = NDArray[np.bool_]
Numbers: TypeAlias = FloatColumn | float
"""One number per row, or one; NaN is missing, and nothing else is NaN."""
Truths: TypeAlias = BoolColumn | bool


_MOST_WORDS = 4
"""That are listed as a type."""


class Unavailable(Exception):
    """A function of an extension has no value for now, whatever it is given: to policies its value is missing."""


class TypeSpec(msgspec.Struct, frozen=True):
    """What an annotation declares for a parameter, of a builtin's result, or of a field."""

    kind: Kind
    unit: Unit | None = PLAIN
    """None: any unit, the same for all such parameters and the result."""
    maybe: bool = False
    constant: bool = False
    """A parameter that must be a constant, so that it can be checked and prepared before any decision."""
    word: bool = False
    """A constant text that may be written without quotes."""
    prepare: Callable[[Any], Any] | None = None
    """Turns the constant into what the kernel takes; raises ValueError, whose text users see."""
    per_resource: bool = False
    """The unit is that of the resource in a field's key."""
    item: Kind | None = None
    words: tuple[str, ...] = ()
    """Of texts: all that it can be; none: anything."""
    literal: Literal | None = None
    """Of results: how it takes the unit of what it meets."""

    def __str__(self) -> str:
        name = "truth" if self.kind is Kind.TRUTH else self.kind.value
        if 0 < len(self.words) <= _MOST_WORDS:
            name = f"one of {', '.join(self.words)}"
        if self.unit == SECONDS:
            name = "duration"
        elif self.unit == BYTES:
            name = "amount in bytes"
        elif self.literal is Literal.QUANTITY:
            name = "quantity"
        elif self.kind is Kind.NUMBER and self.unit is None:
            name = "amount"
        elif self.word:
            name = "resource"
        elif self.per_resource:
            name = "amount of the resource"
        elif self.kind is Kind.LIST and self.item:
            name = f"list of {self.item.value}"
        return f"maybe {name}" if self.maybe else f"constant {name}" if self.constant and not self.word else name


Number: TypeAlias = Annotated[Numbers, TypeSpec(Kind.NUMBER)]
"""A plain number."""
Same: TypeAlias = Annotated[Numbers, TypeSpec(Kind.NUMBER, unit=None)]
"""A number of any unit, the same wherever `Same` stands in a signature."""
MaybeNumber: TypeAlias = Annotated[Numbers, TypeSpec(Kind.NUMBER, maybe=True)]
Duration: TypeAlias = Annotated[Numbers, TypeSpec(Kind.NUMBER, unit=SECONDS)]
MaybeDuration: TypeAlias = Annotated[Numbers, TypeSpec(Kind.NUMBER, unit=SECONDS, maybe=True)]
MaybeQuantity: TypeAlias = Annotated[Numbers, TypeSpec(Kind.NUMBER, maybe=True, literal=Literal.QUANTITY)]
"""What a text says that is a Kubernetes quantity: an amount of cpu, bytes, or a plain number, by what it meets."""
MaybeVersion: TypeAlias = Annotated[Any, TypeSpec(Kind.VERSION, maybe=True)]
"""A `str` that `cluster.versions` can read, or None."""
Truth: TypeAlias = Annotated[Truths, TypeSpec(Kind.TRUTH)]
Text: TypeAlias = Annotated[Any, TypeSpec(Kind.TEXT)]
"""In a builtin, one `str`: the compiler calls it once per distinct text. In a field, `Texts` or `str`."""
MaybeText: TypeAlias = Annotated[Any, TypeSpec(Kind.TEXT, maybe=True)]
ConditionStatus: TypeAlias = Annotated[Any, TypeSpec(Kind.TEXT, maybe=True, words=CONDITION_WORDS)]
"""Of a field, as `MaybeText`; as truth, whether it is `True`."""
TextList: TypeAlias = Annotated[Any, TypeSpec(Kind.LIST, item=Kind.TEXT)]
Amount: TypeAlias = Annotated[Numbers, TypeSpec(Kind.NUMBER, per_resource=True)]
"""Of a field with a resource as key: an amount of it."""
ConstantText: TypeAlias = Annotated[str, TypeSpec(Kind.TEXT, constant=True)]
ConstantDuration: TypeAlias = Annotated[float, TypeSpec(Kind.NUMBER, unit=SECONDS, constant=True)]
ResourceWord: TypeAlias = Annotated[str, TypeSpec(Kind.TEXT, constant=True, word=True)]

Share: TypeAlias = Annotated[Numbers, TypeSpec(Kind.NUMBER, unit=SHARE)]
"""A number from 0 to 1 by its nature."""

NumberReader: TypeAlias = Annotated[Callable[[Any], Numbers], TypeSpec(Kind.NUMBER)]
"""What a staged builtin returns: evaluates a frame to a number. The two below: to one that can be missing."""
MaybeNumberReader: TypeAlias = Annotated[Callable[[Any], Numbers], TypeSpec(Kind.NUMBER, maybe=True)]
MaybeQuantityReader: TypeAlias = Annotated[
    Callable[[Any], Numbers], TypeSpec(Kind.NUMBER, maybe=True, literal=Literal.QUANTITY)
]
MaybeTextReader: TypeAlias = Annotated[Callable[[Any], Any], TypeSpec(Kind.TEXT, maybe=True)]
"""Evaluates a frame to `Texts`."""
MaybeBytesReader: TypeAlias = Annotated[Callable[[Any], Numbers], TypeSpec(Kind.NUMBER, unit=BYTES, maybe=True)]
MaybeTruthReader: TypeAlias = Annotated[Callable[[Any], Any], TypeSpec(Kind.TRUTH, maybe=True)]
"""Evaluates a frame to `uint8[rows]`: 0 false, 1 missing, 2 true, as `lang.compiling.columns` codes it."""
TruthReader: TypeAlias = Annotated[Callable[[Any], Truths], TypeSpec(Kind.TRUTH)]

Bounds: TypeAlias = Callable[..., tuple[float, float]]
"""From the (low, high) of each number argument to that of the result."""


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a builtin."""

    name: str
    takes: TypeSpec
    required: bool
    named_only: bool
    variadic: bool
    default: Any = None

    def __str__(self) -> str:
        text = f"{self.name}: {self.takes}"
        if self.variadic:
            return text + ", …"
        if self.required:
            return text
        shown = isinstance(self.default, float | int | str) and self.default != ""
        return f"{text} = {self.default}" if shown else f"{text}?"


class Receives(Enum):
    """What the kernel of a builtin is called with, if not with the values of its arguments."""

    VALUES = "values"
    """Of texts, once per distinct one."""
    COLUMNS = "columns"
    """Whole columns of texts as they are."""
    INPUTS = "inputs"
    """Its second argument is what its arguments read from outside: a `QueryInput` for each metric."""
    DEVICE_ORDER = "device order"
    """A frame in which devices are in the order that `devices by` selects: it is about those that a pod would get."""


class Words(msgspec.Struct, frozen=True):
    """What tools and messages say about a builtin."""

    opposite: str = ""
    """The builtin that is often confused with it: mutation tests substitute it."""
    foreign: tuple[str, ...] = ()
    """Its names in other languages, in lower case and without `_`."""
    advice: str = ""
    """What to write for those, if it is not a plain call."""
    plugin: str = ""
    """The default filter of Kubernetes with the same condition: if both reject a node, that is one reason."""
    reads_text: str = ""
    """What it reads a text as, with its article: a constant text that is not one is an error."""
    problem: Callable[[Any, int], str] | None = None
    """Takes the first constant as the kernel does, and the number of arguments that are not constants; returns what is
    wrong with a call, "" for nothing."""
    trained: bool = False
    """Whether the constants name a trained model, and the other arguments are its inputs."""
    card: Callable[..., ModelCard | None] | None = None
    """Takes the constants of a call of a trained model as they are written; returns the card of the version in use."""
    unusable: Callable[[], str] | None = None
    """Returns why no call can work here, such as a package that is not installed, and what to do; "" for nothing."""


NO_WORDS = Words()


class Builtin(msgspec.Struct, frozen=True):
    """A function of the language."""

    name: str
    doc: str
    parameters: tuple[Parameter, ...]
    gives: TypeSpec
    kernel: Callable[..., Any]
    reads_frame: bool
    """The kernel's first argument is the frame."""
    staged: bool
    """The kernel is called once with the constants, before any decision, and returns what evaluates a frame."""
    shape: Shape | None
    """None: that of its arguments."""
    depends: Depends
    bounds: Bounds | None
    scores_only: bool
    """It compares nodes with each other, which only a score may."""
    receives: Receives = Receives.VALUES
    """What the kernel is called with."""
    over_time: Callable[..., Any] | None = None
    """The same for values that change as time passes: takes the time and a `Line` for each argument
    (`compiling.over_time`); None: it is not known when the result changes."""
    reads: tuple[str, ...] = ()
    """What the result depends on besides its arguments: fields as a policy writes them, `node.pods`, `node.devices`,
    `node.volume_room`."""
    words: Words = NO_WORDS
    """What tools and messages say about it."""

    @property
    def advice(self) -> str:
        """Return what to write for its names in other languages."""
        return self.words.advice or f"write `{self.name}(…)`"

    @property
    def signature(self) -> str:
        """Return the signature as text."""
        return f"{self.name}({', '.join(str(p) for p in self.parameters)}) -> {self.gives}"


def builtin(
    *,
    shape: Shape | None = None,
    depends: Depends = Depends.NOTHING,
    bounds: Bounds | tuple[float, float] | None = None,
    staged: bool = False,
    scores_only: bool = False,
    receives: Receives = Receives.VALUES,
    over_time: Callable[..., Any] | None = None,
    reads: tuple[str, ...] = (),
    words: Words = NO_WORDS,
) -> Callable[[Callable[..., Any]], Builtin]:
    """Make a function of the language from an annotated Python function: `min` from `min_`, as Python has its own.

    Args:
        shape: of the result, if it is not that of the arguments.
        depends: what the result depends on besides the arguments.
        bounds: of a number result: constant, or from the bounds of the number arguments.
        staged: the function takes constants only and returns the kernel, which takes a frame.
        scores_only: it compares nodes with each other.
        receives: what the function is called with, if not with the values of its arguments.
        over_time: the function over lines; see `Builtin`.
        reads: for tools; see `Builtin`.
        words: what tools and messages say about it.
    """

    def make(function: Callable[..., Any]) -> Builtin:
        hints = inspect.get_annotations(function, eval_str=True)  # half the time of `get_type_hints`
        parameters = list(inspect.signature(function).parameters.values())
        reads_frame = bool(parameters) and parameters[0].name == "frame"
        first = reads_frame + (receives is Receives.INPUTS)
        fixed = bounds if isinstance(bounds, tuple) else None
        return Builtin(
            name=function.__name__.rstrip("_"),
            doc=inspect.getdoc(function) or "",
            parameters=tuple(_parameter(p, hints[p.name]) for p in parameters[first:]),
            gives=takes(hints["return"]),
            kernel=function,
            reads_frame=reads_frame,
            staged=staged,
            shape=shape,
            depends=depends,
            bounds=(lambda *_: fixed) if fixed is not None else bounds,  # type: ignore[arg-type]
            scores_only=scores_only,
            receives=receives,
            over_time=over_time,
            reads=reads,
            words=words,
        )

    return make


def takes(hint: Any) -> TypeSpec:
    """Return what an annotation declares.

    Raises:
        TypeError: the annotation is not one of the language.
    """
    if get_origin(hint) is Annotated:
        for extra in get_args(hint)[1:]:
            if isinstance(extra, TypeSpec):
                return extra
    raise TypeError(f"{hint!r} says nothing about the language; use the aliases of {__name__}")


def _parameter(parameter: inspect.Parameter, hint: Any) -> Parameter:
    variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
    has_default = parameter.default is not inspect.Parameter.empty
    return Parameter(
        name=parameter.name.rstrip("_"),
        takes=takes(hint),
        required=not has_default and not variadic,
        named_only=parameter.kind is inspect.Parameter.KEYWORD_ONLY,
        variadic=variadic,
        default=parameter.default if has_default else None,
    )

"""Texts where they decide nothing, or something else than they seem to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from kube_policy_scheduler.diagnostics import Edit, Fix, Span, closest
from kube_policy_scheduler.lang import expressions, typed
from kube_policy_scheduler.lang.checked import CheckedPolicy, queue_values_of, values_of
from kube_policy_scheduler.lang.environment import Key
from kube_policy_scheduler.lang.reading.literals import quoted
from kube_policy_scheduler.lang.types import NATIVE_RESOURCES, resource_name
from kube_policy_scheduler.lang.walk import walk
from kube_policy_scheduler.lint.rule import Finding, presence, rule, short
from kube_policy_scheduler.patterns import is_glob, of_glob, was_meant_as_glob
from kube_policy_scheduler.wording import one_line


@lru_cache(maxsize=1)
def _parts(policy: CheckedPolicy) -> tuple[typed.Typed, ...]:
    """Return everything that the clauses say, each place once."""
    roots = [*(value for clause in policy.clauses for value in values_of(clause)), *queue_values_of(policy)]
    roots += [] if policy.condition is None else [policy.condition]
    return tuple(part for root in roots for part in typed.below(root))


_MEANT = {
    "x86_64": "amd64", "x86-64": "amd64", "x64": "amd64", "intel": "amd64", "aarch64": "arm64", "armv8": "arm64",
    "i386": "386", "x86": "386", "macos": "darwin", "osx": "darwin", "win": "windows", "ubuntu": "linux",
}  # fmt: skip
"""Other names of what Go calls otherwise."""


@rule("P0311")
def text_that_never_equals(policy: CheckedPolicy) -> Iterator[Finding]:
    """The value can never be this text, so the result of the comparison is always the same: it is one of a fixed set
    of texts, or a name or the value of a label, which have letters, digits, `-`, `_` and `.` only. Comparisons are
    case-sensitive and know no wildcards, and nothing replaces variables such as `$ZONE` in a policy.

    Avoid::

        score 10 if pod.qos == "guaranteed" and label disk=ssd

    Prefer::

        score 10 if pod.qos == "Guaranteed" and label disk=ssd
    """
    reported: set[Span] = set()
    for part in _parts(policy):
        for finding in _never_equal(part):
            if finding.span not in reported:
                reported.add(finding.span)
                yield finding


def _never_equal(part: typed.Typed) -> Iterator[Finding]:
    match part:
        case typed.Same(left=left, right=right):
            for value, other in ((left, right), (right, left)):
                words, constant = _words(value), _inner(other)
                if words and isinstance(constant, typed.Constant) and constant.value not in words:
                    yield _none_of(value, words, constant.value, part.span, constant.span)
            yield from _other_form(part)
            yield from _no_name(part.left, part.right, part)
            yield from _no_name(part.right, part.left, part)
        case typed.Contained(item=item, list=items):
            yield from _no_name(item, items, part)
            words, constant = _words(item), _inner(items)
            if words and isinstance(constant, typed.Constant):
                for text in constant.value:
                    if text not in words:
                        yield _none_of(item, words, text, part.span, constant.span)


_BEGINNINGS = {
    "node.container_runtime": (re.compile(r".*://.*"), 'begins with the name, as in "containerd://2.1.4"'),
    "node.kubelet": (re.compile(r"v.*"), 'begins with v, as in "v1.36.2"'),
}
"""Of fields: what each of their texts looks like."""


def _other_form(part: typed.Same) -> Iterator[Finding]:
    """Yield a finding for a text that a field never has, because all of its texts look otherwise."""
    for value, other in ((part.left, part.right), (part.right, part.left)):
        read, constant = _inner(value), _inner(other)
        known = _BEGINNINGS.get(read.field.path) if isinstance(read, typed.Read) else None
        if known is not None and isinstance(constant, typed.Constant) and not known[0].fullmatch(str(constant.value)):
            shown = short(value.span)
            advice = f'it {known[1]}: write `startswith({shown}, "…")`, or compare `version({shown})`'
            yield Finding(constant.span, f'`{shown}` is never "{constant.value}"', advice)


_NAMES = frozenset(
    {"node.name", "node.zone", "node.region", "pod.name", "pod.namespace", "pod.owner.name", "pod.service_account"}
)
"""Fields whose texts are names, or values of labels."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")


def _no_name(value: typed.Typed, other: typed.Typed, whole: typed.Same | typed.Contained) -> Iterator[Finding]:
    """Yield a finding for each text that no name and no value of a label can be."""
    read, constant = _inner(value), _inner(other)
    if not isinstance(read, typed.Read) or not isinstance(constant, typed.Constant):
        return
    if read.field.path not in _NAMES and read.field.key is not Key.LABEL:
        return
    texts = constant.value if isinstance(constant.value, tuple) else (constant.value,)
    for text in texts:
        if not isinstance(text, str) or not _NO_NAME.search(text):
            continue
        shown = short(value.span)
        at = constant.span.text.find(f'"{text}"')
        span = (
            constant.span
            if at < 0
            else Span(constant.span.source, constant.span.start + at, constant.span.start + at + len(text) + 2)
        )
        message, fix = f'`{shown}` is never "{one_line(text, 40)}"', None
        if is_glob(text):
            negated = "not " if whole.negated else ""
            written = f"{negated}{shown} matches {quoted(of_glob(text))}"
            advice = f"there are no wildcards: write `{written}`"
            if isinstance(whole, typed.Same):
                fix = Fix(f"write {written}", (Edit(whole.span, written),), safe=False)
        elif "$" in text or "{{" in text:
            advice = "nothing replaces variables in a policy: write the text itself, or read a label or a `let`"
        else:
            advice = "names and values of labels have letters, digits, `-`, `_` and `.` only, and no spaces"
        yield Finding(span, message, advice, fix=fix)


def _words(value: typed.Typed) -> tuple[str, ...]:
    """Return the closed set of what a value can be, in order; none where it is constant or can be anything."""
    return () if isinstance(_inner(value), typed.Constant) else tuple(sorted(value.info.words or ()))


def _none_of(value: typed.Typed, words: tuple[str, ...], text: str, whole: Span, span: Span) -> Finding:
    meant = _MEANT.get(text.lower(), "")
    meant = meant if meant in words else next((w for w in words if w.lower() == text.lower()), None) or ""
    meant = meant or closest(text, words) or ""
    place = re.search(rf'"?(?<![\w-]){re.escape(text)}(?![\w-])"?', span.text)
    if place is not None:
        span = Span(span.source, span.start + place.start(), span.start + place.end())
    quotes = '"' if span.text.startswith('"') else ""
    written = f"{quotes}{meant}{quotes}"
    shown = short(value.span if value.span != whole else whole)
    listed = ", ".join(f'"{word}"' for word in words)
    advice = f"did you mean `{written}`?" if meant else f"it is one of {listed}"
    fix = Fix(f"write {written}", (Edit(span, written),), safe=False) if meant and place is not None else None
    subject = f"`{shown}`" if shown != span.text and text not in shown else "the label"
    return Finding(span, f'{subject} is never "{text}"', advice, fix=fix)


@rule("P0316")
def glob_as_pattern(policy: CheckedPolicy) -> Iterator[Finding]:
    """`matches` takes a regular expression. There, `*` repeats the character before it: `web-*` matches `web`, `web-`
    and `web--`, and not `web-1`. Any characters are `.*`, any one character is `.`.

    Avoid::

        require pod.label.app matches "web-*" else "only web apps run here"

    Prefer::

        require pod.label.app matches "web-.*" else "only web apps run here"
    """
    for statement in policy.statements:
        for expr in walk(statement):
            match expr:
                case expressions.Binary(operator="matches", right=expressions.Text() as text):
                    pass
                case expressions.Call(function="matches", arguments=(_, expressions.Text() as text)):
                    pass
                case _:
                    continue
            if not was_meant_as_glob(text.value):
                continue
            at = text.value.index("*")
            before = one_line(text.value[max(0, at - 1)], 4)
            written = quoted(of_glob(text.value))
            yield Finding(
                text.span,
                f"`*` repeats the `{before}` before it: this is a regular expression",
                f"for any characters write `{one_line(written, 60)}`",
                fix=Fix(f"write {one_line(written, 60)}", (Edit(text.span, written),), safe=False),
            )


@rule("P0312")
def label_as_truth(policy: CheckedPolicy) -> Iterator[Finding]:
    """A label or an annotation is a text. In a condition, it is true if it is present, whatever its value: also for
    `"false"`, `"no"` and `""`. State whether you mean its presence or its value.

    Avoid::

        filter label pool=spot if pod.label.interruptible

    Prefer::

        filter label pool=spot if pod.label.interruptible == "true"
    """
    reported: set[Span] = set()
    for part in _parts(policy):
        if not isinstance(part, typed.Missing) or not part.implied or part.span in reported:
            continue
        read = _inner(part.operand)
        if isinstance(read, typed.Read) and read.field.key in (Key.LABEL, Key.ANNOTATION):
            reported.add(part.span)
            shown = short(part.span)
            there = presence(part.operand)
            message = f'`{shown}` is true for every value, even "false"'
            advice = f'write `{shown} == "true"` to test its value, or `{there}` to test its presence'
            yield Finding(part.span, message, advice)


_NODE_RESOURCE = re.compile(r"[^/]+/.+|(?:hugepages|attachable-volumes)-.+")
_DEVICE = re.compile(r"(?:nvidia[-_.]?)?gpus?|cuda", re.IGNORECASE)


@rule("P0314")
def impossible_resource(policy: CheckedPolicy) -> Iterator[Finding]:
    """No node can have a resource of this name, and no pod can request it. Besides `cpu`, `memory`,
    `ephemeral-storage`, `pods` and `hugepages-SIZE`, Kubernetes allows only names with a domain, such as
    `nvidia.com/gpu`.

    Avoid::

        filter node.free["gpu"] ?? 0 > 0

    Prefer::

        filter node.free["nvidia.com/gpu"] ?? 0 > 0
    """
    parts = _parts(policy)
    resources = {part.field.path for part in parts if isinstance(part, typed.Read) and part.field.key is Key.RESOURCE}
    functions = {
        part.builtin.name
        for part in parts
        if isinstance(part, typed.Apply) and any(parameter.takes.word for parameter in part.builtin.parameters)
    }
    for statement in policy.statements:
        for expr in walk(statement):
            match expr:
                case expressions.Index(
                    base=expressions.Member(name=name) | expressions.Name(name=name), key=expressions.Text() as key
                ):
                    texts = [key] if any(path.endswith(f".{name}") for path in resources) else []
                case expressions.Call(function=function, arguments=arguments) if function in functions:
                    texts = [argument for argument in arguments if isinstance(argument, expressions.Text)]
                case _:
                    continue
            for text in texts:
                if resource_name(text.value) in NATIVE_RESOURCES or _NODE_RESOURCE.fullmatch(text.value):
                    continue
                meant = "nvidia.com/gpu" if _DEVICE.fullmatch(text.value) else closest(text.value, NATIVE_RESOURCES)
                advice = f'did you mean `"{meant}"`?' if meant else "write its domain too, as in `nvidia.com/gpu`"
                fix = Fix(f'write "{meant}"', (Edit(text.span, f'"{meant}"'),), safe=False) if meant else None
                yield Finding(text.span, f"no node can have a resource `{short(text.span)[1:-1]}`", advice, fix=fix)


@rule("P0350")
def name_as_label_key(policy: CheckedPolicy) -> Iterator[Finding]:
    """The label key of a label test, or the text in `domain("…")`, is written like the name of a `let`. It is the key
    itself, not what the name stands for. A name stands for its text in `node.label[NAME]`, `domain(NAME)`, `over NAME`
    and `within one NAME`.

    Avoid::

        let pool = "example.com/pool"
        filter label pool=web

    Prefer::

        let pool = "example.com/pool"
        filter node.label[pool] == "web"
    """
    keys = {
        name: definition.value.value
        for name, definition in policy.definitions.items()
        if isinstance(definition.value, typed.Constant)
        and isinstance(definition.value.value, str)
        and definition.value.value != name
    }
    for statement in policy.statements if keys else ():
        for expr in walk(statement):
            match expr:
                case expressions.LabelTest(key=key, subject=subject) if key in keys:
                    span, written = expr.span, f"{subject}.label[{key}]"
                case expressions.Call(function="domain", arguments=(expressions.Text(value=key, span=span),)) if (
                    key in keys
                ):
                    written = f"domain({key})"
                case _:
                    continue
            message = f"`{key}` is the label key itself here, not the `{one_line(keys[key], 60)}` that it names"
            yield Finding(span, message, f"write `{written}` for that, or give the `let` another name")


def _inner(value: typed.Typed) -> typed.Typed:
    while isinstance(value, typed.Reference):
        value = value.value
    return value

"""What a lint rule is: a function, whose docstring is its page, with a bad and a good example that are its test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Fix, Label, Severity, Span
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checked import CheckedPolicy
from kube_policy_scheduler.lang.codes import Code
from kube_policy_scheduler.lang.environment import Key
from kube_policy_scheduler.lang.load import Checked
from kube_policy_scheduler.lang.types import Shape
from kube_policy_scheduler.wording import one_line


class Finding(msgspec.Struct, frozen=True):
    """One hit of a rule."""

    span: Span
    message: str
    help: str = ""
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    fix: Fix | None = None


class Rule(msgspec.Struct, frozen=True):
    """A rule over one policy, or over all of them together."""

    code: Code
    over_policy: Callable[[CheckedPolicy], Iterator[Finding]] | None
    over_set: Callable[[Checked], Iterator[Finding]] | None
    syntactic: bool = False
    """It looks at what is written only, so that it has something to say also where there are errors."""

    def about_policy(self, policy: CheckedPolicy) -> Iterator[Diagnostic]:
        """Yield what the rule has to say about one policy."""
        if self.over_policy is not None:
            yield from map(self._diagnostic, self.over_policy(policy))

    def about_set(self, checked: Checked) -> Iterator[Diagnostic]:
        """Yield what the rule has to say about policies beside each other."""
        if self.over_set is not None:
            yield from map(self._diagnostic, self.over_set(checked))

    def _diagnostic(self, finding: Finding) -> Diagnostic:
        return self.code.at(
            finding.span,
            finding.message,
            help=finding.help,
            labels=finding.labels,
            notes=finding.notes,
            fix=finding.fix,
        )


def rule(
    id: str,  # noqa: A002  (the word that people see)
    *,
    severity: Severity = Severity.WARNING,
    syntactic: bool = False,
) -> Callable[[Callable[[CheckedPolicy], Iterator[Finding]]], Rule]:
    """Make a rule over one policy from a generator of findings.

    Its docstring says what is wrong and why, then has an example under `Avoid::` and one under `Prefer::`. Its name
    reads well after "allow".
    """
    return lambda function: Rule(_code(id, function, severity), function, None, syntactic)


def set_rule(
    id: str,  # noqa: A002  (the word that people see)
    *,
    severity: Severity = Severity.WARNING,
) -> Callable[[Callable[[Checked], Iterator[Finding]]], Rule]:
    """Make a rule over all policies from a generator of findings; see `rule`.

    In its examples, lines `# in NAME.policy` begin another file.
    """
    return lambda function: Rule(_code(id, function, severity), None, function)


def _code(id: str, function: Callable[..., object], severity: Severity) -> Code:  # noqa: A002
    doc = inspect.getdoc(function) or ""
    explanation, avoid, rest = doc.partition("\nAvoid::\n")
    bad, prefer, good = rest.partition("\nPrefer::\n")
    if not (avoid and prefer):
        raise ValueError(f"the docstring of the rule {function.__name__} needs an example under Avoid:: and Prefer::")
    name = function.__name__.replace("_", "-")
    return Code(id, name, _joined(explanation), _example(bad), _example(good), severity)


def _joined(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def _example(text: str) -> str:
    return inspect.cleandoc(text.strip("\n"))


def short(span: Span) -> str:
    """Return the text of a span for a message: on one line, and not long."""
    return one_line(span.text, 60)


def presence(value: typed.Typed) -> str:
    """Return how to ask whether a label or another text is there: `pod label KEY`, `… is not missing`."""
    inner = value
    while isinstance(inner, typed.Reference):
        inner = inner.value
    of_a_running_pod = inner.info.shape is Shape.ITEM
    if isinstance(inner, typed.Read) and inner.field.key is Key.LABEL and inner.key and not of_a_running_pod:
        words = {"pod.label": f"pod label {inner.key}", "node.label": f"label {inner.key}"}
        if inner.field.path in words:
            return words[inner.field.path]
    return f"{' '.join(value.span.text.split())} is not missing"


def removal(title: str, span: Span) -> Fix:
    """Return the fix that removes a span: with its line where nothing else stands there."""
    text, start, end = span.source.text, span.start, span.end
    while start > 0 and text[start - 1] in " \t":
        start -= 1
    while end < len(text) and text[end] in " \t":
        end += 1
    first, last = start == 0 or text[start - 1] == "\n", end == len(text) or text[end] in "\r\n"
    if first and last:
        end += 2 if text.startswith("\r\n", end) else 1 if end < len(text) else 0
    elif first:
        start = span.start  # a comment follows, and takes the place
    return Fix(title, (Edit(Span(span.source, start, end), ""),))

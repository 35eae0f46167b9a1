"""`invalid`: policies that must be refused, and for what."""

from __future__ import annotations

from kube_policy_scheduler.diagnostics import Diagnostic, Source, errors
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.tester.comparing import Mismatch
from kube_policy_scheduler.tooling.tester.expect_form import Expected
from kube_policy_scheduler.tooling.tester.results import Failure
from kube_policy_scheduler.tooling.tester.suite import Fixtures, Invalid
from kube_policy_scheduler.tooling.tester.texts import says

_SOURCE = "policy"
"""The name of a policy that stands in the test file itself."""


def refusal(case: Invalid, fixtures: Fixtures) -> list[Failure]:
    """Return how what is found about the policy differs from what is expected."""
    if case.text is not None:
        source = Source(f"{_SOURCE}.policy", case.text)
    else:
        assert case.file is not None, "the schema wants one of the two"
        source = fixtures.policies[case.file.value]
    found = [one for one in load([source]).diagnostics if errors([one])]
    key = next((key for key in ("code", "at", "message") if getattr(case, key)), "text" if case.text else "policy")
    if any(_is_meant(case, one) for one in found):
        return []
    got = "; ".join(_shown(one) for one in found) or "the policy is accepted"
    return [Failure(Expected(key, (*case.path, key), None), Mismatch(_wanted(case), got))]


def _is_meant(case: Invalid, one: Diagnostic) -> bool:
    line, column = one.span.source.position(one.span.start)
    return (
        case.code in ("", one.code)
        and case.at in ("", str(line), f"{line}:{column}")
        and says(case.message or None, [one.message])
    )


def _wanted(case: Invalid) -> str:
    parts = [case.code or "an error"]
    parts += [f"at {case.at}"] if case.at else []
    parts += [f"that says {case.message}"] if case.message else []
    return " ".join(parts)


def _shown(one: Diagnostic) -> str:
    line, column = one.span.source.position(one.span.start)
    return f"{one.code} at {line}:{column}: {one.message}"

"""Every code has a page whose bad example has the problem, and whose good one has not."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.lang.codes import Code, page
from kube_policy_scheduler.lint.runner import all_codes
from tests.lang.texts import codes

# the example of a header in a used file needs both files
_WITH_USER = {"P0202": '# in a.policy\nuse "common.policy"\n{}'}
CODES = list(all_codes().values())


def _example(code: Code, text: str) -> str:
    return _WITH_USER.get(code.id, "{}").format(text)


@pytest.mark.parametrize("code", CODES, ids=lambda code: f"{code.id}-{code.name}")
def test_the_bad_example_has_the_problem(code: Code) -> None:
    assert code.id in codes(_example(code, code.bad))


@pytest.mark.parametrize("code", CODES, ids=lambda code: f"{code.id}-{code.name}")
def test_the_good_example_has_no_problem_at_all(code: Code) -> None:
    select = {code.id} if code.id >= "P03" else None
    found = [found for found in codes(_example(code, code.good), select=select) if found < "P03" or found == code.id]

    assert found == []


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.id)
def test_the_page_names_the_code_and_shows_both_examples(code: Code) -> None:
    text = page(code)

    assert text.startswith(f"# {code.id}: {code.name}")
    assert code.bad.strip().split("\n")[0] in text
    assert code.good.strip().split("\n")[0] in text

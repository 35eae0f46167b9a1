"""From a template and values to a page: one self-contained HTML text. Knows no files and no sizes of screens."""

from __future__ import annotations

import functools
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kube_policy_scheduler.wording import amount, percent, plural, signed


@functools.cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("kube_policy_scheduler.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(amount=amount, percent=percent, plural=plural, signed=signed)
    return made


def page(template: str, /, **values: Any) -> str:
    """Return a page.

    Texts are escaped; what has a method `__html__`, such as a chart, is taken as it is.

    Args:
        template: file name in `engine/kube_policy_scheduler/pages/templates`; it extends `base.html`.
        values: what the template names; a name without a value is an error.

    Raises:
        jinja2.UndefinedError: the template names what is not there.
    """
    return _environment().get_template(template).render(values)

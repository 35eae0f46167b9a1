"""The kinds of values that settings have, with what an error says was expected."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from kube_policy_scheduler.documents.http_url import PATTERN
from kube_policy_scheduler.documents.schema import EXPECTED
from kube_policy_scheduler.documents.shape import DURATION_SECONDS, Shape

Duration: TypeAlias = Annotated[float, DURATION_SECONDS]
"""In seconds; written `15s`, `2min`."""
PositiveDuration: TypeAlias = Annotated[
    float,
    DURATION_SECONDS,
    Shape(
        {"pattern": r"^(?=.*[1-9])(\d+(\.\d+)?(ms|s|min|h|d))+$", EXPECTED: "a duration above zero such as 15s or 2min"}
    ),
]
Port: TypeAlias = Annotated[
    int, Shape({"minimum": 0, "maximum": 65535, EXPECTED: "a port: 0 to 65535, 0 for a free one"})
]
Name: TypeAlias = Annotated[
    str,
    Shape(
        {
            "pattern": r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$",
            EXPECTED: "a name as Kubernetes allows it: lower case letters, digits, - and .",
        }
    ),
]
Url: TypeAlias = Annotated[
    str, Shape({"pattern": PATTERN, EXPECTED: "a URL such as http://prometheus.monitoring:9090"})
]

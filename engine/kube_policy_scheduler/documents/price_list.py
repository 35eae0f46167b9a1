"""Price lists: what nodes cost by their labels, as people write them. Reads no file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.codes import WRONG_VALUE
from kube_policy_scheduler.documents.schema import EXPECTED, DocumentSchema
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_document

_SHORT = {
    "instanceType": "node.kubernetes.io/instance-type",
    "capacityType": "karpenter.sh/capacity-type",
    "zone": "topology.kubernetes.io/zone",
    "region": "topology.kubernetes.io/region",
}
_MOST_PRICES = 100_000
_TEXT = {"type": "string", "minLength": 1}
_SCHEMA = {
    "type": "object",
    "required": ["prices"],
    "additionalProperties": False,
    "properties": {
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$", EXPECTED: "a currency such as USD or EUR"},
        "prices": {
            "type": "array",
            "maxItems": _MOST_PRICES,
            "items": {
                "type": "object",
                "required": ["hourly"],
                "additionalProperties": False,
                "properties": {
                    **dict.fromkeys(_SHORT, _TEXT),
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "hourly": {
                        "type": "number",
                        "exclusiveMinimum": 0,
                        "maximum": 1_000_000,
                        EXPECTED: "a price per hour above 0",
                    },
                },
            },
        },
    },
}


@cache
def _schema() -> DocumentSchema:
    return DocumentSchema(_SCHEMA)


@dataclass(frozen=True, slots=True)
class Price:
    """What nodes with some labels cost."""

    labels: Mapping[str, str]
    hourly: float


class PriceList:
    """Prices, found by the labels of a node: the one that names most of them, and of several the first."""

    def __init__(self, name: str, currency: str, prices: Iterable[Price]) -> None:
        self.name, self.currency = name, currency
        by_keys: dict[tuple[str, ...], dict[tuple[str, ...], float]] = {}
        for price in prices:
            keys = tuple(sorted(price.labels))
            by_keys.setdefault(keys, {}).setdefault(tuple(price.labels[key] for key in keys), price.hourly)
        self._by_keys = sorted(by_keys.items(), key=lambda item: -len(item[0]))

    def hourly(self, labels: Mapping[str, str]) -> float | None:
        """Return what a node with these labels costs per hour; None if the list does not say it."""
        for keys, found in self._by_keys:
            values = tuple(labels[key] for key in keys if key in labels)
            if len(values) == len(keys) and values in found:
                return found[values]
        return None


def read_prices(source: Source) -> PriceList:
    """Return the price list of a text.

    Raises:
        DocumentError: it is not one; each problem has its line.
    """
    document = parse_document(source)
    problems = _schema().check(document)
    if problems:
        raise DocumentError(problems)
    value: dict[str, Any] = document.value
    # no bound of a schema holds for what is not a number
    for at, one in enumerate(value["prices"]):
        if math.isnan(one["hourly"]):
            message = "expected a price per hour above 0, found .nan"
            raise DocumentError([document.error(("prices", at, "hourly"), WRONG_VALUE, message=message)])
    prices = [
        Price({_SHORT[key]: one[key] for key in _SHORT if key in one} | (one.get("labels") or {}), float(one["hourly"]))
        for one in value["prices"]
    ]
    return PriceList(source.name, value.get("currency", ""), prices)

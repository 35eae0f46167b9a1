"""A KubeSchedulerConfiguration beside its profiles, as settings of this scheduler: extenders, limits on requests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.documents.codes import WRONG_VALUE
from kube_policy_scheduler.documents.extender_settings import HttpExtenderSettings, check_extenders, extender_schema
from kube_policy_scheduler.documents.shape import build
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError
from kube_policy_scheduler.times import duration_text

_HEAD = ("apiVersion: policy-scheduler/v1alpha1", "kind: PolicySchedulerConfiguration")
_SECRET = ("certData", "keyData")
_GO_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LEAST_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class ImportedSettings:
    """A configuration file of this scheduler."""

    text: str
    notes: tuple[str, ...]
    """What the file does not say and the other one does."""


def import_settings(document: Document) -> ImportedSettings:
    """Return the settings that follow from a KubeSchedulerConfiguration.

    Raises:
        DocumentError: an extender is not as kube-scheduler accepts it.
    """
    notes: list[str] = []
    extenders = [_extender(document, at, given, notes) for at, given in enumerate(_extenders(document))]
    problems = [
        problem
        for at, each in enumerate(extenders)
        for problem in extender_schema().check(document, at=("extenders", at), instead=each)
    ]
    if not problems:
        problems = [*check_extenders(document, [build(HttpExtenderSettings, each) for each in extenders])]
    if problems:
        raise DocumentError(problems)
    lines = [*_HEAD]
    if limits := request_limits(document):
        lines += ["kubernetes:", *(f"  {key}: {limit:g}" for key, limit in limits.items())]
    percentage = document.value.get("percentageOfNodesToScore")
    if extenders and isinstance(percentage, int) and 0 < percentage <= 100:
        lines += ["scheduling:", f"  percentageOfNodesToAsk: {percentage}"]
    if extenders:
        lines.append("extenders:")
    for each in extenders:
        written = list(_mapping(each))
        lines += [f"  {'- ' if number == 0 else '  '}{line}" for number, line in enumerate(written)]
    return ImportedSettings("\n".join(lines) + "\n", tuple(notes))


def request_limits(document: Document) -> dict[str, float]:
    """Return `qps` and `burst`, where they limit anything."""
    connection = document.value.get("clientConnection") or {}
    return {key: connection[key] for key in ("qps", "burst") if (connection.get(key) or 0) > 0}


def _extenders(document: Document) -> list[dict[str, Any]]:
    return list(document.value.get("extenders") or ())


def _extender(document: Document, at: int, given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return an extender as our settings write it."""
    found = {key: value for key, value in given.items() if value not in (None, "", [])}
    if isinstance(tls := found.get("tlsConfig"), dict):
        found["tlsConfig"] = {
            key: value for key, value in tls.items() if value not in (None, "") and key not in _SECRET
        }
        if any(tls.get(key) for key in _SECRET):
            notes.append(
                f"extenders[{at}].tlsConfig: certData and keyData are not copied, because configuration files are not"
                " secret; write them to files, and add certFile and keyFile"
            )
    timeout = found.get("httpTimeout")
    if isinstance(timeout, str):
        seconds = _go_seconds(timeout)
        if seconds is None:
            message = f"extenders[{at}].httpTimeout: expected a duration such as 5s or 1m30s, got {timeout}"
            raise DocumentError([document.error(("extenders", at, "httpTimeout"), WRONG_VALUE, message=message)])
        if seconds:
            found["httpTimeout"] = duration_text(max(seconds, _LEAST_SECONDS))
        else:
            del found["httpTimeout"]  # kube-scheduler takes its default for 0
    return found


def _go_seconds(text: str) -> float | None:
    if text == "0":
        return 0.0
    parts = _GO_DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _mapping(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a mapping in YAML."""
    for key, each in value.items():
        if isinstance(each, dict):
            yield f"{key}:"
            yield from (f"  {line}" for line in _mapping(each))
        elif isinstance(each, list):
            yield f"{key}:"
            yield from (f"  - {json.dumps(item, ensure_ascii=False)}" for item in each)  # JSON is YAML
        else:
            yield f"{key}: {json.dumps(each, ensure_ascii=False)}"

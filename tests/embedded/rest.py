"""A REST client for contract tests, and the answers of a server with everything left out that differs by run."""

from __future__ import annotations

import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

MEDIA_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}")
_AGE = re.compile(r"\d+s")
_SOURCES = "k8s.io/kubernetes/pkg/"
"""How some builds of Kubernetes name in messages what others call `pkg/`."""
_VARYING = frozenset(
    {
        "clusterIP",
        "clusterIPs",
        "creationTimestamp",
        "deletionTimestamp",
        "lastPhaseTransitionTime",
        "lastTransitionTime",
        "resourceVersion",
        "uid",
    }
)
_LEFT_OUT = frozenset({"managedFields", "description"})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered."""

    code: int
    body: Any
    """Decoded JSON, or text where it was none."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Client:
    """Sends requests to one server."""

    url: str
    context: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        text: str | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """Send a request and wait for the whole answer."""
        content = text.encode() if text is not None else json.dumps(body).encode() if body is not None else None
        headers = {"Accept": accept, **self.headers}
        if content is not None:
            headers["Content-Type"] = MEDIA_TYPES.get(content_type, content_type)
        request = urllib.request.Request(self.url + path, data=content, headers=headers, method=method)
        handler = urllib.request.HTTPSHandler(context=self.context)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), handler)
        try:
            response = opener.open(request, timeout=30)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            raw = response.read().decode()
            warnings = tuple(response.headers.get_all("Warning") or ())
            code = int(response.status)
        try:
            return Answer(code, json.loads(raw), warnings)
        except ValueError:
            return Answer(code, raw, warnings)


def comparable(answer: Answer, *, namespace: str, compare: str = "all") -> Any:
    """Return what of an answer must be the same every time: `all` of it, `names`, `reason` or only the `code`."""
    body = answer.body
    match compare:
        case "code":
            return {"code": answer.code}
        case "reason":
            reason = body.get("reason") if isinstance(body, dict) else None
            return {"code": answer.code, "reason": reason}
        case "names":
            items = body.get("items") or () if isinstance(body, dict) else ()
            return {"code": answer.code, "names": [item["metadata"]["name"] for item in items]}
        case _:
            done = {"code": answer.code, "body": _settled(body, namespace)}
            return {**done, "warnings": list(answer.warnings)} if answer.warnings else done


def _settled(value: Any, namespace: str) -> Any:
    if isinstance(value, dict):
        return {
            key: "*" if key in _VARYING and item is not None else _settled(item, namespace)
            for key, item in sorted(value.items())
            if key not in _LEFT_OUT
        }
    if isinstance(value, list):
        return [_settled(item, namespace) for item in value]
    if isinstance(value, str):
        text = _UID.sub("UID", value).replace(namespace, "{ns}").replace(_SOURCES, "pkg/")
        return "AGE" if _AGE.fullmatch(value) else text
    return value


class WatchStream:
    """An open watch; a context manager that iterates over its events."""

    def __init__(self, client: Client, path: str, *, accept: str = "application/json") -> None:
        self._request = urllib.request.Request(client.url + path, headers={"Accept": accept})
        handler = urllib.request.HTTPSHandler(context=client.context)
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), handler)

    def __enter__(self) -> WatchStream:
        self._response = self._opener.open(self._request, timeout=20)
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in self._response:
            yield json.loads(line)

    def take(self, number: int) -> list[dict[str, Any]]:
        """Return the next events."""
        return list(islice(self, number))

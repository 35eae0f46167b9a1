"""One HTTP extender of kube-scheduler's protocol, asked by us: requests out, checked answers in. Decides nothing.

An answer may be late, huge, deep, or no JSON at all, and may name nodes that nobody asked about. Everything is bounded,
and what cannot be used is an ExtenderError. Keys are read as Go does, whatever their case: many extenders write
`nodenames` or `nodeNames`. `adapters.http.extender_protocol` is the other side, where kube-scheduler asks us.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec

from kube_policy_scheduler.adapters.http.extender_error import ExtenderError, Observe
from kube_policy_scheduler.documents.extender_settings import ExtenderTls, HttpExtenderSettings, authorities
from kube_policy_scheduler.wording import one_line

MAX_NAMES_BYTES = 16 * 2**20
"""Of an answer that consists of names, scores and reasons: 5,000 nodes take about 0.5 MB."""
MAX_NODES_BYTES = 128 * 2**20
"""Of an answer with whole nodes: 5,000 of them take about 50 MB."""
REASON_CHARACTERS = 200
CONNECTIONS = 4
_PIECE_BYTES = 1 << 16

T = TypeVar("T")


class Filtered(msgspec.Struct, frozen=True):
    """The answer to `filter`."""

    passed: tuple[str, ...]
    """Each node once, in the order of the answer."""
    refused: Mapping[str, str]
    """By node, why; only nodes of the request."""


class _Named(msgspec.Struct, gc=False):
    name: str


class _Node(msgspec.Struct, gc=False):
    metadata: _Named


class _Nodes(msgspec.Struct, gc=False):
    items: list[_Node] | None = None


_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_hosts = msgspec.json.Decoder(list[dict[str, Any]] | None).decode
_decode_names = msgspec.json.Decoder(list[str] | None).decode
_decode_nodes = msgspec.json.Decoder(_Nodes | None).decode
_decode_reasons = msgspec.json.Decoder(dict[str, str] | None).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_victims = msgspec.json.Decoder(dict[str, dict[str, Any] | None]).decode
_encode = msgspec.json.Encoder().encode


class HttpExtender:
    """One extender of the configuration."""

    def __init__(self, settings: HttpExtenderSettings, *, observe: Observe | None = None) -> None:
        """Read the certificates; connect to nothing yet.

        Raises:
            ExtenderError: a certificate cannot be used.
        """
        self.settings = settings
        self.name = shown_url(settings.url_prefix)
        """The URL, for messages and metrics; without a password."""
        self.problem = ""
        """What went wrong with the last request; "" if nothing did."""
        self.requests = self.errors = 0
        self.seconds = 0.0
        """Of all requests."""
        self._observe = observe
        self._tls = tls_context(settings)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def filter(self, pod: bytes, names: Sequence[str], nodes: Sequence[bytes] | None) -> Filtered:
        """Return which nodes pass.

        Args:
            pod: JSON of the Pod object.
            names: of the nodes.
            nodes: JSON of the Node objects in the same order; None: only names are sent.

        Raises:
            ExtenderError: there is no usable answer.
        """
        verb, most = self.settings.filter_verb, MAX_NAMES_BYTES if nodes is None else MAX_NODES_BYTES
        with self._asked(verb):
            return self._filtered(_fields(await self._send(verb, _arguments(pod, names, nodes), most=most)), names)

    def _filtered(self, fields: Mapping[str, msgspec.Raw], names: Sequence[str]) -> Filtered:
        if error := _part(fields, "error", _decode_text, ""):
            raise ExtenderError(one_line(error, REASON_CHARACTERS))
        asked = frozenset(names)
        found = _part(fields, "nodenames", _decode_names, None) if self.settings.node_cache_capable else None
        if found is None:
            listed = _part(fields, "nodes", _decode_nodes, None)
            found = [node.metadata.name for node in listed.items or ()] if listed is not None else []
        passed = tuple(dict.fromkeys(found))
        for name in passed:
            if name not in asked:
                shown = one_line(name, REASON_CHARACTERS)
                raise ExtenderError(f"it returned node {shown!r}, which was not in the request")
        kept = frozenset(passed)
        refused = dict.fromkeys(
            (name for name in names if name not in kept), f"node(s) rejected by extender {self.name}"
        )
        for key in ("failednodes", "failedandunresolvablenodes"):  # the second one goes first, as in kube-scheduler
            for name, reason in (_part(fields, key, _decode_reasons, None) or {}).items():
                if name in refused and reason:
                    refused[name] = one_line(reason, REASON_CHARACTERS)
        return Filtered(passed, refused)

    async def prioritize(self, pod: bytes, names: Sequence[str], nodes: Sequence[bytes] | None) -> dict[str, int]:
        """Return the scores by node, without weight; only of nodes of the request. Otherwise as `filter`."""
        verb = self.settings.prioritize_verb
        with self._asked(verb):
            body = await self._send(verb, _arguments(pod, names, nodes), most=MAX_NAMES_BYTES)
            return _scores(_decoded(_decode_hosts, body, "HostPriorityList") or [], names)

    async def preempt(
        self, pod: bytes, victims: Mapping[str, tuple[Sequence[tuple[str, bytes]], int]]
    ) -> dict[str, tuple[tuple[str, ...], int]]:
        """Return which nodes remain candidates, with the uids of the pods to evict and the number of violated budgets.

        Args:
            pod: JSON of the Pod object.
            victims: by node: uid and JSON of each pod, and how many evictions violate a budget.

        Raises:
            ExtenderError: there is no usable answer.
        """
        if self.settings.node_cache_capable:
            meta = {
                node: {"Pods": [{"UID": uid} for uid, _ in pods], "NumPDBViolations": violations}
                for node, (pods, violations) in victims.items()
            }
            sent = b'"NodeNameToVictims":null,"NodeNameToMetaVictims":' + _encode(meta)
        else:
            whole = {
                node: {"Pods": [msgspec.Raw(text) for _, text in pods], "NumPDBViolations": violations}
                for node, (pods, violations) in victims.items()
            }
            sent = b'"NodeNameToVictims":' + _encode(whole) + b',"NodeNameToMetaVictims":null'
        verb = self.settings.preempt_verb
        with self._asked(verb):
            body = await self._send(verb, b'{"Pod":' + pod + b"," + sent + b"}", most=MAX_NAMES_BYTES)
            return _victims(_part(_fields(body), "nodenametometavictims", _decode_victims, {}))

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> str:
        """Let the extender bind a pod; return its error, "" if it has bound the pod.

        Raises:
            ExtenderError: there is no usable answer, so that nobody knows whether the pod is bound.
        """
        arguments = {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node}
        verb = self.settings.bind_verb
        with self._asked(verb):
            fields = _fields(await self._send(verb, _encode(arguments), most=MAX_NAMES_BYTES))
            return one_line(_part(fields, "error", _decode_text, ""), REASON_CHARACTERS)

    @contextmanager
    def _asked(self, verb: str) -> Iterator[None]:
        """Measure a request with the reading of its answer, and name the extender in what goes wrong."""
        began, result = time.perf_counter(), "error"
        try:
            yield
            result, self.problem = "ok", ""
        except TimeoutError as error:
            result, self.problem = "timeout", f"no answer to {verb} within {self.settings.http_timeout:g} s"
            raise ExtenderError(f"extender {self.name}: {self.problem}") from error
        except ExtenderError as error:
            self.problem = str(error)
            raise ExtenderError(f"extender {self.name}: {error}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self.problem = connection_problem(error)
            raise ExtenderError(f"extender {self.name}: {self.problem}") from error
        finally:
            seconds = time.perf_counter() - began
            self.requests += 1
            self.errors += result != "ok"
            self.seconds += seconds
            if self._observe is not None:
                self._observe(self.name, verb, result, seconds)

    async def _send(self, verb: str, body: bytes, *, most: int) -> bytes:
        url = f"{self.settings.url_prefix.rstrip('/')}/{verb}"
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        async with asyncio.timeout(self.settings.http_timeout):
            session = self._connected()
            name = self.settings.tls_config.server_name if self.settings.tls_config is not None else ""
            async with session.post(
                url, data=body, headers=headers, allow_redirects=False, server_hostname=name or None
            ) as response:
                if response.status != 200:
                    raise ExtenderError(f"{verb} was answered with HTTP {response.status}")
                pieces, size = [], 0
                async for piece in response.content.iter_chunked(_PIECE_BYTES):
                    size += len(piece)
                    if size > most:
                        raise ExtenderError(f"the answer to {verb} is longer than {most >> 20} MiB")
                    pieces.append(piece)
                return b"".join(pieces)

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=self._tls if self._tls is not None else True),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                trust_env=True,  # a proxy of the environment, as kube-scheduler
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def tls_context(settings: HttpExtenderSettings) -> ssl.SSLContext | None:
    """Return how TLS is done, as kube-scheduler does it; None without TLS.

    Raises:
        ExtenderError: a certificate cannot be used.
    """
    if not settings.url_prefix.startswith("https:"):
        return None
    tls = settings.tls_config or ExtenderTls()
    name = shown_url(settings.url_prefix)
    has_authority = bool(tls.ca_data) or tls.ca_file is not None
    try:
        data = authorities(tls) if tls.ca_data else None
        context = ssl.create_default_context(cafile=str(tls.ca_file) if tls.ca_file and not data else None, cadata=data)
    except (OSError, ssl.SSLError) as error:
        raise ExtenderError(f"extender {name}: tlsConfig contains no usable CA certificate: {_told(error)}") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if tls.insecure or (settings.enable_HTTPS and not has_authority):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file is not None:
        try:
            context.load_cert_chain(str(tls.cert_file), str(tls.key_file))
        except (OSError, ssl.SSLError) as error:
            raise ExtenderError(
                f"extender {name}: cannot use the client certificate and key of tlsConfig: {_told(error)}"
            ) from error
    return context


def shown_url(url: str) -> str:
    """Return a URL without user name, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def connection_problem(error: BaseException) -> str:
    """Return why there was no answer, in few words."""
    while isinstance(error, aiohttp.ClientError):  # some of them are SSLErrors, too, but have nothing to say
        inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error.__cause__
        if not isinstance(inner, BaseException):
            break
        error = inner
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({getattr(error, 'verify_message', error)})"
        case ssl.SSLError():
            return f"TLS failed: {getattr(error, 'reason', '') or 'unknown'}"
        case socket.gaierror():
            return "its host name cannot be resolved"
        case ConnectionRefusedError():
            return "connection refused"
        case _:
            return one_line(str(error), REASON_CHARACTERS) or type(error).__name__


def _told(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def _arguments(pod: bytes, names: Sequence[str], nodes: Sequence[bytes] | None) -> bytes:
    if nodes is None:
        return b'{"Pod":' + pod + b',"Nodes":null,"NodeNames":' + _encode(list(names)) + b"}"
    return b'{"Pod":' + pod + b',"Nodes":{"metadata":{},"items":[' + b",".join(nodes) + b']},"NodeNames":null}'


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    return {key.lower(): value for key, value in (_decoded(_decode_fields, body, "JSON object")).items()}


def _part(fields: Mapping[str, msgspec.Raw], key: str, decode: Callable[[msgspec.Raw], T], absent: T) -> T:
    raw = fields.get(key)
    if raw is None or bytes(memoryview(raw)[:4]) == b"null":
        return absent
    return _decoded(decode, raw, key)


def _decoded(decode: Callable[..., T], body: bytes | msgspec.Raw, what: str) -> T:
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ExtenderError(f"the answer is not usable ({what}): {one_line(str(error), REASON_CHARACTERS)}") from error


def _scores(hosts: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, int]:
    asked, scores = frozenset(names), dict[str, int]()
    for host in hosts:
        given = {key.lower(): value for key, value in host.items()}
        name, score = given.get("host", ""), given.get("score", 0)
        if not isinstance(score, int) or isinstance(score, bool) or abs(score) >= 2**63:
            raise ExtenderError("expected scores to be whole numbers from 0 to 10")
        if (
            isinstance(name, str) and name in asked
        ):  # kube-scheduler, too, passes over others; of several scores of one node it takes the sum
            scores[name] = scores.get(name, 0) + score
    return scores


def _victims(found: Mapping[str, Mapping[str, Any] | None]) -> dict[str, tuple[tuple[str, ...], int]]:
    result: dict[str, tuple[tuple[str, ...], int]] = {}
    for node, given in found.items():
        fields = {key.lower(): value for key, value in (given or {}).items()}
        pods, violations = fields.get("pods") or [], fields.get("numpdbviolations") or 0
        uids = [_uid(each) for each in pods] if isinstance(pods, list) else [None]
        if None in uids or not isinstance(violations, int):
            raise ExtenderError(f"the victims on node {node!r} are no MetaVictims")
        result[node] = (tuple(dict.fromkeys(uid for uid in uids if uid is not None)), violations)
    return result


def _uid(pod: object) -> str | None:
    found = {key.lower(): value for key, value in pod.items()}.get("uid") if isinstance(pod, dict) else None
    return found if isinstance(found, str) else None

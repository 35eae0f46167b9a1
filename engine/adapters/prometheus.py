"""One PromQL query to one reading, over HTTP. Knows no schedule, no nodes and no policies."""

from __future__ import annotations

import errno
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import requests
import requests.auth
from prometheus_api_client import PrometheusApiClientException, PrometheusConnect
from urllib3.util.retry import Retry

from engine.cluster.signals import Query, Reading, Series

MAX_SERIES = 100_000
"""Series in one answer. Twenty times the largest supported cluster: more is a query without `by (node)`."""
MAX_ANSWER_BYTES = 64 * 2**20
"""Of one answer, unpacked: three times what so many series take."""


@dataclass(frozen=True, slots=True)
class PrometheusEndpoint:
    """Where Prometheus is and how to speak to it."""

    url: str
    """Base of the HTTP API, also behind a path prefix: `https://metrics.example/prometheus`."""
    timeout_seconds: float = 5.0
    """For connecting, for each read, and for the evaluation on the server."""
    bearer_token_file: Path | None = None
    """Read again for every request: projected service account tokens change about hourly."""
    ca_file: Path | None = None
    """Certificate authorities to trust instead of the system's."""
    client_certificate_file: Path | None = None
    """For mutual TLS, together with `client_key_file`."""
    client_key_file: Path | None = None

    def shown(self) -> str:
        """Return the URL for messages, without user name and password."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


class PrometheusError(Exception):
    """A query gave no reading. The text is fit for a log line: short, and without secrets."""


class PrometheusUnreachableError(PrometheusError):
    """No answer at all, so that other queries need not be tried now."""


class QueryRefusedError(PrometheusError):
    """The query itself is wrong: asking again gives the same until someone changes it."""


class QueryFailedError(PrometheusError):
    """This query gave no usable answer this time."""


class QueryTimedOutError(QueryFailedError):
    """This query was not answered in time: too heavy, or a server that hangs."""


class PrometheusClient:
    """Asks instant queries, one at a time; blocks, so it belongs in a worker thread. Not thread-safe."""

    def __init__(self, endpoint: PrometheusEndpoint, *, clock: Callable[[], float] = time.time) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._response: requests.Response | None = None
        self._session = requests.Session()
        # the library returns `data.result` alone: result type, error text and warnings are read from here
        self._session.hooks["response"].append(self._remember)
        if endpoint.ca_file is not None:
            self._session.verify = str(endpoint.ca_file)
        if endpoint.client_certificate_file is not None:
            certificate, key = endpoint.client_certificate_file, endpoint.client_key_file
            self._session.cert = str(certificate) if key is None else (str(certificate), str(key))
        self._connect = PrometheusConnect(
            url=endpoint.url.rstrip("/"),
            session=self._session,
            auth=None if endpoint.bearer_token_file is None else _BearerTokenFile(endpoint.bearer_token_file),
            timeout=endpoint.timeout_seconds,  # the library's default is to wait for ever
            # the library's default blocks for six seconds, and the caller has a schedule; without read=False
            # a read that times out comes back as a failed connection
            retry=Retry(total=0, read=False),
        )

    def fetch(self, query: Query) -> Reading:
        """Ask one instant query for all nodes and return its reading.

        Samples older than `query.stale_after_seconds` are not asked for (`lookback_delta`; Prometheus before
        2.43 ignores it). For a plain selector each sample's own time is fetched as well, since the time in an
        answer is that of the evaluation.

        Raises:
            PrometheusUnreachableError: nothing answers at the URL.
            QueryRefusedError: Prometheus says that the query is wrong.
            QueryTimedOutError: no answer in time.
            QueryFailedError: any other failure of this query.
        """
        fetched_at = self._clock()
        lookback = {"lookback_delta": f"{query.stale_after_seconds:g}s"}
        result = self._ask(query.promql, lookback)
        warnings = self._warnings()
        match self._result_type():
            case "scalar":
                value, timestamp = _scalar(result)
                return Reading(
                    promql=query.promql,
                    series=(),
                    evaluated_at=timestamp,
                    fetched_at=fetched_at,
                    scalar=value,
                    warnings=warnings,
                )
            case "vector":
                series = _vector(result)
            case other:
                raise QueryRefusedError(
                    f"the query gives a {other}, expected one value per node (an instant vector) or a scalar"
                )
        evaluated_at = series[0].timestamp if series else fetched_at
        if series and _is_selector(query.promql):
            sampled = self._ask(f"timestamp({query.promql})", lookback | {"time": f"{evaluated_at:.3f}"})
            series = _with_sample_times(series, _vector(sampled))
        return Reading(
            promql=query.promql,
            series=series,
            evaluated_at=evaluated_at,
            fetched_at=fetched_at,
            warnings=warnings,
        )

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _remember(self, response: requests.Response, **_: object) -> None:
        """Keep an answer, and read it in place of the library: no more of it than fits a bound."""
        self._response = response
        parts, read_bytes = [], 0
        for part in response.iter_content(2**16):
            parts.append(part)
            read_bytes += len(part)
            if read_bytes > MAX_ANSWER_BYTES:
                response.close()
                raise QueryRefusedError(
                    f"the answer is longer than {MAX_ANSWER_BYTES >> 20} MiB: aggregate, for example by (node)"
                )
        response._content = b"".join(parts)

    def _ask(self, promql: str, params: Mapping[str, str]) -> Any:
        self._response = None
        server_side = {"timeout": f"{self._endpoint.timeout_seconds:g}s"}
        try:
            return self._connect.custom_query(promql, params={**server_side, **params})
        except PrometheusApiClientException as error:
            raise self._explained() from error
        except requests.exceptions.ReadTimeout as error:
            raise QueryTimedOutError(
                f"no answer from {self._endpoint.shown()} within {self._endpoint.timeout_seconds:g} s"
            ) from error
        except (requests.exceptions.JSONDecodeError, KeyError, TypeError, RecursionError) as error:
            raise QueryFailedError(
                f"{self._endpoint.shown()} does not answer like prometheus ({self._content_type()}):"
                " check the url, or a login page in front of it"
            ) from error
        except requests.RequestException as error:
            raise PrometheusUnreachableError(
                f"cannot reach prometheus at {self._endpoint.shown()}: {_reason(error)}"
            ) from error
        except _BadTokenError as error:
            raise PrometheusUnreachableError(str(error)) from error
        except OSError as error:  # a CA or certificate file that is not there
            raise PrometheusUnreachableError(f"cannot set up TLS: {error}") from error

    def _explained(self) -> PrometheusError:
        """Turn the last HTTP error into ours."""
        response = self._response
        assert response is not None, "the library raises only after an answer"
        try:
            answer = response.json()
            text, kind = str(answer["error"]), str(answer.get("errorType", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            text, kind = "", ""
        status = response.status_code
        text = text.removeprefix('invalid parameter "query": ')
        if kind == "bad_data":
            return QueryRefusedError(f"prometheus refuses the query: {text}")
        if status in (401, 403):
            return PrometheusUnreachableError(
                f"{self._endpoint.shown()} refuses our credentials (HTTP {status}): check the bearer token file"
            )
        if text:
            return QueryFailedError(f"prometheus cannot evaluate the query: {text} (HTTP {status})")
        if status in (502, 503, 504):
            return PrometheusUnreachableError(f"{self._endpoint.shown()} is not available (HTTP {status})")
        return QueryFailedError(f"{self._endpoint.shown()} answers HTTP {status}: check the url")

    def _result_type(self) -> str:
        found = _RESULT_TYPE.search(self._content()[:1000]) or _RESULT_TYPE.search(self._content()[-1000:])
        return found[1].decode() if found else "answer without a type"

    def _warnings(self) -> tuple[str, ...]:
        # they follow the data; parsing a large answer twice only for them would double the cost
        assert self._response is not None
        if b'"warnings"' not in self._content()[-10_000:]:
            return ()
        found = self._response.json().get("warnings") or []
        return tuple(str(text) for text in found)

    def _content(self) -> bytes:
        return b"" if self._response is None else self._response.content

    def _content_type(self) -> str:
        return "nothing" if self._response is None else self._response.headers.get("Content-Type", "no type")


class _BadTokenError(Exception):
    pass


class _BearerTokenFile(requests.auth.AuthBase):
    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        try:
            token = self._path.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not plain text"
            raise _BadTokenError(f"cannot read bearer token file {self._path}: {reason}") from error
        if not token or len(token.split()) != 1:
            # checked here because the library's own message would show the token
            raise _BadTokenError(f"bearer token file {self._path} must hold one token")
        request.headers["Authorization"] = f"Bearer {token}"
        return request


_RESULT_TYPE = re.compile(rb'"resultType"\s*:\s*"(\w+)"')
_SELECTOR = re.compile(r"""\s*[a-zA-Z_:][\w:]*\s*(\{(?:[^{}"'`]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)*\})?\s*""")


def _is_selector(promql: str) -> bool:
    """Tell whether the expression is a metric's name with or without matchers, hence has samples."""
    return _SELECTOR.fullmatch(promql) is not None


def _scalar(result: Any) -> tuple[float, float]:
    """Return the value and its time."""
    try:
        timestamp, text = result
        return float(text), float(timestamp)
    except (TypeError, ValueError) as error:
        raise QueryFailedError("the answer is not a scalar as prometheus writes it") from error


def _labels(metric: Any) -> Mapping[str, str]:
    if not isinstance(metric, dict) or not all(isinstance(text, str) for text in metric.values()):
        raise TypeError(f"not labels: {metric!r:.100}")
    return metric


def _vector(result: Any) -> tuple[Series, ...]:
    try:
        series = tuple(
            Series(labels=_labels(item["metric"]), value=float(item["value"][1]), timestamp=float(item["value"][0]))
            for item in result
            if "value" in item  # a native histogram has no single value
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise QueryFailedError("the answer is not an instant vector as prometheus writes it") from error
    if len(series) > MAX_SERIES:
        raise QueryRefusedError(
            f"the query gives {len(series)} series, more than {MAX_SERIES}: aggregate, for example by (node)"
        )
    if result and not series:
        raise QueryRefusedError("the query gives histograms, expected one number per node")
    return series


def _with_sample_times(series: tuple[Series, ...], sampled: tuple[Series, ...]) -> tuple[Series, ...]:
    times = {frozenset(one.labels.items()): one.value for one in sampled}
    dated = []
    for one in series:
        labels = frozenset((label, value) for label, value in one.labels.items() if label != "__name__")
        dated.append(Series(labels=one.labels, value=one.value, timestamp=times.get(labels, one.timestamp)))
    return tuple(dated)


def _reason(error: BaseException) -> str:
    """Find the operating system's or the TLS library's own words; requests' text holds the whole URL."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"certificate not accepted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed: {cause.reason or 'unknown'}"
        if isinstance(cause, socket.gaierror):
            return "the host name is not known"
        if isinstance(cause, OSError) and cause.errno is not None and cause.errno in errno.errorcode:
            return (cause.strerror or errno.errorcode[cause.errno]).lower()
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return "connection timed out"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()


def _causes(error: BaseException) -> Iterator[BaseException]:
    pending: list[Any] = [error]
    seen: set[int] = set()
    while pending:
        one = pending.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        pending += [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]

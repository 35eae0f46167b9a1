"""PromQL queries to readings, over HTTP. Knows no schedule, no nodes and no policies.

Range queries, which only commands ask, are asked and read by `prometheus-api-client`. Instant queries are asked for
decisions, and commands that explain decisions get exactly the same readings; they are decoded here, because that
library drops the warnings and the kind of an answer, and reads all of it in one piece: 130,000 series keep other
threads, and so the event loop, waiting for half a second.
"""

from __future__ import annotations

import errno
import math
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakValueDictionary

import msgspec
import numpy as np
import requests
import requests.auth
from numpy.typing import NDArray
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from kube_policy_scheduler.adapters.causes import causes
from kube_policy_scheduler.adapters.prometheus.answers import (
    MalformedResultError,
    NotAnAnswerError,
    Scalar,
    Vector,
    WrongResultError,
    decode_answer,
    decode_failure,
)
from kube_policy_scheduler.cluster.signals import LabelSets, Query, Reading, SeriesColumns

MAX_ANSWER_BYTES = 64 * 2**20
"""Of one answer, unpacked: 130,000 series with ten labels take 45 MB."""
MAX_KEPT_BYTES = 256 * 2**20
"""Of the labels in the answers to all queries together."""
MAX_RANGE_BYTES = 16 * 2**20
"""Of one part of the answer to a range query: as Python's objects it takes ten times as much."""
RANGE_TRIES = 2
"""Further ones, where a server says that it cannot answer now."""
RANGE_PATIENCE = 3.0
"""How many timeouts an answer may take that comes slowly."""
_PASSING = (429, 502, 503, 504)
MAX_RANGE_STEPS = 1000
"""Of a range query that is asked at once; Prometheus answers at most 11,000."""
MAX_NAMES_BYTES = 16 << 20
"""Of the names of all metrics."""
MAX_FAILURE_BYTES = 2**16
"""Of an answer that says that a query failed; what comes behind is not read."""
PAUSE_SECONDS = 0.0005
"""Between two pieces of an answer: the event loop takes its turn."""


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


class AnswerTooLongError(QueryRefusedError):
    """The answer is longer than is read."""


class QueryFailedError(PrometheusError):
    """This query gave no usable answer this time."""


class QueryTimedOutError(QueryFailedError):
    """This query was not answered in time: too heavy, or a server that hangs."""


class _Bounded(HTTPAdapter):
    """Reads no more of an answer than fits a bound, and no longer than is waited for; keeps the last answer."""

    def __init__(self, *, most_bytes: int, seconds: float, retries: Retry) -> None:
        self._most_bytes = most_bytes
        self._seconds = seconds
        self.last: requests.Response | None = None
        super().__init__(max_retries=retries)

    def send(self, request: requests.PreparedRequest, *args: Any, **given: Any) -> requests.Response:
        """Send a request and read its answer. Raises PrometheusError where a bound is exceeded."""
        self.last = None
        ends = time.monotonic() + self._seconds
        response = self.last = super().send(request, *args, **{**given, "stream": True})
        if "," in response.headers.get("Content-Encoding", ""):
            response.close()
            raise QueryFailedError("the answer is compressed more than once")
        successful = response.status_code == 200
        most = self._most_bytes if successful else MAX_FAILURE_BYTES
        parts, read_bytes = [], 0
        for part in response.iter_content(2**16):
            parts.append(part)
            read_bytes += len(part)
            if read_bytes > most:
                response.close()
                if not successful:
                    break
                raise AnswerTooLongError(
                    f"the answer is longer than {most >> 20} MiB: aggregate, for example by (node)"
                )
            if time.monotonic() > ends:
                response.close()
                raise QueryTimedOutError(f"no complete answer within {self._seconds:g} s")
        response._content = b"".join(parts)  # requests offers no other way to read a part only
        return response


class _Asking:
    """A session with Prometheus, and what its errors are called. Not thread-safe."""

    def __init__(self, endpoint: PrometheusEndpoint, *, most_bytes: int, seconds: float, retries: Retry) -> None:
        self._endpoint = endpoint
        self._url = endpoint.url.rstrip("/")
        self._auth = None if endpoint.bearer_token_file is None else _BearerTokenFile(endpoint.bearer_token_file)
        self._session = requests.Session()
        self._session.max_redirects = 3
        if endpoint.ca_file is not None:
            self._session.verify = str(endpoint.ca_file)
        if endpoint.client_certificate_file is not None:
            certificate, key = endpoint.client_certificate_file, endpoint.client_key_file
            self._session.cert = str(certificate) if key is None else (str(certificate), str(key))
        self._answers = _Bounded(most_bytes=most_bytes, seconds=seconds, retries=retries)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, self._answers)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Raise what goes wrong with a request as one of our errors."""
        try:
            yield
        except WrongResultError as error:
            raise QueryRefusedError(str(error)) from error
        except MalformedResultError as error:
            raise QueryFailedError(str(error)) from error
        except requests.exceptions.ReadTimeout as error:
            raise QueryTimedOutError(
                f"no answer from {self._endpoint.shown()} within {self._endpoint.timeout_seconds:g} s"
            ) from error
        except (NotAnAnswerError, requests.exceptions.JSONDecodeError) as error:
            raise QueryFailedError(
                f"{self._endpoint.shown()} does not answer like Prometheus ({self._content_type()}):"
                " check the url, and that no login page is in front"
            ) from error
        except requests.RequestException as error:
            raise PrometheusUnreachableError(
                f"cannot reach Prometheus at {self._endpoint.shown()}: {_reason(error)}"
            ) from error
        except _BadTokenError as error:
            raise PrometheusUnreachableError(str(error)) from error
        except OSError as error:  # a CA or certificate file that is not there
            raise PrometheusUnreachableError(f"cannot set up TLS: {error}") from error

    def _explained(self) -> PrometheusError:
        """Turn the last HTTP error into ours."""
        response = self._answers.last
        assert response is not None, "this is about an answer"
        text, kind = decode_failure(response.content)
        status = response.status_code
        text = text.removeprefix('invalid parameter "query": ')
        if kind == "bad_data":
            return QueryRefusedError(f"Prometheus rejected the query: {text}")
        if status in (401, 403):
            return PrometheusUnreachableError(
                f"{self._endpoint.shown()} rejected the credentials (HTTP {status}): check the bearer token file"
            )
        if text:
            return QueryFailedError(f"Prometheus cannot evaluate the query: {text} (HTTP {status})")
        if status in (502, 503, 504):
            return PrometheusUnreachableError(f"{self._endpoint.shown()} is not available (HTTP {status})")
        return QueryFailedError(f"{self._endpoint.shown()} answered HTTP {status}: check the url")

    def _content_type(self) -> str:
        response = self._answers.last
        return "nothing" if response is None else response.headers.get("Content-Type", "no type")


class PrometheusClient(_Asking):
    """Asks instant queries, one at a time; blocks, so it belongs in a worker thread. Not thread-safe."""

    def __init__(self, endpoint: PrometheusEndpoint, *, clock: Callable[[], float] = time.time) -> None:
        # the caller has a schedule, and tries again; without read=False a read that times out is a failed connection
        retries = Retry(total=0, read=False)
        super().__init__(endpoint, most_bytes=MAX_ANSWER_BYTES, seconds=math.inf, retries=retries)
        self._clock = clock
        self._labels: WeakValueDictionary[str, LabelSets] = WeakValueDictionary()
        """Of the last answer to each query, while it is in use."""

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
        selector = _is_selector(query.promql)
        known = self._labels.get(query.promql)
        answer = self._ask(query.promql, lookback, known=known, nameless=selector)
        if isinstance(answer, Scalar):
            return Reading(
                promql=query.promql,
                series=(),
                evaluated_at=answer.timestamp,
                fetched_at=fetched_at,
                scalar=answer.value,
                warnings=answer.warnings,
            )
        series = answer.series
        self._keep(query.promql, series.labels)
        evaluated_at = series[0].timestamp if series else fetched_at
        if series and selector:
            at = {"time": f"{evaluated_at:.3f}"}
            sampled = self._ask(f"timestamp({query.promql})", lookback | at, nameless=True)
            if isinstance(sampled, Vector):
                times = np.minimum(_sample_times(answer, sampled), evaluated_at)  # clocks of exporters may be ahead
                series = SeriesColumns(series.labels, series.values, times)
        return Reading(
            promql=query.promql,
            series=series,
            evaluated_at=evaluated_at,
            fetched_at=fetched_at,
            warnings=answer.warnings,
        )

    def _keep(self, promql: str, labels: LabelSets) -> None:
        self._labels.pop(promql, None)
        kept = labels.nbytes + sum(other.nbytes for other in self._labels.values())
        if kept > MAX_KEPT_BYTES:
            raise QueryRefusedError(
                f"all answers together are longer than {MAX_KEPT_BYTES >> 20} MiB: aggregate, for example by (node)"
            )
        self._labels[promql] = labels

    def _ask(
        self, promql: str, params: Mapping[str, str], *, known: LabelSets | None = None, nameless: bool = False
    ) -> Scalar | Vector:
        patience = self._endpoint.timeout_seconds
        with self._explaining():
            response = self._session.get(
                f"{self._url}/api/v1/query",
                params={"query": promql, "timeout": f"{patience:g}s", **params},
                auth=self._auth,
                timeout=patience,
                verify=self._session.verify,
                cert=self._session.cert,
            )
            if response.status_code != 200:
                raise self._explained()
            pause = partial(time.sleep, PAUSE_SECONDS)
            return decode_answer(response.content, known=known, nameless=nameless, pause=pause)


class PrometheusRanges(_Asking):
    """Asks range queries, for commands.

    The library's data frames are not for this: they need pandas, take 20 times the bytes of an answer, because each
    sample has all labels, and have no place for labels called `value` or `timestamp`.
    """

    def __init__(self, endpoint: PrometheusEndpoint) -> None:
        from prometheus_api_client import PrometheusConnect

        retries = Retry(
            total=RANGE_TRIES, connect=0, read=False, backoff_factor=1.0, status_forcelist=_PASSING,
            raise_on_status=False, respect_retry_after_header=False,
        )  # fmt: skip
        seconds = RANGE_PATIENCE * endpoint.timeout_seconds
        super().__init__(endpoint, most_bytes=MAX_RANGE_BYTES, seconds=seconds, retries=retries)
        self._connect = PrometheusConnect(
            url=self._url, session=self._session, auth=self._auth, timeout=endpoint.timeout_seconds
        )
        self._session.mount(self._url, self._answers)  # in the place of the adapter that the library mounts

    def fetch_range(self, query: Query, *, start: float, end: float, step: float) -> Iterator[list[Any]]:
        """Ask one range query; yield its results as they come, each for a part of the time.

        Args:
            query: what to ask.
            start: Unix seconds, whole ones.
            end: Unix seconds; the last step is at or before it.
            step: seconds between two samples.

        Raises:
            PrometheusError: as for `fetch`; the parts before are good.
        """
        last = int((end - start) // step)
        first, most = 0, MAX_RANGE_STEPS
        while first <= last:
            steps = min(most, last - first + 1)
            times = (datetime.fromtimestamp(start + at * step, UTC) for at in (first, first + steps - 1))
            try:
                yield self._ask_range(query.promql, *times, step=f"{step:g}")
            except AnswerTooLongError:
                if steps == 1:
                    raise
                most = max(1, steps // 2)
                continue
            first += steps

    def _ask_range(self, promql: str, start: datetime, end: datetime, *, step: str) -> list[Any]:
        from prometheus_api_client import PrometheusApiClientException

        params = {"timeout": f"{self._endpoint.timeout_seconds:g}s"}
        with self._explaining():
            try:
                found: list[Any] = self._connect.custom_query_range(promql, start, end, step, params=params)
            except PrometheusApiClientException as error:
                raise self._explained() from error
            except (KeyError, TypeError, RecursionError) as error:  # JSON, but no answer
                raise NotAnAnswerError("not an answer of Prometheus") from error
        return found


class _Names(msgspec.Struct):
    data: list[str]


_names = msgspec.json.Decoder(_Names)


class PrometheusNames(_Asking):
    """Asks for the names of metrics, for commands."""

    def __init__(self, endpoint: PrometheusEndpoint) -> None:
        super().__init__(endpoint, most_bytes=MAX_NAMES_BYTES, seconds=endpoint.timeout_seconds, retries=Retry(total=0))

    def metric_names(self, *, most: int) -> list[str]:
        """Return the names of metrics, at most so many. Older servers do not know the limit: it is kept here too.

        Raises:
            PrometheusError: as for `PrometheusClient.fetch`.
        """
        with self._explaining():
            response = self._session.get(
                f"{self._url}/api/v1/label/__name__/values",
                params={"limit": str(most)},
                auth=self._auth,
                timeout=self._endpoint.timeout_seconds,
            )
            if response.status_code != 200:
                raise self._explained()
            try:
                return _names.decode(response.content).data[:most]
            except msgspec.DecodeError as error:
                raise NotAnAnswerError("not an answer of Prometheus") from error


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
            raise _BadTokenError(f"bearer token file {self._path} must contain one token")
        request.headers["Authorization"] = f"Bearer {token}"
        return request


_SELECTOR = re.compile(r"""\s*[a-zA-Z_:][\w:]*\s*(\{(?:[^{}"'`]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)*\})?\s*""")


def _is_selector(promql: str) -> bool:
    """Tell whether the expression is a metric's name with or without matchers, hence has samples."""
    return _SELECTOR.fullmatch(promql) is not None


def _sample_times(answer: Vector, sampled: Vector) -> NDArray[np.float64]:
    """Return `float64[series]`: when each sample was taken, as the answer to `timestamp(…)` says."""
    if answer.nameless == sampled.nameless and len(answer.series) == len(sampled.series):
        return sampled.series.values
    # another order, or series that have come or gone between the two: seldom
    times = {frozenset(one.labels.items()): one.value for one in sampled.series}
    labels = (
        frozenset((name, text) for name, text in one.items() if name != "__name__") for one in answer.series.labels
    )
    found = map(times.get, labels, answer.series.timestamps.tolist())
    return np.fromiter(found, np.float64, len(answer.series))


def _reason(error: BaseException) -> str:
    """Find the operating system's or the TLS library's own words; requests' text holds the whole URL."""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"certificate not accepted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed: {cause.reason or 'unknown'}"
        if isinstance(cause, socket.gaierror):
            return "the host name cannot be resolved"
        if isinstance(cause, OSError) and cause.errno is not None and cause.errno in errno.errorcode:
            return (cause.strerror or errno.errorcode[cause.errno]).lower()
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return "connection timed out"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()

"""What must hold for any bytes that strangers write: they are understood, or refused by the one error that says so."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import numpy as np
from aiohttp.streams import StreamReader
from prometheus_client import CollectorRegistry

from kube_policy_scheduler.adapters.http.access import token_of
from kube_policy_scheduler.adapters.http.admission_review import ReviewError, decode_review, encode_answer
from kube_policy_scheduler.adapters.http.server import encoder_for
from kube_policy_scheduler.adapters.kube import resources
from kube_policy_scheduler.adapters.kube.changes import Change, Deleted, Updated
from kube_policy_scheduler.adapters.kube.decoding import MalformedEvent, ObjectDecoder, WatchEvent
from kube_policy_scheduler.adapters.kube.errors import CredentialsError, MalformedAnswer
from kube_policy_scheduler.adapters.kube.kubeconfig import load_kubeconfig
from kube_policy_scheduler.adapters.kube.throttle import retry_after_seconds
from kube_policy_scheduler.adapters.prometheus.answers import AnswerError, Scalar, Vector, decode_answer, decode_failure
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.device_selectors import MAX_COST, compile_selector
from kube_policy_scheduler.cluster.objects import Pod
from kube_policy_scheduler.cluster.signal_join import NodeIndex, SignalColumns, join
from kube_policy_scheduler.cluster.signals import Query, Reading, Signals
from kube_policy_scheduler.daemon.configuration.settings import parse_settings
from kube_policy_scheduler.daemon.modes.extender_routes import ExtenderRoutes
from kube_policy_scheduler.daemon.watching.resources import attach
from kube_policy_scheduler.daemon.webhook.admission import judge
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import parse_objects
from kube_policy_scheduler.documents.trace import parse_nodes, parse_pods
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_documents
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.quantities.quantity import NANO, QuantityError, amount, nanos
from tests.cli.bad_files import COMMANDS, FILES, files_of, problem
from tests.daemon.extender_stage import Stage
from tests.daemon.test_event_handlers import World, node, pod
from tests.fuzz.examination import Wrong


@contextmanager
def nothing_breaks() -> Iterator[None]:
    """Raise what is caught and logged within as an unexpected error."""
    caught: list[BaseException] = []

    class Catching(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and isinstance(record.exc_info[1], BaseException):
                caught.append(record.exc_info[1])

    handler, logger = Catching(), logging.getLogger("kube_policy_scheduler")
    before = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before[0]
    if caught:
        raise caught[0]


# --- watch lines ------------------------------------------------------------------------------------------

_KIND = re.compile(rb'"kind"\s*:\s*"(\w+)"')
RESOURCES = {resource.type.__name__: resource for resource in resources.WATCHED}
_DECODERS = {name: ObjectDecoder(resource.type) for name, resource in RESOURCES.items()}
_PROFILE = kubernetes_profile()
MOST_LINES = 20


class _Mirror:
    """Stands for a reflector that gets its handler."""

    def __init__(self, resource: Any) -> None:
        self.resource = resource
        self.handler: Any = None

    def attach(self, handler: Any, on_unavailable: Any) -> None:
        self.handler = handler


def examine_watch_lines(data: bytes) -> None:
    """Take lines of watches through decoder, event handlers, columns and one decision."""
    world = World()
    mirrors = {name: _Mirror(resource) for name, resource in RESOURCES.items()}
    attach(cast(Any, list(mirrors.values())), world.event_handlers.handler)
    world.event_handlers.node_changed(node("first"))
    with nothing_breaks():
        for line in data.split(b"\n")[:MOST_LINES]:
            kind = _KIND.search(line)
            name = kind[1].decode() if kind is not None and kind[1].decode() in RESOURCES else "Pod"
            with suppress(MalformedAnswer):
                _DECODERS[name].page(line)
            try:
                events = _DECODERS[name].events(line + b"\n")
            except MalformedAnswer:
                continue
            for event in events:
                if isinstance(event, MalformedEvent):
                    str(event.object)
                if isinstance(event, WatchEvent):
                    deleted = event.type == "DELETED"
                    change: Change[Any] = Deleted(event.object) if deleted else Updated(event.object)
                    mirrors[name].handler.changed([change])
        for waiting in [pod("plain"), *(queued.pod for queued in list(world.queue)[:5])]:
            _decided(world, waiting)
    if problems := world.problems():
        raise Wrong(f"columns and pods differ: {problems[:3]}")


def _decided(world: World, waiting: Any) -> None:
    info = world.cluster.templates.pod(waiting) if isinstance(waiting, Pod) else waiting
    frame = Frame(info, world.cluster, 1_800_000_000.0)
    decision = Cycle().decide(frame, _PROFILE)
    if decision.host is not None:
        world.cluster.place(info, decision.host)
        world.cluster.displace(info.uid)


# --- selectors of devices ---------------------------------------------------------------------------------

_DEVICES = [
    objects.Device(name="plain"),
    objects.Device(
        name="full",
        attributes={
            "model": objects.DeviceAttribute(string_value="é\ud7ff"),
            "gpu.example.com/index": objects.DeviceAttribute(int_value=-(2**63)),
            "healthy": objects.DeviceAttribute(bool_value=False),
            "version": objects.DeviceAttribute(version_value="1.2.3-rc.1+b"),
        },
        capacity={"memory": objects.DeviceCapacity(value="40Gi")},
    ),
]


def examine_selector(data: bytes) -> None:
    """Compile an expression and ask it about devices, twice: the second answer is a kept one."""
    text = data.decode("utf-8", errors="replace")
    selector = compile_selector(text)
    if selector.step is None:
        if not selector.error:
            raise Wrong("no reason why it is no selector")
        return
    for device in _DEVICES:
        match = selector.match("gpu.example.com", device)
        if selector.match("gpu.example.com", device) != match:
            raise Wrong("a second answer that differs")
        if match.cost > MAX_COST and not match.error:
            raise Wrong(f"cost {match.cost}")


# --- quantities -------------------------------------------------------------------------------------------

_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_MOST = (2**63 - 1) * 10**NANO


def examine_quantity(data: bytes) -> None:
    """Hold a quantity against plain fractions."""
    text: Any = data.decode("utf-8", errors="replace")
    with suppress(ValueError, RecursionError):
        number = json.loads(text)
        if isinstance(number, int | float) and not isinstance(number, bool):
            _examine_quantity(number, str(number) if isinstance(number, int) else repr(number))
    _examine_quantity(text, text)


def _examine_quantity(given: Any, text: str) -> None:
    try:
        found = nanos(given)
        millis = amount("cpu", given)
    except QuantityError:
        return
    sign, digits, suffix = re.fullmatch(r"([+-]?)([\d.]*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    value = Fraction(digits)
    if suffix in _POWERS:
        value *= Fraction(10) ** _POWERS[suffix]
    elif suffix[1:] == "i":
        value *= 1024 ** ("KMGTPE".index(suffix[0]) + 1)
    else:
        exponent = int(suffix[1:])
        value = value * Fraction(10) ** max(-2000, min(2000, exponent))
    expected = min(math.ceil(value * 10**NANO), _MOST) * (-1 if sign == "-" else 1)
    if found != expected:
        raise Wrong(f"{given!r} is {found}, expected {expected}")
    if abs(millis) != min(-(-abs(expected) // 10**6), 2**63 - 1):
        raise Wrong(f"{given!r} is {millis} in thousandths")


# --- YAML -------------------------------------------------------------------------------------------------


def examine_yaml(data: bytes) -> None:
    """Take a text through the readers of all documents that people write."""
    source = Source("fuzz.yaml", data.decode("utf-8", errors="replace"))
    for read in (parse_documents, parse_settings_of, parse_objects, parse_nodes, parse_pods):
        try:
            read(source)
        except DocumentError as error:
            for diagnostic in error.diagnostics:
                span = diagnostic.span
                if not 0 <= span.start <= span.end <= len(span.source.text):
                    raise Wrong(f"{diagnostic.code} points outside the text: {span.start} to {span.end}") from error
            str(error)


def parse_settings_of(source: Source) -> object:
    return parse_settings(source, folder=Path())


# --- the extender -----------------------------------------------------------------------------------------

VERBS = ("filter", "prioritize", "preempt", "bind")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _extender(_: int) -> dict[str, Any]:
    stage = Stage(kubernetes_rules=True)
    stage.add_node("fast", disk="ssd", speed="fast")
    stage.add_node("slow", disk="ssd")
    routes = ExtenderRoutes(stage.extender, metrics=stage.metrics.extender, max_bytes=1 << 20)
    return routes.handlers("/extender")


_asked = 0


def examine_extender(data: bytes) -> None:
    """Have a body answered under each verb."""
    global _asked
    _asked += 1
    handlers = _extender(_asked // 1000)  # what was asked before must not matter, but may be kept
    with nothing_breaks():
        for verb in VERBS:
            answer = _loop().run_until_complete(_post(handlers[f"/extender/{verb}"], data))
            if answer.status not in (200, 400, 413, 503):
                raise Wrong(f"{verb} answers {answer.status}")
            if answer.status == 200:
                json.loads(answer.body.decode(errors="replace"))  # what was no UTF-8 comes back as it was sent


async def _post(handler: Any, data: bytes) -> Any:
    protocol = cast(Any, SimpleNamespace(_reading_paused=False, resume_reading=lambda **_: None))
    body = StreamReader(protocol, 2**16, loop=asyncio.get_running_loop())
    body.feed_data(data)
    body.feed_eof()
    # a mocked request takes ten times what its handler takes
    return await handler(cast(Any, SimpleNamespace(content=body, content_length=None)))


# --- admission reviews ------------------------------------------------------------------------------------


def examine_review(data: bytes) -> None:
    """Take a review through decoder, check and answer."""
    try:
        request = decode_review(data)
    except ReviewError as error:
        str(error).encode()
        return
    verdict = judge(request)
    answer = json.loads(encode_answer(request.uid, refusal=verdict.refusal, warnings=verdict.warnings))
    if answer["response"]["allowed"] is not (verdict.refusal is None):
        raise Wrong("the answer is not the verdict")


# --- kubeconfigs ------------------------------------------------------------------------------------------


def examine_kubeconfig(data: bytes) -> None:
    """Read a kubeconfig; no program is run, and nobody is asked over the network."""
    with tempfile.TemporaryDirectory() as folder, _nobody_else():
        file = Path(folder, "config")
        file.write_bytes(data)
        try:
            found = load_kubeconfig(str(file), context=None)
        except CredentialsError as error:
            str(error).encode()
            return
        for name, value in found.headers:
            f"{name}: {value}\r\n".encode("latin-1")


@contextmanager
def _nobody_else() -> Iterator[None]:
    def away(*_: object, **__: object) -> None:
        raise FileNotFoundError("no program here")

    with patch("subprocess.Popen", away), patch("socket.socket.connect", away):
        yield


# --- Prometheus -------------------------------------------------------------------------------------------

_NODES = SimpleNamespace(
    names=["a", "b", "c"],
    hostnames=["host-a", None, "host-c"],
    addresses=[("10.0.0.1", "fd00::1"), ("10.0.0.2",), ()],
    identity_version=1,
)


def examine_prometheus(data: bytes) -> None:
    """Decode an answer whole and in pieces, and lay it over nodes."""
    error, kind = decode_failure(data)
    f"{error} {kind}".encode("utf-8", errors="surrogatepass")
    whole, pieces = _answered(data, 2**18), _answered(data, 16)
    if type(whole) is not type(pieces):
        # where one is refused, the other may be for another reason
        if not isinstance(whole, AnswerError) and not isinstance(pieces, AnswerError):
            raise Wrong(f"{whole} in one piece, {pieces} in several")
        return
    if not isinstance(whole, Vector) or not isinstance(pieces, Vector):
        return
    if list(whole.series.labels) != list(pieces.series.labels) or not np.array_equal(
        whole.series.values, pieces.series.values, equal_nan=True
    ):
        raise Wrong("pieces give other series than the whole")
    reading = Reading("m", whole.series, evaluated_at=1.0, fetched_at=1.0, warnings=whole.warnings)
    for by in (None, "node", "instance"):
        joined = join(reading, by=by, index=NodeIndex.of(cast(Any, _NODES)))
        joined.problems()
        if np.isinf(joined.values).any():
            raise Wrong("a value is not finite")
        SignalColumns().column(Query("m", by=by), signals=Signals.of([reading]), nodes=cast(Any, _NODES), now=2.0)


def _answered(data: bytes, piece_bytes: int) -> Scalar | Vector | AnswerError:
    try:
        return decode_answer(data, piece_bytes=piece_bytes, nameless=True)
    except AnswerError as error:
        return error


# --- headers ----------------------------------------------------------------------------------------------


def examine_headers(data: bytes) -> None:
    """Read headers: who asks, in which format, and how long an API server wants to be left in peace."""
    text = data.decode("utf-8", errors="surrogateescape")
    token_of(text).encode("utf-8", errors="surrogateescape")
    wait = retry_after_seconds(data.decode("latin-1"))
    if wait is not None and not 0 <= wait <= 60:
        raise Wrong(f"a pause of {wait} s")
    encode, content_type = encoder_for(text)
    encode(CollectorRegistry())
    str(content_type)


def examine_file(data: bytes) -> None:
    """Run a command of policyctl that reads a file, with these bytes in its place; the bytes say which."""
    first, _, content = data.partition(b"\n")
    name = first.decode(errors="replace")
    commands = [command for command in COMMANDS if name in files_of(command)]
    if not commands:
        return
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(FILES, folder, dirs_exist_ok=True)
        Path(folder, name).write_bytes(content)
        os.chdir(folder)
        try:
            found = problem(commands[zlib.crc32(data) % len(commands)])
        finally:
            os.chdir(before)
    assert not found, found

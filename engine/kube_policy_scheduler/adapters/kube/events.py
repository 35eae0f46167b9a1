"""Events (events.k8s.io/v1) about pods and policies, sent in the background; repeated ones become series.

A repeated event is not a new object: the count of its series goes up. If several events about a pod with the same
reason wait to be sent, only the newest is sent. Completed actions (bound, preempted) are reported even if this replica
no longer leads; only the leader reports what it plans for a pod.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from random import Random
from typing import Literal, assert_never

import msgspec

from kube_policy_scheduler.adapters.kube.client import MERGE_PATCH, Request
from kube_policy_scheduler.adapters.kube.errors import Conflict, KubeError, NotFound
from kube_policy_scheduler.adapters.kube.fence import OPEN, Fence
from kube_policy_scheduler.adapters.kube.outbox import FromOutbox, Outbox, OutboxLimits
from kube_policy_scheduler.adapters.kube.pod_view import PodView
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.times import rfc3339

NOTE_BYTES = 1024  # limit of the API
NAME_CHARACTERS = 253
SERIES_PAUSE_SECONDS = 240.0  # a series is written at its second occurrence, then at most this often
SERIES_END_SECONDS = 360.0  # as in client-go: what repeats later is a new event
SERIES_KEPT = 20_000
LIMITS = OutboxLimits(concurrency=32)
"""With so many under way, a turn of the event loop has several answers, so that an event takes less CPU."""

EventType = Literal["Normal", "Warning"]


class Reference(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """The object that an event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""


def reference_to(pod: PodView) -> Reference:
    """Return the reference to a pod."""
    return Reference("Pod", pod.name, pod.namespace, pod.uid, "v1", pod.resource_version)


class _Event(msgspec.Struct, frozen=True):
    """An event that is not yet on the server. The name is given now, so that a repeated POST makes no second one."""

    name: str
    regarding: Reference
    type: EventType
    reason: str
    action: str
    note: str
    at: float
    """Unix seconds, as people read it."""
    said: float
    """The same on the steady clock: what repeats goes by this."""
    count: int = 1
    is_fenced: bool = False


class _Series(msgspec.Struct):
    """An event that is on the server, and how often it was said."""

    event: _Event
    count: int
    last_at: float
    """Unix seconds, as people read it."""
    said: float
    """As of the event."""
    written_count: int
    written: float
    """What was said when it was written last, on the steady clock."""


class _EventMetadata(msgspec.Struct):
    name: str
    namespace: str


class _EventBody(msgspec.Struct, rename="camel"):
    metadata: _EventMetadata
    event_time: str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    regarding: Reference
    note: str
    type: str
    kind: str = "Event"
    api_version: str = "events.k8s.io/v1"


_Key = tuple[str, str]  # object and reason
_encode = msgspec.json.Encoder().encode


class EventRecorder(FromOutbox):
    """Queues events; `run` sends them. Nothing here waits for the API server."""

    def __init__(
        self,
        transport: Transport,
        *,
        controller: str,
        instance: str,
        random: Random,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        defer_while: Callable[[], bool] = lambda: False,
        limits: OutboxLimits = LIMITS,
        fence: Fence = OPEN,
    ) -> None:
        """Set up; `run` sends.

        Args:
            transport: to the API server.
            controller: the scheduler's name.
            instance: which of its replicas this is.
            random: spreads retries.
            clock: Unix seconds, as people read them.
            steady: seconds on a clock that nobody sets: when an event ends to repeat itself.
            defer_while: whether bindings are in flight (`Binder.unfinished`).
            limits: of the events that wait, also for bindings, and of requests.
            fence: asked right before it goes out that a pod fits nowhere.
        """
        self._transport = transport
        self._fence = fence
        self._controller = controller[:NAME_CHARACTERS]
        self._instance = instance[:128]
        self._clock, self._steady = clock, steady
        self._outbox: Outbox[_Key, _Event | _Series] = Outbox(
            self._send,
            name="events",
            about=_regarded,
            random=random,
            limits=limits,
            defer_while=defer_while,
            merge=_merge,
        )
        self._outbox.send_without_task(self._begin)
        self._series: OrderedDict[tuple[_Key, str], _Series] = OrderedDict()
        self._last_suffix = 0

    def scheduled(self, pod: PodView, *, node: str) -> None:
        """Say that a pod was bound."""
        note = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        self.record(reference_to(pod), type="Normal", reason="Scheduled", action="Binding", note=note)

    def failed_scheduling(self, pod: PodView, *, message: str) -> None:
        """Say that no node was found, and why."""
        about = reference_to(pod)
        self.record(about, type="Warning", reason="FailedScheduling", action="Scheduling", note=message, is_fenced=True)

    def record(
        self,
        regarding: Reference,
        *,
        type: EventType,  # noqa: A002
        reason: str,
        action: str,
        note: str,
        is_fenced: bool = False,
    ) -> None:
        """Queue an event; a note over 1,024 bytes is cut and ends in " ..."."""
        now, steady, note = self._clock(), self._steady(), cut_note(note)
        key = (regarding.uid or f"{regarding.namespace}/{regarding.name}", reason)
        series = self._series.get((key, note))
        if series is None or steady - series.said > SERIES_END_SECONDS:
            name = self._new_name(regarding.name)
            self._outbox.put(key, _Event(name, regarding, type, reason, action, note, now, steady, is_fenced=is_fenced))
            return
        series.count += 1
        series.last_at, series.said = now, steady
        if series.written_count == 1 or steady - series.written >= SERIES_PAUSE_SECONDS:
            self._outbox.put(key, series)

    async def run(self) -> None:
        """Send for ever; end by cancellation."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._outbox.run())
            group.create_task(self._sweep())

    async def drain(self, *, timeout_seconds: float) -> bool:
        """Send what waits, before the process ends; return whether all went out."""
        return await self._outbox.drain(timeout_seconds=timeout_seconds)

    # --- sending ------------------------------------------------------------------------------------

    async def _send(self, key: _Key, item: _Event | _Series) -> None:
        match item:
            case _Event():
                await self._create(key, item)
            case _Series():
                try:
                    await self._write(item)
                except NotFound:  # events live an hour on the server
                    again = msgspec.structs.replace(
                        item.event, name=self._new_name(item.event.regarding.name), at=item.last_at, said=item.said
                    )
                    await self._create(key, again)
            case _:
                assert_never(item)

    def _begin(self, key: _Key, item: _Event | _Series, done: Callable[[KubeError | None], None]) -> bool:
        """Send a new event without a task, where nothing stands in its way; return whether."""
        if not isinstance(item, _Event) or not self._transport.may_begin:
            return False

        def settle(outcome: bytes | KubeError) -> None:
            if isinstance(outcome, KubeError) and not _is_there(outcome):
                done(outcome)
            else:
                self._created(key, item)
                done(None)

        return self._transport.begin(self._creation(item), settle)

    async def _create(self, key: _Key, event: _Event) -> None:
        asked = self._creation(event)
        try:
            await self._transport.request(
                asked.verb, asked.path, body=asked.body, resource=asked.resource, fence=asked.fence
            )
        except Conflict as error:
            if not _is_there(error):
                raise
        self._created(key, event)

    def _creation(self, event: _Event) -> Request:
        """Return the request that creates an event."""
        namespace = event.regarding.namespace or "default"
        body = _EventBody(
            metadata=_EventMetadata(event.name, namespace),
            event_time=rfc3339(event.at, "microseconds"),
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            action=event.action,
            reason=event.reason,
            regarding=event.regarding,
            note=event.note,
            type=event.type,
        )
        return Request("POST", _path(namespace), _encode(body), resource="events", fence=self._fence_of(event))

    def _created(self, key: _Key, event: _Event) -> None:
        """Note that an event is on the server."""
        if event.reason == "Scheduled":
            return  # said once in a pod's life
        place = (key, event.note)
        self._series[place] = _Series(event, event.count, event.at, event.said, 1, event.said)
        self._series.move_to_end(place)
        if len(self._series) > SERIES_KEPT:
            self._series.popitem(last=False)

    async def _write(self, series: _Series) -> None:
        """Count a series up on the server."""
        count, event = series.count, series.event
        body = {"series": {"count": count, "lastObservedTime": rfc3339(series.last_at, "microseconds")}}
        await self._transport.request(
            "PATCH",
            f"{_path(event.regarding.namespace or 'default')}/{event.name}",
            body=_encode(body),
            content_type=MERGE_PATCH,
            resource="events",
            fence=self._fence_of(event),
        )
        series.written_count, series.written = count, series.said

    def _fence_of(self, event: _Event) -> Fence | None:
        return self._fence if event.is_fenced else None

    async def _sweep(self) -> None:
        """Write counts that are behind, and forget what does not repeat any more."""
        while True:
            await asyncio.sleep(SERIES_PAUSE_SECONDS / 4)
            now = self._steady()
            for (key, note), series in list(self._series.items()):
                if series.written_count < series.count:
                    if now - series.written >= SERIES_PAUSE_SECONDS and key not in self._outbox:
                        self._outbox.put(key, series)
                elif now - series.said > SERIES_END_SECONDS:
                    del self._series[key, note]

    def _new_name(self, about: str) -> str:
        """Return a name like client-go's, `<object>.<hex of the time>`, that no other event of ours has."""
        self._last_suffix = max(self._last_suffix + 1, int(self._clock() * 1e9))
        suffix = f".{self._last_suffix:x}"
        return about[: NAME_CHARACTERS - len(suffix)].rstrip("-.") + suffix


def _is_there(error: KubeError) -> bool:
    """Return whether an earlier try, whose answer was lost, had created the event."""
    return isinstance(error, Conflict) and error.reason == "AlreadyExists"


def _merge(old: _Event | _Series, new: _Event | _Series) -> _Event | _Series:
    """Of two that wait the newer is sent; if it says the same, under the older's name and counted."""
    if isinstance(old, _Event) and isinstance(new, _Event) and old.note == new.note:
        return msgspec.structs.replace(old, count=old.count + new.count, at=new.at, said=new.said)
    return new


def _regarded(_: _Key, item: _Event | _Series) -> tuple[str, str]:
    regarding = item.regarding if isinstance(item, _Event) else item.event.regarding
    return regarding.namespace or "default", regarding.name


def _path(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


def cut_note(note: str) -> str:
    """Cut a note to the API's limit of 1,024 bytes, never within a character."""
    encoded = note.encode()
    if len(encoded) <= NOTE_BYTES:
        return note
    return encoded[: NOTE_BYTES - 4].decode("utf-8", "ignore") + " ..."

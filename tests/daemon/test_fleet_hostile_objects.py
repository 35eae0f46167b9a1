"""Objects that anybody may write, at each kind that the fleet daemon watches: none ends it, or hides the others."""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.nesting import bounded
from kube_policy_scheduler.daemon.configuration.settings import Settings
from kube_policy_scheduler.daemon.fleet.engine import Engine, EngineKind, Surroundings
from kube_policy_scheduler.daemon.fleet.fleet_scheduler import FleetScheduler
from kube_policy_scheduler.daemon.fleet.supported import ENGINES, engine_kind
from kube_policy_scheduler.daemon.watching.resources import Handler
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.policy.fleet_rules import FleetRules
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.times import Steady

KINDS = [(name, kind, resource) for name, kind in ENGINES.items() for resource in kind.resources]
SHADOW = engine_kind(Settings(mode="shadow"))
TEXT = """
for workloads where true
order by workload.label.tier ?? "x", workload.replicas desc
filter cluster.label.gpu ?? "no" != "yes" and cluster.condition_age.Ready ?? 0s >= 0s
limit sum(replicas) by workload.label.team to 5 over region
score cluster.allocatable.cpu
score -(cluster.price ?? 9) * cluster.used_fraction.cpu
choose 1 to 3 clusters
divide by cluster.room ?? 1
"""
ODD_TEXTS = st.sampled_from(
    [
        "", " ", "a", "b", "web", "shop", "True", "Unknown", "In", "NotIn", "Exists", "Equal", "NoSelect", "Divided",
        "\0", "\n", "\u202e", "ÿ", "\U0001f4a5", "é" * 300, "x" * 70_000, "-1", "1e400", "1e-400", "9" * 400, "9Ei",
        "0x10", "NaN", "Infinity", "-0", "1m", "١٢", "2026-13-45T99:99:99Z", "0001-01-01T00:00:00Z", "not a time",
        "9999-12-31T23:59:59Z", "2026-01-01T00:00:00+99:99", "25%", "0%", "99999999999999999%", "{", "[1", "null",
        "/", "a/b/c", "..", "%s", "{0}", "multicluster.x-k8s.io/decision-key", "policy-scheduler",
    ]
)  # fmt: skip
NUMBERS = st.sampled_from([-(2**63), -(2**31), -1, 0, 1, 3, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, 0.5])
WRONG = st.none() | st.booleans() | NUMBERS | ODD_TEXTS | st.just([]) | st.just({}) | st.just([[[[[]]]]])


@cache
def values(kind: Any) -> st.SearchStrategy[Any]:
    """Return JSON of a type, now and then with the odd value or one of a wrong type."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    inner = get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = {each.encode_name: st.deferred(lambda each=each: values(each.type)) for each in
                  msgspec.structs.fields(kind)}  # fmt: skip
        return st.fixed_dictionaries({}, optional=fields)
    if get_origin(kind) in (Union, types.UnionType):
        return st.one_of([values(each) for each in inner])
    if get_origin(kind) is list:
        some = st.deferred(lambda: values(inner[0]))
        return st.lists(some, max_size=3) | some.map(lambda one: [one] * 200)
    if get_origin(kind) is dict:
        return st.dictionaries(ODD_TEXTS, st.deferred(lambda: values(inner[1])), max_size=3)
    if kind is int:
        return NUMBERS
    if kind is type(None):
        return st.none()
    return ODD_TEXTS | st.sampled_from(["a", "b", "web"]) if kind is str else WRONG


def made(kind: EngineKind) -> FleetScheduler:
    given = Surroundings(Settings(), cast(Any, None), cast(Any, None), Fence(lambda: True))
    return FleetScheduler(kind.make(given), view=cast(Any, lambda: True), parallel_writes=1)


@cache
def rules() -> FleetRules:
    loaded = load([Source("fleet.policy", TEXT)])
    assert loaded.policy_set is not None, loaded.diagnostics
    return FleetRules(loaded.policy_set.fleet, clock=lambda: 1_767_225_600.0)


def decide_all(scheduler: FleetScheduler, now: Steady) -> None:
    """Decide all that is to be decided."""
    for _ in range(50):
        if scheduler.engine.next(now) is None:
            return


def read(resource: Any, written: Any) -> Any:
    """Return an object as the reflector reads it; None: it passes it over, and says so."""
    try:
        return bounded(msgspec.json.Decoder(resource.type).decode)(msgspec.json.encode(written))
    except (msgspec.DecodeError, RecursionError):
        return None


def good(name: str, **more: Any) -> Any:
    return {"metadata": {"name": name, "namespace": "shop", "uid": f"good-{name}", "resourceVersion": "5"}} | more


@pytest.mark.parametrize(
    ("name", "kind", "resource"), KINDS, ids=lambda value: getattr(getattr(value, "type", value), "__name__", "")
)
@settings(max_examples=15)
@given(data=st.data())
def test_no_object_breaks_a_handler_a_decision_or_new_policies(
    name: str, kind: EngineKind, resource: Any, data: st.DataObject
) -> None:
    for each in [kind, *([SHADOW] if name == "karmada" else [])]:
        scheduler = made(each)
        handlers = {one: scheduler.handler(one.type) for one in kind.resources}
        hostile = [read(resource, data.draw(values(resource.type))) for _ in range(2)]
        hostile = [one for one in hostile if one is not None]
        for one, handler in handlers.items():
            handler.replaced([read(one, good("a"))])
        handlers[resource].replaced(hostile)
        scheduler.engine.use(rules(), Steady(1.0))
        decide_all(scheduler, Steady(1.0))
        for thing in hostile:
            handlers[resource].upsert(thing)
        scheduler.engine.look_again(Steady(2.0))
        decide_all(scheduler, Steady(9.0))
        scheduler.engine.use(rules(), Steady(10.0))
        for thing in hostile:
            handlers[resource].deleted(thing)
        decide_all(scheduler, Steady(20.0))
        list(scheduler.engine.placements())


class Breaks:
    """An engine whose handlers cannot take one object, by any error."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}

    def handler(self, kind: type) -> Handler[Any]:
        def take(thing: Any) -> None:
            if thing.metadata.name == "hostile":
                raise RecursionError("too deep")
            self.known[thing.metadata.name] = thing

        def whole(listed: Any) -> None:
            self.known.clear()
            for each in listed:
                take(each)

        def delete(thing: Any) -> None:
            if thing.metadata.name == "hostile":
                raise KeyError(thing.metadata.name)
            del self.known[thing.metadata.name]

        return Handler(whole, take, delete)


def test_an_object_that_breaks_its_handler_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    _, _, resource = KINDS[0]
    engine = Breaks()
    scheduler = FleetScheduler(cast(Engine, engine), view=cast(Any, lambda: True), parallel_writes=1)
    handler = scheduler.handler(resource.type)
    hostile, first, last = (read(resource, good(name)) for name in ("hostile", "first", "last"))
    handler.replaced([first, hostile, last])
    assert [*engine.known] == ["first", "last"]
    assert "cannot use karmadacluster shop/hostile, ignoring it: too deep" in caplog.text
    handler.upsert(hostile)
    handler.deleted(hostile)
    handler.deleted(first)
    handler.replaced([last])
    assert [*engine.known] == ["last"]


def test_deep_objects_are_passed_over_when_they_are_read() -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = {"a": [deep]}
    for _, _, resource in KINDS:
        found = read(resource, good("a", spec=deep, status=deep))
        assert found is None or found.metadata.name == "a"

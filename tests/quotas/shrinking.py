"""The smallest case that still breaks the same invariant, and its files for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tests.quotas.accounts import Amounts, Pod, Queue
from tests.quotas.model import Arrival, Case
from tests.quotas.product import budget_objects, labels_of, node_object, pod_object, policy_text
from tests.quotas.random_cases import consistent

MOST_TRIES = 600


def shrunk(case: Case, fails: Callable[[Case], bool], *, most: int = MOST_TRIES) -> Case:
    """Return the smallest case found that still fails."""
    tries = 0
    found = True
    while found:
        found = False
        for smaller in _smaller(case):
            tries += 1
            if tries > most:
                return case
            if fails(smaller):
                case, found = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    for at in range(len(case.arrivals)):
        if len(case.arrivals) > 1:
            yield replace(case, arrivals=case.arrivals[:at] + case.arrivals[at + 1 :])
    for queue in case.queues:
        yield _without_queue(case, queue)
    if len(case.nodes) > 1:
        for node in case.nodes:
            cordons = tuple(each for each in case.cordons if each[1] != node.name)
            yield replace(case, nodes=tuple(n for n in case.nodes if n is not node), cordons=cordons)
    for cordon in case.cordons:
        yield replace(case, cordons=tuple(each for each in case.cordons if each is not cordon))
    if case.by_share:
        yield replace(case, by_share=False)
    if case.backfill:
        yield replace(case, backfill=False)
    for budget in case.budgets:
        yield replace(case, budgets=tuple(each for each in case.budgets if each is not budget))
    for at, queue in enumerate(case.queues):
        for smaller in _simpler_queues(queue):
            made = consistent((*case.queues[:at], smaller, *case.queues[at + 1 :]))
            if made != case.queues:
                yield replace(case, queues=made)
    for at, arrival in enumerate(case.arrivals):
        for fewer in _simpler_arrivals(arrival):
            yield replace(case, arrivals=(*case.arrivals[:at], fewer, *case.arrivals[at + 1 :]))
    times = sorted({arrival.at for arrival in case.arrivals})
    if times != [10.0 * at for at in range(len(times))] and not case.cordons:
        yield replace(case, arrivals=tuple(replace(a, at=10.0 * times.index(a.at)) for a in case.arrivals))


def _without_queue(case: Case, queue: Queue) -> Case:
    """Return the case without a queue, and without its pods."""
    left = [replace(q, parent=queue.parent) if q.parent == queue.name else q for q in case.queues if q is not queue]
    arrivals = tuple(each for each in case.arrivals if each.pods[0].queue != queue.name)
    return replace(case, queues=consistent(tuple(left)), arrivals=arrivals or case.arrivals[:0])


def _simpler_queues(queue: Queue) -> Iterator[Queue]:
    if queue.weight != 1:
        yield replace(queue, weight=1)
    for name in queue.lend:
        yield replace(queue, lend=_left_out(queue.lend, name))
    for name in queue.maximum:
        yield replace(queue, maximum=_left_out(queue.maximum, name))
    for name in queue.minimum:
        yield replace(queue, minimum=_left_out(queue.minimum, name))


def _left_out(amounts: Amounts, name: str) -> Amounts:
    return {key: amount for key, amount in amounts.items() if key != name}


def _simpler_arrivals(arrival: Arrival) -> Iterator[Arrival]:
    pods = arrival.pods
    if len(pods) > max(1, pods[0].size):
        yield replace(arrival, pods=pods[:-1])
    if arrival.lasts is not None:
        yield replace(arrival, lasts=None)

    def each(change: Callable[[Pod], Pod]) -> Arrival:
        return replace(arrival, pods=tuple(map(change, pods)))

    if pods[0].size:
        yield each(lambda pod: replace(pod, gang="", size=0))
        if pods[0].size > 2:
            yield replace(each(lambda pod: replace(pod, size=pod.size - 1)))
    if pods[0].priority:
        yield each(lambda pod: replace(pod, priority=0))
    requests = pods[0].requests
    for name in requests:
        if name not in ("cpu", "memory", "pods"):
            yield each(lambda pod, name=name: replace(pod, requests=_left_out(requests, name)))  # type: ignore[misc]
    if requests.get("cpu") not in (1000, 500):
        yield each(lambda pod: replace(pod, requests={**requests, "cpu": 1000}))


# --- files ------------------------------------------------------------------------------------------------------


def write(case: Case, folder: Path, notes: str) -> None:
    """Write a case as the files that `policyctl simulate` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.policy").write_text(policy_text(case), encoding="utf-8")
    items = [{"apiVersion": "v1", "kind": "Node", **_plain(node_object(node))} for node in case.nodes]
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    items += [{**kind, **_plain(budget)} for budget in budget_objects(case)]
    cluster = {"apiVersion": "v1", "kind": "List", "items": items}
    (folder / "cluster.yaml").write_text(json.dumps(cluster, indent=1), encoding="utf-8")
    lines = ["pods:"]
    for arrival in sorted(case.arrivals, key=lambda each: each.at):
        lines += [f"- {json.dumps(_short_form(case, pod, arrival))}" for pod in arrival.pods]
    (folder / "pods.yaml").write_text("\n".join([*lines, ""]), encoding="utf-8")
    if case.cordons:
        events = [{"at": f"{at}s", "cordon": name} for at, name in case.cordons]
        (folder / "node-events.yaml").write_text(json.dumps({"events": events}), encoding="utf-8")
    (folder / "FOUND.txt").write_text(notes, encoding="utf-8")


def _plain(thing: Any) -> dict[str, Any]:
    return {key: value for key, value in msgspec.to_builtins(thing).items() if value}


def _short_form(case: Case, pod: Pod, arrival: Arrival) -> dict[str, Any]:
    made = msgspec.to_builtins(pod_object(pod, labels_of(case, pod)))
    form: dict[str, Any] = {"name": pod.name, "namespace": made["metadata"]["namespace"]}
    form["cpu"] = f"{pod.requests['cpu']}m"
    devices = {name: amount for name, amount in pod.requests.items() if "/" in name}
    form |= {"resources": devices} if devices else {}
    form |= {"at": f"{arrival.at:g}s"} if arrival.at else {}
    form |= {"lasts": f"{arrival.lasts:g}s"} if arrival.lasts is not None else {}
    form |= {"priority": pod.priority} if pod.priority else {}
    form |= {"labels": made["metadata"]["labels"]} if made["metadata"].get("labels") else {}
    return {**form, "owner": f"ReplicaSet/{pod.name.rpartition('-')[0]}"}

"""A small model of an API server: nodes, pods and Leases, and the history that watches are fed from.

Judges as it goes: each action of the scheduler that harms Kubernetes is recorded in `violations`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from kube_policy_scheduler.adapters.kube.errors import KubeError, MalformedAnswer, error_from_answer
from kube_policy_scheduler.adapters.kube.past_usage_lease import ANNOTATION, decode_past_usage
from kube_policy_scheduler.cluster import objects

if TYPE_CHECKING:
    from tests.simulation.watch_stream import WatchStream

Json = dict[str, Any]
EPOCH = 1_800_000_000.0
HISTORY_EVENTS = 200
"""Of each kind that a watch may still begin at; older ones are forgotten (410)."""
SAME_CLOCK_SECONDS = 60.0
"""Two writes whose times are more apart than the truth were made by two clocks: one was set meanwhile, or when the
write was on its way. Less is how old a memory is when it is stored."""
_encode = msgspec.json.encode


class ApiServer:
    """The truth."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        """By name, whatever their namespace."""
        self.streams: list[WatchStream] = []
        self.met: Counter[str] = Counter()
        """How often each fault has happened."""
        self.violations: list[str] = []
        self.lag_seconds = 0.2
        """How late watches are, at most."""
        self.fault_rate = 0.0
        """The share of requests and watches that go wrong."""
        self.first_fault = 0
        """Which faults come first: few runs have then met them all."""
        self.remembers = True
        """Whether a watch may begin in the past; otherwise each that is not up to date gets 410."""
        self.bound: dict[str, str] = {}
        """Node by uid of every pod ever bound."""
        self.bound_by_stale_views: set[str] = set()
        self.stuck: set[str] = set()
        """Names of pods that do not end when they are deleted: their containers hang, or they have a finalizer."""
        self.quota: dict[str, int] = {}
        self.denials: dict[str, int] = {}
        """By name, of pods about which no write is allowed by a webhook: the status it answers with."""
        self.forbidden: set[str] = set()
        """Of "pods" and "bindings": what is answered with 403, as by a server that has just started."""
        self.owns = False
        """Whether each pod outside gangs belongs to a ReplicaSet of its namespace and app."""
        self.spent_budgets: dict[str, int] = {}
        """By name, of pods that a PodDisruptionBudget protects: what an eviction is answered with, 429 or 500."""
        self.replaces_after = 0.0
        """Seconds after which a ReplicaSet replaces an evicted pod; 0: up to a second."""
        self.evicted: list[Json] = []
        """The pods that were evicted through the Eviction API."""
        self.requests = 0
        self.clock_ahead = 0.0
        """Seconds by which the scheduler's machine is ahead of the truth, because somebody set its clock."""
        self.leases: dict[str, Json] = {}
        self.holders: dict[str, str] = {}
        """Who held each Lease last, also where somebody has deleted it."""
        self.is_down = False
        """Whether there is nobody who listens."""
        self.knows_roles = True
        """Without, every request is refused: a server that has just started has not read its roles."""
        self._history: dict[str, deque[tuple[int, bytes]]] = {
            kind: deque(maxlen=HISTORY_EVENTS) for kind in ("nodes", "pods", "leases")
        }
        self.half_life = 600.0
        """Of the queues that remember; seconds."""
        self._stored_at = 0.0
        """When past usage was stored last."""
        self._decks: dict[str, list[str]] = {}
        self._version = 0
        self._uids = 0

    @property
    def version(self) -> int:
        """The resource version of the last change."""
        return self._version

    def draw_fault(self, asked: str, faults: tuple[str, ...]) -> str:
        """Return the fault of a request, "" for none: each fault once before any comes again."""
        if self.random.random() >= self.fault_rate:
            return ""
        if asked not in self._decks:
            first = self.first_fault % len(faults)
            self._decks[asked] = [*faults[first:], *faults[:first]]
        deck = self._decks[asked]
        if not deck:
            deck += self.random.sample(faults, len(faults))
        return deck.pop()

    # --- what happens ---------------------------------------------------------------------------------

    def now(self) -> float:
        """Return unix seconds."""
        return EPOCH + asyncio.get_running_loop().time()

    def scheduler_clock(self) -> float:
        """Return unix seconds as the clock of the scheduler's machine shows them: somebody may have set it."""
        return self.now() + self.clock_ahead

    def listing(self, kind: str) -> list[Json]:
        """Return all objects of a kind; pods that ended are not listed."""
        return list(self.nodes.values()) if kind == "nodes" else [p for p in self.pods.values() if not _over(p)]

    @staticmethod
    def decoded(kind: str, thing: Json) -> Any:
        """Return the object as a reflector would hand it over."""
        return msgspec.convert(thing, objects.Node if kind == "nodes" else objects.Pod)

    def since(self, kind: str, version: str | None) -> list[bytes]:
        """Return the changes of a kind after a version, as lines of a watch; None: from now on. Raises Gone."""
        history = self._history[kind]
        if version is None or not history or int(version) >= history[-1][0]:
            return []
        if not self.remembers or (len(history) == HISTORY_EVENTS and int(version) < history[0][0]):
            raise refusal(410, "too old resource version")
        return [line for at, line in history if at > int(version)]

    def last_line(self, kind: str) -> bytes:
        """Return the last change of a kind."""
        history = self._history[kind]
        return history[-1][1] if history else b"{}\n"

    def _tell(self, kind: str, verb: str, thing: Json) -> None:
        self._version += 1
        thing["metadata"]["resourceVersion"] = str(self._version)
        if kind == "pods" and verb == "MODIFIED" and _over(thing):
            verb = "DELETED"  # the watch asks for unfinished pods
        line = _encode({"type": verb, "object": thing}) + b"\n"
        self._history[kind].append((self._version, line))
        for stream in self.streams:
            if stream.kind == kind:
                stream.offer(line)

    def set_node(
        self,
        name: str,
        *,
        cpu: int,
        labels: dict[str, str],
        unschedulable: bool = False,
        offers: dict[str, str] | None = None,
    ) -> None:
        """Create or update a node; offers: more than cpu, memory and eight pods, or others."""
        known = self.nodes.get(name)
        if known is None:
            self._uids += 1
        uid = known["metadata"]["uid"] if known is not None else f"{name}.{self._uids}"
        self.nodes[name] = {
            "metadata": {"name": name, "uid": uid, "labels": {"kubernetes.io/hostname": name, **labels}},
            "spec": {"unschedulable": unschedulable},
            "status": {
                "allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "8", **(offers or {})},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self._tell("nodes", "ADDED" if known is None else "MODIFIED", self.nodes[name])

    def delete_node(self, name: str) -> None:
        """Delete a node; its pods are collected later, unless it comes back."""
        self._tell("nodes", "DELETED", self.nodes.pop(name))
        asyncio.get_running_loop().call_later(5 + 15 * self.random.random(), self._collect, name)

    def _collect(self, node: str) -> None:
        if node not in self.nodes:
            for name in [n for n, p in self.pods.items() if p["spec"].get("nodeName") == node]:
                self._remove(name)

    def create_pod(
        self, name: str, spec: Json, labels: dict[str, str], *, namespace: str = "default", owner: str = ""
    ) -> None:
        """Create a pod; owner: the ReplicaSet that replaces it if it is evicted."""
        self._uids += 1
        self.pods[name] = {
            "metadata": {"name": name, "namespace": namespace, "uid": f"{name}.{self._uids}", "labels": labels},
            "spec": {"schedulerName": "policy-scheduler", **spec},
            "status": {"phase": "Pending"},
        }
        if owner or (self.owns and "job" not in labels):
            uid = owner or f"{namespace}-{labels.get('app', 'none')}"
            owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": uid, "uid": uid, "controller": True}]
            self.pods[name]["metadata"]["ownerReferences"] = owners
        self._tell("pods", "ADDED", self.pods[name])

    def evict_pod(self, name: str) -> None:
        """Evict a pod as far as budgets allow; its ReplicaSet replaces it while it terminates."""
        pod = self.pods[name]
        if (answer := self.spent_budgets.get(name)) is not None:
            self.met[f"eviction: {answer} by a budget"] += 1
            message = {429: "Cannot evict pod as it would violate the pod's disruption budget."}
            several = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise refusal(answer, message.get(answer, several))
        if "deletionTimestamp" in pod["metadata"]:
            return
        self.evicted.append(pod)
        self.delete_pod(name)
        if owners := pod["metadata"].get("ownerReferences"):
            self._uids += 1
            spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
            labels, namespace = dict(pod["metadata"]["labels"]), pod["metadata"]["namespace"]
            again = partial(
                self.create_pod, f"{name.partition('.')[0]}.{self._uids}", spec, labels,
                namespace=namespace, owner=owners[0]["uid"],
            )  # fmt: skip
            asyncio.get_running_loop().call_later(self.replaces_after or self.random.random(), again)

    def delete_pod(self, name: str) -> None:
        """Delete a pod: at once where it is on no node, else after its grace period; watches see it end first."""
        pod = self.pods[name]
        if "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
            self._tell("pods", "MODIFIED", pod)
            if not pod["spec"].get("nodeName"):
                self._remove(name)
                return
            uid = pod["metadata"]["uid"]
            if name in self.stuck:
                self.met["pod that does not end"] += 1
                return
            loop = asyncio.get_running_loop()
            loop.call_later(5 * self.random.random(), lambda: self._remove(name, uid=uid))

    def release(self, name: str) -> None:
        """Let a pod end, if it should have ended and did not."""
        if name in self.stuck:
            self.stuck.discard(name)
            pod = self.pods.get(name)
            if pod is not None and "deletionTimestamp" in pod["metadata"]:
                self._remove(name)

    def bind_pod(self, name: str, node: str) -> None:
        """Let another client bind a pod."""
        self._bind(self.pods[name], node)

    def touch_pod(self, name: str) -> None:
        """Let another client write an irrelevant change to a pod."""
        self._tell("pods", "MODIFIED", self.pods[name])

    def finish_pod(self, name: str) -> None:
        """Let a pod succeed."""
        pod = self.pods[name]
        pod["status"]["phase"] = "Succeeded"
        self._tell("pods", "MODIFIED", pod)
        del self.pods[name]

    def _remove(self, name: str, *, uid: str | None = None) -> None:
        pod = self.pods.get(name)
        if pod is not None and uid in (None, pod["metadata"]["uid"]):
            del self.pods[name]
            self._tell("pods", "DELETED", pod)

    def place(self, name: str, node: str, *, millis: int) -> None:
        """Create a pod that another scheduler has placed."""
        self._uids += 1
        containers = [{"name": "c", "resources": {"requests": {"cpu": f"{millis}m"}}}]
        self.pods[name] = {
            "metadata": {"name": name, "namespace": "others", "uid": f"{name}.{self._uids}", "labels": {}},
            "spec": {"schedulerName": "another", "nodeName": node, "containers": containers},
            "status": {"phase": "Running", "startTime": "2026-11-21T10:00:00Z"},
        }
        self._tell("pods", "ADDED", self.pods[name])

    def free_millis(self, node: str) -> int:
        """Return the free cpu of a node; 0 if it takes no more pods."""
        there = [pod for pod in self.pods.values() if pod["spec"].get("nodeName") == node]
        offered = int(self.nodes[node]["status"]["allocatable"]["cpu"]) * 1000
        return offered - sum(cpu_millis(pod) for pod in there) if len(there) < 8 else 0

    def delete_lease(self, name: str) -> bool:
        """Delete a Lease under its holder; return whether there was one."""
        lease = self.leases.pop(name, None)
        if lease is not None:
            self._tell("leases", "DELETED", lease)
        return lease is not None

    def restart(self) -> None:
        """Go away, and come back without a memory of the past and, at first, of roles."""
        loop, random = asyncio.get_running_loop(), self.random
        self.is_down, self.knows_roles, self.remembers = True, False, False
        for stream in list(self.streams):
            stream.spoil(random.choice(("cut", "ended in order")))
        back = random.choice((0.2, 2.0, 4.0))
        loop.call_later(back, setattr, self, "is_down", False)
        loop.call_later(back + random.choice((0.3, 1.5, 3.0)), setattr, self, "knows_roles", True)
        loop.call_later(back + 5.0, setattr, self, "remembers", True)

    # --- requests -------------------------------------------------------------------------------------

    def answer(self, verb: str, path: str, body: bytes) -> bytes:
        """Carry out a request; raise what the API server would answer."""
        self.requests += 1
        if not self.knows_roles:
            self.met["403 after a restart"] += 1
            raise refusal(403, "no RBAC policy matched")
        parts = path.partition("?")[0].split("/")
        given = msgspec.json.decode(body) if body else {}
        if "leases" in path:
            return self._answer_lease(verb, parts[7] if len(parts) > 7 else "", given)
        if len(parts) == 4:
            items = self.listing(parts[3])[: 1 if path.endswith("?limit=1") else None]
            return _encode({"metadata": {"resourceVersion": str(self._version)}, "items": items})
        name, subresource = parts[6], parts[7] if len(parts) > 7 else ""
        pod = self.pods.get(name)
        if pod is None:
            raise refusal(404, f'pods "{name}" not found')
        conditions = given.get("preconditions") or given.get("deleteOptions", {}).get("preconditions", {})
        uid = given.get("metadata", {}).get("uid") or conditions.get("uid")
        if uid is not None and uid != pod["metadata"]["uid"]:
            raise refusal(409, f"uid {uid} is not {pod['metadata']['uid']}")
        if ("bindings" if subresource == "binding" else "pods") in self.forbidden:
            raise refusal(403, "not allowed yet")
        if verb != "GET" and name in self.denials:
            self.met[f"{subresource or 'deletion'}: {self.denials[name]} by a webhook"] += 1
            if pod["spec"].get("nodeName"):
                self.met["eviction refused by a webhook"] += 1
            raise denial(self.denials[name])
        match verb, subresource:
            case "POST", "binding":
                self._bind(pod, given["target"]["name"])
            case "PATCH", "status":
                if given["metadata"].get("resourceVersion") not in (None, pod["metadata"]["resourceVersion"]):
                    raise refusal(409, "the object has been modified")
                if "nominatedNodeName" in given["status"]:
                    pod["status"]["nominatedNodeName"] = given["status"]["nominatedNodeName"] or ""
                merged = {c["type"]: c for c in pod["status"].get("conditions", [])}
                merged |= {c["type"]: c for c in given["status"].get("conditions", [])}
                pod["status"]["conditions"] = list(merged.values())
                self._tell("pods", "MODIFIED", pod)
            case "DELETE", "":
                if not given.get("dryRun"):
                    self._judge_deletion(pod)
                    self.delete_pod(name)
            case "POST", "eviction":
                self._judge_deletion(pod)
                self.evict_pod(name)
            case "GET", "":
                pass
            case _:
                raise AssertionError(f"unexpected {verb} {path}")
        return _encode(pod)

    def _judge_past_usage(self, before: Json, now: Json) -> None:
        """Check that no write takes past usage of a queue away; it fades as time passes, by the clock of the writer."""
        seconds = self.now() - self._stored_at
        new = decode_past_usage(now["metadata"]["annotations"][ANNOTATION])
        try:
            was = decode_past_usage(before["metadata"]["annotations"][ANNOTATION])
        except MalformedAnswer:
            return  # somebody else wrote that
        if abs((was.at - self._stored_at) - (new.at - self.now())) > SAME_CLOCK_SECONDS:
            return  # between two clocks nobody knows how much time has passed
        least = was.faded_to(was.at + seconds * 1.05 + 60.0, self.half_life, new.resources)
        for queue, amounts in least.items():
            there = new.queues.get(queue, (0.0,) * len(amounts))
            if any(left > kept * 1.02 + 0.05 for left, kept in zip(amounts, there, strict=True)):
                self.violations.append(f"past usage of {queue} was {amounts}, {there} is written over it")
        self.met["past usage stored"] += 1

    def _answer_lease(self, verb: str, name: str, given: Json) -> bytes:
        name = name or given.get("metadata", {}).get("name", "")
        known = self.leases.get(name)
        conditions = given.get("preconditions") or given.get("metadata", {})
        if known is not None and conditions.get("resourceVersion") not in (None, known["metadata"]["resourceVersion"]):
            raise refusal(409, "the lease has been modified")
        match verb:
            case "GET" if not name:
                return _encode({"items": list(self.leases.values())})
            case "POST" if known is not None:
                raise refusal(409, "the lease exists")
            case "GET" | "PUT" | "DELETE" if known is None:
                raise refusal(404, "no such lease")
            case "POST" | "PUT":
                if ANNOTATION in (given["metadata"].get("annotations") or {}):
                    if known is not None:
                        self._judge_past_usage(known, given)
                    self._stored_at = self.now()
                given["metadata"]["uid"] = name
                self.leases[name] = given
                self.holders[name] = given.get("spec", {}).get("holderIdentity", "")
                self._tell("leases", "ADDED" if verb == "POST" else "MODIFIED", given)
            case "DELETE":
                self._tell("leases", "DELETED", self.leases.pop(name))
        return _encode(self.leases.get(name, {}))

    def _bind(self, pod: Json, node: str) -> None:
        uid = pod["metadata"]["uid"]
        if "deletionTimestamp" in pod["metadata"]:
            raise refusal(409, f"pod {uid} is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            raise refusal(409, f"pod {uid} is already assigned to node {pod['spec']['nodeName']}")
        if uid in self.bound:
            self.violations.append(f"{uid} is bound twice")
        self.bound[uid] = node
        pod["spec"]["nodeName"] = node
        pod["status"].pop("nominatedNodeName", None)
        self._judge(pod, node)
        self._tell("pods", "MODIFIED", pod)
        asyncio.get_running_loop().call_later(self.random.random(), self._start, pod)

    def _start(self, pod: Json) -> None:
        if self.pods.get(pod["metadata"]["name"]) is pod:
            pod["status"]["phase"] = "Running"
            pod["status"]["startTime"] = "2026-11-21T10:00:00Z"
            self._tell("pods", "MODIFIED", pod)

    def _judge_deletion(self, pod: Json) -> None:
        """Check that a pod that a scheduler deletes is bound: one that nobody creates again would be lost."""
        if not pod["spec"].get("nodeName"):
            self.violations.append(f"{pod['metadata']['name']} is deleted, and was not bound")

    def _judge(self, pod: Json, node: str) -> None:
        name = pod["metadata"]["name"]
        there = [p for p in self.pods.values() if p["spec"].get("nodeName") == node]
        if node in self.nodes:
            offered = int(self.nodes[node]["status"]["allocatable"]["cpu"]) * 1000
            used = sum(cpu_millis(p) for p in there)
            if pod["metadata"]["uid"] in self.bound_by_stale_views:
                self.met["bound by a stale view"] += 1
            elif used > offered or len(there) > int(self.nodes[node]["status"]["allocatable"]["pods"]):
                self.violations.append(f"{name} makes {used} of {offered} cpu and {len(there)} pods on {node}")
        solo = pod["metadata"]["labels"].get("solo")
        if solo and sum(p["metadata"]["labels"].get("solo") == solo for p in there) > 1:
            self.violations.append(f"{name} is on {node} beside a pod that it must not meet")
        tenant = pod["metadata"]["labels"].get("tenant")
        if tenant in self.quota:
            held = sum(
                p["metadata"]["labels"].get("tenant") == tenant and bool(p["spec"].get("nodeName"))
                for p in self.pods.values()
            )
            if held > self.quota[tenant]:
                self.violations.append(
                    f"{name} is number {held} of tenant {tenant}, which may have {self.quota[tenant]}"
                )


def refusal(status: int, message: str, *, retry_after_seconds: float | None = None) -> KubeError:
    """Return the error of a refusing answer."""
    body = _encode({"message": message, "reason": "Refused", "code": status})
    return error_from_answer(status, body, retry_after_seconds=retry_after_seconds)


def denial(status: int, *, retry_after_seconds: float | None = None) -> KubeError:
    """Return the error where an admission webhook allows no write about one object."""
    message = 'admission webhook "pods.example.com" denied the request: no'
    return refusal(status, message, retry_after_seconds=retry_after_seconds)


def cpu_millis(pod: Json) -> int:
    """Return what a pod of the model requests."""
    return sum(int(c["resources"]["requests"]["cpu"].rstrip("m")) for c in pod["spec"]["containers"])


def _over(pod: Json) -> bool:
    return bool(pod["status"]["phase"] == "Succeeded")

"""What happens around schedulers in a seeded run, step by step, and what must hold after each; knows no roles."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.queue.scheduling_queue import Place
from kube_policy_scheduler.policy.policy_set import load
from tests.simulation.api_server import ApiServer, Json
from tests.simulation.network import Connection
from tests.simulation.replica import Replica
from tests.simulation.virtual_time import StandstillError, run
from tests.simulation.watch_stream import WATCH_FAULTS

NAMES = frozenset({"policy-scheduler"})
QUOTA = {"a": 5, "b": 3}
GANGS = """
gang by pod.label.job size number(pod.label.size) ?? 1 within 40s if pod label job and not pod label near
gang by pod.label.job size number(pod.label.size) ?? 1 within 40s within one rack if pod label near
"""
GANG_LABELS = ("job", "size", "near")
BASE = f"""{GANGS}\
limit count() by pod.label.tenant to if pod.label.tenant == "a" then 5 else if pod.label.tenant == "b" then 3 else 1000
"""
QUEUED = f"""{GANGS}\
queue a for pods where pod.label.tenant == "a" min pods 2 max pods 5
queue b for pods where pod.label.tenant == "b" max pods 3
"""
"""The limits of tenants as queues."""
WIDE = 64
"""More nodes than this are more than columns have room for at first (`_FIRST_CAPACITY` in `cluster`)."""
PROVISIONING_SECONDS = ("0.3", "4", "20", "90")
"""What volumes take until they are provisioned; no binding is sent before."""
SETTLE_SECONDS = 900.0
"""After the last change; the queue flushes what no event concerned after 300 s."""
SOLO: Json = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"solo": "x"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}

Action = tuple[int, Callable[[], None]]
"""How often something is to happen, and what."""


def rack_of(node: str) -> str:
    """Return the rack of a node, which never changes."""
    return str(sum(map(ord, node)) % 2)


class Violation(AssertionError):
    """Something that must never happen has happened; the text says how to see it again."""


class Chaos(ABC):
    """A run; replayed by its seed."""

    options = ""
    """Of the command that replays it."""

    def __init__(self, seed: int, *, steps: int) -> None:
        self.seed, self.steps, self.step = seed, steps, 0
        self.random = Random(seed)
        self.told: Counter[str] = Counter()
        """What replicas reported."""
        self.replicas: list[Replica] = []
        self.most_pods = self.random.choice((12, 25, 40))
        """No more are created while there are so many: 40 are more than fit, 12 leave room."""
        self._log: list[str] = []
        self._names = 0
        self._gone_nodes: set[str] = set()
        self.pause_seconds = 0.0
        """After the present step, beside the usual."""
        self._heard_at = 0.0
        """When replicas that are not cut off have heard of all that others placed."""

    def run(self) -> Counter[str]:
        """Run to the end; return how often everything happened, faults and reports.

        Raises:
            Violation: something is wrong.
        """
        try:
            return run(self._main())
        except StandstillError as error:
            self._fail([str(error)])
            raise

    async def _main(self) -> Counter[str]:
        self.server = ApiServer(Random(self.seed + 1))
        self.server.quota = QUOTA
        self.server.first_fault = self.seed
        self._begin()
        self._faults()
        actions = [*self._usual_actions(), *self._own_actions(), (10, lambda: None)]
        weights = [weight for weight, _ in actions]
        try:
            for step in range(self.steps):
                self.step = step
                ((_, act),) = self.random.choices(actions, weights)
                self._log.append(f"{asyncio.get_running_loop().time():.2f} {getattr(act, '__name__', '')}")
                act()
                await asyncio.sleep(self.random.choice((0.0, 0.01, 0.1, 0.5, 2.0)) + self.pause_seconds)
                self.pause_seconds = 0.0
                self._check()
            await self._settle()
        finally:
            for replica in self.replicas:
                if replica.machine.is_stopped:
                    replica.machine.go_on()
        return self.told + self.server.met

    @abstractmethod
    def _begin(self) -> None:
        """Make the nodes and the first replicas."""

    @abstractmethod
    def _own_actions(self) -> list[Action]:
        """Return what happens beside the usual."""

    # --- what happens ---------------------------------------------------------------------------------

    def _usual_actions(self) -> list[Action]:
        return [
            (30, self._create),
            (7, self._gang),
            (12, self._delete),
            (14, self._finish),
            (4, self._spoil_watches),
            (1, self._storm),
            (3, self._faults),
            (2, self._deny),
            (2, self._deny_evictions),
            (2, self._hang),
            (1, self._restart),
            (1, self._slow_link),
            (1, self._others_fill),
        ]

    def _met(self, what: str) -> None:
        self.server.met[what] += 1

    def _name(self) -> str:
        self._names += 1
        return f"p{self._names}"

    def _create(self) -> None:
        random = self.random
        if len(self.server.pods) > self.most_pods:
            return
        for _ in range(random.choice((1, 1, 1, 6, 12))):
            labels = {"app": random.choice(("web", "db", "db", "held"))}
            if random.random() < 0.3:
                labels["tenant"] = random.choice("ab")
                self._met("pod under a quota")
            spec: Json = {"priority": random.choice((0, 0, 0, 3, 10))}
            namespace = random.choice(("default", "one", "two", "three"))
            if random.random() < 0.15:
                labels["solo"], namespace = "x", "default"
                spec["affinity"] = SOLO
            if random.random() < 0.1:
                spec["nodeSelector"] = {"zone": random.choice("ab")}
            name = self._name()
            labels |= self._volume()
            if random.random() < 0.1:
                name, namespace = f"again{random.randrange(3)}", "default"  # a name used before is another pod
            if name not in self.server.pods:
                spec |= containers(random.choice((100, 500, 900, 1500)))
                self.server.create_pod(name, spec, labels, namespace=namespace)

    def _volume(self) -> dict[str, str]:
        """Return the label of a pod whose volume takes its time; every other pod has none."""
        return {"provisioning": PROVISIONING_SECONDS[self._names // 2 % 4]} if self._names % 2 else {}

    def _gang(self) -> None:
        random = self.random
        if len(self.server.pods) > self.most_pods:
            return
        name, size = self._name(), random.randint(2, 4)
        labels = {"job": name, "size": str(size), "app": "db"}
        if self._names % 5 < 2:
            labels["near"] = "yes"
        labels |= self._volume()
        spec = {"priority": random.choice((0, 0, 10))} | containers(random.choice((500, 1500)))
        loop = asyncio.get_running_loop()
        for number in range(size + random.choice((0, 0, 1))):
            late = random.random() * 15 if random.random() < 0.2 else 0.0
            loop.call_later(late, self.server.create_pod, f"{name}-{number}", spec, labels | self._own_labels(number))

    def _own_labels(self, number: int) -> dict[str, str]:
        """Return what a member of a gang has beside the labels of all members."""
        return {}

    def _relabel(self) -> None:
        """Let a pod that waits leave its gang or come into one, or be another app.

        None that a replica is binding, but for one that leaves, or has not heard of it when it decides.
        """
        random, pods = self.random, self.server.pods
        bound = {uid for replica in self.replicas for uid in replica.scheduler.cluster.assumed}
        waiting = [
            name
            for name, pod in pods.items()
            if not pod["spec"].get("nodeName")
            and "deletionTimestamp" not in pod["metadata"]
            and pod["metadata"]["uid"] not in bound
        ]
        if not waiting:
            return
        name = random.choice(waiting)
        metadata = pods[name]["metadata"]
        alone = {key: value for key, value in metadata["labels"].items() if key not in GANG_LABELS}
        if "job" in metadata["labels"] and random.random() < 0.6:
            labels = alone
            self._met("pod left its gang")
        elif random.random() < 0.5 and metadata["namespace"] == "default":
            members = [found for other in waiting if "job" in (found := pods[other]["metadata"]["labels"])]
            labels = metadata["labels"]
            if members:
                labels = alone | {key: value for key, value in random.choice(members).items() if key in GANG_LABELS}
                self._met("pod joined a gang")
        else:
            labels = metadata["labels"] | {"app": random.choice(("web", "db", "held"))}
        pods[name] = {**pods[name], "metadata": {**metadata, "labels": labels}}
        self.server.touch_pod(name)

    def _delete(self) -> None:
        if self.server.pods:
            name = self.random.choice(list(self.server.pods))
            uid = self.server.pods[name]["metadata"]["uid"]
            if any(uid in replica.scheduler.cluster.assumed for replica in self.replicas):
                self._met("pod deleted while assumed")
            self.server.delete_pod(name)

    def _finish(self) -> None:
        running = self._running()
        for name in self.random.sample(running, min(len(running), self.random.choice((1, 1, 4)))):
            self.server.finish_pod(name)

    def _node(self, name: str, *, spare: bool = False) -> None:
        """Create or change a node; a spare one is cordoned."""
        random = self.random
        labels = {"zone": random.choice("ab"), "disk": random.choice(("ssd", "hdd")), "rack": rack_of(name)}
        if name in self._gone_nodes and name not in self.server.nodes:
            self._met("node recreated under its name")
        cpu = 2 + (sum(map(ord, name)) % 4)
        self.server.set_node(name, cpu=cpu, labels=labels, unschedulable=spare or random.random() < 0.1)

    def _delete_nodes(self) -> None:
        """Delete one node or up to a third of all, wherever they are; one is left."""
        nodes = list(self.server.nodes)
        number = self.random.choice((1, 1, 1, 4, len(nodes) // 3))
        for name in self.random.sample(nodes, min(number, len(nodes) - 1)):
            self._gone_nodes.add(name)
            self.server.delete_node(name)
            if len(nodes) > WIDE:
                self._met("node of many deleted")

    def _spoil_watches(self) -> None:
        streams = [stream for replica in self.replicas for stream in replica.connection.streams]
        for stream in self.random.sample(streams, min(len(streams), self.random.randint(1, 3))):
            stream.spoil(self.random.choice(WATCH_FAULTS[:-1]))  # all but silence, which lasts

    def _storm(self) -> None:
        """For a while, let no watch begin in the past: a client that loses one that was not up to date lists again."""
        self.server.remembers = False
        asyncio.get_running_loop().call_later(20 * self.random.random(), setattr, self.server, "remembers", True)
        self._met("storm of 410")

    def _faults(self) -> None:
        self.server.fault_rate = self.random.choice((0.0, 0.1, 0.3))

    def _deny(self) -> None:
        """For a while, let a webhook allow no write about some pods that wait."""
        self._deny_writes(self._pending())

    def _deny_evictions(self) -> None:
        """For a while, let a webhook allow no write about some running pods."""
        self._deny_writes(self._running())

    def _pending(self) -> list[str]:
        return [name for name, pod in self.server.pods.items() if not pod["spec"].get("nodeName")]

    def _running(self) -> list[str]:
        return [name for name, pod in self.server.pods.items() if pod["status"]["phase"] == "Running"]

    def _hang(self) -> None:
        """For a while, let some running pods not end when they are deleted."""
        running, loop = self._running(), asyncio.get_running_loop()
        for name in self.random.sample(running, min(len(running), 4)):
            self.server.stuck.add(name)
            loop.call_later(self.random.choice((20.0, 120.0, 400.0)), self.server.release, name)

    def _deny_writes(
        self,
        names: list[str],
        *,
        answers: tuple[int, ...] = (409, 429, 500, 503),
        seconds: tuple[float, ...] = (5.0, 60.0),
    ) -> None:
        for name in self.random.sample(names, min(len(names), 5)):
            self.server.denials[name] = self.random.choice(answers)
            loop = asyncio.get_running_loop()
            loop.call_later(self.random.choice(seconds), self.server.denials.pop, name, None)

    def _cut_off(self) -> None:
        if self.replicas:
            self._cut(self.random.choice(self.replicas).connection, self.random.choice((1.0, 8.0, 40.0)))
            self._met("cut off")

    def _cut(self, connection: Connection, seconds: float) -> None:
        """Let nothing through for so long, or longer where it is cut for longer already."""
        loop = asyncio.get_running_loop()
        connection.is_cut = True
        connection.cut_until = max(connection.cut_until, loop.time() + seconds)
        how = self.random.choice(("goes on", "broken", "forgotten"))
        if how != "goes on":
            for stream in connection.streams:
                stream.spoil("cut")  # its reader learns of that when it is no longer cut off
        loop.call_at(connection.cut_until, self._reconnect, connection, how)

    def _reconnect(self, connection: Connection, how: str) -> None:
        """Let everything through again: as if nothing had been, or with broken watches, or with a lost history."""
        if asyncio.get_running_loop().time() < connection.cut_until:
            return
        if how == "forgotten":
            self._storm()
        connection.is_cut = False

    def _restart(self) -> None:
        """Restart the API server: for a moment it knows no roles, and of the past nothing."""
        if not self.server.is_down:
            self.server.restart()
            self._met("API server restarted")

    def _slow_link(self) -> None:
        """Let what one replica is sent come drop by drop for a while."""
        if self.replicas:
            connection = self.random.choice(self.replicas).connection
            if not connection.is_cut:
                connection.is_slow = True
                asyncio.get_running_loop().call_later(self.random.choice((2.0, 20.0)), self._fast_link, connection)
                self._met("slow link")

    def _fast_link(self, connection: Connection) -> None:
        connection.is_slow = False

    def _others_fill(self) -> None:
        """Cut one replica that decides off, and let another scheduler fill the room meanwhile that it decides about.

        A replica that would not have heard of that anyway, and cannot know, is spared. So is one whose first lists are
        still on their way: it believes the watches after them soon, and the server may be late (`Reflector`).
        """
        deciding = [
            each for each in self.replicas if each.has_begun and each.fence.allows() and not each.machine.is_stopped
        ]
        found = [each for each in deciding if each.connection.hears_all]
        if found:
            replica = self.random.choice(found)
            filled_at = self.random.choice((0.5, 2.0))
            asyncio.get_running_loop().call_later(filled_at, self._fill, replica)
            # what was on its way to the replica when it was cut off has arrived when it no longer is
            self._cut(
                replica.connection, filled_at + self.server.lag_seconds + self.random.choice((0.5, 2.0, 5.0, 12.0))
            )

    def _fill(self, replica: Replica) -> None:
        heard_at = asyncio.get_running_loop().time() + self.server.lag_seconds  # which may lag more since the cut
        if replica not in self.replicas or not replica.connection.is_cut or replica.connection.cut_until < heard_at:
            return  # replicas may decide at this moment, or before they can know
        self._heard_at = max(self._heard_at, heard_at)
        sharding = replica.scheduler.context.sharding
        for node in self.server.nodes:
            millis = self.server.free_millis(node) - self.random.choice((0, 0, 500))
            is_its = sharding is None or sharding.owns_node(node)
            if millis > 0 and is_its and self.random.random() < 0.8:
                self.server.place(self._name(), node, millis=millis)
                self._met("others filled the room during a cut")

    def _stop(self, replica: Replica) -> None:
        """Stop a machine, for long enough or not for others to take over."""
        replica.machine.stop()
        asyncio.get_running_loop().call_later(self.random.choice((3.0, 12.0, 30.0, 45.0, 45.0)), self._go_on, replica)

    def _go_on(self, replica: Replica) -> None:
        if replica.machine.is_stopped:
            replica.machine.go_on()

    # --- what must hold -------------------------------------------------------------------------------

    def _check(self) -> None:
        found = list(self.server.violations)
        for replica in self.replicas:
            found += replica.violations()
        found += self._rivals()
        if found:
            self._fail(found)
        for replica in [replica for replica in self.replicas if replica.has_ended]:
            self.replicas.remove(replica)
            replica.kill()
            self._met("lease lost")
            self._replace()

    @abstractmethod
    def _rivals(self) -> list[str]:
        """Return which replicas act where only one may."""

    @abstractmethod
    def _replace(self) -> None:
        """Begin a new life after one that has ended."""

    def _fail(self, found: list[str]) -> None:
        last = "\n  ".join(self._log[-12:])
        raise Violation(
            f"seed {self.seed}, step {self.step} of {self.steps}: {'; '.join(found)}"
            f"\nreplay: python -m tests.simulation {self.options}--seed {self.seed} --steps {self.steps}\n  {last}"
        )

    async def _settle(self) -> None:
        """Let the storm pass; then every pod must have its node, unless there is none for it, and be seen there."""
        server, loop = self.server, asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._heard_at - loop.time()))
        server.fault_rate, server.lag_seconds = 0.0, 0.01
        server.denials.clear()
        for name in list(server.stuck):
            server.release(name)
        server.is_down, server.knows_roles, server.remembers = False, True, True
        for replica in self.replicas:
            replica.connection.is_cut = replica.connection.is_slow = False
            self._go_on(replica)
        end = loop.time() + SETTLE_SECONDS
        while True:
            await asyncio.sleep(15.0)
            self._check()
            lost, blind, untold = self._lost(), self._blind(), self._unreported()
            if not lost and not blind and not untold:
                return
            if loop.time() > end:
                self._fail(
                    [*blind, *untold, *(f"{name} could run and does not: {self._whereabouts(name)}" for name in lost)]
                )

    def _blind(self) -> list[str]:
        """Return which replicas see other pods on nodes than there are."""
        pods = self.server.listing("pods")
        truth = {p["metadata"]["uid"]: p["spec"]["nodeName"] for p in pods if p["spec"].get("nodeName")}
        return [
            f"{replica.name} sees {sorted(dict(replica.view().items() ^ truth.items()))} where they are not"
            for replica in self.replicas
            if replica.view() != truth
        ]

    def _unreported(self) -> list[str]:
        """Return of which pods it is not said why they wait, or something else."""
        waiting = {q.pod.uid for r in self.replicas for q in r.scheduler.queue if q.place is Place.UNSCHEDULABLE}
        found = []
        for name, pod in self.server.pods.items():
            said = next((c for c in pod["status"].get("conditions", ()) if c["type"] == "PodScheduled"), None)
            if pod["metadata"]["uid"] in waiting and (said is None or said["status"] != "False"):
                found.append(f"nobody says of {name} why it waits")
        return found

    @abstractmethod
    def _lost(self) -> list[str]:
        """Return the names of pending pods for which there is a place."""

    def _whereabouts(self, name: str) -> list[str]:
        found = []
        for replica in self.replicas:
            for queued in replica.scheduler.queue:
                if queued.pod.name == name:
                    found.append(f"{replica.name}: {queued.place.value} {replica.told.why.get(name)}")
            if any(pod.name == name for pod in replica.scheduler.event_handlers.passes.shown()):
                found.append(f"{replica.name}: passed on")
        return found or ["not queued"]


def containers(millis: int) -> Json:
    """Return the part of a spec that requests cpu."""
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": f"{millis}m"}}}]}


@cache
def compiled(text: str) -> LivePolicies | None:
    """Return the policies of a text, None where it does not compile; runs of one process share them."""
    found = load([Source("p.policy", text)], default_schedulers=NAMES).policy_set
    return LivePolicies(found, scheduler_names=NAMES) if found is not None else None


def policies_of(text: str) -> LivePolicies:
    """Return the policies of a text that compiles."""
    policies: Any = compiled(text)
    assert policies is not None, text
    return policies

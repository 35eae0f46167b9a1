"""A member cluster while it is simulated: which replicas run in it, and what they take."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

from kube_policy_scheduler.fleet.model import FleetCluster

Key = TypeVar("Key", bound=Hashable)
_MOST = 2**31 - 1


class _Runs(msgspec.Struct):
    """The replicas of one workload."""

    requests: Mapping[str, int]
    """Billionths by resource of each."""
    wanted: int = 0
    healthy: int = 0
    starting: deque[tuple[float, int]] = msgspec.field(default_factory=deque)
    """When some of them will be healthy, and how many; the first ones first."""

    @property
    def started(self) -> int:
        """Return how many take room."""
        return self.healthy + sum(count for _, count in self.starting)


class Member(Generic[Key]):
    """Starts and ends replicas, as Karmada's controllers and the scheduler of the cluster do together.

    A replica for which there is no room waits in the cluster. As long as the cluster is lost, nothing in it changes,
    and nothing in it counts as running.
    """

    def __init__(self, *, start_seconds: float) -> None:
        """Know nothing yet. start_seconds: from the start of a replica until it is healthy."""
        self.lost = False
        self.others: Mapping[str, int] = {}
        """Billionths by resource that pods request which no workload of the simulation has."""
        self._offers: Mapping[str, int] | None = None
        """Billionths by resource; None: the cluster does not say what it has."""
        self._start_seconds = start_seconds
        self._runs: dict[Key, _Runs] = {}
        self._taken: dict[str, int] = {}

    def offer(self, cluster: FleetCluster) -> None:
        """Take what the cluster has now."""
        self._offers = dict(cluster.allocatable) if cluster.summarized else None

    def has(self, key: Key, requests: Mapping[str, int], count: int) -> None:
        """Note replicas that run already."""
        self._runs[key] = _Runs(requests, wanted=count, healthy=count)
        self._take(requests, count)

    def want(self, key: Key, requests: Mapping[str, int], count: int) -> None:
        """Note how many replicas of a workload are to run; `reconcile` starts and ends them."""
        known = self._runs.get(key)
        if known is None:
            if count:
                self._runs[key] = _Runs(requests, wanted=count)
        else:
            known.wanted = count

    def reconcile(self, now: float) -> float | None:
        """End and start replicas; return when those that start now will be healthy, None if none do."""
        if self.lost:
            return None
        for key in [key for key, runs in self._runs.items() if runs.started > runs.wanted or not runs.wanted]:
            self._end(key)
        begun = False
        for runs in self._runs.values():
            missing = runs.wanted - runs.started
            count = min(missing, self._room(runs.requests)) if missing > 0 else 0
            if count > 0:
                runs.starting.append((now + self._start_seconds, count))
                self._take(runs.requests, count)
                begun = True
        return now + self._start_seconds if begun else None

    def _end(self, key: Key) -> None:
        runs = self._runs[key]
        surplus = runs.started - runs.wanted
        self._take(runs.requests, -surplus)
        while surplus and runs.starting:
            at, count = runs.starting.pop()
            gone = min(surplus, count)
            surplus -= gone
            if gone < count:
                runs.starting.append((at, count - gone))
        runs.healthy -= surplus
        if not runs.wanted:
            del self._runs[key]

    def ripen(self, now: float) -> list[Key]:
        """Count replicas as healthy whose time has come; return the workloads of which there are some."""
        found = []
        for key, runs in self._runs.items() if not self.lost else ():
            before = runs.healthy
            while runs.starting and runs.starting[0][0] <= now:
                runs.healthy += runs.starting.popleft()[1]
            if runs.healthy != before:
                found.append(key)
        return found

    def interrupt(self, now: float) -> float | None:
        """Start again what was starting when the cluster was lost; return when it will be healthy, None without any."""
        restarted = False
        for runs in self._runs.values():
            if runs.starting:
                count = sum(each for _, each in runs.starting)
                runs.starting = deque([(now + self._start_seconds, count)])
                restarted = True
        return now + self._start_seconds if restarted else None

    def workloads(self) -> tuple[Key, ...]:
        """Return the workloads that have replicas here, or are to have some."""
        return tuple(self._runs)

    def healthy(self, key: Key) -> int:
        """Return how many replicas of a workload run; none as long as the cluster is lost."""
        runs = self._runs.get(key)
        return 0 if runs is None or self.lost else runs.healthy

    def is_healthy(self, key: Key) -> bool:
        """Return whether a workload runs here as it is to."""
        runs = self._runs.get(key)
        return runs is None or runs.healthy == runs.wanted

    @property
    def taken(self) -> Mapping[str, int]:
        """Return billionths by resource that replicas with a place request."""
        return self._taken

    def waiting(self) -> dict[str, int]:
        """Return billionths by resource that replicas without a place request."""
        found: dict[str, int] = {}
        for runs in self._runs.values():
            missing = runs.wanted - runs.started
            for resource, amount in runs.requests.items() if missing > 0 else ():
                found[resource] = found.get(resource, 0) + amount * missing
        return found

    def _take(self, requests: Mapping[str, int], count: int) -> None:
        for resource, amount in requests.items():
            self._taken[resource] = self._taken.get(resource, 0) + amount * count

    def _room(self, requests: Mapping[str, int]) -> int:
        if self._offers is None:
            return _MOST
        return max(0, min(self._rooms(requests), default=_MOST))

    def _rooms(self, requests: Mapping[str, int]) -> Iterator[int]:
        assert self._offers is not None
        for resource, amount in requests.items():
            if amount > 0:
                free = self._offers.get(resource, 0) - self.others.get(resource, 0) - self._taken.get(resource, 0)
                yield free // amount

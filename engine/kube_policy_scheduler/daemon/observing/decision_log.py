"""What was decided recently, and why: kept in memory, handed on for a file. Decides nothing and does no I/O.

Noting a decision takes a few microseconds: objects that do not change are kept as they are, and become a record when
somebody asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.signals import Query, Signals
from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings
from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts
from kube_policy_scheduler.daemon.observing.close_look import CloseLook
from kube_policy_scheduler.daemon.observing.decision_entry import Entry, Readings, counted, recorded
from kube_policy_scheduler.daemon.observing.observers import (
    Answered,
    AttemptFailed,
    Compared,
    Decided,
    Observer,
    PodBound,
    PodHeld,
)
from kube_policy_scheduler.framework.evaluate.diagnosis import Diagnosis
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.decision_record import DecisionRecord, Outcome, Reason

MOST_BYTES = 64 * 2**20
"""What is kept of pods that were decided, as it is in memory: large pods shorten the log."""
_BINDING_REFUSED = "binding to "


class DecisionLog(Observer):
    """The last decisions of this replica. Entries may be read in other threads."""

    def __init__(
        self,
        settings: DecisionLogSettings,
        *,
        seed: int,
        replica: str,
        kubernetes: str = "",
        stopwatch: Callable[[], float],
        counts: ClauseCounts | None = None,
        hand_on: Callable[[Entry], object] = lambda entry: None,
    ) -> None:
        """Make an empty log.

        Args:
            settings: the size in memory (fewer entries if pods are large: `MOST_BYTES`) and the share of details.
            seed: of the cycle, for records.
            replica: identity of this scheduler, for records.
            kubernetes: the version of Kubernetes by whose rules is decided, for records.
            stopwatch: seconds, never going back.
            counts: receives what close looks find.
            hand_on: given every new entry; must return at once.
        """
        self._size = settings.kept
        self._entries: deque[Entry] = deque()
        self._templates: dict[PodTemplate, int] = {}
        """How many entries are about a pod of each template."""
        self._bytes = 0
        self._latest: dict[str, Entry] = {}
        """By uid: the last entry about a pod that is still kept."""
        self.decided = 0
        """Decisions so far, repeated refusals included."""
        self._seed = seed
        self._replica = replica
        self._kubernetes = kubernetes
        self._close_look = CloseLook(
            share=settings.detail_share, best_nodes=settings.best_nodes, stopwatch=stopwatch, counts=counts
        )
        self._repeat_seconds = settings.repeat_after
        self._hand_on = hand_on
        self._policies: dict[str, Policy] = {}
        self._hash = ""
        self._fetched: tuple[Signals, dict[str | None, Readings]] = (Signals.EMPTY, {})
        self._diagnosed: tuple[Diagnosis | None, tuple[Reason, ...]] = (None, ())

    def use_policies(self, policies: PolicySet, *, hash: str) -> None:  # noqa: A002 - the record's word
        """Note the policies that decide from now on."""
        self._policies = {policy.name: policy for policy in policies.policies}
        self._hash = hash
        self._fetched = (Signals.EMPTY, {})

    # --- noting --------------------------------------------------------------------------------------

    def on_decided(self, decided: Decided) -> None:
        """Keep a decision, and why."""
        self.decided += 1
        decision = decided.decision
        found = decision.preemption
        evicts = found is not None and bool(found.victims)
        if decision.host is not None:
            outcome = Outcome.WAITING if decided.waits else Outcome.ASSIGNED
        else:
            outcome = Outcome.PREEMPTING if evicts else Outcome.UNSCHEDULABLE
        if self._is_repeated(decision.pod, outcome, decision.message or decided.waits, decided.at):
            return
        entry = Entry(
            decision.pod,
            decided.at,
            outcome,
            self._hash,
            policy=decided.policy,
            node=decision.host or (found.nominated_node or "" if found is not None else ""),
            message=decision.message or decided.waits,
            readings=self._readings(decided.frame.signals, decided.policy),
            queued=decided.queued,
            attempt=decided.attempts,
            nodes=decision.total,
            feasible=decision.feasible,
            ties=decision.ties,
            score=decision.score,
            seconds=decided.seconds,
        )
        if decision.diagnosis is not None:
            entry.reasons = self._reasons(decision.diagnosis)
        if found is not None and found.victims:
            entry.victims = tuple(victim.key for victim in found.victims)
            entry.short = decision.reclaim.short if decision.reclaim is not None else ()
        self._look(entry, decided)
        self._keep(entry)

    def on_compared(self, compared: Compared) -> None:
        """Keep what another scheduler did, beside what we would have done."""
        entry = Entry(
            compared.pod,
            compared.at,
            Outcome.SHADOW,
            self._hash,
            policy=compared.policy,
            node=compared.ours,
            message=compared.why,
            queued=compared.queued,
            score=compared.score,
            theirs=compared.theirs,
            verdict=compared.verdict.value,
            margin=compared.margin,
        )
        self.decided += 1
        decided = compared.decided
        if decided is not None:
            decision = decided.decision
            entry.readings = self._readings(decided.frame.signals, decided.policy)
            entry.attempt = decided.attempts
            entry.nodes, entry.feasible, entry.ties = decision.total, decision.feasible, decision.ties
            entry.reasons = self._reasons(decision.diagnosis) if decision.diagnosis is not None else ()
            self._look(entry, decided)
        self._keep(entry)

    def on_answered(self, answered: Answered) -> None:
        """Keep an answer to kube-scheduler."""
        self.decided += 1
        at = answered.frame.now
        if self._is_repeated(answered.pod, answered.outcome, answered.message, at):
            return
        entry = Entry(
            answered.pod,
            at,
            answered.outcome,
            self._hash,
            policy=answered.policy,
            node=answered.node,
            message=answered.message,
            reasons=answered.reasons,
            readings=self._readings(answered.frame.signals, answered.policy),
            queued=answered.queued,
            attempt=answered.attempts,
            nodes=answered.nodes,
            feasible=answered.passed,
            ties=answered.ties,
            score=answered.score,
            verb=answered.verb,
            bound_seconds=answered.bound_seconds,
        )
        if answered.profile is not None:
            entry.detail = self._close_look.take(
                answered.frame,
                answered.profile,
                host=answered.node or None,
                rows=answered.rows,
                queries=self._queries(answered.policy),
            )
        self._keep(entry)

    def on_held(self, held: PodHeld) -> None:
        """Keep why a pod is not decided at all."""
        if self._is_repeated(held.pod, Outcome.HELD, held.why, held.at):
            return
        self._keep(
            Entry(
                held.pod,
                held.at,
                Outcome.HELD,
                self._hash,
                policy=held.policy,
                message=held.why,
                queued=held.queued,
                attempt=held.attempts,
            )
        )

    def on_bound(self, bound: PodBound) -> None:
        """Note how long the binding took."""
        entry = self._latest.get(bound.pod.uid)
        if entry is not None and entry.node == bound.node_name:
            entry.bound_seconds = bound.seconds

    def on_failed(self, failed: AttemptFailed) -> None:
        """Keep an attempt that broke."""
        before = self._latest.get(failed.pod.uid)
        refused = failed.why.startswith(_BINDING_REFUSED)
        outcome = Outcome.BIND_FAILED if refused else Outcome.FAILED
        entry = Entry(failed.pod, failed.at, outcome, self._hash, message=failed.why, seconds=failed.seconds)
        if before is not None:
            if before.outcome in (Outcome.ASSIGNED, Outcome.WAITING):
                # other policies may be in use by now: these chose the node
                entry.hash = before.hash
            entry.policy, entry.queued, entry.attempt, entry.node = (
                before.policy,
                before.queued,
                before.attempt,
                before.node,
            )
        self._keep(entry)

    def _is_repeated(self, pod: PodInfo, outcome: Outcome, message: str, at: float) -> bool:
        """Count a refusal that says what the last one about the pod said."""
        last = self._latest.get(pod.uid)
        if (
            last is None
            or last.outcome is not outcome
            or last.message != message
            or not message
            or last.hash != self._hash
            or not 0 <= at - last.at < self._repeat_seconds
        ):
            return False
        last.repeats += 1
        last.last = at
        return True

    def _keep(self, entry: Entry) -> None:
        if self._size:
            self._count(entry, 1)
            self._entries.append(entry)
            self._latest[entry.pod.uid] = entry
            while len(self._entries) > self._size or (self._bytes > MOST_BYTES and len(self._entries) > 1):
                oldest = self._entries.popleft()
                self._count(oldest, -1)
                if self._latest.get(oldest.pod.uid) is oldest:
                    del self._latest[oldest.pod.uid]
        self._hand_on(entry)

    def _count(self, entry: Entry, number: int) -> None:
        """Add the bytes of an entry, or take them away; a template counts once, however many entries share it."""
        template = entry.pod.template
        users = self._templates[template] = self._templates.get(template, 0) + number
        self._bytes += number * entry.size
        if not users:
            del self._templates[template]
        if users == max(number, 0):  # the first comes, or the last goes
            self._bytes += number * template.size

    def _look(self, entry: Entry, decided: Decided) -> None:
        policy = self._policies.get(decided.policy or "")
        if policy is not None and decided.decision.total:
            entry.detail = self._close_look.take(
                decided.frame, policy.profile, host=decided.decision.host, queries=policy.queries
            )

    def _queries(self, policy: str | None) -> Sequence[Query]:
        found = self._policies.get(policy or "")
        return found.queries if found is not None else ()

    def _readings(self, signals: Signals, policy: str | None) -> Readings:
        """Return when the metrics of a pod's policy were fetched; one object for one set of readings."""
        if self._fetched[0] is not signals:
            self._fetched = (signals, {})
        known = self._fetched[1].get(policy)
        if known is None:
            readings = ((query.promql, signals.readings.get(query.promql)) for query in self._queries(policy))
            known = tuple((promql, found.fetched_at if found is not None else None) for promql, found in readings)
            self._fetched[1][policy] = known
        return known

    def _reasons(self, diagnosis: Diagnosis) -> tuple[Reason, ...]:
        """Return why nodes were rejected; pods of one template often share a diagnosis."""
        if self._diagnosed[0] is not diagnosis:
            self._diagnosed = (diagnosis, counted(diagnosis))
        return self._diagnosed[1]

    # --- reading -------------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """Return what is kept, oldest first. Call on the event loop; read it where you like."""
        return list(self._entries)

    def latest(self, uid: str) -> Entry | None:
        """Return the last entry about a pod, None where none is kept."""
        return self._latest.get(uid)

    def record(self, entry: Entry) -> DecisionRecord:
        """Return an entry as a document."""
        return recorded(entry, seed=self._seed, replica=self._replica, kubernetes=self._kubernetes)

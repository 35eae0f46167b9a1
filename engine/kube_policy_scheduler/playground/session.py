"""What the playground's page asks: policies, a pod and a cluster in; diagnostics, verdicts and explanations out. Pure.

Knows no rules itself: the compiler, the editor package, the scheduling cycle, `why` and `capture` answer. Offsets are
characters of a text. Arrays are NumPy arrays, one value per node in the order of `names`; NaN where there is none.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.defaulting import AdmissionError
from kube_policy_scheduler.cluster.nodes import FloatArray, IntArray
from kube_policy_scheduler.cluster.signals import Query, Signals
from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Fix, Severity, Source, errors
from kube_policy_scheduler.documents.writing import yaml_list_lines, yaml_text
from kube_policy_scheduler.documents.yaml_document import DocumentError, parse_document
from kube_policy_scheduler.editor import completion
from kube_policy_scheduler.editor.cluster_words import ClusterWords, together, words_in
from kube_policy_scheduler.editor.fixes import fixes
from kube_policy_scheduler.editor.hover import hover
from kube_policy_scheduler.editor.project import Project, look_at
from kube_policy_scheduler.framework.evaluate.evaluation import score
from kube_policy_scheduler.framework.evaluate.probe import probe
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause
from kube_policy_scheduler.lang.compiling.expressions import Evaluate
from kube_policy_scheduler.lang.formatting.format import Formatted, format_source
from kube_policy_scheduler.lang.load import SUFFIX
from kube_policy_scheduler.lang.memo import Memo
from kube_policy_scheduler.lang.types import Depends
from kube_policy_scheduler.playground.fleet import FleetQuestion
from kube_policy_scheduler.playground.fleet_edits import EditError, edited, edited_workload
from kube_policy_scheduler.policy.answer import Answer, Answers, NoDomain
from kube_policy_scheduler.policy.answer import answer as answer_of
from kube_policy_scheduler.policy.clauses import FilterClause, ScoreClause
from kube_policy_scheduler.policy.decision_inputs import KUBERNETES, DecisionInputs, Rules, unbound
from kube_policy_scheduler.policy.pending import Pending
from kube_policy_scheduler.policy.policy_set import PolicySet, load
from kube_policy_scheduler.quantities.quantity import QuantityError
from kube_policy_scheduler.times import parse_rfc3339, rfc3339
from kube_policy_scheduler.tooling.capture.freeze import NotReproduced, frozen
from kube_policy_scheduler.tooling.capture.reduce import ReducibleInputs
from kube_policy_scheduler.tooling.cluster_state import (
    UnknownPod,
    cluster_state,
    pod_in,
    stored_objects,
    waiting,
)
from kube_policy_scheduler.tooling.policy_reads import annotation_keys
from kube_policy_scheduler.tooling.simulation.run import run as simulate
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario
from kube_policy_scheduler.tooling.simulation.stream import arrivals_of
from kube_policy_scheduler.tooling.snapshot.fields import recorded_objects
from kube_policy_scheduler.tooling.snapshot.metrics import recorded_metrics
from kube_policy_scheduler.tooling.tester.suite_file import read_metrics, suite_text
from kube_policy_scheduler.tooling.text_table import Terminal
from kube_policy_scheduler.tooling.why.changes import Change
from kube_policy_scheduler.tooling.why.explain import explain
from kube_policy_scheduler.tooling.why.filters import near_misses, rejections
from kube_policy_scheduler.tooling.why.report import lines
from kube_policy_scheduler.tooling.why.scores import amount_text
from kube_policy_scheduler.wording import plural, signed

MOST_FILES = 100
MOST_TEXT = 512 * 1024
"""Characters of all policies of a request together."""
MOST_POD_TEXT = 64 * 1024
"""Characters of a pod's YAML."""
MOST_FLEET_TEXT = 64 * 1024
"""Characters of the YAML with the clusters of a fleet and a workload."""
MOST_NAME = 300
MOST_PODS = 2000
"""Pods in the list of the page, those that wait first."""
FLEET_FILE = "fleet.yaml"
"""The name under which diagnostics of a fleet's YAML come."""
POD_FILE = "pod.yaml"
"""The name under which diagnostics of a pod's YAML come."""
_POD_UID = "playground-pod"
_KEPT_PODS = 8


class RequestError(ValueError):
    """A request asks for what is not there or must not be; the text says so to people."""


class Superseded(Exception):
    """Nobody waits for the answer any more."""


Checkpoint = Callable[[], None]
"""Called between steps of long work; raises to end it."""


def _go_on() -> None:
    return


class Origin(Enum):
    """Where a cluster comes from."""

    FIXTURE = "fixture"
    SNAPSHOT = "snapshot"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class OpenedCluster:
    """A cluster to try policies on."""

    name: str
    """As people know it: a path, or a context of a kubeconfig."""
    origin: Origin
    things: Sequence[Any]
    """API objects as stored."""
    now: float
    """When decisions are made, Unix seconds."""
    metrics: Sequence[str] = ()
    """Metrics that have values, for completion."""
    option: str = ""
    """The options of `policyctl` that mean this cluster; "": none do."""
    taken: float | None = None
    """When the cluster was like this, Unix seconds; None: nobody knows, or it never changes."""
    problems: Callable[[], Sequence[str]] = tuple
    """Returns why metrics have no values, in sentences."""
    kubernetes: KubernetesRules = DEFAULT_RULES
    """By whose rules pods are decided."""


class PodChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pod of the cluster, or one that is written."""

    key: str | None = None
    """`NAMESPACE/NAME`"""
    yaml: str | None = None


class WorkloadChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The clusters of a fleet and a workload, as they are written."""

    yaml: str
    file: str = ""
    """The policy that the page shows: whether it is about workloads decides what is asked; "": all of them together."""


Files = dict[str, str]
"""Texts of policies by name."""
Measure = Callable[[Sequence[Query]], Signals]
"""From the queries of policies to what is known of their values."""


@dataclass(frozen=True, slots=True)
class _Look:
    """One set of policies, checked and compiled."""

    texts: Files
    project: Project
    policy_set: PolicySet | None
    """None if they have errors."""
    memo: Memo


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """One clause or rule, and what it says about each node."""

    clause: CompiledClause | None
    """None for Kubernetes' own."""
    kind: str
    """`filter`, `score`, or `rule`: one of Kubernetes' own, or one that says nothing about nodes."""
    name: str
    values: FloatArray | None = None
    """`float64[nodes]`: of a filter 1 where nodes pass, of a score what it adds where all filters pass."""
    rejects: int | None = None
    average: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """What filters and scores said about each node; who has the same callable says the same of the same pod."""

    of: Any
    """The pod and the cluster."""
    feasible: IntArray
    passing: Mapping[Evaluate, FloatArray]
    scores: Mapping[tuple[Evaluate, float], FloatArray | IntArray]
    """By callable and weight, of the feasible nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What policies say about a pod on every node."""

    policy: str | None
    rows: tuple[_Row, ...]
    total: FloatArray
    rejected_by: IntArray
    """`int64[nodes]`: the index of the first clause that rejects, -1 where none does."""
    chosen: str | None
    message: str
    gang: dict[str, Any] | None = None
    """Of a pod whose gang must be in one domain: which, or those with the most room."""


class Session:
    """A cluster and the last look at policies. One caller at a time."""

    def __init__(
        self,
        files: Mapping[str, str],
        cluster: OpenedCluster,
        *,
        measure: Measure | None = None,
        seed: int = 0,
        pod: PodChoice | None = None,
        fleet: str = "",
    ) -> None:
        """Start with policies and a cluster.

        Args:
            files: the policies that were opened.
            cluster: where they are tried.
            measure: knows metrics; None: no metric has a value.
            seed: breaks ties.
            pod: the one to begin with; None: the page chooses.
            fleet: the clusters of a fleet and a workload to begin with, as YAML; "": the page chooses.
        """
        self.first_fleet = fleet
        self._first_pod = pod
        self.opened: Files = dict(files)
        self._measure = measure or (lambda queries: Signals.EMPTY)
        self._seed = seed
        self._looks: dict[str, _Look] = {}
        self._pods: dict[tuple[str, str], objects.Pod] = {}
        self._verdicts: dict[str, tuple[tuple[Any, ...], Verdict]] = {}
        self._columns: dict[str, _Columns] = {}
        self._version = 0
        self.open(cluster)

    # --- the cluster -------------------------------------------------------------------------------------

    def open(self, cluster: OpenedCluster, measure: Measure | None = None) -> None:
        """Try policies on another cluster from now on; measure: knows its metrics, None: as before."""
        self.cluster = cluster
        self._measure = measure or self._measure
        self._state = cluster_state(cluster.things, cluster.kubernetes)
        self._version += 1
        self._verdicts.clear()
        self._columns.clear()
        self._pods.clear()
        self._words = _words(cluster)

    def reopen(self) -> None:
        """Reopen the same cluster, because work on it was stopped at an unknown point."""
        self._looks.clear()
        self.open(self.cluster)

    @property
    def _nodes(self) -> Any:
        return self._state.cluster.nodes

    def state(self) -> dict[str, Any]:
        """Return what the page starts with: the files, the cluster, its nodes and pods."""
        nodes, cluster = self._nodes, self.cluster
        waits = [pod for pod in self._state.pods.values() if not pod.spec.node_name and not _is_done(pod)]
        placed = [pod for pod in self._state.pods.values() if pod.spec.node_name and not _is_done(pod)]
        return {
            "files": [{"name": name, "text": text} for name, text in self.opened.items()],
            "cluster": {
                "name": cluster.name,
                "source": cluster.origin.value,
                "again": cluster.origin is Origin.LIVE or bool(cluster.option),
                "nodes": nodes.size,
                "pods": len(self._state.pods),
                "waiting": len(waits),
                "now": cluster.now,
            },
            "namesVersion": self._version,
            "names": list(nodes.names),
            "zones": _domains(nodes, "topology.kubernetes.io/zone"),
            "racks": _domains(nodes, "topology.kubernetes.io/rack"),
            "used": {name: _used(nodes, name).astype(np.float32) for name in ("cpu", "memory")},
            "pod": {"key": first.key, "yaml": first.yaml} if (first := self._first_pod) is not None else None,
            "pods": [_listed(pod) for pod in (*waits, *placed)[:MOST_PODS]],
            "metrics": sorted(self._words.metrics),
            "limits": {"files": MOST_FILES, "text": MOST_TEXT, "pod": MOST_POD_TEXT, "pods": MOST_PODS},
        }

    def pod_text(self, key: str) -> str:
        """Return a pod of the cluster as YAML, without its node and status, to change it."""
        return _pod_text(self._find(key))

    # --- policies ----------------------------------------------------------------------------------------

    def _look(self, files: Files, *, side: str = "main") -> _Look:
        """Check and compile policies; what did not change since the last look is not done again."""
        check_files(files)
        before = self._looks.get(side)
        if before is not None and before.texts == files:
            return before
        sources = [Source(name, text) for name, text in files.items()]
        last = before.project if before is not None else None
        project = look_at(sources, environment(), before=last, complete=False)
        known = before.memo.known if before is not None else {}
        memo = Memo({**known, **project.memo.known})
        failed = any(errors(found) for found in project.diagnostics.values())
        policy_set = None if failed else load(sources, memo=memo, rules=False).policy_set
        kept = Memo()
        kept.known.update(memo.known if not failed else known)
        made = _Look(dict(files), project, policy_set, kept)
        self._looks[side] = made
        return made

    def _project(self, files: Files, file: str) -> tuple[Project, Source]:
        project = self._look(files).project
        source = project.sources.get(file)
        if source is None:
            raise RequestError(f"there is no file `{file}`")
        return project, source

    def complete(self, files: Files, file: str, offset: int, *, fleet: str = "") -> list[dict[str, Any]]:
        """Return what can be written at an offset, the most likely first; fleet: clusters and a workload, as YAML."""
        project, source = self._project(files, file)
        words = together(self._words, _words_of_fleet(fleet)) if fleet else self._words
        found = completion.complete(project, file, _within(offset, source), words)
        return [
            {
                "start": item.start,
                "label": item.label,
                "insert": item.text or item.label,
                "kind": item.kind.value,
                "detail": item.detail,
                "documentation": item.doc,
            }
            for item in found
        ]

    def hover(self, files: Files, file: str, offset: int) -> dict[str, Any] | None:
        """Return what is known of the word at an offset."""
        project, source = self._project(files, file)
        found = hover(project, file, _within(offset, source))
        return None if found is None else {"start": found.span.start, "end": found.span.end, "markdown": found.text}

    def format(self, files: Files, file: str) -> str:
        """Return a file as `policyctl fmt` writes it; as it is if it has errors."""
        check_files(files)
        if file not in files:
            raise RequestError(f"there is no file `{file}`")
        done = format_source(Source(file, files[file]))
        return done.text if isinstance(done, Formatted) else files[file]

    # --- verdicts ----------------------------------------------------------------------------------------

    def evaluate(
        self,
        files: Files,
        pod: PodChoice,
        *,
        against: Files | None = None,
        clause: int | None = None,
        known_names: int | None = None,
        workload: WorkloadChoice | None = None,
        go_on: Checkpoint = _go_on,
    ) -> dict[str, Any]:
        """Return the errors of policies, and what they say about a pod on every node, or a workload on every cluster.

        Args:
            files: the policies.
            pod: the pod; it is asked about unless the policies that are shown are about workloads.
            against: other policies, for a second verdict.
            clause: whose values come along; None: of none.
            known_names: the version of the names that the caller has.
            workload: the workload, and the clusters that it may go to.
            go_on: raises where the answer is not wanted any more.
        """
        look = self._look(files)
        go_on()
        if workload is not None and _is_of_workloads(look, workload.file):
            return self._evaluate_workload(look, workload, against, go_on)
        found = [_diagnostic(each) for of_file in look.project.diagnostics.values() for each in of_file]
        subject = "pod" if look.policy_set is not None else None
        answer: dict[str, Any] = {"subject": subject, "diagnostics": found, "verdict": None, "against": None}
        try:
            answer["verdict"] = self._shown_verdict("main", look, pod, clause, known_names, go_on)
            if against is not None:
                other = self._look(against, side="against")
                go_on()
                answer["against"] = self._shown_verdict("against", other, pod, clause, known_names, go_on)
        except DocumentError as error:
            found.extend(_diagnostic(each) for each in error.diagnostics)
        queries = look.policy_set.queries if look.policy_set is not None else ()
        answer["problems"] = self._metric_problems(queries, self._measure(queries))
        return answer

    def _metric_problems(self, queries: Sequence[Query], signals: Signals) -> list[str]:
        """Return the metrics that have no value at all, each with the reason where it is known."""
        known = list(self.cluster.problems())
        for promql in dict.fromkeys(query.promql for query in queries):
            reading = signals.readings.get(promql)
            is_empty = reading is None or (not len(reading.series) and reading.scalar is None)
            if is_empty and not any(each.startswith(promql) for each in known):
                known.append(f"{promql}: it has no series")
        return known

    # --- workloads of a fleet ----------------------------------------------------------------------------

    def _evaluate_workload(
        self, look: _Look, choice: WorkloadChoice, against: Files | None, go_on: Checkpoint
    ) -> dict[str, Any]:
        """Return what `evaluate` does, with what policies say about a workload on every cluster as `fleet`."""
        found = [_diagnostic(each) for of_file in look.project.diagnostics.values() for each in of_file]
        answer: dict[str, Any] = {
            "subject": "fleet", "diagnostics": found, "verdict": None, "against": None, "fleet": None, "problems": [],
        }  # fmt: skip
        try:
            asked = self._fleet(choice.yaml)
        except DocumentError as error:
            found.extend(_diagnostic(each) for each in error.diagnostics)
            return answer
        go_on()
        answer["fleet"], answer["problems"] = self._shown_fleet(look, asked)
        if against is not None:
            go_on()
            answer["against"], _ = self._shown_fleet(self._look(against, side="against"), asked)
        return answer

    def _shown_fleet(self, look: _Look, asked: FleetQuestion) -> tuple[dict[str, Any] | None, list[str]]:
        if look.policy_set is None:
            return None, []
        policies = look.policy_set.fleet
        signals = asked.signals(policies.queries)
        if signals is None:
            signals = self._measure(policies.queries)
        return asked.shown(policies, signals), self._metric_problems(policies.queries, signals)

    def _fleet(self, text: str) -> FleetQuestion:
        if len(text) > MOST_FLEET_TEXT:
            raise RequestError(f"the fleet has {len(text):,} characters, at most {MOST_FLEET_TEXT:,} are allowed")
        return FleetQuestion(Source(FLEET_FILE, text), now=self.cluster.now)

    def test_of_workload(self, files: Files, choice: WorkloadChoice) -> CapturedTest:
        """Return a test that repeats the decision about a workload.

        Raises:
            DocumentError: the fleet cannot be read.
            RequestError: the policies have errors, none of them governs the workload, or nobody says their metrics.
        """
        look = self._look(files)
        if look.policy_set is None:
            raise RequestError("the policies have errors: correct them first")
        asked, policies = self._fleet(choice.yaml), look.policy_set.fleet
        governing = policies.governing(asked.workload)
        if governing is None:
            raise RequestError("a test needs a policy that governs the workload")
        signals = asked.signals(policies.queries)
        if signals is None and policies.queries:
            names = ", ".join(query.promql for query in policies.queries)
            raise RequestError(f"a test needs the values of {names}: write them below the workload, under `metrics`")
        document = asked.test(policies, signals or Signals.EMPTY)
        return CapturedTest([governing.checked.source.name], document, comment="written by the playground of policyctl")

    def edit_fleet(self, text: str, cluster: str | None, key: str, value: str) -> str:
        """Return the YAML of a fleet with another value of a cluster, or of the workload; the rest is as it was.

        Args:
            text: the YAML.
            cluster: the name of a cluster in it; None: the workload.
            key: what to change, such as `region`.
            value: as people write it in a cell; empty: the cluster or workload says nothing of it.

        Raises:
            DocumentError: the text is not YAML.
            RequestError: the edit cannot be made.
        """
        if max(len(text), len(value)) > MOST_FLEET_TEXT:
            raise RequestError(f"the fleet and its values may have {MOST_FLEET_TEXT:,} characters")
        try:
            source = Source(FLEET_FILE, text)
            return edited_workload(source, key, value) if cluster is None else edited(source, cluster, key, value)
        except EditError as error:
            raise RequestError(str(error)) from error

    def lint(self, files: Files, *, go_on: Checkpoint = _go_on) -> list[dict[str, Any]]:
        """Return all that is wrong with policies, with the findings of the lint rules."""
        look = self._look(files)
        go_on()
        project = look_at(tuple(look.project.sources.values()), environment(), before=look.project, go_on=go_on)
        return [_diagnostic(each) for of_file in project.diagnostics.values() for each in of_file]

    def values(self, files: Files, pod: PodChoice, clause: int, *, side: str = "main") -> FloatArray | None:
        """Return what a clause of a verdict says about each node; None if it says nothing about nodes."""
        verdict = self._verdict(side, self._look(files, side=side), pod)
        rows = verdict.rows if verdict is not None else ()
        if not 0 <= clause < len(rows):
            raise RequestError(f"there is no clause {clause}: the verdict has {len(rows)}")
        return rows[clause].values

    def _shown_verdict(
        self, side: str, look: _Look, pod: PodChoice, clause: int | None, known_names: int | None, go_on: Checkpoint
    ) -> dict[str, Any] | None:
        verdict = self._verdict(side, look, pod, go_on)
        if verdict is None:
            return None
        shown: dict[str, Any] = {
            "policy": verdict.policy,
            "namesVersion": self._version,
            "total": verdict.total.astype(np.float32),
            "rejectedBy": verdict.rejected_by.astype(np.int16),
            "clauses": [_shown_row(index, row, with_values=index == clause) for index, row in enumerate(verdict.rows)],
            "chosen": verdict.chosen,
            "message": verdict.message,
            "gang": verdict.gang,
        }
        if known_names != self._version:
            shown["names"] = list(self._nodes.names)
        return shown

    def _verdict(self, side: str, look: _Look, pod: PodChoice, go_on: Checkpoint = _go_on) -> Verdict | None:
        """Return the verdict of policies; None if they have errors."""
        if look.policy_set is None:
            return None
        key = (tuple(look.texts.items()), pod)
        known = self._verdicts.get(side)
        if known is not None and known[0] == key:
            return known[1]
        with self._inputs(look, pod) as (inputs, _):
            made = self._decide(side, pod, inputs, go_on)
        self._verdicts[side] = key, made
        return made

    @contextmanager
    def _inputs(self, look: _Look, choice: PodChoice) -> Iterator[tuple[DecisionInputs | None, str | None]]:
        """Yield the inputs of the decision, and the node that the pod is on; no inputs where no policy governs it."""
        assert look.policy_set is not None
        pod = self._pod(choice, look.policy_set)
        with self._claims_of(pod, made=choice.yaml is not None), waiting(pod, self._state.cluster) as (free, bound):
            rules = self._rules(look, free)
            if rules is None:
                yield None, bound
                return
            signals = self._measure(look.policy_set.queries)
            yield (
                DecisionInputs.of(
                    free,
                    self._state.cluster,
                    rules,
                    signals=signals,
                    now=self.cluster.now,
                    seed=self._seed,
                    pending=Pending(self._state.pending()),
                ),
                bound,
            )

    @contextmanager
    def _claims_of(self, pod: objects.Pod, *, made: bool) -> Iterator[None]:
        """Let a written pod have the claims of its templates while it lasts."""
        if not made or not pod.spec.resource_claims:
            yield
            return
        self._state.create(pod)
        names = [one.resource_claim_name for one in pod.status.resource_claim_statuses or ()]
        try:
            yield
        finally:
            claims = self._state.cluster.resource_claims
            for name in names:
                claim = claims.get(f"{pod.metadata.namespace}/{name}")
                if claim is not None:
                    self._state.cluster.remove_object(claim)
            pod.status.resource_claim_statuses = None

    def _pod(self, choice: PodChoice, policy_set: PolicySet) -> objects.Pod:
        if (choice.key is None) == (choice.yaml is None):
            raise RequestError("a pod is either `key` or `yaml`")
        if choice.key is not None:
            return self._find(choice.key)
        text = choice.yaml or ""
        if len(text) > MOST_POD_TEXT:
            raise RequestError(f"the pod has {len(text):,} characters, at most {MOST_POD_TEXT:,} are allowed")
        scheduler = min(policy_set.schedulers or policy_set.default_schedulers)
        known = self._pods.get((text, scheduler))
        if known is None:
            source = Source(POD_FILE, text)
            found = pod_in(source)
            try:
                known = stored_objects([found], scheduler=scheduler)[0]
                self._state.cluster.templates.pod(known)  # reads its quantities
            except (AdmissionError, QuantityError) as error:
                raise DocumentError([found.error((), str(error))]) from error
            known.metadata.uid = _POD_UID
            known.spec.node_name = ""
            if len(self._pods) >= _KEPT_PODS:
                self._pods.clear()
            self._pods[text, scheduler] = known
        return known

    def _find(self, key: str) -> objects.Pod:
        try:
            return self._state.find(key)
        except UnknownPod as error:
            raise RequestError(str(error)) from error

    def _rules(self, look: _Look, pod: objects.Pod) -> Rules | None:
        """Return who decides about a pod: the policy that governs it, or would if the pod named its scheduler."""
        policy_set = look.policy_set
        assert policy_set is not None
        if not policy_set.policies:
            return KUBERNETES
        info = self._state.cluster.templates.pod(pod)
        for asked in (policy_set, policy_set.standing_in_as(policy_set.schedulers)):
            if (policy := asked.governing(info)) is not None:
                break
        else:
            return None
        sources = tuple(look.project.sources.values())
        memo = Memo(look.memo.known)

        def recompile(changed: Sequence[Source]) -> PolicySet | None:
            return load(changed, memo=Memo(memo.known | look.memo.known), rules=False).policy_set

        return Rules(policy.profile, policy, sources, recompile, asked)

    def _decide(self, side: str, pod: PodChoice, inputs: DecisionInputs | None, go_on: Checkpoint) -> Verdict:
        size = self._nodes.size
        nothing = np.full(size, np.nan)
        if inputs is None:
            message = "none of the policies governs this pod: see `for pod` in their first lines"
            return Verdict(None, (), nothing, np.full(size, -1), None, message)
        answers = Answers(seed=self._seed)
        answer = answers.answer(inputs)
        go_on()
        inside = answer.inputs
        of = pod, inside.pod.scheduler_name
        before = self._columns.get(side)
        rows, columns = _rows(inside, answers, go_on, of=of, before=before)
        self._columns[side], feasible = columns, columns.feasible
        rejected_by = np.full(size, -1)
        for index in range(len(rows) - 1, -1, -1):
            row = rows[index]
            if row.kind != "score" and row.rejects and row.values is not None:
                rejected_by[row.values == 0.0] = index
        total = nothing
        if len(feasible):
            total[feasible] = answers.totals(inside, feasible)
        go_on()
        gang = self._gang(answer)
        return Verdict(inside.profile.name, rows, total, rejected_by, answer.host, answer.text, gang)

    def _gang(self, answer: Answer) -> dict[str, Any] | None:
        """Return the domains from which a pod's gang gets one, and which it gets; None if it may be on any nodes."""
        taken = answer.domains
        rooms = answer.best if isinstance(answer, NoDomain) else ()
        domains = taken or tuple(each.domain for each in rooms)
        if not domains:
            return None
        key = domains[-1].key
        return {
            "key": key,
            "domains": _domains(self._nodes, key),
            "taken": taken[-1].value if taken else None,
            "rooms": [
                {"domain": each.domain.value, "room": each.room, "needed": each.needed}
                for each in rooms
                if each.domain.key == key
            ],
        }

    # --- explanations ------------------------------------------------------------------------------------

    def node(self, files: Files, pod: PodChoice, name: str) -> dict[str, Any]:
        """Return the sum of one node, and what it lacks."""
        row = self._nodes.rows.get(name)
        if row is None:
            raise RequestError(f"there is no node `{name}`")
        look = self._look(files)
        verdict = self._verdict("main", look, pod)
        info = self._nodes.infos[row]
        answer: dict[str, Any] = {
            "node": name,
            "sum": [],
            "total": None,
            "rank": None,
            "passes": False,
            "needs": [],
            "labels": dict(sorted(info.labels.items())),
            "taints": [f"{taint.key}={taint.value}:{taint.effect}" for taint in info.taints],
            "free": _free(self._nodes, row),
        }
        if verdict is None:
            return answer
        total = float(verdict.total[row])
        if total == total:
            answer |= {"total": total, "passes": True, "rank": int((verdict.total > total).sum()) + 1}
        for index, each in enumerate(verdict.rows):
            if each.kind == "score" and each.values is not None and each.values[row] == each.values[row]:
                answer["sum"].append(
                    {"clause": index, "text": each.name, "value": float(each.values[row]), "unit": None}
                )
        if not answer["passes"]:
            with self._inputs(look, pod) as (inputs, _):
                if inputs is not None:
                    inside = answer_of(inputs).inputs
                    answer["needs"] = list(near_misses(rejections(inside), [row])[0].lacks)
        return answer

    def why(self, files: Files, pod: PodChoice) -> dict[str, Any]:
        """Return what `policyctl why` says, and the changes that would help."""
        look = self._look(files)
        if look.policy_set is None:
            return {"text": "The policies have errors: correct them first.", "remedies": []}
        with self._inputs(look, pod) as (inputs, bound):
            if inputs is None:
                return {"text": "None of the policies governs this pod.", "remedies": []}
            found = explain(inputs, bound=bound)
        remedies = [
            {
                "title": change.text,
                "detail": f"{plural(change.nodes, 'node')} would fit; it would go to {change.node}",
                "edits": [_edit(change.edit)] if change.edit is not None else None,
                "yaml": _pod_text(change.pod) if change.pod is not None else None,
                "command": self._remedy_command(change, files, pod),
            }
            for change in found.changes
        ]
        return {"text": "\n".join(lines(found, to=Terminal())), "remedies": remedies}

    def _remedy_command(self, change: Change, files: Files, pod: PodChoice) -> str | None:
        """Return the line that makes a change which the page cannot make, or the one that explains it elsewhere."""
        if change.edit is not None or change.pod is not None:
            return None
        if not change.command:
            return self.command(files, pod)
        return change.command + (f" {self.cluster.option}" if self.cluster.origin is Origin.LIVE else "")

    def command(self, files: Files, pod: PodChoice) -> str:
        """Return the command line that explains the same decision."""
        subject = pod.key if pod.key is not None else POD_FILE
        options = [f"--policies {shlex.quote(name)}" for name in files]
        return " ".join(filter(None, ["policyctl why", shlex.quote(subject or ""), self.cluster.option, *options]))

    # --- what is kept and shared -------------------------------------------------------------------------

    def recorded(self, files: Files) -> dict[str, Any]:
        """Return the cluster as in a snapshot, without what scheduling does not read: `objects` and `metrics`.

        Of metrics it has those that the policies query.
        """
        policy_set = self._look(files).policy_set
        policies = policy_set.policies if policy_set is not None else ()
        queries = policy_set.queries if policy_set is not None else ()
        metrics = recorded_metrics(
            queries, signals=self._measure(queries), nodes=self._state.cluster.nodes, now=self.cluster.now
        )
        return {
            "objects": recorded_objects(self.cluster.things, annotations=annotation_keys(policies)),
            "metrics": metrics,
        }

    def inputs(self, files: Files) -> dict[str, str]:
        """Return the time of the decision and the metrics that the policies query, as text to edit."""
        metrics = self.recorded(files)["metrics"]
        return {"now": rfc3339(self.cluster.now), "metrics": yaml_text(metrics) if metrics else ""}

    def assume(self, now: str, metrics: str) -> None:
        """Decide at another time and with other metrics from now on.

        Args:
            now: as in RFC 3339.
            metrics: as below `metrics` of a test file; empty: no metric has a value.

        Raises:
            RequestError: either cannot be read.
        """
        try:
            at = parse_rfc3339(now).timestamp()
        except ValueError as error:
            raise RequestError(f"expected a time such as 2026-05-04T12:00:00Z, got {now[:40]!r}") from error
        try:
            found = read_metrics(parse_document(Source("metrics", metrics or "{}")))
        except DocumentError as error:
            raise RequestError(str(error.diagnostics[0])) from error
        cluster = replace(self.cluster, now=at, problems=tuple)
        self.open(cluster, lambda queries: found.signals(queries, now=at))

    def test_of(self, files: Files, pod: PodChoice, *, go_on: Checkpoint = _go_on) -> CapturedTest:
        """Return the smallest test that repeats the decision, as `policyctl capture` finds it.

        Raises:
            RequestError: the policies have errors, or the decision cannot be a test.
        """
        look = self._look(files)
        if look.policy_set is None:
            raise RequestError("the policies have errors: correct them first")
        asked = self._pod(pod, look.policy_set)
        rules = self._rules(look, asked)
        policy = rules.policy if rules is not None else None
        if rules is None or policy is None:
            raise RequestError("a test needs a policy that governs the pod")
        scheduler = policy.scheduler or min(look.policy_set.default_schedulers)
        now = float(int(self.cluster.now))  # a test's clock has whole seconds
        free = unbound(asked, scheduler=scheduler)
        things = [free if thing is asked else thing for thing in self.cluster.things]
        reducible = replace(
            ReducibleInputs.of(things, free, rules, seed=self._seed, now=now),
            signals=self._measure(look.policy_set.queries),
            kubernetes=self.cluster.kubernetes,
        )

        def progress(_: str) -> None:
            go_on()

        try:
            made = frozen(reducible, scheduler=scheduler, annotations=annotation_keys([policy]), progress=progress)
        except NotReproduced as error:
            raise RequestError(str(error)) from error
        deciding = [each for each in (policy.stable, policy) if each is not None]
        names = [each.compiled.checked.source.name for each in deciding]
        return CapturedTest(names, made.document, made.others, f"captured by policyctl: {made.kept} matter")

    def simulation(self, files: Files) -> Callable[[int, int, Checkpoint], dict[str, Any]]:
        """Return what simulates the pods that wait, one a second; it may run beside other questions.

        It takes a seed, how many pods to let arrive (0: each once), and a checkpoint.

        Raises:
            RequestError: no pod waits.
        """
        check_files(files)
        cluster, measure = self.cluster, self._measure
        waiting_pods = [
            thing
            for thing in cluster.things
            if isinstance(thing, objects.Pod) and not thing.spec.node_name and not _is_done(thing)
        ]
        if not waiting_pods:
            raise RequestError("no pods wait in this cluster: there is nothing to simulate")
        known = set(map(id, waiting_pods))
        standing = [thing for thing in cluster.things if id(thing) not in known]

        def simulated(seed: int, count: int, go_on: Checkpoint) -> dict[str, Any]:
            loaded = load([Source(name, text) for name, text in files.items()], rules=False).policy_set
            if loaded is None:
                raise RequestError("the policies have errors: correct them first")
            go_on()
            signals = measure(loaded.queries)
            variant = PolicyVariant("policies", loaded if loaded.policies else None, signals)
            arrivals = _arrivals(waiting_pods, min(count or len(waiting_pods), MOST_ARRIVALS))
            film = _Film(go_on, standing, span=float(len(arrivals)))
            scenario = Scenario(standing, arrivals, starts_at=cluster.now, kubernetes=cluster.kubernetes)
            done = simulate(
                scenario, variant, seed=seed, stopwatch=lambda: 0.0, progress=lambda _: go_on(), watch=film.watch
            )
            return film.shown() | {
                "summary": {
                    "arrived": done.arrived,
                    "placed": done.placed,
                    "evicted": done.evicted,
                    "waiting": done.unplaced,
                    "reasons": dict(done.reasons),
                }
            }

        return simulated


@dataclass(frozen=True, slots=True)
class CapturedTest:
    """A decision as a test."""

    policies: list[str]
    """The files that the test is about."""
    document: Mapping[str, Any]
    """The test file, but for `policy` and `cluster`, which name files."""
    others: Sequence[Mapping[str, Any]] = ()
    """Objects for a fixture file beside it."""
    comment: str = ""
    """What stands above."""

    def texts(self, policies: Sequence[str], *, beside: str) -> tuple[str, str]:
        """Return the text of the test, and that of the fixture file beside it; "" where it needs none.

        Args:
            policies: how the test names its policies.
            beside: the name of the fixture file.
        """
        document: dict[str, Any] = {"policy": list(policies) if len(policies) > 1 else policies[0]}
        if self.others:
            document["cluster"] = beside
        text = suite_text({**document, **self.document}, comment=self.comment)
        return text, "".join(yaml_list_lines(self.others, annotations={})) if self.others else ""


MOST_ARRIVALS = 2000
MOST_FRAMES = 200
_MOST_SHARES = 1_000_000
"""Shares of nodes in all frames together."""


def _arrivals(pods: Sequence[objects.Pod], count: int) -> list[Arrival]:
    """Return pods one a second, the oldest first; where there are fewer than asked for, they arrive again."""
    ordered = [arrival.pod for arrival in sorted(arrivals_of(pods), key=lambda each: each.at)]
    done = []
    for at in range(count):
        pod, again = ordered[at % len(ordered)], at // len(ordered)
        name = f"{pod.metadata.name}~{again + 1}" if again else pod.metadata.name
        done.append(Arrival(float(at), name, pod))
    return done


class _Film:
    """Records where pods are from moment to moment."""

    def __init__(self, go_on: Checkpoint, standing: Sequence[Any], *, span: float) -> None:
        self._go_on = go_on
        self._span = span
        self._next = 0.0
        pods = (each for each in standing if isinstance(each, objects.Pod))
        self._where = {f"{pod.metadata.namespace}/{pod.metadata.name}": pod.spec.node_name for pod in pods}
        self._frames: list[dict[str, Any]] = []
        self._used: list[FloatArray] = []
        self._last: Cluster | None = None
        self._last_at = 0.0

    def watch(self, at: float, cluster: Cluster) -> None:
        """Look at a moment."""
        self._go_on()
        self._last, self._last_at = cluster, at
        if at >= self._next and len(self._frames) < self._most(cluster):
            self._take(at, cluster)
            self._next = at + self._span / self._most(cluster)

    def _most(self, cluster: Cluster) -> int:
        return max(2, min(MOST_FRAMES, _MOST_SHARES // max(1, cluster.nodes.size)) - 1)

    def _take(self, at: float, cluster: Cluster) -> None:
        where = {f"{pod.namespace}/{pod.name}": cluster.node_of(uid) or "" for uid, pod in cluster.pods.items()}
        bound = [[key, node] for key, node in where.items() if node and self._where.get(key) != node]
        gone = [key for key in self._where if key not in where]
        self._where = where
        self._frames.append({"at": at, "bound": bound, "gone": gone})
        nodes = cluster.nodes
        used = np.fmax(_used(nodes, "cpu"), _used(nodes, "memory"))
        self._used.append(np.round(used, 3).astype(np.float32))

    def shown(self) -> dict[str, Any]:
        """Return the frames, the last moment among them."""
        if self._last is not None and (not self._frames or self._frames[-1]["at"] != self._last_at):
            self._take(self._last_at, self._last)
        return {"frames": self._frames, "used": self._used}


def _is_default(toleration: Mapping[str, Any]) -> bool:
    """Return whether the API server gives a pod this toleration by itself."""
    found = toleration.get("operator"), toleration.get("effect")
    return toleration.get("key") in _DEFAULT_TOLERATIONS and found == ("Exists", "NoExecute")


_DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def _pod_text(pod: objects.Pod) -> str:
    made = msgspec.to_builtins(pod)
    meta = {name: each for name, each in made["metadata"].items() if name in _KEPT_METADATA and each}
    tolerations = made["spec"].get("tolerations") or ()
    made["spec"]["tolerations"] = [each for each in tolerations if not _is_default(each)]
    spec = _without_empty({name: each for name, each in made["spec"].items() if name not in _DROPPED_SPEC})
    return yaml_text({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


# --- parts of answers ------------------------------------------------------------------------------------

_SEVERITIES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "information"}
_KEPT_METADATA = ("name", "namespace", "labels", "annotations")
_DROPPED_SPEC = ("nodeName", "priority", "preemptionPolicy")


def check_files(files: Files) -> None:
    """Raise a `RequestError` if policies are too many or too large, or if the name of one is not a policy's."""
    if len(files) > MOST_FILES:
        raise RequestError(f"{plural(len(files), 'file')}, at most {MOST_FILES} are allowed")
    total = sum(map(len, files.values()))
    if total > MOST_TEXT:
        raise RequestError(f"the policies have {total:,} characters, at most {MOST_TEXT:,} are allowed")
    for name in files:
        if not name.endswith(SUFFIX) or len(name) > MOST_NAME or not name.isprintable():
            raise RequestError(f"the name of a policy file ends with {SUFFIX}, this is `{name[:MOST_NAME]}`")


def _is_of_workloads(look: _Look, file: str) -> bool:
    """Return whether a policy is about workloads; "", or a file without policies: whether all policies are."""
    if look.policy_set is None:
        return False
    workloads = {each.checked.source.name for each in look.policy_set.fleet.policies}
    return file in workloads or bool(workloads and not look.policy_set.policies)


def _within(offset: int, source: Source) -> int:
    if not 0 <= offset <= len(source.text):
        raise RequestError(f"offset {offset} is outside of `{source.name}`, which has {len(source.text):,} characters")
    return offset


def _diagnostic(found: Diagnostic) -> dict[str, Any]:
    return {
        "file": found.span.source.name,
        "start": found.span.start,
        "end": found.span.end,
        "severity": _SEVERITIES[found.severity],
        "code": found.code,
        "message": found.message,
        "help": found.help,
        "notes": list(found.notes),
        "fixes": [_fix(fix) for fix in fixes(found)],
    }


def _fix(fix: Fix) -> dict[str, Any]:
    return {"title": fix.title, "edits": [_edit(edit) for edit in fix.edits]}


def _edit(edit: Edit) -> dict[str, Any]:
    span = edit.span
    return {"file": span.source.name, "start": span.start, "end": span.end, "text": edit.text}


def _shown_row(index: int, row: _Row, *, with_values: bool) -> dict[str, Any]:
    span = row.clause.span if row.clause is not None else None
    return {
        "index": index,
        "file": span.source.name if span is not None else None,
        "start": span.start if span is not None else None,
        "end": span.end if span is not None else None,
        "line": span.source.position(span.start)[0] if span is not None else None,
        "kind": row.kind,
        "text": " ".join(row.clause.text.split()) if row.clause is not None else row.name,
        "note": _note(row),
        "rejects": row.rejects,
        "average": row.average,
        "values": row.values.astype(np.float32) if with_values and row.values is not None else None,
    }


def _note(row: _Row) -> str:
    if row.rejects is not None:
        return f"rejects {row.rejects:,}" if row.rejects else "rejects none"
    return f"{signed(row.average)} on average" if row.average is not None else ""


def _rows(
    inputs: DecisionInputs, answers: Answers, go_on: Checkpoint, *, of: Any, before: _Columns | None
) -> tuple[tuple[_Row, ...], _Columns]:
    """Return what each clause and rule says, with what the next verdict can take over.

    Filters come first, in the order in which they are asked; what says nothing about nodes comes last.

    Args:
        inputs: of the decision.
        answers: decides.
        go_on: called between clauses.
        of: the pod.
        before: of the verdict before this one, on the same cluster.
    """
    frame, profile = inputs.frame(), inputs.profile
    size = frame.size
    if before is not None and before.of != of:
        before = None
    done: list[_Row] = []
    passing: dict[Evaluate, FloatArray] = {}
    scores: dict[tuple[Evaluate, float], FloatArray | IntArray] = {}
    for plugin in profile.filters:
        clause = getattr(plugin, "clause", None)
        evaluate = plugin.clause.evaluate if isinstance(plugin, FilterClause) and _is_settled(plugin.clause) else None
        values = before.passing.get(evaluate) if before is not None and evaluate is not None else None
        if values is None:
            values = probe(frame, plugin).passes().astype(np.float64)
        if evaluate is not None:
            passing[evaluate] = values
        rejects = size - int(np.count_nonzero(values))
        if clause is not None or rejects:
            done.append(_Row(clause, "filter" if clause is not None else "rule", plugin.name, values, rejects))
        go_on()
    feasible = np.flatnonzero(answers.passing(inputs))
    if before is not None and not np.array_equal(before.feasible, feasible):
        before = None
    for weighted in profile.scores:
        scorer, clause = weighted.plugin, getattr(weighted.plugin, "clause", None)
        name = " ".join(clause.text.split()) if clause is not None else scorer.name
        evaluate = scorer.clause.evaluate if isinstance(scorer, ScoreClause) and _is_settled(scorer.clause) else None
        found = before.scores.get((evaluate, weighted.weight)) if before is not None and evaluate is not None else None
        if found is None and len(feasible):
            found = next(iter(score(frame, Profile(scorer.name, scores=(weighted,)), feasible).values()), None)
        if found is not None:
            if evaluate is not None:
                scores[evaluate, weighted.weight] = found
            values = np.full(size, np.nan)
            values[feasible] = found
            done.append(_Row(clause, "score", name, values, None, float(np.mean(found))))
        elif clause is not None:
            done.append(_Row(clause, "score", name))
        go_on()
    policy = inputs.rules.policy
    known = {id(row.clause) for row in done}
    others = (clause for clause in policy.clauses if id(clause) not in known) if policy is not None else ()
    done += [_Row(clause, "rule", clause.text) for clause in others]
    return tuple(done), _Columns(of, feasible, passing, scores)


def _is_settled(clause: CompiledClause) -> bool:
    """Return whether a clause says the same of a pod and a cluster whatever metrics and queues are."""
    return not clause.inputs and not clause.depends & (Depends.SIGNAL | Depends.QUEUE)


def _words(cluster: OpenedCluster) -> ClusterWords:
    found: list[dict[str, Any]] = []
    for thing in cluster.things:
        if isinstance(thing, objects.Node):
            meta = {"name": thing.metadata.name, "labels": thing.metadata.labels}
            conditions = [{"type": each.type} for each in thing.status.conditions or ()]
            status = {"allocatable": thing.status.allocatable, "conditions": conditions}
            found.append({"kind": "Node", "metadata": meta, "status": status})
        elif isinstance(thing, objects.Pod):
            meta = {"labels": thing.metadata.labels, "annotations": thing.metadata.annotations}
            found.append({"kind": "Pod", "metadata": meta})
    words = words_in(found)
    for name in cluster.metrics:
        words.metrics[name] = 1
    return words


def _words_of_fleet(text: str) -> ClusterWords:
    """Return the names in the text of a fleet; none while it is no YAML."""
    if len(text) > MOST_FLEET_TEXT:
        return ClusterWords()
    try:
        return words_in([parse_document(Source(FLEET_FILE, text)).value])
    except DocumentError:
        return ClusterWords()


def _is_done(pod: objects.Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def _listed(pod: objects.Pod) -> dict[str, Any]:
    meta = pod.metadata
    phase = "Running" if pod.spec.node_name else "Pending"
    return {"key": f"{meta.namespace}/{meta.name}", "phase": phase, "node": pod.spec.node_name or None}


def _domains(nodes: Any, label: str) -> dict[str, Any]:
    """Return the values of a label, and which of them each node has."""
    known: dict[str, int] = {}
    places = [known.setdefault(info.labels.get(label, ""), len(known)) for info in nodes.infos]
    return {"names": list(known), "of": places}


def _used(nodes: Any, resource: str) -> FloatArray:
    allocatable = nodes.allocatable(resource).astype(np.float64)
    requested = nodes.requested(resource).astype(np.float64)
    shares = np.divide(requested, allocatable, out=np.full(len(allocatable), np.nan), where=allocatable > 0)
    return np.asarray(shares, np.float64)


def _free(nodes: Any, row: int) -> dict[str, str]:
    found = {}
    for resource in nodes.resources():
        allocatable = int(nodes.allocatable(resource)[row])
        if allocatable:
            requested = nodes.pod_count if resource == "pods" else nodes.requested(resource)
            free = allocatable - int(requested[row])
            found[resource] = f"{amount_text(resource, free)} of {amount_text(resource, allocatable)}"
    return found


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        made = {key: _without_empty(each) for key, each in value.items()}
        return {key: each for key, each in made.items() if each not in (None, "", [], {})}
    if isinstance(value, list):
        return [_without_empty(each) for each in value]
    return value

"""What the policies of a suite read of its metrics in each case, and what a suite says wrongly about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from kube_policy_scheduler.cluster.node_identities import TableIdentities
from kube_policy_scheduler.cluster.signal_join import SignalColumns, SignalState
from kube_policy_scheduler.cluster.signals import Query, Signals
from kube_policy_scheduler.diagnostics import Diagnostic
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError
from kube_policy_scheduler.times import parse_duration
from kube_policy_scheduler.tooling.tester import codes
from kube_policy_scheduler.tooling.tester.metrics import RESERVED, Metrics, is_series, series_labels
from kube_policy_scheduler.tooling.tester.outcome import Warned
from kube_policy_scheduler.tooling.tester.scene import Scene
from kube_policy_scheduler.tooling.tester.suite import Case, Part, Path, Suite, did_you_mean

_Told = tuple[frozenset[str], tuple[Warned, ...]]


class Readings:
    """The signals of every case, made once where cases have them in common."""

    def __init__(self, suite: Suite, queries: Sequence[Query]) -> None:
        self._document: Document = suite.document
        self._suite = suite
        self._queries = queries
        self._metrics: dict[int, Metrics] = {}
        self._signals: dict[tuple[int, float, float], Signals] = {}
        self._columns = SignalColumns()
        self._told: dict[tuple[int, int], tuple[Signals, _Told]] = {}

    def problems(self) -> Iterator[Diagnostic]:
        """Yield what is wrong with the metrics of the file and of all its cases, apart from the nodes they name."""
        parts = [self._suite.metrics]
        cases = chain(self._suite.cases, (one.case for one in self._suite.forall))
        parts += {case.metrics.path: case.metrics for case in cases if case.metrics is not None}.values()
        for part in parts:
            yield from self._of_part(part)

    def unknown_nodes(self, case: Case, scene: Scene) -> Iterator[Diagnostic]:
        """Yield an error for every value of a node that the case does not have."""
        for part in (self._suite.metrics, case.metrics):
            for query, answer in part.value.items() if part is not None else ():
                if query in RESERVED or not isinstance(answer, dict) or answer.keys() == {"value", "age"}:
                    continue
                for node in answer.keys() - scene.facts.keys():
                    assert part is not None
                    advice = did_you_mean(node, tuple(scene.facts), none="the test has no nodes")
                    message = f"unknown node `{node}`"
                    path = (*part.path, query, node)
                    yield self._document.error(path, codes.UNKNOWN_NODE, message=message, advice=advice, key=True)

    def signals(self, case: Case, now: float) -> Signals:
        """Return what the queries answer at a time of a case.

        Raises:
            DocumentError: the test says nothing of a query that the policies read.
        """
        key = id(case.metrics)
        metrics = self._metrics.get(key)
        if metrics is None:
            metrics = Metrics().over(self._suite.metrics.value)
            if case.metrics is not None:
                metrics = metrics.over(case.metrics.value)
            self._require_all(case, metrics)
            self._metrics[key] = metrics
        known = self._signals.get((key, case.start, now))
        if known is None:
            known = metrics.signals(self._queries, now=now, start=case.start)
            self._signals[key, case.start, now] = known
        return known

    def told(self, scene: Scene, signals: Signals, now: float) -> _Told:
        """Return the queries that lack a fresh value on some node, and what does not fit about the answers."""
        nodes = TableIdentities(scene.cluster.nodes)
        key = (id(scene), nodes.identity_version)
        before = self._told.get(key)
        if before is not None and before[0] is signals:
            return before[1]
        degraded, warned = [], []
        for query in self._queries:
            column = self._columns.column(query, signals=signals, nodes=nodes, now=now)
            if column.state is not SignalState.FRESH or column.missing:
                degraded.append(query.promql)
            if column.join is not None:
                warned += [Warned("", f"{query.promql}: {problem}") for problem in column.join.problems()]
        told = frozenset(degraded), tuple(warned)
        self._told[key] = signals, told
        return told

    def _require_all(self, case: Case, metrics: Metrics) -> None:
        for query in self._queries:
            if metrics.says(query):
                continue
            message = f"no series for `{query.promql}`, which the policies read"
            advice = f"add it under `metrics`, or write `absent: [{query.promql}]`"
            where = self._suite.metrics.path if case.metrics is None else case.metrics.path
            problem = self._document.error(where, codes.UNDEFINED_METRIC, message=message, advice=advice)
            raise DocumentError([problem])

    def _of_part(self, part: Part) -> Iterator[Diagnostic]:
        """Yield metrics that no policy reads, texts that are no series, and series that are there twice."""
        known = [query.promql for query in self._queries]
        form = part.value
        names: list[tuple[Path, str]] = [((key,), key) for key in form if key not in RESERVED]
        names += [(("absent", index), query) for index, query in enumerate(form.get("absent", ()))]
        names += [
            (("outages", index, "query"), outage["query"])
            for index, outage in enumerate(form.get("outages", ()))
            if "query" in outage
        ]
        for path, query in names:
            if query not in known:
                advice = did_you_mean(query, known, none="the policies read no metrics")
                message = f"no policy reads the metric `{query}`"
                place = (*part.path, *path)
                yield self._document.error(place, codes.UNKNOWN_METRIC, message=message, advice=advice, key=True)
        first: dict[frozenset[tuple[str, str]], str] = {}
        for text in form.get("series", {}):
            place = (*part.path, "series", text)
            if not is_series(text):
                message = f'`{text}` is not a series, expected a name and labels such as cpu_usage{{node="a1"}}'
                yield self._document.error(place, codes.UNKNOWN_METRIC, message=message, key=True)
                continue
            labels = frozenset(series_labels(text).items())
            if first.setdefault(labels, text) != text:
                message = f"the series `{text}` stands here a second time, as `{first[labels]}`"
                yield self._document.error(place, codes.DUPLICATE_SERIES, message=message, key=True)
        for index, outage in enumerate(form.get("outages", ())):
            if "to" in outage and parse_duration(outage["to"]) <= parse_duration(outage["from"]):
                message = f"the outage ends at {outage['to']}, before it begins at {outage['from']}"
                place = (*part.path, "outages", index, "to")
                yield self._document.error(place, codes.BAD_FIXTURE, message=message)

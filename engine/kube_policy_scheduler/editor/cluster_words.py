"""Names in clusters and in the fixtures beside a policy, for completion: labels with values, metrics, resources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_VALUES = 200
"""Values kept of one label key: nobody chooses from more."""
_MOST_SHOWN = 63
"""Characters of a value: that of a label has no more. Longer annotations are documents, which nobody compares with."""
_MOST_VISITED = 500_000
"""Values looked at in all fixtures together."""
_NAME_OF_SERIES = "{"


@dataclass(frozen=True, slots=True)
class ClusterWords:
    """What is there to be named. Each mapping has the label keys, with how often each value is there."""

    node_labels: dict[str, dict[str, int]] = field(default_factory=dict)
    pod_labels: dict[str, dict[str, int]] = field(default_factory=dict)
    pod_annotations: dict[str, dict[str, int]] = field(default_factory=dict)
    metrics: dict[str, int] = field(default_factory=dict)
    resources: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    conditions: dict[str, int] = field(default_factory=dict)
    """Of nodes."""
    time_zones: tuple[str, ...] = ()
    cluster_labels: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of the clusters of a fleet."""
    workload_labels: dict[str, dict[str, int]] = field(default_factory=dict)

    def labels_of(self, subject: str) -> dict[str, dict[str, int]]:
        """Return the labels of what a field is about: node, pod, cluster or workload."""
        match subject:
            case "node":
                return self.node_labels
            case "cluster":
                return self.cluster_labels
            case "workload":
                return self.workload_labels
            case _:
                return self.pod_labels


def words_in(documents: Iterable[Any], *, time_zones: Iterable[str] = ()) -> ClusterWords:
    """Return the names in parsed fixtures: Kubernetes objects as `kubectl` prints them, and test files.

    time_zones: all that this machine knows.
    """
    words = ClusterWords(time_zones=tuple(time_zones))
    for visited, value in enumerate(_mappings(documents)):
        if visited > _MOST_VISITED:
            break
        _read(value, words)
    return words


def together(first: ClusterWords, second: ClusterWords) -> ClusterWords:
    """Return the names of both."""
    return ClusterWords(
        _keys_of_both(first.node_labels, second.node_labels),
        _keys_of_both(first.pod_labels, second.pod_labels),
        _keys_of_both(first.pod_annotations, second.pod_annotations),
        _sum(first.metrics, second.metrics),
        _sum(first.resources, second.resources),
        _sum(first.nodes, second.nodes),
        _sum(first.conditions, second.conditions),
        first.time_zones or second.time_zones,
        _keys_of_both(first.cluster_labels, second.cluster_labels),
        _keys_of_both(first.workload_labels, second.workload_labels),
    )


def _keys_of_both(
    first: Mapping[str, dict[str, int]], second: Mapping[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    return {key: _sum(first.get(key, {}), second.get(key, {})) for key in (*first, *second)}


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in (*first, *second)}


def _mappings(documents: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        stack = [document]
        while stack:
            top = stack.pop()
            if isinstance(top, Mapping):
                yield top
                stack.extend(reversed(list(top.values())))
            elif isinstance(top, list):
                stack.extend(reversed(top))


def _read(value: Mapping[str, Any], words: ClusterWords) -> None:
    kind, metadata = value.get("kind"), value.get("metadata")
    if isinstance(metadata, Mapping):
        if kind == "Node":
            _count_keys(metadata.get("labels"), words.node_labels)
            _node(metadata.get("name"), words)
            status = value.get("status")
            if isinstance(status, Mapping):
                _names(status.get("allocatable"), words.resources)
                _names(_types(status.get("conditions")), words.conditions)
        elif kind == "Pod":
            _count_keys(metadata.get("labels"), words.pod_labels)
            _count_keys(metadata.get("annotations"), words.pod_annotations)
        elif kind == "Cluster":
            _count_keys(metadata.get("labels"), words.cluster_labels)
        return
    nodes = value.get("nodes")
    if isinstance(nodes, list):
        for node in nodes:
            if isinstance(node, Mapping):
                _count_keys(node.get("labels"), words.node_labels)
                _node(node.get("name"), words)
    for key in ("pod", "pods", "templates"):
        given = value.get(key)
        listed = given.values() if key == "templates" and isinstance(given, Mapping) else given
        for pod in [given] if key == "pod" else listed or ():
            if isinstance(pod, Mapping):
                _count_keys(pod.get("labels"), words.pod_labels)
                _count_keys(pod.get("annotations"), words.pod_annotations)
    for key, labels in (
        ("clusters", words.cluster_labels), ("workloads", words.workload_labels), ("workload", words.workload_labels)
    ):  # fmt: skip
        for form in _forms(value.get(key), alone=key == "workload"):
            _count_keys(form.get("labels"), labels)
    metrics = value.get("metrics")
    if isinstance(metrics, Mapping):
        for query in metrics:
            if query not in ("series", "absent", "interval", "outages"):
                words.metrics[query] = words.metrics.get(query, 0) + 1
        series = metrics.get("series")
        if isinstance(series, Mapping):
            _names({str(name).partition(_NAME_OF_SERIES)[0]: 1 for name in series}, words.metrics)


def _forms(given: object, *, alone: bool) -> list[Mapping[str, Any]]:
    """Return short forms: one that stands alone, those of a list, or those of a mapping by name."""
    each = [given] if alone else given.values() if isinstance(given, Mapping) else given
    return [form for form in each if isinstance(form, Mapping)] if isinstance(each, Iterable) else []


def _node(name: object, words: ClusterWords) -> None:
    if isinstance(name, str):
        words.nodes[name] = words.nodes.get(name, 0) + 1


def _types(given: object) -> dict[str, int]:
    """Return the types of conditions."""
    listed = given if isinstance(given, list) else []
    return {str(each.get("type")): 1 for each in listed if isinstance(each, Mapping) and each.get("type")}


def _names(given: object, into: dict[str, int]) -> None:
    if isinstance(given, Mapping):
        for name in given:
            into[str(name)] = into.get(str(name), 0) + 1


def _count_keys(given: object, into: dict[str, dict[str, int]]) -> None:
    if not isinstance(given, Mapping):
        return
    for key, value in given.items():
        values = into.setdefault(str(key), {})
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if len(text) <= _MOST_SHOWN and (text in values or len(values) < MOST_VALUES):
            values[text] = values.get(text, 0) + 1

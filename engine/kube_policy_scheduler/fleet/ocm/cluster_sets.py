"""Cluster sets of a hub: which clusters are in each, and which sets each namespace has.

What is in a set is kept and follows each change: a set with a selector is asked only about the cluster that changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kube_policy_scheduler.cluster.selectors import Selector, SelectorError, label_selector
from kube_policy_scheduler.fleet.ocm.objects import ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding

SET_LABEL = "cluster.open-cluster-management.io/clusterset"
"""Label of a cluster: the set that it is in, if sets select by this label."""
_Names = dict[str, None]


class ClusterSets:
    """Knows clusters, sets and their bindings to namespaces."""

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}
        self._sets: dict[str, ManagedClusterSet] = {}
        self._selectors: dict[str, Selector | None] = {}
        """Of the sets that select by labels; None selects no cluster."""
        self._members: dict[str, _Names] = {}
        self._bound: dict[str, set[str]] = {}
        """Names of sets by namespace."""

    @property
    def members(self) -> Mapping[str, Collection[str]]:
        """Return the names of the clusters of each set."""
        return self._members

    def bound(self, namespace: str) -> Collection[str]:
        """Return the names of the sets that a namespace has, whether or not there are such sets."""
        return self._bound.get(namespace, ())

    def with_cluster(self, name: str) -> frozenset[str]:
        """Return the names of the sets in which a cluster is."""
        return frozenset(each for each, members in self._members.items() if name in members)

    # --- what is there ------------------------------------------------------------------------------

    def set_cluster(self, written: ManagedCluster) -> None:
        """Take a cluster that is new or has changed."""
        name, labels = written.metadata.name, written.metadata.labels or {}
        if self._labels.get(name) == labels:
            return
        self._labels[name] = labels
        for each, members in self._members.items():
            if self._selects(each, labels):
                members[name] = None
            else:
                members.pop(name, None)

    def delete_cluster(self, name: str) -> None:
        """Take note that a cluster is gone."""
        self._labels.pop(name, None)
        for members in self._members.values():
            members.pop(name, None)

    def replace_sets(self, listed: Sequence[ManagedClusterSet]) -> None:
        """Take all sets."""
        for name in self._sets.keys() - {each.metadata.name for each in listed}:
            self.delete_set(name)
        for each in listed:
            self.set_set(each)

    def set_set(self, written: ManagedClusterSet) -> bool:
        """Take a set; return whether it may have other clusters than before."""
        name, known = written.metadata.name, self._sets.get(written.metadata.name)
        self._sets[name] = written
        if known is not None and known.spec == written.spec:
            return False
        self._selectors.pop(name, None)
        chosen = written.spec.cluster_selector
        if chosen.selector_type == "LabelSelector":
            try:
                self._selectors[name] = label_selector(chosen.label_selector)
            except SelectorError:
                self._selectors[name] = None
        self._members[name] = {each: None for each, labels in self._labels.items() if self._selects(name, labels)}
        return True

    def delete_set(self, name: str) -> None:
        """Take note that a set is gone."""
        for known in (self._sets, self._selectors, self._members):
            known.pop(name, None)

    def replace_bindings(self, listed: Iterable[ManagedClusterSetBinding]) -> None:
        """Take all bindings of sets to namespaces."""
        self._bound.clear()
        for each in listed:
            self.set_binding(each)

    def set_binding(self, written: ManagedClusterSetBinding) -> bool:
        """Take a binding; return whether it is new."""
        there = self._bound.setdefault(written.metadata.namespace, set())
        is_new = written.metadata.name not in there
        there.add(written.metadata.name)
        return is_new

    def delete_binding(self, written: ManagedClusterSetBinding) -> None:
        """Take note that a binding is gone."""
        there = self._bound.get(written.metadata.namespace, set())
        there.discard(written.metadata.name)
        if not there:
            self._bound.pop(written.metadata.namespace, None)

    def _selects(self, name: str, labels: Mapping[str, str]) -> bool:
        if name not in self._selectors:
            return labels.get(SET_LABEL) == name
        selector = self._selectors[name]
        return selector is not None and selector.matches(labels)

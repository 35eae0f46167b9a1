"""The cluster inventory of SIG Multicluster: ClusterProfiles as the clusters, PlacementDecisions as the answer."""

from __future__ import annotations

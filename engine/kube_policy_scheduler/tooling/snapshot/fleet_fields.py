"""What a snapshot of a fleet keeps: clusters, bindings, and labels of templates; never their specifications."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.prices import PRICE_KEY
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster, ResourceBinding
from kube_policy_scheduler.fleet.karmada.reading import BindingError, placement_object
from kube_policy_scheduler.fleet.karmada.triggers import APPLIED, OWNED_BY
from kube_policy_scheduler.tooling.snapshot.fields import WRITERS, Json, keep_annotations
from kube_policy_scheduler.tooling.snapshot.pseudonyms import Pseudonyms, anonymised

CLUSTER_VERSION, BINDING_VERSION = "cluster.karmada.io/v1alpha1", "work.karmada.io/v1alpha2"
_Object = TypeVar("_Object", KarmadaCluster, ResourceBinding)
_UNREADABLE = "?"
"""Instead of an applied placement that is not JSON: it counts as unchanged, whatever it is."""


def recorded_fleet(
    clusters: Sequence[KarmadaCluster],
    bindings: Sequence[ResourceBinding],
    templates: Iterable[tuple[str, str, objects.ObjectMeta]],
    *,
    annotations: Collection[str] = (),
) -> list[Json]:
    """Return clusters, bindings and the metadata of templates as in a fixture file, in the order of their names.

    Args:
        clusters: all of the control plane; of the kinds that they serve, those that bindings place are kept.
        bindings: those whose placement cannot be read are left out; see `unreadable`.
        templates: API version, kind and metadata.
        annotations: keys of annotations that policies read.
    """
    asked = {(each.spec.resource.api_version, each.spec.resource.kind) for each in bindings}
    kept = frozenset(annotations)
    made = [_cluster(each, asked, kept) for each in _sorted(clusters)]
    made += [_binding(each) for each in _sorted(bindings) if not _problem(each)]
    made += sorted(
        (_template(version, kind, meta, kept) for version, kind, meta in templates),
        key=lambda thing: (thing["kind"], thing["metadata"].get("namespace", ""), thing["metadata"]["name"]),
    )
    return made


def unreadable(bindings: Iterable[ResourceBinding]) -> list[str]:
    """Return the bindings whose placement cannot be read, and why."""
    return [
        f"{each.metadata.namespace}/{each.metadata.name}: {problem}"
        for each in _sorted(bindings)
        if (problem := _problem(each))
    ]


def _problem(binding: ResourceBinding) -> str:
    try:
        placement_object(binding.spec.placement)
    except BindingError as error:
        return str(error)
    return ""


def anonymised_fleet(things: Sequence[Json], names: Pseudonyms) -> list[Json]:
    """Return objects of a snapshot of a fleet with names replaced."""
    for thing in things:
        texts = thing["metadata"].get("annotations", {})
        if texts.get(APPLIED, _UNREADABLE) != _UNREADABLE:
            texts[APPLIED] = json.loads(texts[APPLIED])
    done = anonymised(things, names)
    for thing in (*things, *done):
        texts = thing["metadata"].get("annotations", {})
        if APPLIED in texts and not isinstance(texts[APPLIED], str):
            texts[APPLIED] = json.dumps(texts[APPLIED])
    return done


def places_of(clusters: Iterable[KarmadaCluster]) -> frozenset[str]:
    """Return the providers, regions and zones of clusters: they say what a cluster is, not whose."""
    return frozenset(
        text for each in clusters for text in (each.spec.provider, each.spec.region, *(each.spec.zones or ())) if text
    )


def _sorted(things: Iterable[_Object]) -> list[_Object]:
    return sorted(things, key=lambda each: (each.metadata.namespace, each.metadata.name))


def _metadata(made: Json) -> Json:
    found: Json = made["metadata"]
    for key in (*WRITERS, "ownerReferences", "uid"):
        found.pop(key, None)
    return found


def _cluster(cluster: KarmadaCluster, asked: Collection[tuple[str, str]], annotations: frozenset[str]) -> Json:
    made: Json = msgspec.to_builtins(cluster)
    keep_annotations(_metadata(made), annotations | {PRICE_KEY})
    status = made.get("status", {})
    _drop_messages(status)
    enabled = [
        {"groupVersion": each["groupVersion"], "resources": found}
        for each in status.pop("apiEnablements", None) or ()
        if (found := [one for one in each.get("resources") or () if (each["groupVersion"], one.get("kind")) in asked])
    ]
    if enabled:
        status["apiEnablements"] = enabled
    return {"apiVersion": CLUSTER_VERSION, "kind": "Cluster", **made}


def _binding(binding: ResourceBinding) -> Json:
    made: Json = msgspec.to_builtins(binding)
    metadata = _metadata(made)
    labels = {key: text for key, text in (metadata.pop("labels", None) or {}).items() if key in OWNED_BY}
    if labels:
        metadata["labels"] = labels
    keep_annotations(metadata, (APPLIED,))
    if APPLIED in metadata.get("annotations", {}):
        metadata["annotations"][APPLIED] = _applied(metadata["annotations"][APPLIED])
    spec = made.get("spec", {})
    if binding.spec.placement is not None:
        spec["placement"] = _placement(binding.spec.placement)
    _drop_messages(made.get("status", {}))
    return {"apiVersion": BINDING_VERSION, "kind": type(binding).__name__, **made}


def _placement(written: Mapping[str, object]) -> Json:
    found: Json = msgspec.to_builtins(placement_object(written))
    return found


def _applied(text: str) -> str:
    """Return the placement that was applied last, with nothing but what a placement has."""
    if not text:
        return text
    try:
        written = json.loads(text)
        return json.dumps(_placement(written)) if isinstance(written, dict) else _UNREADABLE
    except (ValueError, RecursionError):
        return _UNREADABLE


def _template(api_version: str, kind: str, meta: objects.ObjectMeta, annotations: frozenset[str]) -> Json:
    metadata: Json = {"name": meta.name}
    if meta.namespace:
        metadata["namespace"] = meta.namespace
    if meta.labels:
        metadata["labels"] = dict(meta.labels)
    if meta.annotations:
        metadata["annotations"] = dict(meta.annotations)
    keep_annotations(metadata, annotations)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _drop_messages(status: Json) -> None:
    for condition in status.get("conditions") or ():
        condition.pop("message", None)

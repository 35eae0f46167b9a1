"""`policyctl snapshot`: a live cluster, and what its metrics say, as files that every offline command reads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_policy_scheduler.cli import cluster_sources, files
from kube_policy_scheduler.cli.given import Given, with_given
from kube_policy_scheduler.cli.kubernetes_option import chosen_rules
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import say, status_line
from kube_policy_scheduler.wording import plural

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.kube.lists import Listing, Unlisted
    from kube_policy_scheduler.cluster.nodes import NodeTable
    from kube_policy_scheduler.cluster.signals import Query
    from kube_policy_scheduler.kubernetes_rules import KubernetesRules
    from kube_policy_scheduler.tooling.snapshot.fields import Json
    from kube_policy_scheduler.tooling.snapshot.pseudonyms import Pseudonyms

EPILOG = """
\b
Examples:
  policyctl snapshot -o cluster.json.gz                      # your current kubectl context
  policyctl snapshot --anonymise -o cluster.yaml             # without names, to share it
  policyctl snapshot --anonymise --policies policies/ -o cluster.json   # keep what the policies need
  policyctl snapshot --policies policies/ --prometheus-url http://prometheus:9090 -o now.json.gz
  policyctl why web-7f9 --cluster now.json.gz --metrics now.metrics.yaml --policies policies/
  policyctl snapshot --cluster dump.yaml --anonymise         # from the output of kubectl get -o yaml

\b
A Karmada fleet:
  policyctl snapshot --fleet --kubeconfig karmada.config --policies policies/ -o fleet.json.gz
  policyctl impact karmada policies/ --fleet fleet.json.gz

\b
The file contains only what scheduling reads. It never contains environment, commands, secrets, configuration,
messages, or annotations (except those that --policies read). With --anonymise, it also contains no names of nodes,
namespaces, pods, owners, images and volumes, and no values of labels and taints. For kinds of owners and for
conditions, it keeps only the words of Kubernetes. It keeps: label keys; names of resources, schedulers and drivers;
numbers of up to five digits; numbers in node labels that an affinity compares (Gt, Lt); texts in the policies; and
the label values of zone, region, architecture, operating system, instance type, and each --keep.

\b
With --fleet, the file contains Clusters, ResourceBindings and ClusterResourceBindings, and of the templates that these
name only labels, and the annotations that --policies read. --anonymise keeps providers, regions, zones and prices of
clusters, and kinds of templates.

\b
Exit codes: 0 success; 1 written, but some objects could not be read; 2 nothing was written.
"""
_METRICS_SUFFIX = ".metrics.yaml"


SECTION = Section.CLUSTER


@click.command(epilog=EPILOG)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
    help="Output file: .yaml or .json, also with .gz.  [default: standard output, as JSON]",
)  # fmt: skip
@cluster_sources.cluster_options
@click.option(
    "--fleet", "is_fleet", is_flag=True,
    help="Save a Karmada fleet; the kubeconfig is that of the Karmada API server.",
)  # fmt: skip
@click.option("--anonymise", is_flag=True, help="Replace names with pseudonyms; references stay valid.")
@click.option("--keep", multiple=True, metavar="LABEL", help="Keep the values of this label; may be repeated.")
@click.option(
    "--key-file", type=click.Path(path_type=Path), metavar="FILE",
    help="Derive pseudonyms from this secret, so that they are the same in each snapshot.  [default: numbers]",
)  # fmt: skip
@click.option(
    "--policies", multiple=True, type=click.Path(path_type=Path), metavar="PATH",
    help="Keep what these policies read: annotations, texts, and with --prometheus-url metrics; may be repeated.",
)  # fmt: skip
@click.option("--prometheus-url", type=cluster_sources.Url(), help="Also save the metrics that --policies read.")
@click.option(
    "--metrics-output", type=click.Path(path_type=Path), metavar="FILE",
    help=f"Output file for metrics.  [default: beside the output, with {_METRICS_SUFFIX}]",
)  # fmt: skip
@click.option("--allow-missing", is_flag=True, help="Exit with 0 even if some kinds could not be read.")
@with_given
def command(
    given: Given,
    output: Path | None,
    is_fleet: bool,
    anonymise: bool,
    keep: tuple[str, ...],
    key_file: Path | None,
    metrics_output: Path | None,
    allow_missing: bool,
) -> int:
    """Save a live cluster, or a fleet, to a file that `why`, `test`, `simulate` and the other commands read.

    The file is a Kubernetes List, as kubectl prints it. It contains nodes, unfinished pods, and all other objects that
    scheduling depends on. If you have no permission to list a kind, the command names it and omits it.
    """
    _check_options(given, anonymise=anonymise, keep=keep, key_file=key_file)
    metrics_path = _metrics_path(output, metrics_output, given.prometheus_url)
    hidden = Hidden(keep, _key(key_file)) if anonymise else None
    taken = _taken_fleet(given, hidden) if is_fleet else _taken_cluster(given, hidden)
    annotations = dict(taken.annotations)
    if anonymise:
        annotations["policyctl/anonymised"] = "true"
    if taken.unlisted:
        annotations["policyctl/missing"] = ", ".join(one.resource for one in taken.unlisted)
    if output is None:
        for piece in _text(taken.things, annotations, None):
            click.echo(piece, nl=False)
    else:
        files.replace_file(output, _text(taken.things, annotations, output))
    if metrics_path is not None:
        from kube_policy_scheduler.documents.writing import yaml_text

        files.replace_file(metrics_path, yaml_text(taken.measured))
    incomplete = _report(taken)
    if output is not None:
        say(_written(taken, output, metrics_path), err=True)
    return 1 if incomplete and not allow_missing else 0


@dataclass(frozen=True, slots=True)
class Hidden:
    """How names are hidden."""

    keep: tuple[str, ...]
    """Labels whose values are kept."""
    key: bytes | None


@dataclass(frozen=True, slots=True)
class Taken:
    """What is written, and what is not."""

    things: Sequence[Json]
    annotations: Mapping[str, str]
    """Of the list."""
    counted: tuple[str, ...]
    """What there is, in words."""
    unlisted: Sequence[Unlisted]
    malformed: Sequence[str]
    measured: Mapping[str, Any]
    """The form of the metrics."""
    failures: Mapping[str, str]
    """Why metrics have no value."""


def _taken_cluster(given: Given, hidden: Hidden | None) -> Taken:
    from kube_policy_scheduler.cluster import objects
    from kube_policy_scheduler.cluster.nodes import NodeTable
    from kube_policy_scheduler.times import rfc3339
    from kube_policy_scheduler.tooling.cluster_state import KUBERNETES, TAKEN_AT
    from kube_policy_scheduler.tooling.policy_reads import annotation_keys, literals
    from kube_policy_scheduler.tooling.snapshot.fields import recorded_objects
    from kube_policy_scheduler.tooling.snapshot.pseudonyms import anonymised

    policy_set = given.ruleset().policy_set
    policies = policy_set.policies if policy_set is not None else ()
    listing, now, rules = _listing(given)
    things = recorded_objects(listing.objects, annotations=annotation_keys(policies))
    names = _pseudonyms(things, hidden, literals(policies))
    if names is not None:
        things = anonymised(things, names)
    nodes = NodeTable()
    for thing in listing.objects:
        if isinstance(thing, objects.Node):
            nodes.set(thing)
    measured, failures = _metrics(given, policy_set.queries if policy_set is not None else (), nodes, names)
    annotations = {TAKEN_AT: rfc3339(now)} | ({KUBERNETES: rules.said} if rules is not None else {})
    count = Counter(thing["kind"] for thing in things)
    others = len(things) - count["Node"] - count["Pod"]
    counted = (plural(count["Node"], "node"), plural(count["Pod"], "pod"), plural(others, "other object"))
    return Taken(things, annotations, counted, listing.unlisted, listing.malformed, measured, failures)


def _taken_fleet(given: Given, hidden: Hidden | None) -> Taken:
    from kube_policy_scheduler.adapters.kube.lists import Unlisted
    from kube_policy_scheduler.cli.fleets import listing_in, live_listing
    from kube_policy_scheduler.fleet.columns import FleetColumns
    from kube_policy_scheduler.fleet.karmada.reading import cluster
    from kube_policy_scheduler.times import rfc3339
    from kube_policy_scheduler.tooling.cluster_state import TAKEN_AT
    from kube_policy_scheduler.tooling.fleet_members import nodes_and_pods, recorded_members
    from kube_policy_scheduler.tooling.policy_reads import annotation_keys, literals
    from kube_policy_scheduler.tooling.snapshot.fleet_fields import (
        anonymised_fleet,
        places_of,
        recorded_fleet,
        unreadable,
    )

    policy_set = given.ruleset().policy_set
    policies = policy_set.fleet.policies if policy_set is not None else ()
    now: float | None = None
    if given.clusters:
        listing, now = listing_in(given.clusters)
    else:
        reads = policy_set is not None and bool(policy_set.fleet.member_values)
        listing = live_listing(kubeconfig=given.kubeconfig, context=given.context, reads_members=reads)
    templates = [(key[0], key[1], meta) for key, meta in listing.templates.items()]
    kept = annotation_keys(policies)
    things = recorded_fleet(listing.clusters, listing.bindings, templates, annotations=kept)
    members = {name: nodes_and_pods(each) for name, each in listing.members.items()}
    things += recorded_members(members, annotations=kept)
    names = _pseudonyms(things, hidden, literals(policies) | places_of(listing.clusters))
    if names is not None:
        things = anonymised_fleet(things, names)
    columns = FleetColumns([cluster(each) for each in listing.clusters])
    queries = policy_set.fleet.queries if policy_set is not None else ()
    measured, failures = _metrics(given, queries, columns.cluster.nodes, names)
    count = Counter(thing["kind"] for thing in things)
    bindings = count["ResourceBinding"] + count["ClusterResourceBinding"]
    of_members = sum(map(len, members.values()))
    others = len(things) - count["Cluster"] - bindings - of_members
    counted = [plural(count["Cluster"], "cluster"), plural(bindings, "binding"), plural(others, "template")]
    if members:
        counted.append(plural(of_members, "node or pod of a cluster", "nodes and pods of clusters"))
    unread = [
        Unlisted(f"nodes and pods of cluster {name}", why, served=True)
        for name, why in sorted(listing.unread_members.items())
    ]
    malformed = (*listing.malformed, *unreadable(listing.bindings))
    annotations = {TAKEN_AT: rfc3339(time.time() if now is None else now)}
    return Taken(things, annotations, tuple(counted), (*listing.unlisted, *unread), malformed, measured, failures)


def _pseudonyms(things: Sequence[Json], hidden: Hidden | None, texts: frozenset[str]) -> Pseudonyms | None:
    """Return what hides names; None if they are kept. texts: that are kept in any case."""
    from kube_policy_scheduler.tooling.snapshot.pseudonyms import KEPT_LABELS, Pseudonyms, kept_texts

    if hidden is None:
        return None
    return Pseudonyms(kept=kept_texts(things, labels=(*KEPT_LABELS, *hidden.keep)) | texts, key=hidden.key)


def _check_options(given: Given, *, anonymise: bool, keep: Sequence[str], key_file: Path | None) -> None:
    if given.clusters and (given.kubeconfig is not None or given.context is not None):
        raise click.UsageError("--cluster is a saved cluster: do not use --kubeconfig or --context with it")
    if not anonymise and (keep or key_file is not None):
        raise click.UsageError("--keep and --key-file require --anonymise")
    if given.prometheus_url is not None and not given.policies:
        raise click.UsageError("--prometheus-url requires --policies, to know which metrics to query")


def _metrics_path(output: Path | None, given: Path | None, prometheus_url: str | None) -> Path | None:
    if prometheus_url is None:
        if given is not None:
            raise click.UsageError("--metrics-output requires --prometheus-url")
        return None
    if given is not None:
        return given
    if output is None:
        raise click.UsageError("--prometheus-url requires -o or --metrics-output: metrics go to a separate file")
    stem = output.name.removesuffix(".gz")
    return output.with_name(stem.rpartition(".")[0] + _METRICS_SUFFIX if "." in stem else stem + _METRICS_SUFFIX)


_MOST_KEY_BYTES = 1 << 20


def _key(path: Path | None) -> bytes | None:
    if path is None:
        return None
    from kube_policy_scheduler.documents.bounded_files import UnreadableFileError, problem_of, read_bounded

    try:
        key = read_bounded(path, most_bytes=_MOST_KEY_BYTES).strip()
    except UnreadableFileError as error:
        raise click.ClickException(problem_of(path, error)) from error
    if len(key) < 16:
        raise click.ClickException(
            f"{path} holds {plural(len(key), 'byte')}, expected at least 16 random ones: head -c 32 /dev/urandom > FILE"
        )
    return key


def _listing(given: Given) -> tuple[Listing, float, KubernetesRules | None]:
    """Return what the cluster holds, when it was taken, Unix seconds, and by whose rules, if that is known."""
    import asyncio

    from kube_policy_scheduler.adapters.kube.errors import KubeError
    from kube_policy_scheduler.adapters.kube.lists import Listing, survey
    from kube_policy_scheduler.kubernetes_rules import KubernetesRules

    if given.clusters:
        found = given.cluster()
        return Listing(found.objects, version=found.kubernetes.version), found.now, found.kubernetes
    try:
        with status_line() as show:
            listing = asyncio.run(
                survey(
                    kubeconfig=str(given.kubeconfig) if given.kubeconfig else None,
                    context=given.context,
                    progress=lambda resource, count: show(f"{resource}: {count}"),
                )
            )
    except KubeError as error:
        raise click.ClickException(f"cannot read the cluster: {error}") from error
    version = given.kubernetes.version or listing.version
    if version is None:
        return listing, time.time(), None
    return listing, time.time(), chosen_rules(given.kubernetes, lambda: KubernetesRules(version))


def _metrics(
    given: Given, queries: Sequence[Query], nodes: NodeTable, names: Pseudonyms | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the form of the metrics of nodes or clusters, and why some have no value."""
    if given.prometheus_url is None:
        return {}, {}
    from kube_policy_scheduler.cli.cluster_sources import measured
    from kube_policy_scheduler.tooling.snapshot.metrics import recorded_metrics

    found = measured(given.prometheus_url, queries)
    named: Callable[[str, str], str] = names.of if names is not None else lambda text, kind: text
    form = recorded_metrics(queries, signals=found.signals, nodes=nodes, now=time.time(), named=named)
    return form, found.failures


def _text(things: Iterable[Json], annotations: dict[str, str], path: Path | None) -> Iterable[str]:
    from kube_policy_scheduler.documents.writing import json_list_lines, yaml_list_lines

    name = path.name.removesuffix(".gz") if path is not None else ""
    lines = yaml_list_lines if name.endswith((".yaml", ".yml")) else json_list_lines
    return lines(things, annotations=annotations)


def _report(taken: Taken) -> bool:
    """Say what is not in the snapshot; return whether that is more than what the server does not have."""
    for one in taken.unlisted:
        if one.served:
            say(f"policyctl: not in the snapshot: {one.resource}: {one.reason}", err=True)
        else:
            say(f"policyctl: the server does not serve {one.resource}", err=True)
    for text in taken.malformed:
        say(f"policyctl: not in the snapshot because it cannot be read: {text}", err=True)
    for query, text in taken.failures.items():
        say(f"policyctl: no value of {query}: {text}", err=True)
    return bool(any(one.served for one in taken.unlisted) or taken.malformed or taken.failures)


def _written(taken: Taken, output: Path, metrics: Path | None) -> str:
    text = f"{output}: {', '.join(taken.counted)}"
    if metrics is not None:
        count = len(taken.measured) - ("absent" in taken.measured)
        text += f"; {metrics}: {plural(count, 'metric')}"
    return text

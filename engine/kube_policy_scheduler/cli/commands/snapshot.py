"""`policyctl snapshot`: a live cluster, and what its metrics say, as files that every offline command reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    from kube_policy_scheduler.adapters.kube.lists import Listing
    from kube_policy_scheduler.kubernetes_rules import KubernetesRules
    from kube_policy_scheduler.policy.policy_set import PolicySet
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
The file contains only what scheduling reads. It never contains environment, commands, secrets, configuration,
messages, or annotations (except those that --policies read). With --anonymise, it also contains no names of nodes,
namespaces, pods, owners, images and volumes, and no values of labels and taints. For kinds of owners and for
conditions, it keeps only the words of Kubernetes. It keeps: label keys; names of resources, schedulers and drivers;
numbers of up to five digits; numbers in node labels that an affinity compares (Gt, Lt); texts in the policies; and
the label values of zone, region, architecture, operating system, instance type, and each --keep.

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
    anonymise: bool,
    keep: tuple[str, ...],
    key_file: Path | None,
    metrics_output: Path | None,
    allow_missing: bool,
) -> int:
    """Save a live cluster to a file that `why`, `test`, `simulate` and the other commands read.

    The file is a Kubernetes List, as kubectl prints it. It contains nodes, unfinished pods, and all other objects that
    scheduling depends on. If you have no permission to list a kind, the command names it and omits it.
    """
    from kube_policy_scheduler.times import rfc3339
    from kube_policy_scheduler.tooling.cluster_state import KUBERNETES, TAKEN_AT

    _check_options(given, anonymise=anonymise, keep=keep, key_file=key_file)
    metrics_path = _metrics_path(output, metrics_output, given.prometheus_url)
    key = _key(key_file)
    policy_set = given.ruleset().policy_set
    listing, now, rules = _listing(given)
    things, names = _things(listing, policy_set, anonymise=anonymise, keep=keep, key=key)
    measured, failures = _metrics(given.prometheus_url, policy_set, listing, names)
    annotations = {TAKEN_AT: rfc3339(now)}
    if rules is not None:
        annotations[KUBERNETES] = rules.said
    if anonymise:
        annotations["policyctl/anonymised"] = "true"
    if listing.unlisted:
        annotations["policyctl/missing"] = ", ".join(one.resource for one in listing.unlisted)
    if output is None:
        for piece in _text(things, annotations, None):
            click.echo(piece, nl=False)
    else:
        files.replace_file(output, _text(things, annotations, output))
    if metrics_path is not None:
        from kube_policy_scheduler.documents.writing import yaml_text

        files.replace_file(metrics_path, yaml_text(measured))
    incomplete = _report(listing, failures)
    if output is not None:
        say(_written(things, output, metrics_path, measured), err=True)
    return 1 if incomplete and not allow_missing else 0


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


def _things(
    listing: Listing, policy_set: PolicySet | None, *, anonymise: bool, keep: Sequence[str], key: bytes | None
) -> tuple[list[Json], Pseudonyms | None]:
    from kube_policy_scheduler.tooling.policy_reads import annotation_keys, literals
    from kube_policy_scheduler.tooling.snapshot.fields import recorded_objects
    from kube_policy_scheduler.tooling.snapshot.pseudonyms import KEPT_LABELS, Pseudonyms, anonymised, kept_texts

    policies = policy_set.policies if policy_set is not None else ()
    things = recorded_objects(listing.objects, annotations=annotation_keys(policies))
    if not anonymise:
        return things, None
    names = Pseudonyms(kept=kept_texts(things, labels=(*KEPT_LABELS, *keep)) | literals(policies), key=key)
    return anonymised(things, names), names


def _metrics(
    url: str | None, policy_set: PolicySet | None, listing: Listing, names: Pseudonyms | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the form of the metrics, and why some have no value."""
    if url is None or policy_set is None:
        return {}, {}
    from kube_policy_scheduler.cli.cluster_sources import measured
    from kube_policy_scheduler.cluster import objects
    from kube_policy_scheduler.cluster.nodes import NodeTable
    from kube_policy_scheduler.tooling.snapshot.metrics import recorded_metrics

    found = measured(url, policy_set.queries)
    nodes = NodeTable()
    for thing in listing.objects:
        if isinstance(thing, objects.Node):
            nodes.set(thing)
    named: Callable[[str, str], str] = names.of if names is not None else lambda text, kind: text
    form = recorded_metrics(policy_set.queries, signals=found.signals, nodes=nodes, now=time.time(), named=named)
    return form, found.failures


def _text(things: Iterable[Json], annotations: dict[str, str], path: Path | None) -> Iterable[str]:
    from kube_policy_scheduler.documents.writing import json_list_lines, yaml_list_lines

    name = path.name.removesuffix(".gz") if path is not None else ""
    lines = yaml_list_lines if name.endswith((".yaml", ".yml")) else json_list_lines
    return lines(things, annotations=annotations)


def _report(listing: Listing, failures: Mapping[str, str]) -> bool:
    """Say what is not in the snapshot; return whether that is more than what the server does not have."""
    for one in listing.unlisted:
        if one.served:
            say(f"policyctl: not in the snapshot: {one.resource}: {one.reason}", err=True)
        else:
            say(f"policyctl: the server does not serve {one.resource}", err=True)
    for text in listing.malformed:
        say(f"policyctl: not in the snapshot because it cannot be read: {text}", err=True)
    for query, text in failures.items():
        say(f"policyctl: no value of {query}: {text}", err=True)
    return bool(any(one.served for one in listing.unlisted) or listing.malformed or failures)


def _written(things: Sequence[Json], output: Path, metrics: Path | None, measured: dict[str, Any]) -> str:
    nodes = sum(thing["kind"] == "Node" for thing in things)
    pods = sum(thing["kind"] == "Pod" for thing in things)
    counted = (plural(nodes, "node"), plural(pods, "pod"), plural(len(things) - nodes - pods, "other object"))
    text = f"{output}: {', '.join(counted)}"
    if metrics is not None:
        count = len(measured) - ("absent" in measured)
        text += f"; {metrics}: {plural(count, 'metric')}"
    return text

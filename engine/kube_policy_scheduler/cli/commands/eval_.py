"""`policyctl eval`: the value of an expression on each node, of each pod, or of the cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli import cluster_sources, files
from kube_policy_scheduler.cli.given import Given, scheduler_of, with_given
from kube_policy_scheduler.cli.owners import owner_options, owners
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import format_option, say, say_json, say_lines, terminal

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from kube_policy_scheduler.diagnostics import Diagnostic
    from kube_policy_scheduler.lang import typed
    from kube_policy_scheduler.lang.checked import Definition
    from kube_policy_scheduler.lang.environment import Environment
    from kube_policy_scheduler.tooling.expression_values import ExpressionValues

EPILOG = """
\b
Examples:
  policyctl eval 'node.free.cpu - 2' --cluster cluster.yaml            # one value for each node
  policyctl eval 'p.request.mem' --cluster cluster.yaml                # one for each running pod
  policyctl eval 'pod.priority' --cluster cluster.yaml                 # one for each pod, even if it is pending
  policyctl eval 'fits(cpu, mem)' --pod shop/web --cluster cluster.yaml   # on each node, for this pod
  policyctl eval 'sum(n.free.cpu for n in cluster.nodes)'              # one value; your current kubectl context
  policyctl eval 'node.free.mem / 1Gi' -o json                         # for programs
  policyctl eval 'busy' --policies policies/ --metrics metrics.yaml    # a name that a policy defines
  policyctl eval 'model("load.onnx", node.free.cpu / 1core)' --config config.yaml     # a function of an extension
  policyctl eval - --cluster cluster.yaml < expression.txt             # from standard input

\b
A missing value is shown as `missing`, or in JSON as null. In JSON, amounts are in cores, bytes and seconds.

\b
Exit codes: 0 the values are shown; 1 the expression has an error; 2 the command could not run.
"""


_OF_PODS = re.compile(r"\bp\.")


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return how the expression may go on: what an editor offers at its end."""
    from click.shell_completion import CompletionItem

    from kube_policy_scheduler.builtins.environment import environment
    from kube_policy_scheduler.diagnostics import Source
    from kube_policy_scheduler.editor.cluster_words import ClusterWords
    from kube_policy_scheduler.editor.completion import complete
    from kube_policy_scheduler.editor.project import look_at

    # an expression about running pods has fields like the inside of an aggregate
    before = "filter any(p in node.pods where " if _OF_PODS.search(incomplete) else "let value = "
    source = Source("expression.policy", before + incomplete)
    items = complete(look_at([source], environment(), complete=False), source.name, len(source.text), ClusterWords())
    begun = len(before)
    written = (
        (incomplete[: item.start - begun] + (item.text or item.label).replace("$0", ""), item.detail)
        for item in items
        if item.start >= begun
    )
    return [CompletionItem(text, help=detail) for text, detail in written if text.startswith(incomplete)]


SECTION = Section.WRITE


@click.command(epilog=EPILOG)
@click.argument("expression", metavar="EXPRESSION", shell_complete=_complete)
@cluster_sources.cluster_options
@click.option(
    "--pod", metavar="POD", help="The pod that `pod.…` stands for: a pod of the cluster, or a file with a pod."
)
@click.option("-n", "--namespace", help="Namespace of the pod, if several namespaces have a pod of that name.")
@click.option(
    "--policies", multiple=True, type=click.Path(path_type=Path), metavar="PATH",
    help="Policies whose names (`let`, `def`, `metric`) the expression uses: a file, or a folder; may be repeated.",
)  # fmt: skip
@cluster_sources.METRICS_OPTION
@click.option("--prometheus-url", type=cluster_sources.Url(), help="Query metrics from this Prometheus.")
@click.option(
    "--now", type=cluster_sources.Moment(), help="Time of the values.  [default: that of the snapshot, or now]"
)
@format_option(short="-o")
@owner_options
@with_given
def command(given: Given, expression: str, pod: str | None, namespace: str | None, form: str) -> int:
    """Evaluate an expression of the policy language in a cluster.

    An expression with `node.…` has a value for each node, and an expression with `p.…` a value for each running pod. An
    expression with `pod.…` has a value for each pod; with --pod, only for that pod, as if it were pending.
    """
    from kube_policy_scheduler.builtins.environment import environment
    from kube_policy_scheduler.diagnostics import Source
    from kube_policy_scheduler.lang.checking.one_expression import check_expression
    from kube_policy_scheduler.tooling.expression_values import data, lines

    owners()  # lets the expression call the extensions of --config
    source = files.source(files.STANDARD_INPUT) if expression == "-" else Source("<expression>", expression)
    known = environment()
    value, problems = check_expression(source, known, _names(given, known))
    if value is None:
        say(files.rendered(problems, err=True), err=True)
        return 1
    found = _values(value, known, given, pod=pod, namespace=namespace)
    if form == "json":
        say_json(data(found))
    else:
        say_lines(lines(found, to=terminal()))
    return 0


def _names(given: Given, known: Environment) -> dict[str, Definition]:
    """Return what the policies define.

    Raises:
        DocumentError: they have errors, or two of them define a name differently.
    """
    from kube_policy_scheduler.cli.policies import beside
    from kube_policy_scheduler.diagnostics import errors
    from kube_policy_scheduler.documents.yaml_document import DocumentError
    from kube_policy_scheduler.lang.checking.one_expression import definitions_of
    from kube_policy_scheduler.lang.load import check_sources

    if not given.policies:
        return {}
    sources = cluster_sources.policies_in(given.policies)
    checked = check_sources(sources, known, library=beside(sources))
    problems: tuple[Diagnostic, ...] = tuple(each for each in checked.diagnostics if errors([each]))
    definitions, twice = definitions_of(checked.policies)
    if problems or twice:
        raise DocumentError(problems or twice)
    return definitions


def _values(
    value: typed.Typed, known: Environment, given: Given, *, pod: str | None, namespace: str | None
) -> ExpressionValues:
    from kube_policy_scheduler.builtins.metrics import queries
    from kube_policy_scheduler.lang import typed
    from kube_policy_scheduler.tooling.cluster_state import UnknownPod, waiting
    from kube_policy_scheduler.tooling.expression_values import NeedsPod, values_of

    cluster = given.cluster(scheduler_of())
    inputs = dict.fromkeys(each for part in typed.below(value) if isinstance(part, typed.Apply) for each in part.inputs)
    signals = given.signals_for(queries(inputs), now=cluster.now)
    try:
        if pod is None:
            return values_of(value, known, cluster.state(), signals=signals, now=cluster.now)
        state, asked = cluster_sources.pod_of(pod, cluster, namespace=namespace, scheduler=scheduler_of())
        with waiting(asked, state.cluster) as (free, _):
            return values_of(value, known, state, pod=free, signals=signals, now=cluster.now)
    except UnknownPod as error:
        raise click.ClickException(str(error)) from error
    except NeedsPod as error:
        raise click.UsageError(str(error)) from error

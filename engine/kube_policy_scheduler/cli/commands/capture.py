"""`policyctl capture`: one decision, frozen into the smallest test file that repeats it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_policy_scheduler.cli import cluster_sources, files
from kube_policy_scheduler.cli.given import Given, scheduler_of, with_given
from kube_policy_scheduler.cli.owners import owner_options
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import say, status_line
from kube_policy_scheduler.wording import plural

if TYPE_CHECKING:
    from kube_policy_scheduler.diagnostics import Source
    from kube_policy_scheduler.policy.decision_inputs import Rules
    from kube_policy_scheduler.policy.policy import Policy
    from kube_policy_scheduler.policy.policy_set import PolicySet
    from kube_policy_scheduler.tooling.capture.freeze import Frozen
    from kube_policy_scheduler.tooling.capture.reduce import ReducibleInputs
    from kube_policy_scheduler.tooling.decision_record import DecisionRecord
    from kube_policy_scheduler.tooling.snapshot.pseudonyms import Pseudonyms

EPILOG = """
\b
Examples:
  policyctl capture shop/web-7f9 --policies policies/                     # your current kubectl context
  policyctl capture web-7f9 --policies policies/ --cluster cluster.json.gz --metrics cluster.metrics.yaml
  policyctl capture web-7f9 --policies policies/ --cluster then.json.gz --record decisions.jsonl
  policyctl capture web-7f9 --policies policies/ --anonymise -o incident-42.test.yaml
  policyctl test incident-42.test.yaml

\b
Exit codes: 0 the test is written and passes; 2 nothing was written.
"""
_TEST, _FIXTURE = ".test.yaml", ".cluster.yaml"


SECTION = Section.UNDERSTAND


@click.command(epilog=EPILOG)
@click.argument("pod", metavar="POD")
@click.option("-n", "--namespace", help="Namespace of the pod, if several namespaces have a pod of that name.")
@click.option(
    "--policies", multiple=True, required=True, type=click.Path(path_type=Path), metavar="PATH",
    help="Policies: a file or a folder; may be repeated.",
)  # fmt: skip
@click.option("--policy", metavar="NAME", help="Use this policy, no matter which one governs the pod.")
@cluster_sources.cluster_options
@click.option(
    "--record", type=click.Path(path_type=Path), metavar="FILE",
    help="Use the pod, time, seed and Kubernetes version of its last decision in this decision log.",
)  # fmt: skip
@cluster_sources.decision_options
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
    help=f"Output file.  [default: the name of the pod, with {_TEST}]",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--anonymise", is_flag=True, help="Replace names with pseudonyms, as `policyctl snapshot` does.")
@click.option("--keep", multiple=True, metavar="LABEL", help="Keep the values of this label; may be repeated.")
@owner_options
@with_given
def command(
    given: Given,
    pod: str,
    namespace: str | None,
    policy: str | None,
    record: Path | None,
    output: Path | None,
    force: bool,
    anonymise: bool,
    keep: tuple[str, ...],
) -> int:
    """Save the decision about one pod as a test that needs no cluster.

    The command removes nodes, pods, other objects and fields that do not matter, one by one, and checks each step with
    a new decision. The test has the same node, the second best node and its margin (or the same reason), and one
    rejected node for each filter that rejects any. The command runs the test before it writes the file.
    """
    from kube_policy_scheduler.tooling.capture.freeze import NotReproduced
    from kube_policy_scheduler.tooling.cluster_state import UnknownPod

    if keep and not anonymise:
        raise click.UsageError("--keep requires --anonymise")
    target = output or Path(f"{'captured' if anonymise else pod.rpartition('/')[2]}{_TEST}")
    if not target.name.endswith(_TEST):
        raise click.UsageError(f"the name of a test file must end with {_TEST}, this is {target.name}")
    beside = target.with_name(target.name.removesuffix(_TEST) + _FIXTURE)
    for path in (target, beside):
        if path.exists() and not force:
            raise click.ClickException(f"{path} already exists: to overwrite it, use --force")
    try:
        ruleset = given.ruleset()
        assert ruleset.policy_set is not None, "--policies is required"
        reducible = _reducible(
            pod, namespace, policy, given, record, sources=ruleset.sources, policy_set=ruleset.policy_set
        )
        made, texts = _frozen(reducible, ruleset.policy_set, target, beside, anonymise=anonymise, keep=keep)
        _verify(texts[0], made, target)
    except (UnknownPod, NotReproduced) as error:
        raise click.ClickException(str(error)) from error
    for path, text in zip((target, beside), texts, strict=False):
        files.replace_file(path, text)
    say(_summary(made, target, beside))
    return 0


def _reducible(
    pod: str,
    namespace: str | None,
    policy: str | None,
    given: Given,
    record: Path | None,
    *,
    sources: tuple[Source, ...],
    policy_set: PolicySet,
) -> ReducibleInputs:
    from kube_policy_scheduler.policy.decision_inputs import unbound
    from kube_policy_scheduler.tooling.capture.reduce import ReducibleInputs

    decided = _record(record, pod, namespace) if record is not None else None
    if decided is not None:
        given = given.as_recorded(decided)
    cluster = given.cluster(scheduler_of(policy_set))
    things, moment = cluster.objects, float(int(cluster.now))  # a test's clock has whole seconds
    if decided is None:
        asked, seed = cluster.state().find(pod, namespace=namespace), given.seed
    else:
        asked = decided.pod
        things = [thing for thing in things if not _same_pod(thing, asked)]
        seed, policy = decided.seed, policy or decided.policy
    rules = _rules(asked, policy_set, sources, policy)
    signals = given.signals((policy_set,), now=moment)
    free = unbound(asked)
    if policy is not None and rules.policy is not None:  # the test has no other way to choose a policy
        free = unbound(asked, scheduler=rules.policy.scheduler or min(policy_set.default_schedulers))
    things = [free if thing is asked else thing for thing in things]
    reducible = ReducibleInputs.of(things, free, rules, seed=seed, now=moment)
    reducible = replace(reducible, signals=signals, kubernetes=cluster.kubernetes)
    if rules.policy is not None and not rules.policy.governs(reducible.inputs().frame()):
        raise click.ClickException(
            f"policy `{rules.policy.name}` does not govern the pod: it is `{_for_which(rules.policy)}`; a test asks"
            " only the policy that governs a pod: leave out --policy"
        )
    if decided is not None:
        _compare(decided, reducible)
    return reducible


def _for_which(policy: Policy) -> str:
    """Return the line of a policy that says which pods it is for."""
    from kube_policy_scheduler.lang import syntax

    header = (s for s in policy.compiled.checked.statements if isinstance(s, syntax.ForPods | syntax.Canary))
    return " ".join(next(header).span.text.split())


def _same_pod(thing: Any, pod: Any) -> bool:
    mine, other = thing.metadata, pod.metadata
    return type(thing) is type(pod) and (mine.namespace, mine.name) == (other.namespace, other.name)


def _record(log: Path, pod: str, namespace: str | None) -> DecisionRecord:
    from kube_policy_scheduler.cli.cluster_sources import records_in

    wanted = f"{namespace}/{pod}" if namespace and "/" not in pod else pod
    found = [record for record in records_in(log) if wanted in (record.key, record.key.partition("/")[2])]
    if not found:
        raise click.ClickException(f"{log} has no decision about `{wanted}`")
    if len({record.key for record in found}) > 1:
        names = ", ".join(sorted({record.key for record in found}))
        raise click.ClickException(f"several pods have the name `{wanted}`: {names}; specify --namespace")
    return found[-1]


def _compare(record: DecisionRecord, reducible: ReducibleInputs) -> None:
    """Refuse a cluster that is not the one of the recorded decision."""
    decided = reducible.alone().verdict()  # it was decided, so what it waited for was there
    if (decided.host or "") == record.node or record.victims:
        return
    then = f"to {record.node}" if record.node else f"nowhere ({record.message})"
    now = f"to {decided.host}" if decided.host else "nowhere"
    raise click.ClickException(
        f"the log says that the pod went {then}, on this cluster it goes {now}: give a --cluster (and --metrics) taken"
        " at that time, or leave out --record to capture what is decided now"
    )


def _rules(pod: Any, policy_set: PolicySet, sources: tuple[Source, ...], name: str | None) -> Rules:
    from kube_policy_scheduler.cluster.cluster import Cluster
    from kube_policy_scheduler.policy.decision_inputs import Rules

    governing = cluster_sources.governing_policy(policy_set, Cluster().templates.pod(pod), name=name)
    return Rules(governing.profile, governing, sources, policies=policy_set)


def _frozen(
    reducible: ReducibleInputs,
    policy_set: PolicySet,
    target: Path,
    beside: Path,
    *,
    anonymise: bool,
    keep: Sequence[str],
) -> tuple[Frozen, list[str]]:
    from kube_policy_scheduler.documents.writing import yaml_list_lines
    from kube_policy_scheduler.tooling.capture.freeze import frozen
    from kube_policy_scheduler.tooling.policy_reads import annotation_keys
    from kube_policy_scheduler.tooling.tester.suite_file import suite_text

    policy = reducible.rules.policy
    assert policy is not None
    # a canary takes pods of its stable policy: a test names both
    deciding = [one for one in (policy.stable, policy) if one is not None]
    sources = [one.compiled.checked.source for one in deciding]
    # the test names one policy: a pod that names no scheduler means the one that it serves
    scheduler = policy.scheduler or min(policy_set.default_schedulers)
    with status_line() as show:
        made = frozen(
            reducible,
            scheduler=scheduler,
            annotations=annotation_keys([policy]),
            names=_pseudonyms(reducible, policy_set, keep) if anonymise else None,
            progress=show,
        )
    references = [_reference(Path(source.name), target.parent) for source in sources]
    document: dict[str, Any] = {"policy": references if len(references) > 1 else references[0]}
    if made.others:
        document["cluster"] = beside.name
    text = suite_text(document | made.document, comment=f"captured by policyctl: {made.kept} matter")
    texts = [text, "".join(yaml_list_lines(made.others, annotations={}))] if made.others else [text]
    return made, texts


def _reference(policy: Path, folder: Path) -> str:
    """Return how a test in a folder names a policy: a file, or a key of a ConfigMap in a file."""
    if not policy.is_file() and policy.parent.is_file():
        return f"{_reference(policy.parent, folder)}#data/{policy.name}"
    return Path(os.path.relpath(policy, folder)).as_posix()


def _pseudonyms(reducible: ReducibleInputs, policy_set: PolicySet, keep: Sequence[str]) -> Pseudonyms:
    from kube_policy_scheduler.tooling.policy_reads import literals
    from kube_policy_scheduler.tooling.snapshot.fields import recorded_objects
    from kube_policy_scheduler.tooling.snapshot.pseudonyms import KEPT_LABELS, Pseudonyms, kept_texts

    things = recorded_objects((*reducible.nodes, *reducible.placed, reducible.pod, *reducible.others))
    return Pseudonyms(kept=kept_texts(things, labels=(*KEPT_LABELS, *keep)) | literals(policy_set.policies))


def _verify(text: str, made: Frozen, target: Path) -> None:
    """Run the test as `policyctl test` will.

    Raises:
        NotReproduced: it does not pass.
    """
    from kube_policy_scheduler.cli.suites import load_suite
    from kube_policy_scheduler.diagnostics import Source
    from kube_policy_scheduler.documents.fixtures import parse_objects
    from kube_policy_scheduler.documents.writing import json_list_lines
    from kube_policy_scheduler.tooling.capture.freeze import NotReproduced
    from kube_policy_scheduler.tooling.tester.run import State
    from kube_policy_scheduler.tooling.tester.suite_file import Fixtures

    # the fixture beside it is not written yet
    alone = "\n".join(line for line in text.splitlines() if not line.startswith("cluster: ")) + "\n"
    loaded = load_suite(target, Source(str(target), alone))
    if made.others:
        objects = parse_objects(Source("cluster", "".join(json_list_lines(made.others, annotations={}))))
        loaded = replace(loaded, fixtures=Fixtures(objects, {}, {}))
    result = loaded.run(shuffle=not made.verdict.tied).result()
    (case,) = result.cases
    if case.state is not State.PASSED:
        said = "; ".join(f"expected {one.mismatch.expected}, got {one.mismatch.got}" for one in case.failures)
        raise NotReproduced(f"the test would not pass: {said or case.state.value}; nothing was written")


def _summary(made: Frozen, target: Path, beside: Path) -> str:
    text = (
        f"{target}: {made.document['cases'][0]['name']}; {made.kept};"
        f" after {plural(made.trials, 'decision')}; it passes"
    )
    if made.others:
        text += f"\n{beside}: {plural(len(made.others), 'other object')} that it needs"
    if not made.same_margin:
        text += "\nthe margin is that of the reduced cluster, because it depends on all nodes"
    return text

"""`policyctl conformance`: decide recorded cases and hold every field against kube-scheduler's verdict."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_policy_scheduler.cli.files import source
from kube_policy_scheduler.cli.kubernetes_option import chosen_rules, kubernetes_option
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import format_option, say, say_lines, status_line, terminal

if TYPE_CHECKING:
    from kube_policy_scheduler.kubernetes_rules import KubernetesChoice, KubernetesRules
    from kube_policy_scheduler.policy.policy_set import PolicySet
    from kube_policy_scheduler.tooling.conformance import Case, CaseResult, FamilyReport
    from kube_policy_scheduler.tooling.differences import Difference

EPILOG = """
\b
Examples:
  policyctl conformance cases.jsonl.gz                    # all cases, one line for each family
  policyctl conformance cases.jsonl.gz --case taints-12   # one case, with all its differences
  policyctl conformance cases.jsonl --scheduler-config scheduler-config.yaml   # recorded with these profiles
  policyctl conformance *.jsonl --format json             # for scripts

\b
Exit codes: 0 no differences; 1 a difference; 2 a file cannot be read or used, or contains no case.
"""
_SHOWN = 3


SECTION = Section.CHANGE


@click.command(epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--case", "ids", multiple=True, metavar="ID", help="Run only the case with this ID; may be repeated.")
@click.option("--family", "families", multiple=True, metavar="NAME", help="Run only this family; may be repeated.")
@click.option(
    "--show", default=_SHOWN, show_default=True, metavar="N", help="Number of differing cases to show for each family."
)
@click.option(
    "--scheduler-config", type=click.Path(path_type=Path), metavar="FILE",
    help="KubeSchedulerConfiguration with which the cases were recorded: decide by the policies that `policyctl import`"
    " makes of its profiles.",
)  # fmt: skip
@kubernetes_option("the one that each case says in `kubernetes`, 1.36.2 without")
@format_option()
def command(
    files: tuple[Path, ...],
    ids: tuple[str, ...],
    families: tuple[str, ...],
    show: int,
    scheduler_config: Path | None,
    kubernetes: KubernetesChoice,
    form: str,
) -> int:
    """Compare decisions with recorded decisions of kube-scheduler, or of Karmada's scheduler.

    Each line of a FILE (JSON Lines, plain or gzip, - for standard input) contains a cluster, a pod, and the decision of
    kube-scheduler: the status and reasons for every node, scores, preemption, and message. The command decides each
    case with Kubernetes' default rules and reports differences.

    A line may also contain a ResourceBinding, the clusters of a Karmada control plane, and the decision of Karmada's
    scheduler. The command decides such a case by the placement of the binding.

    With --scheduler-config, each case is decided by the policy for the profile of its pod's schedulerName, so that you
    see whether the imported policies do what the profiles did. With several profiles, the output has a line for each
    profile and family.
    """
    from kube_policy_scheduler.adapters.files.conformance_files import CaseFileError
    from kube_policy_scheduler.tooling.conformance import report

    policies = _imported(scheduler_config) if scheduler_config is not None else None
    try:
        with status_line() as show_line:
            results = report(
                _results(_cases(files, kubernetes), ids, families, policies, show_line),
                keep=show if not ids else sys.maxsize,
            )
    except CaseFileError as error:
        raise click.ClickException(str(error)) from error
    if not results:
        wanted = f": no case has the ID {' or '.join(ids)}" if ids else " is empty: expected recorded cases"
        raise click.ClickException(", ".join(map(str, files)) + wanted)
    if form == "json":
        say(json.dumps(_as_json(results), indent=2))
    else:
        _print(results, everything=bool(ids))
    return 0 if all(r.cases == r.agreements for r in results.values()) else 1


def _results(
    cases: Iterable[Case],
    ids: tuple[str, ...],
    families: tuple[str, ...],
    policies: PolicySet | None,
    show_line: Callable[[str], None],
) -> Iterator[CaseResult]:
    from kube_policy_scheduler.tooling.conformance import CaseError, CaseResult, check, check_by_policies
    from kube_policy_scheduler.tooling.differences import Difference

    for number, case in enumerate(cases, 1):
        show_line(f"case {number}: {case.family}")
        if (ids and case.id not in ids) or (families and case.family not in families):
            continue
        try:
            yield check(case) if policies is None else check_by_policies(case, policies)
        except CaseError as error:
            yield CaseResult(case.id, case.family, (Difference("case", "API objects", str(error)),))


def _imported(path: Path) -> PolicySet:
    """Return the policies that follow from a KubeSchedulerConfiguration."""
    from kube_policy_scheduler.cli.policies import compiled
    from kube_policy_scheduler.diagnostics import Source
    from kube_policy_scheduler.documents.yaml_document import parse_document
    from kube_policy_scheduler.tooling.importing.translation import import_configuration

    imported = import_configuration(parse_document(source(path)))
    for each in imported:
        for note in each.notes:
            say(f"{each.name}: {note}", err=True)
    return compiled([Source(f"{each.name}.policy", each.text) for each in imported])


def _cases(files: Iterable[Path], choice: KubernetesChoice) -> Iterator[Case]:
    from kube_policy_scheduler.adapters.files.conformance_files import CaseFileError, read_lines
    from kube_policy_scheduler.tooling.conformance import CaseError, parse_case

    for path in files:
        for number, line in read_lines(path):
            try:
                case = parse_case(line, number)
                yield parse_case(line, number, _rules(choice, case)) if choice else case
            except CaseError as error:
                raise CaseFileError(f"{path}: {error}") from error


def _rules(choice: KubernetesChoice, case: Case) -> KubernetesRules:
    return chosen_rules(choice, lambda: case.rules)


def _print(results: Mapping[str, FamilyReport], *, everything: bool) -> None:
    cases = sum(family.cases for family in results.values())
    agreements = sum(family.agreements for family in results.values())
    rows = [("family", "cases", "agree")]
    rows += [(name, str(family.cases), str(family.agreements)) for name, family in results.items()]
    say_lines(terminal().table([*rows, ("all", str(cases), str(agreements))], right_from=1))
    for family in results.values():
        for result in family.first_differences:
            say(f"\n{result.id}")
            shown = result.differences if everything else result.differences[:_SHOWN]
            for difference in shown:
                said, here = f"{result.recorded}:", "here:"
                say(f"  {difference.path}\n    {said} {_text(difference.want)}")
                say(f"    {here:{len(said)}} {_text(difference.got)}")
            if len(shown) < len(result.differences):
                say(f"  and {len(result.differences) - len(shown)} more; all with --case {result.id}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def _as_json(results: Mapping[str, FamilyReport]) -> dict[str, Any]:
    return {
        "cases": sum(family.cases for family in results.values()),
        "agreements": sum(family.agreements for family in results.values()),
        "families": {
            name: {
                "cases": family.cases,
                "agreements": family.agreements,
                "disagreements": [
                    {"id": result.id, "differences": [_difference(d) for d in result.differences]}
                    for result in family.first_differences
                ],
            }
            for name, family in results.items()
        },
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {"path": difference.path, "want": difference.want, "got": difference.got}

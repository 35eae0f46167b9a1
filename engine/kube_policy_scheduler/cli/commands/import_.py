"""`policyctl import`: kube-scheduler's configuration, or the queues of another scheduler, as policies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_policy_scheduler.cli import files
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.terminal import say

if TYPE_CHECKING:
    from kube_policy_scheduler.tooling.importing.settings import ImportedSettings
    from kube_policy_scheduler.tooling.importing.translation import Imported

EPILOG = """
\b
Examples:
  policyctl import scheduler-config.yaml                    # one profile: to standard output
  policyctl import scheduler-config.yaml --output policies/ # a file for each profile
  policyctl import scheduler-config.yaml --output policies/ --settings config.yaml  # extenders and limits, too
  kubectl get clusterqueues,cohorts,localqueues,resourceflavors -A -o yaml | policyctl import -   # Kueue
  kubectl get queues.scheduling.volcano.sh -o yaml | policyctl import - --output policies/        # Volcano
  policyctl import queues.yaml --output policies/           # YuniKorn; its ConfigMap, too
  kubectl -n kube-system get configmap scheduler-config -o jsonpath='{.data.config\\.yaml}' | policyctl import -

\b
Exit codes: 0 everything was converted; 1 something could not be converted exactly: see the comments in the policy and
standard error; 2 the input cannot be used.
"""


SECTION = Section.SET_UP


@click.command("import", epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for the policies.")
@click.option(
    "--settings", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Also write a configuration of this scheduler with the extenders and the limits on requests.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def command(file: Path, output: Path | None, settings: Path | None, force: bool) -> int:
    """Convert a KubeSchedulerConfiguration, or the queues of another scheduler, to policies.

    FILE is YAML or JSON with one or more documents; `-` is standard input.

    From the configuration of kube-scheduler, each profile becomes a policy that serves its schedulerName. The command
    converts disabled plugins, weights, scoring strategies, added affinity, and the arguments of Trimaran's
    TargetLoadPacking and LoadVariationRiskBalancing. With --settings, it also writes the extenders and the limits on
    requests as a configuration of this scheduler, which then calls the extenders as kube-scheduler does.

    Queues become one policy, `queues`, with `queue` statements. The command reads ClusterQueues, Cohorts, LocalQueues
    and ResourceFlavors of Kueue, the queues.yaml of YuniKorn, Queues of Volcano and KAI, and ElasticQuotas of
    scheduler-plugins and Koordinator. It names each field that it cannot convert.
    """
    imported, carried = _imported(file, with_settings=settings is not None)
    if output is None and len(imported) > 1:
        names = ", ".join(each.name for each in imported)
        raise click.UsageError(
            f"the configuration has {len(imported)} profiles ({names}): specify a folder with --output"
        )
    texts = {} if output is None else {_path(each, output): each.text for each in imported}
    if settings is not None and carried is not None:
        texts[settings] = carried.text
    if texts and not _written(texts, force=force):
        return 2
    if output is None:
        click.echo(imported[0].text, nl=False)
    notes = [(each.name, note) for each in imported for note in each.notes]
    notes += [(str(settings), note) for note in (carried.notes if carried is not None else ())]
    for name, note in notes:
        say(f"{name}: {note}", err=True)
    return 1 if notes else 0


def _imported(file: Path, *, with_settings: bool) -> tuple[tuple[Imported, ...], ImportedSettings | None]:
    from kube_policy_scheduler.documents.yaml_document import parse_document, parse_documents
    from kube_policy_scheduler.tooling.importing.configuration import KIND
    from kube_policy_scheduler.tooling.importing.foreign_queues import has_queues, import_queues, wrong_kind
    from kube_policy_scheduler.tooling.importing.settings import import_settings
    from kube_policy_scheduler.tooling.importing.translation import Imported, import_configuration

    source = files.source(file)
    documents = parse_documents(source)
    if has_queues(documents):
        if with_settings:
            raise click.UsageError(
                "--settings is for the configuration of kube-scheduler: no settings follow from queues"
            )
        queues = import_queues(documents)
        return (Imported("queues", queues.text, queues.notes),), None
    if len(documents) < 2 and all(_may_be(each.value, KIND) for each in documents):
        document = parse_document(source)
        policies = import_configuration(document, with_settings=with_settings)
        return policies, import_settings(document) if with_settings else None
    raise wrong_kind(documents)


def _may_be(value: object, kind: str) -> bool:
    return not isinstance(value, dict) or value.get("kind") in (None, kind)


def _path(imported: Imported, folder: Path) -> Path:
    return folder / f"{re.sub(r'[^A-Za-z0-9.-]', '-', imported.name)}.policy"


def _written(texts: Mapping[Path, str], *, force: bool) -> bool:
    there = [str(path) for path in texts if path.exists()]
    if there and not force:
        say(
            f"nothing was written because these files exist: {', '.join(there)}; to overwrite them, use --force",
            err=True,
        )
        return False
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.replace_file(path, text)
        except OSError as error:
            say(f"cannot write {path}: {(error.strerror or str(error)).lower()}", err=True)
            return False
        say(f"wrote {path}", err=True)
    return True

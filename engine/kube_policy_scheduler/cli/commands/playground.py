"""`policyctl playground`: a page on this machine that shows what policies do while you write them."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from kube_policy_scheduler.cli import cluster_sources, files
from kube_policy_scheduler.cli.given import Given
from kube_policy_scheduler.cli.kubernetes_option import chosen_rules, kubernetes_option
from kube_policy_scheduler.cli.sections import Section
from kube_policy_scheduler.cli.suites import load_suite
from kube_policy_scheduler.cli.terminal import say

if TYPE_CHECKING:
    from kube_policy_scheduler.cluster.signals import Query, Signals
    from kube_policy_scheduler.kubernetes_rules import KubernetesChoice
    from kube_policy_scheduler.playground.live_tests import TestedFile
    from kube_policy_scheduler.playground.session import CapturedTest, Measure, OpenedCluster, PodChoice, Session
    from kube_policy_scheduler.playground.sharing import Share

EPILOG = """
\b
Examples:
  policyctl playground                                       # an example policy on an example cluster
  policyctl playground card.policy --cluster cluster.yaml    # your policy on a saved cluster
  policyctl playground policies/ --live                      # your current kubectl context, read-only
  policyctl playground policies/fleet/ --karmada --context karmada-apiserver  # clusters of a fleet, read-only
  policyctl playground policies/ --cluster now.json.gz --metrics now.metrics.yaml
  policyctl playground shared.json                           # what somebody shared with you
  policyctl playground --no-open --port 8765                 # on another machine, with ssh -L 8765:127.0.0.1:8765

\b
Exit codes: 0 or 130 you ended it with Ctrl-C; 2 the command could not run.
"""
_T = TypeVar("_T")
_LONGEST_PATH = 1000
_SHARED = re.compile(r'\s*\{\s*"playground"')
_MOST_KEPT = 64
"""Sets of queries whose answers are kept."""


SECTION = Section.WRITE


@click.command(epilog=EPILOG)
@click.argument("policies", nargs=-1, metavar="[POLICY|SHARED]...", shell_complete=files.complete_path)
@click.option(
    "--cluster", "clusters", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="Use a saved cluster; may be repeated.  [default: an example cluster]",
)  # fmt: skip
@click.option(
    "--fleet", "fleets", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="Use the clusters of a Karmada fleet: a file with its Clusters and ResourceBindings, and the Deployments or"
        " others that these name; may be repeated.  [default: an example fleet]",
)  # fmt: skip
@click.option(
    "--karmada", is_flag=True,
    help="Use the clusters of the Karmada control plane of the kubeconfig, as they are now. It is only read.",
)  # fmt: skip
@click.option(
    "--workload", metavar="NAME",
    help="Workload of the fleet to begin with, or NAMESPACE/NAME.  [default: the first one with pods]",
)  # fmt: skip
@click.option("--live", is_flag=True, help="List the cluster of your kubectl context once, and again when you ask.")
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file; implies --live, without --karmada."
)
@click.option("--context", help="Context of the kubeconfig; implies --live, without --karmada.")
@kubernetes_option("that of the snapshot or the live cluster, or 1.36")
@cluster_sources.decision_options
@click.option(
    "--port", default=0, type=click.IntRange(0, 65535), help="Port on this machine.  [default: a free one]"
)  # fmt: skip
@click.option("--no-open", is_flag=True, help="Print the address only, and open no browser.")
def command(
    policies: tuple[str, ...],
    clusters: tuple[Path, ...],
    fleets: tuple[Path, ...],
    karmada: bool,
    workload: str | None,
    live: bool,
    kubeconfig: Path | None,
    context: str | None,
    metrics: Path | None,
    prometheus_url: str | None,
    seed: int,
    now: float | None,
    kubernetes: KubernetesChoice,
    port: int,
    no_open: bool,
) -> int:
    """Try policies in the browser while you write them.

    The command serves a page on this machine: your policies on the left, the nodes of a cluster on the right. After
    each keystroke, the page shows what the scheduler would decide. For a policy of workloads, it shows the clusters of
    a fleet instead. Each POLICY is a file or a folder; SHARED is a file or a link that somebody shared from the page.
    You can open the page only with the address that the command prints, and nothing leaves this machine. To end the
    command, press Ctrl-C.
    """
    from kube_policy_scheduler.playground.session import RequestError, Session, check_files

    if fleets and karmada:
        raise click.UsageError("use --fleet for files, or --karmada for a live control plane, not both")
    if workload is not None and not (fleets or karmada):
        raise click.UsageError("--workload names a workload of a fleet: use it with --fleet or --karmada")
    live = live or (not karmada and (kubeconfig is not None or context is not None))
    if live and clusters:
        raise click.UsageError("--cluster is a saved cluster: do not use --live, --kubeconfig or --context with it")
    where = Given(
        clusters, kubeconfig, context, metrics=metrics, prometheus_url=prometheus_url, now=now, kubernetes=kubernetes
    )
    try:
        given = _given(policies, of_workloads=bool(fleets) or karmada)
        if fleets or karmada:
            given = replace(given, fleet=_fleet_text(fleets, where, workload or ""))
        check_files(given.texts)
        sources = ClusterSources(where, live=live)
        cluster, measure = given.cluster if given.cluster and not (live or clusters) else sources.opened()
        session = Session(given.texts, cluster, measure=measure, seed=seed, pod=given.pod, fleet=given.fleet)
    except RequestError as error:
        raise click.ClickException(str(error)) from error
    gc.freeze()  # the cluster is not looked through for garbage between two keys
    asyncio.run(_serve(session, FileDoors(Path.cwd(), given.paths, sources), port=port, opens=not no_open))
    return 0


# --- what is tried ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Given:
    """What the command line names."""

    texts: dict[str, str]
    paths: dict[str, Path]
    """Of the policies that may be written back."""
    pod: PodChoice | None = None
    cluster: tuple[OpenedCluster, Measure] | None = None
    """That of a shared file."""
    fleet: str = ""
    """That of a shared file or link, of --fleet or of --karmada, as YAML."""


def _fleet_text(paths: Sequence[Path], given: Given, workload: str) -> str:
    """Return the fleet of files, or of the control plane of the kubeconfig, as the page shows it.

    Raises:
        DocumentError: a file cannot be read.
        click.ClickException: the control plane cannot be read, or no binding places the workload.
    """
    from kube_policy_scheduler.cli.fleets import listing_in, live_listing
    from kube_policy_scheduler.fleet.karmada.reading import cluster
    from kube_policy_scheduler.playground.session import MOST_FLEET_TEXT
    from kube_policy_scheduler.tooling.fleet_text import bound_in, fleet_as_text

    if paths:
        listing, taken = listing_in(paths)
    else:
        listing, taken = live_listing(kubeconfig=given.kubeconfig, context=given.context), None
    bound, unread = bound_in(listing.bindings, listing.templates)
    now = given.now if given.now is not None else taken if taken is not None else time.time()
    try:
        found = fleet_as_text(map(cluster, listing.clusters), bound, now=now, name=workload, most=MOST_FLEET_TEXT)
    except LookupError as error:
        raise click.ClickException(
            f"{error}: leave --workload out, or see `kubectl get resourcebindings -A`"
        ) from error
    unlisted = [f"{one.resource}: {one.reason}" for one in listing.unlisted]
    for each in (*unlisted, *listing.malformed, *unread, *(f"not shown: {each}" for each in found.left_out)):
        say(f"policyctl: {each}", err=True)
    return found.text


def _given(arguments: Sequence[str], *, of_workloads: bool = False) -> _Given:
    """Return what the arguments name. of_workloads: whether the page is to begin with a policy of workloads."""
    from kube_policy_scheduler.playground.opening import FLEET_POLICY_NAME, POLICY_NAME, examples, start_policy
    from kube_policy_scheduler.playground.sharing import is_link, read_link, read_share

    if not arguments and of_workloads:
        return _Given(next(dict(files) for files in examples().values() if FLEET_POLICY_NAME in files), {})
    if not arguments:
        return _Given({POLICY_NAME: start_policy()}, {})
    if len(arguments) == 1 and is_link(arguments[0]):
        return _shared(read_link(arguments[0]))
    paths = [Path(text) for text in arguments]
    if len(paths) == 1 and paths[0].suffix == ".json" and paths[0].is_file():
        source = files.source(paths[0])
        if _SHARED.match(source.text):
            return _shared(read_share(source.text))
    sources = cluster_sources.policies_in(paths)
    writable = {source.name: Path(source.name) for source in sources if Path(source.name).is_file()}
    return _Given({source.name: source.text for source in sources}, writable)


def _shared(share: Share) -> _Given:
    from kube_policy_scheduler.playground.sharing import cluster_of

    if share.cluster is None:
        return _Given(share.files, {}, share.pod, fleet=share.fleet)
    cluster, metrics = cluster_of(share.cluster)
    measured = cluster, lambda queries: metrics.signals(queries, now=cluster.now)
    return _Given(share.files, {}, share.pod, measured, share.fleet)


class ClusterSources:
    """Where clusters come from, and the metrics of them all."""

    def __init__(self, given: Given, *, live: bool) -> None:
        self._given = given
        self._live = live

    def opened(self) -> tuple[OpenedCluster, Measure]:
        """Read what the command line names, again each time; without that the example.

        Raises:
            DocumentError: a file cannot be read.
            click.ClickException: the live cluster cannot be read.
        """
        from kube_policy_scheduler.playground.opening import start

        if self._given.clusters:
            return self.saved(self._given.clusters)
        if self._live:
            return self.live()
        started = start()
        if self._given.kubernetes:
            rules = chosen_rules(self._given.kubernetes, lambda: started.cluster.kubernetes)
            started = replace(started, cluster=replace(started.cluster, kubernetes=rules))
        now = started.cluster.now
        if self._given.metrics is None and self._given.prometheus_url is None:
            return started.cluster, lambda queries: started.metrics.signals(queries, now=now)
        measure, problems = self._measure(now)
        return replace(started.cluster, problems=problems), measure

    def live(self) -> tuple[OpenedCluster, Measure]:
        """List the cluster of the kubeconfig; nothing is ever written to it.

        Raises:
            click.ClickException: it cannot be read.
        """
        from kube_policy_scheduler.playground.session import OpenedCluster, Origin

        began = time.time()
        given = replace(self._given, clusters=())
        cluster = given.cluster()
        moment = cluster.now
        options = [("--kubeconfig", given.kubeconfig), ("--context", given.context)]
        option = " ".join(f"{name} {shlex.quote(str(value))}" for name, value in options if value is not None)
        measure, problems = self._measure(moment)
        name = given.context or "current context"
        opened = OpenedCluster(
            name, Origin.LIVE, cluster.objects, moment, option=option, taken=began, problems=problems,
            kubernetes=cluster.kubernetes,
        )  # fmt: skip
        return opened, measure

    def saved(self, paths: Sequence[Path], *, name: str = "") -> tuple[OpenedCluster, Measure]:
        """Read saved clusters; name: what people know them by, "": their paths."""
        from kube_policy_scheduler.playground.session import OpenedCluster, Origin

        began = time.time()
        cluster = replace(self._given, clusters=tuple(paths), kubeconfig=None, context=None).cluster()
        moment = cluster.now
        taken = moment if self._given.now is None and moment < began else None  # else it is the clock
        option = " ".join(f"--cluster {shlex.quote(str(path))}" for path in paths)
        measure, problems = self._measure(moment)
        name = name or ", ".join(map(str, paths))
        opened = OpenedCluster(
            name, Origin.SNAPSHOT, cluster.objects, moment, option=option, taken=taken, problems=problems,
            kubernetes=cluster.kubernetes,
        )  # fmt: skip
        return opened, measure

    def _measure(self, now: float) -> tuple[Measure, Callable[[], Sequence[str]]]:
        """Return what knows the metrics, and what says why they have no values.

        That is a file, Prometheus, which is asked once for each query, or nothing.
        """
        from kube_policy_scheduler.cluster.signals import Signals
        from kube_policy_scheduler.documents.yaml_document import parse_document
        from kube_policy_scheduler.tooling.tester.suite_file import read_metrics

        given = self._given
        if given.metrics is not None:
            found = read_metrics(parse_document(files.source(given.metrics)))
            return lambda queries: found.signals(queries, now=now), tuple
        if given.prometheus_url is None:
            return lambda queries: Signals.EMPTY, tuple
        asked = _AskedOnce(given.prometheus_url)
        return asked.measure, lambda: tuple(asked.problems)


class _AskedOnce:
    """Prometheus, asked once for each query: a policy that is edited asks the same ones again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._known: dict[tuple[Query, ...], tuple[Signals, list[str]]] = {}
        self.problems: list[str] = []
        """Why the last queries have no answer."""

    def measure(self, queries: Sequence[Query]) -> Signals:
        """Return the answers."""
        from kube_policy_scheduler.cluster.signals import Signals

        key = tuple(queries)
        if key not in self._known:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            found = cluster_sources.measured(self._url, key) if key else None
            failures = found.failures if found is not None else {}
            problems = [f"{promql}: {why}" for promql, why in failures.items()]
            self._known[key] = found.signals if found is not None else Signals.EMPTY, problems
        answers, self.problems = self._known[key]
        return answers


# --- what the page may open and write --------------------------------------------------------------------


class FileDoors:
    """Files below one folder: saved clusters to open, tests to write, and the policies that were named."""

    def __init__(self, folder: Path, policies: Mapping[str, Path], sources: ClusterSources) -> None:
        self._folder = folder.resolve()
        self._policies = policies
        self._sources = sources
        self._newest = sources.opened
        """Reads the cluster that was opened last."""

    def open(self, path: str) -> tuple[OpenedCluster, Measure]:
        """Return the cluster in a file below the folder.

        Raises:
            RequestError: it is elsewhere, or not a cluster.
        """
        found = self._below(path, must_exist=True)
        return self._opened(lambda: self._sources.saved([found], name=str(found.relative_to(self._folder))))

    def live(self) -> tuple[OpenedCluster, Measure]:
        """Return the cluster of the kubeconfig, listed now.

        Raises:
            RequestError: it cannot be read.
        """
        return self._opened(self._sources.live)

    def refresh(self) -> tuple[OpenedCluster, Measure]:
        """Return the cluster that was opened last, at first the one that the command line names, read again.

        Raises:
            RequestError: it cannot be read.
        """
        return self._opened(self._newest)

    def _opened(self, read: Callable[[], tuple[OpenedCluster, Measure]]) -> tuple[OpenedCluster, Measure]:
        found = self._read(read)
        self._newest = read
        return found

    def save(self, name: str, text: str, *, replaced: str) -> None:
        """Write a policy back; replaced: the text that the page believes to be in the file.

        Raises:
            FileChanged: the file has another text by now.
            RequestError: it was not opened from a file, or cannot be read or written.
        """
        from kube_policy_scheduler.playground.server import FileChanged
        from kube_policy_scheduler.playground.session import RequestError

        path = self._policies.get(name)
        if path is None:
            raise RequestError(f"`{name}` was not opened from a file: copy the text instead")
        if path.exists():
            now = self._read(lambda: files.source(path).text)
            if now not in (replaced, text):
                raise FileChanged(f"{name} was changed on disk since you opened it; your text is not saved", now)
        self._write(path, text)

    def run_tests(self, texts: Mapping[str, str]) -> list[TestedFile]:
        """Run the test files beside the policies with the texts of the page, those that name one of them.

        Raises:
            RequestError: there are too many of them.
        """
        from kube_policy_scheduler.documents.yaml_document import DocumentError
        from kube_policy_scheduler.playground.live_tests import MOST_FILES, tested, unreadable
        from kube_policy_scheduler.playground.session import RequestError

        drafts = {path.resolve(): texts[name] for name, path in self._policies.items() if name in texts}
        folders = dict.fromkeys(path.parent for path in drafts)
        beside = [one for folder in folders for one in sorted(folder.glob(f"*{files.TEST_SUFFIX}")) if one.is_file()]
        if len(beside) > MOST_FILES:
            raise RequestError(f"{len(beside)} test files are beside the policies, at most {MOST_FILES} are run")
        found = []
        for path in beside:
            name = os.path.relpath(path, self._folder)
            try:
                loaded = load_suite(path, root=self._folder, drafts=drafts)
            except DocumentError as error:
                found.append(unreadable(name, error))
                continue
            if any(Path(source.name).resolve() in drafts for source in loaded.sources):
                found.append(tested(name, loaded.run()))
        return found

    def save_test(self, made: CapturedTest, path: str, *, replace: bool, dry_run: bool) -> tuple[str, str]:
        """Write a test, and a fixture file where it needs one.

        Raises:
            RequestError: the path leads elsewhere, a file is there already, or cannot be written.
        """
        from kube_policy_scheduler.playground.session import RequestError

        target = self._below(path, must_exist=False)
        if not target.name.endswith(files.TEST_SUFFIX) or target.name == files.TEST_SUFFIX:
            raise RequestError(f"the name of a test file must end with {files.TEST_SUFFIX}, this is {target.name}")
        beside = target.with_name(target.name.removesuffix(files.TEST_SUFFIX) + ".cluster.yaml")
        named = [self._policies.get(name, Path(name).name) for name in made.policies]
        references = [Path(os.path.relpath(name, target.parent)).as_posix() for name in named]
        text, objects = made.texts(references, beside=beside.name)
        if dry_run:
            return str(target.relative_to(self._folder)), text
        written = {target: text} | ({beside: objects} if objects else {})
        for file in written:
            if file.exists() and not replace:
                raise RequestError(f"{file.relative_to(self._folder)} already exists: choose to replace it")
        for file, content in written.items():
            self._write(file, content)
        return str(target.relative_to(self._folder)), text

    def _below(self, text: str, *, must_exist: bool) -> Path:
        """Return a path below the folder, with all links followed."""
        from kube_policy_scheduler.playground.session import RequestError

        if not text or len(text) > _LONGEST_PATH or not text.isprintable():
            raise RequestError("the path is empty, too long, or has characters that cannot be printed")
        try:
            path = (self._folder / text).resolve()
        except (OSError, RuntimeError) as error:  # a ring of links
            raise RequestError(f"{text}: cannot be followed") from error
        if not path.is_relative_to(self._folder):
            raise RequestError(f"{text} is outside of {self._folder}, where the command was started")
        if must_exist and not path.is_file():
            raise RequestError(f"{text} is not a file")
        return path

    def _read(self, read: Callable[[], _T]) -> _T:
        from kube_policy_scheduler.documents.yaml_document import DocumentError
        from kube_policy_scheduler.playground.session import RequestError

        try:
            return read()
        except click.ClickException as error:
            raise RequestError(error.message) from error
        except DocumentError as error:
            raise RequestError(str(error.diagnostics[0].message)) from error

    def _write(self, path: Path, text: str) -> None:
        from kube_policy_scheduler.adapters.files.output_file import OutputError, write_file
        from kube_policy_scheduler.playground.session import RequestError

        try:
            write_file(path, [text])
        except (OutputError, UnicodeEncodeError) as error:
            raise RequestError(str(error)) from error


async def _serve(session: Session, doors: FileDoors, *, port: int, opens: bool) -> None:
    from kube_policy_scheduler.playground.server import Playground, PortTaken

    try:
        async with Playground(session, doors=doors, port=port) as playground:
            say(f"Playground: {playground.url}")
            say("To end it, press Ctrl-C.", err=True)
            sys.stdout.flush()  # also where a program reads it
            if opens and not _has_browser():
                say("policyctl: there is no browser here: open the address yourself", err=True)
            elif opens:
                await asyncio.to_thread(click.launch, playground.url)
            await asyncio.Event().wait()
    except PortTaken as error:
        raise click.ClickException(f"{error}; choose another with --port") from error


def _has_browser() -> bool:
    """Return whether a browser with a window can be opened: one in the terminal would take it away."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))

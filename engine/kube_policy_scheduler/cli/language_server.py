"""The Language Server Protocol over standard input and output: carries texts to `editor` and answers back.

The only module that knows the protocol. Documents are synchronised whole: they are small, and so no two ideas of what
a line is can come apart.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from kube_policy_scheduler.cli.editor_files import EditorFiles, folder_of, is_path, name_of, time_zones
from kube_policy_scheduler.cli.files import TEST_SUFFIX, root_of
from kube_policy_scheduler.cli.live_words import LiveSources, LiveWords
from kube_policy_scheduler.diagnostics import Diagnostic, Severity, Source, Span
from kube_policy_scheduler.editor import completion, names, outline
from kube_policy_scheduler.editor.cluster_words import ClusterWords, together, words_in
from kube_policy_scheduler.editor.documents import (
    EditedDocument,
    edited_document,
    policies_of,
    queries_of,
    templates_of,
    value_of,
)
from kube_policy_scheduler.editor.fixes import fixes
from kube_policy_scheduler.editor.hover import builtin_text, hover
from kube_policy_scheduler.editor.positions import Encoding, Lines
from kube_policy_scheduler.editor.project import Project, look_at
from kube_policy_scheduler.editor.queue_amounts import MOST_CLUSTERS, RecordedCluster, recorded_cluster
from kube_policy_scheduler.editor.trials import Trial, hints, shown_end, shown_summary
from kube_policy_scheduler.editor.yaml_texts import complete_in, hover_in, keys_below, scalars
from kube_policy_scheduler.lang.environment import Environment
from kube_policy_scheduler.lang.formatting.format import Formatted, format_source
from kube_policy_scheduler.lang.owner import Owner
from kube_policy_scheduler.lint.runner import all_codes

NAME = "kube-policy-scheduler"
DEBOUNCE_SECONDS = 0.03
"""Between the last key and the check; the check itself takes about as long."""
LONGEST_RUN_SECONDS = 20.0
"""Of a test file that runs while it is edited; `policyctl test` has no such limit."""
RUN_TESTS = "policyctl.test"
"""The command of code lenses; takes the URI of a test file."""
_SEVERITIES = {
    Severity.ERROR: lsp.DiagnosticSeverity.Error,
    Severity.WARNING: lsp.DiagnosticSeverity.Warning,
    Severity.NOTE: lsp.DiagnosticSeverity.Information,
}
_ITEM_KINDS = {
    completion.ItemKind.KEYWORD: lsp.CompletionItemKind.Keyword,
    completion.ItemKind.FUNCTION: lsp.CompletionItemKind.Function,
    completion.ItemKind.FIELD: lsp.CompletionItemKind.Field,
    completion.ItemKind.VARIABLE: lsp.CompletionItemKind.Variable,
    completion.ItemKind.VALUE: lsp.CompletionItemKind.Value,
    completion.ItemKind.FILE: lsp.CompletionItemKind.File,
}
_COLOURS = [colour.value for colour in outline.Colour]
_SYMBOL_KINDS = {
    "let": lsp.SymbolKind.Variable,
    "def": lsp.SymbolKind.Function,
    "metric": lsp.SymbolKind.Constant,
    "policy": lsp.SymbolKind.Package,
}
_log = logging.getLogger(__name__)


class PolicyServer(LanguageServer):
    """The server, with the texts that it knows and what was found in them."""

    def __init__(
        self,
        environment: Environment,
        *,
        owner_of: Callable[[Source], Owner | None] | None = None,
        live: LiveSources | None = None,
    ) -> None:
        super().__init__(NAME, version("kube-policy-scheduler"), text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
        self.environment = environment
        self.owner_of = owner_of
        self.files = EditorFiles()
        self.projects: dict[str, tuple[tuple[Source, ...], Project]] = {}
        """By folder, the last look with the texts that it was of."""
        self.published: dict[str, set[str]] = {}
        """By folder, the names that the editor shows diagnostics of."""
        self.checks: dict[str, asyncio.Task[None]] = {}
        """By folder, the next look."""
        self.trials: dict[str, tuple[Source, Trial]] = {}
        """By the name of the test file, its last run with its text at that time."""
        self.runs: dict[str, asyncio.Task[None]] = {}
        """By the name of the test file, a run that has not ended."""
        self.recorded: dict[str, tuple[Source, RecordedCluster | None]] = {}
        """By the name of the file, its text and the cluster that it holds."""
        self.one_run = asyncio.Semaphore(1)
        self.run_tests_on_save = True
        self.live = LiveWords(live.read, report=self._warn) if live is not None else None

    def _warn(self, text: str) -> None:
        """Write a warning to the log of the editor."""
        self.window_log_message(lsp.LogMessageParams(lsp.MessageType.Warning, text))

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log a fault: one request has no answer, the editor goes on."""
        _log.error("cannot answer: %s", error, exc_info=error)

    # --- texts -------------------------------------------------------------------------------------------

    def lines(self, source: Source) -> Lines:
        """Return the lines of a source as the editor counts."""
        return Lines(source.text, Encoding(str(getattr(self.encoding, "value", self.encoding))))

    @property
    def encoding(self) -> Any:
        """Return how columns are counted."""
        return self.workspace.position_encoding or lsp.PositionEncodingKind.Utf16

    def range(self, span: Span, lines: Lines | None = None) -> lsp.Range:
        """Return a span for the protocol."""
        lines = lines or self.lines(span.source)
        return lsp.Range(lsp.Position(*lines.position(span.start)), lsp.Position(*lines.position(span.end)))

    def location(self, span: Span) -> lsp.Location:
        """Return a span with its document."""
        return lsp.Location(self.files.uri(span.source.name), self.range(span))

    def project(self, name: str) -> Project:
        """Return the policies of the folder of a name, checked with their latest texts."""
        folder = folder_of(name)
        sources = tuple(self.files.policies(folder))
        known = self.projects.get(folder)
        if known is not None and known[0] == sources:
            return known[1]
        owner = self.owner_of(sources[0]) if self.owner_of is not None and sources else None
        looked = look_at(sources, self.environment, owner=owner, before=known[1] if known is not None else None)
        self.projects[folder] = sources, looked
        return looked

    def at(self, document: lsp.TextDocumentIdentifier, position: lsp.Position) -> tuple[Project, str, int] | None:
        """Return the policies, the name and the offset that a request is about; None where it is no policy."""
        name = name_of(document.uri)
        project = self.project(name)
        source = project.sources.get(name)
        if source is None:
            return None
        return project, name, self.lines(source).offset(position.line, position.character)

    def document(self, name: str) -> EditedDocument | None:
        """Return a test file or a configuration; None where it is neither."""
        opened = self.files.open.get(name)
        return edited_document(opened.source) if opened is not None else None

    def document_names(self, source: Source, offset: int) -> dict[str, Sequence[str]]:
        """Return what a test file can name at an offset: what it has itself, and what its policies have."""
        folder = folder_of(source.name)
        project = self.project(source.name)
        words = words_in([value_of(source, written_at=offset)])
        files = [name for name in project.sources if folder_of(name) == folder]
        named = policies_of(source)
        mine = [name for name in files if name.rpartition("/")[2] in named] or files
        queries = {query for name in mine for query in queries_of(project, name)}
        clauses = {clause for name in mine for clause in names.clause_names(project, name)}
        plugins = self.environment.plugins
        return {
            "node": sorted(words.nodes),
            "clause": [*sorted(clauses), *sorted(plugins)],
            "queue": sorted(names.queue_names(project)),
            "query": sorted(queries),
            "template": sorted(templates_of(source)),
            "policy file": sorted(name.rpartition("/")[2] for name in files),
            "code": sorted(all_codes()),
        }

    def clusters(self, name: str) -> list[RecordedCluster]:
        """Return the first recorded clusters beside a policy."""
        found: list[RecordedCluster] = []
        for source in self.files.recorded(folder_of(name)):
            known = self.recorded.get(source.name)
            if known is None or known[0] is not source:
                known = self.recorded[source.name] = source, recorded_cluster(source)
            if known[1] is not None:
                found.append(known[1])
            if len(found) == MOST_CLUSTERS:
                break
        return found

    def words(self, name: str) -> ClusterWords:
        """Return the names in the fixtures beside a policy, and those of the live cluster that were read last."""
        found = words_in(self.files.fixtures(folder_of(name)), time_zones=time_zones())
        return together(found, self.live.words()) if self.live is not None else found

    # --- diagnostics -------------------------------------------------------------------------------------

    def check_soon(self, name: str) -> None:
        """Check the folder of a name when no key came for a moment; only the latest texts are looked at."""
        folder = folder_of(name)
        waiting = self.checks.get(folder)
        if waiting is not None:
            waiting.cancel()
        self.checks[folder] = asyncio.get_running_loop().create_task(self._check(folder))

    async def _check(self, folder: str) -> None:
        await asyncio.sleep(DEBOUNCE_SECONDS)
        opened = [name for name in self.files.open if folder_of(name) == folder]
        found: dict[str, tuple[Diagnostic, ...]] = {}
        if any(self.files.is_policy(name) for name in opened):
            found |= self.project(opened[0]).diagnostics
        for name in opened:
            document = self.document(name)
            if document is not None:
                found[name] = document.problems()
        shown = {name for name, diagnostics in found.items() if diagnostics or name in self.files.open}
        for name in sorted(shown | self.published.get(folder, set())):
            self._publish(name, found.get(name, ()))
        self.published[folder] = shown

    # --- tests -------------------------------------------------------------------------------------------

    def tests_of(self, name: str) -> list[str]:
        """Return the test file that a name is, or those of its folder that name it as their policy."""
        if name.endswith(TEST_SUFFIX):
            return [name] if is_path(name) else []
        if not (self.files.is_policy(name) and is_path(name)):
            return []
        file = name.rpartition("/")[2]
        return [test.name for test in self.files.tests(folder_of(name)) if file in policies_of(test)]

    def summary(self, test: str) -> str:
        """Return how the last run of a test file ended, for the line above it."""
        known = self.trials.get(test)
        return shown_summary(known[1] if known is not None else None, is_running=test in self.runs)

    def run_soon(self, test: str) -> None:
        """Run a test file, in a thread; a run of it that has not ended does not count."""
        before = self.runs.get(test)
        if before is not None:
            before.cancel()
        self.runs[test] = asyncio.get_running_loop().create_task(self._run(test))

    async def _run(self, test: str) -> None:
        source = self.files.source(test)
        if source is None:
            self.runs.pop(test, None)
            return
        stop = threading.Event()
        try:
            async with self.one_run:
                trial = await asyncio.to_thread(_tried, Path(test), source, stop)
        except asyncio.CancelledError:
            stop.set()
            raise
        self.trials[test] = source, trial
        self.runs.pop(test, None)
        support = self.client_capabilities.workspace
        if support is not None and support.code_lens is not None and support.code_lens.refresh_support:
            self.workspace_code_lens_refresh(None)
        if support is not None and support.inlay_hint is not None and support.inlay_hint.refresh_support:
            self.workspace_inlay_hint_refresh(None)

    def _publish(self, name: str, found: Sequence[Diagnostic]) -> None:
        source = self.files.source(name)
        opened = self.files.open.get(name)
        lines = self.lines(source) if source is not None else None
        params = lsp.PublishDiagnosticsParams(
            uri=self.files.uri(name),
            diagnostics=[self.diagnostic(each, lines) for each in found],
            version=opened.version if opened is not None else None,
        )
        self.text_document_publish_diagnostics(params)

    def diagnostic(self, found: Diagnostic, lines: Lines | None = None) -> lsp.Diagnostic:
        """Return a diagnostic for the protocol."""
        notes = "".join(f"\n{note}" for note in found.notes)
        advice = f"\n{found.help}" if found.help else ""
        related = [lsp.DiagnosticRelatedInformation(self.location(each.span), each.text) for each in found.labels]
        return lsp.Diagnostic(
            range=self.range(found.span, lines),
            message=f"{found.message}{notes}{advice}",
            severity=_SEVERITIES[found.severity],
            code=found.code,
            source="policyctl",
            related_information=related or None,
        )


def _tried(path: Path, source: Source, stop: threading.Event) -> Trial:
    """Run a test file, case by case, until it ends, takes too long or is not wanted any more."""
    from kube_policy_scheduler.cli.suites import load_suite
    from kube_policy_scheduler.documents.yaml_document import DocumentError

    trial = Trial()
    end = time.monotonic() + LONGEST_RUN_SECONDS
    try:
        loaded = load_suite(path, source, root=root_of(path))
        for result in loaded.run(observe=trial.observe).results():
            trial.add(result, loaded.suite)
            if stop.is_set() or time.monotonic() > end:
                break
    except DocumentError as error:
        trial.problems = error.diagnostics
    return trial


def make_server(
    environment: Environment,
    *,
    owner_of: Callable[[Source], Owner | None] | None = None,
    live: LiveSources | None = None,
) -> PolicyServer:
    """Return a server that answers everything that the editor package can."""
    server = PolicyServer(environment, owner_of=owner_of, live=live)
    for feature in (_documents, _reading, _writing, _colouring, _testing):
        feature(server)
    return server


def _documents(server: PolicyServer) -> None:
    @server.feature(lsp.INITIALIZED)
    async def initialized(params: lsp.InitializedParams) -> None:
        if server.live is not None:
            server.live.words()  # so that they are there when the first key comes

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        name = server.files.set(document.uri, document.version, document.text, language=str(document.language_id))
        server.check_soon(name)
        for test in server.tests_of(name) if server.run_tests_on_save else ():
            if test not in server.trials:
                server.run_soon(test)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        document = params.text_document
        if params.content_changes:
            server.check_soon(server.files.set(document.uri, document.version, params.content_changes[-1].text))

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        server.check_soon(server.files.close(params.text_document.uri))

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: lsp.DidSaveTextDocumentParams) -> None:
        name = name_of(params.text_document.uri)
        server.check_soon(name)
        for test in server.tests_of(name) if server.run_tests_on_save else ():
            server.run_soon(test)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def watched(params: lsp.DidChangeWatchedFilesParams) -> None:
        for folder in {folder_of(name_of(change.uri)) for change in params.changes}:
            opened = next((name for name in server.files.open if folder_of(name) == folder), None)
            if opened is not None:
                server.check_soon(opened)


def _reading(server: PolicyServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hovered(params: lsp.HoverParams) -> lsp.Hover | None:
        document = server.document(name_of(params.text_document.uri))
        if document is not None:
            lines = server.lines(document.source)
            offset = lines.offset(params.position.line, params.position.character)
            found = hover_in(document.source, document.schema, offset)
        else:
            at = server.at(params.text_document, params.position)
            name = name_of(params.text_document.uri)
            found = hover(*at, clusters=lambda: server.clusters(name)) if at is not None else None
        if found is None:
            return None
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, found.text), server.range(found.span))

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def defined(params: lsp.DefinitionParams) -> list[lsp.Location]:
        at = server.at(params.text_document, params.position)
        symbol = names.symbol_at(*at) if at is not None else None
        return [server.location(each.span) for each in symbol.definitions] if symbol is not None else []

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def referred(params: lsp.ReferenceParams) -> list[lsp.Location]:
        at = server.at(params.text_document, params.position)
        symbol = names.symbol_at(*at) if at is not None else None
        if symbol is None:
            return []
        places = symbol.places if params.context.include_declaration else symbol.uses
        return [server.location(each.span) for each in places]

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    def highlighted(params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight]:
        at = server.at(params.text_document, params.position)
        symbol = names.symbol_at(*at) if at is not None else None
        here = [each for each in symbol.places if at and each.span.source.name == at[1]] if symbol is not None else []
        return [lsp.DocumentHighlight(server.range(each.span)) for each in here]

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def outlined(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        name = name_of(params.text_document.uri)
        project = server.project(name)
        if name not in project.sources:
            return []
        lines = server.lines(project.sources[name])
        return [
            lsp.DocumentSymbol(
                name=each.name,
                detail=each.detail,
                kind=_SYMBOL_KINDS.get(each.kind, lsp.SymbolKind.Property),
                range=server.range(each.span, lines),
                selection_range=server.range(each.name_span, lines),
            )
            for each in outline.symbols(project, name)
        ]

    @server.feature(lsp.TEXT_DOCUMENT_FOLDING_RANGE)
    def folded(params: lsp.FoldingRangeParams) -> list[lsp.FoldingRange]:
        name = name_of(params.text_document.uri)
        project = server.project(name)
        if name not in project.sources:
            return []
        lines = server.lines(project.sources[name])
        return [
            lsp.FoldingRange(lines.position(start)[0], lines.position(end)[0], kind=kind)
            for start, end, kind in outline.folds(project, name)
        ]


def _writing(server: PolicyServer) -> None:
    options = lsp.CompletionOptions(trigger_characters=[".", '"', "=", "/", " "])

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, options)
    def completed(params: lsp.CompletionParams) -> lsp.CompletionList:
        document = server.document(name_of(params.text_document.uri))
        if document is not None:
            lines = server.lines(document.source)
            offset = lines.offset(params.position.line, params.position.character)
            known = server.document_names(document.source, offset)
            items = complete_in(document.source, document.schema, offset, known)
            return lsp.CompletionList(False, [_item(server, each, lines, offset) for each in items])
        at = server.at(params.text_document, params.position)
        if at is None:
            return lsp.CompletionList(False, [])
        project, name, offset = at
        lines = server.lines(project.sources[name])
        found = completion.complete(project, name, offset, server.words(name))
        return lsp.CompletionList(False, [_item(server, each, lines, offset) for each in found])

    @server.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","]))
    def signature(params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        at = server.at(params.text_document, params.position)
        found = completion.open_call(*at) if at is not None else None
        if found is None:
            return None
        called, argument = found
        parameters = [lsp.ParameterInformation(str(each)) for each in called.parameters]
        active = min(argument, len(parameters) - 1) if parameters else None
        text = lsp.MarkupContent(lsp.MarkupKind.Markdown, builtin_text(called))
        return lsp.SignatureHelp([lsp.SignatureInformation(called.signature, text, parameters, active)], 0, active)

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatted(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        source = server.files.source(name_of(params.text_document.uri))
        if source is None or not server.files.is_policy(source.name):
            return []
        done = format_source(source)
        if not isinstance(done, Formatted) or done.text == source.text:
            return []
        return [lsp.TextEdit(server.range(Span(source, 0, len(source.text))), done.text)]

    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    def may_rename(params: lsp.PrepareRenameParams) -> lsp.Range | None:
        at = server.at(params.text_document, params.position)
        symbol = names.symbol_at(*at) if at is not None else None
        if at is None or symbol is None or symbol.kind is names.NameKind.FILE:
            return None
        here = (each.span for each in symbol.places if each.span.source.name == at[1])
        return next((server.range(span) for span in here if span.start <= at[2] <= span.end), None)

    @server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    def renamed(params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        at = server.at(params.text_document, params.position)
        if at is None:
            return None
        try:
            symbol, edits = names.renamed(*at, params.new_name)
        except names.RenameError as error:
            server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Warning, str(error)))
            return None
        if symbol.kind in (names.NameKind.CLAUSE, names.NameKind.QUEUE):
            edits = (*edits, *_in_tests(server, symbol, params.new_name))
        return _workspace_edit(server, edits)

    kinds = [lsp.CodeActionKind.QuickFix, lsp.CodeActionKind.SourceFixAll]

    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=kinds))
    def acted(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        name = name_of(params.text_document.uri)
        project = server.project(name)
        source = project.sources.get(name)
        if source is None:
            return []
        lines = server.lines(source)
        start = lines.offset(params.range.start.line, params.range.start.character)
        end = lines.offset(params.range.end.line, params.range.end.character)
        found = project.diagnostics[name]
        done = [
            lsp.CodeAction(
                title=_sentence(fix.title),
                kind=lsp.CodeActionKind.QuickFix,
                diagnostics=[server.diagnostic(each, lines)],
                is_preferred=fix.safe,
                edit=_workspace_edit(server, [(edit.span, edit.text) for edit in fix.edits]),
            )
            for each in found
            if each.span.start <= end and start <= each.span.end
            for fix in fixes(each)
        ]
        safe = [each for each in found if each.fix is not None and each.fix.safe]
        if safe:
            done.append(_fix_all(server, project, source))
        return done


def _in_tests(server: PolicyServer, symbol: names.Symbol, new: str) -> Iterator[tuple[Span, str]]:
    """Yield the places of test files that name a clause or a queue of their policies."""
    sources = {each.span.source.name for each in symbol.places}
    for folder in sorted({folder_of(name) for name in sources}):
        files = {name.rpartition("/")[2] for name in sources if folder_of(name) == folder}
        for test in server.files.tests(folder):
            if files & policies_of(test):
                if symbol.kind is names.NameKind.CLAUSE:
                    yield from ((span, new) for text, span in scalars(test, key="clause") if text == symbol.name)
                    continue
                for text, span in keys_below(test, key="queue"):
                    name, _, key = text.partition("/")  # one of several by key is NAME/KEY
                    if name == symbol.name:
                        yield span, f"{new}/{key}" if key else new


def _fix_all(server: PolicyServer, project: Project, source: Source) -> lsp.CodeAction:
    """Return the action that does what `policyctl lint --fix` does to a file."""
    from kube_policy_scheduler.lint.fixing import fixed

    others = [each for each in project.sources.values() if each is not source]

    def look(sources: Sequence[Source]) -> Sequence[Diagnostic]:
        looked = look_at([*others, *sources], server.environment, before=project)
        return looked.diagnostics[source.name]

    after = fixed([source], look).sources[0]
    edit = _workspace_edit(server, [(Span(source, 0, len(source.text)), after.text)])
    return lsp.CodeAction(title="Fix all (policyctl lint --fix)", kind=lsp.CodeActionKind.SourceFixAll, edit=edit)


def _workspace_edit(server: PolicyServer, edits: Iterable[tuple[Span, str]]) -> lsp.WorkspaceEdit:
    changes: dict[str, list[lsp.TextEdit]] = {}
    for span, text in edits:
        changes.setdefault(server.files.uri(span.source.name), []).append(lsp.TextEdit(server.range(span), text))
    return lsp.WorkspaceEdit(changes=changes)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _item(server: PolicyServer, item: completion.Item, lines: Lines, offset: int) -> lsp.CompletionItem:
    text = item.text or item.label
    snippet = "$0" in text
    plain = server.client_capabilities.text_document
    support = plain is not None and plain.completion is not None and plain.completion.completion_item is not None
    snippets = support and plain.completion.completion_item.snippet_support  # type: ignore[union-attr]
    if snippet and not snippets:
        text = text.replace("$0", "").removesuffix("()") + ("(" if "()" in text.replace("$0", "") else "")
    where = lsp.Range(lsp.Position(*lines.position(item.start)), lsp.Position(*lines.position(offset)))
    return lsp.CompletionItem(
        label=item.label,
        kind=_ITEM_KINDS[item.kind],
        detail=item.detail or None,
        documentation=lsp.MarkupContent(lsp.MarkupKind.Markdown, item.doc) if item.doc else None,
        sort_text=f"{item.rank}{item.label}",
        # what the editor compares with what is written, which begins with the dot where that is replaced
        filter_text=f".{item.label}" if text.startswith("[") else None,
        insert_text_format=lsp.InsertTextFormat.Snippet if snippet and snippets else lsp.InsertTextFormat.PlainText,
        text_edit=lsp.TextEdit(where, text),
    )


def _colouring(server: PolicyServer) -> None:
    legend = lsp.SemanticTokensLegend(_COLOURS, ["definition"])

    @server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, legend)
    def coloured(params: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
        name = name_of(params.text_document.uri)
        project = server.project(name)
        if name not in project.sources:
            return lsp.SemanticTokens([])
        lines = server.lines(project.sources[name])
        data: list[int] = []
        line = column = 0
        for each in outline.colours(project, name):
            at, start = lines.position(each.start)
            end_line, end = lines.position(each.end)
            if end_line != at:
                continue
            data += [at - line, start - (column if at == line else 0), end - start]
            data += [_COLOURS.index(each.colour.value), int(each.defines)]
            line, column = at, start
        return lsp.SemanticTokens(data)


def _testing(server: PolicyServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    def hinted(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        name = name_of(params.text_document.uri)
        project = server.project(name)
        if name not in project.sources:
            return []
        lines = server.lines(project.sources[name])
        done = []
        for each in hints(project, name, [trial for _, trial in server.trials.values()]):
            position = lsp.Position(*lines.position(each.offset))
            if params.range.start.line <= position.line <= params.range.end.line:
                padded = not each.text.startswith(":")
                done.append(lsp.InlayHint(position, each.text, tooltip=each.about, padding_left=padded))
        return done

    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    def lenses(params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        name = name_of(params.text_document.uri)
        source = server.files.source(name)
        if source is None:
            return []
        lines = server.lines(source)
        top = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))
        if server.files.is_policy(name):
            return [
                lsp.CodeLens(top, _command(f"{server.summary(test)} · {test.rpartition('/')[2]}", test))
                for test in server.tests_of(name)
            ]
        if not name.endswith(TEST_SUFFIX):
            return []
        known = server.trials.get(name)
        ends = {each.name: each for each in known[1].ends} if known is not None else {}
        done = [lsp.CodeLens(top, _command(server.summary(name), name))]
        for text, span in scalars(source, key="name"):
            end = ends.get(text) or next((e for case, e in ends.items() if case.startswith(f"{text} (")), None)
            if end is not None:
                done.append(lsp.CodeLens(server.range(span, lines), _command(shown_end(end), name)))
        return done

    @server.command(RUN_TESTS)
    async def run(uri: str) -> None:
        server.run_soon(name_of(uri))


def _command(title: str, test: str) -> lsp.Command:
    return lsp.Command(title, RUN_TESTS, arguments=[Path(test).as_uri()])


def serve(
    environment: Environment,
    *,
    owner_of: Callable[[Source], Owner | None] | None = None,
    live: LiveSources | None = None,
) -> None:
    """Serve one editor over standard input and output, until it says goodbye.

    Only the protocol gets standard output: what anything else prints there goes to standard error.
    """
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    server = make_server(environment, owner_of=owner_of, live=live)
    # editors also cancel what is answered already; their logs would show each time as an error
    logging.getLogger("pygls.protocol.json_rpc").setLevel(logging.ERROR)
    gc.freeze()  # what every answer needs is not looked through for garbage between two keys
    server.start_io(stdout=output)

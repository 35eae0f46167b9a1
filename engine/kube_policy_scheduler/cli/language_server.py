"""The Language Server Protocol over standard input and output: carries texts to `editor` and answers back.

The only module that knows the protocol. Documents are synchronised whole: they are small, and so no two ideas of what
a line is can come apart.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from kube_policy_scheduler.cli.editor_files import EditorFiles, folder_of, name_of
from kube_policy_scheduler.diagnostics import Diagnostic, Severity, Source, Span
from kube_policy_scheduler.editor import completion, names, outline
from kube_policy_scheduler.editor.cluster_words import ClusterWords, words_in
from kube_policy_scheduler.editor.fixes import fixes
from kube_policy_scheduler.editor.hover import builtin_text, hover
from kube_policy_scheduler.editor.positions import Encoding, Lines
from kube_policy_scheduler.editor.project import Project, look_at
from kube_policy_scheduler.lang.environment import Environment
from kube_policy_scheduler.lang.formatting.format import Formatted, format_source
from kube_policy_scheduler.lang.owner import Owner

NAME = "kube-policy-scheduler"
DEBOUNCE_SECONDS = 0.03
"""Between the last key and the check; the check itself takes about as long."""
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

    def __init__(self, environment: Environment, *, owner_of: Callable[[Source], Owner | None] | None = None) -> None:
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

    def words(self, name: str) -> ClusterWords:
        """Return the names in the fixtures beside a policy."""
        return words_in(self.files.fixtures(folder_of(name)))

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
            project = self.project(opened[0])
            found |= project.diagnostics
        shown = {name for name, diagnostics in found.items() if diagnostics or name in self.files.open}
        for name in sorted(shown | self.published.get(folder, set())):
            self._publish(name, found.get(name, ()))
        self.published[folder] = shown

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


def make_server(environment: Environment, *, owner_of: Callable[[Source], Owner | None] | None = None) -> PolicyServer:
    """Return a server that answers everything that the editor package can."""
    server = PolicyServer(environment, owner_of=owner_of)
    for feature in (_documents, _reading, _writing, _colouring):
        feature(server)
    return server


def _documents(server: PolicyServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        name = server.files.set(document.uri, document.version, document.text, language=str(document.language_id))
        server.check_soon(name)

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
        server.check_soon(name_of(params.text_document.uri))

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def watched(params: lsp.DidChangeWatchedFilesParams) -> None:
        for folder in {folder_of(name_of(change.uri)) for change in params.changes}:
            opened = next((name for name in server.files.open if folder_of(name) == folder), None)
            if opened is not None:
                server.check_soon(opened)


def _reading(server: PolicyServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hovered(params: lsp.HoverParams) -> lsp.Hover | None:
        at = server.at(params.text_document, params.position)
        found = hover(*at) if at is not None else None
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
            _, edits = names.renamed(*at, params.new_name)
        except names.RenameError as error:
            server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Warning, str(error)))
            return None
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


def serve(environment: Environment, *, owner_of: Callable[[Source], Owner | None] | None = None) -> None:
    """Serve one editor over standard input and output, until it says goodbye.

    Only the protocol gets standard output: what anything else prints there goes to standard error.
    """
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    make_server(environment, owner_of=owner_of).start_io(stdout=output)

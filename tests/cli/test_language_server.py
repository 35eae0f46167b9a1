"""The language server over standard input and output, with a real client."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_lsp
from lsprotocol import types as lsp
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

pytestmark = [
    pytest.mark.long,
    pytest.mark.asyncio(loop_scope="module"),  # one server for all: each takes two seconds to start
]

CARD = 'use "common.policy"\nfilter node.redy\nscore 100 - load as calm\nscore least_allocated()\n'
COMMON = 'metric load = promql("cpu_usage") default 50\n'
TESTS = """policy: card.policy
nodes:
- {name: a1, cpu: 4, mem: 16Gi, labels: {disk: ssd}}
metrics: {cpu_usage: {a1: 90}}
cases:
- name: it fits
  pod: {cpu: 1}
  expect: {node: a1}
"""


@pytest_lsp.fixture(
    config=ClientServerConfig(server_command=[sys.executable, "-m", "kube_policy_scheduler.cli", "lsp"]), scope="module"
)
async def client(lsp_client: LanguageClient) -> AsyncIterator[None]:
    for request in (lsp.WORKSPACE_CODE_LENS_REFRESH, lsp.WORKSPACE_INLAY_HINT_REFRESH):
        lsp_client.feature(request)(_answer)
    params = lsp.InitializeParams(capabilities=client_capabilities("visual-studio-code"))
    await lsp_client.initialize_session(params)
    yield
    await lsp_client.shutdown_session()


def _answer(params: None) -> None:
    """Take what the server asks the editor to do."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "card.policy").write_text(CARD)
    (tmp_path / "common.policy").write_text(COMMON)
    (tmp_path / "card.test.yaml").write_text(TESTS)
    return tmp_path


class Editor:
    """What a person does in an editor."""

    def __init__(
        self, client: LanguageClient, path: Path, text: str | None = None, *, uri: str = "", language: str = "policy"
    ) -> None:
        self.client = client
        self.uri = uri or path.as_uri()
        self.version = 1
        self.text = path.read_text() if text is None else text
        item = lsp.TextDocumentItem(self.uri, language, self.version, self.text)
        client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))

    @property
    def id(self) -> lsp.TextDocumentIdentifier:
        return lsp.TextDocumentIdentifier(self.uri)

    def change(self, text: str) -> None:
        self.version += 1
        self.text = text
        document = lsp.VersionedTextDocumentIdentifier(self.version, self.uri)
        change = lsp.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [change]))

    def at(self, word: str) -> lsp.Position:
        before = self.text[: self.text.index(word)]
        return lsp.Position(before.count("\n"), len(before.rpartition("\n")[2]))


async def until(client: LanguageClient, uri: str, codes: list[str]) -> None:
    """Wait until the diagnostics have these codes; what is shown in the end if they never do."""
    shown: list[object] = []
    for _ in range(600):
        shown = [each.code for each in client.diagnostics[uri]] if uri in client.diagnostics else ["not shown"]
        if shown == codes:
            return
        await asyncio.sleep(0.02)
    assert shown == codes


async def test_diagnostics_follow_the_text(client: LanguageClient, folder: Path) -> None:
    editor = Editor(client, folder / "card.policy")
    await until(client, editor.uri, ["P0102"])
    found = client.diagnostics[editor.uri][0]
    assert (found.range.start, found.range.end) == (lsp.Position(1, 12), lsp.Position(1, 16))
    assert "did you mean `node.ready`?" in found.message
    editor.change(CARD.replace("redy", "ready"))
    await until(client, editor.uri, [])
    for number in range(30):
        editor.change(CARD.replace("redy", "r" * number))
    editor.change("filter node.ready and\r\n\tlabel 𝔸é")
    await until(client, editor.uri, ["P0013"])
    assert client.diagnostics[editor.uri][0].range.start == lsp.Position(1, 7)


async def test_a_policy_that_the_editor_takes_for_yaml(client: LanguageClient, folder: Path) -> None:
    # of an editor that has no language of ours
    editor = Editor(client, folder / "card.policy", language="yaml")
    await until(client, editor.uri, ["P0102"])
    tokens = await client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(editor.id))
    assert tokens is not None
    assert len(tokens.data) > 50
    test = Editor(client, folder / "card.test.yaml", language="yaml")
    assert await client.text_document_hover_async(lsp.HoverParams(test.id, test.at("expect"))) is not None


async def test_unsaved_and_deleted_files(client: LanguageClient, folder: Path) -> None:
    editor = Editor(client, folder / "card.policy", CARD.replace("redy", "ready"))
    await until(client, editor.uri, [])
    common = Editor(client, folder / "common.policy", "metric other = 3\n")
    await until(client, editor.uri, ["P0101"])
    client.text_document_did_close(lsp.DidCloseTextDocumentParams(common.id))
    await until(client, editor.uri, [])
    (folder / "common.policy").unlink()
    client.workspace_did_change_watched_files(
        lsp.DidChangeWatchedFilesParams([lsp.FileEvent(common.uri, lsp.FileChangeType.Deleted)])
    )
    await until(client, editor.uri, ["P0203"])
    draft = Editor(client, folder, "filter node.redy", uri="untitled:Untitled-1")
    await until(client, draft.uri, ["P0102"])


async def test_a_queue_says_what_it_uses_in_a_snapshot_beside_it(client: LanguageClient, folder: Path) -> None:
    editor = Editor(client, folder / "queues.policy", "queue research min cpu 4\nscore 1\n")
    hovering = lsp.HoverParams(editor.id, editor.at("research"))
    alone = await client.text_document_hover_async(hovering)
    assert alone is not None
    assert "| cpu | 4 | - |" in str(alone.contents)
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}}
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "5"}}}]
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": containers}}
    items = [{"apiVersion": "v1", **each} for each in (node, pod)]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    (folder / "live.json.gz").write_bytes(gzip.compress(text.encode()))
    found = await client.text_document_hover_async(hovering)
    assert found is not None
    assert "| cpu | 4 | - | 5 | 1 | - |" in str(found.contents)


async def test_questions(client: LanguageClient, folder: Path) -> None:
    editor = Editor(client, folder / "card.policy")
    hover = await client.text_document_hover_async(lsp.HoverParams(editor.id, editor.at("load")))
    assert hover is not None
    assert "promql" in str(hover.contents)
    defined = await client.text_document_definition_async(lsp.DefinitionParams(editor.id, editor.at("load")))
    common = (folder / "common.policy").as_uri()
    at = lsp.Range(lsp.Position(0, 7), lsp.Position(0, 11))
    assert defined == [lsp.Location(common, at)]
    context = lsp.ReferenceContext(include_declaration=True)
    places = await client.text_document_references_async(lsp.ReferenceParams(context, editor.id, editor.at("load")))
    assert {each.uri for each in places or ()} == {common, editor.uri}
    edit = await client.text_document_rename_async(lsp.RenameParams(editor.id, editor.at("load"), "busy"))
    assert edit is not None
    assert set(edit.changes or {}) == {common, editor.uri}
    refused = await client.text_document_rename_async(lsp.RenameParams(editor.id, editor.at("load"), "node"))
    assert refused is None
    symbols = await client.text_document_document_symbol_async(lsp.DocumentSymbolParams(editor.id))
    assert [each.name for each in symbols or ()] == [
        'use "common.policy"',
        "filter node.redy",
        "calm",
        "score least_allocated()",
    ]
    tokens = await client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(editor.id))
    assert tokens is not None
    assert len(tokens.data) % 5 == 0
    assert len(tokens.data) > 50
    client.text_document_did_close(lsp.DidCloseTextDocumentParams(editor.id))


async def test_writing(client: LanguageClient, folder: Path) -> None:
    editor = Editor(client, folder / "card.policy")
    editor.change('score 10 - promql("cpu_usage") ?? 5\nfilter label disk=\n')
    found = await client.text_document_completion_async(lsp.CompletionParams(editor.id, lsp.Position(1, 18)))
    assert isinstance(found, lsp.CompletionList)
    assert [each.label for each in found.items] == ["ssd"]
    found = await client.text_document_completion_async(lsp.CompletionParams(editor.id, lsp.Position(0, 19)))
    assert isinstance(found, lsp.CompletionList)
    assert "cpu_usage" in [each.label for each in found.items]
    help_ = await client.text_document_signature_help_async(lsp.SignatureHelpParams(editor.id, lsp.Position(0, 19)))
    assert help_ is not None
    assert help_.signatures[0].label.startswith("promql(")
    editor.change("filter    node.redy\nscore 4Gi + 2\n")
    options = lsp.FormattingOptions(4, True)
    edits = await client.text_document_formatting_async(lsp.DocumentFormattingParams(editor.id, options))
    assert [each.new_text for each in edits or ()] == ["filter node.redy\nscore 4Gi + 2\n"]
    everywhere = lsp.Range(lsp.Position(0, 0), lsp.Position(2, 0))
    actions = await client.text_document_code_action_async(
        lsp.CodeActionParams(editor.id, everywhere, lsp.CodeActionContext([]))
    )
    titles = [each.title for each in actions or ()]
    assert "Write `node.ready`" in titles
    assert "Write `2Gi`" in titles


async def test_it_lives_after_what_it_cannot_use(client: LanguageClient, folder: Path) -> None:
    editor = Editor(client, folder / "card.policy")
    for text in ("x" * 300_000, "(" * 20_000, '"' * 999, "\x00\ufeff" * 50, "filter " + "not " * 9_000, ""):
        editor.change(text)
        await client.text_document_hover_async(lsp.HoverParams(editor.id, lsp.Position(99, 99)))
        await client.text_document_completion_async(lsp.CompletionParams(editor.id, lsp.Position(0, 300_000)))
        await client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(editor.id))
    other = lsp.TextDocumentIdentifier("file:///nowhere/%00/x.policy")
    assert await client.text_document_hover_async(lsp.HoverParams(other, lsp.Position(0, 0))) is None
    editor.change("filter node.redy")
    await until(client, editor.uri, ["P0102"])


async def shown(client: LanguageClient, editor: Editor, words: str) -> list[str]:
    """Return the titles of code lenses, once one has some words in it."""
    titles: list[str] = []
    for _ in range(600):
        lenses = await client.text_document_code_lens_async(lsp.CodeLensParams(editor.id))
        titles = [each.command.title for each in lenses or () if each.command is not None]
        if any(words in title for title in titles):
            return titles
        await asyncio.sleep(0.05)
    raise AssertionError(titles)


async def test_tests_run_beside_the_text(client: LanguageClient, folder: Path) -> None:
    (folder / "card.policy").write_text("filter node.ready as calm\nlet room = node.free.cpu\nscore room / 1\n")
    (folder / "card.test.yaml").write_text(TESTS.replace("metrics: {cpu_usage: {a1: 90}}\n", ""))
    policy = Editor(client, folder / "card.policy")
    assert await shown(client, policy, "passed") == ["✓ 1 passed · card.test.yaml"]
    everywhere = lsp.Range(lsp.Position(0, 0), lsp.Position(9, 0))
    hints = await client.text_document_inlay_hint_async(lsp.InlayHintParams(policy.id, everywhere))
    assert [each.label for each in hints or ()] == ["keeps 1 of 1", ": cpu"]
    policy.change("filter not node.ready as calm\nscore node.free.cpu / 1\n")
    (folder / "card.policy").write_text(policy.text)
    hints = await client.text_document_inlay_hint_async(lsp.InlayHintParams(policy.id, everywhere))
    assert not hints
    client.text_document_did_save(lsp.DidSaveTextDocumentParams(policy.id))
    assert await shown(client, policy, "failed") == ["✗ 1 failed, 0 passed · card.test.yaml"]
    test = Editor(client, folder / "card.test.yaml")
    titles = await shown(client, test, "expected")
    assert titles[1].startswith("✗ failed: expected")
    command = lsp.ExecuteCommandParams("policyctl.test", [test.uri])
    await client.workspace_execute_command_async(command)


async def test_test_files_and_the_configuration(client: LanguageClient, folder: Path) -> None:
    test = Editor(client, folder / "card.test.yaml")
    await until(client, test.uri, [])
    test.change(
        TESTS.replace("tie", "x").replace("expect: {node: a1}", "expect: {filtered: {a1: {clause: c}}, nod: a1}")
    )
    await until(client, test.uri, ["D0011"])
    at = test.at("c}}")
    found = await client.text_document_completion_async(
        lsp.CompletionParams(test.id, lsp.Position(at.line, at.character + 1))
    )
    assert isinstance(found, lsp.CompletionList)
    assert "calm" in [each.label for each in found.items]
    hover = await client.text_document_hover_async(lsp.HoverParams(test.id, test.at("filtered")))
    assert hover is not None
    assert "do not pass" in str(hover.contents)
    text = "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\nmod: shadow\n"
    configuration = Editor(client, folder, text, uri=(folder / "config.yaml").as_uri())
    await until(client, configuration.uri, ["D0011"])


async def test_a_clause_is_renamed_in_tests(client: LanguageClient, folder: Path) -> None:
    (folder / "card.test.yaml").write_text(TESTS.replace("{node: a1}", "{unschedulable: {clause: calm}}"))
    editor = Editor(client, folder / "card.policy")
    edit = await client.text_document_rename_async(lsp.RenameParams(editor.id, editor.at("calm"), "cool"))
    assert edit is not None
    changes = {uri.rpartition("/")[2]: [each.new_text for each in edits] for uri, edits in (edit.changes or {}).items()}
    assert changes == {"card.policy": ["cool"], "card.test.yaml": ["cool"]}


async def test_a_queue_is_renamed_in_tests(client: LanguageClient, folder: Path) -> None:
    (folder / "card.policy").write_text("queue top by pod.label.team min cpu 1\nfilter node.ready\n")
    (folder / "card.test.yaml").write_text(TESTS.replace("{node: a1}", "{queue: {'top/red': 0, other: 1}}"))
    editor = Editor(client, folder / "card.policy")
    edit = await client.text_document_rename_async(lsp.RenameParams(editor.id, editor.at("top"), "team"))
    assert edit is not None
    changes = {uri.rpartition("/")[2]: [each.new_text for each in edits] for uri, edits in (edit.changes or {}).items()}
    assert changes == {"card.policy": ["team"], "card.test.yaml": ["team/red"]}

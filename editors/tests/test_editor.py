"""What an author sees in an editor. Every text has a mistake besides what the test is about."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from lsprotocol import types as lsp
from support import DEADLINE, applied, messages, position_of, python_server

HELLO = """\
name: hello
input: { type: object, required: [who], properties: { who: { type: string } } }
steps:
  - id: greeting
    tool: builtin:echo
    parameters: { text: "Hello, {{ input.who }} \U0001F980!" }
  - id: count
    tool: builtin:text_stats
    parameters: { text: "{{ greeting.text }}" }
output: { text: "{{ greeting.text }}", characters: "{{ count.chars }}" }
"""

# `read` is used in six places; `notes_of` does not exist.
NOTES = """\
name: notes
input: { type: object, required: [path], properties: { path: { type: string } } }
steps:
  - id: read
    tool: fs:read_text_file
    parameters: { path: "{{ input.path }}" }
  - id: first
    tool: builtin:echo
    parameters: { text: "{{ read.content }}" }
  - id: second
    tool: builtin:text_stats
    depends_on: [read, first]
    parameters: { text: "{{ read.content }} and {{ read.content | upper }}" }
  - id: third
    tool: builtin:echo
    when: "{{ read.content != '' }}"
    parameters: { text: "{{ notes_of.first }}" }
output: { text: "{{ read.content }}", words: "{{ second.words }}" }
"""


def with_filesystem(world) -> None:
    server = os.environ["SEGUE_TEST_FILESYSTEM"]
    (world.work / "shared").mkdir()
    world.file("segue.yaml", f'mcpServers:\n  fs: {{ command: "{server}", args: ["{world.work}/shared"] }}\n')
    world.segue("trust")


def mentions(word: str):
    return lambda findings: any(word in message for message in messages(findings))


async def opened_notes(editor, world, text: str = NOTES) -> str:
    """The composition in an editor that knows the tools of `server-filesystem`."""
    with_filesystem(world)
    await editor.start()
    uri = editor.open("notes.yaml", text)
    await editor.findings(uri, lambda found: not mentions("registry")(found) and found)
    return uri


async def completed(editor, uri, before, label):
    """The proposals at a place, once `label` is among them: the server of the tools may still be starting."""
    end = time.monotonic() + DEADLINE
    while label not in (items := await editor.complete(uri, before)):
        assert time.monotonic() < end, list(items)
        await asyncio.sleep(0.05)
    return items


# Two mistakes of different kinds: one in what the text means, and one after which it does not parse.
BROKEN = [NOTES, NOTES + "broken: [1, {\n"]


@pytest.mark.parametrize("text", BROKEN, ids=["wrong-name", "does-not-parse"])
async def test_tools_of_a_real_server_are_completed(editor, world, text):
    uri = await opened_notes(editor, world, text)
    editor.replace(uri, "tool: fs:read_text_file", "tool: fs:read_te")
    items = await completed(editor, uri, "tool: fs:read_te", "fs:read_text_file")
    item = items["fs:read_text_file"]
    assert item.kind == lsp.CompletionItemKind.Function
    assert item.documentation, item
    assert editor.accepted(uri, item) == text


@pytest.mark.parametrize("text", BROKEN, ids=["wrong-name", "does-not-parse"])
async def test_parameters_of_a_real_tool_are_completed(editor, world, text):
    text = text.replace('parameters: { path: "{{ input.path }}" }', "parameters: {  }")
    uri = await opened_notes(editor, world, text)
    items = await completed(editor, uri, "fs:read_text_file\n    parameters: { ", "path")
    assert {"path", "head", "tail"} <= set(items), list(items)
    order = sorted(items.values(), key=lambda item: item.sort_text)
    assert order[0].label == "path", "the required parameter comes first"
    assert "path" in editor.accepted(uri, items["path"])


@pytest.mark.parametrize("text", BROKEN, ids=["wrong-name", "does-not-parse"])
async def test_paths_of_a_step_are_completed_in_expressions(editor, world, text):
    text = text.replace('{ text: "{{ read.content }}" }\n  - id: second', '{ text: "{{ read. }}" }\n  - id: second')
    uri = await opened_notes(editor, world, text)
    items = await completed(editor, uri, 'id: first\n    tool: builtin:echo\n    parameters: { text: "{{ read.', "content")
    assert '{ text: "{{ read.content }}" }' in editor.accepted(uri, items["content"])


async def test_a_step_is_renamed_in_all_six_places(editor, world):
    uri = await opened_notes(editor, world)
    place = editor.at(uri, "- id: rea")
    prepared = await editor.client.text_document_prepare_rename_async(lsp.PrepareRenameParams(**place))
    assert prepared.placeholder == "read"
    references = await editor.client.text_document_references_async(
        lsp.ReferenceParams(context=lsp.ReferenceContext(include_declaration=False), **place)
    )
    assert len(references) == 6, references
    edit = await editor.client.text_document_rename_async(lsp.RenameParams(new_name="note", **place))
    [change] = edit.document_changes
    assert change.text_document.version == 1
    expected = NOTES.replace("id: read", "id: note").replace("[read,", "[note,").replace("read.content", "note.content")
    assert applied(NOTES, change.edits) == expected
    # From a use of the name, with the same result.
    place = editor.at(uri, "depends_on: [re")
    again = await editor.client.text_document_rename_async(lsp.RenameParams(new_name="note", **place))
    assert applied(NOTES, again.document_changes[0].edits) == expected


async def test_a_name_that_is_taken_is_refused(editor, world):
    uri = await opened_notes(editor, world)
    place = editor.at(uri, "- id: rea")
    with pytest.raises(Exception) as refused:
        await editor.client.text_document_rename_async(lsp.RenameParams(new_name="first", **place))
    assert "first" in str(refused.value)


async def test_the_fix_of_a_finding_is_applied(editor, world):
    await editor.start()
    text = HELLO.replace("greeting.text }}\" }\noutput", "greetin.text }}\" }\noutput").replace("count.chars", "nothing.chars")
    uri = editor.open("hello.yaml", text)
    findings = await editor.findings(uri, mentions("greetin"))
    [finding] = [finding for finding in findings if "`greetin`" in finding.message or "greetin." in finding.message]
    assert finding.source == "segue" and finding.code and finding.severity == lsp.DiagnosticSeverity.Error
    actions = await editor.client.text_document_code_action_async(
        lsp.CodeActionParams(
            text_document=lsp.TextDocumentIdentifier(uri=uri),
            range=finding.range,
            context=lsp.CodeActionContext(diagnostics=[finding]),
        )
    )
    [action] = [action for action in actions if action.is_preferred]
    assert action.kind == lsp.CodeActionKind.QuickFix and action.diagnostics[0].range == finding.range
    [change] = action.edit.document_changes
    fixed = applied(text, change.edits)
    assert fixed == text.replace("greetin.text", "greeting.text")
    # Only the other mistake is left once the editor has applied it.
    editor.change(uri, [lsp.TextDocumentContentChangeWholeDocument(text=fixed)])
    rest = await editor.findings(uri, lambda found: not mentions("greetin")(found))
    assert mentions("nothing")(rest)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
async def test_positions_are_right_behind_characters_of_every_width(editor, world, encoding):
    def offer(capabilities):
        capabilities.general = capabilities.general or lsp.GeneralClientCapabilities()
        kinds = {"utf-8": [lsp.PositionEncodingKind.Utf8, lsp.PositionEncodingKind.Utf16], "utf-16": None}
        capabilities.general.position_encodings = kinds[encoding]

    started = await editor.start(change=offer)
    assert started.capabilities.position_encoding == encoding
    text = HELLO.replace('\U0001F980!"', '\U0001F980\u00fc {{ inptu.who }}"')
    uri = editor.open("hello.yaml", text)
    findings = await editor.findings(uri, mentions("inptu"))
    [finding] = [finding for finding in findings if "inptu" in finding.message]
    start = position_of(text, "inptu", after=False, encoding=encoding)
    assert finding.range.start == start
    # An edit behind them, in this encoding.
    end = lsp.Position(start.line, start.character + len("inptu"))
    change = lsp.TextDocumentContentChangePartial(range=lsp.Range(start, end), text="input")
    editor.change(uri, [change])
    assert await editor.findings(uri) == []


async def test_changes_are_applied_one_after_the_other(editor, world):
    await editor.start()
    uri = editor.open("hello.yaml", HELLO)
    assert await editor.findings(uri) == []
    at = position_of(HELLO, "builtin:text_stats", after=False)
    insert = lsp.TextDocumentContentChangePartial(range=lsp.Range(at, at), text="x\n")
    remove = lsp.TextDocumentContentChangePartial(
        range=lsp.Range(at, lsp.Position(at.line + 1, 0)), text=""
    )
    editor.change(uri, [insert, remove, insert, remove])
    assert await editor.findings(uri) == []
    editor.replace(uri, "builtin:text_stats", "builtin:text_stat")
    assert mentions("text_stat")(await editor.findings(uri, bool))


async def test_hover_definition_outline_links_and_tokens(editor, world):
    world.file("segue.yaml", "compositions: [hello.yaml, outer.yaml]\n")
    await editor.start()
    text = "name: outer\nsteps:\n  - id: inner\n    tool: hello\n    parameters: { who: \"{{ 'x' | upper }}\" }\n  - { id: wrong, tool: nothing }\noutput: \"{{ inner.text }}\"\n"
    hello, uri = editor.open("hello.yaml", HELLO), editor.open("outer.yaml", text)
    await editor.findings(uri, lambda found: mentions("nothing")(found) and not mentions("hello")(found))
    hover = await editor.client.text_document_hover_async(lsp.HoverParams(**editor.at(uri, "{{ inne")))
    assert hover.contents.kind == lsp.MarkupKind.Markdown and hover.contents.value
    at = lsp.DefinitionParams(**editor.at(uri, "{{ inne"))
    definition = await editor.client.text_document_definition_async(at)
    assert (definition.uri, definition.range.start.line) == (uri, 2)
    at = lsp.DefinitionParams(**editor.at(uri, "tool: hell"))
    assert (await editor.client.text_document_definition_async(at)).uri == hello
    document = lsp.TextDocumentIdentifier(uri=uri)
    links = await editor.client.text_document_document_link_async(lsp.DocumentLinkParams(text_document=document))
    assert hello in [link.target for link in links], links
    symbols = await editor.client.text_document_document_symbol_async(lsp.DocumentSymbolParams(text_document=document))
    assert {"inner", "wrong"} <= {symbol.name for symbol in symbols}, symbols
    tokens = await editor.client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(text_document=document))
    assert tokens.data and len(tokens.data) % 5 == 0


async def hovered(editor, uri, needle, until):
    """What hovering shows, once it is as expected: the store is looked at in the background."""
    end = time.monotonic() + DEADLINE
    while True:
        hover = await editor.client.text_document_hover_async(lsp.HoverParams(**editor.at(uri, needle)))
        shown = hover.contents.value if hover else ""
        if until(shown):
            return shown
        assert time.monotonic() < end, shown
        await asyncio.sleep(0.05)


PAST = """\
name: past
input:
  type: object
  properties: { who: { type: string }, password: { type: string, writeOnly: true } }
steps:
  - id: greeting
    tool: builtin:echo
    parameters: { text: "Hello, {{ input.who }}!" }
  - id: secret
    tool: builtin:echo
    parameters: { text: "{{ input.password }}" }
  - { id: wrong, tool: builtin:echo, parameters: { text: "{{ greetin.text }}" } }
"""


async def test_hover_shows_the_last_value_and_the_times_of_a_step(editor, world):
    world.file("segue.yaml", "compositions: [past.yaml]\nstore: sqlite:runs.db\n")
    world.file("correct/past.yaml", PAST.replace("greetin.", "greeting."))
    run = ("run", "correct/past.yaml", "-i", "password=tops3cret-word", "--yes", "-i")
    world.segue(*run, "who=Ada")
    await editor.start()
    uri = editor.open("past.yaml", PAST)
    assert mentions("greetin")(await editor.findings(uri, bool))
    shown = await hovered(editor, uri, "id: greetin", lambda text: "Hello, Ada!" in text)
    assert "last value" in shown
    await hovered(editor, uri, "id: secre", lambda text: "last value" in text and "tops3cret" not in text)
    # Ten calls are enough for times; a run while the editor is open is noticed.
    for _ in range(4):
        world.segue(*run, "who=Grace")
    shown = await hovered(editor, uri, "id: greetin", lambda text: "Hello, Grace!" in text and "calls," in text)
    assert "half of them within" in shown


async def test_tests_are_checked_against_their_composition(editor, world):
    world.file("hello.yaml", HELLO)
    await editor.start()
    text = (
        "tests:\n  - name: greets\n    input: { who: Ada }\n    tools: { nothing: { returns: 1 } }\n"
        "    expect: { status: success }\n"
    )
    uri = editor.open("hello.test.yaml", text)
    assert mentions("nothing")(await editor.findings(uri, bool))
    editor.replace(uri, "tools: { nothing: { returns: 1 } }\n", "tools: { greeting: { returns: { text: x } } }\n")
    assert await editor.findings(uri, lambda found: not found) == []
    # The composition is changed on disk: what the tests name is gone.
    world.file("hello.yaml", HELLO.replace("greeting", "welcome"))
    editor.client.text_document_did_save(lsp.DidSaveTextDocumentParams(lsp.TextDocumentIdentifier(uri=uri)))
    assert mentions("greeting")(await editor.findings(uri, bool))
    world.file("hello.yaml", HELLO.replace("text_stats", "text_stats\n    tmeout: 1s"))
    editor.client.text_document_did_save(lsp.DidSaveTextDocumentParams(lsp.TextDocumentIdentifier(uri=uri)))
    await editor.findings(uri, lambda found: mentions("`hello.yaml` cannot be tested: line 9")(found))


async def test_a_property_of_the_input_is_renamed_everywhere(editor, world):
    await editor.start()
    text = HELLO.replace("count.chars", "nothing.chars").replace("greeting.text }}\" }\noutput", "who }}\" }\noutput")
    uri = editor.open("hello.yaml", text)
    assert mentions("nothing")(await editor.findings(uri, bool))
    place = editor.at(uri, "{{ input.wh")
    edit = await editor.client.text_document_rename_async(lsp.RenameParams(new_name="person", **place))
    expected = text.replace("[who]", "[person]").replace("{ who:", "{ person:")
    expected = expected.replace("input.who", "input.person").replace("{{ who }}", "{{ person }}")
    assert applied(text, edit.document_changes[0].edits) == expected


async def test_code_lenses_are_for_extensions_that_run_them(editor, world):
    commands = ["segue.run", "segue.dryRun", "segue.test"]
    await editor.start(options={"commands": commands})
    tests = "tests:\n  - name: says hello\n    input: { who: Ada }\n"
    composition = editor.open("hello.yaml", HELLO.replace("{{ count.chars }}", "{{ counts.chars }}"))
    file = editor.open("hello.test.yaml", tests)

    async def lenses(uri):
        params = lsp.CodeLensParams(text_document=lsp.TextDocumentIdentifier(uri=uri))
        found = await editor.client.text_document_code_lens_async(params)
        return [(lens.command.command, list(lens.command.arguments)) for lens in found]

    work = str(world.work)
    assert await lenses(composition) == [
        ("segue.run", [f"{work}/hello.yaml"]),
        ("segue.dryRun", [f"{work}/hello.yaml"]),
        ("segue.test", [f"{work}/hello.test.yaml"]),
    ]
    assert await lenses(file) == [
        ("segue.test", [f"{work}/hello.test.yaml"]),
        ("segue.test", [f"{work}/hello.test.yaml", "says hello"]),
    ]


async def test_other_files_stay_quiet_and_segues_own_are_checked(editor, world):
    await editor.start()
    workflow = "name: ci\non: push\njobs: { a: { steps: [{ run: make }, { uses: x }] } }\n"
    other = editor.open("ci.yaml", workflow)
    package = editor.open("package.json", '{ "name": "x", "steps": [1, }', "json")
    tests = editor.open("hello.test.yaml", "tests:\n  - nmae: x\n")
    config = editor.open("segue.yaml", "composition: [a.yaml]\n")
    chain = editor.open("chain.yaml", "dialect: chain\nname: c\nsteps:\n  - tool: builtin:ehco\n    inputs: { text: x }\n")
    assert mentions("nmae")(await editor.findings(tests, bool))
    assert mentions("composition")(await editor.findings(config, bool))
    assert mentions("ehco")(await editor.findings(chain, bool))
    for uri in (other, package):
        assert uri not in editor.client.diagnostics, editor.client.diagnostics[uri]
        items = await editor.client.text_document_completion_async(
            lsp.CompletionParams(text_document=lsp.TextDocumentIdentifier(uri=uri), position=lsp.Position(0, 0))
        )
        assert items == []
    # A closed document leaves no findings behind.
    params = lsp.DidCloseTextDocumentParams(text_document=lsp.TextDocumentIdentifier(uri=tests))
    editor.client.text_document_did_close(params)
    end = time.monotonic() + DEADLINE
    while editor.client.diagnostics[tests]:
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def test_servers_of_a_configuration_start_only_once_it_is_trusted(editor, world):
    import json

    server = python_server(world, "dig,fill")
    world.file("segue.yaml", json.dumps({"mcpServers": {"mine": server}}))
    await editor.start()
    text = "name: c\nsteps:\n  - { id: a, tool: mine:dig, parameters: { depth: deep } }\n  - { id: b, tool: builtin:files_read }\n"
    uri = editor.open("c.yaml", text)
    findings = await editor.findings(uri, mentions("mine"))
    assert any("not trusted" in message for message in messages(findings)), findings
    # Built-in tools are checked all the same, and the person is told what to do, once.
    assert mentions("files_read")(findings)
    shown = [message.message for message in editor.client.messages]
    assert len(shown) == 1 and "segue trust" in shown[0], shown
    assert not (world.home / "started").exists(), "the server was started"
    world.segue("trust")
    findings = await editor.findings(uri, lambda found: not mentions("not trusted")(found))
    findings = await editor.findings(uri, mentions("depth"))
    assert (world.home / "started").exists()
    items = await editor.complete(uri, "tool: mine:di")
    assert "mine:dig" in items, list(items)


async def test_each_folder_has_its_own_tools(editor, world):
    for folder, tool in [("one", "alpha"), ("two", "beta")]:
        world.file(f"{folder}/segue.yaml", f"commands: {{ {tool}: {{ argv: ['true'] }} }}\n")
        world.segue("trust", folder=folder)
    await editor.start("one", "two")
    text = "name: c\nsteps:\n  - { id: a, tool: alpha }\n  - { id: b, tool: beta }\n"
    one, two = editor.open("one/c.yaml", text), editor.open("two/c.yaml", text)
    in_one, in_two = await editor.findings(one, bool), await editor.findings(two, bool)
    assert "beta" in in_one[0].message and len(in_one) == 1
    assert "alpha" in in_two[0].message and len(in_two) == 1
    # A folder inside of another that has a configuration of its own, while the editor runs.
    world.file("one/inner/segue.yaml", "commands: { beta: { argv: ['true'] } }\n")
    inner = editor.open("one/inner/c.yaml", text)
    assert "alpha" in (await editor.findings(inner, bool))[0].message


async def test_a_changed_configuration_is_used_at_once(editor, world):
    world.file("segue.yaml", "compositions: [c.yaml]\n")
    await editor.start()
    uri = editor.open("a.yaml", "name: a\nsteps:\n  - { id: a, tool: helper }\n  - { id: b, tool: nothing }\n")
    assert mentions("helper")(await editor.findings(uri, bool))
    world.file("c.yaml", "name: helper\nsteps: [{ id: a, tool: builtin:echo, parameters: { text: x } }]\n")
    event = lsp.FileEvent(uri=editor.uri("c.yaml"), type=lsp.FileChangeType.Created)
    editor.client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams(changes=[event]))
    rest = await editor.findings(uri, lambda found: not mentions("helper")(found))
    assert mentions("nothing")(rest)
    # A configuration that cannot be used: the tools stay, and the person is told.
    world.file("segue.yaml", "compositions: 7\n")
    end = time.monotonic() + DEADLINE
    while not any("cannot be used" in it.message for it in editor.client.messages):
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
    assert not mentions("helper")(await editor.findings(uri))


OUTER = "name: a\nsteps:\n  - { id: a, tool: helper }\n  - { id: b, tool: nothing }\n"
HELPER = "name: helper\nsteps: [{ id: a, tool: builtin:echo, parameters: { text: x } }]\n"


async def test_a_configuration_above_the_opened_folder_is_used_as_by_commands(editor, world):
    world.file("segue.yaml", "compositions: [helper.yaml]\n")
    world.file("helper.yaml", HELPER)
    (world.work / "inner").mkdir()
    await editor.start("inner")
    uri = editor.open("inner/a.yaml", OUTER)
    found = await editor.findings(uri, mentions("nothing"))
    assert not mentions("helper")(found), found


async def test_a_new_configuration_beside_an_open_file_is_used(editor, world):
    await editor.start()
    uri = editor.open("inner/a.yaml", OUTER)
    assert mentions("helper")(await editor.findings(uri, mentions("nothing")))
    world.file("inner/helper.yaml", HELPER)
    config = world.file("inner/segue.yaml", "compositions: [helper.yaml]\n")
    event = lsp.FileEvent(uri=config.as_uri(), type=lsp.FileChangeType.Created)
    editor.client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams(changes=[event]))
    found = await editor.findings(uri, lambda found: not mentions("helper")(found))
    assert mentions("nothing")(found)


async def test_without_a_usable_configuration_no_tool_is_called_unknown(editor, world):
    world.file("segue.yaml", "compositions: 7\n")
    await editor.start()
    text = "name: a\nsteps:\n  - { id: a, tool: theirs:dig }\n  - { id: b, wait: 1s, tmeout: 1s }\n"
    uri = editor.open("a.yaml", text)
    found = await editor.findings(uri, mentions("tmeout"))
    assert not mentions("theirs")(found), found


async def test_the_servers_of_a_closed_folder_end(editor, world):
    import json

    world.file("segue.yaml", json.dumps({"mcpServers": {"mine": python_server(world, "dig")}}))
    world.segue("trust")
    await editor.start()
    uri = editor.open("c.yaml", "name: c\nsteps:\n  - { id: a, tool: mine:dig, parameters: { depth: deep } }\n")
    await editor.findings(uri, mentions("depth"))
    process = int((world.home / "started").read_text().split()[-1])
    assert Path(f"/proc/{process}").exists() or not Path("/proc").exists()
    closed = lsp.WorkspaceFolder(uri=world.work.as_uri(), name="work")
    editor.client.text_document_did_close(
        lsp.DidCloseTextDocumentParams(text_document=lsp.TextDocumentIdentifier(uri=uri))
    )
    editor.client.workspace_did_change_workspace_folders(
        lsp.DidChangeWorkspaceFoldersParams(event=lsp.WorkspaceFoldersChangeEvent(added=[], removed=[closed]))
    )
    end = time.monotonic() + DEADLINE
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < end, "the server still runs"
        await asyncio.sleep(0.05)


async def test_a_composition_stays_one_while_it_is_typed_anew(editor, world):
    await editor.start()
    uri = editor.open("a.yaml", HELLO)
    await editor.findings(uri)
    text = "name: a\nste"
    editor.change(uri, [lsp.TextDocumentContentChangeWholeDocument(text=text)])
    editor.texts[uri] = text
    assert "steps" in await editor.complete(uri, "\nste")


async def test_fixes_are_offered_only_where_fixes_are_wanted(editor, world):
    await editor.start()
    uri = editor.open("a.yaml", HELLO.replace("tool: builtin:echo", "tol: builtin:echo"))
    [finding, *_] = await editor.findings(uri, mentions("tol"))

    async def offered(*kinds):
        context = lsp.CodeActionContext(diagnostics=[finding], only=list(kinds) or None)
        document = lsp.TextDocumentIdentifier(uri=uri)
        place = lsp.Range(lsp.Position(0, 0), lsp.Position(99, 0))
        params = lsp.CodeActionParams(text_document=document, range=place, context=context)
        return await editor.client.text_document_code_action_async(params)

    assert await offered() and await offered(lsp.CodeActionKind.QuickFix)
    assert not await offered(lsp.CodeActionKind.Refactor)


async def test_findings_are_pulled_by_a_client_that_can(editor, world):
    def pulls(capabilities):
        capabilities.text_document.diagnostic = lsp.DiagnosticClientCapabilities()
        capabilities.workspace.diagnostics = lsp.DiagnosticWorkspaceClientCapabilities(refresh_support=True)

    started = await editor.start(change=pulls)
    assert started.capabilities.diagnostic_provider
    uri = editor.open("hello.yaml", HELLO.replace("count.chars", "counts.chars"))
    params = lsp.DocumentDiagnosticParams(text_document=lsp.TextDocumentIdentifier(uri=uri))
    report = await editor.client.text_document_diagnostic_async(params)
    assert mentions("counts")(report.items)
    assert editor.client.diagnostics == {}


async def test_an_older_client_gets_simpler_answers(editor, world):
    def older(capabilities):
        capabilities.workspace.workspace_edit = None
        capabilities.text_document.document_symbol = None
        capabilities.text_document.code_action = None

    await editor.start(spec="neovim@0.6.1", change=older)
    uri = editor.open("hello.yaml", HELLO)
    await editor.findings(uri)
    edit = await editor.client.text_document_rename_async(
        lsp.RenameParams(new_name="hi", **editor.at(uri, "- id: greetin"))
    )
    assert edit.document_changes is None and len(edit.changes[uri]) == 3
    params = lsp.DocumentSymbolParams(text_document=lsp.TextDocumentIdentifier(uri=uri))
    symbols = await editor.client.text_document_document_symbol_async(params)
    assert all(isinstance(symbol, lsp.SymbolInformation) for symbol in symbols), symbols


async def test_a_thousand_steps_are_answered_at_once(editor, world):
    """Prints how long answers take; the limits are those of an optimised build."""
    steps = "".join(
        f'  - id: s{n}\n    tool: builtin:text_stats\n    parameters: {{ text: "{{{{ s{n - 1}.words }}}} {n}" }}\n'
        for n in range(1, 1000)
    )
    text = f"name: big\nsteps:\n  - {{ id: s0, tool: builtin:text_stats, parameters: {{ text: x }} }}\n{steps}output: \"{{{{ s999. }}}}\"\n"
    await editor.start()
    uri = editor.open("big.yaml", text)
    await editor.findings(uri)
    found, completed = [], []
    for n in range(10):
        editor.replace(uri, "{{ s999." if n % 2 == 0 else "{{  s999.", "{{  s999." if n % 2 == 0 else "{{ s999.")
        started = time.perf_counter()
        items = await editor.complete(uri, "s999.")
        completed.append(time.perf_counter() - started)
        await editor.findings(uri)
        found.append(time.perf_counter() - started)
    assert "words" in items, list(items)
    figures = {"completion": sorted(completed)[5], "findings": sorted(found)[5]}
    print(", ".join(f"{what}: {seconds * 1000:.0f} ms" for what, seconds in figures.items()))
    slack = 1 if os.environ.get("SEGUE_TEST_OPTIMISED") else 20
    assert figures["completion"] < 0.050 * slack and figures["findings"] < 0.150 * slack, figures

"""A folder of its own for each test, and an editor in it: a client of pytest-lsp that keeps texts."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from lsprotocol import types as lsp
from pygls.protocol import default_converter
from pytest_lsp import LanguageClient, client_capabilities

SEGUE = os.environ["SEGUE_BIN"]
DEADLINE = 30.0


class World:
    """A working folder and a home."""

    def __init__(self, folder: Path):
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir()
        self.work.mkdir()

    def file(self, name: str, text: str) -> Path:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def environment(self) -> dict[str, str]:
        foreign = ("SEGUE_", "XDG_", "CLICOLOR")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return kept | {
            "HOME": str(self.home),
            "XDG_DATA_HOME": str(self.home / "data"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "NO_COLOR": "1",
        }

    def segue(self, *args: str, folder: str = ".") -> subprocess.CompletedProcess:
        where = self.work / folder
        return subprocess.run(
            [SEGUE, *args], cwd=where, env=self.environment(), check=True, capture_output=True, text=True
        )


def position_of(text: str, needle: str, *, after: bool = True, encoding: str = "utf-16") -> lsp.Position:
    """The position behind the only occurrence of a text, or before it."""
    assert text.count(needle) == 1, f"{needle!r} occurs {text.count(needle)} times"
    at = text.index(needle) + (len(needle) if after else 0)
    line = text.count("\n", 0, at)
    begun = text[text.rfind("\n", 0, at) + 1 : at]
    unit = {"utf-8": len(begun.encode()), "utf-16": len(begun.encode("utf-16-le")) // 2}[encoding]
    return lsp.Position(line=line, character=unit)


def offset_of(text: str, position: lsp.Position) -> int:
    """The index of a UTF-16 position."""
    lines = text.split("\n")
    line = lines[position.line].encode("utf-16-le")[: position.character * 2].decode("utf-16-le")
    return sum(len(before) + 1 for before in lines[: position.line]) + len(line)


def applied(text: str, edits: list) -> str:
    """A text after edits that refer to the original."""
    places = [(offset_of(text, e.range.start), offset_of(text, e.range.end), e.new_text) for e in edits]
    for start, end, new in sorted(places, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def make_client() -> LanguageClient:
    """A client that keeps what the server says."""
    client = LanguageClient(converter_factory=default_converter)
    client.published, client.registered = {}, []

    @client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def publish(params: lsp.PublishDiagnosticsParams):
        client.diagnostics[params.uri] = params.diagnostics
        client.published[params.uri] = params.version

    @client.feature(lsp.WINDOW_SHOW_MESSAGE)
    def show(params: lsp.ShowMessageParams):
        client.messages.append(params)

    @client.feature(lsp.CLIENT_REGISTER_CAPABILITY)
    def register(params: lsp.RegistrationParams):
        client.registered.extend(params.registrations)

    @client.feature(lsp.WORKSPACE_DIAGNOSTIC_REFRESH)
    def refresh(params: None):
        client.diagnostic_refresh_count += 1

    for method in (lsp.WORKSPACE_CODE_LENS_REFRESH, lsp.WORKSPACE_SEMANTIC_TOKENS_REFRESH):
        client.feature(method)(lambda params: None)
    return client


class Editor:
    """An editor with open files, over a client of pytest-lsp."""

    def __init__(self, world: World):
        self.world, self.client, self.texts, self.versions = world, make_client(), {}, {}

    async def start(
        self,
        *folders: str,
        spec: str = "visual-studio-code@1.65.2",
        args: tuple[str, ...] = (),
        options: dict | None = None,
        change=lambda capabilities: None,
    ) -> lsp.InitializeResult:
        await self.client.start_io(
            SEGUE, "lsp", *args, env=self.world.environment(), cwd=str(self.world.home)
        )
        capabilities = client_capabilities(spec)
        change(capabilities)
        folders = [self.world.work / folder for folder in folders or (".",)]
        params = lsp.InitializeParams(
            capabilities=capabilities,
            workspace_folders=[lsp.WorkspaceFolder(uri=f.as_uri(), name=f.name) for f in folders],
            initialization_options=options,
        )
        return await self.client.initialize_session(params)

    async def stop(self) -> None:
        await asyncio.wait_for(self.client.shutdown_session(), DEADLINE)
        assert self.client._server.returncode == 0

    def uri(self, name: str) -> str:
        return (self.world.work / name).as_uri()

    def open(self, name: str, text: str, language: str = "yaml") -> str:
        uri = self.uri(name)
        self.world.file(name, text)
        self.texts[uri], self.versions[uri] = text, 1
        item = lsp.TextDocumentItem(uri=uri, language_id=language, version=1, text=text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(text_document=item))
        return uri

    def change(self, uri: str, changes: list) -> None:
        self.versions[uri] += 1
        identifier = lsp.VersionedTextDocumentIdentifier(uri=uri, version=self.versions[uri])
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(text_document=identifier, content_changes=changes)
        )

    def replace(self, uri: str, old: str, new: str) -> None:
        """Types over the only occurrence of a text."""
        text = self.texts[uri]
        where = lsp.Range(position_of(text, old, after=False), position_of(text, old))
        self.change(uri, [lsp.TextDocumentContentChangePartial(range=where, text=new)])
        self.texts[uri] = text.replace(old, new)

    async def findings(self, uri: str, until=lambda findings: True, version: int | None = None) -> list:
        """The published findings about the present text, once they are as expected."""
        version = version or self.versions[uri]
        end = time.monotonic() + DEADLINE
        while True:
            known = self.client.diagnostics.get(uri)
            if known is not None and self.client.published[uri] == version and until(known):
                return list(known)
            assert time.monotonic() < end, f"the findings stay {known}"
            await asyncio.sleep(0.02)

    def at(self, uri: str, needle: str, after: bool = True) -> dict:
        place = position_of(self.texts[uri], needle, after=after)
        return {"text_document": lsp.TextDocumentIdentifier(uri=uri), "position": place}

    async def complete(self, uri: str, needle: str) -> dict[str, lsp.CompletionItem]:
        items = await self.client.text_document_completion_async(lsp.CompletionParams(**self.at(uri, needle)))
        return {item.label: item for item in items}

    def accepted(self, uri: str, item: lsp.CompletionItem) -> str:
        """The text after a proposal is accepted."""
        return applied(self.texts[uri], [item.text_edit])


def messages(findings: list) -> list[str]:
    return [finding.message for finding in findings]


class RawSession:
    """The protocol byte by byte, for what a client library would never send."""

    def __init__(self, world: World, *args: str):
        self.process = subprocess.Popen(
            [SEGUE, "lsp", *args],
            cwd=world.home,
            env=world.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.seen = []

    def send_bytes(self, body: bytes) -> None:
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def send(self, *messages: dict) -> None:
        bodies = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
        together = b"".join(b"Content-Length: %d\r\n\r\n" % len(body) + body for body in bodies)
        self.process.stdin.write(together)
        self.process.stdin.flush()

    def read(self) -> dict:
        length = None
        while line := self.process.stdout.readline().strip():
            name, value = line.split(b":")
            if name.lower() == b"content-length":
                length = int(value)
        assert length is not None, self.process.stderr.read().decode()
        return json.loads(self.process.stdout.read(length))

    def answer(self, wanted) -> dict:
        """The answer with this id; what else arrives is kept."""
        while True:
            message = self.read()
            if "method" not in message and message.get("id") == wanted:
                return message
            self.seen.append(message)

    def initialize(self, process: int | None = None, **capabilities) -> dict:
        params = {"processId": process, "rootUri": None, "capabilities": capabilities}
        self.send({"id": 1, "method": "initialize", "params": params})
        result = self.answer(1)["result"]
        self.send({"method": "initialized", "params": {}})
        return result

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                pass

    def ends(self) -> int:
        return self.process.wait(DEADLINE)


def python_server(world: World, tools: str) -> dict:
    """The configuration of an MCP server with these tools. It leaves a mark with its process when it is started."""
    script = world.file("server.py", MCP_SERVER)
    mark = world.home / "started"
    return {"command": sys.executable, "args": [str(script), str(mark), tools]}


MCP_SERVER = '''
import json, os, sys
open(sys.argv[1], "a").write(f"started {os.getpid()}\\n")
tools = [{"name": name, "description": "Does " + name, "inputSchema": {"type": "object", "required": ["depth"],
          "properties": {"depth": {"type": "integer"}}}} for name in sys.argv[2].split(",")]
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method = request["method"]
    if method == "initialize":
        result = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "test", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": tools}
    elif method == "ping":
        result = {}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": method}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
'''

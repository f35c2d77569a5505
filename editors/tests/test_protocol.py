"""What the specification says about messages out of order, broken messages, and how a session ends."""

import json
import os
import subprocess
import sys
import time

import pytest
from support import DEADLINE, RawSession

TEXT = "name: c\nsteps:\n  - { id: a, tool: builtin:echo, parameters: { text: x } }\n"


@pytest.fixture
def session(world):
    session = RawSession(world)
    yield session
    session.close()


def opened(uri: str, text: str = TEXT) -> dict:
    item = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
    return {"method": "textDocument/didOpen", "params": {"textDocument": item}}


def hover(wanted, uri: str) -> dict:
    params = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 0}}
    return {"id": wanted, "method": "textDocument/hover", "params": params}


def test_requests_before_initialize_are_refused(session):
    session.send({"id": 7, "method": "textDocument/hover", "params": {}})
    assert session.answer(7)["error"]["code"] == -32002
    session.send({"method": "initialized", "params": {}})
    assert session.initialize()["serverInfo"]["name"] == "segue"
    session.send({"id": 8, "method": "initialize", "params": {"capabilities": {}, "processId": None, "rootUri": None}})
    assert session.answer(8)["error"]["code"] == -32600


def test_shutdown_and_exit_end_orderly(session):
    session.initialize()
    session.send({"id": 2, "method": "shutdown"})
    answer = session.answer(2)
    assert "result" in answer and answer["result"] is None
    session.send(hover(3, "file:///a.yaml"))
    assert session.answer(3)["error"]["code"] == -32600
    session.send({"method": "exit"})
    assert session.ends() == 0


def test_exit_without_shutdown_is_a_failure(session):
    session.initialize()
    session.send({"method": "exit"})
    assert session.ends() == 1


def test_exit_before_initialize_is_a_failure(session):
    session.send({"method": "exit"})
    assert session.ends() == 1


def test_the_end_of_the_input_ends_it(session):
    session.initialize()
    session.process.stdin.close()
    assert session.ends() == 1


def test_the_end_of_the_editor_ends_it(session):
    editor = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    session.initialize(process=editor.pid)
    editor.communicate(b"\n")
    # Standard input stays open: another process may have inherited it.
    assert session.ends() == 1


def test_unknown_methods_are_refused_and_unknown_notifications_ignored(session):
    session.initialize()
    session.send({"method": "$/unknown", "params": {}}, {"method": "textDocument/unknown"})
    session.send({"id": "text", "method": "textDocument/inlayHint", "params": {}})
    assert session.answer("text")["error"]["code"] == -32601
    session.send({"id": 4, "method": "$/unknown"})
    assert session.answer(4)["error"]["code"] == -32601


def test_malformed_messages_are_answered_and_the_session_goes_on(session):
    session.initialize()
    for body, code in [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"shutdown"}', -32600),
    ]:
        session.send_bytes(body)
        answer = session.answer(None)
        assert answer["error"]["code"] == code, (body, answer)
    session.send({"id": 5, "method": "textDocument/hover", "params": {"position": 7}})
    assert session.answer(5)["error"]["code"] == -32602
    session.send({"method": "textDocument/didOpen", "params": 7})
    session.send({"method": "textDocument/didChange", "params": {"textDocument": {"uri": "x", "version": 1}}})
    session.send(hover(6, "file:///not-open.yaml"))
    assert session.answer(6)["result"] is None


def test_a_header_that_cannot_be_read_ends_the_session(session):
    session.initialize()
    session.process.stdin.write(b"Content-Length: 99999999999999\r\n\r\n{}")
    session.process.stdin.flush()
    assert session.ends() == 1


def test_cancelled_requests_are_answered_as_cancelled(session, world):
    session.initialize()
    uri = (world.work / "c.yaml").as_uri()
    # Many requests behind one text, all of which are cancelled in the same write.
    ids = list(range(10, 60))
    session.send(
        opened(uri, TEXT + "#" * 200_000),
        *(hover(wanted, uri) for wanted in ids),
        *({"method": "$/cancelRequest", "params": {"id": wanted}} for wanted in ids),
        {"method": "$/cancelRequest", "params": {"id": "never sent"}},
    )
    answers = {}
    while len(answers) < len(ids):
        message = session.read()
        if "method" not in message:
            assert message["id"] not in answers, "answered twice"
            answers[message["id"]] = message
    cancelled = [it for it in answers.values() if it.get("error", {}).get("code") == -32800]
    assert cancelled, "not one was cancelled"
    assert all("result" in it or it["error"]["code"] == -32800 for it in answers.values())


@pytest.mark.parametrize("attempt", range(5))
def test_a_request_that_waits_for_the_tools_is_answered_once_when_cancelled(session, world, attempt):
    session.initialize()
    uri = (world.work / "c.yaml").as_uri()
    # An answer behind it says that it waits by now; the tools may of course be there already.
    session.send(opened(uri), hover(2, uri), {"id": 9, "method": "no/such/method", "params": {}})
    session.answer(9)
    session.send({"method": "$/cancelRequest", "params": {"id": 2}}, hover(3, uri))
    session.answer(3)
    answers = [message for message in session.seen if "method" not in message and message.get("id") == 2]
    assert len(answers) == 1, answers


def test_requests_that_come_before_the_tools_are_known_are_answered(session, world):
    uri = (world.work / "c.yaml").as_uri()
    session.initialize()
    at = {"line": 2, "character": TEXT.splitlines()[2].index("echo") + 2}
    params = {"textDocument": {"uri": uri}, "position": at}
    session.send(opened(uri), {"id": 2, "method": "textDocument/completion", "params": params})
    labels = [item["label"] for item in session.answer(2)["result"]]
    assert any("echo" in label for label in labels), labels


def test_standard_output_has_only_messages(world):
    """Notes about the configuration, and the log, go to standard error."""
    world.file("segue.yaml", "mcpServers: { none: { command: does-not-exist } }\n")
    session = RawSession(world, "--log-level", "debug")
    params = {"processId": os.getpid(), "rootUri": world.work.as_uri(), "capabilities": {}}
    session.send({"id": 1, "method": "initialize", "params": params})
    session.answer(1)
    session.send(opened((world.work / "c.yaml").as_uri()))
    while not any(message.get("method") == "textDocument/publishDiagnostics" for message in session.seen):
        session.seen.append(session.read())
    session.send({"id": 2, "method": "shutdown"})
    session.answer(2)
    session.send({"method": "exit"})
    rest, errors = session.process.communicate(timeout=DEADLINE)
    assert session.process.returncode == 0
    assert rest == b"" or rest.startswith(b"Content-Length: "), rest
    assert not errors or b"Content-Length" not in errors


def test_a_client_that_does_not_read_does_not_stop_the_server(session, world):
    session.initialize()
    uri = (world.work / "c.yaml").as_uri()
    session.send(opened(uri))
    version = 1
    changes = [{"text": TEXT + f"wrong_{n}: 1\n" * 50} for n in range(200)]
    for change in changes:
        version += 1
        document = {"uri": uri, "version": version}
        params = {"textDocument": document, "contentChanges": [change]}
        session.send({"method": "textDocument/didChange", "params": params})
    started = time.monotonic()
    session.send({"id": 9, "method": "shutdown"})
    session.answer(9)
    assert time.monotonic() - started < DEADLINE

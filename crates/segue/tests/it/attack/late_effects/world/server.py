#!/usr/bin/env python3
"""The world outside of Segue: an MCP server that writes what it does into a ledger that Segue does not know.

A call that was begun is carried through, whatever its caller says meanwhile. Needs only Python 3."""
import json, os, sys, threading, time

LOCK = threading.Lock()


def send(message):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def mark(what, name):
    ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND)
    os.write(ledger, f"{what} {os.getpid()} {name}\n".encode())
    os.close(ledger)


def tool(name, **hints):
    texts = {key: {"type": "string"} for key in ("name", "before", "after", "token")}
    schema = {"type": "object", "required": ["name"], "properties": texts}
    return {"name": name, "description": name, "inputSchema": schema, "annotations": hints}


TOOLS = [
    tool("write", readOnlyHint=False, destructiveHint=False, idempotentHint=False),
    tool("undo", readOnlyHint=False, destructiveHint=False, idempotentHint=True),
]


def call(id, kind, args):
    name = args["name"]
    mark("START", name)
    time.sleep(float(args.get("before", 0)))
    mark("EFFECT" if kind == "write" else "UNDO", name)
    time.sleep(float(args.get("after", 0)))
    mark("END", name)
    value = {"name": name, "token": f"token of {name}"}
    content = [{"type": "text", "text": json.dumps(value)}]
    try:
        send({"id": id, "result": {"content": content, "structuredContent": value}})
    except OSError:
        pass


def handle(message):
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if id is None:
        return
    if method == "initialize":
        send({"id": id, "result": {"protocolVersion": params.get("protocolVersion", "2025-06-18"),
                                   "capabilities": {"tools": {}}, "serverInfo": {"name": "world", "version": "1"}}})
    elif method == "ping":
        send({"id": id, "result": {}})
    elif method == "tools/list":
        send({"id": id, "result": {"tools": TOOLS}})
    elif method == "tools/call":
        threading.Thread(target=call, args=(id, params["name"], params.get("arguments") or {})).start()
    else:
        send({"id": id, "error": {"code": -32601, "message": f"no {method}"}})


for line in sys.stdin:
    if line.strip():
        handle(json.loads(line))

#!/usr/bin/env python3
"""An MCP server whose tool has the output schema of a file: server.py FILE. Needs only Python 3."""
import json, sys

SCHEMA = json.load(open(sys.argv[1]))
TOOL = {"name": "climb", "description": "answers with a number", "inputSchema": {"type": "object"},
        "outputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if id is None:
        continue
    if method == "initialize":
        version = message["params"].get("protocolVersion", "2025-06-18")
        send({"id": id, "result": {"protocolVersion": version, "capabilities": {"tools": {}},
                                   "serverInfo": {"name": "ladder", "version": "1"}}})
    elif method == "tools/list":
        send({"id": id, "result": {"tools": [TOOL]}})
    elif method == "tools/call":
        text = [{"type": "text", "text": json.dumps({"n": 1})}]
        send({"id": id, "result": {"content": text, "structuredContent": {"n": 1}}})
    else:
        send({"id": id, "error": {"code": -32601, "message": f"no {method}"}})

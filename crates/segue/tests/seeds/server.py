#!/usr/bin/env python3
"""A small MCP server with the tools that a document speaks of: server.py TOOLS CALLS.

TOOLS is a JSON file: name -> {input, output, answers}. Answers come in order, the last one again and again; `{"fail": words}`
is an error, and a text `$name` in an answer stands for that argument. Without answers a tool returns what it is given.
Every call is appended to CALLS. Needs only Python 3."""
import json, os, sys

TOOLS = json.load(open(sys.argv[1]))
COUNTS = {}
FILE = None


def filled(answer, arguments):
    if isinstance(answer, str) and answer.startswith("$"):
        return arguments.get(answer[1:])
    if isinstance(answer, dict):
        return {key: filled(value, arguments) for key, value in answer.items()}
    if isinstance(answer, list):
        return [filled(value, arguments) for value in answer]
    return answer


def listed(name, tool):
    output = {"outputSchema": tool["output"]} if "output" in tool else {}
    writes = {"readOnlyHint": False, "destructiveHint": False}
    return {"name": name, "description": f"stands for {name}", "inputSchema": tool.get("input", {"type": "object"}), "annotations": writes, **output}


def called(name, arguments):
    with open(sys.argv[2], "a") as calls:
        calls.write(json.dumps({name: arguments}) + "\n")
    # Another file with the tools: the answers begin again.
    global FILE
    now = (os.stat(sys.argv[1]).st_ino, os.stat(sys.argv[1]).st_mtime_ns)
    if FILE not in (None, now):
        COUNTS.clear()
    FILE = now
    answers = TOOLS[name].get("answers", [])
    turn = COUNTS[name] = COUNTS.get(name, 0) + 1
    answer = filled(answers[min(turn, len(answers)) - 1], arguments) if answers else arguments
    if isinstance(answer, dict) and set(answer) == {"fail"}:
        return {"content": [{"type": "text", "text": answer["fail"]}], "isError": True}
    text = answer if isinstance(answer, str) else json.dumps(answer)
    structured = {"structuredContent": answer} if isinstance(answer, dict) else {}
    return {"content": [{"type": "text", "text": text}], **structured}


def answer(request):
    method, params = request.get("method"), request.get("params") or {}
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "seeds", "version": "1"}}
    if method == "tools/list":
        return {"tools": [listed(name, tool) for name, tool in TOOLS.items()]}
    if method == "tools/call":
        return called(params["name"], params.get("arguments") or {})
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request)
    reply = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}), flush=True)

#!/usr/bin/env python3
"""A host for the client scenarios of the conformance suite: calls every tool of a server through Segue, with somebody at a
terminal who says yes to everything. SEGUE is the program, PERSON the script that types. Usage: client.py URL."""
import json, os, pathlib, subprocess, sys, tempfile

GUESS = {"integer": 5, "number": 5, "string": "x", "boolean": True, "array": [], "object": {}}


def guess(schema):
    properties = schema.get("properties", {})
    return {name: GUESS.get(properties[name].get("type"), "x") for name in schema.get("required", [])}


def arguments(tool):
    if tool["id"] == "s:json_schema_echo":
        echoed = next(other for other in tools if other["id"] != tool["id"])
        return {"schema": echoed["input_schema"]}
    return guess(tool["input_schema"])


segue = os.environ["SEGUE"]
context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
folder = tempfile.mkdtemp()
config = {"mcpServers": {"s": {"type": "http", "url": sys.argv[-1]}}}
pathlib.Path(folder, "segue.yaml").write_text(json.dumps(config))
env = dict(os.environ, XDG_DATA_HOME=folder)
options = ["--config", "segue.yaml", "--store", "memory"]

listed = subprocess.run([segue, "tools", "--json", *options], cwd=folder, env=env, capture_output=True, text=True)
sys.stderr.write(listed.stderr)
tools = [tool for tool in json.loads(listed.stdout)["tools"] if tool["id"].startswith("s:")]
calls = [(call["name"], call["arguments"]) for call in context.get("toolCalls", [])]
calls = calls or [(tool["id"][2:], arguments(tool)) for tool in tools]
# What is left empty has its default; everything else is a yes.
answers = ["y"] + [""] * 20 if "defaults" in os.environ.get("MCP_CONFORMANCE_SCENARIO", "") else ["y"] * 20
person = [sys.executable, os.environ["PERSON"], "|".join(answers)]
for name, given in calls:
    # Segue sends nothing that does not fit, and null fits no type of these tools.
    given = {key: value for key, value in given.items() if value is not None}
    composition = {"name": "one", "steps": [{"id": "call", "tool": f"s:{name}", "parameters": given}]}
    pathlib.Path(folder, "c.yaml").write_text(json.dumps(composition))
    run = [*person, segue, "run", "c.yaml", "--yes", *options]
    done = subprocess.run(run, cwd=folder, env=env, capture_output=True, text=True)
    print(done.stdout, done.stderr, file=sys.stderr)

"""A host made of the Python library `mcp`: one tool over a file server, one question, one kill.

usage: python_mcp.py SEGUE MODE FOLDER     MODE: legacy, or auto for whatever the two agree on
The folder has a configuration with `rename-word` and `slow-write`. Prints one JSON document of what it saw.
"""

import asyncio
import json
import os
import signal
import sys

import mcp.types as types
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

SEGUE, MODE, FOLDER = sys.argv[1:4]
PID = os.path.join(FOLDER, "pid")
seen = {"questions": []}


async def asked(context, params):
    seen["questions"].append(params.message)
    return types.ElicitResult(action="accept", content={})


def client():
    line = f'echo $$ > "{PID}"; exec "{SEGUE}" --config segue.yaml --store sqlite:s.db mcp'
    server = StdioServerParameters(command="sh", args=["-c", line], cwd=FOLDER, env=dict(os.environ))
    return Client(stdio_client(server), elicitation_callback=asked, mode=MODE)


def path(name):
    return os.path.join(FOLDER, name)


async def rename():
    async with client() as host:
        seen["version"] = str(host.protocol_version)
        tools = (await host.list_tools()).tools
        seen["tools"] = [t.name for t in tools if not t.name.startswith(("composition_", "run_"))]
        arguments = {"file": path("a.txt"), "other": path("b.txt"), "word": "old", "by": "new"}
        result = await host.call_tool("rename_word", arguments)
        seen["rename"] = {"is_error": result.is_error, "value": result.structured_content,
                          "text": result.content[0].text}


async def killed():
    """Gets a reference, kills Segue in the middle, starts another one and asks it."""
    run_id = None
    try:
        async with client() as host:
            result = await host.call_tool("slow_write", {"one": path("one.txt"), "two": path("two.txt")})
            seen["reference"] = result.structured_content
            run_id = result.structured_content["run_id"]
            # The server that writes is started while the host waits already.
            while True:
                run = await host.call_tool("run_get", {"run_id": run_id, "steps": True})
                if run.structured_content["steps"] and run.structured_content["steps"][0]["status"] == "success":
                    break
            seen["before"] = [os.path.exists(path("one.txt")), os.path.exists(path("two.txt"))]
            with open(PID) as file:
                os.kill(int(file.read()), signal.SIGKILL)
    except BaseException as error:  # the transport says in its own ways that the other side is gone
        seen["lost"] = type(error).__name__
    async with client() as host:
        result = await host.call_tool("run_get", {"run_id": run_id, "wait_ms": 30000, "steps": True})
        seen["run"] = result.structured_content
        seen["after"] = [os.path.exists(path("one.txt")), os.path.exists(path("two.txt"))]


async def main():
    await rename()
    await killed()
    print(json.dumps(seen))


asyncio.run(main())

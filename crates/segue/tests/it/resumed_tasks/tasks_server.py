"""An MCP server at an address, made with the Python library of 2025-11-25, whose tool works as a task.

tasks_server.py PORT FOLDER SUPPORT ANSWERS: SUPPORT is `required` or `optional`, ANSWERS is `json` or `events`, or `sessions`
for events in sessions. The tool adds a line to FOLDER/began and works until there is a file FOLDER/go. A call that is no task is
answered at once, with `no task`; in a session, with the number that somebody gives who is asked for one."""
import sys
from pathlib import Path

import anyio
import mcp.types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Mount

PORT, FOLDER, SUPPORT, ANSWERS = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
server = Server("tasks")
server.experimental.enable_tasks()


@server.list_tools()
async def list_tools():
    execution = types.ToolExecution(taskSupport=SUPPORT)
    return [types.Tool(name="work", description="takes long", inputSchema={"type": "object"}, execution=execution)]


@server.call_tool()
async def call_tool(name, arguments):
    context = server.request_context

    async def work(task):
        while not (FOLDER / "go").exists():
            await anyio.sleep(0.02)
        return types.CallToolResult(content=[types.TextContent(type="text", text="done as a task")])

    if ANSWERS == "sessions":
        form = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        given = await context.session.elicit("Which number?", form, context.request_id)
        return [types.TextContent(type="text", text="it is %d" % given.content["n"])]
    if not context.experimental.is_task:
        return [types.TextContent(type="text", text="no task")]
    with open(FOLDER / "began", "a") as began:
        began.write("began\n")
    return await context.experimental.run_task(work)


# Without sessions: a task belongs to whoever knows its name.
manager = StreamableHTTPSessionManager(server, stateless=ANSWERS != "sessions", json_response=ANSWERS == "json")
app = Starlette(routes=[Mount("/mcp", app=manager.handle_request)], lifespan=lambda app: manager.run())
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="error")

"""A host made of FastMCP. usage: fastmcp_host.py SEGUE FOLDER. Prints one JSON document of what it saw."""

import asyncio
import json
import os
import sys

from fastmcp import Client

SEGUE, FOLDER = sys.argv[1:3]
CONFIG = {"mcpServers": {"segue": {
    "command": SEGUE, "args": ["--config", "segue.yaml", "--store", "sqlite:s.db", "mcp"],
    "cwd": FOLDER, "env": dict(os.environ)}}}


async def main():
    async with Client(CONFIG) as host:
        result = await host.call_tool("double_it", {"n": 21})
        failed = await host.call_tool("double_it", {"n": "x"}, raise_on_error=False)
        print(json.dumps({"value": result.structured_content, "n": result.data.n,
                          "is_error": failed.is_error, "text": failed.content[0].text}))


asyncio.run(main())

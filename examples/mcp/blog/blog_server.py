"""Authors, their blogs and comments, as an MCP server on standard input and output. Needs FastMCP."""
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from mcp.types import ToolAnnotations
from typing_extensions import TypedDict

Author = TypedDict("Author", {"_id": str, "name": str, "email": str})
Blog = TypedDict("Blog", {"_id": str, "authorId": str, "title": str, "content": str})
Comment = TypedDict("Comment", {"_id": str, "blogId": str, "text": str})

server = FastMCP("blog")
ADDS = ToolAnnotations(readOnlyHint=False, destructiveHint=False, openWorldHint=False)
FIRST = 0x507F1F77BCF86CD799439011
kept = {}


def keep(kind, values):
    item = {"_id": f"{FIRST + len(kept):x}", **values}
    kept[item["_id"]] = kind
    return item


def must_be(kind, key):
    if kept.get(key) != kind:
        raise ToolError(f"there is no {kind} {key}")


@server.tool(annotations=ADDS)
def createAuthor(name: str, email: str) -> Author:
    """Creates an author"""
    return keep("author", {"name": name, "email": email})


@server.tool(annotations=ADDS)
def createBlog(authorId: str, title: str, content: str) -> Blog:
    """Creates a blog by an author"""
    must_be("author", authorId)
    return keep("blog", {"authorId": authorId, "title": title, "content": content})


@server.tool(annotations=ADDS)
def createComment(blogId: str, text: str) -> Comment:
    """Comments on a blog"""
    must_be("blog", blogId)
    return keep("comment", {"blogId": blogId, "text": text})


if __name__ == "__main__":
    server.run(show_banner=False)

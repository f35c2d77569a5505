#!/usr/bin/env python3
"""What the conformance suite of the protocol asks for by name, as a server of the official Python library on standard input and
output. Segue stands between it and the suite: every composition in `lib` calls the tool of its name here. It has resources and
prompts, too, which Segue does not pass on. Usage: fixture.py."""
import asyncio
import base64
from pathlib import Path
from typing import Annotated, Literal

from mcp.server.mcpserver import Audio, Context, Elicit, Image, MCPServer, Resolve
from mcp_types import EmbeddedResource, ImageContent, TextContent, TextResourceContents, ToolAnnotations
from pydantic import BaseModel, Field

server = MCPServer("conformance-fixture")
reads = server.tool(annotations=ToolAnnotations(read_only_hint=True))
shows = server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==")


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


class Ok(BaseModel):
    ok: bool


class Confirm(BaseModel):
    confirm: bool


class User(BaseModel):
    username: str
    email: str


class Text(BaseModel):
    text: str = ""


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


def titled(values, word):
    names = ("First", "Second", "Third")
    return [{"const": value, "title": f"{name} {word}"} for value, name in zip(values, names)]


VALUES = ("value1", "value2", "value3")


class Enums(BaseModel):
    untitledSingle: Literal["option1", "option2", "option3"] | None = Field(None, json_schema_extra=lambda s: plain(s, enum=["option1", "option2", "option3"]))
    titledSingle: str | None = Field(None, json_schema_extra=lambda s: plain(s, oneOf=titled(VALUES, "Option")))
    legacyEnum: str | None = Field(None, json_schema_extra=lambda s: plain(s, enum=["opt1", "opt2", "opt3"], enumNames=["Option One", "Option Two", "Option Three"]))
    untitledMulti: list[str] | None = Field(None, json_schema_extra=lambda s: several(s, {"type": "string", "enum": ["option1", "option2", "option3"]}))
    titledMulti: list[str] | None = Field(None, json_schema_extra=lambda s: several(s, {"anyOf": titled(VALUES, "Choice")}))


def plain(schema, **more):
    schema.clear()
    schema.update(type="string", **more)


def several(schema, items):
    schema.clear()
    schema.update(type="array", items=items)


def asks(message, form):
    def question() -> Elicit[form]:
        return Elicit(message, form)

    return Annotated[form, Resolve(question)]


@reads
def test_simple_text() -> str:
    return "This is a simple text response for testing."


@reads
def test_image_content() -> Image:
    return Image(data=PIXEL, format="png")


@reads
def test_audio_content() -> Audio:
    return Audio(data=b"RIFF$\x00\x00\x00WAVEfmt ", format="wav")


def resource(uri, mime_type, text):
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


@shows
def test_embedded_resource() -> list[EmbeddedResource]:
    return [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]


@shows
def test_multiple_content_types() -> list:
    return [
        TextContent(type="text", text="Multiple content types test:"),
        ImageContent(type="image", data=base64.b64encode(PIXEL).decode(), mime_type="image/png"),
        resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ]


@reads
def test_error_handling() -> str:
    raise ValueError("This tool intentionally returns an error for testing")


@reads
def test_logging_tool() -> str:
    return "quiet"


@reads
async def test_tool_with_progress(context: Context) -> str:
    for done in range(1, 5):
        await asyncio.sleep(0.08)
        await context.report_progress(done, 4)
    return "done"


@reads
def test_custom_header(region: str) -> str:
    return region


@reads
def json_schema_2020_12_tool() -> str:
    return "ok"


@reads
def greet(name: str) -> str:
    return f"Hello, {name}!"


@reads
async def slow_compute(seconds: float = 0, label: str = "") -> str:
    await asyncio.sleep(seconds)
    return f"{label}: done"


@reads
async def failing_job() -> str:
    await asyncio.sleep(1)
    raise ValueError("failed on purpose")


@reads
async def wait_a_second() -> str:
    await asyncio.sleep(1)
    return "waited"


@reads
def confirm_delete(filename: str, confirm: asks("Delete it?", Confirm)) -> str:
    return f"{filename}: {confirm.confirm}"


@reads
def multi_input_first(text: asks("First?", Text)) -> str:
    return text.text


@reads
def multi_input_second(text: asks("Second?", Text)) -> str:
    return text.text


@reads
def test_elicitation(user: asks("Please provide your information", User)) -> str:
    return f"{user.username} {user.email}"


@reads
def test_elicitation_sep1034_defaults(data: asks("Please check", Defaults)) -> str:
    return data.model_dump_json()


@reads
def test_elicitation_sep1330_enums(data: asks("Please choose", Enums)) -> str:
    return data.model_dump_json()


@reads
def test_ask_name(user_name: asks("What is your name?", Name)) -> str:
    return f"Hello, {user_name.name}!"


def ask_first() -> Elicit[Name]:
    return Elicit("Step 1: What is your name?", Name)


def ask_second(name: Annotated[Name, Resolve(ask_first)]) -> Elicit[Color]:
    return Elicit(f"Step 2: What is your favorite color, {name.name}?", Color)


@reads
def test_ask_twice(name: Annotated[Name, Resolve(ask_first)], color: Annotated[Color, Resolve(ask_second)]) -> str:
    return f"{name.name} likes {color.color}"


@reads
def test_confirm(confirm: asks("Please confirm", Ok)) -> str:
    return "state-ok"


@server.tool(annotations=ToolAnnotations(destructive_hint=False))
def test_add_composition(by: str) -> str:
    """Segue's own file tools reach no composition: somebody else adds one."""
    Path("lib/changed.yaml").write_text(
        f"name: changed\ndescription: changed by {by}\nsteps: [ {{ id: a, tool: echo, parameters: {{ n: 1 }} }} ]\n"
    )
    return "added"


@server.resource("test://static-text")
def static_text() -> str:
    return "This is the content of the static text resource."


@server.prompt()
def test_simple_prompt() -> str:
    return "This is a simple prompt for testing."


server.run()

"""The command ``shardmath mcp``: a server of the Model Context Protocol, whose tools are the commands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from shardmath import __version__
from shardmath.cli.tools import Called, Runner, Tool, called, tools
from shardmath.errors import InputError

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

#: Read by the program at the other end, before it chooses a tool.
INSTRUCTIONS = """Memory and time of sharded LLM training. `recommend` and `sweep` search layouts of a model on a
cluster, `explain` accounts for one layout byte by byte, `moves` and `fit` say which change makes it fit, `compare` sets
layouts side by side, `formula` shows the formula behind a term. Names are in `models`, `gpus` and `networks`. Sizes are
bytes, times are seconds."""


@click.command(short_help="Serve the commands to programs (Model Context Protocol).")
@click.pass_context
def mcp(context: click.Context) -> None:
    """Serve the commands that print JSON documents as tools of the Model Context Protocol.

    The server speaks on standard input and output. The arguments of a tool are the options of its command, the answer
    is the document. No tool writes a file. Tools may read the files that a call names. Needs the package `mcp`.
    """
    try:
        import anyio
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise InputError("mcp", "absent", "must be installed to serve it: pip install 'shardmath[mcp]'") from None

    group = context.find_root().command
    assert isinstance(group, click.Group)
    served = server(group, context.obj)

    async def serve() -> None:
        async with stdio_server() as (reading, writing):
            await served.run(reading, writing, served.create_initialization_options())

    anyio.run(serve)


def server(group: click.Group, run: Runner) -> Server:
    """Return the server for the commands of ``group``, which ``run`` runs, one call after the other."""
    import anyio
    from anyio.to_thread import run_sync
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolResult, ListToolsResult, TextContent
    from mcp.types import Tool as Offered

    from shardmath.schemas.documents import DOCUMENTS, schema

    known = {tool.name: tool for tool in tools(group.commands, DOCUMENTS)}
    turn = anyio.Lock()

    async def listed(*_: Any) -> ListToolsResult:
        return ListToolsResult(tools=[
            Offered(name=name, description=_about(tool), input_schema=tool.schema(), output_schema=schema(name))
            for name, tool in known.items()
        ])

    async def call(_: Any, asked: Any) -> CallToolResult:
        if asked.name not in known:
            return _result(Called(2, "", f"error: tool = {asked.name!r}: must be one of {', '.join(known)}"))
        async with turn:
            return _result(await run_sync(called, known[asked.name], asked.arguments or {}, run))

    def _result(done: Called) -> CallToolResult:
        texts = [TextContent(type="text", text=text) for text in (done.document, done.notes) if text]
        if not done.document:
            return CallToolResult(content=texts, is_error=True)
        return CallToolResult(content=texts, structured_content=json.loads(done.document))

    return Server("shardmath", version=__version__, instructions=INSTRUCTIONS, on_list_tools=listed, on_call_tool=call)


def _about(tool: Tool) -> str:
    """Return the description of a tool: that of its document where it lists everything, else that of its command."""
    return f"List all {tool.name}." if tool.fixed else tool.command.get_short_help_str(limit=200)

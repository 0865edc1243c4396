"""The command ``shardmath schema``: what the documents that ``--json`` prints are like."""

from __future__ import annotations

import json
import sys

import click

from shardmath.cli.names import names_of
from shardmath.reports.answers import VERSIONS, schema_name


@click.command(short_help="Print the JSON Schema of what --json prints.")
@click.argument("document", required=False, shell_complete=names_of(lambda: VERSIONS))
@click.option("--markdown", is_flag=True, help="Print the tables of docs/json.md.")
def schema(document: str | None, markdown: bool) -> None:
    """Print the JSON Schema of a DOCUMENT, which is called like its command; without one, list the documents."""
    if markdown:
        from shardmath.schemas import markdown as page

        sys.stdout.write(page())
    elif document is not None:
        from shardmath.schemas import schema as made

        click.echo(json.dumps(made(document), indent=2))
    else:
        for name in VERSIONS:
            click.echo(f"{name:<10} {schema_name(name)}")

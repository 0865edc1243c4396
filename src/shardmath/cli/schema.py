"""The command ``shardmath schema``: the schemas of ``--json``."""

from __future__ import annotations

import json
import sys

import click

from shardmath.cli.names import names_of
from shardmath.cli.titled import Exampled
from shardmath.reports.answers import VERSIONS, schema_name


@click.command(cls=Exampled, short_help="Print the JSON Schema of an answer.", examples=("", "explain"))
@click.argument("document", required=False, shell_complete=names_of(lambda: VERSIONS))
@click.option("--markdown", is_flag=True, help="Print the tables of docs/json.md.")
def schema(document: str | None, markdown: bool) -> None:
    """Print the JSON Schema of DOCUMENT, called like its command; list the documents if there is none."""
    if markdown:
        from shardmath.schemas import markdown as page

        sys.stdout.write(page())
    elif document is not None:
        from shardmath.schemas import schema as made

        click.echo(json.dumps(made(document), indent=2))
    else:
        for name in VERSIONS:
            click.echo(f"{name:<10} {schema_name(name)}")

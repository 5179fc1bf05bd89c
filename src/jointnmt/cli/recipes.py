"""`jointnmt recipes`: the recipes that come with the package."""

from typing import Annotated

import typer

NameArgument = Annotated[str | None, typer.Argument(metavar="NAME", help="Print this recipe's file.")]
WholeOption = Annotated[bool, typer.Option("--whole", help="With NAME: print it together with what it extends.")]


def recipes(name: NameArgument = None, whole: WholeOption = False) -> None:
    """List the recipes of the package, or print one of them.

    `jointnmt train package:NAME --out RUN` trains one as it is; `extends: package:NAME` in a recipe of yours builds on
    it.
    """
    import yaml

    from jointnmt.cli.console import stdout
    from jointnmt.errors import ConfigurationError
    from jointnmt.recipe import describe, locate, names, read_recipe
    from jointnmt.shipped import OF_PACKAGE

    if name is None:
        if whole:
            raise ConfigurationError("--whole prints a recipe: give its name.")
        from rich.table import Column, Table

        table = Table(Column("name", no_wrap=True), "what it is", box=None, pad_edge=False, header_style="bold")
        for each in names():
            table.add_row(each, describe(each))
        stdout().print(table)
        return
    path = locate(f"{OF_PACKAGE}{name.removeprefix(OF_PACKAGE)}")
    text = path.read_text(encoding="utf-8")
    if whole:
        text = yaml.safe_dump(read_recipe(path), sort_keys=False, allow_unicode=True, width=100)
    typer.echo(text, nl=False)

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

    from jointnmt.errors import ConfigurationError
    from jointnmt.recipe import locate, read_recipe
    from jointnmt.shipped import OF_PACKAGE

    if name is None:
        if whole:
            raise ConfigurationError("--whole prints a recipe: give its name.")
        _print_list()
        return
    path = locate(f"{OF_PACKAGE}{name.removeprefix(OF_PACKAGE)}")
    text = path.read_text(encoding="utf-8")
    if whole:
        text = yaml.safe_dump(read_recipe(path), sort_keys=False, allow_unicode=True, width=100)
    typer.echo(text, nl=False)


def _print_list() -> None:
    """Print the names of all recipes and what they are, those of a corpus together."""
    from rich.table import Column, Table

    from jointnmt.cli.console import stdout
    from jointnmt.recipe import describe, names

    groups: dict[str, dict[str, str]] = {"To start from.": {}}
    for name in names():
        corpus, own = describe(name)
        groups.setdefault(corpus or next(iter(groups)), {})[name] = own
    for heading, descriptions in groups.items():
        table = Table(Column(no_wrap=True), Column(), box=None, pad_edge=False, show_header=False)
        for name, own in descriptions.items():
            table.add_row(f"  {name}", own)
        stdout().print(heading.removesuffix("."), style="bold")
        stdout().print(table, "")

"""One command: its help in one style, and no option whose value is silently replaced by a second one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import ArgumentInfo, OptionInfo

VALUES = {Path: "FILE", int: "NUMBER", float: "NUMBER", str: "TEXT"}
"""What the help writes for a value of a type, unless the option says something better."""


class Command(TyperCommand):
    """A command of `jointnmt`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] RUN [TEXT]...`: arguments without braces."""
        return [self.options_metavar or "", *map(_usage, self._arguments())]

    def get_help_option(self, ctx: Any) -> Any:
        """`--help`, a flag like the others."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.metavar = ""
        return option

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse a second value of an option that takes one.

        Raises:
            typer.BadParameter: naming the option.
        """
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for param in self.params:
            takes_one = param not in self._arguments() and not (param.multiple or param.is_flag or param.count)
            if takes_one and sum(each is param for each in order) > 1:
                raise typer.BadParameter("is given twice, and takes one value.", ctx=ctx, param=param)
        return super().parse_args(ctx, args)

    def _arguments(self) -> list[Any]:
        return [param for param in self.params if param.param_type_name == "argument"]


def command_of(name: str, function: Callable[..., None]) -> Any:
    """The command `name` that calls a function of the command line."""
    function.__annotations__ = get_type_hints(function, include_extras=True)  # else typer would evaluate them again
    for info, kind in _declared(function):
        if info.metavar is None:
            info.metavar = _value(kind)
    single = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    single.command(name, cls=Command)(function)
    command = typer.main.get_command(single)
    for argument in command._arguments():
        argument.display_type_rich = lambda ctx: ""  # its name says what it is; there is no setting for this
    return command


def _declared(function: Callable[..., None]) -> Iterator[tuple[ArgumentInfo | OptionInfo, Any]]:
    """The declarations of a function's arguments and options, each with its type."""
    for hint in function.__annotations__.values():
        for info in getattr(hint, "__metadata__", ()):
            if isinstance(info, ArgumentInfo | OptionInfo):
                yield info, get_args(hint)[0]


def _value(kind: Any) -> str | None:
    """What the help writes for a value: nothing for a flag, the choices if there are some."""
    if kind is bool:
        return ""
    kinds = [kind]
    for each in kinds:
        if get_origin(each) is Literal:
            return "|".join(get_args(each))
        kinds += get_args(each)
    return next((VALUES[each] for each in kinds if isinstance(each, type) and each in VALUES), None)


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return (name if argument.required else f"[{name}]") + ("..." if argument.nargs != 1 else "")

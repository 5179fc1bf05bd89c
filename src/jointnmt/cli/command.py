"""One command: its help in one style, and an error for an empty name or a second file where one is taken."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import ArgumentInfo, OptionInfo

VALUES = {Path: "FILE", int: "NUMBER", float: "NUMBER", str: "TEXT"}
"""Placeholder in the help for a value of each type, unless the option has its own."""


class HelpIsFlag:
    """Shows `--help` as a flag like the others: a base of the classes of commands, before typer's."""

    def get_help_option(self, ctx: Any) -> Any:
        """`--help`."""
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.metavar = ""
        return option


class Command(HelpIsFlag, TyperCommand):
    """A command of `jointnmt`."""

    files: frozenset[str] = frozenset()
    """The parameters that name a file or a folder."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] RUN [TEXT]...`: arguments without braces."""
        return [self.options_metavar or "", *map(_usage, self._arguments())]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse a file without a name, and a second one where one is taken.

        An empty name, as of a shell's variable that is not set, would be the current folder. Of other repeated values
        the last one counts, as is usual.

        Raises:
            typer.BadParameter: naming the option.
        """
        given, _, order = self.make_parser(ctx).parse_args(args=list(args))
        params: list[Any] = self.params
        for param in params:
            if param.name not in self.files:
                continue
            value = given.get(param.name)
            if value == "" or (isinstance(value, list | tuple) and "" in value):
                raise typer.BadParameter("is empty, and should name a file or a folder.", ctx=ctx, param=param)
            takes_one = param not in self._arguments() and not param.multiple
            if takes_one and sum(each is param for each in order) > 1:
                raise typer.BadParameter("is given twice, and takes one file.", ctx=ctx, param=param)
        return super().parse_args(ctx, args)

    def _arguments(self) -> list[Any]:
        return [param for param in self.params if param.param_type_name == "argument"]


def command_of(name: str, function: Callable[..., None]) -> Any:
    """The command `name`, which calls this function."""
    function = _without_groups(function)
    hints = get_type_hints(function, include_extras=True)
    for each in (function, inspect.unwrap(function)):  # else typer evaluates the hints again, into other options
        each.__annotations__ = hints
    for hint in hints.values():
        for info in getattr(hint, "__metadata__", ()):
            if isinstance(info, ArgumentInfo | OptionInfo) and info.metavar is None:
                info.metavar = _value(hint)
    single = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    single.command(name, cls=Command)(function)
    command: Any = typer.main.get_command(single)
    command.files = frozenset(each for each, hint in hints.items() if Path in _parts(hint))
    for argument in command._arguments():
        argument.display_type_rich = lambda ctx: ""  # the name suffices; typer has no setting for this
    return command


def _without_groups(function: Callable[..., None]) -> Callable[..., None]:
    """The function with an option for each field of a parameter that is a dataclass, in place of that parameter."""
    hints = get_type_hints(function, include_extras=True)
    options = dict(hints)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    if not groups:
        return function
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        options |= get_type_hints(options.pop(name), include_extras=True)
        parameters += [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default)
            for each in fields(groups[name])
        ]

    def called(**given: Any) -> None:
        made = {
            name: kind(**{each.name: given.pop(each.name) for each in fields(kind)}) for name, kind in groups.items()
        }
        function(**given, **made)

    called.__doc__ = function.__doc__
    called.__annotations__ = options
    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(annotation=options[each.name]) for each in parameters]
    )
    return called


def _parts(hint: Any) -> list[Any]:
    """The type and all types that it is composed of."""
    parts = [hint]
    for part in parts:
        if get_origin(part) is not Literal:
            parts += get_args(part)
    return parts


def _value(hint: Any) -> str | None:
    """Placeholder in the help for a value: empty for a flag, the choices if there are some."""
    parts = _parts(hint)
    if bool in parts:
        return ""
    choices = next((get_args(part) for part in parts if get_origin(part) is Literal), None)
    return (
        "|".join(choices)
        if choices
        else next((VALUES[part] for part in parts if isinstance(part, type) and part in VALUES), None)
    )


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return (name if argument.required else f"[{name}]") + ("..." if argument.nargs != 1 else "")

"""`jointnmt serve`: trained models over HTTP."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from jointnmt.cli.options import NAMED_ENSEMBLES, DeviceOption, PrecisionChoiceOption
from jointnmt.config import override, read_yaml
from jointnmt.errors import ConfigurationError
from jointnmt.extras import extra


def serve(
    runs: Annotated[list[str] | None, NAMED_ENSEMBLES] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1, this machine")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0: any free one.", show_default="5000")] = None,
    keys: Annotated[Path | None, typer.Option(help="File of API keys; without it, no key is needed.")] = None,
    add_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Add a new API key to --keys, print it, and exit.")
    ] = None,
    per_minute: Annotated[
        int | None, typer.Option(min=1, help="With --add-key: most requests with the key per minute.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="File of the server's settings and limits (YAML).")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as in limits.lines=500. Repeatable."),
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionChoiceOption = "auto",
) -> None:
    """Serve models over HTTP: LibreTranslate's API, and a typed one under /v1.

    SIGTERM ends the server once the running requests have finished; SIGHUP reloads models that have changed on disk.
    """
    if add_key is not None:
        _add_key(keys, add_key, per_minute)
        return
    if per_minute is not None:
        raise ConfigurationError("--per-minute is for a new key: add --add-key NAME.")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until models can be reloaded: the default action ends the process
    with extra("serve"):
        import language_data  # noqa: F401 (needed by some requests only)
        import py3langid  # noqa: F401
        import python_multipart  # noqa: F401

        from jointnmt.serving import server
        from jointnmt.serving.settings import ServerConfig
    values: dict[str, Any] = override(read_yaml(config) if config else {}, settings or [])
    given = {"host": host, "port": port, "keys": keys}
    values |= {name: value for name, value in given.items() if value is not None}
    server.serve(runs or [], ServerConfig.parse(values, str(config or "options")), device, precision)


def _add_key(keys: Path | None, name: str, per_minute: int | None) -> None:
    from jointnmt.serving.keys import add_key

    if keys is None:
        raise ConfigurationError("--add-key needs the file of keys: add --keys FILE.")
    typer.echo(add_key(keys, name, per_minute))

"""Options of the commands that must start fast, parsed without typer where possible.

Importing typer and its dependencies takes longer than starting a node. A valid command line is
therefore parsed here. For help, or for anything that this parser does not accept, typer parses
the same declarations, so all help texts and errors are typer's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

_BOOTSTRAP, _PROFILE, _CONTEXT = "bootstrap_server", "profile", "context"
_CONFIG, _DIRECTORY = "command_config", "directory"


class Option(NamedTuple):
    """`read` converts a word to a value, or raises ValueError. With `many`, the option may be
    repeated, and its values are a list."""

    name: str
    read: Callable[[str], Any]
    help: str
    many: bool = False
    metavar: str | None = None
    min: int | None = None
    max: int | None = None
    # An option without a value, which sets True.
    is_flag: bool = False


class Argument(NamedTuple):
    """A positional argument."""

    read: Callable[[str], Any]
    help: str


def plain_arguments(command: Callable[..., None], words: Sequence[str]) -> dict[str, Any] | None:
    """Parse the words into a command's keyword arguments, or return None to leave it to typer."""
    declared = {
        name: get_args(parameter.annotation)[1:]
        for name, parameter in signature(command, eval_str=True).parameters.items()
    }
    options = {
        metadata[0].name: (name, metadata[0])
        for name, metadata in declared.items()
        if metadata and isinstance(metadata[0], Option)
    }
    positional = [
        (name, metadata[0])
        for name, metadata in declared.items()
        if metadata and isinstance(metadata[0], Argument)
    ]
    if len(options) + len(positional) < len(declared):
        return None
    arguments: dict[str, Any] = {}
    rest = iter(words)
    try:
        for word in rest:
            if word.startswith("-"):
                name, option = options[word]
                if option.is_flag:
                    arguments[name] = True
                    continue
                value = _read_bounded(option, next(rest))
                arguments[name] = [*arguments.get(name, ()), value] if option.many else value
            else:
                name, argument = positional.pop(0)
                arguments[name] = argument.read(word)
    except (KeyError, IndexError, StopIteration, ValueError):
        return None
    return None if positional else arguments


def _read_bounded(option: Option, word: str) -> Any:
    value = option.read(word)
    if (option.min is not None and value < option.min) or (
        option.max is not None and value > option.max
    ):
        raise ValueError(word)
    return value


def for_typer(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with its options declared as typer's. A command with --bootstrap-server
    also gets --profile, --command-config and --dir."""
    hints = dict(_typer_hints(command))
    has_directory = _DIRECTORY in hints
    parameters = [
        parameter.replace(annotation=hints[name])
        for name, parameter in signature(command).parameters.items()
    ]
    if _BOOTSTRAP in hints:
        added = _profile_hints()
        hints = {**added, **hints}
        parameters += [
            Parameter(_PROFILE, Parameter.KEYWORD_ONLY, default=None, annotation=added[_PROFILE]),
            Parameter(_CONFIG, Parameter.KEYWORD_ONLY, default=None, annotation=added[_CONFIG]),
            Parameter(_CONTEXT, Parameter.KEYWORD_ONLY, annotation=added[_CONTEXT]),
        ]
        if not has_directory:
            parameters.append(
                Parameter(
                    _DIRECTORY, Parameter.KEYWORD_ONLY, default=None, annotation=added[_DIRECTORY]
                )
            )

    def declared(**arguments: Any) -> None:
        if _BOOTSTRAP in arguments:
            context, profile = arguments.pop(_CONTEXT), arguments.pop(_PROFILE)
            directory = arguments[_DIRECTORY] if has_directory else arguments.pop(_DIRECTORY)
            config = arguments.pop(_CONFIG)
            _choose_cluster(arguments, context, profile, config, directory)
        command(**arguments)

    declared.__doc__, declared.__annotations__ = command.__doc__, hints
    declared.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]  # missing in typeshed
    return declared


def _profile_hints() -> dict[str, Any]:
    import typer

    from penstock.cli.completion import complete_profiles

    option = typer.Option(
        "--profile",
        metavar="NAME",
        help="A cluster of penstock profile. --bootstrap-server takes precedence.",
        autocompletion=complete_profiles,
    )
    config = typer.Option(
        "--command-config",
        metavar="FILE",
        help="A client's properties file with security.protocol, sasl.* and ssl.*, and perhaps "
        "bootstrap.servers.",
    )
    directory = typer.Option(
        "--dir",
        metavar="DIR",
        help="The directory of penstock up: its brokers and, of a secure cluster, its "
        "client.properties. Default: penstock-data, if it has a secure cluster.",
    )
    return {
        _PROFILE: Annotated[str | None, option],
        _CONFIG: Annotated[Path | None, config],
        _DIRECTORY: Annotated[Path | None, directory],
        _CONTEXT: typer.Context,
    }


def _choose_cluster(
    arguments: dict[str, Any],
    context: Any,
    profile: str | None,
    config: Path | None,
    directory: Path | None,
) -> None:
    """Replace the default of --bootstrap-server by the servers of a profile, of --command-config or
    of --dir, and add the settings of the client."""
    from penstock.cli.cluster.directory import DirectoryError, local_servers
    from penstock.cli.profiles import ProfileError, bootstrap_of
    from penstock.cli.session import CommandFailed, Servers, fail, read_client_settings

    is_default = context.get_parameter_source(_BOOTSTRAP).name == "DEFAULT"
    # The directory of penstock up names its brokers.
    by_profile = is_default and (profile is not None or directory is None)
    try:
        if config is not None:
            settings = read_client_settings(config)
            servers = settings.get("bootstrap.servers") if is_default and not profile else None
            if by_profile and servers is None:
                servers = bootstrap_of(profile)
            if is_default and servers is None and directory is not None:
                servers = local_servers(directory, None)
            servers = servers or arguments[_BOOTSTRAP]
            arguments[_BOOTSTRAP] = None if servers is None else Servers(servers, settings)
        elif by_profile and (servers := bootstrap_of(profile)):
            arguments[_BOOTSTRAP] = servers
        elif profile is None and _DIRECTORY not in arguments:
            given = None if is_default else arguments[_BOOTSTRAP]
            arguments[_BOOTSTRAP] = local_servers(directory, given) or arguments[_BOOTSTRAP]
    except (ProfileError, CommandFailed, DirectoryError) as error:
        fail(context.command_path.partition(" ")[2], str(error))


def _typer_hints(command: Callable[..., None]) -> Iterator[tuple[str, Any]]:
    import typer

    for name, hint in get_type_hints(command, include_extras=True).items():
        kind, *declared = get_args(hint) or (hint,)
        match declared:
            case [Option() as option]:
                typer_option = typer.Option(
                    option.name,
                    help=option.help,
                    metavar=option.metavar,
                    min=option.min,
                    max=option.max,
                )
                yield name, Annotated[kind, typer_option]
            case [Argument() as argument]:
                yield name, Annotated[kind, typer.Argument(help=argument.help)]
            case _:
                yield name, hint

"""List, set and remove the SCRAM credentials of users (penstock users).

A password comes from a prompt, a file or a variable of the environment, and never from an argument:
other users of a machine see the arguments of its processes. It is not printed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.confirmation import Yes, confirm
from penstock.cli.output import AsJson, print_json, print_table
from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, fail, with_client
from penstock.limits import MAX_PASSWORD_BYTES
from penstock.security.sasl.mechanism import SCRAM_SHA_512
from penstock.security.sasl.scram_credential import (
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramMechanism,
)

if TYPE_CHECKING:
    from penstock.client.admin.users import ScramUser
    from penstock.client.client import Client

_HEADING = ("USER", "MECHANISM", "ITERATIONS")

User = Annotated[str, typer.Argument(metavar="USER", help="The user's name, such as alice.")]


def list_command(as_json: AsJson = False, bootstrap_server: BootstrapServer = LOCAL) -> None:
    """List the users with SCRAM credentials."""

    async def work(client: Client) -> list[ScramUser]:
        return await client.admin.describe_users()

    _print(with_client("users list", bootstrap_server, work), as_json=as_json)


def set_command(
    user: User,
    mechanism: Annotated[
        str, typer.Option("--mechanism", metavar="NAME", help="SCRAM-SHA-512 or SCRAM-SHA-256.")
    ] = SCRAM_SHA_512,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="A file whose first line is the password; - is the standard input.",
        ),
    ] = None,
    password_env: Annotated[
        str | None,
        typer.Option(
            "--password-env", metavar="NAME", help="A variable of the environment that has it."
        ),
    ] = None,
    iterations: Annotated[
        int,
        typer.Option(min=MIN_ITERATIONS, max=MAX_ITERATIONS, help="Iterations of the hash."),
    ] = DEFAULT_ITERATIONS,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Create a user or set its password. Without an option, a prompt asks for the password.

    The user may do nothing before penstock acls create allows it something.
    """
    try:
        parsed = _mechanism(mechanism)
        password = _password(password_file, password_env)
    except CommandFailed as error:
        fail("users set", str(error))

    async def work(client: Client) -> list[ScramUser]:
        await client.admin.set_user(user, parsed, password, iterations)
        return await client.admin.describe_users([user])

    _print(with_client("users set", bootstrap_server, work), as_json=as_json)


def remove_command(
    user: User,
    mechanism: Annotated[
        str | None,
        typer.Option("--mechanism", metavar="NAME", help="Only the credential of this mechanism."),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Remove the credentials of a user. Connections that are open stay open, and the user's access
    control entries stay."""
    try:
        wanted = None if mechanism is None else _mechanism(mechanism)
    except CommandFailed as error:
        fail("users remove", str(error))

    async def find(client: Client) -> list[ScramUser]:
        found = await client.admin.describe_users([user])
        return [each for each in found if wanted is None or each.mechanism is wanted]

    found = with_client("users remove", bootstrap_server, find)
    if not found:
        fail("users remove", f"{user!r} has no such credential: see penstock users list")
    confirm("users remove", f"Remove {len(found)} credentials of {user!r}?", yes=yes)

    async def work(client: Client) -> None:
        await client.admin.remove_user(user, [each.mechanism for each in found])

    with_client("users remove", bootstrap_server, work)
    if as_json:
        _print(found, as_json=True)
    else:
        print(f"Removed {len(found)} credentials.")


def _mechanism(name: str) -> ScramMechanism:
    mechanism = SCRAM_MECHANISMS.get(name.upper())
    if mechanism is None:
        raise CommandFailed(f"{name} is no mechanism: give {' or '.join(SCRAM_MECHANISMS)}")
    return mechanism


def _password(file: Path | None, variable: str | None) -> str:
    if file is not None and variable is not None:
        raise CommandFailed("give one of --password-file and --password-env")
    if variable is not None:
        if variable not in os.environ:
            raise CommandFailed(f"the environment has no variable {variable}")
        password = os.environ[variable]
    elif file is not None:
        password = _first_line(file)
    else:
        password = _asked()
    if not password:
        raise CommandFailed("the password is empty")
    return password


def _first_line(file: Path) -> str:
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.readline(MAX_PASSWORD_BYTES + 2)
        else:
            with file.open("rb") as opened:
                data = opened.readline(MAX_PASSWORD_BYTES + 2)
        line = data.rstrip(b"\r\n")
        if len(line) > MAX_PASSWORD_BYTES:
            raise CommandFailed(f"{file}: the password has more than {MAX_PASSWORD_BYTES} bytes")
        return line.decode()
    except UnicodeDecodeError:
        raise CommandFailed(f"{file}: the password is not UTF-8") from None
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror or error}") from error


def _asked() -> str:
    """Ask twice, without an echo."""
    if not sys.stdin.isatty():
        raise CommandFailed(
            "nobody can be asked for the password, as the input is no terminal: give "
            "--password-file or --password-env"
        )
    password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password


def _print(users: list[ScramUser], *, as_json: bool) -> None:
    rows = [(each.name, each.mechanism.sasl_name, each.iterations) for each in users]
    if as_json:
        keys = [heading.lower() for heading in _HEADING]
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    elif rows:
        print_table(_HEADING, [[str(cell) for cell in row] for row in rows])
    else:
        print("There are no users with SCRAM credentials.")

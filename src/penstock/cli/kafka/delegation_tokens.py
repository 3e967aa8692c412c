"""kafka-delegation-tokens.sh: create, renew, expire and describe delegation tokens."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.session import with_admin
from penstock.errors import KafkaError
from penstock.security.principals import KafkaPrincipal, parse_principal

if TYPE_CHECKING:
    from penstock.client.admin.delegation_tokens import TokenWithSecret
    from penstock.client.client import Client

T = TypeVar("T")

_PURPOSE = "This tool helps to create, renew, expire, or describe delegation tokens."
_COLUMNS = "%-15s %-30s %-15s %-15s %-25s %-15s %-15s %-15s"
_TITLES = (
    "TOKENID",
    "HMAC",
    "OWNER",
    "REQUESTER",
    "RENEWERS",
    "ISSUEDATE",
    "EXPIRYDATE",
    "MAXDATE",
)
_ACTIONS = ("create", "renew", "expire", "describe")

_OPTIONS = {
    "bootstrap-server": Option("REQUIRED: the brokers to connect to.", "String"),
    "command-config": Option(
        "REQUIRED: a properties file for the client, which must authenticate.", "String"
    ),
    "create": Option("Create a token."),
    "renew": Option("Renew a token."),
    "expire": Option("Expire a token."),
    "describe": Option("Describe the tokens of principals, or all that the client may see."),
    "owner-principal": Option("An owner, as type:name.", "String", optional=True),
    "renewer-principal": Option(
        "A principal that may renew the token, as type:name.", "String", optional=True
    ),
    "max-life-time-period": Option(
        "How long the token can be renewed, in milliseconds; -1 is "
        "delegation.token.max.lifetime.ms of the cluster.",
        "Long",
        optional=True,
    ),
    "renew-time-period": Option(
        "How long the token is valid from now on, in milliseconds; -1 is "
        "delegation.token.expiry.time.ms of the cluster.",
        "Long",
        optional=True,
    ),
    "expiry-time-period": Option(
        "When the token expires, in milliseconds from now on; -1 removes it at once.",
        "Long",
        optional=True,
    ),
    "hmac": Option("The HMAC of the token.", "String", optional=True),
}


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    try:
        options = Options(_OPTIONS, _joined(words), _PURPOSE)
        _check(options)
        if options.has("create"):
            _create(options)
        elif options.has("renew"):
            _renew(options)
        elif options.has("expire"):
            _expire(options)
        else:
            _describe(options)
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    except KafkaError as error:
        print(java_text(error), file=sys.stderr)
        return 1
    return 0


def _joined(words: Sequence[str]) -> list[str]:
    """Join periods with their options: -1 is an argument, and no option."""
    joined: list[str] = []
    for word in words:
        if word == "-1" and joined and joined[-1].endswith("-period"):
            joined[-1] += "=-1"
        else:
            joined.append(word)
    return joined


def _check(options: Options) -> None:
    if sum(options.has(action) for action in _ACTIONS) != 1:
        options.usage(
            "Command must include exactly one action: --create, --renew, --expire or --describe"
        )
    options.require("bootstrap-server", "command-config")
    if options.has("create"):
        options.require("max-life-time-period")
    if options.has("renew"):
        options.require("hmac", "renew-time-period")
    if options.has("expire"):
        options.require("hmac", "expiry-time-period")
    options.exclude("create", "hmac", "renew-time-period", "expiry-time-period")
    options.exclude(
        "renew",
        "renewer-principal",
        "max-life-time-period",
        "expiry-time-period",
        "owner-principal",
    )
    options.exclude(
        "expire", "renew", "max-life-time-period", "renew-time-period", "owner-principal"
    )
    options.exclude(
        "describe", "renew-time-period", "max-life-time-period", "hmac", "expiry-time-period"
    )


def _with_client(options: Options, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    return with_admin(
        options.value("bootstrap-server") or "", options.value("command-config"), work
    )


def _create(options: Options) -> None:
    renewers = _principals(options, "renewer-principal")
    lifetime_ms = _period(options, "max-life-time-period")
    owners = _principals(options, "owner-principal")
    print(
        f"Calling create token operation with renewers :{_list(renewers)} , max-life-time-period "
        f":{lifetime_ms}"
    )
    created = _with_client(
        options,
        lambda client: client.admin.create_delegation_token(
            renewers, max_lifetime_ms=lifetime_ms, owner=owners[0] if owners else None
        ),
    )
    print(f"Created delegation token with tokenId : {created.token.token_id}")
    _print([created])


def _renew(options: Options) -> None:
    text, secret = _hmac(options)
    period_ms = _period(options, "renew-time-period")
    print(f"Calling renew token operation with hmac :{text} , renew-time-period :{period_ms}")
    expires_ms = _with_client(
        options, lambda client: client.admin.renew_delegation_token(secret, period_ms)
    )
    print(f"Completed renew operation. New expiry date : {_date(expires_ms)}", end="")


def _expire(options: Options) -> None:
    text, secret = _hmac(options)
    period_ms = _period(options, "expiry-time-period")
    print(f"Calling expire token operation with hmac :{text} , expire-time-period :{period_ms}")
    expires_ms = _with_client(
        options, lambda client: client.admin.expire_delegation_token(secret, period_ms)
    )
    print(f"Completed expire operation. New expiry date : {_date(expires_ms)}", end="")


def _describe(options: Options) -> None:
    owners = _principals(options, "owner-principal")
    if owners:
        print(f"Calling describe token operation for owners: {_list(owners)}")
    else:
        print("Calling describe token operation for current user.")
    # As Kafka's command: no owners means all tokens that the client may see.
    tokens = _with_client(
        options, lambda client: client.admin.describe_delegation_tokens(owners or None)
    )
    print(f"Total number of tokens : {len(tokens)}", end="")
    _print(tokens)


def _print(tokens: Iterable[TokenWithSecret]) -> None:
    """The HMAC is shown, as by Kafka's command: it is what the user asks for."""
    print(f"\n{_COLUMNS % _TITLES}")
    for each in tokens:
        token = each.token
        row = (
            token.token_id,
            each.password,
            token.owner,
            token.requester,
            _list(token.renewers),
            _date(token.issued_ms),
            _date(token.expires_ms),
            _date(token.max_ms),
        )
        print(f"\n{_COLUMNS % row}")


def _principals(options: Options, name: str) -> list[KafkaPrincipal]:
    try:
        return [parse_principal(text.strip()) for text in options.values(name)]
    except ValueError as error:
        raise Refused(str(error)) from None


def _period(options: Options, name: str) -> int:
    period_ms = options.number(name)
    if period_ms is None:
        raise Refused(f"Option {name} requires an argument")
    return period_ms


def _hmac(options: Options) -> tuple[str, bytes]:
    text = options.value("hmac")
    if text is None:
        raise Refused("Option hmac requires an argument")
    try:
        return text, base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Refused("The HMAC is not in base64") from None


def _list(principals: Iterable[KafkaPrincipal]) -> str:
    return f"[{', '.join(map(str, principals))}]"


def _date(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000).astimezone().strftime("%Y-%m-%dT%H:%M")

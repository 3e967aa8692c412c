"""The lines of `penstock.audit`: who changes what, and with which outcome.

The server logs the requests that are changes. A handler logs what it changes by the way, such as a
topic that Metadata creates.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice

from penstock.handlers.context import RequestContext
from penstock.limits import LOGGED_NAME_CHARACTERS, LOGGED_NAMES
from penstock.protocol.apis import find_api
from penstock.security.principals import ANONYMOUS

audit = logging.getLogger("penstock.audit")


def log_change(context: RequestContext, about: Iterable[str], outcome: str) -> None:
    """Log a change. `about` has the quoted names of what is changed."""
    if audit.isEnabledFor(logging.INFO):
        names = list(islice(about, LOGGED_NAMES + 1))
        text = ", ".join(names[:LOGGED_NAMES]) + ("…" if len(names) > LOGGED_NAMES else "")
        audit.info("%s: %s: %s", described(context), text or "-", outcome)


def described(context: RequestContext) -> str:
    """Return the API, the client with its principal, if it has one, and the listener of a
    request."""
    client_id = "None" if context.client_id is None else quoted(context.client_id)
    principal = context.principal
    who = "" if principal == ANONYMOUS else f" ({quoted(str(principal))})"
    return (
        f"{find_api(context.api_key).name} v{context.version} of client {client_id}{who} at "
        f"{context.peer} on {context.listener_name}"
    )


def quoted(text: str) -> str:
    """Return a text that a client chose, cut, and with escapes for what is not printable."""
    if len(text) > LOGGED_NAME_CHARACTERS:
        return repr(text[:LOGGED_NAME_CHARACTERS]) + "…"
    return repr(text)

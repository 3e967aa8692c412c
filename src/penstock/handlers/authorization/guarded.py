"""Wraps the handlers of a node with an authorizer in their checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.handlers.authorization.calls import Call
from penstock.handlers.authorization.guard import Guard
from penstock.handlers.authorization.table import Entry, entry_of
from penstock.handlers.context import RequestContext
from penstock.handlers.turns import run
from penstock.security.authorizer import Authorizer

Handler = Callable[[Any, Any, RequestContext], object]


def guarded(
    load: Callable[[int], Handler], authorizer: Authorizer, checks: Mapping[int, Entry]
) -> Callable[[int], Handler]:
    """Return a function that loads the handler of an API together with its check."""

    def load_guarded(api_key: int) -> Handler:
        check = entry_of(api_key, checks).load()
        handler = load(api_key)

        def handle(parts: Any, request: Any, context: RequestContext) -> object:
            guard = Guard(authorizer, context)
            context = context._replace(guard=guard)
            call = Call(
                api_key, parts.metadata.image, lambda part: handler(parts, part, context), parts
            )
            response: object = run(check(guard, request, call))
            return response

        return handle

    return load_guarded

"""AlterUserScramCredentials: sets and removes SCRAM credentials of users (KIP-554).

Behaviour
  The active controller executes it. Each user succeeds or fails on its own. The client has salted
  the password; neither it nor its keys are in any log.

Version notes
  One version.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController


class Parts(Protocol):
    controllers: Controllers


def handle(
    parts: Parts, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> Awaitable[AlterUserScramCredentialsResponse]:
    return ask_controller(parts.controllers, request, context, decide, refused)


def decide(
    controller: NodeController, request: AlterUserScramCredentialsRequest
) -> Awaitable[AlterUserScramCredentialsResponse]:
    # Imported on first use so that a node starts quickly.
    from penstock.controller.scram import alter_user_scram_credentials

    return controller.decide(alter_user_scram_credentials, request)


def refused(
    request: AlterUserScramCredentialsRequest, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    """Refuse each user: the response has no error of its own."""
    names = [deletion.name for deletion in request.deletions]
    names += [upsertion.name for upsertion in request.upsertions]
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResponse.Result(
                user=name, error_code=error.code, error_message=error.message
            )
            for name in dict.fromkeys(names)
        )
    )

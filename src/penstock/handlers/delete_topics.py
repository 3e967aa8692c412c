"""DeleteTopics: topics go, by name or by id.

Behaviour
  The controller decides for each topic by itself. Once answered, the topics are gone from the metadata; their files follow.

Version notes
  Names up to v5, names or ids from v6 on. v5 brings error messages.

Not implemented
  The timeout, as in CreateTopics. delete.topic.enable: deletion is always allowed, which is Kafka's default.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from penstock.controller.delete_topics import delete_topics
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from penstock.node.node import Node


def handle(node: Node, request: DeleteTopicsRequest, _context: RequestContext) -> Awaitable[DeleteTopicsResponse]:
    return node.decide(lambda image: delete_topics(image, request, node.context))

"""CreateTopics: new topics.

Behaviour
  The controller decides for each topic by itself; the answer leaves when the topics can be used. -1 takes num.partitions and
  default.replication.factor. validate_only decides and creates nothing.

Version notes
  v5 brings the number of partitions, the replication factor and the settings of what was created, v7 its id.

Not implemented
  The timeout: a decision of a quorum of one is not waited for longer than its write takes.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from penstock.controller.create_topics import create_topics
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from penstock.node.node import Node


def handle(node: Node, request: CreateTopicsRequest, _context: RequestContext) -> Awaitable[CreateTopicsResponse]:
    return node.decide(lambda image: create_topics(image, request, node.context))

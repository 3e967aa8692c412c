"""CreatePartitions: more partitions for topics that there are.

Behaviour
  The controller decides for each topic by itself; the answer leaves when the partitions can be used. validate_only changes nothing.

Version notes
  v2 is flexible; nothing else changes.

Not implemented
  The timeout, as in CreateTopics.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from penstock.controller.create_partitions import create_partitions
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

if TYPE_CHECKING:
    from penstock.node.node import Node


def handle(node: Node, request: CreatePartitionsRequest, _context: RequestContext) -> Awaitable[CreatePartitionsResponse]:
    return node.decide(lambda image: create_partitions(image, request, node.context))

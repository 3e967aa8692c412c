"""AlterConfigs: replaces all settings of topics and brokers that were set while the cluster ran. Deprecated.

Behaviour
  Each resource succeeds or fails by itself. What a request does not name goes back to its default. A broker without a name stands for all.

Version notes
  v2 is flexible; nothing else changes.

Not implemented
  Resources other than topics and brokers: INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from penstock.controller.configs import alter_configs
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from penstock.node.node import Node


def handle(node: Node, request: AlterConfigsRequest, _context: RequestContext) -> Awaitable[AlterConfigsResponse]:
    return node.decide(lambda image: alter_configs(image, request, node.context))

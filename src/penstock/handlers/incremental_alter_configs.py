"""IncrementalAlterConfigs: sets, deletes, appends to or subtracts from single settings of topics and brokers.

Behaviour
  Each resource succeeds or fails by itself; what is not named stays. A broker without a name stands for all.

Version notes
  v1 is flexible; nothing else changes.

Not implemented
  Resources other than topics and brokers: INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from penstock.controller.configs import incremental_alter_configs
from penstock.handlers.context import RequestContext
from penstock.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

if TYPE_CHECKING:
    from penstock.node.node import Node


def handle(node: Node, request: IncrementalAlterConfigsRequest, _context: RequestContext) -> Awaitable[IncrementalAlterConfigsResponse]:
    return node.decide(lambda image: incremental_alter_configs(image, request, node.context))

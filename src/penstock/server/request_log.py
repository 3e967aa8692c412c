"""Two loggers of their own: `penstock.request` for requests, `penstock.audit` for changes.

At DEBUG, `penstock.request` has a line for every request, at TRACE also its content, cut off. At
INFO, `penstock.audit` has a line for every request that changes topics, configs, groups or the
cluster: who sent it, what it names, and the errors of the response. Values of configs are not
logged, since some are secret. kafka-configs.sh changes the levels of a running node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from penstock.errors import ErrorCode
from penstock.handlers.awaitables import then
from penstock.handlers.context import RequestContext
from penstock.ids import NO_UUID
from penstock.limits import LOGGED_NAMES, LOGGED_REQUEST_CHARACTERS
from penstock.protocol.apis import APIS, find_api
from penstock.protocol.schema import fields_of
from penstock.server.request_measures import errors_of

Handler = Callable[[Any, Any, RequestContext], object]

requests = logging.getLogger("penstock.request")
audit = logging.getLogger("penstock.audit")

_TRACE = 5
_AUDITED_NAMES = {
    "CreateTopics",
    "DeleteTopics",
    "CreatePartitions",
    "DeleteRecords",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "AlterReplicaLogDirs",
    "AlterPartitionReassignments",
    "ElectLeaders",
    "DeleteGroups",
    "OffsetDelete",
    "UpdateFeatures",
    "UnregisterBroker",
    "AddRaftVoter",
    "RemoveRaftVoter",
}
AUDITED = frozenset(api.key for api in APIS if api.name in _AUDITED_NAMES)
# Fields that say what a request is about.
_NAMING = {
    "name",
    "topic_names",
    "topic",
    "topic_id",
    "resource_name",
    "group_id",
    "groups_names",
    "feature",
    "broker_id",
    "voter_id",
    "partitions",
    "partition_index",
}


def log_request(request: object, context: RequestContext, frame_bytes: int) -> None:
    """Log a request that has arrived. Call it if `requests` is enabled for DEBUG."""
    requests.debug(
        "%s, %d bytes, correlation id %d",
        _described(context),
        frame_bytes,
        context.correlation_id,
    )
    if requests.isEnabledFor(_TRACE):
        text = repr(request)[:LOGGED_REQUEST_CHARACTERS]
        requests.log(_TRACE, "correlation id %d: %s", context.correlation_id, text)


def audited(handler: Handler) -> Handler:
    """Return a handler that also logs each request and its outcome to `audit`."""

    def handle(parts: Any, request: Any, context: RequestContext) -> object:
        def log(response: object) -> object:
            if audit.isEnabledFor(logging.INFO):
                names = list(islice(_names(request), LOGGED_NAMES + 1))
                about = ", ".join(names[:LOGGED_NAMES]) + ("…" if len(names) > LOGGED_NAMES else "")
                errors = sorted({ErrorCode(code).name for code in errors_of(response)})
                outcome = ", ".join(errors) or "done"
                audit.info("%s: %s: %s", _described(context), about or "-", outcome)
            return response

        return then(handler(parts, request, context), log)

    return handle


def _described(context: RequestContext) -> str:
    return (
        f"{find_api(context.api_key).name} v{context.version} of client {context.client_id!r} at "
        f"{context.peer} on {context.listener_name}"
    )


def _names(value: Any) -> Iterator[str]:
    for field in fields_of(type(value)):
        found = getattr(value, field.name)
        for element in found if isinstance(found, tuple) else (found,):
            if field.struct is not None:
                if element is not None:
                    yield from _names(element)
            elif field.name in _NAMING and element not in (None, "", NO_UUID):
                yield str(element)

"""Two loggers of their own: `penstock.request` for requests, `penstock.audit` for changes.

At DEBUG, `penstock.request` has a line for every request, at TRACE also the start of its content.
At INFO, `penstock.audit` has a line for every request that changes topics, configs, groups or the
cluster: who sent it, what it names, and the errors of the response. Values of configs are not
logged, since some are secret. kafka-configs.sh changes the levels of a running node.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.audit_log import described, log_change, quoted
from penstock.handlers.context import Exclusive, RequestContext
from penstock.handlers.loggers import TRACE
from penstock.ids import NO_UUID
from penstock.limits import (
    AUDITED_COMMITS_S,
    AUDITED_COMMITTERS,
    LOGGED_NAME_CHARACTERS,
    LOGGED_REQUEST_CHARACTERS,
)
from penstock.node.shards.marker_channel import SENDER
from penstock.protocol.apis import APIS
from penstock.protocol.schema import fields_of
from penstock.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from penstock.server.request_content import content_of
from penstock.server.request_measures import errors_of

Handler = Callable[[Any, Any, RequestContext], object]

requests = logging.getLogger("penstock.request")

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
    "OffsetCommit",
    "OffsetDelete",
    "TxnOffsetCommit",
    "UpdateFeatures",
    "UnregisterBroker",
    "AddRaftVoter",
    "RemoveRaftVoter",
    "AlterUserScramCredentials",
    "WriteTxnMarkers",
    "CreateAcls",
    "DeleteAcls",
    "AlterClientQuotas",
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
}
AUDITED = frozenset(api.key for api in APIS if api.name in _AUDITED_NAMES)
_WRITE_TXN_MARKERS = 27
# The APIs that commit offsets of groups, with the field of the generation.
_GENERATION_FIELDS = {8: "generation_id_or_member_epoch", 28: "generation_id"}
_MARKER_SENDER = re.compile(SENDER.format(r"\d+"), re.ASCII)
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
    "partition_indexes",
    "committed_offset",
    "producer_id",
    "transaction_result",
    "owner_principal_name",
}


def log_request(request: object, context: RequestContext, frame_bytes: int) -> None:
    """Log a request that has arrived. Call it if `requests` is enabled for DEBUG."""
    requests.debug(
        "%s, %d bytes, correlation id %d",
        described(context),
        frame_bytes,
        context.correlation_id,
    )
    if requests.isEnabledFor(TRACE):
        text = content_of(request, LOGGED_REQUEST_CHARACTERS)
        requests.log(TRACE, "correlation id %d: %s", context.correlation_id, text)


def audited(handler: Handler) -> Handler:
    """Return a handler that also logs each change and its outcome to `penstock.audit`. A request
    that fails is logged too: it may have changed something before."""
    commits = RepeatedCommits()

    def handle(parts: Any, request: Any, context: RequestContext) -> object:
        left_out: int | None = 0
        generation = _GENERATION_FIELDS.get(context.api_key)
        if generation is not None:
            is_of_member = _is_of_member(request, generation)
            left_out = None if is_of_member else commits.left_out(request, context)
        elif context.api_key == _WRITE_TXN_MARKERS and _is_of_coordinator(parts, context):
            left_out = None
        if left_out is None:
            return handler(parts, request, context)
        note = f" ({left_out:,} more like this one were left out before it)" if left_out else ""
        try:
            response = handler(parts, request, context)
            if isinstance(response, Exclusive):
                return Exclusive(_log_later(request, context, response, note))
            if inspect.isawaitable(response):
                return _log_later(request, context, response, note)
        except BaseException as error:
            log_change(context, _names(request), _failure(error) + note)
            raise
        log_change(context, _names(request), _outcome(request, response) + note)
        return response

    return handle


class RepeatedCommits:
    """Which commits of clients without a membership are left out of the audit log.

    An admin client that resets the offsets of a group cannot be told from a consumer that is
    assigned its partitions by hand and commits after each poll. So the first commit of a client for
    a group is logged, and the next one AUDITED_COMMITS_S later.
    """

    def __init__(self) -> None:
        # By group, principal, client id and host: when a line was logged, and how many were left
        # out since. Ordered by that time.
        self.seen: dict[tuple[str, ...], tuple[float, int]] = {}

    def left_out(self, request: Any, context: RequestContext) -> int | None:
        """Return how many commits were left out before this one; None if it is left out."""
        host = context.peer.rpartition(":")[0]
        names = request.group_id, str(context.principal), context.client_id or "", host
        key = tuple(name[:LOGGED_NAME_CHARACTERS] for name in names)
        since, count = self.seen.get(key, (None, 0))
        if since is not None and context.received < since + AUDITED_COMMITS_S:
            self.seen[key] = since, count + 1
            return None
        self.seen.pop(key, None)
        if len(self.seen) >= AUDITED_COMMITTERS:
            del self.seen[next(iter(self.seen))]
        self.seen[key] = context.received, 0
        return count


def _is_of_member(request: Any, generation: str) -> bool:
    """Return True if a commit names a member and its generation: the group refuses all others. A
    commit without a generation changes the offsets of an empty group, whatever member it names."""
    return bool(request.member_id) and getattr(request, generation) >= 0


def _is_of_coordinator(parts: Any, context: RequestContext) -> bool:
    """Return True if a transaction coordinator sends markers, as it does for each transaction. With
    an authorizer its principal must be that of a broker: every client chooses its client id."""
    if (
        context.listener_name != parts.config.inter_broker_listener_name
        or _MARKER_SENDER.fullmatch(context.client_id or "") is None
    ):
        return False
    if parts.authorizer is None:
        return True
    # Imported on first use, so that a node without an authorizer starts quickly.
    from penstock.handlers.authorization.guard import host_of

    is_broker: bool = parts.authorizer.allows(
        context.principal,
        host_of(context.peer),
        AclOperation.CLUSTER_ACTION,
        ResourceType.CLUSTER,
        CLUSTER_NAME,
    )
    return is_broker


async def _log_later(
    request: object, context: RequestContext, awaitable: Awaitable[object], note: str
) -> object:
    try:
        response = await awaitable
    except BaseException as error:
        log_change(context, _names(request), _failure(error) + note)
        raise
    log_change(context, _names(request), _outcome(request, response) + note)
    return response


def _failure(error: BaseException) -> str:
    """Return an outcome without the text of an error, which may have a value of a config."""
    return f"failed: {error.code.name if isinstance(error, KafkaError) else type(error).__name__}"


def _outcome(request: object, response: object) -> str:
    outcome = ", ".join(sorted(map(_error_name, errors_of(response)))) or "done"
    return f"validated only, {outcome}" if getattr(request, "validate_only", False) else outcome


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        # A controller of a later version may return it.
        return f"error {code}"


def _names(value: Any) -> Iterator[str]:
    if type(value).__name__ in ("CreateAclsRequest", "DeleteAclsRequest"):
        yield from _entries(value)
        return
    if type(value).__name__ == "AlterClientQuotasRequest":
        yield from _quotas(value)
        return
    for field in fields_of(type(value)):
        found = getattr(value, field.name)
        for element in found if isinstance(found, tuple) else (found,):
            if field.struct is not None:
                if element is not None:
                    yield from _names(element)
            elif field.name in _NAMING and element not in (None, "", NO_UUID):
                if isinstance(element, str):
                    yield quoted(element)
                elif field.name == "topic_id":
                    yield str(element)
                else:
                    yield f"{field.name}={element}"


def _quotas(request: Any) -> Iterator[str]:
    """Yield the entities of a request that alters quotas, and their values."""
    for entry in request.entries:
        parts = (f"{part.entity_type} {part.entity_name or '<default>'}" for part in entry.entity)
        yield quoted(", ".join(parts))
        for op in entry.ops:
            yield quoted(f"{op.key}{' removed' if op.remove else f'={op.value:g}'}")


def _entries(request: Any) -> Iterator[str]:
    """Yield the access control entries that a request creates, or the filters of those that it
    deletes."""
    # Imported on first use, so that a node starts quickly.
    from penstock.controller.acls import acl_of, filter_of

    for creation in getattr(request, "creations", ()):
        yield quoted(str(acl_of(creation)))
    for requested in getattr(request, "filters", ()):
        yield quoted(str(filter_of(requested)))

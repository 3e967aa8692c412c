"""Requests that wait for the reply of a shard, by ticket. Each gets exactly one reply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from penstock.coordinator.runtime.step import Reply, Ticket
from penstock.errors import ErrorCode, KafkaError

R = TypeVar("R")
# Makes the response that carries an error.
Refused = Callable[[KafkaError], R]

# Maps partition errors to coordinator errors: members know none of the former (Kafka's
# CoordinatorOperationExceptionHelper).
_COORDINATOR_ERRORS = {
    # The transaction coordinator did not answer. Older clients know no better code to retry after.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(error: KafkaError) -> KafkaError:
    code = _COORDINATOR_ERRORS.get(error.code)
    return error if code is None else KafkaError(code, error.message)


class _Waiting(NamedTuple):
    future: asyncio.Future[Any]
    refused: Refused[object]


class Replies:
    """A ticket is made first, and waited for only if the step does not reply immediately. A reply
    to the newest ticket that arrives before `wait` is kept in `immediate`. A reply to a ticket that
    was refused is dropped."""

    def __init__(self) -> None:
        self._newest = 0
        self._waiting: dict[Ticket, _Waiting] = {}
        self.immediate: object = None

    def new_ticket(self) -> Ticket:
        self._newest += 1
        self.immediate = None
        return Ticket(self._newest)

    def wait(self, ticket: Ticket, refused: Refused[R]) -> asyncio.Future[R]:
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = _Waiting(future, refused)
        return future

    def deliver(self, replies: Iterable[Reply]) -> None:
        for ticket, response in replies:
            waiting = self._waiting.pop(ticket, None)
            if waiting is not None:
                _set_result(waiting, response)
            elif ticket == self._newest:
                self.immediate = response

    def refuse(self, replies: Iterable[Reply], error: KafkaError) -> None:
        """Send the error in place of these replies."""
        translated = coordinator_error(error)
        for ticket, _response in replies:
            waiting = self._waiting.pop(ticket, None)
            if waiting is not None:
                _set_result(waiting, waiting.refused(translated))

    def refuse_all(self, error: KafkaError) -> None:
        translated = coordinator_error(error)
        all_waiting, self._waiting = self._waiting, {}
        for waiting in all_waiting.values():
            _set_result(waiting, waiting.refused(translated))


def _set_result(waiting: _Waiting, response: object) -> None:
    """The waiter may have been cancelled."""
    if not waiting.future.done():
        waiting.future.set_result(response)

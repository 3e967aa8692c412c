"""Requests that wait for a shard of the coordinator, by their tickets. Owns that each is answered
once; knows nothing of what they ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from penstock.coordinator.runtime.step import Answer, Ticket
from penstock.errors import ErrorCode, KafkaError

R = TypeVar("R")
Refused = Callable[[KafkaError], R]

# What members are told in the place of what befell the partition: they know none of it (Kafka's
# CoordinatorOperationExceptionHelper).
_AS_COORDINATOR = {
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
    code = _AS_COORDINATOR.get(error.code)
    return error if code is None else KafkaError(code, error.message)


class _Waiting(NamedTuple):
    future: asyncio.Future[Any]
    refused: Refused[object]


class Tickets:
    """A ticket is made, then perhaps waited for. What is answered before that is kept in `at_once`,
    if it is the newest ticket's."""

    def __init__(self) -> None:
        self._newest = 0
        self._waiting: dict[Ticket, _Waiting] = {}
        self.at_once: object = None

    def new(self) -> Ticket:
        self._newest += 1
        self.at_once = None
        return Ticket(self._newest)

    def wait(self, ticket: Ticket, refused: Refused[R]) -> asyncio.Future[R]:
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = _Waiting(future, refused)
        return future

    def deliver(self, answers: Iterable[Answer]) -> None:
        for ticket, response in answers:
            one = self._waiting.pop(ticket, None)
            if one is not None:
                _answer(one, response)
            elif ticket == self._newest:
                self.at_once = response

    def refuse(self, answers: Iterable[Answer], error: KafkaError) -> None:
        """Those who would have had these answers."""
        told = coordinator_error(error)
        for ticket, _response in answers:
            one = self._waiting.pop(ticket, None)
            if one is not None:
                _answer(one, one.refused(told))

    def refuse_all(self, error: KafkaError) -> None:
        told = coordinator_error(error)
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            _answer(one, one.refused(told))


def _answer(one: _Waiting, response: object) -> None:
    """Who waited may have gone."""
    if not one.future.done():
        one.future.set_result(response)

"""Counts the requests of a node by API: their number, times and errors (Kafka's RequestMetrics).

Every request passes here, so that a call makes a few additions. The error codes of a response are
looked for in its structs; those of a large response that is encoded already are not counted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from operator import sub
from typing import Any

from penstock.limits import COUNTED_ERRORS
from penstock.metrics.histogram import SECONDS, Histogram
from penstock.protocol.apis import APIS
from penstock.protocol.schema import Field, fields_of
from penstock.protocol.source import Source
from penstock.world import Clock

Errors = dict[int, int]

# The handlers of Produce and Fetch count their errors themselves, where they make them: nothing is
# to be done for a request without one.
FETCH = 1
MAX_TIMES = 3 * 256
_CountErrors = Callable[[Any, Errors], None]


class ApiMeasures:
    """The requests of one API: the numbers of those that took up to each bound of SECONDS, from
    their arrival until their responses were ready, sums of seconds, and error codes.

    A request appends its arrival, the beginning of its handler and its end to `times`. Many are
    added up together, without a step of the interpreter for each.
    """

    __slots__ = ("counts", "errors", "local_s", "queue_s", "remote_s", "times")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.queue_s = 0.0
        self.local_s = 0.0
        self.remote_s = 0.0
        self.errors: Errors = {}
        self.times: list[float] = []

    def add_up(self) -> None:
        times = self.times
        arrived, began, ended = times[0::3], times[1::3], times[2::3]
        times.clear()
        self.queue_s += sum(map(sub, began, arrived))
        self.local_s += sum(map(sub, ended, began))
        totals = sorted(map(sub, ended, arrived))
        before = 0
        for index, bound in enumerate(SECONDS):
            up_to = bisect_right(totals, bound)
            self.counts[index] += up_to - before
            before = up_to
        self.counts[-1] += len(totals) - before

    @property
    def count(self) -> int:
        return sum(self.counts)

    def total(self) -> Histogram:
        """Return the histogram of the times from arrival to response."""
        histogram = Histogram(SECONDS)
        histogram.counts = list(self.counts)
        histogram.sum = self.queue_s + self.local_s + self.remote_s
        return histogram


class RequestMeasures:
    """`apis` has the measures of an API at the index of its key. Times are those of the monotonic
    clock. A connection appends the times of a request itself, and calls `settle` if the key is
    above FETCH or there are MAX_TIMES of them."""

    __slots__ = ("_counting", "_monotonic", "apis")

    def __init__(self, clock: Clock) -> None:
        self.apis = [ApiMeasures() for _ in range(max(api.key for api in APIS) + 1)]
        self._monotonic = clock.monotonic
        # By the type of a response; None where it has no error code.
        self._counting: dict[type, _CountErrors | None] = {type(None): None}

    def settle(self, api_key: int, response: object) -> None:
        api = self.apis[api_key]
        if len(api.times) >= MAX_TIMES:
            api.add_up()
        if api_key > FETCH:
            self._count_errors(api_key, response)

    def answered_later(
        self, api_key: int, response: object, arrived: float, began: float, handled: float
    ) -> None:
        """Count a request whose response is ready now, after a wait since its handler returned."""
        now = self._monotonic()
        api = self.apis[api_key]
        api.queue_s += began - arrived
        api.local_s += handled - began
        api.remote_s += now - handled
        api.counts[bisect_left(SECONDS, now - arrived)] += 1
        if api_key > FETCH:
            self._count_errors(api_key, response)

    def of(self, api_key: int) -> ApiMeasures:
        """Return the measures of an API up to now."""
        api = self.apis[api_key]
        if api.times:
            api.add_up()
        return api

    def _count_errors(self, api_key: int, response: object) -> None:
        try:
            count = self._counting[response.__class__]
        except KeyError:
            count = self._counting[type(response)] = compile_counting(type(response))
        if count is not None:
            count(response, self.apis[api_key].errors)


# By the type of a response.
_compiled: dict[type, _CountErrors | None] = {}


def errors_of(response: object) -> Errors:
    """Return the number of each error code in a response."""
    kind = type(response)
    if kind not in _compiled:
        _compiled[kind] = compile_counting(kind)
    errors: Errors = {}
    count = _compiled[kind]
    if count is not None:
        count(response, errors)
    return errors


def compile_counting(response: type) -> _CountErrors | None:
    """Return a function that counts the error codes of a response and of the structs in it; None if
    it has none. It is compiled for each type, as codecs are: calls would take longer than the rest
    of a count."""
    if not _has_errors(response):
        return None
    source = Source(f"count the errors of {response.__qualname__}")
    with source.block("def count(value, errors):"):
        _count_struct(source, response, "value", 0)
    return source.function("count")


def _count_struct(source: Source, struct: type, value: str, depth: int) -> None:
    if _own_error(struct):
        code = f"{value}.error_code"
        with source.block(f"if {code}:"):
            source.line(f"errors[{code}] = errors.get({code}, 0) + 1")
    for field in fields_of(struct):
        if field.struct is None or not field.is_array or not _has_errors(field.struct):
            continue
        array, element = f"array{depth}", f"value{depth}"
        source.line(f"{array} = {value}.{field.name}")
        # It may be null, or encoded already.
        with source.block(f"if {array}.__class__ is tuple:"):
            with source.block(f"if len({array}) > {COUNTED_ERRORS}:"):
                source.line(f"{array} = {array}[:{COUNTED_ERRORS}]")
            with source.block(f"for {element} in {array}:"):
                _count_struct(source, field.struct, element, depth + 1)


def _own_error(struct: type) -> bool:
    return any(_is_error(field) for field in fields_of(struct))


def _is_error(field: Field) -> bool:
    return field.name == "error_code" and not field.is_array


def _has_errors(struct: type) -> bool:
    return _own_error(struct) or any(
        field.struct is not None and field.is_array and _has_errors(field.struct)
        for field in fields_of(struct)
    )

"""The response to a request that fails as a whole, for any API.

Kafka's Java code has such a method for each API (AbstractRequest.getErrorResponse). Here it follows
from the schemas. An error code is either in the response itself, or in the elements of an array
that answer the elements of an array of the request: a partition, a topic, a group. Elements with
error codes are built from the request's. Without any, the error is in the response itself.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import ErrorCode
from penstock.protocol.apis import api_of, response_class
from penstock.protocol.schema import Field, fields_of

# Fields of requests and responses that name the same thing differently.
_SAME = {
    "partition_index": ("partition", "index", "partition_id"),
    "partition": ("partition_index", "index"),
    "topic": ("name", "topic_name"),
    "name": ("topic", "topic_name"),
    "user": ("name",),
}
# Arrays of requests that have answers in the response, where several are possible.
_ANSWERED = ("topics", "resources", "groups", "partitions")
# The arrays of AlterUserScramCredentials, which one array answers.
_ANSWERED_TOGETHER = ("deletions", "upsertions")


def error_response(request: object, version: int, error: ErrorCode) -> object | None:
    """Return the response, or None if it has no place for an error."""
    build = _Build(version, int(error), f"a test fails this request with {error.name}")
    cls = response_class(api_of(type(request)).key)
    values, has_error = build.values(cls, request)
    own = _error_field(build.carried(cls))
    if own is not None and not has_error:
        values[own.name] = int(error)
        has_error = True
    return cls(**values) if has_error else None


class _Build:
    def __init__(self, version: int, code: int, message: str) -> None:
        self._version = version
        self._code = code
        self._message = message

    def carried(self, cls: type) -> list[Field]:
        return [field for field in fields_of(cls) if self._version in field.versions]

    def values(self, cls: type, request: object) -> tuple[dict[str, Any], bool]:
        """Return the values of the arrays that answer the request, and whether one has an error."""
        values: dict[str, Any] = {}
        for field in self.carried(cls):
            if field.is_array and field.struct is not None and self._has_error(field.struct):
                elements = self._source(request, field)
                values[field.name] = tuple(
                    self._element(field.struct, element) for element in elements
                )
        return values, any(values.values())

    def _element(self, cls: type, source: object) -> object:
        """Return an element with the error, with what identifies the element of the request."""
        values, has_error = self.values(cls, source)
        carried = self.carried(cls)
        error = _error_field(carried)
        if error is not None and not has_error:
            values[error.name] = self._code
        for field in carried:
            if field.name in values or field.is_array or field.struct is not None:
                continue
            if field.name == "error_message":
                values[field.name] = self._message
            elif hasattr(type(source), "__kafka_fields__"):
                found = self._same(source, field)
                if found is not None:
                    values[field.name] = found
        if not hasattr(type(source), "__kafka_fields__"):
            # An element of an array of names, numbers or ids: it identifies the answer.
            kind = "string" if isinstance(source, str) else None
            key = next(
                field
                for field in carried
                if field.name not in values
                and not field.is_array
                and (
                    field.kind == kind or (kind is None and field.kind.startswith(("int", "uuid")))
                )
            )
            values[key.name] = source
        return cls(**values)

    def _same(self, source: object, field: Field) -> object | None:
        kinds = {other.name: other.kind for other in fields_of(type(source)) if not other.is_array}
        for name in (field.name, *_SAME.get(field.name, ())):
            if kinds.get(name) == field.kind:
                found: object = getattr(source, name)
                return found
        return None

    def _source(self, request: object, field: Field) -> tuple[Any, ...]:
        """Return the elements of the request that an array of the response answers."""
        if not hasattr(type(request), "__kafka_fields__"):
            return ()
        arrays = [other for other in self.carried(type(request)) if other.is_array]
        names = [other.name for other in arrays]
        if field.name in names:
            name = field.name
        elif len(names) == 1:
            name = names[0]
        elif tuple(names) == _ANSWERED_TOGETHER:
            return tuple(element for name in names for element in getattr(request, name))
        else:
            preferred = [name for name in _ANSWERED if name in names]
            if not preferred:
                return ()
            name = preferred[0]
        return tuple(getattr(request, name) or ())

    def _has_error(self, cls: type) -> bool:
        return any(
            field.name.endswith("error_code")
            or (field.struct is not None and field.is_array and self._has_error(field.struct))
            for field in self.carried(cls)
        )


def _error_field(fields: list[Field]) -> Field | None:
    return next((field for field in fields if field.name.endswith("error_code")), None)

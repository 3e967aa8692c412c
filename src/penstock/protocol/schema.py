"""Declares messages: one frozen class for all versions. Each field says which versions carry it.

    @message(api_key=12, versions="0-4", flexible="4+")
    class HeartbeatRequest:
        group_id: str = string("0+")
        generation_id: int = int32("0+")
        group_instance_id: str | None = string("3+", nullable="3+", default=None)

Structs within a message are nested classes marked `@struct`. Every field has a default, so that
callers pass only the fields that matter. `compile_decoder` and `compile_encoder` read these
declarations; this module does not deal with bytes.

Messages behave like frozen dataclasses but are not made by `dataclasses`, which takes a millisecond
per class, a quarter of a node's start. All classes share their methods except `__init__`, which is
compiled when the first instance is made.

Type checkers see `int32(...)` as an ordinary default value. The functions below are deliberately
not field specifiers of dataclass_transform, which would make every field without `default=`
required.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import FrozenInstanceError
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar, cast, dataclass_transform, overload
from uuid import UUID

from penstock.ids import NO_UUID, Buffer
from penstock.protocol.source import Source

T = TypeVar("T")

_NEWEST = 2**15 - 1

# The value of a `records` field. Decoding returns a memoryview; encoding passes through any object
# with a length, for instance a range of a file.
Records = Buffer | Sized


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        if self.first > self.last:
            return "none"
        if self.last == _NEWEST:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NO_VERSIONS = Versions(0, -1)


@lru_cache(maxsize=256)
def parse_versions(text: str) -> Versions:
    """Parse "4+", "4-12", "4" or "none"."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), _NEWEST)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


class EncodedArray:
    """The elements of an array of structs in encoded form, for one version. The encoder takes it
    in place of a tuple where the field is declared with `may_be_encoded`."""

    __slots__ = ("count", "data")

    def __init__(self, count: int, data: bytes) -> None:
        self.count = count
        self.data = data

    def __len__(self) -> int:
        return self.count


class EncodedParts:
    """The elements of an array of structs in encoded form, for a message with records: bytes, and
    the untouched records between them."""

    __slots__ = ("_bytes", "_parts", "count")

    def __init__(self) -> None:
        self.count = 0
        self._parts: list[Records] = []
        # Bytes at the end that are not joined yet.
        self._bytes: list[bytes] = []

    def __len__(self) -> int:
        return self.count

    def add(self, parts: list[Records]) -> None:
        """Add an element."""
        self.count += 1
        for part in parts:
            if isinstance(part, bytes):
                self._bytes.append(part)
            else:
                self._join()
                self._parts.append(part)

    @property
    def parts(self) -> list[Records]:
        self._join()
        return self._parts

    def _join(self) -> None:
        if self._bytes:
            self._parts.append(b"".join(self._bytes))
            self._bytes = []


class Field(NamedTuple):
    """A declared field. `kind` is int8, ..., string, bytes, records or struct; `struct` is the
    nested class of a struct."""

    kind: str
    versions: Versions
    default: Any
    nullable: Versions = NO_VERSIONS
    tag: int | None = None
    ignorable: bool = False
    struct: type | None = None
    is_array: bool = False
    never_compact: bool = False
    may_be_encoded: bool = False
    name: str = ""


class Schema(NamedTuple):
    """The arguments of `@message`."""

    versions: Versions
    flexible: Versions
    api_key: int | None


def fields_of(cls: type) -> tuple[Field, ...]:
    """Return the fields of a message or struct, in wire order."""
    return cast("tuple[Field, ...]", cls.__dict__["__kafka_fields__"])


def schema_of(cls: type) -> Schema:
    return cast(Schema, cls.__dict__["__kafka_schema__"])


def changed(message: T, **values: object) -> T:
    """Return a copy of a message or struct with other values in some fields."""
    return type(message)(
        **{field.name: getattr(message, field.name) for field in fields_of(type(message))} | values
    )


def _values(message: object) -> list[object]:
    return [getattr(message, field.name) for field in fields_of(type(message))]


def _equal(self: object, other: object) -> bool:
    if self is other:  # encoders compare with a default, which is mostly the same object
        return True
    return _values(self) == _values(other) if type(self) is type(other) else NotImplemented


def _hash(self: object) -> int:
    return hash((type(self), *_values(self)))


def _repr(self: object) -> str:
    """Bytes are not shown: they may be a secret, such as the HMAC of a delegation token."""
    shown = ", ".join(
        f"{field.name}={_shown(field, getattr(self, field.name))}"
        for field in fields_of(type(self))
    )
    return f"{type(self).__qualname__}({shown})"


def _shown(field: Field, value: object) -> str:
    if field.kind == "bytes" and isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    return repr(value)


def _refuse_change(self: object, name: str, _value: object = None) -> None:
    raise FrozenInstanceError(f"cannot change {name!r}: a {type(self).__qualname__} is frozen")


def _first_init(self: object, **values: object) -> None:
    """Compile the class's `__init__` when the first instance is made, and call it."""
    cls = type(self)
    init = _compile_init(cls)
    type.__setattr__(cls, "__init__", init)
    init(self, **values)


@cache
def raw_twin(cls: type) -> type:
    """Return a plain class with the same slots. Setting the fields of a frozen instance is slow.
    Codecs fill a twin instead and then assign its `__class__`, which CPython allows between classes
    of equal layout."""
    return type(cls.__name__, (), {"__slots__": tuple(field.name for field in fields_of(cls))})


def _compile_init(cls: type) -> Callable[..., None]:
    source = Source(f"make {cls.__qualname__}")
    become, raw, made = (
        source.name("become", object.__setattr__),
        source.name("Raw", raw_twin(cls)),
        source.name("Made", cls),
    )
    parameters = "".join(
        f", {field.name}={source.constant(field.default)}" for field in fields_of(cls)
    )
    with source.block(f"def __init__(self{', *' if parameters else ''}{parameters}):"):
        source.line(f"{become}(self, '__class__', {raw})")
        for field in fields_of(cls):
            source.line(f"self.{field.name} = {field.name}")
        source.line(f"self.__class__ = {made}")
    return source.function("__init__")


_SHARED = {
    "__init__": _first_init,
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _refuse_change,
    "__delattr__": _refuse_change,
}


@dataclass_transform(frozen_default=True, kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Declare a struct: a class nested in a message, or shared by two messages of one module."""
    declared = tuple(
        value._replace(name=name) for name, value in vars(cls).items() if isinstance(value, Field)
    )
    names = tuple(field.name for field in declared)
    kept = {
        name: value
        for name, value in vars(cls).items()
        if name not in (*names, "__dict__", "__weakref__")
    }
    made = {
        **kept,
        **_SHARED,
        "__qualname__": cls.__qualname__,
        "__slots__": names,
        "__kafka_fields__": declared,
    }
    return cast("type[T]", type(cls.__name__, cls.__bases__, made))


@dataclass_transform(frozen_default=True, kw_only_default=True)
def message(
    *, versions: str, flexible: str = "none", api_key: int | None = None
) -> Callable[[type[T]], type[T]]:
    """Declare a message: a request, a response, a header or an internal record."""
    schema = Schema(parse_versions(versions), parse_versions(flexible), api_key)

    def mark(cls: type[T]) -> type[T]:
        made = struct(cls)
        type.__setattr__(made, "__kafka_schema__", schema)
        return made

    return mark


def _declare(
    kind: str,
    versions: str,
    default: object,
    *,
    nullable: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
    struct: type | None = None,
    is_array: bool = False,
    never_compact: bool = False,
    may_be_encoded: bool = False,
) -> Any:
    return Field(
        kind,
        parse_versions(versions),
        default,
        parse_versions(nullable),
        tag,
        ignorable,
        struct,
        is_array,
        never_compact,
        may_be_encoded,
    )


def boolean(
    versions: str, *, default: bool = False, tag: int | None = None, ignorable: bool = False
) -> bool:
    return cast(bool, _declare("bool", versions, default, tag=tag, ignorable=ignorable))


def int8(
    versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False
) -> int:
    return cast(int, _declare("int8", versions, default, tag=tag, ignorable=ignorable))


def int16(
    versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False
) -> int:
    return cast(int, _declare("int16", versions, default, tag=tag, ignorable=ignorable))


def uint16(
    versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False
) -> int:
    return cast(int, _declare("uint16", versions, default, tag=tag, ignorable=ignorable))


def int32(
    versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False
) -> int:
    return cast(int, _declare("int32", versions, default, tag=tag, ignorable=ignorable))


def int64(
    versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False
) -> int:
    return cast(int, _declare("int64", versions, default, tag=tag, ignorable=ignorable))


def float64(
    versions: str, *, default: float = 0.0, tag: int | None = None, ignorable: bool = False
) -> float:
    return cast(float, _declare("float64", versions, default, tag=tag, ignorable=ignorable))


def uuid(versions: str, *, tag: int | None = None, ignorable: bool = False) -> UUID:
    """Declare a uuid. The default is Kafka's null uuid, sixteen zero bytes."""
    return cast(UUID, _declare("uuid", versions, NO_UUID, tag=tag, ignorable=ignorable))


@overload
def string(
    versions: str, *, default: str = ..., tag: int | None = ..., ignorable: bool = ...
) -> str: ...
@overload
def string(
    versions: str,
    *,
    nullable: str,
    default: str | None = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
    never_compact: bool = ...,
) -> str | None: ...
def string(
    versions: str,
    *,
    nullable: str = "none",
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
    never_compact: bool = False,
) -> str | None:
    """Declare a string. `never_compact` keeps the int16 length in flexible versions; only the
    client id of the request header needs it."""
    declared = _declare(
        "string",
        versions,
        default,
        nullable=nullable,
        tag=tag,
        ignorable=ignorable,
        never_compact=never_compact,
    )
    return cast("str | None", declared)


@overload
def blob(versions: str, *, default: bytes = ..., ignorable: bool = ...) -> bytes: ...
@overload
def blob(
    versions: str, *, nullable: str, default: bytes | None = ..., ignorable: bool = ...
) -> bytes | None: ...
def blob(
    versions: str, *, nullable: str = "none", default: bytes | None = b"", ignorable: bool = False
) -> bytes | None:
    """Declare a field of Kafka's type `bytes`."""
    return cast(
        "bytes | None", _declare("bytes", versions, default, nullable=nullable, ignorable=ignorable)
    )


@overload
def record_batches(versions: str) -> Buffer: ...
@overload
def record_batches(versions: str, *, nullable: str) -> Buffer | None: ...
def record_batches(versions: str, *, nullable: str = "none") -> Any:
    """Declare a field of Kafka's type `records`. It is never copied, in either direction."""
    return _declare("records", versions, None if nullable != "none" else b"", nullable=nullable)


@overload
def array(
    element: Callable[..., T],
    versions: str,
    *,
    tag: int | None = ...,
    ignorable: bool = ...,
    may_be_encoded: bool = ...,
) -> tuple[T, ...]: ...
@overload
def array(
    element: Callable[..., T],
    versions: str,
    *,
    nullable: str,
    default: tuple[()] | None = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
    may_be_encoded: bool = ...,
) -> tuple[T, ...] | None: ...
def array(
    element: Callable[..., Any],
    versions: str,
    *,
    nullable: str = "none",
    default: tuple[()] | None = (),
    tag: int | None = None,
    ignorable: bool = False,
    may_be_encoded: bool = False,
) -> Any:
    """Declare an array of a nested struct, `array(Partition, "4+")`, or of one of the types above,
    `array(int32, "0+")`. With `may_be_encoded`, the encoder takes an EncodedArray too, or an
    EncodedParts if the message has records."""
    inner = element if isinstance(element, type) else None
    kind = "struct" if inner else element.__name__
    return _declare(
        kind,
        versions,
        default,
        nullable=nullable,
        tag=tag,
        ignorable=ignorable,
        struct=inner,
        is_array=True,
        may_be_encoded=may_be_encoded,
    )


@overload
def nested(inner: type[T], versions: str, *, tag: int | None = ..., ignorable: bool = ...) -> T: ...
@overload
def nested(
    inner: type[T],
    versions: str,
    *,
    nullable: str,
    null_by_default: bool = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
) -> T | None: ...
def nested(
    inner: type[T],
    versions: str,
    *,
    nullable: str = "none",
    null_by_default: bool = True,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a nested struct."""
    default = None if nullable != "none" and null_by_default else inner()
    return _declare(
        "struct", versions, default, nullable=nullable, tag=tag, ignorable=ignorable, struct=inner
    )

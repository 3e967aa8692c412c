"""Compiles the decoder of one message and version: the declaration becomes the source of one Python
function.

Theory of operation. The function walks the buffer once with a position `p`. Adjacent fields of
fixed width form a *run*, which one `unpack_from` decodes. The prefix of the next field (the length
of a string, the count of an array, the number of tagged fields) ends the run and is decoded with
it. In flexible versions the prefix is a varint: its first byte is part of the run, and the rest is
read only if that byte says so. Nested structs are loops in the same function, so there are no calls
per field. `n` is always the last prefix.

Rules:
- No count is trusted. Before an array is built, count times minimum element size must fit into the
  rest of the buffer. All elements of a message, unknown tagged fields included, share one budget.
  Therefore time and memory are bounded.
- The function raises only ProtocolError.
- `records` are views of the buffer, never copies.

Frozen instances are slow to build. For a partition of a Fetch request (eight fields, unpacking
included, CPython 3.11) the `__init__` of a frozen dataclass takes 2.5 µs, and setting the slots
through their descriptors 1.1 µs. Therefore the function fills a *raw twin* of the class
(`schema.raw_twin`) and then assigns its `__class__`: 0.5 µs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from penstock import limits
from penstock.errors import ProtocolError
from penstock.ids import Buffer
from penstock.protocol import codec_errors
from penstock.protocol.layout import (
    FORMATS,
    NULL_MARKERS,
    REPEATED,
    WIDTHS,
    Layout,
    layout_of,
    structs_of,
)
from penstock.protocol.primitives import finish_uvarint, uuid_of
from penstock.protocol.schema import Field, fields_of, raw_twin
from penstock.protocol.source import Source

Decoder = Callable[[Buffer, int], tuple[Any, int]]


def compile_decoder(message: type, version: int) -> Decoder:
    """Return a function that decodes the message at a position, and returns it and the position
    after it."""
    return _DecoderSource(layout_of(message, version)).build().function("decode")


def object_limit(message: type) -> str:
    """Return the limit of decoded objects. Requests have their own limit, because a node decodes
    them on its event loop and any client may send them."""
    return "MAX_REQUEST_OBJECTS" if message.__name__.endswith("Request") else "MAX_DECODED_OBJECTS"


def _within(label: str, field: Field) -> str:
    """Return the label of a field in errors: FetchRequest v13: topics.partitions."""
    return f"{label}.{field.name}" if ": " in label else f"{label}: {field.name}"


class _DecoderSource:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._source = Source(f"decode {layout.label}")
        self._run: list[tuple[str, str]] = []
        # A message with record batches may be large, and is decoded in place. Any other is copied
        # to bytes first, which costs less than slicing a memoryview for each string.
        self._in_place = any(
            field.kind == "records"
            for cls in structs_of(layout.message)
            for field in fields_of(cls)
        )

    def build(self) -> Source:
        source, label = self._source, self._layout.label
        source.name("errors", codec_errors)
        source.name("limits", limits)
        source.name("finish_uvarint", finish_uvarint)
        source.name("uuid_of", uuid_of)
        source.name("StructError", struct.error)
        source.name("ProtocolError", ProtocolError)
        with source.block("def decode(buffer, p):"):
            source.line(
                "view = memoryview(buffer)"
                if self._in_place
                else "if type(buffer) is not bytes: buffer = bytes(buffer)"
            )
            source.line("end = len(buffer)")
            source.line(f"budget = limits.{object_limit(self._layout.message)}")
            with source.block("try:"):
                self._struct(self._layout.message, 0, label)
                source.line("return o0, p")
            with source.block("except (StructError, IndexError) as error:"):
                source.line(f"raise errors.truncated({label!r}) from error")
            with source.block("except UnicodeDecodeError as error:"):
                source.line(f"raise errors.not_utf8({label!r}, error) from error")
        return source

    def _struct(self, cls: type, depth: int, label: str) -> None:
        """Generate code that leaves a new instance in the variable o<depth>."""
        made = f"o{depth}"
        self._source.line(f"{made} = {self._source.name('Raw' + cls.__name__, raw_twin(cls))}()")
        for field in (*self._layout.absent(cls), *self._layout.tagged(cls)):
            self._source.line(f"{made}.{field.name} = {self._source.constant(field.default)}")
        for field in self._layout.plain(cls):
            self._field(field, f"{made}.{field.name}", depth, _within(label, field))
        if self._layout.flexible:
            self._tagged_fields(cls, depth, label)
        self._unpack_run()
        self._source.line(f"{made}.__class__ = {self._source.name(cls.__name__, cls)}")

    def _field(self, field: Field, target: str, depth: int, label: str) -> None:
        if field.is_array:
            self._array(field, target, depth, label)
        elif field.kind in FORMATS:
            self._run.append((FORMATS[field.kind], target))
        elif field.struct is not None:
            self._nested(field, field.struct, target, depth, label)
        else:
            self._sized(field, target, label)

    def _unpack_run(self) -> None:
        run, self._run = self._run, []
        if not run:
            return
        if run == [("B", "n")]:
            self._source.line("n = buffer[p]")
            self._source.line("p += 1")
            return
        format_ = struct.Struct(">" + "".join(code for code, _ in run))
        # uuids are unpacked as bytes and converted after it.
        uuids = {target: f"u{index}" for index, (code, target) in enumerate(run) if code == "16s"}
        targets = "".join(f"{uuids.get(target, target)}, " for _, target in run)
        self._source.line(
            f"{targets}= {self._source.name('unpack', format_.unpack_from)}(buffer, p)"
        )
        self._source.line(f"p += {format_.size}")
        for target, raw in uuids.items():
            self._source.line(f"{target} = uuid_of({raw})")

    def _prefix(self, code: str, *, compact: bool) -> None:
        """Generate code that reads a length or count into n, with -1 for null."""
        self._run.append(("B" if compact else code, "n"))
        self._unpack_run()
        if compact:
            self._source.line("if n > 127: n, p = finish_uvarint(buffer, p, n)")
            self._source.line("n -= 1")

    def _sized(self, field: Field, target: str, label: str) -> None:
        """Decode a string, bytes or records."""
        compact = self._layout.compact(field)
        self._prefix("h" if field.kind == "string" else "i", compact=compact)
        self._source.line("q = p + n")
        if self._layout.nullable(field):
            with self._source.block("if n == -1:"):
                self._source.line(f"{target} = None")
            with self._source.block("else:"):
                self._slice(field, target, label)
        else:
            self._slice(field, target, label)

    def _slice(self, field: Field, target: str, label: str) -> None:
        too_long = (
            f" or n > {limits.MAX_STRING_BYTES}"
            if field.kind == "string" and self._layout.compact(field)
            else ""
        )
        self._source.line(
            f"if not p <= q <= end{too_long}: raise errors.bad_length({label!r}, n, end - p)"
        )
        if field.kind == "records":
            value = "view[p:q]"
        elif field.kind == "string":
            value = 'str(buffer[p:q], "utf-8")' if self._in_place else "buffer[p:q].decode()"
        else:
            value = "bytes(buffer[p:q])" if self._in_place else "buffer[p:q]"
        self._source.line(f"{target} = {value}")
        self._source.line("p = q")

    def _nested(self, field: Field, cls: type, target: str, depth: int, label: str) -> None:
        if not self._layout.nullable(field):
            self._struct(cls, depth + 1, label)
            self._source.line(f"{target} = o{depth + 1}")
            return
        null, present = NULL_MARKERS[field.tag is not None]
        self._run.append(("b", "n"))
        self._unpack_run()
        with self._source.block(f"if n == {present}:"):
            self._struct(cls, depth + 1, label)
            self._source.line(f"{target} = o{depth + 1}")
        with self._source.block(f"elif n == {null}:"):
            self._source.line(f"{target} = None")
        with self._source.block("else:"):
            self._source.line(f"raise errors.bad_marker({label!r}, n, {null})")

    def _array(self, field: Field, target: str, depth: int, label: str) -> None:
        self._prefix("i", compact=self._layout.compact(field))
        if self._layout.nullable(field):
            with self._source.block("if n == -1:"):
                self._source.line(f"{target} = None")
            with self._source.block("else:"):
                self._elements(field, target, depth, label)
        else:
            self._elements(field, target, depth, label)

    def _elements(self, field: Field, target: str, depth: int, label: str) -> None:
        size = self._layout.minimum_element_size(field)
        with self._source.block(f"if n < 0 or n * {size} > end - p or n > budget:"):
            self._source.line(f"raise errors.bad_count({label!r}, n, end - p, {size})")
        self._source.line("budget -= n")
        if field.kind == "uuid":
            positions = "range(p, p + n * 16, 16)"
            self._source.line(
                f"{target} = tuple([uuid_of(bytes(buffer[i : i + 16])) for i in {positions}])"
            )
            self._source.line("p += n * 16")
        elif field.kind in FORMATS:
            formats = self._source.name(f"{field.kind}s", REPEATED[field.kind])
            self._source.line(f"{target} = {formats}[n].unpack_from(buffer, p)")
            self._source.line(f"p += n * {WIDTHS[field.kind]}")
        else:
            self._loop(field, target, depth, label)

    def _loop(self, field: Field, target: str, depth: int, label: str) -> None:
        """Decode an array of structs or strings."""
        items = f"items{depth}"
        self._source.line(f"{items} = []")
        with self._source.block("for _ in range(n):"):
            if field.struct is not None:
                self._struct(field.struct, depth + 1, label)
                self._source.line(f"{items}.append(o{depth + 1})")
            else:
                self._prefix("h", compact=self._layout.compact(field))
                self._source.line("q = p + n")
                self._slice(field, "item", label)
                self._source.line(f"{items}.append(item)")
        self._source.line(f"{target} = tuple({items})")

    def _tagged_fields(self, cls: type, depth: int, label: str) -> None:
        self._run.append(("B", "n"))
        self._unpack_run()
        known = self._layout.tagged(cls)
        with self._source.block("if n:"):
            if not known:
                self._source.line(f"p, budget = errors.skip_tags(buffer, p, n, budget, {label!r})")
                return
            self._source.line(f"n, p, budget = errors.tag_count(buffer, p, n, budget, {label!r})")
            with self._source.block("for _ in range(n):"):
                self._source.line(
                    f"tag{depth}, p, stop{depth} = errors.tag_head(buffer, p, {label!r})"
                )
                for index, field in enumerate(known):
                    with self._source.block(
                        f"{'elif' if index else 'if'} tag{depth} == {field.tag}:"
                    ):
                        self._field(field, f"o{depth}.{field.name}", depth, _within(label, field))
                        self._unpack_run()
                self._source.line(f"else: p = stop{depth}")
                with self._source.block(f"if p != stop{depth}:"):
                    self._source.line(
                        f"raise errors.bad_tag_size({label!r}, tag{depth}, p - stop{depth})"
                    )

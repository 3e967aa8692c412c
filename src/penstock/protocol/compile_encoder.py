"""Compiles the encoder of one message and version: the declaration becomes the source of one Python
function.

Theory of operation. The function collects *pieces* of bytes in a list and joins them once. Adjacent
fields of fixed width, and lengths and counts that old versions write as int16 and int32, form a
*run* that becomes one `pack`. Varints come from a table. While the control flow does not branch,
pieces stay expressions, so that one statement adds several. Records are not joined: they are parts
of the result of their own, as the objects that the caller passed.

Rules:
- A field that this version does not carry must be ignorable or have its default; otherwise the
  function raises KafkaError(UNSUPPORTED_VERSION). Nothing is dropped silently.
- Null is allowed only where this version allows it.
- A value that does not fit its type raises ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from penstock import limits
from penstock.protocol import codec_errors
from penstock.protocol.layout import FORMATS, NULL_MARKERS, REPEATED, Layout, layout_of, structs_of
from penstock.protocol.primitives import UVARINTS
from penstock.protocol.schema import EncodedArray, EncodedParts, Field, Records, fields_of
from penstock.protocol.source import Source

Encoder = Callable[[Any], list[Records]]


def compile_encoder(message: type, version: int, struct_: type | None = None) -> Encoder:
    """Return a function that encodes a message to parts: bytes, and between them the untouched
    records. With `struct_`, it encodes a struct of the message."""
    source = _EncoderSource(layout_of(message, version), struct_ or message)
    return source.build().function("encode")


class _EncoderSource:
    def __init__(self, layout: Layout, encoded: type) -> None:
        self._layout = layout
        self._encoded = encoded
        self._source = Source(f"encode {layout.label}")
        self._run: list[tuple[str, str]] = []
        self._pieces: list[str] = []
        self._sink = "out"
        self._variables = 0
        self._has_records = any(
            field.kind == "records"
            for cls in structs_of(layout.message)
            for field in fields_of(cls)
        )

    def build(self) -> Source:
        source = self._source
        source.name("errors", codec_errors)
        source.name("UVARINTS", UVARINTS)
        source.name("StructError", struct.error)
        with source.block("def encode(message):"):
            with source.block("try:"):
                source.line("out = []")
                if self._has_records:
                    source.line("parts = []")
                self._struct(self._encoded, "message", "")
                self._add_pieces()
                if self._has_records:
                    source.line('if out: parts.append(b"".join(out))')
                source.line("return parts" if self._has_records else 'return [b"".join(out)]')
            with source.block("except (StructError, AttributeError, TypeError) as error:"):
                source.line(f"raise errors.not_encodable({self._layout.label!r}, error) from error")
        return source

    def _variable(self, prefix: str) -> str:
        self._variables += 1
        return f"{prefix}{self._variables}"

    def _end_run(self) -> None:
        run, self._run = self._run, []
        if not run:
            return
        format_ = struct.Struct(">" + "".join(code for code, _ in run))
        arguments = [expression for code, expression in run if code != "x"]
        if arguments:
            self._pieces.append(
                f"{self._source.name('pack', format_.pack)}({', '.join(arguments)})"
            )
        else:
            self._pieces.append(repr(bytes(format_.size)))

    def _piece(self, expression: str) -> None:
        self._end_run()
        self._pieces.append(expression)

    def _add_pieces(self) -> None:
        """Generate code that adds the pieces collected so far. Call it before the control flow
        branches."""
        self._end_run()
        pieces, self._pieces = self._pieces, []
        if len(pieces) == 1:
            self._source.line(f"{self._sink}.append({pieces[0]})")
        elif pieces:
            self._source.line(f"{self._sink} += ({', '.join(pieces)})")

    def _struct(self, cls: type, value: str, path: str) -> None:
        for field in self._layout.absent(cls):
            if not field.ignorable:
                self._refuse_unless_default(field, f"{value}.{field.name}", f"{path}{field.name}")
        for field in self._layout.plain(cls):
            self._field(field, f"{value}.{field.name}", f"{path}{field.name}")
        if self._layout.flexible:
            self._tagged_fields(cls, value, path)

    def _refuse_unless_default(self, field: Field, value: str, path: str) -> None:
        with self._source.block(f"if {self._differs(field, value)}:"):
            self._source.line(f"raise errors.not_carried({self._layout.label!r}, {path!r})")

    def _differs(self, field: Field, value: str) -> str:
        default = self._source.constant(field.default)
        if field.default is None:
            return f"{value} is not None"
        if field.kind in ("uuid", "struct") and not field.is_array:
            # Comparing these calls Python code; the value nearly always is the default itself.
            return f"{value} is not {default} and {value} != {default}"
        return f"{value} != {default}"

    def _field(self, field: Field, value: str, path: str) -> None:
        if (
            self._layout.version not in field.nullable
            and field.nullable.first <= field.nullable.last
        ):
            self._source.line(
                f"if {value} is None: raise errors.not_nullable({self._layout.label!r}, {path!r})"
            )
        if field.is_array:
            self._array(field, value, path)
        elif field.kind == "uuid":
            self._run.append((FORMATS["uuid"], f"{value}.bytes"))
        elif field.kind in FORMATS:
            self._run.append((FORMATS[field.kind], value))
        elif field.struct is not None:
            self._nested(field, field.struct, value, path)
        else:
            self._sized(field, value, path)

    def _prefix(self, length: str, code: str, *, compact: bool, nullable_of: str | None) -> None:
        """Encode the length or count of the next field. `nullable_of` is the variable that may be
        None."""
        if compact:
            value = f"{length} + 1"
            if nullable_of is not None:
                value = f"0 if {nullable_of} is None else {value}"
            self._piece(f"UVARINTS[{value}]")
        else:
            value = length if nullable_of is None else f"-1 if {nullable_of} is None else {length}"
            self._run.append((code, value))

    def _sized(self, field: Field, value: str, path: str) -> None:
        """Encode a string, bytes or records."""
        variable, compact = self._variable("v"), self._layout.compact(field)
        nullable_of = variable if self._layout.nullable(field) else None
        self._source.line(f"{variable} = {value}")
        if field.kind == "string":
            condition = f"if {variable} is not None: " if nullable_of else ""
            self._source.line(f"{condition}{variable} = {variable}.encode()")
            if compact:
                with self._source.block(
                    f"if {variable} and len({variable}) > {limits.MAX_STRING_BYTES}:"
                ):
                    self._source.line(
                        f"raise errors.too_long({f'{self._layout.label}: {path}'!r}, "
                        f"len({variable}))"
                    )
        self._prefix(
            f"len({variable})",
            "h" if field.kind == "string" else "i",
            compact=compact,
            nullable_of=nullable_of,
        )
        if field.kind == "records":
            self._records(variable)
        else:
            self._piece(f'{variable} or b""' if nullable_of else variable)

    def _records(self, variable: str) -> None:
        self._add_pieces()
        with self._source.block(f"if {variable}:"):
            self._source.line('parts.append(b"".join(out))')
            self._source.line(f"parts.append({variable})")
            self._source.line("out.clear()")

    def _nested(self, field: Field, cls: type, value: str, path: str) -> None:
        variable = self._variable("m")
        self._source.line(f"{variable} = {value}")
        if not self._layout.nullable(field):
            self._struct(cls, variable, f"{path}.")
            return
        self._add_pieces()
        null, present = NULL_MARKERS[field.tag is not None]
        with self._source.block(f"if {variable} is None:"):
            self._source.line(f"{self._sink}.append({struct.pack('b', null)!r})")
        with self._source.block("else:"):
            self._run.append(("b", str(present)))
            self._struct(cls, variable, f"{path}.")
            self._add_pieces()

    def _array(self, field: Field, value: str, path: str) -> None:
        variable = self._variable("v")
        self._source.line(f"{variable} = {value}")
        nullable_of = variable if self._layout.nullable(field) else None
        self._prefix(
            f"len({variable})", "i", compact=self._layout.compact(field), nullable_of=nullable_of
        )
        elements = f"({variable} or ())" if nullable_of else variable
        if field.kind == "uuid":
            self._piece(f'b"".join([element.bytes for element in {elements}])')
        elif field.kind in FORMATS:
            formats = self._source.name(f"{field.kind}s", REPEATED[field.kind])
            self._piece(f"{formats}[len({elements})].pack(*{elements})")
        elif field.may_be_encoded:
            self._add_pieces()
            kind = EncodedParts if self._has_records else EncodedArray
            encoded = self._source.name(kind.__name__, kind)
            with self._source.block(f"if type({variable}) is {encoded}:"):
                if self._has_records:
                    self._source.line('parts.append(b"".join(out))')
                    self._source.line(f"parts += {variable}.parts")
                    self._source.line("out.clear()")
                else:
                    self._source.line(f"{self._sink}.append({variable}.data)")
            with self._source.block("else:"):
                self._loop(field, elements, path)
        else:
            self._loop(field, elements, path)

    def _loop(self, field: Field, elements: str, path: str) -> None:
        """Encode an array of structs or strings."""
        self._add_pieces()
        element = self._variable("m")
        with self._source.block(f"for {element} in {elements}:"):
            if field.struct is not None:
                self._struct(field.struct, element, f"{path}.")
            else:
                self._field(Field("string", field.versions, ""), element, path)
            self._add_pieces()
            # A struct without fields generates no statement, but Python needs one.
            self._source.line("pass")

    def _tagged_fields(self, cls: type, value: str, path: str) -> None:
        known = self._layout.tagged(cls)
        if not known:
            # A zero byte, for no tagged fields, is part of the run.
            self._run.append(("x", ""))
            return
        self._add_pieces()
        outer, tagged = self._sink, self._variable("tagged")
        self._source.line(f"{tagged} = []")
        for field in known:
            with self._source.block(f"if {self._differs(field, f'{value}.{field.name}')}:"):
                self._sink = self._variable("body")
                self._source.line(f"{self._sink} = []")
                self._field(field, f"{value}.{field.name}", f"{path}{field.name}")
                self._add_pieces()
                self._source.line(f'{self._sink} = b"".join({self._sink})')
                self._source.line(
                    f"{tagged} += (UVARINTS[{field.tag}] + UVARINTS[len({self._sink})] + "
                    f"{self._sink},)"
                )
        self._sink = outer
        self._source.line(f"if {tagged}: {outer} += (UVARINTS[len({tagged})], *{tagged})")
        self._source.line(f'else: {outer}.append(b"\\0")')

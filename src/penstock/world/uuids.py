"""Which random uuids Kafka can use. Owns the rule alone; where the random bytes come from is the
world's affair."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from penstock.ids import RESERVED_UUIDS, uuid_text


def usable_uuid(random_bytes: Callable[[], bytes]) -> UUID:
    """A version 4 uuid made of 16 random bytes, drawn again where Kafka's tools could not take it.

    A text that begins with a dash would be read as an option on a command line, and the first uuids
    are reserved.
    """
    while True:
        uuid = UUID(bytes=random_bytes(), version=4)
        if uuid.int >= RESERVED_UUIDS and not uuid_text(uuid).startswith("-"):
            return uuid

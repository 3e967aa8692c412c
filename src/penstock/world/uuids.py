"""Makes random uuids that Kafka can use. Both worlds share this rule."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from penstock.ids import RESERVED_UUIDS, uuid_text


def usable_uuid(random_bytes: Callable[[], bytes]) -> UUID:
    """Return a version 4 uuid made of 16 random bytes.

    Draw again if the uuid is reserved, or if its text begins with a dash, which Kafka's command
    line tools would read as an option.
    """
    while True:
        uuid = UUID(bytes=random_bytes(), version=4)
        if uuid.int >= RESERVED_UUIDS and not uuid_text(uuid).startswith("-"):
            return uuid

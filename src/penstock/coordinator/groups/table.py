"""The state of one shard: its groups and their offsets. PURE.

Everything that decides gets this, and changes it while it decides; `Turn` gathers what goes out.
`deadlines` are those of classic groups; consumer groups have their own in `consumer_deadlines`, so
that neither kind need know the other's keys.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from penstock.coordinator.groups.group import Group
from penstock.coordinator.groups.settings import GroupSettings
from penstock.coordinator.offsets.committed import Offsets
from penstock.coordinator.runtime.deadlines import Deadlines
from penstock.metadata.image import MetadataImage

# Kinds of deadlines of classic groups. A key is the kind, the group and, for a session, the member.
SESSION = "session"
JOIN = "join"
SYNC = "sync"

ClassicDeadline = tuple[str, str, str]


class Groups:
    __slots__ = (
        "by_id",
        "consumer_deadlines",
        "deadlines",
        "image",
        "new_uuid",
        "offsets",
        "settings",
    )

    def __init__(
        self, settings: GroupSettings, image: MetadataImage, new_uuid: Callable[[], UUID]
    ) -> None:
        self.settings = settings
        self.image = image
        self.new_uuid = new_uuid
        self.by_id: dict[str, Group] = {}
        self.offsets = Offsets()
        self.deadlines: Deadlines[ClassicDeadline] = Deadlines()
        self.consumer_deadlines: Deadlines[tuple[str, ...]] = Deadlines()

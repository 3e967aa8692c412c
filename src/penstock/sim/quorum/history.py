"""What a run of the quorum has seen anywhere, ever, and what of it may not be (invariants 16 and
17)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.metadata.image import BROKER, MetadataImage
from penstock.sim.log.model import Broken

# Whose settings the run writes.
RESOURCE = (BROKER, "1")


@dataclass(slots=True)
class History:
    """What was seen anywhere, ever."""

    leaders: dict[int, str] = field(default_factory=dict)
    # The settings after the record at an offset, as a node had committed them.
    committed: dict[int, Mapping[str, str]] = field(default_factory=dict)
    acknowledged: list[str] = field(default_factory=list)

    def leads(self, node: str, epoch: int) -> bool:
        """Whether that is news."""
        is_new = epoch not in self.leaders
        other = self.leaders.setdefault(epoch, node)
        if other != node:
            raise Broken(f"{other} and {node} both lead epoch {epoch} (invariant 16)")
        return is_new

    def applied(self, node: str, image: MetadataImage) -> None:
        settings = image.configs.get(RESOURCE, {})
        before = self.committed.setdefault(image.offset, settings)
        if before != settings:
            raise Broken(
                f"{node} committed something else up to offset {image.offset} than was committed "
                "before (invariant 17)"
            )

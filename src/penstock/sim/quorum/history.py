"""The history of a quorum run: what its nodes report, checked as it arrives. The observers and
checkers of cluster runs look inside the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.metadata.image import BROKER, MetadataImage
from penstock.sim.cluster.checkers import quorum
from penstock.sim.cluster.history import Checker
from penstock.sim.cluster.history import History as ObservedHistory
from penstock.sim.harness import InvariantViolated

# The resource whose settings the run writes.
RESOURCE = (BROKER, "1")

CHECKERS: tuple[tuple[int, Checker], ...] = (
    (16, quorum.one_vote_per_epoch),
    (16, quorum.one_quorum_leader_per_epoch),
    (16, quorum.leaders_are_elected_by_the_newest_voters),
    (17, quorum.voters_change_one_at_a_time),
    (17, quorum.metadata_is_committed_by_a_majority),
    (17, quorum.metadata_agrees),
    (19, quorum.wiped_voters_do_not_vote),
)


@dataclass(slots=True)
class History:
    leaders: dict[int, str] = field(default_factory=dict)
    # Offset -> the settings after the record at this offset, as the first node committed them.
    committed: dict[int, Mapping[str, str]] = field(default_factory=dict)
    highest_offset: int = -1
    acknowledged: list[str] = field(default_factory=list)

    def add_leader(self, node: str, epoch: int) -> bool:
        """Return True if the epoch had no leader yet."""
        is_new = epoch not in self.leaders
        other = self.leaders.setdefault(epoch, node)
        if other != node:
            raise InvariantViolated(f"{other} and {node} both lead epoch {epoch} (rule 16)")
        return is_new

    def add_image(self, node: str, image: MetadataImage) -> None:
        settings = image.configs.get(RESOURCE, {})
        before = self.committed.setdefault(image.offset, settings)
        self.highest_offset = max(self.highest_offset, image.offset)
        if before != settings:
            raise InvariantViolated(
                f"{node} committed other settings up to offset {image.offset} than a node before "
                "it (rule 17)"
            )


def check(observed: ObservedHistory) -> None:
    """Raise InvariantViolated with the first rule that the observed events break."""
    violations = [
        (violation.at, rule, checker.__name__, violation.text)
        for rule, checker in CHECKERS
        for violation in checker(observed)
    ]
    if violations:
        at, rule, name, text = min(violations)
        raise InvariantViolated(f"at {at:.3f} s: rule {rule}, {name}: {text}")

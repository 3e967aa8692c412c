"""The delta between two images, compared at once."""

from __future__ import annotations

from penstock.metadata.image import MetadataDelta, MetadataImage, delta_steps


def delta_between(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    steps = delta_steps(before, after)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            delta: MetadataDelta = end.value
            return delta

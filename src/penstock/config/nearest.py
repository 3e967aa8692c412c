"""What a misspelt name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence to append to a refusal; empty where nothing known comes near. Names longer than
    any setting's are not compared."""
    near = (
        difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75) if len(name) <= 100 else []
    )
    return f" Did you mean {near[0]}?" if near else ""

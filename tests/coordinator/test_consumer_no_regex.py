"""Without RE2 expressions are refused, never tried with an engine that backtracks."""

from __future__ import annotations

import pytest

from penstock.coordinator import regex
from penstock.errors import ErrorCode, KafkaError


def test_without_re2_expressions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex, "_re2", lambda: None)
    regex.compiled.cache_clear()
    with pytest.raises(KafkaError, match="google-re2") as refused:
        regex.compiled("t.*")
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION

"""Create tests/protocol/fixtures/java-bytes.jsonl.gz: every version of every message, as encoded by
Apache Kafka (see WireBytes.java).

Run from the project's root: python -m tests.java.make_wire_bytes. The output is deterministic.
"""

from __future__ import annotations

import gzip
import sys

from tests.java.kafka_jars import ROOT, JavaError, compile_java, fetch_jars, run_java, say

TARGET = ROOT / "tests" / "protocol" / "fixtures" / "java-bytes.jsonl.gz"


def wire_bytes() -> str:
    classes = compile_java("WireBytes")
    return run_java("WireBytes", str(fetch_jars()), classes=classes)


def main() -> int:
    try:
        text = wire_bytes()
    except JavaError as error:
        say(f"make_wire_bytes: {error}")
        return 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    say(f"{TARGET.relative_to(ROOT)}: {text.count(chr(10))} samples, {TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

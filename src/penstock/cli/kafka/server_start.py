"""kafka-server-start.sh: start a node from its server.properties; -daemon in the background."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.cli.kafka import running_servers
from penstock.cli.kafka.options import Option, Options, Refused

_USAGE = "USAGE: {} [-daemon] server.properties [--override property=value]*"
_OPTIONS = {"override": Option("A setting that replaces the file's.", "String: property=value")}


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    if not words:
        print(_USAGE.format(sys.argv[0]))
        return 1
    daemon = words[0] == "-daemon"
    words = words[1:] if daemon else words
    if not words or words[0].startswith("-"):
        Options(_OPTIONS, words, _USAGE.format(sys.argv[0])).usage(_USAGE.format(sys.argv[0]))
    try:
        options = Options(_OPTIONS, words[1:] or ["-"], "")
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    overrides = dict(text.partition("=")[::2] for text in options.values("override"))
    if daemon and not _detach():
        return 0
    return _serve(Path(words[0]), overrides)


def _serve(file: Path, overrides: dict[str, str]) -> int:
    from penstock.cli.cluster.up import START_ERRORS, announce, reason_of, serve
    from penstock.cli.log_output import log_to
    from penstock.config.node import read_node_config
    from penstock.config.node_settings import PROCESS_ROLES

    try:
        config = read_node_config(file.read_bytes(), str(file), overrides)
        log_to(config, None)
        roles = config[PROCESS_ROLES]
        running_servers.register(config.node_id, ",".join(roles))
        serve(config, announce)
    except START_ERRORS as error:
        print(f"Exiting Kafka due to fatal exception: {reason_of(error)}", file=sys.stderr)
        return 1
    return 0


def _detach() -> bool:
    """Fork a daemon with its output in LOG_DIR/kafkaServer.out; return True in the daemon."""
    logs = Path(os.environ.get("LOG_DIR", "logs"))
    logs.mkdir(parents=True, exist_ok=True)
    output = os.open(logs / "kafkaServer.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    if os.fork():
        return False
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    return True

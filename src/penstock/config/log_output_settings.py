"""Settings of the node's own log. Kafka has log4j2.yaml in its place."""

from __future__ import annotations

from penstock.config.setting import Importance, Setting, SettingType
from penstock.config.validators import at_least, one_of

TEXT, JSON = "text", "json"

LOG_FORMAT = Setting(
    "penstock.log.format",
    SettingType.STRING,
    TEXT,
    Importance.LOW,
    "How the node writes its log: text, or json with one object a line.",
    one_of(TEXT, JSON),
)
LOG_RATE_LIMIT = Setting(
    "penstock.log.rate.limit",
    SettingType.INT,
    100,
    Importance.LOW,
    (
        "The most lines that one place in the code writes to the log in ten seconds. Further ones "
        "are left out and counted. 0: no limit."
    ),
    at_least(0),
)

"""Settings of client quotas. The quotas themselves are in the metadata (AlterClientQuotas)."""

from __future__ import annotations

from penstock.config.setting import Importance, Setting, SettingType
from penstock.config.validators import at_least

QUOTA_WINDOW_NUM = Setting(
    "quota.window.num",
    SettingType.INT,
    11,
    Importance.LOW,
    "The number of windows over which the rates of client quotas are measured.",
    at_least(1),
)
QUOTA_WINDOW_SIZE_SECONDS = Setting(
    "quota.window.size.seconds",
    SettingType.INT,
    1,
    Importance.LOW,
    "The length of each window of client quotas.",
    at_least(1),
)
CONTROLLER_QUOTA_WINDOW_NUM = Setting(
    "controller.quota.window.num",
    SettingType.INT,
    11,
    Importance.LOW,
    "The number of windows whose partitions a client may create or delete at once, within the "
    "quota controller_mutation_rate.",
    at_least(1),
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = Setting(
    "controller.quota.window.size.seconds",
    SettingType.INT,
    1,
    Importance.LOW,
    "The length of each window of the quota controller_mutation_rate.",
    at_least(1),
)

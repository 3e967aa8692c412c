"""Settings of a Kafka producer as options of ours. What is not among them tunes what is not
here."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cli.kafka.options import Refused

_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
# Setting -> option, and what the setting counts a unit of the option as.
_NUMBERS = {
    "batch.size": ("batch_bytes", 1),
    "buffer.memory": ("buffer_bytes", 1),
    "linger.ms": ("linger_s", 1000),
}


def producer_options(settings: Mapping[str, str]) -> dict[str, object]:
    from penstock.records.compression import Codec

    codecs = {one.name.lower(): one for one in Codec}
    codec, acks = settings.get("compression.type", "none"), settings.get("acks", "all")
    if codec not in codecs:
        raise Refused(f"Unknown compression name: {codec}")
    if acks not in _ACKS:
        raise Refused(
            f"Invalid value {acks} for configuration acks: String must be one of: all, -1, 0, 1"
        )
    chosen: dict[str, object] = {"codec": codecs[codec], "acks": _ACKS[acks]}
    for name, (option, scale) in _NUMBERS.items():
        if name in settings:
            if not settings[name].isdecimal():
                raise Refused(
                    f"Invalid value {settings[name]} for configuration {name}: Not a number"
                )
            chosen[option] = int(settings[name]) if scale == 1 else int(settings[name]) / scale
    return chosen

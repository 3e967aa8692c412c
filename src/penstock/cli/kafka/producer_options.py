"""Translate Kafka's producer properties to options of our producer.

Other properties configure parts that our producer does not have, and are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cli.kafka.options import Refused

_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
# Property -> option, and the number of the property's units in one of the option's.
_NUMBERS = {
    "batch.size": ("batch_bytes", 1),
    "buffer.memory": ("buffer_bytes", 1),
    "linger.ms": ("linger_s", 1000),
}


def producer_options(settings: Mapping[str, str]) -> dict[str, object]:
    from penstock.records.compression import Codec

    codecs = {codec.name.lower(): codec for codec in Codec}
    compression, acks = settings.get("compression.type", "none"), settings.get("acks", "all")
    if compression not in codecs:
        raise Refused(f"Unknown compression name: {compression}")
    if acks not in _ACKS:
        raise Refused(
            f"Invalid value {acks} for configuration acks: String must be one of: all, -1, 0, 1"
        )
    options: dict[str, object] = {"codec": codecs[compression], "acks": _ACKS[acks]}
    for name, (option, scale) in _NUMBERS.items():
        if name in settings:
            if not settings[name].isdecimal():
                raise Refused(
                    f"Invalid value {settings[name]} for configuration {name}: Not a number"
                )
            options[option] = int(settings[name]) if scale == 1 else int(settings[name]) / scale
    return options

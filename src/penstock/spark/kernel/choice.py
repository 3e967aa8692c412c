"""Which kernel this process uses, decided when it is imported."""

from __future__ import annotations

import logging

from penstock.spark.kernel import pure
from penstock.spark.kernel.interface import Kernel


def choose() -> Kernel:
    try:
        from penstock.spark.kernel import compiled
    except ImportError as error:
        logging.getLogger(__name__).warning(
            "penstock has no compiled decode kernel here (%s), so records are decoded in Python, "
            "some 40 times slower: "
            "install penstock where there is a C compiler, or from a wheel that has it",
            error,
        )
        return pure
    return compiled


kernel = choose()

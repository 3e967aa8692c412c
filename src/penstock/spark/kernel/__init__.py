"""Conversion between Kafka record batches and Arrow columns.

columns.py    per batch: framing, CRC, compression, aborted transactions
interface.py  the Kernel protocol: the work per record
compiled.py   the kernel in C (native/, built as _native)
pure.py       the kernel in Python, used where the C one was not built
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.kernel.interface import Kernel


def load_kernel() -> Kernel:
    """Return the compiled kernel, or the one in Python if it was not built."""
    try:
        from penstock.spark.kernel import compiled
    except ImportError as error:
        from penstock.spark.kernel import pure

        logging.getLogger(__name__).warning(
            "penstock was installed without its compiled decode kernel (%s); records are decoded "
            "in Python, about 40 times slower. Install penstock where a C compiler is available, "
            "or from a wheel that contains the kernel",
            error,
        )
        return pure
    return compiled

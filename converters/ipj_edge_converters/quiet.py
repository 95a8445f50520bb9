"""Keep third-party exporters quiet: our stdout belongs to the command line's tables and JSON."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Send prints to stderr, ignore Python warnings and hold these loggers to errors inside the block.

    The warnings of exporters speak to their developers (deprecated calls inside torch, optional packages).
    What a user has to know about a conversion we measure and report ourselves.
    """
    levels = {name: logging.getLogger(name).level for name in loggers}
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in loggers:
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)

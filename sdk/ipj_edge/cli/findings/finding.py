"""One thing ``ipj-edge doctor`` looked at."""

from __future__ import annotations

from typing import Literal

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and how to mend it."""

    subject: str
    state: Literal["ok", "note", "missing"]
    detail: str
    fix: str = ""

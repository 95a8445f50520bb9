"""Where a source came from."""

from __future__ import annotations

import msgspec

from ipj_edge.values import Precision


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Kind of source, default name of bundles, file name (no path), hash, and precision it is stored in."""

    kind: str
    name: str
    file: str
    sha256: str
    precision: Precision = "fp32"

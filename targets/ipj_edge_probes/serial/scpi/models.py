"""Which words each SCPI instrument has for power, by its answer to ``*IDN?``.

``MEAS:POW?`` is not universal: Rigol DP800 and Siglent SPD supplies know ``MEAS:POWE?`` only (the short form of
``POWEr`` is ``POWE``), and some supplies have no question for power at all.
"""

from __future__ import annotations

import re
from enum import Enum

import msgspec

from ipj_edge.values import Boundary


class ScpiKind(Enum):
    """How an instrument gives energy."""

    INTEGRATOR = "adds up energy itself"
    POWER = "is asked for power"
    VOLTS_AND_AMPS = "is asked for volts, then for amperes"


class ScpiModel(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an instrument.

    Attributes:
        pattern: Matches its answer to ``*IDN?``.
        kind: How it gives energy.
        power: Question for power; ``{channel}`` stands for the channel.
        volts: Question for volts.
        amps: Question for amperes.
        channel: Channel unless the user selects another.
        boundary: What its figures cover.
        accuracy: Relative error the maker states for power; None where none is stated.
    """

    pattern: str
    kind: ScpiKind
    power: str = ""
    volts: str = "MEAS:VOLT?"
    amps: str = "MEAS:CURR?"
    channel: str = ""
    boundary: Boundary = "board"
    accuracy: float | None = None


_VOLTS, _AMPS = "MEAS:VOLT? {channel}", "MEAS:CURR? {channel}"

MODELS = (
    ScpiModel(
        pattern=r"YOKOGAWA,WT3", kind=ScpiKind.INTEGRATOR, channel="1", boundary="wall", accuracy=0.0015
    ),  # ±0.15 % basic power of the WT300E at 50/60 Hz
    ScpiModel(pattern=r"RIGOL.*,DL3", kind=ScpiKind.POWER, power=":MEAS:POW?"),
    ScpiModel(
        pattern=r"RIGOL.*,DP",
        kind=ScpiKind.POWER,
        power=":MEAS:POWE? {channel}",
        channel="CH1",
        volts=_VOLTS,
        amps=_AMPS,
    ),
    ScpiModel(pattern=r"SIGLENT.*,SDL", kind=ScpiKind.POWER, power="MEAS:POW?"),
    ScpiModel(
        pattern=r"SIGLENT.*,SPD",
        kind=ScpiKind.POWER,
        power="MEAS:POWE? {channel}",
        channel="CH1",
        volts=_VOLTS,
        amps=_AMPS,
    ),
    ScpiModel(
        pattern=r"(AGILENT|KEYSIGHT).*,N67",
        kind=ScpiKind.POWER,
        power="MEAS:POW? (@{channel})",
        volts="MEAS:VOLT? (@{channel})",
        amps="MEAS:CURR? (@{channel})",
        channel="1",
    ),
    ScpiModel(pattern=r"(AGILENT|KEYSIGHT|HEWLETT-PACKARD).*,E36", kind=ScpiKind.VOLTS_AND_AMPS),
    ScpiModel(pattern=r"ITECH", kind=ScpiKind.POWER, power="MEAS:POW?"),
)
UNKNOWN = ScpiModel(pattern="", kind=ScpiKind.VOLTS_AND_AMPS)


def find_model(identity: str) -> ScpiModel:
    """Return the entry for an answer to ``*IDN?``; one that asks for volts and amperes when there is none."""
    return next((model for model in MODELS if re.match(model.pattern, identity, re.IGNORECASE)), UNKNOWN)

"""The 130-byte record of the RuiDeng UM24C, UM25C and UM34C USB meters.

Layout: rdserialtool ``rdserial/um/__init__.py`` and libsigrok ``src/hardware/rdtech-um/protocol.c``.
"""

from __future__ import annotations

import struct
from functools import reduce
from operator import xor

import msgspec

FRAME_BYTES = 130
CLOSING = b"\xff\xf1"
# The UM34C closes with the XOR of these bytes.
UM34C_SUMMED = (
    *(1, 3, 7, 9, 15, 17, 19, 23, 31, 39, 41, 45, 49, 53, 55, 57, 59, 63, 67, 69, 73, 79, 83, 89, 97, 99),
    *(109, 111, 113, 119, 121, 127),
)


class UmModel(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between the models.

    Attributes:
        name: Name of the model.
        volts: Volts of one step.
        amps: Amperes of one step.
    """

    name: str
    volts: float
    amps: float


MODELS = {
    0x0963: UmModel(name="UM24C", volts=0.01, amps=0.001),
    0x09C9: UmModel(name="UM25C", volts=0.001, amps=0.0001),
    0x0D4C: UmModel(name="UM34C", volts=0.01, amps=0.001),
}


class UmRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one record says.

    Attributes:
        model: Name of the model.
        voltage_v: Supply voltage in volts.
        current_a: Current in amperes.
        power_w: Power in watts, as the meter works it out.
    """

    model: str
    voltage_v: float
    current_a: float
    power_w: float


def find_record(received: bytes) -> tuple[UmRecord | None, bytes]:
    """Return the first record in what was received, or None, and the bytes to keep for the next try.

    A record begins at a model id and must close as its model closes and agree with itself (power against volts
    times amperes); else the search goes on one byte further.
    """
    for start in range(len(received) - 1):
        if int.from_bytes(received[start : start + 2], "big") not in MODELS:
            continue
        frame = received[start : start + FRAME_BYTES]
        if len(frame) < FRAME_BYTES:
            return None, received[start:]
        if _closes(frame) and _agrees(record := parse_record(frame)):
            return record, received[start + FRAME_BYTES :]
    return None, received[-1:]


def parse_record(frame: bytes) -> UmRecord:
    """Decode a record of 130 bytes, or the first 10 of them, without checking it."""
    model = MODELS[int.from_bytes(frame[:2], "big")]
    volts, amps, milliwatts = struct.unpack_from(">HHI", frame, 2)
    return UmRecord(
        model=model.name,
        voltage_v=volts * model.volts,
        current_a=amps * model.amps,
        power_w=milliwatts / 1000,
    )


def closing(frame: bytes) -> bytes:
    """Return the last two bytes a record must have, given the ones before them."""
    if frame[:2] == b"\x0d\x4c":
        return frame[128:129] + bytes((reduce(xor, (frame[n] for n in UM34C_SUMMED)),))
    return CLOSING


def _closes(frame: bytes) -> bool:
    return frame[128:] == closing(frame)


def _agrees(record: UmRecord) -> bool:
    """Say whether power is volts times amperes within what rounding explains."""
    model = next(model for model in MODELS.values() if model.name == record.model)
    rounding_w = record.voltage_v * model.amps + record.current_a * model.volts + 0.002
    return abs(record.power_w - record.voltage_v * record.current_a) <= rounding_w

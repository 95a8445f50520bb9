"""Command lines of the emulators: the load, and one option for each fault."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any

from ipj_edge_probes.serial.emulation.profile import Profile, constant, parse_steps


def parse(description: str, faults: type[Any], argv: Sequence[str] | None, *, current_a: float) -> tuple[Profile, Any]:
    """Read the command line of an emulator.

    Args:
        description: First line of its help.
        faults: Dataclass of the faults it has; every field becomes an option of its name.
        argv: Arguments; None for those of the program.
        current_a: Current drawn unless the user says another.

    Returns:
        The load and an instance of faults.
    """
    parser = argparse.ArgumentParser(description=description)
    load = parser.add_mutually_exclusive_group()
    load.add_argument("--current-a", type=float, default=current_a, help="constant current in amperes")
    load.add_argument("--steps", type=parse_steps, help="current over time, e.g. 0:0.010,2.5:0.050 (s:A)")
    for field in dataclasses.fields(faults):
        flag = "--" + field.name.replace("_", "-")
        if field.default is False:
            parser.add_argument(flag, action="store_true", help="fault")
        else:
            kind = type(field.default) if field.default is not None else float
            parser.add_argument(flag, type=kind, default=field.default, help=f"fault (default {field.default})")
    arguments = parser.parse_args(argv)
    chosen = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(faults)}
    return arguments.steps or constant(arguments.current_a), faults(**chosen)

"""Which operators of a bundle run on an accelerator and which on the host: a small file beside the engine's."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from ipj_edge.bundles.folder import read_inside
from ipj_edge.errors import BundleError

PLACEMENT_NAME = "placement.json"


class OperatorPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """Where one operator runs.

    Attributes:
        name: Name of the first tensor it makes.
        type: The engine's name of the operator.
        accelerated: Whether the accelerator runs it; the host does otherwise.
        reason: Why the host runs it; empty otherwise.
        macs: Multiply-accumulates of one sample; None where there is no formula.
        at_border: Whether it only converts a number at the model's inputs or outputs.
        subgraph: Number, from 1, of the subgraph it is in, or would form on an accelerator that runs several; None
            where the accelerator does not know the operator.
    """

    name: str
    type: str
    accelerated: bool
    reason: str = ""
    macs: int | None = None
    at_border: bool = False
    subgraph: int | None = None


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where the operators of a file run.

    Attributes:
        found_by: ``compiler`` when the accelerator's compiler decided it, ``table`` when it is predicted from the
            vendor's published table of operators.
        compiler: Name and version of the compiler; empty without one.
        operators: Every operator in the order of the file.
        subgraphs: Parts of the model that the accelerator runs; None when that is not known.
        on_chip_bytes: Weights held in the accelerator's own memory; None when that is not known.
        off_chip_bytes: Weights sent to the accelerator in every inference; None when that is not known.
    """

    found_by: Literal["compiler", "table"]
    compiler: str = ""
    operators: tuple[OperatorPlacement, ...]
    subgraphs: int | None = None
    on_chip_bytes: int | None = None
    off_chip_bytes: int | None = None

    def share(self) -> float:
        """Return the share of operators that the accelerator runs; conversions at the border do not count."""
        inner = [each for each in self.operators if not each.at_border]
        return sum(each.accelerated for each in inner) / len(inner) if inner else 0.0

    def left_out(self) -> tuple[OperatorPlacement, ...]:
        """Return the operators that the host runs; conversions at the border do not count."""
        return tuple(each for each in self.operators if not each.accelerated and not each.at_border)

    def in_further_subgraphs(self) -> int:
        """Return how many operators the accelerator knows and leaves to the host, for they follow a break."""
        return sum((each.subgraph or 0) > 1 for each in self.left_out())

    def macs_share(self) -> float | None:
        """Return the share of multiply-accumulates that the accelerator does; None when they were not counted."""
        if any(each.macs is None for each in self.operators):
            return None
        total = sum(each.macs or 0 for each in self.operators)
        return sum(each.macs or 0 for each in self.operators if each.accelerated) / total if total else None


def write_placement(folder: Path, placement: Placement) -> None:
    """Write the placement into a bundle's folder."""
    text = msgspec.json.format(msgspec.json.encode(placement), indent=1)
    (folder / PLACEMENT_NAME).write_bytes(text + b"\n")


def read_placement(folder: Path) -> Placement | None:
    """Return the placement recorded in a bundle's folder, or None where there is none.

    Raises:
        BundleError: it cannot be read.
    """
    file = folder / PLACEMENT_NAME
    try:
        return msgspec.json.decode(read_inside(folder, PLACEMENT_NAME), type=Placement)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{file} cannot be read: {error}") from error

"""Arrays over a pipe between two of our own processes: a JSON header, then the bytes of each array. No pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ipj_edge.protocols import Array


def send(pipe: Connection, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Send facts (anything JSON can hold) and arrays by name."""
    described = [(name, array.dtype.name, array.shape) for name, array in arrays.items()]
    pipe.send_bytes(json.dumps({"facts": dict(facts), "arrays": described}).encode())
    for array in arrays.values():
        # An empty message is told apart from a closed pipe by its length alone: send one byte more than the array.
        pipe.send_bytes(np.ascontiguousarray(array).tobytes() + b".")


def receive(pipe: Connection) -> tuple[dict[str, Any], dict[str, Array]]:
    """Receive what `send` sent.

    Raises:
        EOFError: the other side is gone.
    """
    header = json.loads(pipe.recv_bytes())
    arrays = {
        name: np.frombuffer(pipe.recv_bytes()[:-1], dtype=dtype).reshape(shape)
        for name, dtype, shape in header["arrays"]
    }
    return header["facts"], arrays

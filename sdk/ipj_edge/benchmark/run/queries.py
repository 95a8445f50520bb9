"""The queries a bench rotates through: different inputs, so that no cache or branch predictor learns one by heart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ipj_edge.protocols import Array
from ipj_edge.samples.data import Samples
from ipj_edge.values import TensorSpec

Query = dict[str, Array]

# Fewer different inputs than this are worth a warning.
LEAST = 8
_MOST = 256
_MOST_BYTES = 64 << 20


def make_queries(samples: Samples, specs: Sequence[TensorSpec], size: int) -> list[Query]:
    """Return queries of some samples each, spread evenly over the data; where it ends, it begins again.

    Args:
        samples: The data.
        specs: The model's inputs.
        size: Samples of a query.

    Returns:
        At most 256 queries and 64 MiB, but as many as `LEAST` whatever they weigh; contiguous arrays.
    """
    count = _how_many(samples, specs, size)
    starts = np.linspace(0, samples.count, count, endpoint=False).astype(int)
    return [_query(samples, specs, int(start), size) for start in starts]


def different_inputs(samples: Samples) -> int:
    """Return how many different samples there are, counted no further than `LEAST`."""
    seen = {_fingerprint(samples, index) for index in range(min(samples.count, 4 * LEAST))}
    return min(len(seen), LEAST)


def _how_many(samples: Samples, specs: Sequence[TensorSpec], size: int) -> int:
    sample_bytes = sum(samples.arrays[spec.name].nbytes for spec in specs) / samples.count
    affordable = int(_MOST_BYTES / max(1.0, size * sample_bytes))
    return min(samples.count, _MOST, max(LEAST, affordable))


def _query(samples: Samples, specs: Sequence[TensorSpec], start: int, size: int) -> Query:
    if start + size <= samples.count:
        rows = samples.rows(specs, start, start + size)
        return {name: np.ascontiguousarray(value) for name, value in rows.items()}
    picked = np.arange(start, start + size) % samples.count
    return {
        spec.name: samples.arrays[spec.name] if spec.batch_axis is None else samples.arrays[spec.name][picked]
        for spec in specs
    }


def _fingerprint(samples: Samples, index: int) -> int:
    # A sample is row `index` of every array that has as many rows as there are samples.
    rows = [array[index].tobytes() for array in samples.arrays.values() if array.ndim and len(array) == samples.count]
    return hash(tuple(rows))

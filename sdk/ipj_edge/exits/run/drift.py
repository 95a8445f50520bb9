"""Watch the shares of exits at run time: a certificate holds for data like those it was tested on, no others."""

from __future__ import annotations

from collections.abc import Sequence

from ipj_edge.errors import ConfigError
from ipj_edge.exits.binomial import binomial_cdf, binomial_tail, share_bounds

BLOCK = 1000
ALPHA = 1e-6


class ExitShares:
    """Counts exits and compares them with the certified shares, a block of samples at a time.

    The last block (a sudden change) and all samples so far (a small one) must lie within the binomial band around what
    the certified shares can be, given that they were themselves counted on few samples. A band of one minus a
    millionth on every comparison keeps a device that runs for years from crying wolf.

    Args:
        certified: Test samples that left at each exit, the last included.
        block: Samples between two comparisons.
        alpha: Chance of a false warning of one comparison of one exit.

    Attributes:
        counts: Samples that left at each exit so far.

    Raises:
        ConfigError: no certified samples.
    """

    def __init__(self, certified: Sequence[int], *, block: int = BLOCK, alpha: float = ALPHA) -> None:
        n = sum(certified)
        if n < 1:
            raise ConfigError("no certified shares to compare with: tune the exits first")
        self.counts = [0] * len(certified)
        self._certified = tuple(count / n for count in certified)
        self._bands = tuple(share_bounds(count, n, alpha / 2) for count in certified)
        self._block, self._alpha = block, alpha
        self._checked = [0] * len(certified)
        self._left = block
        self._warned = False

    @property
    def total(self) -> int:
        """Samples counted so far."""
        return sum(self.counts)

    @property
    def shares(self) -> tuple[float, ...] | None:
        """Share of each exit so far; None before the first sample."""
        total = self.total
        return tuple(count / total for count in self.counts) if total else None

    def add(self, exit_index: int) -> str | None:
        """Count one sample that left at an exit.

        Returns:
            A warning when the shares have left their band, once; else None.
        """
        self.counts[exit_index] += 1
        self._left -= 1
        return None if self._left > 0 else self._compare()

    def add_batch(self, leavers: Sequence[int]) -> str | None:
        """Count a batch by the samples that left at each exit, the last included; see `add`."""
        for exit_index, samples in enumerate(leavers):
            self.counts[exit_index] += samples
        self._left -= sum(leavers)
        return None if self._left > 0 else self._compare()

    def _compare(self) -> str | None:
        block = [now - then for now, then in zip(self.counts, self._checked, strict=True)]
        self._checked, self._left = list(self.counts), self._block
        if self._warned:
            return None
        for counts in (block, self.counts):
            for exit_index, count in enumerate(counts):
                if self._outside(exit_index, count, sum(counts)):
                    self._warned = True
                    return self._warning(exit_index, count, sum(counts))
        return None

    def _outside(self, exit_index: int, count: int, total: int) -> bool:
        low, high = self._bands[exit_index]
        limit = self._alpha / 4
        return binomial_cdf(count, total, low) < limit or binomial_tail(count, total, high) < limit

    def _warning(self, exit_index: int, count: int, total: int) -> str:
        low, high = self._bands[exit_index]
        return (
            f"exit {exit_index} answered {100 * count / total:.1f} % of {total} samples; it was "
            f"{100 * self._certified[exit_index]:.1f} % (between {100 * low:.1f} and {100 * high:.1f} %) when the "
            "exits were tuned: these data differ, and the certificate does not cover them; tune again on such data"
        )

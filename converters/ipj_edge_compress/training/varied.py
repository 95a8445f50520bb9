"""Images that are never quite the same: shifted, mirrored and mixed anew in every pass."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import numpy as np
import torch

from ipj_edge.errors import ConfigError, DataError
from ipj_edge.protocols import Array
from ipj_edge_compress.training.batches import TrainingBatch


class Variation(msgspec.Struct, frozen=True, kw_only=True):
    """How images vary.

    Attributes:
        shift: They move by up to this many pixels each way.
        mirror: Half of them are mirrored left to right.
        mix: Each takes up to this share, 0 to 0.5, of another one of its batch; its label stays. It is for teachers,
            who answer to what is there (Zhang et al. 2018, "mixup"; Beyer et al. 2022, "A good teacher is patient and
            consistent").
        patch: This share of them, 0 to 1, gets a rectangle, up to half of it, of another one instead; its label stays
            (Yun et al. 2019, "CutMix").
        margin: What comes in at the edge, one value or one a channel, e.g. that of black.
    """

    shift: int = 0
    mirror: bool = False
    mix: float = 0.0
    patch: float = 0.0
    margin: float | tuple[float, ...] = 0.0

    def __post_init__(self) -> None:
        if self.shift < 0 or not 0 <= self.mix <= 0.5 or not 0 <= self.patch <= 1:
            raise ConfigError(
                f"shift is at least 0, mix 0 to 0.5, patch 0 to 1; got {self.shift}, {self.mix:g} and {self.patch:g}"
            )


class VariedImages:
    """Batches of images (n, channels, height, width), varied by what depends on the seed and the epoch alone.

    Attributes:
        epoch: Set it before each pass; the images of epoch k are always the same.
        varied: True: a teacher's answers to these are not worth keeping.
    """

    varied = True

    def __init__(
        self, images: Array | torch.Tensor, targets: Array | torch.Tensor, how: Variation, *, size: int, seed: int = 0
    ) -> None:
        """Hold the images.

        Args:
            images: Shape (n, channels, height, width).
            targets: Labels (n,).
            how: How they vary.
            size: Samples a batch; the last may be smaller.
            seed: Seed of everything random.

        Raises:
            DataError: no images, or not as many targets.
            ConfigError: a margin for another number of channels.
        """
        self._images, self._targets = torch.as_tensor(images), torch.as_tensor(targets)
        shape = tuple(self._images.shape)
        if len(shape) != 4 or len(self._images) != len(self._targets) or not shape[0] or size < 1:
            raise DataError(
                f"images of shape {shape}, {len(self._targets)} targets, batches of {size}: expected "
                "(n, channels, height, width), as many targets, at least one, and a size of at least 1"
            )
        self._how, self._size, self._seed = how, size, seed
        self._margin = torch.as_tensor(how.margin, dtype=self._images.dtype).reshape(-1, 1, 1)
        if len(self._margin) not in (1, shape[1]):
            raise ConfigError(f"margin is one value or one a channel, got {len(self._margin)} for {shape[1]} channels")
        self.epoch = 0

    def __len__(self) -> int:
        return math.ceil(len(self._images) / self._size)

    def __iter__(self) -> Iterator[TrainingBatch]:
        random = np.random.default_rng([self._seed, self.epoch])
        for rows in torch.from_numpy(random.permutation(len(self._images))).split(self._size):
            yield self._vary(self._images[rows], random), self._targets[rows]

    def _vary(self, images: torch.Tensor, random: np.random.Generator) -> torch.Tensor:
        count = len(images)
        if self._how.shift:
            images = self._shifted(images, random)
        if self._how.mirror:
            turned = torch.from_numpy(random.random(count) < 0.5).reshape(-1, 1, 1, 1)
            images = torch.where(turned, images.flip(-1), images)
        if self._how.mix or self._how.patch:
            share = torch.from_numpy(random.uniform(0, self._how.mix, count)).to(images.dtype).reshape(-1, 1, 1, 1)
            others = images[torch.from_numpy(random.permutation(count))]
            patched = torch.where(self._rectangles(images.shape, random), others, images)
            chosen = torch.from_numpy(random.random(count) < self._how.patch).reshape(-1, 1, 1, 1)
            images = torch.where(chosen, patched, torch.lerp(images, others, share))
        return images

    def _rectangles(self, shape: torch.Size, random: np.random.Generator) -> torch.Tensor:
        """Return where the other image shows: shape (n, 1, height, width), at most half of each image."""
        within = torch.ones(shape[0], 1, 1, 1, dtype=torch.bool)
        side = np.sqrt(random.uniform(0, 0.5, shape[0]))
        for axis in (2, 3):
            extent = np.floor(side * shape[axis])
            start = np.floor(random.random(shape[0]) * (shape[axis] - extent + 1))
            places = np.arange(shape[axis])
            inside = (places >= start[:, None]) & (places < (start + extent)[:, None])
            within = within & torch.from_numpy(inside).reshape(shape[0], 1, *((-1, 1) if axis == 2 else (1, -1)))
        return within

    def _shifted(self, images: torch.Tensor, random: np.random.Generator) -> torch.Tensor:
        count, channels, height, width = images.shape
        by = self._how.shift
        wide = self._margin.expand(count, channels, height + 2 * by, width + 2 * by).clone()
        wide[:, :, by : by + height, by : by + width] = images
        down, right = torch.from_numpy(random.integers(0, 2 * by + 1, (2, count)))
        places = wide.unfold(2, height, 1).unfold(3, width, 1)
        return places[torch.arange(count), :, down, right]

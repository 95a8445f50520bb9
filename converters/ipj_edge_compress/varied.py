"""Images that are never quite the same: shifted, mirrored and mixed anew in every pass."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from ipj_edge.errors import ConfigError, DataError
from ipj_edge.protocols import Array
from ipj_edge_compress.batches import Batch


class VariedImages:
    """Batches of images (n, channels, height, width), varied by what depends on the seed and the epoch alone.

    Attributes:
        epoch: Set it before each pass; the images of epoch k are always the same.
        varied: True: a teacher's answers to these are not worth keeping.
    """

    varied = True

    def __init__(
        self,
        images: Array | torch.Tensor,
        targets: Array | torch.Tensor,
        *,
        size: int,
        seed: int = 0,
        shift: int = 0,
        mirror: bool = False,
        mix: float = 0.0,
        margin: float | Sequence[float] = 0.0,
    ) -> None:
        """Hold the images.

        Args:
            images: Shape (n, channels, height, width).
            targets: Labels (n,).
            size: Samples a batch; the last may be smaller.
            seed: Seed of everything random.
            shift: Images move by up to this many pixels each way.
            mirror: Half of the images are mirrored left to right.
            mix: Each image takes up to this share, 0 to 0.5, of another one of its batch; its label stays. It is for
                teachers, who answer to what is there (Zhang et al. 2018, "mixup"; Beyer et al. 2022, "A good teacher
                is patient and consistent").
            margin: What comes in at the edge, one value or one a channel, e.g. that of black.

        Raises:
            DataError: no images, or not as many targets.
            ConfigError: a shift or share out of range.
        """
        self._images, self._targets = torch.as_tensor(images), torch.as_tensor(targets)
        if self._images.ndim != 4 or len(self._images) != len(self._targets) or not len(self._images):
            raise DataError(
                f"images of shape {tuple(self._images.shape)} and {len(self._targets)} targets: "
                "expected (n, channels, height, width) and as many targets, at least one"
            )
        if shift < 0 or not 0 <= mix <= 0.5 or size < 1:
            raise ConfigError(f"shift is at least 0, mix 0 to 0.5, size at least 1; got {shift}, {mix:g} and {size}")
        self._size, self._seed, self._shift, self._mirror, self._mix = size, seed, shift, mirror, mix
        self._margin = torch.as_tensor(margin, dtype=self._images.dtype).reshape(-1, 1, 1)
        if len(self._margin) not in (1, self._images.shape[1]):
            raise ConfigError(f"margin is one value or one a channel, got {len(self._margin)}")
        self.epoch = 0

    def __len__(self) -> int:
        return math.ceil(len(self._images) / self._size)

    def __iter__(self) -> Iterator[Batch]:
        random = np.random.default_rng([self._seed, self.epoch])
        for rows in torch.from_numpy(random.permutation(len(self._images))).split(self._size):
            yield self._vary(self._images[rows], random), self._targets[rows]

    def _vary(self, images: torch.Tensor, random: np.random.Generator) -> torch.Tensor:
        count = len(images)
        if self._shift:
            images = self._shifted(images, random)
        if self._mirror:
            turned = torch.from_numpy(random.random(count) < 0.5).reshape(-1, 1, 1, 1)
            images = torch.where(turned, images.flip(-1), images)
        if self._mix:
            share = torch.from_numpy(random.uniform(0, self._mix, count)).to(images.dtype).reshape(-1, 1, 1, 1)
            images = torch.lerp(images, images[torch.from_numpy(random.permutation(count))], share)
        return images

    def _shifted(self, images: torch.Tensor, random: np.random.Generator) -> torch.Tensor:
        count, channels, height, width = images.shape
        by = self._shift
        wide = self._margin.expand(count, channels, height + 2 * by, width + 2 * by).clone()
        wide[:, :, by : by + height, by : by + width] = images
        down, right = torch.from_numpy(random.integers(0, 2 * by + 1, (2, count)))
        places = wide.unfold(2, height, 1).unfold(3, width, 1)
        return places[torch.arange(count), :, down, right]

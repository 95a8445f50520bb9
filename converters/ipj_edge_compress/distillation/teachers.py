"""A teacher's answers, computed once for each sample and kept on disk."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ipj_edge.errors import DataError, DestinationError
from ipj_edge.protocols import Array
from ipj_edge.writing import replacing
from ipj_edge_compress.training.batches import Batches, to_device
from ipj_edge_compress.training.losses import logits_of
from ipj_edge_compress.training.modes import evaluating

_MOST_SAMPLES = 500_000


class TeacherAnswers:
    """Logits of a frozen teacher by sample; a sample is known by its bytes, in whatever batch and order it comes.

    Attributes:
        hits: Samples whose answer was there.
        misses: Samples the teacher had to run on.
    """

    def __init__(self, teacher: nn.Module, path: Path | None = None) -> None:
        """Hold a teacher and read the answers it gave before.

        Args:
            teacher: Any module; it is put into evaluation mode when it runs and never trained.
            path: ``.npz`` file to keep the answers in; answers of another teacher in it are forgotten.

        Raises:
            DataError: the file is there and cannot be read.
        """
        self.teacher, self.hits, self.misses = teacher, 0, 0
        self._path, self._identity = path, fingerprint(teacher)
        self._known: dict[bytes, Array] = {}
        if path is not None and path.exists():
            self._read(path)

    def __call__(self, inputs: tuple[Any, ...]) -> torch.Tensor:
        """Return the teacher's logits for a batch, shape (n, classes)."""
        keys = sample_keys(inputs)
        found = [self._known.get(key) for key in keys]
        if any(answer is None for answer in found):
            # The whole batch, so that the last bits do not depend on what was known before.
            return self._ask(inputs, keys)
        self.hits += len(keys)
        return torch.from_numpy(np.stack([one for one in found if one is not None])).to(_device(inputs))

    def fill(self, batches: Batches) -> None:
        """Run the teacher over all batches and keep the answers.

        Raises:
            DestinationError: the file cannot be written.
        """
        device = next(self.teacher.parameters()).device
        for batch in batches:
            inputs, _ = to_device(batch, device)
            self(inputs)
        self.save()

    def save(self) -> None:
        """Write the answers, whole or not at all.

        Raises:
            DestinationError: the file cannot be written.
        """
        if self._path is None or not self._known:
            return
        keys = np.frombuffer(b"".join(self._known), dtype=np.uint8).reshape(len(self._known), -1)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DestinationError(f"cannot write {self._path}: {error.strerror}") from error
        with replacing(self._path) as stream:
            np.savez(stream, teacher=self._identity, keys=keys, logits=np.stack(list(self._known.values())))

    def fresh(self, inputs: tuple[Any, ...]) -> torch.Tensor:
        """Return the teacher's logits for a batch that will not come again: nothing is kept."""
        self.misses += len(inputs[0])
        with evaluating(self.teacher):
            return logits_of(self.teacher(*inputs))[-1].float()

    def _ask(self, inputs: tuple[Any, ...], keys: list[bytes]) -> torch.Tensor:
        logits = self.fresh(inputs)
        if len(self._known) < _MOST_SAMPLES:
            self._known |= dict(zip(keys, logits.cpu().numpy(), strict=True))
        return logits

    def _read(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as file:
                if str(file["teacher"]) == self._identity:
                    keys = [row.tobytes() for row in file["keys"]]
                    self._known = dict(zip(keys, file["logits"], strict=True))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
            raise DataError(f"{path} cannot be read as a teacher's answers: remove it") from error


def fingerprint(module: nn.Module) -> str:
    """Return a hash of a module's class, weights and buffers."""
    digest = hashlib.blake2b(f"{type(module).__module__}.{type(module).__qualname__}".encode(), digest_size=16)
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def sample_keys(inputs: tuple[Any, ...]) -> list[bytes]:
    """Return a 16-byte hash of each sample in a batch."""
    arrays = [np.ascontiguousarray(tensor.detach().cpu().numpy()) for tensor in inputs]
    return [
        hashlib.blake2b(b"".join(array[row].tobytes() for array in arrays), digest_size=16).digest()
        for row in range(len(arrays[0]))
    ]


def _device(inputs: tuple[Any, ...]) -> torch.device:
    return inputs[0].device

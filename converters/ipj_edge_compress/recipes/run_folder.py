"""The folder of a run: what was done is kept after each step, so that a killed run goes on where it was."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch
from torch import nn

from ipj_edge.errors import ConfigError, DestinationError, SourceError, typed_line
from ipj_edge.values import ActivationRange
from ipj_edge.writing import DRAFTS, write_file
from ipj_edge_compress.cost.ledger import StepEntry
from ipj_edge_compress.errors import TrainingError
from ipj_edge_compress.training.checkpoints import save_atomically


class RunFolder:
    """A folder with the results of a run, and ``state/`` for what a resumed run needs.

    Modules in ``state/`` are pickles of the user's own classes: a run folder is trusted as its recipe is.
    """

    def __init__(self, root: Path, identity: str) -> None:
        """Take the folder for a recipe.

        Args:
            root: The folder; made if it is not there.
            identity: Digest of the recipe and its data.

        Raises:
            ConfigError: it holds the run of another recipe.
            DestinationError: it cannot be written.
        """
        self.root, self.state = root, root / "state"
        try:
            self.state.mkdir(parents=True, exist_ok=True)
            for left in (*root.glob(DRAFTS), *self.state.glob(DRAFTS)):
                left.unlink()  # of a run that was killed while it wrote
            mark = self.state / "recipe.sha256"
            if not mark.exists():
                if any(path.name != "state" for path in root.iterdir()):
                    raise DestinationError(f"{root} is not empty and no run of ours: give an empty folder")
                write_file(mark, identity)
        except OSError as error:
            raise DestinationError(f"cannot write {root}: {error.strerror}") from error
        if mark.read_text() != identity:
            raise ConfigError(
                f"{root} holds the run of another recipe, or its data changed: give another folder, or remove it"
            )

    def entry(self, step: int) -> StepEntry | None:
        """Return the ledger's entry of a finished step; None for one that is to be done."""
        path = self.state / f"step_{step}.json"
        return msgspec.json.decode(path.read_bytes(), type=StepEntry) if path.exists() else None

    def finish(self, step: int, module: nn.Module, entry: StepEntry) -> None:
        """Keep a finished step: its model, then, as the mark that it is done, its entry."""
        self.save_module(f"step_{step}", module)
        write_file(self.state / f"step_{step}.json", msgspec.json.encode(entry))
        for path in self.state.glob(f"step_{step}_*"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def once(self, name: str, make: Callable[[], nn.Module]) -> nn.Module:
        """Return a model made before, else make and keep it: what was measured or random is not decided twice."""
        if not (self.state / f"{name}.pt").exists():
            self.save_module(name, make())
        return self.load_module(name)

    def save_module(self, name: str, module: nn.Module) -> None:
        """Keep a model.

        Raises:
            SourceError: its class cannot be pickled.
            DestinationError: it cannot be written.
        """
        try:
            save_atomically(module, self.state / f"{name}.pt")
        except (AttributeError, TypeError, LookupError) as error:
            raise SourceError(f"the model cannot be kept ({error}): define its classes at the top of a file") from error
        except Exception as error:
            if isinstance(error, DestinationError):
                raise
            raise SourceError(f"the model cannot be kept: {typed_line(error)}") from error

    def load_module(self, name: str) -> nn.Module:
        """Return a model kept before.

        Raises:
            TrainingError: its file is damaged.
        """
        path = self.state / f"{name}.pt"
        try:
            return torch.load(path, map_location="cpu", weights_only=False)
        except Exception as error:  # a damaged pickle fails anywhere
            raise TrainingError(f"{path} cannot be read: remove {self.root} to start over") from error

    def keep_ranges(self, ranges: tuple[ActivationRange, ...]) -> None:
        """Keep the trained ranges of the last step."""
        write_file(self.state / "ranges.json", msgspec.json.encode(ranges))

    def ranges(self) -> tuple[ActivationRange, ...]:
        """Return the trained ranges; empty where nothing was trained for int8."""
        path = self.state / "ranges.json"
        return msgspec.json.decode(path.read_bytes(), type=tuple[ActivationRange, ...]) if path.exists() else ()


def identity_of(files: list[Path]) -> str:
    """Return a digest over the bytes of files."""
    whole = hashlib.sha256()
    for path in files:
        try:
            whole.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    return whole.hexdigest()

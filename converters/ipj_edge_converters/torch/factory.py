"""Factories: ``file.py:callable`` or ``package.module:callable``, called without arguments for an ``nn.Module``.

A factory is the user's own program and is trusted as such: importing it runs it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from ipj_edge.errors import SourceError
from ipj_edge.plugins import needs

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_][\w.]*")


def looks_like_factory(location: str) -> bool:
    """Say whether a location has the form of a factory, or of a Python file that lacks its callable."""
    return ".py:" in location or location.endswith(".py") or _DOTTED.fullmatch(location) is not None


class Factory:
    """A factory that has been imported.

    Attributes:
        location: As the user wrote it.
        file: The Python file it stands in.
        attribute: Name of the callable.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        place, _, self.attribute = location.rpartition(":")
        if not place or location.endswith(".py"):
            raise SourceError(f"'{location}' names no callable: write {location}:build for its function build()")
        self._place = place
        with _users_code(self._folder(), location):
            module = self._import()
        self.file = Path(module.__file__ or place)
        self._callable = _find(module, self.attribute, location)

    def build(self) -> Any:
        """Call the factory and return its ``nn.Module`` in evaluation mode.

        The random seed is set to 0 for the call, so that weights which nothing else decides are always the same.

        Raises:
            SourceError: the factory raised (the message has the user's traceback), wants arguments, or returns
                something else.
        """
        with needs("convert"):
            import torch
        if isinstance(self._callable, torch.nn.Module):
            return self._callable.eval()
        _refuse_arguments(self._callable, self.location)
        with _users_code(self._folder(), self.location), torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            module = self._callable()
        if not isinstance(module, torch.nn.Module):
            raise SourceError(f"'{self.location}' returned {type(module).__name__}; expected a torch.nn.Module")
        return module.eval()

    def sha256_of(self, weights: Path | None) -> str:
        """Hash what defines the source: the factory's file, its callable's name and the weights file."""
        digest = hashlib.sha256()
        digest.update(hashlib.sha256(self.file.read_bytes()).digest())
        digest.update(hashlib.sha256(self.attribute.encode()).digest())
        if weights is not None:
            digest.update(hashlib.sha256(weights.read_bytes()).digest())
        return digest.hexdigest()

    def _folder(self) -> Path:
        """Return the folder that the user's imports start from: the file's own, or the working directory."""
        return Path(self._place).resolve().parent if self._place.endswith(".py") else Path.cwd()

    def _import(self) -> ModuleType:
        if not self._place.endswith(".py"):
            return importlib.import_module(self._place)
        path = Path(self._place)
        if not path.is_file():
            raise SourceError(f"no file '{self._place}'")
        # A name of our own: the user's file may be called like an installed package (torch.py, model.py).
        name = f"_ipj_edge_factory_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path.resolve())
        if spec is None or spec.loader is None:
            raise SourceError(f"'{self._place}' cannot be read as a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module


@contextlib.contextmanager
def _users_code(folder: Path, location: str) -> Iterator[None]:
    """Run the user's code: its imports start at ``folder``, it prints to stderr, its errors show as its own."""
    sys.path.insert(0, str(folder))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except SourceError:
        raise
    except SystemExit as error:
        raise SourceError(f"'{location}' called sys.exit({error.code}) instead of returning a model") from error
    except Exception as error:
        raise SourceError(f"'{location}' raised:\n{_users_traceback(error)}") from error
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def _users_traceback(error: BaseException) -> str:
    """Format a traceback without our own frames and the import system's."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and _is_ours(frames):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames, chain=False)).rstrip()


def _is_ours(frames: TracebackType) -> bool:
    file = frames.tb_frame.f_code.co_filename
    return file.startswith("<frozen importlib") or file in (__file__, contextlib.__file__, importlib.__file__)


def _find(module: ModuleType, attribute: str, location: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if callable(found):
        return found
    own = [name for name, value in vars(module).items() if _defined_in(value, module) and not name.startswith("_")]
    known = f"; it defines {', '.join(own)}" if own else ""
    raise SourceError(f"'{location}': there is no callable '{attribute}' there{known}")


def _defined_in(value: object, module: ModuleType) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module.__name__


def _refuse_arguments(factory: Any, location: str) -> None:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return  # builtins do not say what they take; calling them will
    fixed = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    needed = [item.name for item in parameters if item.default is inspect.Parameter.empty and item.kind in fixed]
    if needed:
        raise SourceError(f"'{location}' needs arguments ({', '.join(needed)}): name a function without arguments")

"""The plugin behind ``ipj-edge compress``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ipj_edge.plugins import needs
from ipj_edge.protocols import RecipeRunner


class CompressRunner:
    """Runs recipes with the functions of this package."""

    name = "compress"

    def run(self, recipe: Path, into: Path, progress: Callable[[str], None]) -> dict[str, Any]:
        """Run a recipe and return its report; see `ipj_edge_compress.recipes.runner.run_recipe`."""
        with needs("compress"):
            from ipj_edge_compress.recipes.runner import run_recipe
        return dict(msgspec.to_builtins(run_recipe(recipe, into, progress=progress)))


_: type[RecipeRunner] = CompressRunner

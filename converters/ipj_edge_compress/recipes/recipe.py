"""Recipes: what to do to a model, as data."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Union

import msgspec

from ipj_edge.errors import ConfigError
from ipj_edge.toml_files import read_toml
from ipj_edge.units import hundredths
from ipj_edge_compress.distillation.distil import Teaching
from ipj_edge_compress.lowrank.factorise import LowRankPlan
from ipj_edge_compress.pruning.prune import PrunePlan
from ipj_edge_compress.training.plans import TrainPlan
from ipj_edge_compress.training.varied import Variation


class ModelTable(msgspec.Struct, frozen=True, kw_only=True):
    """``[model]``: a factory (``file.py:callable``) and, perhaps, weights to start from."""

    factory: str
    weights: str | None = None


class DataTable(msgspec.Struct, frozen=True, kw_only=True):
    """``[data]``: ``.npz`` files with one input array and ``labels``.

    Attributes:
        train: Training data.
        val: Validation data: every accuracy of the report is on these.
        batch: Samples a batch.
        calibration_samples: Training samples that ranges of activations come from.
        vary: ``[data.vary]``: how training images vary in every pass.
    """

    train: str
    val: str
    batch: int = 64
    calibration_samples: int = 256
    vary: Variation | None = None


class TrainStep(TrainPlan, frozen=True, kw_only=True, tag_field="do", tag="train"):
    """``do = "train"``: from labels; everything a `TrainPlan` has can be said."""

    label_smoothing: float = 0.0


class DistilStep(TrainPlan, frozen=True, kw_only=True, tag_field="do", tag="distil"):
    """``do = "distil"``: from a teacher; everything a `TrainPlan` and a `Teaching` have can be said."""

    teacher: str
    teacher_weights: str | None = None
    temperature: float = 4.0
    alpha: float = 0.9
    features: dict[str, str] = msgspec.field(default_factory=dict)
    feature_weight: float = 1.0


_PRUNE_TARGETS = ("target_macs", "target_latency", "target_joules")


class PruneStep(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="prune"):
    """``do = "prune"``: see `PrunePlan`; afterwards the model from before teaches the pruned one.

    Attributes:
        target_macs: Share of the multiply-accumulates to keep; half of them where no target is given.
        target_latency: Share of the median latency to keep, measured on the target ``on``.
        target_joules: Share of the joules of an inference to keep, likewise.
        on: Target that latency or joules are measured on, one thread, fp32.
        features: See `Teaching`.
    """

    target_macs: float | None = None
    target_latency: float | None = None
    target_joules: float | None = None
    on: str = ""
    criterion: Literal["l1", "taylor", "bn"] = "l1"
    scope: Literal["global", "layer"] = "layer"
    round_to: int = 1
    largest_share: float = 0.9
    rounds: int = 1
    without: tuple[str, ...] = ()
    finetune_epochs: int = 5
    learning_rate: float = 1e-3
    schedule: Literal["cosine", "one-cycle", "constant"] = "cosine"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    temperature: float = 4.0
    alpha: float = 0.9
    features: dict[str, str] = {}
    feature_weight: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        given = [name for name in _PRUNE_TARGETS if getattr(self, name) is not None]
        if len(given) > 1:
            raise ConfigError(f"prune to one target at a time, got {' and '.join(given)}")
        measured = bool(given) and given[0] != "target_macs"
        if measured != bool(self.on):
            raise ConfigError(
                'on = "<target>" says where target_latency or target_joules is measured: give both or neither'
            )


class LowRankStep(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="lowrank"):
    """``do = "lowrank"``: see `LowRankPlan`; what the layers' inputs are like on the training data weighs the error."""

    energy: float = 0.99
    target_macs: float | None = None
    without: tuple[str, ...] = ()
    least_gain: float = 0.02
    finetune_epochs: int = 0
    learning_rate: float = 1e-4
    seed: int = 0


class ExitsStep(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="exits"):
    """``do = "exits"``: exits behind the modules named; the heads alone are trained unless ``jointly``."""

    at: tuple[str, ...]
    head: Literal["auto", "linear", "depthwise"] = "auto"
    jointly: bool = False
    epochs: int = 10
    learning_rate: float = 1e-3
    seed: int = 0


class QatStep(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="qat"):
    """``do = "qat"``: quantization-aware training; has to be the last step."""

    epochs: int = 3
    learning_rate: float = 1e-4
    seed: int = 0


Step = Union[TrainStep, DistilStep, PruneStep, LowRankStep, ExitsStep, QatStep]  # noqa: UP007 # msgspec needs it so


class GoalTable(msgspec.Struct, frozen=True, kw_only=True):
    """``[goal]``: largest drop of accuracy, e.g. ``"0.5pp"``, against the last model before anything was compressed."""

    max_accuracy_drop: str


class PaybackTable(msgspec.Struct, frozen=True, kw_only=True):
    """``[payback]``: the target whose joules per inference are compared, before and after."""

    target: str
    windows: int = 5
    window_s: float = 1.0


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe.

    Attributes:
        probe: Power probe that the energy of the steps is read on.
    """

    model: ModelTable
    data: DataTable
    step: tuple[Step, ...]
    goal: GoalTable | None = None
    payback: PaybackTable | None = None
    probe: str = "auto"


def load_recipe(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
        ConfigError: it cannot be read, a key is unknown (names the nearest known one), or steps are out of order.
    """
    recipe = read_toml(path, "recipe").to(Recipe)
    _check_order(recipe, path)
    return recipe


def allowed_drop(goal: GoalTable) -> float:
    """Return the drop allowed as a share: ``0.5pp`` is 0.005.

    Raises:
        ConfigError: without its unit, or out of range.
    """
    value = hundredths(goal.max_accuracy_drop, "pp")
    if value is None or not 0 <= value <= 1:
        raise ConfigError(
            f"max_accuracy_drop '{goal.max_accuracy_drop}': expected percentage points with their unit, e.g. 0.5pp"
        )
    return value


def train_plan(step: TrainPlan) -> TrainPlan:
    """Return how a step trains."""
    return TrainPlan(**{name: getattr(step, name) for name in TrainPlan.__struct_fields__})


def teaching(step: DistilStep | PruneStep) -> Teaching:
    """Return what a step's teacher teaches."""
    return Teaching(**{name: getattr(step, name) for name in Teaching.__struct_fields__})


def prune_plan(step: PruneStep) -> PrunePlan:
    """Return how a step prunes."""
    shared = {name: getattr(step, name) for name in PrunePlan.__struct_fields__ if hasattr(step, name)}
    targets = [getattr(step, name) for name in _PRUNE_TARGETS]
    return PrunePlan(target=next((one for one in targets if one is not None), 0.5), **shared)


def low_rank_plan(step: LowRankStep) -> LowRankPlan:
    """Return how a step factorises."""
    return LowRankPlan(**{name: getattr(step, name) for name in LowRankPlan.__struct_fields__})


def _check_order(recipe: Recipe, path: Path) -> None:
    if not recipe.step:
        raise ConfigError(f"{path} has no [[step]]")
    for index, step in enumerate(recipe.step[:-1]):
        if isinstance(step, QatStep):
            raise ConfigError(
                f"{path} step {index + 1}: qat has to be the last step, for others take weights off the grid"
            )
    if recipe.goal is not None:
        allowed_drop(recipe.goal)

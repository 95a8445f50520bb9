"""Recipes, run: every step in an energy window, kept when it is done, judged at the end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import msgspec
import torch
from torch import nn

import ipj_edge
from ipj_edge.energy import Meter
from ipj_edge.protocols import Array
from ipj_edge.values import Reading
from ipj_edge.writing import write_file
from ipj_edge_compress.cost.energy_account import EnergyAccount
from ipj_edge_compress.cost.ledger import REPORT_VERSION, Goal, Report, Standing, StepEntry, per_joule
from ipj_edge_compress.cost.payback import Payback
from ipj_edge_compress.cost.size import size_of
from ipj_edge_compress.errors import GoalError
from ipj_edge_compress.recipes.delivery import PROGRAM, deliver
from ipj_edge_compress.recipes.factories import build, import_place, read_arrays
from ipj_edge_compress.recipes.payback_measuring import measured_payback
from ipj_edge_compress.recipes.programs import export, input_name
from ipj_edge_compress.recipes.recipe import DataTable, DistilStep, Recipe, TrainStep, allowed_drop, load_recipe
from ipj_edge_compress.recipes.run_folder import RunFolder, identity_of
from ipj_edge_compress.recipes.steps import Bench, perform
from ipj_edge_compress.training.batches import ArrayBatches
from ipj_edge_compress.training.plans import EpochFigures
from ipj_edge_compress.training.scores import accuracies
from ipj_edge_compress.training.varied import VariedImages

Progress = Callable[[str], None]

REPORT = "report.json"


def run_recipe(path: Path, into: Path, *, progress: Progress = lambda _text: None) -> Report:
    """Run a recipe, or go on with one that was interrupted.

    Args:
        path: The recipe.
        into: Folder of the run.
        progress: Called with one line an epoch and a step.

    Raises:
        ConfigError: the recipe cannot be used, or the folder holds another run.
        GoalError: the goal was missed; everything was written all the same, the report says how far it came.
        IpjEdgeError: a step failed; steps that are done are kept.
    """
    recipe = load_recipe(path)
    return _Run(recipe, path, into, progress).run()


class _Run:
    """The state of one run."""

    def __init__(self, recipe: Recipe, path: Path, into: Path, progress: Progress) -> None:
        self.recipe, self.path, self.progress = recipe, path, progress
        data = [self._place(recipe.data.train), self._place(recipe.data.val)]
        weights = [self._place(recipe.model.weights)] if recipe.model.weights else []
        self.folder = RunFolder(into, identity_of([path, *data, *weights]))
        (inputs, labels), (val_inputs, val_labels) = (read_arrays(file) for file in data)
        self.inputs = inputs
        self.bench = Bench(
            train=_training(recipe.data, inputs, labels.astype("int64")),
            plain=ArrayBatches(inputs, labels.astype("int64"), size=recipe.data.batch, seed=0),
            probe=recipe.probe,
            val=ArrayBatches(val_inputs, val_labels.astype("int64"), size=256),
            example=torch.from_numpy(inputs[:2]),
            calibration=tuple(torch.from_numpy(self._calibration()).split(64)),
            folder=self.folder,
            place=self._place,
            progress=self._epoch_done,
        )
        self.doing = ""
        self.accounts: list[EnergyAccount] = []

    def run(self) -> Report:
        module = self._first_model()
        name = input_name(module)
        with Meter([self.recipe.probe]) as meter:
            self.accounts = [EnergyAccount(meter, "run", self.folder.state / "energy.json")]
            try:
                entries = [self._step(number, meter) for number in range(1, len(self.recipe.step) + 1)]
                module = self._model(len(entries))
                files = deliver(module, name, self._calibration(), self.folder.ranges(), self.folder.root)
            finally:
                spent = self.accounts[0].close()
        report = self._report(entries, spent, files, name)
        write_file(self.folder.root / REPORT, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
        if report.goal is not None and not report.goal.met:
            raise GoalError(f"{report.goal.reason}; the report is in {self.folder.root / REPORT}")
        return report

    def _first_model(self) -> nn.Module:
        """Return the model as the factory makes it; kept, so that every later step finds the same."""
        model = self.recipe.model
        import_place(model.factory.rpartition(":")[0])
        for step in self.recipe.step:
            if isinstance(step, DistilStep):
                import_place(step.teacher.rpartition(":")[0])
        weights = self._place(model.weights) if model.weights else None
        return self.folder.once("step_0", lambda: build(model.factory, weights))

    def _model(self, number: int) -> nn.Module:
        return self.folder.load_module(f"step_{number}")

    def _step(self, number: int, meter: Meter) -> StepEntry:
        """Do a step, or return the entry of one that is done."""
        step = self.recipe.step[number - 1]
        self.doing = f"step {number}/{len(self.recipe.step)} {step.__struct_config__.tag}"
        kept = self.folder.entry(number)
        if kept is not None:
            self.progress(f"{self.doing}: done before")
            return kept
        module = self._model(number - 1)
        before = self._standing(module)
        account = EnergyAccount(meter, self.doing, self.folder.state / f"step_{number}_energy.json")
        self.accounts.append(account)
        try:
            made, details, warnings = perform(step, number, module, self.bench)
        finally:
            self.accounts.remove(account)
            spent = account.close()
        after = self._standing(made)
        entry = StepEntry(
            do=str(step.__struct_config__.tag),
            before=before,
            after=after,
            energy=spent,
            accuracy_per_joule=per_joule(after.accuracy[-1], spent),
            details=details,
            warnings=warnings,
        )
        self.folder.finish(number, made, entry)
        self.accounts[0].lap()
        self.progress(f"{self.doing}: accuracy {before.accuracy[-1]:.4f} → {after.accuracy[-1]:.4f}, {spent}")
        return entry

    def _standing(self, module: nn.Module) -> Standing:
        return Standing(accuracy=tuple(accuracies(module, self.bench.val)), size=size_of(module, self.bench.example))

    def _epoch_done(self, epoch: int, epochs: int, figures: EpochFigures) -> None:
        spent = [account.lap() for account in self.accounts]
        score = "" if figures.score is None else f", accuracy {figures.score:.4f}"
        joules = "" if spent[-1].joules is None else f", {spent[-1].joules:.4g} J so far ({spent[-1].provenance})"
        self.progress(
            f"{self.doing}: epoch {epoch}/{epochs}, {figures.seconds:.1f} s, loss {figures.loss:.4f}{score}{joules}"
        )

    def _report(self, entries: list[StepEntry], spent: Reading, files: tuple[str, ...], name: str) -> Report:
        reached = entries[-1].after.accuracy[-1]
        return Report(
            version=REPORT_VERSION,
            created_with={"ipj-edge": ipj_edge.__version__, **_versions("torch", "torch-pruning", "numpy")},
            steps=tuple(entries),
            energy=spent,
            accuracy_per_joule=per_joule(reached, spent),
            goal=self._goal(entries),
            payback=self._payback(spent, name),
            files=files,
        )

    def _reference(self) -> int:
        """Return the number of the step after which nothing was compressed yet: 0 is the model as it came."""
        number = 0
        for step in self.recipe.step:
            if not isinstance(step, (TrainStep, DistilStep)):
                break
            number += 1
        return number

    def _goal(self, entries: list[StepEntry]) -> Goal | None:
        if self.recipe.goal is None:
            return None
        allowed, first = allowed_drop(self.recipe.goal), self._reference()
        reference = entries[first - 1].after.accuracy[-1] if first else entries[0].before.accuracy[-1]
        drops = [reference - entry.after.accuracy[-1] for entry in entries]
        met = drops[-1] <= allowed + 1e-12
        reason = "" if met else _why_missed(entries, drops, reference, allowed, first)
        return Goal(reference=reference, allowed_drop=allowed, drop=drops[-1], met=met, reason=reason)

    def _payback(self, spent: Reading, name: str) -> Payback | None:
        if self.recipe.payback is None:
            return None
        before = self.folder.state / "reference.pt2"
        export(self._model(self._reference()), name, self.bench.example, before)
        self.progress(f"payback: measuring both models on {self.recipe.payback.target}")
        return measured_payback(self.recipe, spent, before, self.folder.root / PROGRAM, self.folder)

    def _calibration(self) -> Array:
        return self.inputs[: self.recipe.data.calibration_samples]

    def _place(self, name: str) -> Path:
        """Return a file that the recipe names: in the working directory, else beside the recipe."""
        here = Path(name)
        return here if here.exists() else self.path.parent / name


def _training(table: DataTable, inputs: Array, labels: Array) -> ArrayBatches | VariedImages:
    if table.vary is None:
        return ArrayBatches(inputs, labels, size=table.batch, seed=0)
    return VariedImages(inputs, labels, table.vary, size=table.batch)


def _why_missed(entries: list[StepEntry], drops: list[float], reference: float, allowed: float, first: int) -> str:
    """Say which step lost more than allowed, and the best that was found."""
    lost = next(index for index, drop in enumerate(drops) if index >= first and drop > allowed + 1e-12)
    best = max(range(len(drops)), key=lambda index: -drops[index])
    kept = "no step kept to it" if lost == 0 else f"step {lost} ({entries[lost - 1].do}) still kept to it"
    return (
        f"goal missed: accuracy {entries[-1].after.accuracy[-1]:.4f} against {reference:.4f}, a drop of "
        f"{100 * drops[-1]:.2f}pp where {100 * allowed:g}pp is allowed; it was lost in step {lost + 1} "
        f"({entries[lost].do}), {kept}; best was {entries[best].after.accuracy[-1]:.4f} after step {best + 1}"
    )


def _versions(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        with suppress(ModuleNotFoundError):
            found[name] = version(name)
    return found

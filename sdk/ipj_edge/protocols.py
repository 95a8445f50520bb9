"""The contracts between the core and its plugins. Small Protocols; a new ability is a new Protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec
from numpy.typing import NDArray

from ipj_edge.bundles.file_report import FileReport
from ipj_edge.bundles.manifest import Bundle, OperatorCount, ProviderSpec, StageSpec, StateTensor
from ipj_edge.values import (
    Availability,
    Boundary,
    ConversionOptions,
    EffectiveSettings,
    Meaning,
    Port,
    Precision,
    ProbeFacts,
    ProbeOptions,
    Rail,
    Scheme,
    Settings,
    TensorSpec,
    TrainedRanges,
)

Array = NDArray[Any]
Feeds = Mapping[str, Array]


class SourceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the user said about a source.

    Attributes:
        location: ``file.py:callable``, ``package.module:callable`` or the path of a model file.
        weights: Weights file for a factory.
        inputs: Inputs as the user described them; empty where the source says it all.
        output_names: Names for the outputs, in order; empty keeps the source's own.
        workdir: Folder for intermediate files; lives as long as the source.
        max_batch: Largest batch a dynamic batch axis has to take.
        examples: Real inputs by name, where data are given as arrays: a setting among them says how large outputs are.
    """

    location: str
    weights: Path | None = None
    inputs: tuple[TensorSpec, ...] = ()
    output_names: tuple[str, ...] = ()
    workdir: Path
    max_batch: int = 32
    examples: dict[str, Any] = {}


class Source(Protocol):
    """An opened model.

    Attributes:
        kind: Kind of source, e.g. ``torch``.
        name: Default name of bundles made from it.
        file: File name (no path) recorded in manifests.
        sha256: Hash of the bytes that define it.
        precision: Precision it is stored in; int8 means it is already quantized.
        inputs: Inputs as callers give them.
        outputs: Outputs as callers get them, meanings not yet decided.
        forms: What converters can get from it: ``onnx`` (see `OnnxForm`), ``torch`` (see `TorchForm`), ``tflite``
            (see `TfliteForm`).
        versions: Tools that took part, by distribution name.
        notes: What a reader of the manifest has to know, e.g. why the batch is static.
    """

    kind: str
    name: str
    file: str
    sha256: str
    precision: Precision
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    forms: tuple[str, ...]
    versions: dict[str, str]
    notes: tuple[str, ...]

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run the model as it is and return its outputs by name: the reference for parity.

        Raises:
            SourceError: the model failed on these inputs.
        """

    def count(self) -> MacCount:
        """Count multiply-accumulates and weights for one sample."""


class MacCount(msgspec.Struct, frozen=True, kw_only=True):
    """Multiply-accumulates of one sample (None with a reason) and number of weights."""

    macs: int | None
    reason: str = ""
    parameters: int


class StagedModule(Protocol):
    """A torch module with several exits, as its author may write it; every output of its ``forward`` is an exit.

    Attributes:
        stages: The trunk, cut at the exits: one module an exit, in order of depth.
        heads: One module an exit, from its stage's features to what it answers.
    """

    stages: Any
    heads: Any


class OnnxForm(Protocol):
    """A source that can be had as a float (or already quantized) ONNX file."""

    def onnx_path(self) -> Path:
        """Return the path of an ONNX file whose input and output names are the source's."""


class TorchForm(Protocol):
    """A source that can be had as a torch module in evaluation mode."""

    def torch_module(self) -> Any:
        """Return an ``nn.Module`` that takes the inputs in order and returns a tuple of outputs."""


class TfliteForm(Protocol):
    """A source that can be had as a .tflite file whose first graph takes its inputs and makes its outputs."""

    def tflite_path(self) -> Path:
        """Return the path of the file; inputs and outputs have the source's names in its signature or tensors."""


@runtime_checkable
class SizedSource(Protocol):
    """A source that may take one size along its first axis only.

    Attributes:
        only_size: Why it takes no other size, in words; empty where any number of samples can be run.
    """

    only_size: str


@runtime_checkable
class RangedSource(Protocol):
    """A source whose training decided the activation ranges of int8 (None where it did not)."""

    ranges: TrainedRanges | None


@runtime_checkable
class StagedSource(Protocol):
    """A source that knows which of its outputs are exits: the model is cut there unless the user says where.

    Attributes:
        exits: Names of outputs, in any order; empty for a plain model.
    """

    exits: tuple[str, ...]


class SourceOpener(Protocol):
    """A plugin of group ``ipj_edge.sources``: recognises and opens one kind of source."""

    name: str

    def accepts(self, location: str) -> bool:
        """Say whether this location is of this kind, by its form alone (nothing is opened)."""

    def open(self, request: SourceRequest) -> Source:
        """Open a source.

        Raises:
            SourceError: missing, corrupt, or not what it says.
        """


class FileInspector(Protocol):
    """A plugin of group ``ipj_edge.inspectors``: reads what one kind of model file says of itself."""

    name: str

    def accepts(self, path: Path) -> bool:
        """Say whether a file is of this kind, by its name alone (nothing is opened)."""

    def inspect(self, path: Path) -> FileReport:
        """Read a file without running it.

        Raises:
            SourceError: missing, corrupt, or not what its name says.
        """


class ConversionTask(msgspec.Struct, frozen=True, kw_only=True):
    """One conversion a plugin is asked for.

    Attributes:
        source: The opened source.
        target: Name of the target.
        precision: Precision wanted.
        calibration: Arrays by input name, first axis = samples; None for a float conversion.
        into: Empty folder to write the engine's files to.
        options: How to convert; what means nothing at this precision is left at its default.
    """

    source: Source
    target: str
    precision: Precision
    calibration: dict[str, Any] | None
    into: Path
    options: ConversionOptions = ConversionOptions()


class StageCut(msgspec.Struct, frozen=True, kw_only=True):
    """One stage, cut out of a model's file and written.

    Attributes:
        name: ``stage1`` for the first.
        file: Its file, relative to the folder that was written to.
        takes: Tensors it takes from the pool: inputs of the model, and what earlier stages added.
        adds: Tensors it adds to the pool: its exit first, then what later stages take.
        exit_output: The output of the model it answers with.
        macs: Multiply-accumulates for one sample; None with a reason.
        macs_reason: Why macs is None.
        parameters: Number of weights in its file.
        operators: What was read back from its file.
    """

    name: str
    file: str
    takes: tuple[Port, ...]
    adds: tuple[Port, ...]
    exit_output: str
    macs: int | None
    macs_reason: str = ""
    parameters: int
    operators: OperatorCount


class StageFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What a converter made.

    Attributes:
        file: Main file, relative to the folder it was asked to write to. Every file there belongs to it.
        takes: Inputs of the file, named as the source's inputs.
        adds: Outputs of the file, named as the source's outputs.
        static_batch: The only batch size the file takes; None when its batch axis is dynamic.
        operators: What was read back from the file.
        versions: Tools that took part, by distribution name.
        isa: Instruction set the quantization assumes; empty for none.
        opset: ONNX opset of the file; None where it does not apply.
        unreproducible: Files that may differ when the same conversion is done again.
        stages: The stages the file was cut into, by depth; empty when it was not cut. The file itself then computes
            the last exit alone.
        counted: Work and weights of the file itself where it was cut; None means those of the source.
        notes: What a reader of the manifest has to know.
        state: Tensors the file keeps from one inference to the next.
        proxy_file: File that a target's proxy runs in place of ``file``; None when it runs the same one.
        weights: Number of weights by dtype, read back from the file.
        providers: Execution providers the file is meant for, best first.
        scheme: How it was quantized by this converter; None when it quantized nothing.
    """

    file: str
    takes: tuple[Port, ...]
    adds: tuple[Port, ...]
    static_batch: int | None
    operators: OperatorCount
    versions: dict[str, str]
    isa: str = ""
    opset: int | None = None
    unreproducible: tuple[str, ...] = ()
    stages: tuple[StageCut, ...] = ()
    counted: MacCount | None = None
    notes: tuple[str, ...] = ()
    state: tuple[StateTensor, ...] = ()
    proxy_file: str | None = None
    weights: dict[str, int] = {}
    providers: tuple[ProviderSpec, ...] = ()
    scheme: Scheme | None = None


class Converter(Protocol):
    """A plugin of group ``ipj_edge.converters``: turns one form of source into one target's files.

    Attributes:
        name: Name of the plugin.
        form: The form of source it takes, see `Source.forms`.
        targets: Targets it makes files for.
        precisions: Precisions it can make.
    """

    name: str
    form: str
    targets: tuple[str, ...]
    precisions: tuple[Precision, ...]

    def convert(self, task: ConversionTask) -> StageFiles:
        """Convert, write into ``task.into`` and read back what was written.

        Raises:
            UnsupportedError: the target cannot express an operator; names it.
            ConversionError: the conversion failed for another reason.
        """


@runtime_checkable
class ChoosesOperators(Protocol):
    """A converter that also heeds the options ``scheme`` and ``keep_float``; others quantize statically, everything.

    Attributes:
        schemes: Ways to quantize that it knows.
    """

    schemes: tuple[Scheme, ...]


@runtime_checkable
class MapsOperators(Protocol):
    """A converter that also heeds the option ``min_mapped``: it says where operators run, and refuses too few.

    Attributes:
        maps_to: The accelerator's name, for messages.
    """

    maps_to: str


@runtime_checkable
class ChoosesProviders(Protocol):
    """A converter that also heeds the options ``providers`` and ``half_io``.

    Attributes:
        providers: Short names of the execution providers it knows, e.g. ``cuda``.
    """

    providers: tuple[str, ...]


@runtime_checkable
class HeedsOptions(Protocol):
    """A converter that heeds further options, which have no Protocol of their own.

    Attributes:
        heeds: Names of fields of `ConversionOptions`.
    """

    heeds: tuple[str, ...]


class Session(Protocol):
    """A loaded stage on a target. One caller at a time.

    Attributes:
        stage: The stage as its manifest describes it.
        effective: How it really runs.
    """

    stage: StageSpec
    effective: EffectiveSettings

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run one inference on engine tensors (dtype and shape as in ``stage.takes``), by pool name.

        The arrays returned may be views of engine memory, valid until the next call.
        """

    def clone(self) -> Session:
        """Return a session that may run beside this one and shares its weights where the engine can."""

    def close(self) -> None:
        """Release the engine's memory. Calling twice is allowed."""


@runtime_checkable
class Resettable(Protocol):
    """A session that can set back what it keeps from one inference to the next."""

    def reset(self) -> None:
        """Set every state tensor back to what it is after loading."""


@runtime_checkable
class Adopting(Protocol):
    """A session that can read another session's output where it lies."""

    def adopt(self, feeds: Feeds) -> None:
        """Take the memory of these arrays as inputs of their shapes: a run given the very same arrays copies nothing.

        The arrays must stay where they are for as long as the session is used. A run given other arrays of the same
        shapes still copies, into that memory.
        """


class Target(Protocol):
    """A plugin of group ``ipj_edge.targets``: an engine on hardware.

    Attributes:
        name: Name of the target.
        engine: Distribution that brings the engine.
        precisions: Precisions it runs.
        boundaries: Energy boundaries that see its work, best first.
    """

    name: str
    engine: str
    precisions: tuple[Precision, ...]
    boundaries: tuple[Boundary, ...]

    def availability(self) -> Availability:
        """Say whether the engine works here, without loading a model."""

    def open(self, bundle: Bundle, settings: Settings) -> tuple[Session, ...]:
        """Load every stage of a bundle.

        Raises:
            MissingDependencyError: the engine is not installed.
            TargetUnavailableError: a setting cannot be had as requested and no fall-back is allowed.
            BundleError: the engine refuses the file.
        """


@runtime_checkable
class ChecksFiles(Protocol):
    """A target that loads sealed copies of a bundle's files (`ipj_edge.bundles.sealed_files.seal_file`).

    It checks the hash of what it loads, so that nobody has to hash the files before it does.

    Attributes:
        checks_files: True; what a target's sessions are made of is then not hashed a second time.
    """

    checks_files: bool


@runtime_checkable
class HasProxy(Protocol):
    """A target whose bundles another one can prove where it cannot run itself.

    Attributes:
        proxy: Name of the target that stands in; None for none.
    """

    proxy: str | None


class RecipeRunner(Protocol):
    """A plugin of group ``ipj_edge.recipe_runners``: does to a model, before conversion, what a recipe says."""

    name: str

    def run(self, recipe: Path, into: Path, progress: Callable[[str], None]) -> dict[str, Any]:
        """Run a recipe, or go on with one that was interrupted, and return its report as JSON values.

        Raises:
            ConfigError: the recipe cannot be used.
            IpjEdgeError: a step failed, or the goal was missed (exit code 5).
        """


@runtime_checkable
class EnergyCounter(Protocol):
    """A cumulative energy counter.

    Attributes:
        facts: What is known about its figures.
        rails: What it measures.
    """

    facts: ProbeFacts
    rails: tuple[Rail, ...]

    def read(self) -> tuple[float, dict[str, float]]:
        """Return (monotonic seconds, joules of every rail since the counter was opened, wraps undone).

        Raises:
            ProbeReadError: a rail cannot be read, or moved in a way that no wrap explains. Never 0 for unknown.
        """

    def close(self) -> None:
        """Release the sensor. Calling twice is allowed."""


@runtime_checkable
class PowerSampler(Protocol):
    """A sensor that gives power.

    Attributes:
        facts: What is known about its figures.
        rails: What it measures.
    """

    facts: ProbeFacts
    rails: tuple[Rail, ...]

    def start(self) -> None:
        """Begin to sample."""

    def drain(self) -> dict[str, tuple[Array, Array]]:
        """Return and forget the samples so far: per rail (monotonic seconds, watts), both float64 of shape (n,).

        Raises:
            ProbeReadError: the sensor failed.
            SampleLossError: samples were lost.
        """

    def stop(self) -> None:
        """End sampling and release the sensor. Calling twice is allowed."""


class PowerProbe(Protocol):
    """A plugin of group ``ipj_edge.power_probes``: finds and opens one kind of sensor."""

    name: str

    def availability(self, options: ProbeOptions) -> Availability:
        """Say whether the sensor can be read here and now; a refusal names its remedy."""

    def open(self, options: ProbeOptions) -> EnergyCounter | PowerSampler:
        """Open the sensor.

        Raises:
            ProbeUnavailableError: no such sensor, no permission, or nothing to read; says what to do.
        """


Scorer = Callable[[Sequence[Array]], Array]
"""From the outputs of the exits so far, oldest first, each of shape (n, …), to n scores in float64."""

RowScorer = Callable[[Sequence[Array]], float]
"""The same for n = 1, as a Python float."""


class ExitRule(Protocol):
    """A plugin of group ``ipj_edge.exit_rules``: says how sure a model is of each sample after each exit.

    A sample leaves at an exit when its score there is at least that exit's threshold. A sample whose outputs are no
    numbers must score NaN or −inf: it never leaves.

    Attributes:
        name: Name of the rule.
        meanings: What the outputs it can judge hold.
        looks_back: How many earlier exits' outputs it reads; None for all of them. Entries of older exits may be
            anything.
        parameters: Names of the numbers it takes for every exit; a missing one has the rule's default.
    """

    name: str
    meanings: tuple[Meaning, ...]
    looks_back: int | None
    parameters: tuple[str, ...]

    def bounds(self, exits: int) -> tuple[float, float]:
        """Return the smallest and largest score of a model with so many exits, ±inf included."""

    def bind(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> Scorer:
        """Return the scorer of one exit. The score of a sample may not depend on the other samples.

        Raises:
            ConfigError: a parameter is outside its range.
        """


@runtime_checkable
class RowExitRule(Protocol):
    """An exit rule that is quicker for one sample at a time."""

    def bind_row(self, exit_index: int, meaning: Meaning, parameters: Mapping[str, float]) -> RowScorer | None:
        """Return a scorer of one row, or None where there is no quicker way.

        Its scores may differ from those of `ExitRule.bind` by 1e-9: nearer to a threshold than that, the other decides.
        """

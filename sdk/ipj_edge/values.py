"""Frozen values that travel between the layers. They hold facts and no behaviour beyond reading them.

Quantities carry their unit in the name and are SI base units (``_s``, ``_j``, ``_w``, ``_bytes``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ipj_edge import limits

Precision = Literal["fp32", "fp16", "bf16", "int8"]
Provenance = Literal["measured", "vendor-modelled", "modelled", "mixed"]
Boundary = Literal["package", "dram", "gpu", "module", "rails", "board", "wall", "battery", "process"]
Meaning = Literal["logits", "probabilities", "other"]
Scheme = Literal["static", "dynamic"]
StagePrecision = Literal["fp32", "int8", "auto"]


class Quantization(msgspec.Struct, frozen=True, kw_only=True):
    """Affine quantization of a whole tensor: real = scale · (stored − zero_point)."""

    scale: float
    zero_point: int


class ActivationRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range trained for the activations at one place of a network.

    Attributes:
        name: Name of the place.
        low: Lower end that was trained, at most 0.
        high: Upper end that was trained, at least 0.
        seen_low: Smallest value that passes there on the calibration samples: by it and seen_high, and not by names
            that every converter changes, the place is found again in an engine's file.
        seen_high: Largest value that passes there.
    """

    name: str
    low: float
    high: float
    seen_low: float
    seen_high: float


class TrainedRanges(msgspec.Struct, frozen=True, kw_only=True):
    """Ranges that quantization-aware training gave a model, to be used instead of calibrated ones.

    Attributes:
        calibration_sha256: Digest of the samples of seen_low and seen_high (`ipj_edge.samples.data.digest`).
        activations: The ranges.
    """

    calibration_sha256: str
    activations: tuple[ActivationRange, ...]


class ConversionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is to be converted: one value, from the command line to the converter.

    A new option is a field here, an option of ``ipj-edge convert`` that hands over a parameter of the same name, and
    a converter that uses it and names it in ``heeds`` (`ipj_edge.protocols.HeedsOptions`); for every other converter
    asking for it is an error. Where the manifest has a field of its name, it is recorded there.

    Attributes:
        scheme: How to quantize int8: ``static`` (the default) or ``dynamic``; given without precisions it means int8.
        keep_float: Glob patterns of operators to keep in floating point, matched with what `inspect` lists.
        providers: Execution providers by their short names, best first; empty takes the target's default.
        min_mapped: Least share of operators the accelerator has to run, 0..1; None for all of them.
        half_io: Make inputs and outputs of fp16 files float16 inside the engine too.
        isa: Instruction set the device is known to have, e.g. ``avx2``; empty assumes VNNI for int8.
        ranges: Trained activation ranges for int8, used instead of calibrated ones where they are known; the
            calibration samples are then those they were recorded with. None takes the source's own, where it has any.
        split_at: Outputs that are exits, in any order: the model is cut into a stage for each. ``("exits",)`` takes
            all outputs; empty takes what the source itself calls exits.
        stage_precisions: Precision of every stage by depth, of int8 bundles with several exits; ``("auto",)`` measures
            which is cheaper here, stage by stage; empty = all int8.
    """

    scheme: Scheme | None = None
    keep_float: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    min_mapped: float | None = None
    half_io: bool = False
    isa: str = ""
    ranges: TrainedRanges | None = None
    split_at: tuple[str, ...] = ()
    stage_precisions: tuple[StagePrecision, ...] = ()

    @property
    def int8_scheme(self) -> Scheme:
        """How int8 is made: as asked for, else static."""
        return self.scheme or "static"


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An input or output as the caller of a model sees it: the source's layout and real values.

    Attributes:
        name: Name the caller uses.
        shape: Sizes; a dynamic size is its name, e.g. ``("batch", 3, 32, 32)``.
        dtype: numpy name of the dtype, e.g. ``float32``.
        batch_axis: Axis of the samples, or None for a tensor that has none (a scalar, a setting).
        layout: Axis letters such as ``NCHW`` where known.
        value_range: Smallest and largest value expected, inclusive. Whole numbers outside it are refused at run time.
        meaning: What an output holds; None for an input.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    batch_axis: int | None = 0
    layout: str | None = None
    value_range: tuple[float, float] | None = None
    meaning: Meaning | None = None


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that a stage takes from, or adds to, the pool of live tensors.

    Attributes:
        name: Name in the pool; a model's inputs and outputs keep their own names.
        engine_name: Name inside the engine's file.
        shape: Sizes inside the engine's file; a dynamic size is its name.
        dtype: numpy dtype of the engine's tensor.
        quantization: Set when the engine's tensor is an affine integer tensor of real values.
    """

    name: str
    engine_name: str
    shape: tuple[int | str, ...]
    dtype: str
    quantization: Quantization | None = None


class Preprocessing(msgspec.Struct, frozen=True, kw_only=True):
    """How an RGB image becomes a model's input: resize, crop, scale, normalise, order the channels.

    real = (pixel · scale − mean) / std, per channel in the model's channel order.

    Attributes:
        size: Height and width in pixels after resizing.
        resize: ``exact`` stretches to size; ``cover`` keeps the aspect ratio and crops the centre.
        channels: ``RGB``, ``BGR`` or ``L`` (one grey channel, ITU-R 601 luma).
        layout: ``NCHW`` or ``NHWC``.
        scale: Factor on 0..255 pixels.
        mean: One value a channel, subtracted after scaling.
        std: One value a channel, divided by last.
    """

    size: tuple[int, int]
    channels: Literal["RGB", "BGR", "L"] = "RGB"
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    resize: Literal["exact", "cover"] = "exact"
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How the caller wants a model to run.

    Attributes:
        threads: Inference threads; None means min(affinity, cgroup quota).
        spinning: Whether idle threads of the engine may spin; costs CPU time between inferences.
        allow_fallback: Accept effective settings that differ from these instead of raising.
        allow_out_of_range: Accept whole numbers outside the range an input declares.
    """

    threads: int | None = None
    spinning: bool = False
    allow_fallback: bool = False
    allow_out_of_range: bool = False

    def __post_init__(self) -> None:
        """Refuse a number of threads that no machine has."""
        limits.THREADS.check("threads", self.threads)


class EffectiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a session really runs, read back from the engine where it can be asked.

    Attributes:
        engine: Engine name.
        engine_version: Version string of the engine.
        threads: Threads the engine was given, or reports.
        execution_precision: Precision the engine computes in, e.g. ``f32``, ``bf16``, ``int8``.
        providers: Execution providers or delegates in use, in order.
        spinning: Whether idle threads spin; None where the engine has no such setting.
        affinity: Logical CPUs this process may use.
        cpu_quota: CPUs granted by the cgroup; None without a quota.
        read_back: Names of the fields above that the engine itself confirmed.
    """

    engine: str
    engine_version: str
    threads: int
    execution_precision: str
    providers: tuple[str, ...] = ()
    spinning: bool | None = None
    affinity: int
    cpu_quota: float | None = None
    read_back: tuple[str, ...] = ()


class Availability(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a plugin works here.

    Attributes:
        available: True when it can be used now.
        reason: Why it cannot, or what it found.
        fix: A command or step that would make it available; empty when there is none.
        version: Version of the engine or driver found.
    """

    available: bool
    reason: str = ""
    fix: str = ""
    version: str = ""


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


class ProbeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a power probe's figures before any is taken.

    Attributes:
        name: Name of the probe.
        boundary: What the joules cover.
        provenance: How they come about.
        update_interval_s: Seconds between two updates of the sensor.
        quantum_j: Smallest step of the energy figure, in joules; 0 where the sensor gives power.
        accuracy: Relative gain error, systematic (0.02 is ±2 %); None where the vendor states none.
        note: What a reader of the figure has to know, e.g. averaging or duty cycle.
        resolution_w: Smallest step of a power figure, in watts; 0 where it does not matter.
        heartbeat_s: Longest time a counter may go unread before a wrap could be missed; None for no limit.
    """

    name: str
    boundary: Boundary
    provenance: Provenance
    update_interval_s: float
    quantum_j: float = 0.0
    accuracy: float | None = None
    note: str = ""
    resolution_w: float = 0.0
    heartbeat_s: float | None = None


class Rail(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a probe measures.

    Attributes:
        name: Name of the rail, e.g. ``package-0``.
        boundary: What it covers.
        counted: False for a part of another rail ("of which"), which is shown and never added.
    """

    name: str
    boundary: Boundary
    counted: bool = True


class ProbeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may tell a power probe. A probe ignores what does not concern it.

    Attributes:
        sysfs_root: Where sysfs is mounted.
        port: Serial port of a meter, or a path the probe reads.
        voltage_v: Supply voltage, for meters that stream current only.
        select: A chip, channel or rail to use where there are several.
        core_power_w: Watts of a busy core, for the CPU-time model.
        idle_power_w: Watts of the idle machine, for the CPU-time model.
        search_path: Folders to look for programs in, as in PATH; None for this process's own.
        visible_devices: What CUDA_VISIBLE_DEVICES says; None when it is not set.
        device_order: What CUDA_DEVICE_ORDER says; None when it is not set.
    """

    sysfs_root: str = "/sys"
    port: str | None = None
    voltage_v: float | None = None
    select: str | None = None
    core_power_w: float | None = None
    idle_power_w: float | None = None
    search_path: str | None = None
    visible_devices: str | None = None
    device_order: str | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that are none, or out of range."""
        limits.VOLTAGE_V.check("the voltage", self.voltage_v)
        limits.POWER_W.check("the power of a core", self.core_power_w)
        limits.POWER_W.check("the idle power", self.idle_power_w)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Energy of one window: joules, or the reason why there are none. Never 0 for "unknown".

    Attributes:
        joules: Joules over the window; None when there is no figure to defend.
        reason: Why joules is None; empty otherwise.
        seconds: Length of the window in seconds (monotonic clock).
        provenance: How the joules come about; None where the probe could not even be opened: then nothing is known.
        boundary: What they cover; None likewise.
        low: Lower end of what is known of this one window, in joules; the gain error (accuracy) is included.
        high: Upper end, likewise.
        rails: Joules of each rail, the parts ("of which") included.
        coverage: Share of the window that samples cover; 1 for a counter.
    """

    joules: float | None
    reason: str = ""
    seconds: float
    provenance: Provenance | None
    boundary: Boundary | None
    probe: str
    update_interval_s: float
    quantum_j: float = 0.0
    accuracy: float | None = None
    low: float | None = None
    high: float | None = None
    rails: dict[str, float] = {}
    coverage: float = 1.0
    note: str = ""

    def __str__(self) -> str:
        """Return e.g. ``3.92 J ± 2 % (measured, package)``, or the reason why there are no joules."""
        if self.joules is None:
            return f"no joules ({self.probe}): {self.reason}"
        error = ""
        if self.low is not None and self.high is not None and self.joules > 0:
            error = f" ± {50 * (self.high - self.low) / self.joules:.2g} %"
        gain = "" if self.accuracy is not None else "; gain error not stated"
        return f"{_engineering(self.joules)}J{error} ({self.provenance}, {self.boundary}{gain})"


class NetEnergy(msgspec.Struct, frozen=True, kw_only=True):
    """Energy per inference above idle, in joules; value is None with a reason when it cannot be told."""

    value: float | None
    reason: str = ""
    low: float | None = None
    high: float | None = None
    idle_w: float | None = None


class EnergyPerInference(msgspec.Struct, frozen=True, kw_only=True):
    """Joules per inference over independent windows: gross first, net of idle second.

    Attributes:
        value: Mean joules per inference, or None with a reason.
        low: Lower end of the 95 % interval.
        high: Upper end of the 95 % interval.
        provenance: How the joules come about; None where the probe could not even be opened: then nothing is known.
        boundary: What they cover; None likewise.
        windows: Number of windows behind the figure.
        inferences: Inferences finished inside those windows.
    """

    value: float | None
    reason: str = ""
    low: float | None = None
    high: float | None = None
    net: NetEnergy | None = None
    provenance: Provenance | None
    boundary: Boundary | None
    probe: str
    windows: int
    inferences: int
    accuracy: float | None = None
    note: str = ""


def _engineering(value: float) -> str:
    """Return three significant digits and an SI prefix, the space before it included: ``3.92 m``."""
    for factor, prefix in ((1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")):
        if abs(value) >= 0.9995 * factor:
            return f"{_three_digits(value / factor)} {prefix}"
    return f"{value:.3g} "


def _three_digits(value: float) -> str:
    """Return a value below 1000 with three significant digits and no exponent."""
    places = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{places}f}"

"""Target ``openvino-cpu``: OpenVINO on the CPU, one inference at a time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ipj_edge.bundles.manifest import Bundle, StageSpec
from ipj_edge.errors import (
    InputError,
    IpjEdgeError,
    MissingDependencyError,
    TargetError,
    TargetUnavailableError,
    telling_line,
)
from ipj_edge.protocols import Array, Feeds, Session, Target
from ipj_edge.values import Availability, Boundary, EffectiveSettings, Port, Precision, Settings
from ipj_edge_targets.fallback import require_isa
from ipj_edge_targets.feeds import check_feeds
from ipj_edge_targets.openvino_programs import NOISE, CompiledForms, CompileRequest, import_openvino

_EXECUTION_PRECISION: Mapping[str, str] = {"fp32": "f32", "int8": "int8", "bf16": "bf16"}
_MAX_LANES = 16
_INT32 = np.iinfo(np.int32)

Shapes = tuple[tuple[int, ...], ...]


class OpenvinoCpu:
    """Runs OpenVINO IR on the CPU."""

    name = "openvino-cpu"
    engine = "openvino"
    precisions: tuple[Precision, ...] = ("fp32", "bf16", "int8")
    boundaries: tuple[Boundary, ...] = ("package", "board", "wall")
    checks_files = True

    def availability(self) -> Availability:
        """Say whether openvino is installed and finds a CPU it can use."""
        try:
            openvino = import_openvino()
        except MissingDependencyError as error:
            return Availability(available=False, reason=str(error), fix=f"pip install 'ipj-edge[{self.name}]'")
        found = openvino.get_version()
        if "CPU" not in openvino.Core().available_devices:
            return Availability(available=False, reason="openvino has no CPU plugin here", version=found)
        return Availability(available=True, version=found)

    def open(self, bundle: Bundle, settings: Settings) -> tuple[Session, ...]:
        """Load every stage of a bundle.

        Raises:
            MissingDependencyError: openvino is not installed.
            TargetUnavailableError: a setting cannot be had as requested and no fall-back is allowed.
            BundleError: openvino refuses a file.
        """
        precision = bundle.manifest.precision
        if precision not in self.precisions:
            raise TargetUnavailableError(f"'{self.name}' runs {', '.join(self.precisions)}, not {precision}")
        require_isa(bundle.manifest, settings)
        openvino = import_openvino()
        core, batch_names = openvino.Core(), _batch_names(bundle)
        sessions = []
        for stage in bundle.manifest.stages:
            request = CompileRequest(
                openvino=openvino,
                core=core,
                batch_names=batch_names,
                precision=_EXECUTION_PRECISION[stage.precision],
                settings=settings,
            )
            sessions.append(OpenvinoSession(stage, CompiledForms(request, bundle, stage)))
        return tuple(sessions)


def _batch_names(bundle: Bundle) -> frozenset[str]:
    named = (spec.shape[spec.batch_axis] for spec in bundle.manifest.inputs if spec.batch_axis is not None)
    return frozenset(size for size in named if isinstance(size, str))


class _Lane(NamedTuple):
    """A request whose input tensors are set once: filling them and calling ``infer`` is the fastest way.

    Attributes:
        infer: Runs the request in the calling thread (handing it to another one costs 10 µs more).
        inputs: Name and memory of every input.
        outputs: Name of every output and a call that returns its tensor.
        fixed: Memory of every output by name where it never moves: a program of fixed shape.
        request: The request.
    """

    infer: Any
    inputs: tuple[tuple[str, Array], ...]
    outputs: tuple[tuple[str, Any], ...]
    fixed: dict[str, Array] | None
    request: Any


class OpenvinoSession:
    """One stage in openvino, with a lane for every set of input shapes in use."""

    def __init__(self, stage: StageSpec, programs: CompiledForms) -> None:
        self.stage = stage
        self.effective: EffectiveSettings = programs.effective
        self._programs: CompiledForms | None = programs
        self._names = tuple(port.name for port in stage.takes)
        self._wide = tuple(port.name for port in stage.takes if port.dtype == "int64")
        self._lanes: dict[Shapes, _Lane] = {}

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run one inference on engine tensors, by pool name; the arrays returned are valid until the next call.

        Raises:
            InputError: an array is missing, its shape or dtype is not that of ``stage.takes``, or it holds whole
                numbers of more than 32 bits.
            TargetError: the session is closed, or the engine failed.
        """
        try:
            shapes = tuple([feeds[name].shape for name in self._names])
            lane = self._lanes.get(shapes) or self._open_lane(shapes, feeds)
            if self._wide:
                _refuse_wide(self._wide, feeds)
            for name, memory in lane.inputs:
                array = feeds[name]
                if array is not memory:
                    np.copyto(memory, array, "no")
            lane.infer(share_outputs=True)
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise self._explained(error, feeds) from error
        if lane.fixed is not None:
            return dict(lane.fixed)
        return {name: tensor().data for name, tensor in lane.outputs}

    def adopt(self, feeds: Feeds) -> None:
        """Read these arrays where they lie, see `ipj_edge.protocols.Adopting`."""
        shapes = tuple([feeds[name].shape for name in self._names])
        lane = self._lanes.get(shapes)
        if lane is None or lane.fixed is None:
            return
        # Out of use while its tensors and its list of them differ: an interrupt here costs a new lane, no wrong answer.
        del self._lanes[shapes]
        for port in self.stage.takes:
            self._opened().adopt(lane.request, port, feeds[port.name])
        self._lanes[shapes] = lane._replace(inputs=tuple((name, feeds[name]) for name in self._names))

    def clone(self) -> OpenvinoSession:
        """Return a session with tensors of its own over the same compiled programs.

        Raises:
            TargetError: the session is closed.
        """
        return OpenvinoSession(self.stage, self._opened())

    def close(self) -> None:
        """Release the engine's memory. Calling twice is allowed."""
        self._programs = None
        self._lanes.clear()

    def _opened(self) -> CompiledForms:
        if self._programs is None:
            raise TargetError("this session is closed; load the bundle again")
        return self._programs

    def _open_lane(self, shapes: Shapes, feeds: Feeds) -> _Lane:
        programs = self._opened()
        check_feeds(self.stage, feeds)
        compiled = programs.fitting(shapes)
        request = compiled.create_infer_request()
        inputs = tuple(
            (port.name, programs.bind(request, port, shape))
            for port, shape in zip(self.stage.takes, shapes, strict=True)
        )
        outputs = tuple(
            (port.name, partial(request.get_output_tensor, _index(compiled.outputs, port))) for port in self.stage.adds
        )
        if len(self._lanes) >= _MAX_LANES:
            del self._lanes[next(iter(self._lanes))]
        stays = programs.has_fixed_shape(shapes) and all(
            port.get_partial_shape().is_static for port in compiled.outputs
        )
        fixed = {name: tensor().data for name, tensor in outputs} if stays else None
        lane = self._lanes[shapes] = _Lane(request.infer, inputs, outputs, fixed, request)
        return lane

    def _explained(self, error: Exception, feeds: Feeds) -> IpjEdgeError:
        check_feeds(self.stage, feeds)
        return TargetError(f"openvino failed on '{self.stage.name}': {telling_line(error, NOISE)}")


def _refuse_wide(names: tuple[str, ...], feeds: Feeds) -> None:
    """Refuse whole numbers beyond 32 bits: the CPU plugin computes int64 in int32 and wraps them without a word."""
    for name in names:
        array = feeds[name]
        for value in (array.min(initial=0), array.max(initial=0)):
            if not _INT32.min <= value <= _INT32.max:
                raise InputError(f"'{name}' holds {value}: openvino computes whole numbers in 32 bits on the CPU")


def _index(engine_ports: Any, port: Port) -> int:
    return next(index for index, each in enumerate(engine_ports) if port.engine_name in each.get_names())


_: type[Target] = OpenvinoCpu

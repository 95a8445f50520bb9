"""The meter: probes held open, windows over them, readings out of them. The one place where a driver's error
becomes a reading with a reason."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType

import msgspec

from ipj_edge import plugins
from ipj_edge.energy.choice import NONE, ProbeChoice, choose_probe
from ipj_edge.energy.clocks import Clocks
from ipj_edge.energy.rules import DEFAULT_ERROR
from ipj_edge.energy.tracks import CounterTrack, SamplerTrack, Tap, Track
from ipj_edge.energy.windows import Absent, Window
from ipj_edge.errors import ConfigError, MissingDependencyError, ProbeError
from ipj_edge.protocols import EnergyCounter, PowerProbe
from ipj_edge.values import Boundary, ProbeFacts, ProbeOptions, Reading


class Meter:
    """Power probes held open, for any number of windows over them; a context manager.

    Windows may nest and overlap. Each probe gives its own reading; joules of different probes are not added, for
    their boundaries may overlap.

    Attributes:
        choices: The probes chosen, with what was tried before them; set once open.

    Raises:
        PluginNotFoundError: no probe of that name (when opened).
        ProbeUnavailableError: a measured figure is required and cannot be had (when opened).
    """

    def __init__(
        self,
        probes: Sequence[str | PowerProbe] = ("auto",),
        *,
        options: ProbeOptions | None = None,
        boundaries: Sequence[Boundary] | None = None,
        require_measured: bool = False,
        error: float = DEFAULT_ERROR,
        align: bool = False,
        clocks: Clocks | None = None,
        tap: Tap | None = None,
    ) -> None:
        """Name the probes; they are opened by ``with``.

        Args:
            probes: Names of probes, ``auto`` or ``none``, or probe plugins themselves.
            options: What the probes have to know.
            boundaries: For ``auto``: boundaries that see the work, best first; None for a whole command.
            require_measured: Refuse modelled figures.
            error: Relative error a window has to be long enough for, e.g. 0.05.
            align: Begin and end windows at a counter's own steps. Takes up to one update interval at either end,
                in which one CPU polls the counter; for windows of a few update intervals.
            clocks: Time sources.
            tap: Sees the rails and the power samples of every drain of a sampled probe, for a trace.
        """
        if isinstance(probes, str) or not probes:
            raise ConfigError(f"probes must be a list of at least one name, e.g. ['auto'], got {probes!r}")
        self._probes, self._options, self._boundaries = tuple(probes), options or ProbeOptions(), boundaries
        self._require_measured, self._error, self._align = require_measured, error, align
        self._clocks, self._tap = clocks or Clocks(), tap
        self._tracks: list[Track | Absent] = []
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.choices: tuple[ProbeChoice, ...] = ()

    def __enter__(self) -> Meter:
        self._stop.clear()
        self.choices = tuple(self._choose(probe) for probe in self._probes)
        try:
            for probe, choice in zip(self._probes, self.choices, strict=True):
                self._tracks.append(self._open(probe, choice))
            for track in self._tracks:
                if _needs_pump(track):
                    self._pump(track)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release every probe. Calling twice is allowed; a window that ends later says that the meter is
        closed.
        """
        self._stop.set()
        for thread in self._threads:
            thread.join()
        tracks, self._tracks, self._threads = self._tracks, [], []
        for track in tracks:
            if not isinstance(track, Absent):
                track.close()

    @property
    def facts(self) -> tuple[ProbeFacts | None, ...]:
        """The facts of each open probe; None for one that could not be opened."""
        return tuple(track.facts for track in self._tracks)

    def window(self, name: str = "") -> Window:
        """Return a context manager whose block is measured.

        Raises:
            ConfigError: the meter is not open.
        """
        if not self._tracks:
            raise ConfigError("open the meter first: with ipj_edge.Meter() as meter: …")
        return Window(name, tuple(self._tracks), self._clocks, self._error)

    def _choose(self, probe: str | PowerProbe) -> ProbeChoice:
        if isinstance(probe, str):
            return choose_probe(
                probe,
                options=self._options,
                boundaries=self._boundaries,
                require_measured=self._require_measured,
            )
        return choose_probe(
            probe.name, options=self._options, require_measured=self._require_measured, load=lambda name: probe
        )

    def _open(self, probe: str | PowerProbe, choice: ProbeChoice) -> Track | Absent:
        if choice.name == NONE:
            return Absent(NONE, choice.note)
        try:
            plugin = plugins.load_probe(choice.name) if isinstance(probe, str) else probe
            sensor = plugin.open(self._options)
            if isinstance(sensor, EnergyCounter):
                track: Track = CounterTrack(sensor, self._clocks, align=self._align)
            else:
                track = SamplerTrack(sensor, self._clocks, self._tap)
        except (ProbeError, MissingDependencyError, OSError) as error:
            return Absent(choice.name, str(error))
        note = "; ".join(text for text in (track.facts.note, choice.note) if text)
        track.facts = msgspec.structs.replace(track.facts, note=note)
        return track

    def _pump(self, track: Track | Absent) -> None:
        thread = threading.Thread(target=self._pump_until_closed, args=(track,), daemon=True, name="ipj-edge meter")
        thread.start()
        self._threads.append(thread)

    def _pump_until_closed(self, track: Track) -> None:
        while not self._stop.wait(track.pump_interval_s):
            track.pump()


class Measurement:
    """One block of work on one probe; made by `measure`."""

    def __init__(self, meter: Meter, name: str) -> None:
        self.name = name
        self._meter = meter
        self._window: Window | None = None

    def __enter__(self) -> Measurement:
        self._meter.__enter__()
        try:
            self._window = self._meter.window(self.name).__enter__()
        except BaseException:
            self._meter.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._open_window().__exit__(kind, error, trace)
        finally:
            self._meter.close()

    @property
    def reading(self) -> Reading:
        """Joules of the block, or the reason why there are none.

        Raises:
            ConfigError: the block has not ended.
        """
        return self._open_window().reading

    @property
    def inferences(self) -> int:
        """Inferences counted so far; count them to be told how many more a window needs."""
        return self._open_window().inferences

    @inferences.setter
    def inferences(self, count: int) -> None:
        self._open_window().inferences = count

    def _open_window(self) -> Window:
        if self._window is None:
            raise ConfigError("a measurement starts with its block: with ipj_edge.measure() as energy: …")
        return self._window


def measure(
    probe: str | PowerProbe = "auto",
    *,
    name: str = "",
    options: ProbeOptions | None = None,
    boundaries: Sequence[Boundary] | None = None,
    require_measured: bool = False,
    error: float = DEFAULT_ERROR,
) -> Measurement:
    """Measure the energy of a block.

    ::

        with ipj_edge.measure(probe="auto") as energy:
            work()
        print(energy.reading)

    Args:
        probe: Name of a probe, ``auto`` or ``none``, or a probe plugin itself.
        name: What the block is called.
        options: What the probe has to know.
        boundaries: For ``auto``: boundaries that see the work, best first.
        require_measured: Refuse a modelled figure.
        error: Relative error the block has to be long enough for.

    Raises:
        PluginNotFoundError: no probe of that name (when the block begins).
        ProbeUnavailableError: a measured figure is required and cannot be had (when the block begins).
    """
    meter = Meter([probe], options=options, boundaries=boundaries, require_measured=require_measured, error=error)
    return Measurement(meter, name)


def _needs_pump(track: Track | Absent) -> bool:
    return not isinstance(track, Absent) and track.pump_interval_s is not None

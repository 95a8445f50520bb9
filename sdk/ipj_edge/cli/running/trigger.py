"""Windows marked by lines: ``start [NAME]`` and ``stop [INFERENCES]``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ipj_edge.energy import Meter, Window


def windows(meter: Meter, lines: Iterable[str], warn: Callable[[str], None]) -> Iterator[Window]:
    """Yield each window as it ends; the end of the lines ends an open one. What is no such line is warned
    about.
    """
    window: Window | None = None
    try:
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == "start" and window is None:
                window = meter.window(rest.strip()).__enter__()
            elif word == "stop" and window is not None:
                window.inferences = _count(rest, warn)
                ended, window = window, None
                ended.__exit__(None, None, None)
                yield ended
            elif word:
                expected = "start [NAME]" if window is None else "stop [INFERENCES]"
                warn(f"ignored '{line.strip()}': expected '{expected}'")
    except KeyboardInterrupt:
        if window is not None:
            window.__exit__(None, None, None)
            yield window
        raise
    if window is not None:
        window.__exit__(None, None, None)
        yield window


def _count(text: str, warn: Callable[[str], None]) -> int:
    if not text.strip():
        return 0
    if text.strip().isdecimal():
        return int(text)
    warn(f"'{text.strip()}' is no count of inferences")
    return 0

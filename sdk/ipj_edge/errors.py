"""The errors of ipj-edge. Every class carries the exit code the command line ends with.

::

    IpjEdgeError
    ├── ConfigError                    2   a setting or an argument that cannot be used
    ├── SourceError                    2   the model to convert cannot be opened or run
    ├── DataError                      2   calibration or test data that cannot be used
    ├── InputError                     2   an array given to a model does not fit its inputs
    ├── DestinationError               2   the place to write to is taken or cannot be written
    ├── PluginError                    2
    │   ├── PluginNotFoundError        2   no plugin of that name; lists what is installed
    │   └── MissingDependencyError     6   the exact pip command
    ├── ConversionError                4   the conversion is wrong; nothing was published
    │   ├── UnsupportedError           3   the target cannot express this model
    │   ├── ParityError                4   the bundle answers differently from its source
    │   ├── EngineCrashError           4   the engine died on the bundle (in a child process)
    │   └── AccuracyGateError          5   the saved bundle lost more accuracy than allowed
    ├── BundleError                    9   damaged, void or of an unknown version
    ├── TargetError                    6
    │   └── TargetUnavailableError     6   engine, provider, precision or instruction set not as requested
    └── ProbeError                     8
        ├── ProbeUnavailableError      8   no reading to be had; says why and how to change that
        ├── ProbeReadError             8   a sensor failed while it was being read
        └── SampleLossError            8   samples of a power meter were lost (expected, received)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST = 4000
# What moves a terminal's cursor or colours, or turns the direction of a line; line feeds stay.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class IpjEdgeError(Exception):
    """Root of every error ipj-edge raises on purpose.

    Attributes:
        exit_code: What the command line exits with when this error ends it.
    """

    exit_code = 2

    def __str__(self) -> str:
        """Return the message without what a hostile file could do to a terminal by it."""
        return _cut(_CONTROL.sub(lambda found: ascii(found[0])[1:-1], super().__str__()), _LONGEST)


class ConfigError(IpjEdgeError):
    """A setting or argument that cannot be used; the message names it."""


class SourceError(IpjEdgeError):
    """The model to convert cannot be opened, described or run."""


class DataError(IpjEdgeError):
    """Calibration or test data that cannot be used."""


class InputError(IpjEdgeError):
    """An array given to a model does not fit: states what was expected and what came."""


class DestinationError(IpjEdgeError):
    """The place to write to is taken or cannot be written."""


class PluginError(IpjEdgeError):
    """A plugin cannot be found or loaded."""


class PluginNotFoundError(PluginError):
    """No plugin of that name is installed.

    Attributes:
        kind: What was looked for, e.g. ``target``.
        name: The name asked for.
        installed: The names that are installed.
    """

    def __init__(self, kind: str, name: str, installed: tuple[str, ...]) -> None:
        self.kind, self.name, self.installed = kind, name, installed
        super().__init__(f"unknown {kind} '{name}'; installed: {', '.join(installed) or 'none'}")


class MissingDependencyError(PluginError):
    """A plugin needs a package that is not installed.

    Attributes:
        module: The module that was missing.
        fix: The command or step that brings it.
    """

    exit_code = 6

    def __init__(self, extra: str, module: str, package: str = "") -> None:
        """Say what is missing.

        Args:
            extra: The extra of ipj-edge that brings it, or the name of an outsider's plugin.
            module: The module that was missing.
            package: The outsider's package that needs it; empty for our own.
        """
        self.module = module
        ours = f"pip install 'ipj-edge[{extra}]'"
        self.fix = f"install the package that has it, as {package} asks for" if package else ours
        super().__init__(f"'{extra}' needs '{module}': {self.fix}")


class ConversionError(IpjEdgeError):
    """The conversion went wrong; nothing was published."""

    exit_code = 4


class UnsupportedError(ConversionError):
    """The target, or its converter, cannot express this model.

    Attributes:
        operators: The operators that are not supported, as the source names them; may be empty.
    """

    exit_code = 3

    def __init__(self, message: str, operators: tuple[str, ...] = ()) -> None:
        self.operators = operators
        super().__init__(message)


class ParityError(ConversionError):
    """The bundle does not answer as its source does.

    Attributes:
        failures: One line for every check that failed.
        remedies: What to do about them; empty where nobody knows.
    """

    def __init__(self, failures: tuple[str, ...], remedies: tuple[str, ...] = ()) -> None:
        self.failures, self.remedies = failures, remedies
        shown = "; ".join(failures[:3]) + (f"; and {len(failures) - 3} more" if len(failures) > 3 else "")
        what_to_do = "".join(f"; {remedy}" for remedy in remedies)
        super().__init__(f"the converted model answers differently from its source: {shown}{what_to_do}")


class EngineCrashError(ConversionError):
    """The target's engine died on the bundle. It ran in a child process.

    Attributes:
        returncode: The child's return code; negative for a signal.
    """

    def __init__(self, target: str, returncode: int, detail: str) -> None:
        self.returncode = returncode
        how = f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}"
        super().__init__(f"the engine of '{target}' died on this model ({how}){': ' + detail if detail else ''}")


class AccuracyGateError(ConversionError):
    """The saved bundle lost more accuracy than was allowed.

    Attributes:
        reference: Accuracy of the source, 0..1.
        measured: Accuracy of the saved bundle in the target's engine, 0..1.
        allowed: Allowed drop, 0..1.
    """

    exit_code = 5

    def __init__(self, reference: float, measured: float, allowed: float) -> None:
        self.reference, self.measured, self.allowed = reference, measured, allowed
        super().__init__(
            f"accuracy gate missed: {measured:.4f} against {reference:.4f} of the source, a drop of "
            f"{100 * (reference - measured):.2f}pp where {100 * allowed:g}pp is allowed; nothing was published"
        )


class BundleError(IpjEdgeError):
    """A bundle that is damaged, void or of an unknown version; the message names the file."""

    exit_code = 9


class TargetError(IpjEdgeError):
    """A target failed."""

    exit_code = 6


class TargetUnavailableError(TargetError):
    """Engine, provider, precision or instruction set is not available as requested."""


class ProbeError(IpjEdgeError):
    """A power probe failed."""

    exit_code = 8


class ProbeUnavailableError(ProbeError):
    """A power probe cannot be used here; the message says why and how to change that."""


class ProbeReadError(ProbeError):
    """A power probe failed while it was being read."""


class SampleLossError(ProbeError):
    """Samples of a power meter were lost.

    Attributes:
        expected: Samples that should have arrived.
        received: Samples that arrived.
    """

    def __init__(self, probe: str, expected: int, received: int) -> None:
        self.expected, self.received = expected, received
        super().__init__(f"'{probe}' lost {expected - received} of {expected} samples; the window is not valid")


@contextmanager
def reading(what: str, kind: type[IpjEdgeError]) -> Iterator[None]:
    """Read a file that may be damaged or hostile: whatever a parser makes of that is one line of ours.

    Parsers fail in many ways on bytes that nobody foresaw, out of memory and out of stack among them. Put this around
    the one place where a kind of file is read, and nothing else: a mistake of our own would look like a bad file.

    Args:
        what: The file as the message shall call it, e.g. ``the image cat.png``.
        kind: The error to raise.

    Raises:
        IpjEdgeError: of that kind, in place of any error but ours.
    """
    try:
        yield
    except IpjEdgeError:
        raise
    except OSError as error:
        raise kind(f"cannot read {what}: {error.strerror or first_line(error)}") from error
    except Exception as error:
        raise kind(f"cannot read {what}: it is damaged or of another kind ({typed_line(error)})") from error


def message_lines(error: BaseException) -> list[str]:
    """Return the lines of an error's message that say something; the name of its class where there are none."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 # an outsider's error may fail to say itself
        text = ""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()] or [type(error).__name__]


def first_line(error: BaseException, *, limit: int = 300) -> str:
    """Return what an error says in one line of at most `limit` characters; the name of its class if it says nothing."""
    return _cut(message_lines(error)[0], limit)


def typed_line(error: BaseException, *, limit: int = 300) -> str:
    """Return `first_line` behind the name of the error's class: ``ValueError: shapes differ``."""
    name, line = type(error).__name__, message_lines(error)[0]
    return _cut(name if line == name else f"{name}: {line}", limit)


def telling_line(error: BaseException, noise: tuple[str, ...], *, last: bool = False, limit: int = 300) -> str:
    """Return the line of an engine's message that says what is wrong.

    Args:
        error: What the engine raised.
        noise: Beginnings of lines that say nothing: places in its source, headings.
        last: Look from the end, for engines that tell the cause after its consequences.
        limit: Most characters.
    """
    lines = [line.lstrip("- ") or line for line in message_lines(error)]
    told = [line for line in lines if not line.startswith(noise)] or lines
    return _cut(told[-1] if last else told[0], limit)


def _cut(line: str, limit: int) -> str:
    return line if len(line) <= limit else line[: limit - 1] + "…"

"""What a request asks, held against itself and against the source, before anything is run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ipj_edge.conversion.plan.request import ConvertRequest
from ipj_edge.errors import ConfigError, DataError
from ipj_edge.protocols import Source
from ipj_edge.samples.data import shape_text
from ipj_edge.values import Preprocessing, TensorSpec


def tidied(request: ConvertRequest) -> ConvertRequest:
    """Return a request that names every target and precision once."""
    request = _with_int8(request)
    return msgspec.structs.replace(
        request,
        targets=tuple(dict.fromkeys(request.targets)),
        precisions=tuple(dict.fromkeys(request.precisions)),
    )


def _with_int8(request: ConvertRequest) -> ConvertRequest:
    """Asking how to quantize, and for no precision, is asking for int8."""
    if request.options.scheme is None or request.precisions:
        return request
    return msgspec.structs.replace(request, precisions=("int8",))


def check_request(request: ConvertRequest, source: Source) -> None:
    """Refuse what cannot be done, or would have no effect.

    Raises:
        ConfigError: options that contradict each other, a name that cannot be a folder's, or one name for an input and
            an output.
        DataError: static int8 without a calibration set.
    """
    _check_name(request.name or source.name)
    _check_tensor_names(source)
    dynamic = request.options.scheme == "dynamic"
    if dynamic and request.calibration is not None:
        raise ConfigError(
            "--calibration has no effect on --quantize dynamic, which finds its ranges in each inference: "
            "leave it out, or give the samples as --data to prove the bundle on them"
        )
    needs_ranges = "int8" in request.precisions and source.precision != "int8" and not dynamic
    if needs_ranges and request.calibration is None:
        raise DataError(
            "static int8 needs a calibration set: give --calibration with real inputs of the model "
            "(there is no default and no random data)"
        )


def _check_name(name: str) -> None:
    """A bundle's name is part of its folder's: it may not lead elsewhere, nor hide it."""
    if "/" in name or "\0" in name or name.startswith("."):
        raise ConfigError(f"'{name}' cannot name a bundle: no '/' and no '.' in front; give another with --name")


def _check_tensor_names(source: Source) -> None:
    """Live tensors are known by their names, so an input that is handed through needs another one as an output."""
    outputs = [spec.name for spec in source.outputs]
    shared = [spec.name for spec in source.inputs if spec.name in outputs]
    if shared:
        raise ConfigError(
            f"'{shared[0]}' is the name of an input and of an output: name the outputs apart, one --output for each of "
            f"{', '.join(outputs)}"
        )


def named_preprocessing(request: ConvertRequest, source: Source) -> dict[str, Preprocessing]:
    """Return preprocessing by the names of the source's inputs.

    Raises:
        ConfigError: it names no input of the model, or makes something else than that input.
    """
    names = [spec.name for spec in source.inputs]
    if set(request.preprocessing) == {""} and len(names) == 1:
        return named_preprocessing(
            msgspec.structs.replace(request, preprocessing={names[0]: request.preprocessing[""]}), source
        )
    if "" in request.preprocessing:
        raise ConfigError(f"--preprocess: the model has several inputs; make a table for one, e.g. [{names[0]}]")
    strangers = set(request.preprocessing) - set(names)
    if strangers:
        raise ConfigError(f"--preprocess names {', '.join(sorted(strangers))}; the model has {', '.join(names)}")
    for spec in source.inputs:
        if spec.name in request.preprocessing:
            _check_rule(request.preprocessing[spec.name], spec)
    return request.preprocessing


def _check_rule(rule: Preprocessing, spec: TensorSpec) -> None:
    channels = 1 if rule.channels == "L" else 3
    for key, values in (("mean", rule.mean), ("std", rule.std)):
        if len(values) not in (1, channels):
            raise ConfigError(
                f"--preprocess: {key} has {len(values)} values for {channels} channels ({rule.channels}): "
                "give one, or one a channel"
            )
    if 0 in rule.std:
        raise ConfigError("--preprocess: std is what pixels are divided by, and cannot be 0")
    made = (channels, *rule.size) if rule.layout == "NCHW" else (*rule.size, channels)
    wanted = spec.shape[1:] if spec.batch_axis is not None else spec.shape
    fits = len(made) == len(wanted) and all(
        isinstance(want, str) or want == got for want, got in zip(wanted, made, strict=True)
    )
    if not fits:
        raise ConfigError(
            f"--preprocess makes {rule.layout} images of shape {made}, and input '{spec.name}' takes {shape_text(spec)}"
        )


def check_labels(labels: Sequence[str], outputs: Sequence[TensorSpec]) -> None:
    """Refuse more class names than any output has scores.

    Raises:
        ConfigError: states how many there are of both.
    """
    sizes = {spec.name: [size for axis, size in enumerate(spec.shape) if axis != spec.batch_axis] for spec in outputs}
    enough = any(isinstance(size, str) or size >= len(labels) for each in sizes.values() for size in each)
    if labels and not enough:
        shown = ", ".join(
            f"'{name}' is {'×'.join(map(str, each)) or 'one value'} a sample" for name, each in sizes.items()
        )
        raise ConfigError(f"--labels has {len(labels)} names, and no output has as many scores: {shown}")

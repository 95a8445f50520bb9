"""``ipj-edge run``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ipj_edge import limits
from ipj_edge.cli.options.types import Number

if TYPE_CHECKING:
    from ipj_edge.runtime.model import Model, Result


@click.command("run")
@click.argument("bundle", type=click.Path())
@click.argument("inputs", type=click.Path(), nargs=-1, required=True)
@click.option("--top", default=5, show_default=True, type=click.IntRange(1), help="How many classes to print.")
@click.option("--threads", type=Number(limits.THREADS), help="Inference threads. Default: min(affinity, cgroup quota).")
@click.option("--allow-out-of-range", is_flag=True, help="Accept whole numbers outside the range an input declares.")
@click.option("--json", "json_path", metavar="FILE", help="Write the outputs as JSON; - is stdout.")
def command(
    bundle: str,
    inputs: tuple[str, ...],
    top: int,
    threads: int | None,
    allow_out_of_range: bool,
    json_path: str | None,
) -> None:
    """Run a bundle on images (through its preprocessing) or on .npz arrays by input name."""
    from ipj_edge.cli.printing import console as _console
    from ipj_edge.runtime.model import load

    _console.check_json(json_path)
    entries = []
    with load(bundle, threads=threads, allow_out_of_range=allow_out_of_range) as model:
        for path in inputs:
            result = _run(model, path)
            entries.append({"input": path, "latency_s": result.latency_s, "outputs": _lists(result)})
            if json_path != "-":
                _print(model, path, result, top)
    if json_path is not None:
        _console.write_json(entries, json_path)


def _run(model: Model, path: str) -> Result:
    from ipj_edge.samples.data import load_samples
    from ipj_edge.samples.preprocess import read_image

    if path.endswith(".npz"):
        return model.run(load_samples(path, model.manifest.inputs).arrays)
    return model.run_image(read_image(path))


def _print(model: Model, path: str, result: Result, top: int) -> None:
    from ipj_edge.cli.printing import console as _console

    _console.say(f"{path}: {_console.seconds_text(result.latency_s)}")
    for spec in model.outputs:
        values = result.outputs[spec.name]
        if spec.meaning not in ("logits", "probabilities") or values.ndim != 2:
            _console.say(f"  {spec.name}: {values.dtype} {values.shape}, from {values.min():g} to {values.max():g}")
            continue
        for row in values:
            best = row.argsort()[::-1][:top]
            _console.table(
                ("label", spec.name), [(_label(model, int(i)), f"{row[i]:.4f}") for i in best], right=(spec.name,)
            )


def _label(model: Model, index: int) -> str:
    labels = model.manifest.labels
    return labels[index] if index < len(labels) else str(index)


def _lists(result: Result) -> dict[str, object]:
    return {name: value.tolist() for name, value in result.outputs.items()}

"""``ipj-edge exits``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ipj_edge import limits
from ipj_edge.cli.options.probes import collect, probe_options
from ipj_edge.cli.options.types import Number, Time

if TYPE_CHECKING:
    from ipj_edge.tuning.tuning import Tuning, TuningOptions


@click.group("exits")
def command() -> None:
    """Tune when samples leave a multi-exit model early."""


@command.command("tune")
@click.argument("bundle", type=click.Path())
@click.option("--data", required=True, help="Data to tune and certify on: .npz, folder of images, or module:callable.")
@click.option(
    "--max-harm",
    default="1pp",
    show_default=True,
    metavar="PP",
    help="Largest share of wrong early answers where the last exit is right.",
)
@click.option("--confidence", default="95%", show_default=True, metavar="PERCENT", help="How sure the certificate is.")
@click.option(
    "--objective",
    default="joules",
    show_default=True,
    type=click.Choice(["joules", "seconds", "macs"]),
    help="What to minimise.",
)
@click.option(
    "--rule",
    "rules",
    multiple=True,
    default=("max-probability",),
    show_default=True,
    help="Exit rule; may be repeated, the cheapest is taken.",
)
@click.option("--no-certificate", is_flag=True, help="Ship what the search finds; marked as not certified everywhere.")
@click.option("--recall", is_flag=True, help="Answer with the surest exit passed, not with the one a sample leaves at.")
@click.option(
    "--batch", default=1, show_default=True, type=Number(limits.BATCH), help="Batch size that costs are weighed for."
)
@click.option(
    "--seed", default=0, show_default=True, type=Number(limits.SEED), help="Seed of the split and of the search."
)
@click.option("--threads", type=Number(limits.THREADS), help="Inference threads; the certificate holds for them alone.")
@click.option("--probe", default="auto", show_default=True, help="Power probe, auto or none.")
@probe_options
@click.option("--require-measured", is_flag=True, help="Refuse modelled energy (exit code 8).")
@click.option(
    "--windows",
    default=5,
    show_default=True,
    type=Number(limits.WINDOWS._replace(low=2)),
    help="Energy windows an exit.",
)
@click.option(
    "--window",
    "window_s",
    default="200ms",
    show_default=True,
    metavar="TIME",
    type=Time(limits.WINDOW_S),
    help="Least length of a window.",
)
@click.option(
    "--json", "json_path", metavar="FILE", help="Write policy, certificate, costs and the front as JSON; - is stdout."
)
def tune(bundle: str, json_path: str | None, **options: Any) -> int:
    """Find the cheapest thresholds that can be proven to do no more harm than allowed, and write exits.json.

    When nothing can be certified the full model is kept and the exit code is 5.
    """
    from ipj_edge.cli.printing import console as _console
    from ipj_edge.exits import TunedBundle
    from ipj_edge.tuning.tuning import tune_exits

    _console.check_json(json_path)
    certify = not options["no_certificate"]
    tuning = tune_exits(bundle, _options(**options), progress=_console.progress)
    if json_path != "-":
        _print(tuning)
    if json_path is not None:
        found = TunedBundle(name=Path(bundle).resolve().name, record=tuning.record, front=tuning.tuned.front)
        _console.write_json(found, json_path)
    failed = certify and not tuning.tuned.certificate.holds
    if failed:
        _console.warn(f"nothing was certified, the full model is kept: {tuning.tuned.certificate.reason}")
    return 5 if failed else 0


def _options(**options: Any) -> TuningOptions:
    from ipj_edge.cli.options import parse as _parse
    from ipj_edge.errors import ConfigError
    from ipj_edge.exits import TuneRequest
    from ipj_edge.tuning.pricing import PricingOptions
    from ipj_edge.tuning.tuning import TuningOptions
    from ipj_edge.values import Settings

    epsilon = _parse.drop(options["max_harm"])
    if not epsilon:
        raise ConfigError("--max-harm must be above 0pp: to do no harm at all, do not exit early")
    return TuningOptions(
        data=options["data"],
        request=TuneRequest(
            epsilon=epsilon,
            delta=1 - _parse.percent(options["confidence"]),
            rules=tuple(options["rules"]),
            recall=options["recall"],
            batch=options["batch"],
            certify=not options["no_certificate"],
            seed=options["seed"],
        ),
        objective=options["objective"],
        pricing=PricingOptions(
            probe=options["probe"],
            probe_options=collect(options, (options["probe"],)),
            require_measured=options["require_measured"],
            windows=options["windows"],
            window_s=options["window_s"],
        ),
        settings=Settings(threads=options["threads"]),
    )


def _print(tuning: Tuning) -> None:
    from ipj_edge.cli.printing import console as _console

    tuned, record = tuning.tuned, tuning.record
    certificate, unit = tuned.certificate, record.costs.unit
    rows = [
        (
            f"{index}",
            f"{stage.fixed + stage.per_row:.4g} {unit}",
            "—" if threshold is None else f"{threshold:.4f}",
            f"{share:.1%}",
        )
        for index, (stage, threshold, share) in enumerate(
            zip(record.costs.stages, (*tuned.policy.thresholds, None), _shares(tuned.expected.leavers), strict=True)
        )
    ]
    _console.table(("exit", "cost of its stage", "threshold", "leave there"), rows)
    _console.say(
        f"costs: {record.costs.source}; rule: {tuned.policy.rule}{', with recall' if tuned.policy.recall else ''}"
    )
    saved = 1 - tuned.expected.cost / tuned.never.cost if tuned.never.cost else 0.0
    _console.say(
        f"expected: {tuned.expected.cost:.4g} {unit} an inference instead of {tuned.never.cost:.4g} "
        f"({saved:.1%} saved), {certificate.loss} {tuned.expected.risk:.2%} on {certificate.n_test} test samples"
    )
    if certificate.holds:
        _console.say(
            f"certified: {certificate.loss} at most {certificate.epsilon:.2%} at "
            f"{1 - certificate.delta:.0%} confidence ({certificate.method}, p = {certificate.p_value:.3g})"
        )
    else:
        _console.say(f"not certified: {certificate.reason}")


def _shares(leavers: tuple[int, ...]) -> tuple[float, ...]:
    total = sum(leavers) or 1
    return tuple(count / total for count in leavers)

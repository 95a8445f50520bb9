"""Tune a bundle's exits: cache what every exit answers, price the exits, search and certify, write ``exits.json``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

import ipj_edge
from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.bundles.manifest import Bundle
from ipj_edge.energy import check_named
from ipj_edge.errors import ConfigError
from ipj_edge.exits import (
    EXITS_NAME,
    ExitsRecord,
    Gate,
    PolicyOrigin,
    StageCosts,
    Tuned,
    TuneRequest,
    engine_files,
    make_policy,
    make_record,
    tuned_under,
    write_exits,
)
from ipj_edge.exits.proof.tuning import tune
from ipj_edge.plugins import load_exit_rule
from ipj_edge.runtime.model import Model, open_model
from ipj_edge.runtime.programs import exit_meanings
from ipj_edge.samples.data import Samples, digest, load_samples
from ipj_edge.tuning.pricing import Prices, PricingOptions, mac_costs, price_exits
from ipj_edge.values import Settings
from ipj_edge.writing import check_writable

Objective = Literal["joules", "seconds", "macs"]


class TuningOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to tune.

    Attributes:
        data: Labelled data the exits are tuned and certified on (see `ipj_edge.samples.data.load_samples`).
        request: Risk, confidence, rules.
        objective: What is minimised.
        pricing: Probe and windows the stages are priced with.
        settings: Settings the bundle is loaded with; the certificate holds for them alone.
    """

    data: str
    request: TuneRequest
    objective: Objective = "joules"
    pricing: PricingOptions = PricingOptions()
    settings: Settings = Settings()


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """What tuning a bundle found, and the record that was written into it."""

    tuned: Tuned
    record: ExitsRecord


def tune_exits(
    path: str | Path, options: TuningOptions, *, progress: Callable[[str], None] = lambda _text: None
) -> Tuning:
    """Tune a bundle's exits and write its ``exits.json``.

    Without anything that can be certified the policy written never exits; see ``tuned.certificate``.

    Raises:
        ConfigError: the bundle has one exit, or a setting is out of range.
        DataError: the data does not fit, or there is too little of it.
        ProbeUnavailableError: a measured figure is required and not to be had.
    """
    bundle = open_bundle(path)
    manifest = bundle.manifest
    if len(manifest.stages) == 1:
        raise ConfigError(f"{path} has one exit: there is nothing to tune; convert a model with several (--split-at)")
    check_named(options.pricing.probe, options.pricing.probe_options)
    check_writable(bundle.path / EXITS_NAME)
    samples = load_samples(options.data, manifest.inputs, manifest.preprocessing, manifest.labels)
    with open_model(bundle, options.settings, exits="all") as model:
        progress(f"running all {len(manifest.stages)} exits on {samples.count} samples")
        answers = model.run_every_output(samples.arrays)
        prices = _costs(bundle, model, samples, options, progress)
        settings = tuned_under(model.effective)
    progress("searching thresholds and certifying them")
    request = msgspec.structs.replace(options.request, meaning=exit_meanings(manifest)[0])
    outputs = [answers[str(stage.exit_output)] for stage in manifest.stages]
    provenance = PolicyOrigin(data_sha256=digest(samples), files=engine_files(manifest), settings=settings)
    tuned = tune(outputs, samples.labels, prices.costs, request, provenance)
    created_with = {"ipj-edge": ipj_edge.__version__}
    record = make_record(tuned, prices.costs, batch=request.batch, created_with=created_with, times=prices.times)
    return Tuning(tuned=tuned, record=write_exits(bundle.path, record))


def _costs(
    bundle: Bundle, model: Model, samples: Samples, options: TuningOptions, progress: Callable[[str], None]
) -> Prices:
    """Return the costs to minimise, and the times for deadlines."""
    progress("pricing every exit in its own energy windows")
    request, meanings = options.request, exit_meanings(bundle.manifest)
    rule = load_exit_rule(request.rules[0])
    never = [min(rule.bounds(len(meanings))[1], sys.float_info.max)] * (len(meanings) - 1)
    gate = Gate(make_policy(rule, never, meanings, recall=request.recall), rule, meanings[0])
    with open_model(bundle, options.settings, exits="off") as whole:
        prices = price_exits(model, whole, samples, gate, options.pricing, batch=request.batch)
    if options.objective == "joules":
        if prices.reason:
            progress(f"no joules are to be had, so seconds are minimised: {prices.reason}")
        return prices
    costs: StageCosts = mac_costs(bundle.manifest) if options.objective == "macs" else prices.times
    return Prices(costs, prices.times)

"""Seconds of every stage of a bundle at batch 1, as JSON: ``python -m ipj_edge.conversion.stage_times BUNDLE``."""

from __future__ import annotations

import json
import sys

from ipj_edge.bundles.bundle import open_bundle
from ipj_edge.runtime.golden import read_golden
from ipj_edge.runtime.model import open_model
from ipj_edge.samples.data import fit
from ipj_edge.tuning.pricing import PricingOptions, price_exits
from ipj_edge.values import Settings


def main(folder: str) -> None:
    """Time the stages on the golden inputs and print the figures."""
    bundle, settings = open_bundle(folder), Settings()
    samples = fit(read_golden(bundle.path)[0], None, bundle.manifest.inputs, "golden inputs")
    with open_model(bundle, settings, exits="all") as model, open_model(bundle, settings, exits="off") as whole:
        prices = price_exits(model, whole, samples, None, PricingOptions(probe="none", windows=3))
    sys.stdout.write(json.dumps([stage.fixed + stage.per_row for stage in prices.times.stages]))


if __name__ == "__main__":
    main(sys.argv[1])

"""What energy costs and emits, from figures the user gives. There are no defaults: a grid, a price and a cooling
plant that nobody named would be invented."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from ipj_edge.errors import ConfigError
from ipj_edge.toml_files import read_toml
from ipj_edge.values import EnergyPerInference

JOULES_PER_KWH = 3.6e6


class Tariff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user knows of the supply.

    Attributes:
        pue: Power usage effectiveness: energy of the site per energy of the machine, at least 1. A device on its
            own has 1, but say so.
        intensity_g_per_kwh: Grid intensity in grams of CO2 equivalent a kWh.
        price_per_kwh: Price of a kWh.
        currency: Its currency, for the printer.
    """

    pue: float | None = None
    intensity_g_per_kwh: float | None = None
    price_per_kwh: float | None = None
    currency: str = ""

    def __post_init__(self) -> None:
        if self.pue is not None and not 1 <= self.pue < math.inf:
            raise ConfigError(f"pue is at least 1 (the site draws no less than the machine), got {self.pue:g}")
        for name in ("intensity_g_per_kwh", "price_per_kwh"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"{name} is a number of at least 0, got {value:g}")


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity with its 95 % interval; low and high are None without one."""

    value: float
    low: float | None = None
    high: float | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Energy, emission and price of some inferences; each None with its reason when it cannot be told.

    Attributes:
        inferences: How many inferences.
        energy_kwh: Energy at the site (PUE included), in kWh.
        carbon_g: Grams of CO2 equivalent.
        price: In the tariff's currency.
        currency: That currency; empty where the tariff does not name it.
        reason: What was missing.
    """

    inferences: float
    energy_kwh: Amount | None = None
    carbon_g: Amount | None = None
    price: Amount | None = None
    currency: str = ""
    reason: str = ""


def load_tariff(path: Path) -> Tariff:
    """Read a tariff from a small TOML file with the keys of `Tariff`.

    Raises:
        ConfigError: the file cannot be read, or a key is unknown or of the wrong kind.
    """
    return read_toml(path, "tariff").to(Tariff)


def cost_of(energy: EnergyPerInference, tariff: Tariff, inferences: float = 1.0) -> Cost:
    """Return what a number of inferences costs.

    energy = E · PUE; carbon = energy · intensity; price = energy · price per kWh. The interval is the energy's
    own.
    """
    if energy.value is None:
        return Cost(inferences=inferences, reason=energy.reason)
    if tariff.pue is None:
        return Cost(inferences=inferences, reason="pue is not given (1 for a device on its own)")
    energy_j = Amount(value=energy.value, low=energy.low, high=energy.high)
    kwh = _times(energy_j, inferences * tariff.pue / JOULES_PER_KWH)
    missing = [name for name in ("intensity_g_per_kwh", "price_per_kwh") if getattr(tariff, name) is None]
    return Cost(
        inferences=inferences,
        energy_kwh=kwh,
        carbon_g=None if tariff.intensity_g_per_kwh is None else _times(kwh, tariff.intensity_g_per_kwh),
        price=None if tariff.price_per_kwh is None else _times(kwh, tariff.price_per_kwh),
        currency=tariff.currency,
        reason=f"not given: {', '.join(missing)}" if missing else "",
    )


def tops_per_watt(macs: int | None, energy: EnergyPerInference) -> float | None:
    """Return tera-operations a second and watt really reached: 2·MACs/E/10¹² (an operation is an add or a
    multiply).

    None where the MACs or the energy are not known. A vendor's figure is a peak; this one is a measurement.
    """
    if macs is None or energy.value is None or energy.value <= 0:
        return None
    return 2 * macs / energy.value / 1e12


def _times(amount: Amount, factor: float) -> Amount:
    return Amount(
        value=amount.value * factor,
        low=None if amount.low is None else amount.low * factor,
        high=None if amount.high is None else amount.high * factor,
    )

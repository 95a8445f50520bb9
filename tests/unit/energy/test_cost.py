import pytest

from ipj_edge.energy import Tariff, cost_of, load_tariff, tops_per_watt
from ipj_edge.errors import ConfigError
from ipj_edge.values import EnergyPerInference

ENERGY = EnergyPerInference(
    value=3.6,
    low=3.0,
    high=4.2,
    provenance="measured",
    boundary="board",
    probe="ina",
    windows=10,
    inferences=1000,
)
NOTHING = EnergyPerInference(
    value=None,
    reason="no probe",
    provenance="modelled",
    boundary="process",
    probe="none",
    windows=0,
    inferences=0,
)
FULL = Tariff(pue=1.2, intensity_g_per_kwh=400.0, price_per_kwh=0.30, currency="EUR")


def test_energy_carbon_and_price_of_a_thousand_inferences():
    cost = cost_of(ENERGY, FULL, 1000)
    assert cost.energy_kwh.value == pytest.approx(3600 / 3.6e6 * 1.2)
    assert cost.carbon_g.value == pytest.approx(0.0012 * 400)
    assert cost.price.value == pytest.approx(0.0012 * 0.30)
    assert cost.price.low / cost.price.value == pytest.approx(3.0 / 3.6)
    assert cost.reason == ""


def test_the_currency_goes_with_the_price():
    assert cost_of(ENERGY, FULL).currency == "EUR"


def test_nothing_is_assumed_where_nothing_was_given():
    assert cost_of(ENERGY, Tariff()).energy_kwh is None
    assert "pue is not given" in cost_of(ENERGY, Tariff()).reason
    part = cost_of(ENERGY, Tariff(pue=1.0, price_per_kwh=0.3))
    assert part.carbon_g is None
    assert part.price is not None
    assert part.reason == "not given: intensity_g_per_kwh"


def test_no_joules_cost_no_money_but_say_why():
    cost = cost_of(NOTHING, FULL)
    assert (cost.energy_kwh, cost.carbon_g, cost.price, cost.reason) == (None, None, None, "no probe")


def test_an_energy_without_an_interval_has_a_cost_without_one():
    single = EnergyPerInference(
        value=1.0, provenance="measured", boundary="board", probe="ina", windows=1, inferences=1
    )
    cost = cost_of(single, FULL)
    assert cost.price.low is None
    assert cost.price.high is None


def test_a_tariff_is_a_small_toml_file(tmp_path):
    file = tmp_path / "tariff.toml"
    file.write_text('pue = 1.1\nintensity_g_per_kwh = 380\ncurrency = "EUR"\n')
    assert load_tariff(file) == Tariff(pue=1.1, intensity_g_per_kwh=380.0, currency="EUR")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pue = 0.9", "at least 1"),
        ("price_per_kwh = -1.0", "at least 0"),
        ("price_per_kwh = nan", "at least 0"),
        ("pue = inf", "at least 1"),
        ("price = 1.0", "unknown key 'price' .*known: pue"),
        ('pue = "much"', "line 1: Expected `float | null`"),
        ("pue = ", "cannot read the tariff"),
    ],
)
def test_a_tariff_that_cannot_be_is_refused(tmp_path, text, reason):
    file = tmp_path / "tariff.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        load_tariff(file)


def test_a_missing_tariff_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read the tariff .*none\.toml: No such file"):
        load_tariff(tmp_path / "none.toml")


def test_tops_per_watt_counts_two_operations_a_mac():
    assert tops_per_watt(1_800_000_000_000, ENERGY) == pytest.approx(1.0)
    assert tops_per_watt(None, ENERGY) is None
    assert tops_per_watt(10, NOTHING) is None

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipj_edge.benchmark.result.intelligence import energy_delay_product, intelligence_per_joule, joules_per_correct
from ipj_edge.benchmark.result.schema import Accuracy
from ipj_edge.values import EnergyPerInference


def _energy(value: float | None, low: float | None = None, high: float | None = None) -> EnergyPerInference:
    return EnergyPerInference(
        value=value, reason="" if value else "no reading", low=low, high=high,
        provenance="measured", boundary="package", probe="rapl", windows=5, inferences=100,
    )  # fmt: skip


def test_it_is_correct_answers_per_joule() -> None:
    ipj = intelligence_per_joule(Accuracy(value=0.9, low=0.9, high=0.9, n=1000), _energy(0.5, 0.5, 0.5))
    assert ipj is not None
    assert (ipj.value, ipj.low, ipj.high) == pytest.approx((1.8, 1.8, 1.8))


def test_without_accuracy_or_joules_there_is_no_rate() -> None:
    accuracy = Accuracy(value=0.9, low=0.8, high=0.95, n=10)
    assert intelligence_per_joule(None, _energy(1.0)) is None
    assert intelligence_per_joule(accuracy, _energy(None)) is None
    assert intelligence_per_joule(Accuracy(value=0.0, low=0.0, high=0.3, n=10), _energy(1.0)) is None
    assert joules_per_correct(None) is None


@given(accuracy=st.floats(0.01, 1.0), energy=st.floats(1e-6, 1e3), wide=st.floats(0.0, 0.5), wider=st.floats(0.0, 0.5))
def test_the_interval_joins_both_errors_and_inverts(accuracy: float, energy: float, wide: float, wider: float) -> None:
    ipj = intelligence_per_joule(
        Accuracy(value=accuracy, low=accuracy * (1 - wide), high=accuracy * (1 + wide), n=100),
        _energy(energy, energy * (1 - wider), energy * (1 + wider)),
    )
    assert ipj is not None
    assert 0 < ipj.low <= ipj.value <= ipj.high
    per_correct = joules_per_correct(ipj)
    assert per_correct is not None
    assert per_correct.value * ipj.value == pytest.approx(1)
    assert per_correct.low <= per_correct.value <= per_correct.high


def test_one_window_gives_no_interval_rather_than_one_without_the_energys_error() -> None:
    energy = _energy(0.5)
    ipj = intelligence_per_joule(Accuracy(value=0.9, low=0.89, high=0.91, n=1000), energy)
    for amount in (ipj, joules_per_correct(ipj), energy_delay_product(energy, 1e-3)):
        assert amount is not None
        assert (amount.low, amount.high) == (None, None)

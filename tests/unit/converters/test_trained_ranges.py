"""Trained ranges, found again by what passes in an engine's file."""

from ipj_edge.values import ActivationRange, TrainedRanges
from ipj_edge_converters.quantization.trained_ranges import find_ranges, notes_on_strays


def _range(name: str, low: float, high: float) -> ActivationRange:
    return ActivationRange(name=name, low=low / 2, high=high / 2, seen_low=low, seen_high=high)


RANGES = TrainedRanges(calibration_sha256="0" * 64, activations=(_range("stem", -1, 3), _range("head", -4, 8)))


def test_ranges_that_match_no_tensor_come_back_by_name() -> None:
    found = find_ranges(RANGES, {"conv1": (-1.0, 3.0), "other": (-7.0, 7.0)})
    assert found.ends == {"conv1": (-0.5, 1.5)}
    assert found.strays == ("head",)


def test_two_searches_do_not_know_of_each_other() -> None:
    assert find_ranges(RANGES, {}).strays == ("stem", "head")
    assert find_ranges(RANGES, {"a": (-1.0, 3.0), "b": (-4.0, 8.0)}).strays == ()


def test_a_note_counts_and_names_the_strays() -> None:
    (note,) = notes_on_strays(("head",), RANGES)
    assert note.startswith("1 of 2 trained activation ranges match no tensor of this engine's file (head)")
    assert notes_on_strays((), RANGES) == notes_on_strays(("head",), None) == ()

import pytest

from ipj_edge.benchmark.compare.pareto import names_of, rank
from ipj_edge.benchmark.result.figures import figure_named, read_limit
from ipj_edge.errors import ConfigError
from ipj_edge.metrics import Score


def test_the_front_holds_what_nothing_beats_and_the_cheapest_within_limits_is_chosen(make_entry):
    cheap = make_entry("cheap.tflite-cpu.int8.ipj", slower=0.5, accuracy=0.90)
    good = make_entry("good.tflite-cpu.int8.ipj", slower=1.0, accuracy=0.95)
    poor = make_entry("poor.tflite-cpu.int8.ipj", slower=1.5, accuracy=0.93)
    (group,) = rank([poor, good, cheap])
    assert [name.split(".")[0] for name in names_of(group)] == ["cheap", "good"]
    assert group.chosen is cheap
    (group,) = rank([poor, good, cheap], least={"accuracy": 0.92})
    assert group.chosen is good
    (group,) = rank([poor, good, cheap], least={"accuracy": 0.92}, most={"latency_s.p50": 0.5e-3})
    assert group.chosen is None
    missed = {one.entry.bundle: one.misses for one in group.candidates}
    assert "accuracy 90.00 % is below 92.00 %" in missed["cheap.tflite-cpu.int8.ipj"][0]
    assert "latency_s.p50 900.0 µs is above 500.0 µs" in missed["good.tflite-cpu.int8.ipj"][0]


def test_modelled_joules_are_never_ranked_with_measured_ones(make_entry):
    measured = make_entry("a.tflite-cpu.int8.ipj")
    modelled = make_entry("b.tflite-cpu.int8.ipj", slower=0.1, probe=("modelled", "modelled", "process"))
    wall = make_entry("c.tflite-cpu.int8.ipj", slower=0.1, probe=("meter", "measured", "wall"))
    groups = rank([modelled, measured, wall])
    assert [(group.provenance, group.boundary) for group in groups] == [
        ("measured", "package"),
        ("measured", "wall"),
        ("modelled", "process"),
    ]
    assert [group.chosen for group in groups] == [measured, wall, modelled]


def test_an_entry_without_joules_or_accuracy_is_left_out_with_the_reason(make_entry):
    groups = rank([make_entry(has_joules=False), make_entry("b.tflite-cpu.int8.ipj", accuracy=None)])
    assert [group.chosen for group in groups] == [None]
    assert [one.reason for one in groups[0].candidates] == [
        "no joules: no probe was asked for",
        "no accuracy: no labels were given",
    ]


def test_equal_points_are_both_on_the_front(make_entry):
    (group,) = rank([make_entry("a.tflite-cpu.int8.ipj"), make_entry("b.tflite-cpu.int8.ipj")])
    assert len(names_of(group)) == 2


def test_an_entry_without_the_metric_of_a_limit_misses_it(make_entry):
    scored = make_entry("a.tflite-cpu.int8.ipj", quality=(Score(metric="auc", value=0.95, n=100),))
    plain = make_entry("b.tflite-cpu.int8.ipj", slower=0.5)
    (group,) = rank([scored, plain], least={"auc": 0.9})
    assert group.chosen is scored
    assert [one.misses for one in group.candidates] == [(), ("no auc",)]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("latency_s.p99", "20ms", 0.02),
        ("joules_per_inference", "3mJ", 0.003),
        ("accuracy", "90%", 0.9),
        ("bytes", "1MB", 1e6),
        ("throughput_hz", "2kHz", 2000.0),
        ("ipj", "300", 300.0),
    ],
)
def test_a_limit_is_read_in_the_figures_own_unit(name, text, value):
    assert read_limit(figure_named(name), text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [("latency_s.p99", "20"), ("latency_s.p99", "20mJ"), ("joules_per_inference", "1s"), ("accuracy", "90")],
)
def test_a_limit_without_its_unit_or_in_anothers_is_refused(name, text):
    with pytest.raises(ConfigError, match=f"'{text}' is no limit of {name}"):
        read_limit(figure_named(name), text)


def test_an_unknown_figure_is_refused(make_entry):
    with pytest.raises(ConfigError, match="unknown figure 'speed'"):
        rank([make_entry()], most={"speed": 1.0})

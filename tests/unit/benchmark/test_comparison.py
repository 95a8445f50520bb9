import msgspec
import numpy as np
import pytest

from ipj_edge.benchmark.compare.comparison import Limits, compare
from ipj_edge.errors import ConfigError, DataError
from ipj_edge.stats import ratio_of_means
from ipj_edge.values import EffectiveSettings, Settings


def _verdicts(comparison):
    return {check.figure: check.verdict for check in comparison.checks}


def test_two_probes_of_one_boundary_are_not_compared_unasked(make_entry, result_with):
    """The gain error of a sensor cancels in a ratio only when both sides are its own."""
    base = result_with(make_entry(probe=("ppk2", "measured", "rails")))
    new = result_with(make_entry(probe=("lpm01a", "measured", "rails"), slower=1.1))
    with pytest.raises(ConfigError, match="joules by ppk2 against joules by lpm01a; add --allow probe"):
        compare(base, new)
    allowed = compare(base, new, Limits(allow=["probe"]))
    assert any("lpm01a" in note for note in allowed.notes)


def test_a_result_compared_with_itself_passes(make_entry, result_with):
    one = result_with(make_entry(), make_entry("net.openvino-cpu.fp32.ipj", noise=0.3))
    comparison = compare(one, one)
    assert not comparison.regressed
    assert set(_verdicts(comparison).values()) == {"pass"}
    strict = dict.fromkeys(("joules_per_inference", "cpu_s_per_inference", "latency_s.p50", "latency_s.p99"), 0.0)
    assert not compare(one, one, Limits(regression=strict, drop={"accuracy": 0.0})).regressed


def test_a_10_percent_slower_copy_fails(make_entry, result_with):
    base, slower = result_with(make_entry(seed=1)), result_with(make_entry(seed=2, slower=1.10))
    verdicts = _verdicts(compare(base, slower))
    assert verdicts["cpu_s_per_inference"] == verdicts["joules_per_inference"] == "regression"
    assert verdicts["latency_s.p50"] == "regression"


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.05, 0.1])
@pytest.mark.parametrize("entries", [1, 6])
def test_noise_passes_19_times_out_of_20(make_entry, result_with, noise, entries):
    """Two runs of the same thing, 200 times; 20 alarms allow for chance at a true rate of 5 % (p < 0.002)."""
    alarms = 0
    for trial in range(200):
        runs = [
            result_with(
                *(
                    make_entry(f"net{n}.tflite-cpu.int8.ipj", seed=hash((trial, run, n)) % 2**32, noise=noise)
                    for n in range(entries)
                )
            )
            for run in range(2)
        ]
        limits = Limits(regression=dict.fromkeys(("joules_per_inference", "cpu_s_per_inference", "latency_s.p50"), 0.0))
        alarms += compare(*runs, limits).regressed
    assert alarms <= 20


def test_a_10_percent_slower_copy_fails_nearly_always_at_the_noise_of_a_good_bench(make_entry, result_with):
    found = 0
    for trial in range(100):
        base = result_with(make_entry(seed=trial))
        found += compare(base, result_with(make_entry(seed=1000 + trial, slower=1.10))).regressed
    assert found >= 95


def test_worse_than_allowed_within_the_noise_is_inconclusive_and_passes(make_entry, result_with):
    base, new = result_with(make_entry(seed=5, noise=0.2)), result_with(make_entry(seed=6, noise=0.2, slower=1.2))
    comparison = compare(base, new)
    assert not comparison.regressed
    assert "inconclusive" in _verdicts(comparison).values()


def test_a_window_without_joules_does_not_turn_noise_into_a_regression(make_entry, result_with):
    """The others still tell noise from change; the bare figures would not."""

    def with_a_lost_window(entry):
        lost = msgspec.structs.replace(entry.windows[0], joules=None, reason="a sample was lost")
        return msgspec.structs.replace(entry, windows=(lost, *entry.windows[1:]))

    base = result_with(with_a_lost_window(make_entry(seed=5, noise=0.2, windows=8)))
    new = result_with(with_a_lost_window(make_entry(seed=6, noise=0.2, windows=8, slower=1.2)))
    check = next(check for check in compare(base, new).checks if check.figure == "joules_per_inference")
    assert check.low is not None
    assert check.verdict != "regression"


def test_suspiciously_faster_is_flagged_and_passes(make_entry, result_with):
    comparison = compare(result_with(make_entry()), result_with(make_entry(seed=1, slower=0.5)))
    assert not comparison.regressed
    assert _verdicts(comparison)["cpu_s_per_inference"] == "faster"
    assert "same work" in next(check.reason for check in comparison.checks if check.verdict == "faster")


def test_a_drop_of_accuracy_beyond_its_points_fails(make_entry, result_with):
    base = result_with(make_entry(accuracy=0.950))
    assert not compare(base, result_with(make_entry(accuracy=0.945))).regressed
    assert compare(base, result_with(make_entry(accuracy=0.944))).regressed
    assert not compare(base, result_with(make_entry(accuracy=0.944)), Limits(drop={"accuracy": 0.01})).regressed
    assert not compare(base, result_with(make_entry(accuracy=0.99)), Limits(drop={"accuracy": 0.0})).regressed


def test_on_a_busy_machine_wall_time_is_not_judged_and_cpu_time_is(make_entry, result_with):
    base = result_with(make_entry())
    busy = result_with(make_entry(seed=1, slower=1.2, contention=True))
    verdicts = _verdicts(compare(base, busy))
    assert verdicts["latency_s.p50"] == verdicts["latency_s.p99"] == "not judged"
    assert verdicts["cpu_s_per_inference"] == "regression"
    asked = compare(base, busy, Limits(regression={"latency_s.p50": 0.05}))
    assert _verdicts(asked)["latency_s.p50"] == "regression"


def test_a_limit_replaces_its_default_and_off_turns_it_off(make_entry, result_with):
    base, slower = result_with(make_entry(seed=1)), result_with(make_entry(seed=2, slower=1.10))
    loose = dict.fromkeys(("joules_per_inference", "cpu_s_per_inference", "latency_s.p50"), 0.2)
    assert not compare(base, slower, Limits(regression=loose)).regressed
    off = compare(base, slower, Limits(regression=dict.fromkeys(loose)))
    assert "latency_s.p50" not in _verdicts(off)


@pytest.mark.parametrize(
    ("kind", "probe"),
    [("boundary", ("wall-meter", "measured", "wall")), ("provenance", ("model", "modelled", "package"))],
)
def test_joules_of_another_kind_are_refused_unless_told(make_entry, result_with, kind, probe):
    base, new = result_with(make_entry()), result_with(make_entry(probe=probe))
    with pytest.raises(ConfigError, match=f"--allow {kind}"):
        compare(base, new)
    allowed = compare(base, new, Limits(allow=(kind,)))
    assert any("(allowed)" in note for note in allowed.notes)


def test_another_precision_is_refused_unless_told(make_entry, result_with):
    base, new = result_with(make_entry("net.tflite-cpu.fp32.ipj")), result_with(make_entry("net.tflite-cpu.int8.ipj"))
    with pytest.raises(ConfigError, match="--allow precision"):
        compare(base, new)
    assert not compare(base, new, Limits(allow=("precision",))).regressed
    executed = EffectiveSettings(engine="e", engine_version="1", threads=2, execution_precision="bf16", affinity=2)
    quietly = result_with(make_entry("net.tflite-cpu.fp32.ipj", effective=(executed,)))
    with pytest.raises(ConfigError, match="bf16"):
        compare(base, quietly)


def test_other_data_is_refused_unless_told(make_entry, result_with):
    with pytest.raises(ConfigError, match="--allow data"):
        compare(result_with(make_entry()), result_with(make_entry(data_sha256="b" * 64)))


def test_joules_that_went_missing_are_refused(make_entry, result_with):
    with pytest.raises(ConfigError, match="no joules"):
        compare(result_with(make_entry()), result_with(make_entry(has_joules=False)))


def test_entries_pair_by_scenario_and_settings(make_entry, result_with):
    base = result_with(
        make_entry(), make_entry(requested=Settings(threads=1)), make_entry(scenario="offline", samples_per_query=32)
    )
    new = result_with(
        make_entry(seed=1),
        make_entry(requested=Settings(threads=1), seed=2, slower=1.2),
        make_entry(scenario="offline", samples_per_query=32, seed=3),
    )
    failed = [check for check in compare(base, new).checks if check.verdict == "regression"]
    assert failed
    assert len(compare(base, new).checks) > 12
    offline = [check.figure for check in compare(base, new).checks if "offline" in check.bundle]
    assert "throughput_hz" in offline
    assert "latency_s.p50" not in offline


def test_what_the_new_result_lacks_is_an_error_unless_told(make_entry, result_with):
    base = result_with(make_entry(), make_entry("other.tflite-cpu.int8.ipj"))
    with pytest.raises(DataError, match=r"lacks what the baseline has: other\.tflite-cpu"):
        compare(base, result_with(make_entry()))
    assert not compare(base, result_with(make_entry()), Limits(allow=("missing",))).regressed


def test_nothing_in_common_is_an_error(make_entry, result_with):
    with pytest.raises(DataError, match="nothing to compare"):
        compare(result_with(make_entry()), result_with(make_entry("other.tflite-cpu.int8.ipj")))


def test_two_entries_for_the_same_thing_are_refused(make_entry, result_with):
    with pytest.raises(DataError, match="two entries"):
        compare(result_with(make_entry(), make_entry()), result_with(make_entry()))


def test_an_unknown_figure_lists_the_known_ones(make_entry, result_with):
    one = result_with(make_entry())
    with pytest.raises(ConfigError, match=r"joules_per_inference, cpu_s_per_inference"):
        compare(one, one, Limits(regression={"speed": 0.1}))
    with pytest.raises(ConfigError, match="--max-regression"):
        compare(one, one, Limits(drop={"latency_s.p50": 0.1}))


def test_a_figure_that_was_asked_for_and_is_not_there_is_an_error(make_entry, result_with):
    one = result_with(make_entry(has_joules=False))
    with pytest.raises(ConfigError, match="no joules_per_inference"):
        compare(one, one, Limits(regression={"joules_per_inference": 0.03}))
    assert _verdicts(compare(one, one))["joules_per_inference"] == "not judged"


def test_without_windows_the_limit_alone_decides_and_says_so(make_entry, result_with):
    old = result_with(make_entry(windows=5, noise=0.0), version=1)
    bare = msgspec.structs.replace(old, results=(msgspec.structs.replace(old.results[0], windows=()),))
    comparison = compare(bare, bare)
    assert not comparison.regressed
    assert "noise is not known" in comparison.checks[0].reason


def test_another_machine_is_noted(make_entry, result_with):
    comparison = compare(result_with(make_entry()), result_with(make_entry(), environment={"cpu": "another"}))
    assert "cpu was a CPU, is another" in comparison.notes[0]


def test_the_ratio_of_means_covers_what_it_claims():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(500):
        interval = ratio_of_means(rng.normal(1.2, 0.05, 5), rng.normal(1.0, 0.02, 8))
        covered += interval.low <= 1.2 <= interval.high
    assert covered >= 465


def test_the_ratio_of_means_agrees_with_scipys_welch_for_small_noise():
    from scipy import stats

    rng = np.random.default_rng(1)
    a, b = rng.normal(100, 0.5, 6), rng.normal(100.7, 0.4, 9)
    wanted = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    interval = ratio_of_means(a, b)
    assert 100 * (interval.low - 1) == pytest.approx(wanted.low, rel=0.02)
    assert 100 * (interval.high - 1) == pytest.approx(wanted.high, rel=0.02)
    with pytest.raises(DataError, match="two samples"):
        ratio_of_means([1.0], [1.0, 2.0])

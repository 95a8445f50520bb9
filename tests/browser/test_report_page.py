"""The report in a real browser: it draws, complains of nothing and asks the network for nothing."""

import msgspec
import numpy as np
import pytest
from intervals import mean_interval

from ipj_edge.benchmark.report import render
from ipj_edge.benchmark.result.intelligence import intelligence_per_joule, joules_per_correct
from ipj_edge.benchmark.result.latencies import Latencies
from ipj_edge.benchmark.result.schema import (
    Accuracy,
    BenchResult,
    Entry,
    ExitRecord,
    Latency,
    ReliabilityBin,
    WindowRecord,
)
from ipj_edge.benchmark.result.trace import PowerTrace
from ipj_edge.exits import TunedBundle
from ipj_edge.stats import wilson_interval
from ipj_edge.values import EffectiveSettings, EnergyPerInference, NetEnergy, Settings

TARGETS = ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu")


def _energy(windows, probe):
    each = mean_interval([window.joules / window.inferences for window in windows])
    return EnergyPerInference(
        value=each.value, low=each.low, high=each.high, provenance=probe[1], boundary=probe[2], probe=probe[0],
        windows=len(windows), inferences=sum(window.inferences for window in windows), accuracy=0.02,
        net=NetEnergy(value=0.6 * each.value, low=0.57 * each.value, high=0.63 * each.value, idle_w=1.9),
    )  # fmt: skip


def _windows(rng, power_w, latency_s, count=7):
    return tuple(
        WindowRecord(
            start_s=1.05 * n, seconds=1.0, inferences=round(1 / latency_s), queries=round(1 / latency_s),
            joules=power_w * (1 + 0.01 * rng.standard_normal()), cpu_s=0.95, waited_s=0.01, busy_s=0.99,
            p50_s=latency_s, p99_s=1.4 * latency_s, frequency_hz=2.4e9, temperature_celsius=51 + n / 3,
        )
        for n in range(count)
    )  # fmt: skip


def _entry(rng, target, precision, *, staged=False, probe=("lpm01a", "measured", "board")):
    latency_s = {"fp32": 1.9e-3, "int8": 0.8e-3}[precision] * (1 + TARGETS.index(target) / 4) / (1.7 if staged else 1)
    power_w = 4.1 + 0.3 * TARGETS.index(target)
    windows = _windows(rng, power_w, latency_s)
    energy = _energy(windows, probe)
    right = {"fp32": 915, "int8": 908}[precision] - 2 * TARGETS.index(target) - 6 * staged
    share = wilson_interval(right, 1000)
    accuracy = Accuracy(value=share.value, low=share.low, high=share.high, n=1000)
    store = Latencies()
    store.add(latency_s * rng.lognormal(0, 0.06, 5000) * (1 + 0.5 * (rng.random(5000) < 0.02)))
    p50, p90, p99 = store.percentiles((50, 90, 99))
    times = np.arange(0, 7.4, 0.01)
    busy = np.array([any(w.start_s <= t < w.start_s + w.seconds for w in windows) for t in times])
    ipj = intelligence_per_joule(accuracy, energy)
    exits = [ExitRecord(name=f"exit {n + 1}", share=s, accuracy=Accuracy(value=a, low=a - 0.02, high=a + 0.02, n=400))
             for n, (s, a) in enumerate(((0.38, 0.97), (0.31, 0.93), (0.31, 0.82)))]  # fmt: skip
    return Entry(
        bundle=f"resnet20{'_3exit' if staged else ''}.{target}.{precision}.ipj", digest="d" * 64, data_sha256="a" * 64,
        target=target, precision=precision, scenario="single-stream", requested=Settings(threads=2),
        effective=(EffectiveSettings(engine=target.removesuffix("-cpu"), engine_version="1.2", threads=2, affinity=4,
                                     execution_precision="f32" if precision == "fp32" else "int8", spinning=False,
                                     read_back=("threads", "execution_precision")),),
        bytes=1_100_000 if precision == "fp32" else 310_000, accuracy=accuracy, load_s=0.1, first_s=0.004,
        latency_s=Latency(p50=p50, p90=p90, p99=p99, mean=store.total_s / 5000, least=store.least_s, most=store.most_s),
        inferences=5000, cpu_s_per_inference=1.9 * latency_s, throughput_hz=1 / latency_s, contention=False,
        joules_per_inference=energy, ipj=ipj, joules_per_correct=joules_per_correct(ipj), tops_per_watt=0.02,
        exit_rates=(1.0,), exits=tuple(exits) if staged else (), windows=windows,
        trace=PowerTrace(time_s=tuple(map(float, times)), power_w=tuple(
            map(float, np.where(busy, power_w, 2.0) + 0.15 * rng.standard_normal(len(times))))),
        latency_histogram=store.histogram(), reliability=tuple(
            ReliabilityBin(n=int(40 + 300 * (c > 0.9)), confidence=c, accuracy=min(1.0, c - 0.04 + 0.1 * rng.random()))
            for c in np.arange(0.35, 1.0, 0.1).tolist()),
    )  # fmt: skip


TUNED = {
    "name": "resnet20_3exit.tflite-cpu.int8",
    "record": {
        "schema_version": 1, "created_with": {}, "policy": {"rule": "max-probability", "thresholds": [0.9, 0.9]},
        "costs": {"unit": "J", "source": "measured (lpm01a, board)",
                  "stages": [{"fixed": 1e-4, "per_row": 9e-4}, {"fixed": 1e-4, "per_row": 8e-4},
                             {"fixed": 1e-4, "per_row": 1.1e-3}]},
        "certificate": {"method": "none", "reason": "40 more samples are needed", "loss": "harm", "epsilon": 0.01,
                        "delta": 0.05, "n_search": 250, "n_test": 1000, "seed": 0, "leavers": [300, 250, 450],
                        "data_sha256": "", "files": {}, "settings": {}},
        "expected": {"cost": 0.0019, "risk": 0.008, "accuracy": {"value": 0.905, "low": 0.88, "high": 0.92},
                     "leavers": [300, 250, 450]},
        "never": {"cost": 0.0031, "risk": 0.0, "accuracy": {"value": 0.911, "low": 0.89, "high": 0.93},
                  "leavers": [0, 0, 1000]},
    },
    "front": [{"thresholds": [0.9, 0.9], "expected": {"cost": 0.0011 + 0.0002 * n, "risk": 0.05 / (1 + n),
               "accuracy": {"value": 0.911 - 0.05 / (1 + n), "low": 0.8, "high": 0.95},
               "leavers": [500 - 50 * n, 200, 300 + 50 * n]}} for n in range(9)],
}  # fmt: skip


def rich_result() -> BenchResult:
    """Return a result with everything a report can show."""
    rng = np.random.default_rng(0)
    entries = [_entry(rng, target, precision) for target in TARGETS for precision in ("fp32", "int8")]
    entries.append(_entry(rng, "tflite-cpu", "int8", staged=True))
    entries.append(_entry(rng, "onnxruntime-cpu", "int8", probe=("modelled", "modelled", "process")))
    entries[-1] = msgspec.structs.replace(entries[-1], bundle="modelled.onnxruntime-cpu.int8.ipj", trace=None)
    entries[1] = msgspec.structs.replace(
        entries[1], warnings=("no gain over its fp32 twin resnet20.openvino-cpu.fp32.ipj: latency p50 1.12 times",)
    )
    return BenchResult(
        version=2, created_with={"ipj-edge": "0.1.0", "onnxruntime": "1.32.0"}, data="cifar10.npz",
        environment={"cpu": "Some <CPU> & more", "cpus": "4", "governor": "performance"},
        started="2026-01-02T03:04:05+00:00", results=tuple(entries),
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    tuned = msgspec.convert(TUNED, TunedBundle)
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render([rich_result()], [tuned]), encoding="utf-8")
    return path


LOOKS = [(1280, False), (1280, True), (390, False), (390, True), (320, False)]


@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_it_draws_without_a_complaint_or_a_request(browser, page, width, dark):
    browser.open(page, width=width, dark=dark)
    assert browser.requests == []
    assert browser.complaints == []
    for plot in ("pareto", "latency", "windows", "exits", "reliability", "tuning"):
        drawn = f"document.querySelectorAll('[data-plot={plot}] svg :is(path,rect,line,polyline,circle)').length"
        assert browser.evaluate(drawn) > 5, plot
    assert not browser.evaluate("document.querySelector('main').innerHTML.includes('NaN')")
    assert not browser.evaluate("/undefined|Infinity/.test(document.querySelector('main').innerHTML)")
    # Nothing sticks out: a phone never scrolls sideways.
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(background.removeprefix("rgb(").split(",")[0])
    assert (red < 60) == dark


def test_text_can_be_read_against_its_ground_in_both_themes(browser, page):
    """WCAG 2.1 asks for a contrast of 4.5 of small text."""
    for dark in (False, True):
        browser.open(page, dark=dark)
        pairs = browser.evaluate(
            "['body', '.soft', '.chip', '.warnings li', 'th', '.card .what', 'footer'].map((name) => {"
            " const node = document.querySelector(name); let ground = node;"
            " while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;"
            " return [name, getComputedStyle(node).color, getComputedStyle(ground).backgroundColor]; })"
        )
        for name, ink, ground in pairs:
            assert _contrast(ink, ground) >= 4.5, (name, dark)


def _contrast(one, other):
    lights = sorted((_luminance(one), _luminance(other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(color):
    parts = [int(part) / 255 for part in color.removeprefix("rgb(").rstrip(")").split(",")]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_warnings_come_before_figures(browser, page):
    browser.open(page)
    order = browser.evaluate("[...document.querySelectorAll('section')].map((s) => s.id)")
    assert order[0] == "warnings"
    text = browser.evaluate("document.getElementById('warnings').innerText")
    assert "No gain over its fp32 twin" in text
    assert "modelled from CPU time" in text
    assert "not certified: 40 more samples" in text


def test_pointing_at_a_mark_explains_it(browser, page):
    browser.open(page)
    browser.click("[data-plot=pareto] g[tabindex]")
    assert browser.evaluate("document.getElementById('tip').hidden") is False
    text = browser.evaluate("document.getElementById('tip').textContent")
    assert "per inference, measured, board" in text
    assert "correct answers per joule" in text


def test_a_click_on_a_heading_sorts_by_the_figures_behind_it(browser, page):
    browser.open(page)
    values = "[...document.querySelectorAll('#summary tbody tr')].map((r) => Number(r.children[2].dataset.value))"
    browser.click("#summary th:nth-child(3)")
    rising = browser.evaluate(values)
    assert rising == sorted(rising)
    browser.click("#summary th:nth-child(3)")
    assert browser.evaluate(values) == sorted(rising, reverse=True)


def test_the_legend_hides_a_target_in_every_plot(browser, page):
    browser.open(page)
    before = browser.evaluate("document.querySelectorAll('[data-plot=latency] g').length")
    browser.click("#pareto [data-target='tflite-cpu']")
    after = browser.evaluate("document.querySelectorAll('[data-plot=latency] g').length")
    assert before == 8
    assert after == 5
    browser.click("#latency [data-target='tflite-cpu']")
    assert browser.evaluate("document.querySelectorAll('[data-plot=latency] g').length") == before


def test_measured_and_modelled_joules_never_share_a_plot(browser, page):
    browser.open(page)
    count = "document.querySelectorAll('[data-plot=pareto] g[tabindex]').length"
    assert browser.evaluate(count) == 7
    browser.evaluate(
        "(() => { const s = document.getElementById('kind'); s.value = 'modelled, process';"
        " s.dispatchEvent(new Event('change')); })()"
    )
    assert browser.evaluate(count) == 1


def test_the_windows_of_another_measurement_can_be_chosen(browser, page):
    browser.open(page)
    assert "the probe's samples" in browser.evaluate("document.getElementById('window-note').textContent")
    browser.evaluate(
        "(() => { const s = document.getElementById('entry'); s.value = '7'; s.dispatchEvent(new Event('change')); })()"
    )
    assert "counts energy" in browser.evaluate("document.getElementById('window-note').textContent")


def test_the_theme_can_be_switched(browser, page):
    browser.open(page)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = browser.evaluate(ground)
    browser.click("#theme")
    assert browser.evaluate(ground) != light
    browser.click("#theme")
    assert browser.evaluate(ground) == light


def test_a_narrower_window_is_drawn_anew(browser, page):
    browser.open(page, width=1280)
    wide = browser.evaluate("document.querySelector('[data-plot=latency] svg').viewBox.baseVal.width")
    browser.page.set_viewport_size({"width": 500, "height": 900})
    browser.evaluate("new Promise((done) => setTimeout(done, 100))")
    assert browser.evaluate("document.querySelector('[data-plot=latency] svg').viewBox.baseVal.width") < wide


@pytest.mark.parametrize("name", ["</script><script>alert(1)</script>", '<img src=x onerror="alert(1)">', "a&b'c"])
def test_names_are_text_and_never_markup(browser, tmp_path, name):
    result = rich_result()
    entry = msgspec.structs.replace(result.results[0], bundle=f"{name}.ipj", warnings=(name,))
    path = tmp_path / "report.html"
    path.write_text(render([msgspec.structs.replace(result, results=(entry,), data=name)]), encoding="utf-8")
    browser.open(path)
    assert browser.complaints == []
    assert browser.requests == []
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert browser.evaluate("document.querySelector('#summary .name b').textContent") == name


def test_a_bare_entry_without_joules_accuracy_or_windows_still_shows(browser, tmp_path):
    entry = rich_result().results[0]
    none = EnergyPerInference(
        value=None, reason="no probe was asked for", provenance="modelled", boundary="process", probe="none",
        windows=0, inferences=0,
    )  # fmt: skip
    bare = msgspec.structs.replace(
        entry, accuracy=None, accuracy_reason="no labels were given", joules_per_inference=none, ipj=None,
        joules_per_correct=None, windows=(), trace=None, latency_histogram=None, reliability=(), tops_per_watt=None,
    )  # fmt: skip
    path = tmp_path / "report.html"
    path.write_text(render([msgspec.structs.replace(rich_result(), results=(bare,))]), encoding="utf-8")
    browser.open(path, width=390)
    assert browser.complaints == []
    assert "no probe was asked for" in browser.evaluate("document.body.innerText")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_page_is_small_and_names_no_address(page):
    text = page.read_text()
    assert len(text) < 400_000
    assert "http://www.w3.org/2000/svg" in text
    assert text.count("http") == text.count("http://www.w3.org/2000/svg") + text.count("http-equiv")

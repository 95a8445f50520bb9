"""`ipj-edge compare`, `pareto` and `report` on real runs of known speed."""

import json
import shutil

import pytest

from ipj_edge.benchmark.result.files import read_result

RUN = ("--window", "0.1", "--windows", "5", "--duration", "0.5s", "--probe", "modelled", "--error", "50%")


@pytest.fixture
def measured(spin_bundle, labelled, tmp_path, ipj_edge_here):
    """Return a function that benches a bundle of a known speed and returns where the result is."""

    def run(where, **speed):
        bundle = spin_bundle(tmp_path / where, **speed)
        out = tmp_path / f"{where}.json"
        ran = ipj_edge_here("bench", bundle, "--data", labelled, *RUN, "--json", out)
        assert ran.code == 0, ran
        return out

    return run


def test_a_result_compared_with_itself_passes(measured, ipj_edge_here):
    base = measured("base")
    ran = ipj_edge_here("compare", base, base)
    assert ran.code == 0, ran
    assert "no regression" in ran.out


def test_a_10_percent_slower_session_is_exit_code_7(measured, ipj_edge_here, tmp_path):
    base, slower = measured("base", spin_s=0.004), measured("slower", spin_s=0.0044)
    ran = ipj_edge_here("compare", base, slower, "--json", tmp_path / "c.json", "--markdown", tmp_path / "c.md")
    assert ran.code == 7, ran
    assert "regression" in ran.out
    verdicts = {check["figure"]: check for check in json.loads((tmp_path / "c.json").read_text())["checks"]}
    assert verdicts["cpu_s_per_inference"]["verdict"] == "regression"
    assert verdicts["cpu_s_per_inference"]["change"] == pytest.approx(0.10, abs=0.04)
    assert verdicts["accuracy"]["verdict"] == "pass"
    assert "❌ regression" in (tmp_path / "c.md").read_text()


def test_another_run_of_the_same_session_passes(measured, ipj_edge_here):
    base, again = measured("base", spin_s=0.004), measured("again", spin_s=0.004)
    ran = ipj_edge_here("compare", base, again)
    assert ran.code == 0, ran


def test_a_missing_baseline_is_exit_code_2_with_its_own_message(measured, ipj_edge_here, tmp_path):
    ran = ipj_edge_here("compare", tmp_path / "none.json", measured("new"))
    assert ran.code == 2
    assert "there is no baseline at" in ran.err
    assert "--json" in ran.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--max-regression", "latency_s.p99"), "expected FIGURE=LIMIT"),
        (("--max-regression", "latency_s.p99=5"), "needs its unit"),
        (("--max-regression", "speed=5%"), "unknown figure 'speed'"),
        (("--max-drop", "accuracy=5%"), "needs its unit"),
        (("--max-drop", "latency_s.p50=1pp"), "--max-regression"),
    ],
)
def test_a_limit_that_cannot_be_used_is_exit_code_2(measured, ipj_edge_here, options, said):
    base = measured("base", spin_s=0.0005)
    ran = ipj_edge_here("compare", base, base, *options)
    assert ran.code == 2
    assert said in ran.err


def test_pareto_chooses_within_limits_and_exits_5_when_nothing_meets_them(measured, ipj_edge_here):
    result = measured("base", spin_s=0.0005)
    ran = ipj_edge_here("pareto", result, "--max", "cpu_s_per_inference=20ms", "--min", "accuracy=80%", "--json", "-")
    assert ran.code == 0, ran
    (group,) = json.loads(ran.out)
    assert group["chosen"].startswith("work.spin-cpu.fp32.ipj")
    assert group["provenance"] == "modelled"
    ran = ipj_edge_here("pareto", result, "--min", "accuracy=99%")
    assert ran.code == 5
    assert "accuracy 90.00 % is below 99.00 %" in ran.out
    assert ipj_edge_here("pareto", result, "--min", "speed=1").code == 2


def test_report_writes_one_page_of_several_results(measured, ipj_edge_here, tmp_path):
    first = measured("base", spin_s=0.0005)
    second = tmp_path / "second.json"
    shutil.copy(first, second)
    page = tmp_path / "r.html"
    ran = ipj_edge_here("report", first, second, "-o", page)
    assert ran.code == 0, ran
    text = page.read_text()
    assert "2 measurements on data.npz" in text
    assert "modelled from CPU time" in text
    assert ipj_edge_here("report", first, "-o", page).code == 2
    (tmp_path / "x.json").write_text("{}")
    ran = ipj_edge_here("report", tmp_path / "x.json", "-o", tmp_path / "x.html")
    assert ran.code == 2
    assert not (tmp_path / "x.html").exists()
    assert read_result(first).results

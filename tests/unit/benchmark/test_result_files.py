import csv
import io
import json

import msgspec
import numpy as np
import pytest

from ipj_edge.benchmark.result.files import check_free, encode, read_result, samples_path, write_samples
from ipj_edge.benchmark.result.schema import BenchResult
from ipj_edge.benchmark.result.tables import mode_text, to_csv, to_markdown
from ipj_edge.benchmark.run.twins import flag_twins
from ipj_edge.errors import ConfigError, DataError, DestinationError
from ipj_edge.units import bytes_text, quantity, seconds
from ipj_edge.writing import write_file

VERSION_1 = {
    "version": 1, "created_with": {"ipj-edge": "0.1.0"}, "environment": {"cpu": "x"}, "data": "test.npz",
    "results": [{
        "bundle": "digits.tflite-cpu.int8.ipj", "digest": "d", "data_sha256": "a", "target": "tflite-cpu",
        "precision": "int8", "scenario": "single-stream",
        "requested": {"threads": None, "spinning": False, "allow_fallback": False},
        "effective": [{"engine": "ai-edge-litert", "engine_version": "2.3.0", "threads": 2,
                       "execution_precision": "int8", "providers": [], "spinning": None, "affinity": 2,
                       "cpu_quota": None, "read_back": []}],
        "bytes": 31863, "accuracy": {"value": 0.99, "low": 0.97, "high": 1.0, "n": 360}, "accuracy_reason": "",
        "load_s": 0.1, "first_s": 0.001, "latency_s": {"p50": 1e-5, "p90": 2e-5, "p99": 3e-5, "mean": 1.5e-5},
        "inferences": 1000, "cpu_s_per_inference": 3e-5, "throughput_hz": 30000.0, "contention": True,
        "joules_per_inference": {
            "value": 1e-4, "reason": "", "low": 9e-5, "high": 1.1e-4, "net": None, "provenance": "modelled",
            "boundary": "process", "probe": "modelled", "windows": 5, "inferences": 1000, "accuracy": 0.5, "note": ""},
        "ipj": {"value": 9900.0, "low": 9000.0, "high": 11000.0},
        "joules_per_correct": {"value": 1e-4, "low": 9e-5, "high": 1.1e-4},
        "exit_rates": [1.0], "warnings": []}],
}  # fmt: skip


def test_a_result_reads_back_equal(tmp_path, make_entry, result_with):
    result = result_with(make_entry())
    write_file(tmp_path / "r.json", encode(result))
    assert read_result(tmp_path / "r.json") == result


def test_a_result_of_version_1_is_still_read(tmp_path):
    (tmp_path / "old.json").write_text(json.dumps(VERSION_1))
    result = read_result(tmp_path / "old.json")
    assert result.results[0].latency_s.p99 == 3e-5
    assert result.results[0].windows == ()
    assert to_csv(result).count("\n") == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "damaged or no JSON"),
        ("[1]", "no result of"),
        ('{"a": 1}', "no result of"),
        (json.dumps(VERSION_1 | {"version": 99}), "version 99"),
    ],
)
def test_what_is_no_result_is_refused_in_one_line(tmp_path, content, said):
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(DataError, match=said):
        read_result(tmp_path / "r.json")
    with pytest.raises(DataError, match="No such file"):
        read_result(tmp_path / "none.json")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_infinity_never_reach_json(make_entry, result_with, bad):
    with pytest.raises(DataError, match=r"results\[0\]\.throughput_hz"):
        encode(result_with(make_entry(throughput_hz=bad)))


def test_numbers_are_numbers_and_the_json_follows_its_schema(make_entry, result_with):
    raw = json.loads(encode(result_with(make_entry())))
    schema = msgspec.json.schema(BenchResult)["$defs"]
    entry = raw["results"][0]
    assert set(entry) == set(schema["Entry"]["properties"])
    for name in ("load_s", "first_s", "cpu_s_per_inference", "throughput_hz", "bytes", "inferences"):
        assert type(entry[name]) in (int, float)
    assert all(type(value) is float for name, value in entry["latency_s"].items() if name.startswith("p"))


def test_a_place_that_is_taken_or_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "r.json").write_text("mine")
    with pytest.raises(DestinationError, match="--force"):
        check_free([tmp_path / "r.json"], force=False)
    check_free([tmp_path / "r.json", None, "-"], force=True)
    for place in (tmp_path, tmp_path / "none" / "r.json"):
        with pytest.raises(DestinationError, match="folder"):
            check_free([place], force=True)


def test_raw_samples_lie_beside_the_result(tmp_path):
    path = samples_path(tmp_path / "r.json")
    assert path.name == "r.samples.npz"
    write_samples(path, {0: np.arange(3.0), 1: np.arange(2.0)})
    with np.load(path) as file:
        assert file["latency_s/0"].tolist() == [0, 1, 2]
        assert len(file.files) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.samples.npz"]


def test_csv_has_numbers_and_empty_cells_for_what_is_not_known(make_entry, result_with):
    text = to_csv(result_with(make_entry(), make_entry(has_joules=False, accuracy=None)))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert float(rows[0]["joules_per_1000"]) == pytest.approx(4.0, rel=0.05)
    assert float(rows[0]["accuracy"]) == 0.95
    assert rows[1]["joules_per_inference"] == rows[1]["accuracy"] == rows[1]["correct_per_joule"] == ""
    assert rows[1]["joules_reason"] == "no probe was asked for"


def test_markdown_shows_warnings_first_and_provenance(make_entry, result_with):
    text = to_markdown(result_with(make_entry(warnings=("this machine is busy",)), make_entry(has_joules=False)))
    assert text.startswith("> **net.tflite-cpu.int8.ipj** (single-stream, 2 threads): this machine is busy")
    assert "measured, package (rapl)" in text
    assert "no probe was asked for" in text


def test_a_mode_is_told_in_a_few_words(make_entry):
    assert mode_text(make_entry(every_s=0.02)) == "single-stream every 20.00 ms, 2 threads"
    assert mode_text(make_entry(scenario="offline", samples_per_query=32)) == "offline of 32, 2 threads"


def test_a_bundle_worse_than_its_fp32_twin_is_flagged(make_entry):
    twin = make_entry("net.tflite-cpu.fp32.ipj")
    slow, quick = make_entry(slower=1.2), make_entry(slower=0.4)
    flagged = flag_twins([twin, slow])[1]
    assert "no gain over its fp32 twin net.tflite-cpu.fp32.ipj" in flagged.warnings[0]
    assert "CPU time per inference 1.2" in flagged.warnings[0]
    assert "joules per inference 1.2" in flagged.warnings[0]
    assert flag_twins([twin, quick])[1].warnings == ()
    other = make_entry(slower=1.2, scenario="offline")
    assert flag_twins([twin, other])[1].warnings == ()


@pytest.mark.parametrize(
    ("text", "value"), [("20ms", 0.02), ("1.5 s", 1.5), ("90%", 0.9), ("3mJ", 0.003), ("0.5pp", 0.005), ("12", 12)]
)
def test_quantities_carry_their_unit(text, value):
    assert quantity(text)[0] == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "ms", "20 parsecs", "-1s", "1e999s%", "nan"])
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(ConfigError, match="units are"):
        quantity(text)


@pytest.mark.parametrize("text", ["5%", "3J", "0ms"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ConfigError, match="a time above 0"):
        seconds(text)
    assert bytes_text(14_200) == "14.2 kB"

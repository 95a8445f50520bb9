import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from ipj_edge.bundles.manifest import FileRecord
from ipj_edge.errors import BundleError, ConfigError, DestinationError
from ipj_edge.exits import (
    EXITS_NAME,
    Certificate,
    ExitPolicy,
    ExitsRecord,
    Expectation,
    StageCost,
    StageCosts,
    Tuned,
    check_record,
    engine_files,
    make_policy,
    make_record,
    read_exits,
    tuned_under,
    write_exits,
)
from ipj_edge.plugins import load_exit_rule
from ipj_edge.values import EffectiveSettings, Meaning

FILES = {"stage0.onnx": "a" * 64, "stage1.onnx": "b" * 64}
SETTINGS = {"engine": "onnxruntime", "threads": "1"}
LOGITS: list[Meaning] = ["logits"] * 3


def record(policy: ExitPolicy | None = None) -> ExitsRecord:
    seen = Expectation(cost=1.5, risk=0.002, accuracy=None, leavers=(700, 0, 300))
    certificate = Certificate(
        method="exact-binomial",
        loss="harm",
        epsilon=0.01,
        delta=0.05,
        n_search=333,
        n_test=1000,
        risk=0.002,
        errors=2,
        p_value=0.0027,
        seed=0,
        leavers=(700, 0, 300),
        data_sha256="d" * 64,
        files=FILES,
        settings=SETTINGS,
    )
    tuned = Tuned(
        policy=policy or ExitPolicy(rule="max-probability", thresholds=(0.93, None)),
        certificate=certificate,
        expected=seen,
        never=seen,
        front=(),
    )
    costs = StageCosts(unit="J", source="modelled", stages=(StageCost(fixed=0.1, per_row=1.0),) * 3)
    return make_record(tuned, costs, batch=1, created_with={"ipj-edge": "0.1.0"})


def test_a_record_reads_back_as_it_was_written(tmp_path: Path) -> None:
    written = record()
    write_exits(tmp_path, written)
    read = read_exits(tmp_path)
    assert read is not None
    assert msgspec.structs.replace(read, digest=written.digest) == written
    assert read.policy.thresholds == (0.93, None)  # never, not a number that JSON lacks
    assert sorted(path.name for path in tmp_path.iterdir()) == [EXITS_NAME]


def test_a_bundle_without_exits_has_no_record(tmp_path: Path) -> None:
    assert read_exits(tmp_path) is None


def test_the_same_record_gives_the_same_bytes_and_others_may_read_them(tmp_path: Path) -> None:
    texts = []
    for _ in range(2):
        write_exits(tmp_path, record())
        texts.append((tmp_path / EXITS_NAME).read_bytes())
    assert texts[0] == texts[1]
    assert (tmp_path / EXITS_NAME).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b"0.93", b"0.63", "was changed after tuning, which voids its certificate"),
        (b'"errors": 2', b'"errors": 1', "was changed after tuning"),
        (b'"rule": "max-probability"', b'"rule": 7', "is damaged: Expected `str`, got `int`"),
        (b'"schema_version": 1', b'"schema_version": 2', "has schema version 2, this ipj-edge reads 1"),
        (b"{", b"", "is damaged"),
        (b"onnxruntime", b"\xff\xfe", "is damaged"),
    ],
)
def test_a_file_that_is_not_as_written_is_refused(tmp_path: Path, old: bytes, new: bytes, says: str) -> None:
    write_exits(tmp_path, record())
    file = tmp_path / EXITS_NAME
    raw = file.read_bytes()
    assert old in raw
    file.write_bytes(raw.replace(old, new, 1))
    with pytest.raises(BundleError, match=says) as caught:
        read_exits(tmp_path)
    assert "ipj-edge exits tune" in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("position", range(0, 900, 97))
def test_no_flipped_bit_goes_unseen(tmp_path: Path, position: int) -> None:
    write_exits(tmp_path, record())
    file = tmp_path / EXITS_NAME
    raw = bytearray(file.read_bytes())
    raw[position] ^= 1
    file.write_bytes(raw)
    with pytest.raises(BundleError):
        read_exits(tmp_path)


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    write_exits(tmp_path, record())
    before = (tmp_path / EXITS_NAME).read_bytes()
    with pytest.raises(DestinationError, match="nothing was changed"):
        write_exits(tmp_path / "missing", record())
    os.mkdir(tmp_path / "taken")
    os.mkdir(tmp_path / "taken" / EXITS_NAME)  # cannot be replaced by a file
    with pytest.raises(DestinationError, match=r"cannot write .*exits.json: it is a folder"):
        write_exits(tmp_path / "taken", record())
    assert [path.name for path in (tmp_path / "taken").iterdir()] == [EXITS_NAME]  # no temporary file is left
    assert (tmp_path / EXITS_NAME).read_bytes() == before


def test_a_policy_of_these_bytes_and_settings_is_accepted() -> None:
    check_record(record(), load_exit_rule("max-probability"), LOGITS, files=FILES, settings=SETTINGS)


@pytest.mark.parametrize(
    ("meanings", "files", "settings", "says"),
    [
        (LOGITS, FILES | {"stage1.onnx": "c" * 64}, SETTINGS, "file stage1.onnx = bbbb.*here it is cccc"),
        (LOGITS, {"stage0.onnx": "a" * 64}, SETTINGS, "file stage1.onnx = bbbb.*here it is absent"),
        (LOGITS, FILES | {"stage2.onnx": "c" * 64}, SETTINGS, "file stage2.onnx = absent"),
        (LOGITS, FILES, SETTINGS | {"threads": "4"}, "setting threads = 1, here it is 4: its certificate is void"),
        (LOGITS[:2], FILES, SETTINGS, "does not belong to this model: 2 thresholds for a model with 2 exits"),
        (["other"] * 3, FILES, SETTINGS, "judges logits or probabilities, but the exits answer with 'other'"),
    ],
)
def test_a_policy_of_other_bytes_settings_or_models_is_void(
    meanings: list[Meaning], files: Mapping[str, str], settings: Mapping[str, str], says: str
) -> None:
    with pytest.raises(BundleError, match=says) as caught:
        check_record(record(), load_exit_rule("max-probability"), meanings, files=files, settings=settings)
    assert caught.value.exit_code == 9


def test_the_engine_files_of_a_bundle_are_all_but_golden_inputs_and_exits() -> None:
    names = ["golden.npz", "net.bin", "net.xml", "exits.json"]
    records = tuple(FileRecord(path=name, size_bytes=1, sha256=name) for name in names)

    class Holder:
        files = records

    assert engine_files(Holder()) == {"net.bin": "net.bin", "net.xml": "net.xml"}  # type: ignore[arg-type]


def test_settings_that_stages_share_are_named_once() -> None:
    one = EffectiveSettings(
        engine="onnxruntime", engine_version="1", threads=2, execution_precision="f32", providers=("A", "B"), affinity=8
    )
    two = msgspec.structs.replace(one, execution_precision="int8", affinity=4)
    assert tuned_under([one, two]) == {
        "engine": "onnxruntime",
        "engine_version": "1",
        "execution_precision": "f32 | int8",
        "threads": "2",
        "providers": "A, B",
    }
    # What does not change an answer or its cost does not void a certificate.
    assert tuned_under([one]) == tuned_under([msgspec.structs.replace(one, affinity=1, cpu_quota=0.5)])


@pytest.mark.parametrize(
    ("rule", "thresholds", "meanings", "parameters", "says"),
    [
        ("max-probability", [0.5], ["logits"], {}, "this model has one exit"),
        ("max-probability", [0.5], LOGITS, {}, "1 thresholds for a model with 3 exits: give 2"),
        ("max-probability", [0.5, 0.5, 0.5], LOGITS, {}, "3 thresholds for a model with 3 exits"),
        ("max-probability", [0.5, 1.5], LOGITS, {}, "threshold 1.5 of exit 1: scores of 'max-probability' lie in 0..1"),
        ("entropy", [-0.1, 0.5], LOGITS, {}, "threshold -0.1 of exit 0"),
        ("margin", [float("nan"), 0.5], LOGITS, {}, "threshold nan of exit 0"),
        ("patience", [2, 4], LOGITS, {}, "threshold 4 of exit 1: scores of 'patience' lie in 1..3"),
        ("change", [0.1, None], ["other"] * 3, {}, "threshold 0.1 of exit 0: scores of 'change' lie in -inf..0"),
        ("change", [-float("inf"), None], ["other"] * 3, {}, "threshold -inf of exit 0"),
        ("patience", [2, 2], ["other"] * 3, {}, "'patience' judges logits or probabilities"),
        ("entropy", [0.5, 0.5], ["logits", "logits", "other"], {}, "answer with different things"),
        ("patience", [2, 2], LOGITS, {"temperature": [1, 1, 1]}, "has no parameter 'temperature'; it has: none"),
        ("entropy", [0.5, 0.5], LOGITS, {"temperature": [1, 1]}, "expected 3 finite numbers"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(
    rule: str,
    thresholds: list[float | None],
    meanings: list[Meaning],
    parameters: dict[str, list[float]],
    says: str,
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        make_policy(load_exit_rule(rule), thresholds, meanings, parameters=parameters)
    assert caught.value.exit_code == 2


def test_infinity_and_none_both_mean_never() -> None:
    policy = make_policy(load_exit_rule("entropy"), [float("inf"), None], LOGITS)
    assert policy.thresholds == (None, None)
    assert policy.never_exits
    assert not make_policy(load_exit_rule("entropy"), [None, 0.5], LOGITS).never_exits


def test_what_a_device_imports_has_no_search_in_it() -> None:
    probe = (
        "import sys, ipj_edge.exits\n"
        "print(*(f'ipj_edge.exits.{name}' in sys.modules for name in ('run.gate', 'proof.search')))"
    )
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["True", "False"]

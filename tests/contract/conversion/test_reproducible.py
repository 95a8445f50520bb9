"""The same source, data and seed give the same bytes in two fresh processes, whatever the hash seed."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TARGETS = ("openvino-cpu", "onnxruntime-cpu", "tflite-cpu")


@pytest.mark.slow
def test_a_second_conversion_in_another_process_gives_the_same_bytes(
    bundles: Path, digits: Path, digits_arguments: list[str], tmp_path: Path
) -> None:
    wanted = [part for target in TARGETS for part in ("--target", target)]
    gate = ["--data", str(digits / "test.npz"), "--max-accuracy-drop", "1pp"]
    precisions = ["--precision", "fp32", "--precision", "int8"]
    command = [sys.executable, "-m", "ipj_edge", "convert", *digits_arguments, *gate, *wanted, *precisions]
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    subprocess.run([*command, "-o", str(tmp_path)], check=True, capture_output=True, env=environment)
    for bundle in sorted(bundles.iterdir()):
        manifest = json.loads((bundle / "manifest.json").read_text())
        may_differ = {record["path"] for record in manifest["files"] if not record["reproducible"]}
        for file in sorted(path for path in bundle.rglob("*") if path.is_file()):
            name = file.relative_to(bundle).as_posix()
            if name not in may_differ | ({"manifest.json"} if may_differ else set()):
                again = tmp_path / bundle.name / name
                assert _digest(file) == _digest(again), (bundle.name, name)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()

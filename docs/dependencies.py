"""Write dependencies.md from pyproject.toml and the facts here (``make docs``), and the SBOM (``make sbom``)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import tomllib

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "dependencies.md"
_NAME = re.compile(r"([A-Za-z0-9][\w.-]*)(.*)")
_OFF = "`ORT_DISABLE_TELEMETRY=1` while it is imported"


class Facts(NamedTuple):
    """What is not in pyproject.toml: the licence, what a package is for, and its telemetry and how it is off."""

    licence: str
    purpose: str
    telemetry: str = "none"


FACTS = {
    "ai-edge-litert": Facts("Apache-2.0", "runs .tflite files"),
    "ai-edge-quantizer": Facts("Apache-2.0", "quantizes .tflite files"),
    "build": Facts("MIT", "builds the wheel in a test"),
    "click": Facts("BSD-3-Clause", "command line"),
    "cryptography": Facts("Apache-2.0 OR BSD-3-Clause", "signs bundles and checks signatures"),
    "hatchling": Facts("MIT", "builds the wheel"),
    "hypothesis": Facts("MPL-2.0", "tests by generated cases; not distributed with us"),
    "import-linter": Facts("BSD-2-Clause", "holds the layers of the code"),
    "litert-torch": Facts("Apache-2.0", "converts torch to .tflite"),
    "msgspec": Facts("BSD-3-Clause", "reads and checks JSON and TOML"),
    "mypy": Facts("MIT", "checks types"),
    "nncf": Facts(
        "Apache-2.0", "quantizes for OpenVINO", "`openvino_telemetry` cannot be imported while it is imported"
    ),
    "numpy": Facts("BSD-3-Clause", "arrays"),
    "nvidia-ml-py": Facts("BSD-3-Clause", "reads the power of NVIDIA GPUs"),
    "onnx": Facts("Apache-2.0", "reads and writes .onnx files"),
    "onnx-ir": Facts("Apache-2.0", "used by torch's ONNX export"),
    "onnxruntime": Facts("MIT", "runs and quantizes .onnx files", _OFF),
    "onnxruntime-gpu": Facts("MIT", "runs .onnx files on NVIDIA GPUs", _OFF),
    "onnxscript": Facts("MIT", "used by torch's ONNX export"),
    "openvino": Facts(
        "Apache-2.0",
        "runs and converts OpenVINO models",
        "`openvino_telemetry` cannot be imported while it is imported",
    ),
    "pillow": Facts("MIT-CMU", "reads images"),
    "playwright": Facts("Apache-2.0", "drives the system's Chromium in tests of the report"),
    "psutil": Facts("BSD-3-Clause", "processes, CPU and memory of this machine"),
    "pyserial": Facts("BSD-3-Clause", "power meters on a serial port"),
    "pytest": Facts("MIT", "runs the tests"),
    "pytest-xdist": Facts("MIT", "runs the tests on several CPUs"),
    "rich": Facts("MIT", "tables on the terminal"),
    "ruff": Facts("MIT", "formats and checks the code"),
    "safetensors": Facts("Apache-2.0", "reads and writes weights without pickle"),
    "scikit-learn": Facts("BSD-3-Clause", "the digits of the demo"),
    "scipy": Facts("BSD-3-Clause", "second opinion on our statistics in tests"),
    "sympy": Facts("BSD-3-Clause", "used by torch's export"),
    "tomli": Facts("MIT", "reads TOML on Python 3.10"),
    "torch": Facts("BSD-3-Clause", "runs, exports and trains torch models"),
    "torch-pruning": Facts("MIT", "prunes channels"),
    "transformers": Facts(
        "Apache-2.0",
        "architectures of the conformance suite; tests only",
        "its hub client reports with downloads; the tests make models from configurations and download nothing",
    ),
    "torchao": Facts("BSD-3-Clause", "quantization-aware training"),
}


def project() -> dict[str, Any]:
    """Return the project's table in pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def direct() -> dict[str, tuple[str, list[str]]]:
    """Return the version range and the extras of every direct dependency; an empty extra is the core."""
    found: dict[str, tuple[str, list[str]]] = {}
    for extra, lines in {"": project()["dependencies"], **project()["optional-dependencies"]}.items():
        for line in lines:
            match = _NAME.fullmatch(line)
            assert match is not None, line
            if match[1] != project()["name"]:
                found.setdefault(match[1], (match[2], []))[1].append(extra)
    return dict(sorted(found.items()))


def licence(name: str) -> str:
    """Return what an installed package says its licence is; empty where it is not installed or says nothing."""
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return ""
    classified = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier") or [] if "License ::" in each]
    return about["License-Expression"] or ", ".join(classified) or (about["License"] or "").partition("\n")[0]


def page() -> str:
    """Return the page."""
    rows = []
    for name, (versions, extras) in direct().items():
        facts = FACTS[name]
        where = ", ".join(f"`{extra}`" if extra else "core" for extra in extras)
        shown = versions.replace("|", "\\|")
        rows.append(f"| {name} | {shown} | {facts.licence} | {facts.purpose} | {where} | {facts.telemetry} |")
    return "\n".join(
        [
            "# Direct dependencies",
            "",
            "Built by `make docs` from pyproject.toml; a test holds it against that file and what is installed.",
            "No dependency is under the GPL or AGPL. torch's wheel contains parts under other permissive licences.",
            "`make sbom` writes a bill of materials (CycloneDX JSON) of `constraints.txt`, the tested set of versions.",
            "",
            "| package | versions | licence | for | extra | telemetry, and how it is off |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def components() -> Iterator[dict[str, Any]]:
    """Yield a CycloneDX component for every line of constraints.txt; the licence where the package is installed."""
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, pinned, version = line.partition("==")
        if not pinned or line.startswith("#"):
            continue
        name, version = re.sub(r"[-_.]+", "-", name.strip()).lower(), version.split(";")[0].strip()
        part: dict[str, Any] = {"type": "library", "name": name, "version": version}
        part["purl"] = part["bom-ref"] = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
        if said := licence(name):
            part["licenses"] = [{"license": {"name": said}}]
        yield part


def bill() -> dict[str, Any]:
    """Return the bill of materials: the same every time, so without a date or a serial number."""
    about = {"type": "application", "name": project()["name"], "version": project()["version"]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": about},
        "components": list(components()),
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["sbom"]:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(bill()), indent=2).decode() + "\n")
    else:
        PAGE.write_text(page())

"""Start-up: what is imported, not how long it takes."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "torch", "torchao", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "openvino", "nncf", "ai_edge_litert",
    "ai_edge_quantizer", "litert_torch", "tflite_runtime", "serial", "pynvml", "plotly", "PIL", "psutil",
    "safetensors", "sklearn", "scipy",
)  # fmt: skip


def _loaded(code: str) -> set[str]:
    probe = f"import sys, json; sys.argv = ['ipj-edge', '--help']\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    return set(json.loads(out.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import ipj_edge",
        "import ipj_edge\nipj_edge.load\nipj_edge.measure\nipj_edge.Meter",
        "from ipj_edge.cli import group\ntry: group.main(['--help'])\nexcept SystemExit: pass",
        "import ipj_edge.cli.bundles.convert, ipj_edge.cli.figures.bench, ipj_edge.cli.figures.measure\n"
        "import ipj_edge.cli.machine.doctor",
        "from ipj_edge import plugins\n"
        "for group in (plugins.SOURCES, plugins.CONVERTERS, plugins.TARGETS, plugins.POWER_PROBES):\n"
        "    assert plugins.names(group)",
    ],
    ids=["import", "names", "help", "commands", "listing plugins"],
)
def test_no_engine_no_plugin_and_nothing_heavy_is_imported(code: str) -> None:
    loaded = _loaded(code)
    assert not loaded & set(HEAVY)
    assert not [
        name for name in loaded if name.startswith(("ipj_edge_targets", "ipj_edge_probes", "ipj_edge_converters"))
    ]


def test_importing_the_package_imports_none_of_its_parts() -> None:
    assert not [name for name in _loaded("import ipj_edge") if name.startswith("ipj_edge.")]


def test_loading_one_plugin_imports_no_other() -> None:
    loaded = _loaded("from ipj_edge import plugins\nplugins.load_target('tflite-cpu')")
    assert "ipj_edge_targets.tflite_cpu" in loaded
    assert "ipj_edge_targets.openvino_cpu" not in loaded
    assert not loaded & set(HEAVY)


def test_every_public_name_can_be_had() -> None:
    import ipj_edge

    for name in ipj_edge.__all__:
        assert callable(getattr(ipj_edge, name)), name
    # Also after the packages that do the work have been imported: a submodule may not shadow a public name.
    import ipj_edge.benchmark
    import ipj_edge.conversion
    import ipj_edge.runtime.verification

    for name in ipj_edge.__all__:
        assert callable(getattr(ipj_edge, name)), name
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = ipj_edge.nonsense  # type: ignore[attr-defined]


def test_every_error_is_a_public_name() -> None:
    import ipj_edge
    from ipj_edge import errors

    family = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert errors.IpjEdgeError in family
    for error in family:
        assert getattr(ipj_edge, error.__name__) is error
        assert error.__name__ in ipj_edge.__all__

"""What edgetpu_compiler prints, word by word as users reported it, and what is made of it."""

from __future__ import annotations

import pytest

from ipj_edge.errors import ConversionError, UnsupportedError
from ipj_edge_converters.edgetpu.compiler import compile_model, parse_log

NOT_ALL = (
    "Model successfully compiled but not all operations are supported by the Edge TPU. A percentage of the model will "
    "instead run on the CPU, which is slower. If possible, consider updating your model to use only operations "
    "supported by the Edge TPU. For details, visit g.co/coral/model-reqs."
)
# google-coral/edgetpu issue 60.
PARTLY = f"""Edge TPU Compiler version 2.1.302470888

Model compiled successfully in 12264 ms.

Input model: model2.tflite
Input size: 8.11MiB
Output model: model2_edgetpu.tflite
Output size: 9.47MiB
On-chip memory used for caching model parameters: 6.86MiB
On-chip memory remaining for caching model parameters: 7.75KiB
Off-chip memory used for streaming uncached model parameters: 1.22MiB
Number of Edge TPU subgraphs: 1
Total number of operations: 93
Operation log: model2_edgetpu.log

{NOT_ALL}
Number of operations that will run on Edge TPU: 83
Number of operations that will run on CPU: 10

Operator                       Count      Status

LOGISTIC                       1          More than one subgraph is not supported
ADD                            10         Mapped to Edge TPU
CONCATENATION                  1          More than one subgraph is not supported
CONCATENATION                  3          Mapped to Edge TPU
QUANTIZE                       7          Operation is otherwise supported, but not mapped due to some unspecified limitation
CONV_2D                        70         Mapped to Edge TPU
"""  # noqa: E501 # as it is printed
# google-coral/edgetpu issue 708.
NOTHING = f"""Edge TPU Compiler version 16.0.384591198
Started a compilation timeout timer of 180 seconds.

Model compiled successfully in 17 ms.

Input model: detect2.tflite
Input size: 10.97MiB
Output model: detect2_edgetpu.tflite
Output size: 10.97MiB
On-chip memory used for caching model parameters: 0.00B
On-chip memory remaining for caching model parameters: 0.00B
Off-chip memory used for streaming uncached model parameters: 0.00B
Number of Edge TPU subgraphs: 0
Total number of operations: 157
Operation log: detect2_edgetpu.log

{NOT_ALL}
Number of operations that will run on Edge TPU: 0
Number of operations that will run on CPU: 157

Operator                       Count      Status

RESHAPE                        10         Operation is working on an unsupported data type
RESHAPE                        4          Tensor has unsupported rank (up to 3 innermost dimensions mapped)
CONV_2D                        143        Operation is working on an unsupported data type
Compilation child process completed within timeout period.
Compilation succeeded!
"""
# google-coral/edgetpu issues 342 and 317: one operator in between leaves the rest to the host.
TRANSPOSED = f"""Edge TPU Compiler version 15.0.340273435

Model compiled successfully in 93 ms.

Input model: net.tflite
On-chip memory used for caching model parameters: 0.00B
Off-chip memory used for streaming uncached model parameters: 0.00B
Number of Edge TPU subgraphs: 1
Total number of operations: 155

{NOT_ALL}
Number of operations that will run on Edge TPU: 2
Number of operations that will run on CPU: 153

Operator                       Count      Status

TRANSPOSE                      70         Operation not supported
FULLY_CONNECTED                1          More than one subgraph is not supported
PAD                            1          Mapped to Edge TPU
PAD                            17         More than one subgraph is not supported
ADD                            10         More than one subgraph is not supported
MEAN                           2          More than one subgraph is not supported
CONV_2D                        35         More than one subgraph is not supported
QUANTIZE                       1          Mapped to Edge TPU
QUANTIZE                       1          Operation is otherwise supported, but not mapped due to some unspecified limitation
DEPTHWISE_CONV_2D              17         More than one subgraph is not supported
"""  # noqa: E501 # as it is printed
# google-coral/edgetpu issues 829 and 879, and one about a custom operator.
DYNAMIC = """Edge TPU Compiler version 16.0.384591198
Started a compilation timeout timer of 180 seconds.
ERROR: Attempting to use a delegate that only supports static-sized tensors with a graph that has dynamic-sized tensors.
Compilation failed: Model failed in Tflite interpreter. Please ensure model can be loaded/run in Tflite interpreter.
Compilation child process completed within timeout period.
Compilation failed!
"""
TOO_NEW = """Edge TPU Compiler version 16.0.384591198
ERROR: Didn't find op for builtin opcode 'QUANTIZE' version '3'. An older version of this builtin might be supported. Are you using an old TFLite binary with a newer model?

ERROR: Registration failed.

Invalid model: /mnt/e/models/quantized_model.tflite
Model could not be parsed
"""  # noqa: E501 # as it is printed
CUSTOM = """Edge TPU Compiler version 16.0.384591198
Started a compilation timeout timer of 180 seconds.
ERROR: Encountered unresolved custom op: Atan.
ERROR: Node number 1 (Atan) failed to prepare.

Compilation failed: Model failed in Tflite interpreter. Please ensure model can be loaded/run in Tflite interpreter.
Compilation child process completed within timeout period.
Compilation failed!
"""


@pytest.fixture
def compiler(tmp_path):
    """A program that prints a text, writes the compiled file or not, and ends with an exit code."""

    def made(printed: str, *, code: int = 0, writes: bool = True) -> str:
        program = tmp_path / "edgetpu_compiler"
        (tmp_path / "printed").write_text(printed)
        copy = 'cp "$4" "$3/$(basename "$4" .tflite)_edgetpu.tflite"; touch "$3/net_edgetpu.log"' if writes else ":"
        program.write_text(f"#!/bin/sh\n{copy}\ncat {tmp_path / 'printed'}\nexit {code}\n")
        program.chmod(0o755)
        (tmp_path / "net.tflite").write_bytes(b"the model")
        return str(program)

    return made


def test_a_log_is_read_to_the_last_figure():
    log = parse_log(PARTLY)
    assert (log.version, log.subgraphs, log.operators) == ("2.1.302470888", 1, 93)
    assert log.on_chip_bytes == round(6.86 * 1024**2)
    assert log.off_chip_bytes == round(1.22 * 1024**2)
    assert log.mapped() == 83
    assert [(row.type, row.count) for row in log.rows if row.status.startswith("More")] == [
        ("LOGISTIC", 1),
        ("CONCATENATION", 1),
    ]


def test_rows_add_up_to_the_operators_of_the_model():
    for printed in (PARTLY[: PARTLY.index("QUANTIZE")], NOTHING, TRANSPOSED):
        log = parse_log(printed)
        assert sum(row.count for row in log.rows) <= log.operators
    assert sum(row.count for row in parse_log(NOTHING).rows) == 157
    assert sum(row.count for row in parse_log(TRANSPOSED).rows) == 155


def test_compiled_successfully_with_nothing_mapped_is_a_failure(compiler, tmp_path):
    with pytest.raises(UnsupportedError, match=r"mapped none of the 157 operators.*RESHAPE.*unsupported data"):
        compile_model(compiler(NOTHING), tmp_path / "net.tflite", tmp_path)


def test_a_compiled_model_and_what_was_said_come_back(compiler, tmp_path):
    compiled, log = compile_model(compiler(TRANSPOSED), tmp_path / "net.tflite", tmp_path)
    assert compiled.name == "net_edgetpu.tflite"
    assert log.mapped() == 2
    assert not list(tmp_path.glob("*.log"))


@pytest.mark.parametrize(
    ("printed", "told", "operators"),
    [
        (DYNAMIC, "dynamic-sized tensors", ()),
        (TOO_NEW, "'QUANTIZE' version '3'", ("QUANTIZE",)),
        (CUSTOM, "unresolved custom op: Atan", ("Atan",)),
    ],
)
@pytest.mark.parametrize("code", [0, 1])
def test_a_failed_compilation_says_why_whatever_its_exit_code(compiler, tmp_path, printed, told, operators, code):
    with pytest.raises(UnsupportedError, match=told) as caught:
        compile_model(compiler(printed, code=code, writes=False), tmp_path / "net.tflite", tmp_path)
    assert caught.value.operators == operators
    assert "16.0.384591198" in str(caught.value)


def test_an_unreadable_log_is_no_success(compiler, tmp_path):
    with pytest.raises(ConversionError, match="cannot read what edgetpu_compiler printed"):
        compile_model(compiler("All fine!"), tmp_path / "net.tflite", tmp_path)


def test_a_crash_of_the_compiler_is_told(compiler, tmp_path):
    with pytest.raises(ConversionError, match="exit code 139"):
        compile_model(compiler("Segmentation fault", code=139, writes=False), tmp_path / "net.tflite", tmp_path)

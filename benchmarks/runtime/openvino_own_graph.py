"""OpenVINO stages two ways: from the cut QDQ file, or from openvino's own int8 graph (NNCF) cut at its nodes.

    python -m benchmarks.runtime.openvino_own_graph [../shared/data]

Prints whether each chain equals its whole graph bit for bit, how right its exits are, and what it costs at batch 1
(linked, as in ``stage_chain.py``) and at batch 32. The figures are the reason for ``cut_openvino``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from benchmarks.exits import resnet20_exits
from benchmarks.runtime.stage_chain import Rivals, fifth_percentiles, link, openvino_request
from benchmarks.shared import public_data

from ipj_edge_converters.onnx.files import save_onnx
from ipj_edge_converters.onnx.quantize.static import Choices, quantize
from ipj_edge_converters.openvino.cut import cut_openvino
from ipj_edge_converters.openvino.file import import_openvino
from ipj_edge_converters.openvino.onnx_reading import read_onnx
from ipj_edge_converters.openvino.quantize import quantize as quantize_openvino

# What crosses the boundaries, as openvino names it: the last activation of a layer.
_CROSSING = ("/layer1/layer1.2/Relu_1", "/layer2/layer2.2/Relu_1")
_BATCH = 32


def cut_at_nodes(path: Path) -> list[Any]:
    """Return the stages of a three-exit graph: a Parameter and a Result for every tensor that crosses a boundary."""
    takes, adds = (None, *_CROSSING), (*_CROSSING, None)
    return [_stage(path, *ends) for ends in zip(takes, adds, resnet20_exits.EXITS, strict=True)]


def _stage(path: Path, taken: str | None, added: str | None, exit_name: str) -> Any:
    openvino = import_openvino()
    from openvino import opset13

    model = openvino.Core().read_model(path)
    nodes = {node.get_friendly_name(): node for node in model.get_ops()}
    results = [opset13.result(model.output(exit_name).get_node().input_value(0))]
    if added is not None:
        output = nodes[added].output(0)
        output.set_names({added})
        results.append(opset13.result(output))
    if taken is None:
        return openvino.Model(results, model.get_parameters(), "stage")
    output = nodes[taken].output(0)
    parameter = opset13.parameter(output.get_partial_shape(), output.get_element_type())
    parameter.output(0).set_names({taken})
    for reader in output.get_target_inputs():
        reader.replace_source_output(parameter.output(0))
    return openvino.Model(results, [parameter], "stage")


class Chain:
    """A whole graph and its stages, at batch 1 (linked) and with a dynamic batch."""

    def __init__(self, whole: Any, stages: Sequence[Any]) -> None:
        core = import_openvino().Core()
        self._whole, self._stages = (
            openvino_request(core, whole, None),
            [openvino_request(core, stage, None) for stage in stages],
        )
        self._single, self._linked = (
            openvino_request(core, whole, 1),
            [openvino_request(core, stage, 1) for stage in stages],
        )
        pool: dict[str, Any] = {}
        for request in self._linked:
            link(request, pool)

    def rivals(self, image: np.ndarray) -> Rivals:
        for request in (self._single, self._linked[0]):
            request.get_input_tensor(0).data[:] = image

        def linked() -> None:
            for request in self._linked:
                request.infer(share_outputs=True)

        return Rivals(lambda: self._single.infer(share_outputs=True), linked, linked)

    def whole(self, images: np.ndarray) -> dict[str, np.ndarray]:
        return _named(self._whole, self._whole.infer({"input": images}, share_outputs=True))

    def chain(self, images: np.ndarray) -> dict[str, np.ndarray]:
        pool = {"input": images}
        for request in self._stages:
            names = [port.get_any_name() for port in request.model_inputs]
            answers = request.infer({name: pool[name] for name in names}, share_inputs=True, share_outputs=True)
            pool |= _named(request, answers)
        return pool


def _named(request: Any, answers: Any) -> dict[str, np.ndarray]:
    return {name: answers[port] for port in request.model_outputs for name in port.get_names()}


def both_ways(data: Path, folder: Path) -> dict[str, Chain]:
    calibration = {"input": resnet20_exits.images(data, "train_0")[:200]}
    inputs, core = resnet20_exits.INPUTS, import_openvino().Core()
    qdq, own = folder / "qdq.onnx", folder / "own.xml"
    save_onnx(quantize(data / resnet20_exits.ONNX_FILE, inputs, calibration, Choices())[0], qdq)
    cuts = cut_openvino(qdq, resnet20_exits.EXITS, inputs, folder)
    graph = quantize_openvino(read_onnx(data / resnet20_exits.ONNX_FILE), calibration, inputs, full_range=True)
    import_openvino().save_model(graph, own, compress_to_fp16=False)
    return {
        "QDQ": Chain(read_onnx(qdq), [core.read_model(folder / cut.file) for cut in cuts]),
        "NNCF": Chain(core.read_model(own), cut_at_nodes(own)),
    }


def check(name: str, chain: Chain, images: np.ndarray, labels: np.ndarray) -> None:
    differing = {
        batch: [exit_ for exit_ in resnet20_exits.EXITS if not _equal(chain, images[:batch], exit_)]
        for batch in (1, 2, 32, 1000)
    }
    answers = chain.whole(images)
    right = [float((answers[exit_].argmax(1) == labels).mean()) for exit_ in resnet20_exits.EXITS]
    print(f"{name}: accuracy {right}; exits of the chain that differ from the whole, by batch size: {differing}")


def _equal(chain: Chain, images: np.ndarray, exit_name: str) -> bool:
    return np.array_equal(chain.whole(images)[exit_name], chain.chain(images)[exit_name])


def print_batched(chains: dict[str, Chain], images: np.ndarray, turns: int) -> None:
    seconds: dict[str, list[list[float]]] = {name: [[], []] for name in chains}
    for _ in range(turns):
        for name, chain in chains.items():
            for place, call in enumerate((chain.whole, chain.chain)):
                start = time.perf_counter()
                call(images)
                seconds[name][place].append(time.perf_counter() - start)
    for name, taken in seconds.items():
        whole, staged = (1e3 * float(np.percentile(each, 5)) for each in taken)
        print(f"{name}: batch {len(images)}: whole {whole:.1f} ms, chain {staged:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    public_data.add_argument(parser)
    parser.add_argument("--turns", type=int, default=300)
    options = parser.parse_args()
    images = resnet20_exits.images(options.data, "test_0")
    labels = np.load(options.data / "cifar10" / "test_labels.npy")
    with TemporaryDirectory() as folder:
        chains = both_ways(options.data, Path(folder))
        for name, chain in chains.items():
            check(name, chain, images, labels)
        rivals = {("openvino", name): chain.rivals(images[:1]) for name, chain in chains.items()}
        for (_, name), seconds in fifth_percentiles(rivals, options.turns).items():
            whole, linked = 1e6 * seconds.whole, 1e6 * seconds.linked
            print(f"{name}: whole {whole:.0f} µs, chain {linked:.0f} µs, per boundary {(linked - whole) / 2:.0f} µs")
        print_batched(chains, images[:_BATCH], options.turns // 10)


if __name__ == "__main__":
    main()

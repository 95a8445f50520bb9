"""Models that lie: ONNX, TFLite and OpenVINO files with impossible sizes, places, references and versions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any
from xml.etree import ElementTree

from fuzz_bytes import NUMBERS, damaged
from fuzz_trees import ODD_TEXTS

SIZES = (-1, 0, 1, 2, 7, 2**16, 2**31 - 1, 2**31, 2**40, 2**63 - 1, -(2**63))
_OPERATORS = (
    "Loop",
    "If",
    "Scan",
    "Custom",
    "",
    "Reshape",
    "Resize",
    "Tile",
    "Pad",
    "Cast",
    "Constant",
    "NonZero",
    "LSTM",
)


def odd_onnx(data: bytes, rng: Random) -> tuple[bytes, dict[str, bytes], dict[str, str]]:
    """Return a changed ONNX file, and the files and links that lie beside it."""
    if rng.random() < 0.25:
        return damaged(data, rng), {}, {}
    import onnx

    model = onnx.load_model_from_string(data)
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        with suppress(IndexError):  # an earlier change has left nothing to change
            if rng.random() < 0.2:
                _external(model, rng, files, links)
            else:
                rng.choice(_ONNX)(model, rng)
    return model.SerializeToString(deterministic=True), files, links


def _dimensions(model: Any, rng: Random) -> None:
    values = [*model.graph.input, *model.graph.output]
    shape = rng.choice(values).type.tensor_type.shape
    if rng.random() < 0.3 or not shape.dim:
        for _ in range(rng.choice((1, 30, 2000))):
            shape.dim.add().dim_value = rng.choice(SIZES)
    elif rng.random() < 0.8:
        rng.choice(shape.dim).dim_value = rng.choice(SIZES)
    else:
        rng.choice(shape.dim).dim_param = rng.choice(_texts())


def _weight(model: Any, rng: Random) -> None:
    tensor = rng.choice(model.graph.initializer)
    changes: tuple[Callable[[], object], ...] = (
        lambda: tensor.dims.__setitem__(0, rng.choice(SIZES)),
        lambda: tensor.dims.extend([rng.choice(SIZES)] * rng.choice((1, 60))),
        lambda: setattr(tensor, "data_type", rng.choice((0, 2, 8, 9, 10, 14, 16, 17, 22, 23, 99, -1, 2**31 - 1))),
        lambda: setattr(tensor, "raw_data", tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]),
        lambda: tensor.float_data.extend([1.0] * 5),
        lambda: setattr(tensor, "name", rng.choice(_texts())),
        lambda: tensor.ClearField("dims"),
    )
    rng.choice(changes)()


def _node(model: Any, rng: Random) -> None:
    node = rng.choice(model.graph.node)
    changes: tuple[Callable[[], object], ...] = (
        lambda: setattr(node, "op_type", rng.choice(_OPERATORS)),
        lambda: setattr(node, "domain", rng.choice(("x", "com.microsoft", "ai.onnx.ml", *_texts()))),
        lambda: node.input.extend([rng.choice(("image", "w1", "nothing", "", *_texts()))] * rng.choice((1, 900))),
        lambda: node.ClearField("input"),
        lambda: node.ClearField("output"),
        lambda: node.output.__setitem__(0, rng.choice(("image", "logits", "", *_texts()))),
        lambda: model.graph.node.add().CopyFrom(node),
        lambda: model.graph.node.remove(node),
        lambda: setattr(node, "name", rng.choice(_texts())),
        lambda: node.input.append(node.output[0] if node.output else ""),
    )
    rng.choice(changes)()


def _attribute(model: Any, rng: Random) -> None:
    """Give a node an attribute that is too much, or of the wrong kind."""
    from onnx import helper

    node = rng.choice(model.graph.node)
    name = rng.choice(
        ("pads", "strides", "dilations", "group", "kernel_shape", "transB", "alpha", "axis", "perm", "to")
    )
    values = ([rng.choice(SIZES)] * rng.choice((1, 2, 4)), rng.choice(SIZES), 1e38, "text", [1.5, 2.5])
    for old in [each for each in node.attribute if each.name == name]:
        node.attribute.remove(old)
    made = helper.make_attribute(name, rng.choice(values))
    if rng.random() < 0.2:
        made.type = rng.choice((0, 3, 5, 10, 14))
    node.attribute.append(made)


def _versions(model: Any, rng: Random) -> None:
    number = rng.choice((-1, 0, 1, 6, 7, 26, 99, 2**31, 2**62))
    if rng.random() < 0.5:
        model.opset_import[0].version = number
    elif rng.random() < 0.5:
        model.ir_version = number
    else:
        del model.opset_import[:]


def _inner_graphs(model: Any, rng: Random) -> None:
    """Put graphs into graphs."""
    from onnx import helper

    inner = helper.make_graph([], "inner", [], [])
    for level in range(rng.choice((1, 8, 24))):
        node = helper.make_node(
            "If", ["image"], [f"deep{level}"], then_branch=inner, else_branch=inner if level < 3 else None
        )
        inner = helper.make_graph([node], "inner", [], [])
    model.graph.node.append(helper.make_node("If", ["image"], ["deep"], then_branch=inner))


def _functions(model: Any, rng: Random) -> None:
    """Add local functions: recursive, mutually recursive, or doubling at each level."""
    from onnx import helper

    imports, kind = list(model.opset_import), rng.choice(("self", "each other", "doubling", "missing"))
    levels = {"self": 1, "each other": 2, "doubling": 24, "missing": 1}[kind]
    for level in range(levels):
        called = {"self": 0, "each other": (level + 1) % levels}.get(kind, level + 1)
        calls = [helper.make_node(f"f{called}", ["a"], ["b"], domain="local")]
        if kind == "doubling":
            calls = [
                helper.make_node(
                    f"f{called}" if level < levels - 1 else "Relu",
                    [taken],
                    [made],
                    domain="local" if level < levels - 1 else "",
                )
                for taken, made in (("a", "c"), ("c", "b"))
            ]
        model.functions.append(helper.make_function("local", f"f{level}", ["a"], ["b"], calls, imports))
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.graph.node.append(helper.make_node("f0", ["image"], ["called"], domain="local"))


def _loop(model: Any, rng: Random) -> None:
    """Add a loop that ends after 2^62 turns; its answer is not used unless it is an output."""
    from onnx import TensorProto, helper

    flag = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
    turn = helper.make_tensor_value_info("turn", TensorProto.INT64, [])
    out = helper.make_tensor_value_info("stay", TensorProto.BOOL, [])
    body = helper.make_graph([helper.make_node("Identity", ["go"], ["stay"])], "body", [turn, flag], [out])
    model.graph.initializer.append(helper.make_tensor("turns", TensorProto.INT64, [], [2**62]))
    model.graph.initializer.append(helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
    model.graph.node.insert(0, helper.make_node("Loop", ["turns", "yes"], [], body=body))


def _outputs(model: Any, rng: Random) -> None:
    values = rng.choice((model.graph.input, model.graph.output))
    changes: tuple[Callable[[], object], ...] = (
        lambda: setattr(values[0], "name", rng.choice(_texts())),
        lambda: values.add().CopyFrom(values[0]),
        values.pop,
        values[0].type.Clear,
        lambda: setattr(values[0].type.tensor_type, "elem_type", rng.choice((0, 8, 9, 10, 16, 17, 23, 77, -1))),
        values[0].type.sequence_type.elem_type.tensor_type.SetInParent,
    )
    rng.choice(changes)()


def _sparse(model: Any, rng: Random) -> None:
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(model.graph.initializer[0])
    sparse.dims.extend([rng.choice(SIZES)] * rng.choice((1, 3)))
    for _ in range(rng.choice((0, 1))):
        model.graph.quantization_annotation.add().tensor_name = "w1"


def _external(model: Any, rng: Random, files: dict[str, bytes], links: dict[str, str]) -> None:
    """Keep a weight outside of the file, in a place or at an offset that is none."""
    tensor = rng.choice(model.graph.initializer)
    content = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    location = rng.choice(
        (
            "w.bin",
            "w.bin",
            "w.bin",
            "link.bin",
            "fifo",
            "../outside/canary",
            "/etc/passwd",
            "",
            ".",
            "a\x00b",
            "sub/../../w.bin",
        )
    )
    files["w.bin"] = content
    if location == "link.bin":
        links["link.bin"] = rng.choice(("../outside/canary", "/dev/zero", "/etc/passwd", "link.bin", "w.bin"))
    offsets = ("0", "-1", "-4096", str(2**62), str(2**64), "x", "1.5", "", " 0", "4")
    for key, value in (
        ("location", location),
        ("offset", rng.choice(offsets)),
        ("length", rng.choice((*offsets, str(len(content))))),
    ):
        if rng.random() < 0.8 or key == "location":
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value


def _texts() -> tuple[str, ...]:
    return tuple(text for text in ODD_TEXTS if len(text) < 2000)


_ONNX: tuple[Callable[[Any, Random], None], ...] = (
    *(_dimensions, _dimensions, _weight, _weight, _node, _node, _node, _attribute, _attribute, _versions),
    *(_inner_graphs, _functions, _loop, _outputs, _outputs, _sparse),
)


def odd_tflite(data: bytes, rng: Random) -> bytes:
    """Return a changed .tflite file: single bits and offsets, or fields of its tree."""
    if rng.random() < 0.6:
        return _flipped_words(data, rng) if rng.random() < 0.6 else damaged(data, rng)
    from ipj_edge_converters.tflite import file as tflite_file

    model = tflite_file.parse(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        with suppress(IndexError, TypeError):
            rng.choice(_TFLITE)(model, rng)
    try:
        return tflite_file.pack(model)
    except Exception:  # noqa: BLE001 # what cannot be written is another case
        return _flipped_words(data, rng)


def _flipped_words(data: bytes, rng: Random) -> bytes:
    """Change words of 32 bits, most of which are offsets."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = 4 * rng.randrange(len(data) // 4)
        old = int.from_bytes(changed[place : place + 4], "little")
        new = rng.choice(
            (0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, old + 4, old - 4, old ^ 1 << rng.randrange(32), old * 2)
        )
        changed[place : place + 4] = (new & 0xFFFFFFFF).to_bytes(4, "little")
    return bytes(changed)


def _tflite_tensor(model: Any, rng: Random) -> None:
    tensor = rng.choice(model.subgraphs[0].tensors)
    name, values = rng.choice(
        (
            ("shape", ([-1, 12], [0], [], [2**31 - 1] * 4, [1] * 50, None)),
            ("type", (-1, 5, 6, 13, 15, 17, 99, 127)),
            ("buffer", (2, 99, 2**31, 2**32 - 1)),
            ("name", (b"\xff\xfe", b"", b"a\x00b", None, b"x" * 5000)),
            ("shapeSignature", ([-1, -1], [], [-2] * 9)),
            ("isVariable", (True,)),
        )
    )
    setattr(tensor, name, rng.choice(values))


def _tflite_operator(model: Any, rng: Random) -> None:
    graph = model.subgraphs[0]
    operator = rng.choice(graph.operators)
    name, values = rng.choice(
        (
            ("opcodeIndex", (1, 99, 2**31)),
            ("inputs", ([], [-1, -1], [99], [0] * 500, [-5], None)),
            ("outputs", ([], [99], [0], [-1], None)),
            ("largeCustomOptionsOffset", (2, 2**40, 2**63)),
        )
    )
    setattr(operator, name, rng.choice(values))


def _tflite_graph(model: Any, rng: Random) -> None:
    graph = model.subgraphs[0]
    changes: tuple[Callable[[], object], ...] = (
        lambda: setattr(graph, "inputs", rng.choice(([], [99], [-1], [0, 0], None))),
        lambda: setattr(graph, "outputs", rng.choice(([], [99], [-1], [0], None))),
        lambda: setattr(model, "subgraphs", rng.choice(([], [graph] * 3, None))),
        lambda: setattr(model, "operatorCodes", rng.choice(([], None))),
        lambda: setattr(model, "buffers", rng.choice(([], model.buffers[:1]))),
        lambda: setattr(model, "version", rng.choice((0, 2, 4, 2**31))),
        lambda: setattr(model.operatorCodes[0], "builtinCode", rng.choice((-1, 32, 118, 119, 500, 2**31 - 1))),
        lambda: setattr(model.operatorCodes[0], "customCode", b"\xff\xff"),
        lambda: setattr(model.buffers[1], "offset", rng.choice((2, 2**40, 2**63))),
    )
    rng.choice(changes)()


_TFLITE: tuple[Callable[[Any, Random], None], ...] = (_tflite_tensor, _tflite_tensor, _tflite_operator, _tflite_graph)


def odd_xml(data: bytes, rng: Random) -> bytes:
    """Return a changed OpenVINO .xml file."""
    if rng.random() < 0.35:
        return damaged(data, rng)
    root = ElementTree.fromstring(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        with suppress(IndexError):
            rng.choice(_XML)(root, rng)
    text = ElementTree.tostring(root, encoding="unicode")
    if rng.random() < 0.1:
        odd = (
            "<a>" * 100_000,
            "<a>" * 100_000 + "</a>" * 100_000,
            _ENTITIES,
            '<!DOCTYPE net [<!ENTITY f SYSTEM "file:///etc/passwd">]>',
        )
        text = rng.choice(odd) + text
    if rng.random() < 0.1:
        return text.encode("utf-16")
    return text.encode("utf-8", "surrogatepass")


_ENTITIES = "<!DOCTYPE net [<!ENTITY e0 'ha'>" + "".join(
    f"<!ENTITY e{level} '{f'&e{level - 1};' * 10}'>" for level in range(1, 12)
) + "]><net>&e11;</net>"  # fmt: skip


def _xml_attribute(root: Any, rng: Random) -> None:
    element = rng.choice(list(root.iter()))
    if element.attrib:
        key = rng.choice(list(element.attrib))
        texts = [text for text in ODD_TEXTS if text.isprintable()]
        element.attrib[key] = rng.choice((*NUMBERS, "f32", "dynamic", "?", "-1,2", *texts))


def _xml_drop_attribute(root: Any, rng: Random) -> None:
    element = rng.choice(list(root.iter()))
    if element.attrib:
        del element.attrib[rng.choice(list(element.attrib))]


def _xml_text(root: Any, rng: Random) -> None:
    dims = list(root.iter("dim"))
    rng.choice(dims or list(root.iter())).text = rng.choice((*NUMBERS, "x", "", None))


def _xml_drop(root: Any, rng: Random) -> None:
    parent = rng.choice([each for each in root.iter() if len(each)])
    parent.remove(rng.choice(list(parent)))


def _xml_double(root: Any, rng: Random) -> None:
    parent = rng.choice([each for each in root.iter() if len(each)])
    parent.extend([rng.choice(list(parent))] * rng.choice((1, 3, 200)))


def _xml_move(root: Any, rng: Random) -> None:
    one, other = rng.choice(list(root.iter())), rng.choice([each for each in root.iter() if not len(each)])
    if one is not root and one is not other and other not in list(one.iter()):
        other.append(one)


_XML: tuple[Callable[[Any, Random], None], ...] = (
    *(_xml_attribute, _xml_attribute, _xml_drop_attribute, _xml_text, _xml_text, _xml_drop, _xml_double, _xml_move),
)

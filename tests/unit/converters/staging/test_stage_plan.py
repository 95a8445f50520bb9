"""Where a graph is cut, on graphs of a few operators, no engine involved."""

from __future__ import annotations

import pytest

from ipj_edge.errors import ConfigError, UnsupportedError
from ipj_edge_converters.staging.exits import check_classes, check_exits
from ipj_edge_converters.staging.graph import Operator, StageGraph, StagePlan, Tensor
from ipj_edge_converters.staging.plan import plan_stages


def op(line: str, macs: int | None = 0, **flags: bool) -> Operator:
    """Make an operator of a line such as ``a b -> c``; it is named after what it makes."""
    reads, makes = (tuple(side.split()) for side in line.split("->"))
    return Operator(name=f"op {makes[0]}", reads=reads, makes=makes, macs=macs, **flags)


def graph(*operators: Operator, inputs: str = "x", **odd: Tensor) -> StageGraph:
    """Make a graph whose tensors all have the batch axis and 40 bytes, but the odd ones."""
    live = set(inputs.split())
    for operator in operators:
        if live & set(operator.reads):
            live |= set(operator.makes)
    return StageGraph(
        operators=operators,
        inputs=tuple(inputs.split()),
        tensors={name: odd.get(name, tensor()) for name in live},
    )


def tensor(*, batched: bool = True, elements: int = 10, item_bytes: int = 4, shape_known: bool = True) -> Tensor:
    return Tensor(
        shape=("batch", elements) if batched else (elements,),
        batched=batched,
        elements=elements,
        bytes=elements * item_bytes,
        shape_known=shape_known,
    )


def made(plan: StagePlan, of: StageGraph) -> list[str]:
    return [of.operators[index].makes[0] for index in plan.operators]


def test_each_stage_has_its_part_of_the_trunk_and_its_head() -> None:
    cut = graph(op("x -> a", 5), op("a -> b", 7), op("b -> end", 1), op("a -> early", 2))
    first, last = plan_stages(cut, ["end", "early"])
    assert (first.exit, first.takes, first.adds, made(first, cut)) == ("early", ("x",), ("early", "a"), ["a", "early"])
    assert (last.exit, last.takes, last.adds, made(last, cut)) == ("end", ("a",), ("end",), ["b", "end"])
    assert (first.macs, last.macs) == (7, 8)


def test_a_long_skip_stays_in_the_pool_past_a_stage_that_does_not_read_it() -> None:
    cut = graph(
        op("x -> a s", 5), op("a -> b", 5), op("b -> c", 5), op("c s -> end", 1), op("a -> e1", 1), op("b -> e2", 1)
    )
    one, two, three = plan_stages(cut, ["e1", "e2", "end"])
    assert one.adds == ("e1", "a", "s")
    assert (two.takes, two.adds) == (("a",), ("e2", "b"))
    assert three.takes == ("s", "b")


def test_an_input_of_the_model_can_be_taken_by_any_stage() -> None:
    cut = graph(op("x -> a", 5), op("a y -> end", 5), op("a -> early", 1), inputs="x y")
    first, last = plan_stages(cut, ["early", "end"])
    assert first.takes == ("x",)
    assert last.takes == ("y", "a")


def test_an_exit_that_later_stages_read_is_added_once() -> None:
    cut = graph(op("x -> early", 5), op("early -> end", 5))
    first, last = plan_stages(cut, ["early", "end"])
    assert first.adds == ("early",)
    assert last.takes == ("early",)


def test_exits_of_equal_work_come_in_the_order_of_the_graph() -> None:
    cut = graph(op("x -> a", 5), op("a -> p"), op("a -> q"))
    assert [plan.exit for plan in plan_stages(cut, ["q", "p"])] == ["p", "q"]


def test_work_without_a_rule_counts_as_depth_and_leaves_the_stage_uncounted() -> None:
    cut = graph(op("x -> a", None), op("a -> b", None), op("b -> end", 1), op("a -> early", 900))
    first, last = plan_stages(cut, ["end", "early"])
    assert first.exit == "early"
    assert (last.macs, last.macs_reason) == (None, "no rule for the operator op b")


def test_constants_are_computed_in_every_stage_that_reads_them() -> None:
    cut = graph(op("w -> k"), op("x k -> a", 5), op("a k -> end", 5), op("a -> early", 1))
    first, last = plan_stages(cut, ["early", "end"])
    assert "k" in made(first, cut)
    assert made(last, cut) == ["k", "end"]


def test_a_dequantized_tensor_is_handed_over_quantized() -> None:
    cut = graph(
        op("x -> a", 5),
        op("a -> q", repeatable=True, quantizes=True),
        op("q -> d", repeatable=True),
        op("d -> early", 1),
        op("d -> end", 5),
        q=tensor(item_bytes=1),
    )
    first, last = plan_stages(cut, ["early", "end"])
    assert first.adds == ("early", "q")
    assert (last.takes, made(last, cut)) == (("q",), ["d", "end"])


def test_a_quantizer_of_a_later_stage_goes_where_its_tensor_is_made() -> None:
    cut = graph(
        op("x -> a", 5),
        op("a -> early", 1),
        op("a -> q", repeatable=True, quantizes=True),
        op("q -> d", repeatable=True),
        op("d -> end", 5),
        q=tensor(item_bytes=1),
    )
    first, last = plan_stages(cut, ["early", "end"])
    assert (first.adds, made(first, cut)) == (("early", "q"), ["a", "early", "q"])
    assert made(last, cut) == ["d", "end"]


def test_a_tensor_that_is_read_quantized_and_as_it_is_is_handed_over_once() -> None:
    cut = graph(
        op("x -> a", 5),
        op("a -> early", 1),
        op("a -> q", repeatable=True, quantizes=True),
        op("q a -> end", 5),
        q=tensor(item_bytes=1),
    )
    _, last = plan_stages(cut, ["early", "end"])
    assert (last.takes, made(last, cut)) == (("a",), ["q", "end"])


def test_padding_shared_by_head_and_trunk_is_done_twice_instead_of_handed_over() -> None:
    cut = graph(
        op("x -> a", 5),
        op("a -> padded", repeatable=True),
        op("padded -> early", 1),
        op("padded -> end", 5),
        padded=tensor(elements=14),
    )
    _, last = plan_stages(cut, ["early", "end"])
    assert (last.takes, made(last, cut)) == (("a",), ["padded", "end"])


def test_an_activation_is_done_twice_only_where_what_it_reads_is_taken_anyway() -> None:
    head = (op("x -> a", 5), op("a -> r", repeatable=True), op("r -> early", 1))
    both = graph(*head, op("r a -> end", 5))
    assert plan_stages(both, ["early", "end"])[1].takes == ("a",)
    only = graph(*head, op("r -> end", 5))
    assert plan_stages(only, ["early", "end"])[1].takes == ("r",)


def test_a_transposed_tensor_is_handed_over_and_not_transposed_again() -> None:
    cut = graph(op("x -> a", 5), op("a -> t", transposes=True), op("t -> early", 1), op("t a -> end", 5))
    assert plan_stages(cut, ["early", "end"])[1].takes == ("a", "t")


def test_a_shape_follows_from_the_batch_of_a_tensor_that_is_taken() -> None:
    cut = graph(
        op("x -> a", 5),
        op("a -> b", 5),
        op("a -> size", reads_shape=True),
        op("size -> target"),
        op("b target -> r"),
        op("r -> early", 1),
        op("b target -> end", 5),
        size=tensor(batched=False),
        target=tensor(batched=False),
    )
    _, last = plan_stages(cut, ["early", "end"])
    assert (last.takes, last.shapes_of) == (("b",), ("a",))
    assert made(last, cut) == ["size", "target", "end"]


def test_a_tensor_of_unknown_shape_is_taken_for_its_shape() -> None:
    cut = graph(
        op("x -> a", 5),
        op("a -> size", reads_shape=True),
        op("a size -> early", 1),
        op("x size -> end", 5),
        a=tensor(shape_known=False),
        size=tensor(batched=False),
    )
    _, last = plan_stages(cut, ["early", "end"])
    assert (last.takes, last.shapes_of) == (("x", "a"), ())


def test_heads_merged_into_the_batch_are_merged_again_from_a_tensor_with_the_batch_axis() -> None:
    cut = graph(
        op("x -> a", 5),
        op("a -> t", transposes=True),
        op("t -> merged", repeatable=True),
        op("merged -> early", 1),
        op("merged -> end", 5),
        t=tensor(batched=False),
        merged=tensor(batched=False),
    )
    _, last = plan_stages(cut, ["early", "end"])
    assert (last.takes, made(last, cut)) == (("a",), ["t", "merged", "end"])


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_tensor_without_the_batch_axis_is_refused_and_named(repeatable: bool) -> None:
    cut = graph(
        op("x -> a", 5),
        op("a -> mean", repeatable=repeatable),
        op("a mean -> early", 1),
        op("a mean -> end", 5),
        mean=tensor(batched=False, elements=5),
    )
    with pytest.raises(UnsupportedError, match=r"'end' would take the tensor 'mean' of shape \[5\].*'op mean'"):
        plan_stages(cut, ["early", "end"])


def test_an_exit_that_is_not_computed_from_the_inputs_is_refused() -> None:
    cut = graph(op("x -> a", 5), op("w -> k"))
    for exits in (["a", "k"], ["x", "a"]):
        with pytest.raises(ConfigError, match=r"'[kx]' is not computed"):
            plan_stages(cut, exits)


@pytest.mark.parametrize(
    ("exits", "message"),
    [
        (["a"], "at least two exits; the model has 1"),
        (["a", "b", "a"], "'a' is named twice"),
        (["a", "z"], "no output 'z' to exit at; it has a, b, c"),
        (["a", "b"], "output 'c' is no exit"),
    ],
)
def test_exits_must_be_all_outputs_and_at_least_two(exits: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_exits(exits, ["a", "b", "c"])


def test_exits_with_different_class_counts_are_refused() -> None:
    check_classes({"a": ("batch", 10), "b": ("batch", 10)})
    with pytest.raises(ConfigError, match=r"'a' has shape \['batch', 10\] and 'b' \['batch', 9\]"):
        check_classes({"a": ("batch", 10), "b": ("batch", 9)})

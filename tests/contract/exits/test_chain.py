"""Stages on the real engines: equal to the whole, whatever leaves, in whatever batch."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ipj_edge
from ipj_edge.bundles.bundle import open_bundle, record_files, write_manifest
from ipj_edge.errors import ConfigError, InputError, ParityError
from ipj_edge.exits import ExitPolicy


def _policy(*thresholds: float | None, rule: str = "max-probability", recall: bool = False) -> ExitPolicy:
    return ExitPolicy(rule=rule, thresholds=thresholds, recall=recall)


def test_the_stages_equal_the_unsplit_program_bit_for_bit(exit_bundle: Path) -> None:
    manifest = open_bundle(exit_bundle).manifest
    assert [stage.exit_output for stage in manifest.stages] == ["exit_1", "exit_2", "final"]
    assert manifest.unsplit is not None
    assert manifest.parity.chain_max_abs == 0.0


def test_the_unsplit_program_does_the_work_of_all_stages_but_the_early_heads(exit_bundle: Path) -> None:
    manifest = open_bundle(exit_bundle).manifest
    early_heads = 10 * 8 * 4 * 4 + 10 * 24 * 2 * 2
    assert manifest.unsplit is not None
    assert manifest.unsplit.macs == sum(stage.macs or 0 for stage in manifest.stages) - early_heads


def test_int8_is_handed_over_as_int8(exit_bundles: Path) -> None:
    for target, dtype in (("openvino-cpu", "uint8"), ("onnxruntime-cpu", "uint8"), ("tflite-cpu", "int8")):
        stages = open_bundle(exit_bundles / f"exits.{target}.int8.ipj").manifest.stages
        for earlier, later in pairwise(stages):
            handed = {port.name: port for port in earlier.adds}
            for port in later.takes:
                assert port.dtype == dtype, (target, port)
                assert port.quantization == handed[port.name].quantization


def test_a_bundle_without_a_policy_runs_the_unsplit_program(exit_bundle: Path, images: np.ndarray) -> None:
    with ipj_edge.load(exit_bundle) as plain, ipj_edge.load(exit_bundle, exits="all") as staged:
        assert plain.policy is None
        assert plain.exit_counts == ()
        np.testing.assert_array_equal(plain.run(images).outputs["final"], staged.run(images).outputs["final"])


def test_a_threshold_that_never_fires_equals_the_full_model_bit_for_bit(exit_bundle: Path, images: np.ndarray) -> None:
    with (
        ipj_edge.load(exit_bundle, exits="off") as full,
        ipj_edge.load(exit_bundle, exits=_policy(None, None)) as never,
    ):
        result = never.run(images)
        np.testing.assert_array_equal(result.outputs["final"], full.run(images).outputs["final"])
        assert (result.exit_indices == 2).all()


def test_every_answer_is_that_of_the_exit_it_names(exit_bundle: Path, images: np.ndarray) -> None:
    with (
        ipj_edge.load(exit_bundle, exits="all") as staged,
        ipj_edge.load(exit_bundle, exits=_policy(0.9, 0.8)) as leaving,
    ):
        every = staged.run_every_output(images)
        result = leaving.run(images)
    assert len(set(result.exit_indices.tolist())) > 1
    for row, index in enumerate(result.exit_indices):
        np.testing.assert_array_equal(result.outputs["final"][row], every[("exit_1", "exit_2", "final")[index]][row])
    counts = np.bincount(result.exit_indices, minlength=3)
    assert leaving.exit_counts == tuple(counts)


@given(order=st.permutations(range(24)), size=st.integers(1, 24))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_batches_of_any_size_and_order_equal_one_by_one(
    exit_bundle: Path, images: np.ndarray, order: list[int], size: int
) -> None:
    with ipj_edge.load(exit_bundle, exits=_policy(0.9, 0.8)) as model:
        single = [model.run(image[None]) for image in images[:24]]
        batch = model.run(images[:24][order[:size]])
    for place, origin in enumerate(order[:size]):
        assert batch.exit_indices[place] == single[origin].exit_index
        np.testing.assert_array_equal(batch.outputs["final"][place], single[origin].outputs["final"][0])


@pytest.mark.parametrize("rule", ["max-probability", "entropy", "margin", "patience"])
def test_every_rule_decides_alike_alone_and_in_a_batch(exit_bundles: Path, images: np.ndarray, rule: str) -> None:
    bundle = exit_bundles / "exits.onnxruntime-cpu.int8.ipj"
    thresholds = (2.0, 2.0) if rule == "patience" else (0.7, 0.7)
    with ipj_edge.load(bundle, exits=_policy(*thresholds, rule=rule)) as model:
        batch = model.run(images)
        assert [model.run(image[None]).exit_index for image in images] == batch.exit_indices.tolist()


def test_recall_answers_with_the_surest_exit_passed(exit_bundles: Path, images: np.ndarray) -> None:
    bundle = exit_bundles / "exits.onnxruntime-cpu.fp32.ipj"
    with ipj_edge.load(bundle, exits="all") as staged:
        every = np.stack(list(staged.run_every_output(images).values()))
    sure = np.exp(every - every.max(2, keepdims=True))
    sure = (sure / sure.sum(2, keepdims=True)).max(2)
    with ipj_edge.load(bundle, exits=_policy(None, None, recall=True)) as model:
        batch = model.run(images)
        alone = np.concatenate([model.run(image[None]).outputs["final"] for image in images])
    chosen = batch.exit_indices
    np.testing.assert_allclose(sure[chosen, np.arange(len(images))], sure.max(0), rtol=1e-6)
    np.testing.assert_array_equal(alone, batch.outputs["final"])


def test_max_exit_stops_there(exit_bundle: Path, images: np.ndarray) -> None:
    with ipj_edge.load(exit_bundle, exits="all") as model:
        every = model.run_every_output(images)
        for index, name in enumerate(("exit_1", "exit_2", "final")):
            result = model.run(images, max_exit=index)
            np.testing.assert_array_equal(result.outputs["final"], every[name])
            assert result.exit_index == index
        with pytest.raises(ConfigError, match="exits 0 to 2"):
            model.run(images, max_exit=3)


def test_answers_improve_stage_by_stage(exit_bundle: Path, images: np.ndarray) -> None:
    with ipj_edge.load(exit_bundle, exits="all") as model:
        every = model.run_every_output(images[:1])
        answers = list(model.improve(images[:1]))
        assert [answer.exit_index for answer in answers] == [0, 1, 2]
        for answer, expected in zip(answers, every.values(), strict=True):
            np.testing.assert_array_equal(answer.outputs["final"], expected)
        first = next(model.improve(images[:1]))
        np.testing.assert_array_equal(first.outputs["final"], every["exit_1"])


def test_an_answer_is_not_improved_from_what_another_run_has_overwritten(exit_bundle: Path, images: np.ndarray) -> None:
    with ipj_edge.load(exit_bundle, exits="all") as model:
        for other in (model.run, model.run_every_output, lambda x: next(model.improve(x))):
            answers = model.improve(images[:1])
            next(answers)
            other(images[1:2])
            with pytest.raises(InputError, match="something else since"):
                next(answers)
        expected = [answer.outputs["final"] for answer in model.improve(images[:1])]
        for given, kept in zip(model.improve(images[:1]), expected, strict=True):
            np.testing.assert_array_equal(given.outputs["final"], kept)


def test_every_way_to_run_a_model_is_for_one_caller_at_a_time(exit_bundle: Path, images: np.ndarray) -> None:
    with ipj_edge.load(exit_bundle, exits="all") as model:
        calls = (
            lambda: model.run_every_output(images),
            lambda: next(model.improve(images[:1])),
            lambda: model.run(images[:1]),
            model.reset,
        )
        for call in calls:
            with model._busy, pytest.raises(InputError, match="clone"):
                call()
            call()


def test_verify_proves_the_unsplit_program_too(exit_bundles: Path, tmp_path: Path) -> None:
    """It is what runs where no early exit is wanted, and no part of the chain."""
    folder = tmp_path / "net.ipj"
    shutil.copytree(exit_bundles / "exits.onnxruntime-cpu.fp32.ipj", folder)
    ipj_edge.verify(folder)
    manifest = open_bundle(folder).manifest
    assert manifest.unsplit is not None
    _negate_weights(folder / manifest.unsplit.file)
    write_manifest(folder, msgspec.structs.replace(manifest, files=record_files(folder)))
    with pytest.raises(ParityError, match="'final' on golden inputs"):
        ipj_edge.verify(folder)


def _negate_weights(file: Path) -> None:
    import onnx

    model = onnx.load(file)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(tensor), tensor.name))
    onnx.save(model, file)


def test_what_needs_stages_says_how_to_load_them(exit_bundle: Path, images: np.ndarray) -> None:
    with ipj_edge.load(exit_bundle, exits="off") as model:
        with pytest.raises(ConfigError, match='exits="all"'):
            model.run(images[:1], max_exit=0)
        with pytest.raises(ConfigError, match='exits="all"'):
            next(model.improve(images[:1]))
    with ipj_edge.load(exit_bundle, exits="all") as model, pytest.raises(ConfigError, match="exits tune"):
        model.run(images[:1], deadline_s=1.0)


def test_a_policy_that_does_not_fit_is_refused(exit_bundles: Path, bundles: Path) -> None:
    bundle = exit_bundles / "exits.tflite-cpu.fp32.ipj"
    with pytest.raises(ConfigError, match="give 2, one for every exit but the last"):
        ipj_edge.load(bundle, exits=_policy(0.5))
    with pytest.raises(ConfigError, match=r"lie in 0\.\.1"):
        ipj_edge.load(bundle, exits=_policy(0.5, 1.5))
    with pytest.raises(ConfigError, match="one exit"):
        ipj_edge.load(bundles / "digits.tflite-cpu.fp32.ipj", exits=_policy(0.5))


def test_clones_leave_alike(exit_bundle: Path, images: np.ndarray) -> None:
    with ipj_edge.load(exit_bundle, exits=_policy(0.9, 0.8)) as model:
        clone = model.clone()
        first, second = model.run(images), clone.run(images)
        clone.close()
    np.testing.assert_array_equal(first.exit_indices, second.exit_indices)
    np.testing.assert_array_equal(first.outputs["final"], second.outputs["final"])


def test_a_staged_bundle_verifies_every_exit(exit_bundle: Path) -> None:
    assert {figures.output for figures in ipj_edge.verify(exit_bundle).outputs} == {"exit_1", "exit_2", "final"}

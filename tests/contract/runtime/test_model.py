"""Every bundle of the digits example through the one API, on the real engines."""

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

import ipj_edge
from ipj_edge.errors import InputError, ParityError
from ipj_edge.host import default_threads
from ipj_edge.runtime.golden import read_golden, write_golden
from ipj_edge.samples.preprocess import read_image


@pytest.fixture
def test_set(digits: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(digits / "test.npz") as file:
        return file["image"], file["labels"]


def test_a_bundle_answers_as_well_as_its_source(bundle: Path, test_set: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = test_set
    with ipj_edge.load(bundle) as model:
        logits = model.run(images).outputs["logits"]
    assert logits.shape == (len(images), 10)
    assert logits.dtype == np.float32
    assert (logits.argmax(1) == labels).mean() >= 0.97


def test_a_batch_gives_what_its_samples_give_one_by_one(bundle: Path, test_set: tuple[np.ndarray, np.ndarray]) -> None:
    images = test_set[0][:37]
    with ipj_edge.load(bundle) as model:
        whole = model.run(images).outputs["logits"]
        single = np.concatenate([model.run(image[None]).outputs["logits"] for image in images])
    step = 1e-5 if "fp32" in bundle.name else 0.1
    np.testing.assert_allclose(whole, single, atol=step)


def test_a_missing_batch_axis_is_added(bundle: Path, test_set: tuple[np.ndarray, np.ndarray]) -> None:
    image = test_set[0][0]
    with ipj_edge.load(bundle) as model:
        np.testing.assert_array_equal(model.run(image).outputs["logits"], model.run(image[None]).outputs["logits"])


def test_arrays_need_not_be_contiguous(bundle: Path, test_set: tuple[np.ndarray, np.ndarray]) -> None:
    image = test_set[0][:1]
    odd = np.ascontiguousarray(image.transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2)
    assert not odd.flags.c_contiguous
    with ipj_edge.load(bundle) as model:
        np.testing.assert_array_equal(model.run(odd).outputs["logits"], model.run(image).outputs["logits"])


def test_python_lists_are_taken(bundle: Path, test_set: tuple[np.ndarray, np.ndarray]) -> None:
    image = test_set[0][:1]
    with ipj_edge.load(bundle) as model:
        np.testing.assert_array_equal(model.run(image.tolist()).outputs["logits"], model.run(image).outputs["logits"])


def test_what_does_not_fit_is_refused_with_expected_and_got(
    bundle: Path, test_set: tuple[np.ndarray, np.ndarray]
) -> None:
    image = test_set[0][:1]
    with ipj_edge.load(bundle) as model:
        with pytest.raises(InputError, match=r"expected shape \(N, 1, 8, 8\), got \(1, 1, 8, 7\)"):
            model.run(image[..., :7])
        with pytest.raises(InputError, match="expected dtype float32, got float64"):
            model.run(image.astype(np.float64))
        with pytest.raises(InputError, match="expected dtype float32, got uint8"):
            model.run((image * 255).astype(np.uint8))
        with pytest.raises(InputError, match="expected inputs named image; got picture"):
            model.run({"picture": image})
        with pytest.raises(InputError, match="empty"):
            model.run(image[:0])


def test_outputs_are_the_callers_own(bundle: Path, test_set: tuple[np.ndarray, np.ndarray]) -> None:
    images = test_set[0]
    with ipj_edge.load(bundle) as model:
        first = model.run(images[:1]).outputs["logits"]
        kept = first.copy()
        model.run(images[1:2])
        np.testing.assert_array_equal(first, kept)


def test_exit_indices_are_the_callers_own(bundle: Path, test_set: tuple[np.ndarray, np.ndarray]) -> None:
    with ipj_edge.load(bundle) as model:
        model.run(test_set[0][:1]).exit_indices[0] = 7
        assert model.run(test_set[0][:1]).exit_index == 0


def test_the_callers_input_is_never_written_to(bundle: Path, test_set: tuple[np.ndarray, np.ndarray]) -> None:
    image = test_set[0][:1].copy()
    image.flags.writeable = False
    before = image.copy()
    with ipj_edge.load(bundle) as model:
        model.run(image)
        model.run(test_set[0][1:2])
    np.testing.assert_array_equal(image, before)


def test_clones_run_in_threads_and_answer_alike(bundle: Path, test_set: tuple[np.ndarray, np.ndarray]) -> None:
    images = test_set[0][:40]
    with ipj_edge.load(bundle) as model:
        expected = np.concatenate([model.run(image[None]).outputs["logits"] for image in images])
        answers: dict[int, np.ndarray] = {}

        def work(number: int, clone: ipj_edge.Model) -> None:
            answers[number] = np.concatenate([clone.run(image[None]).outputs["logits"] for image in images])

        clones = [model.clone() for _ in range(2)]
        threads = [threading.Thread(target=work, args=(number, clone)) for number, clone in enumerate(clones)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for clone in clones:
            clone.close()
    for number in range(2):
        np.testing.assert_allclose(answers[number], expected, atol=1e-5)


def test_a_second_caller_of_one_model_is_refused(bundle: Path, test_set: tuple[np.ndarray, np.ndarray]) -> None:
    with ipj_edge.load(bundle) as model:
        assert model._busy.acquire(blocking=False)
        with pytest.raises(InputError, match="clone"):
            model.run(test_set[0][:1])
        model._busy.release()
        model.run(test_set[0][:1])


def test_an_image_file_goes_through_the_preprocessing(bundle: Path, digits: Path) -> None:
    with ipj_edge.load(bundle) as model:
        result = model.run_image(read_image(digits / "image.png"))
    with np.load(digits / "test.npz") as file:
        assert result.outputs["logits"].argmax() == file["labels"][3]


def test_requested_and_effective_settings_are_both_there(bundle: Path) -> None:
    with ipj_edge.load(bundle, threads=1) as model:
        assert model.requested.threads == 1
        assert model.effective[0].threads == 1
        assert model.effective[0].engine_version
    with ipj_edge.load(bundle) as model:
        assert model.requested.threads is None
        assert model.effective[0].threads == default_threads()


def test_closing_twice_is_allowed(bundle: Path) -> None:
    model = ipj_edge.load(bundle)
    model.close()
    model.close()


def test_a_bundle_is_proven_where_it_was_copied_to(bundle: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle, tmp_path / "a folder with spaces" / "renamed.ipj")
    verification = ipj_edge.verify(copy)
    assert verification.outputs[0].samples == 8
    assert verification.effective[0].threads == default_threads()


def test_wrong_golden_answers_fail_verification(bundle: Path, tmp_path: Path) -> None:
    import msgspec

    from ipj_edge.bundles.bundle import open_bundle, record_files, write_manifest

    copy = Path(shutil.copytree(bundle, tmp_path / "wrong.ipj"))
    inputs, outputs = read_golden(copy)
    write_golden(copy, inputs, {"logits": outputs["logits"][::-1]})
    manifest = open_bundle(copy, check_files=False).manifest
    write_manifest(copy, msgspec.structs.replace(manifest, files=record_files(copy)))
    with pytest.raises(ParityError, match="golden"):
        ipj_edge.verify(copy)


def test_int8_files_are_int8(bundle: Path) -> None:
    from ipj_edge.bundles.bundle import open_bundle

    manifest = open_bundle(bundle).manifest
    operators = manifest.stages[0].operators
    assert operators.total > 0
    assert len(operators.float_operators) == (0 if manifest.precision == "int8" else operators.total)
    assert manifest.stages[0].macs == 1 * 16 * 9 * 64 + 16 * 32 * 9 * 64 + 32 * 32 * 9 * 16 + 512 * 10
    assert manifest.stages[0].parameters == 19_338

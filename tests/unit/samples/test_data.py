import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ipj_edge.errors import DataError
from ipj_edge.samples.data import digest, fit, load_samples
from ipj_edge.values import Preprocessing, TensorSpec

IMAGE = TensorSpec(name="image", shape=("batch", 1, 4, 4), dtype="float32")
SCALAR = TensorSpec(name="rate", shape=(), dtype="int64", batch_axis=None)


def _images(count: int) -> np.ndarray:
    return np.random.default_rng(0).random((count, 1, 4, 4), dtype=np.float32)


def test_arrays_and_labels_come_from_an_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", image=_images(5), labels=np.arange(5))
    samples = load_samples(str(tmp_path / "d.npz"), (IMAGE,))
    assert samples.count == 5
    assert samples.labels.tolist() == [0, 1, 2, 3, 4]


def test_x_names_the_only_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=_images(2))
    assert set(load_samples(str(tmp_path / "d.npz"), (IMAGE,)).arrays) == {"image"}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"picture": _images(2)}, "expected arrays named image; got picture"),
        ({"image": _images(2)[0]}, r"shape \(1, 4, 4\), expected \(N, 1, 4, 4\)"),
        ({"image": _images(2).astype(np.float64)}, "dtype float64, expected float32"),
        ({"image": _images(0)}, "holds no samples"),
    ],
)
def test_what_does_not_fit_is_refused_with_expected_and_got(arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=message):
        fit(arrays, None, (IMAGE,), "here")


def test_labels_must_be_as_many_as_samples() -> None:
    with pytest.raises(DataError, match="3 labels for 2 samples"):
        fit({"image": _images(2)}, np.arange(3), (IMAGE,), "here")


def test_an_input_without_a_batch_axis_serves_every_sample() -> None:
    samples = fit({"image": _images(3), "rate": np.array(16000)}, None, (IMAGE, SCALAR), "here")
    rows = samples.rows((IMAGE, SCALAR), 1, 3)
    assert rows["image"].shape == (2, 1, 4, 4)
    assert rows["rate"] == 16000


def test_a_missing_or_corrupt_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        load_samples(str(tmp_path / "none.npz"), (IMAGE,))
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(DataError, match="cannot read"):
        load_samples(str(tmp_path / "bad.npz"), (IMAGE,))


def test_pickled_arrays_are_never_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", image=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match="cannot read"):
        load_samples(str(tmp_path / "p.npz"), (IMAGE,))


def test_a_folder_of_images_gives_samples_and_labels_in_class_order(tmp_path: Path) -> None:
    from PIL import Image

    for name, value in (("b", 255), ("a", 0)):
        (tmp_path / name).mkdir()
        Image.new("RGB", (9, 5), (value,) * 3).save(tmp_path / name / "1.png")
    rule = Preprocessing(size=(4, 4), channels="L", scale=1 / 255)
    samples = load_samples(str(tmp_path), (IMAGE,), {"image": rule})
    assert samples.labels.tolist() == [0, 1]
    np.testing.assert_allclose(samples.arrays["image"].mean(axis=(1, 2, 3)), [0, 1], atol=1e-6)
    with pytest.raises(DataError, match="--preprocess"):
        load_samples(str(tmp_path), (IMAGE,))


def test_batches_come_from_a_callable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_batches.py").write_text(
        "import numpy as np\n"
        "def batches():\n"
        "    for start in (0, 2):\n"
        "        yield {'image': np.full((2, 1, 4, 4), start, np.float32), 'labels': np.array([start, start + 1])}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    samples = load_samples("my_batches:batches", (IMAGE,))
    assert samples.count == 4
    assert samples.labels.tolist() == [0, 1, 2, 3]


def test_the_digest_depends_on_names_values_and_shapes() -> None:
    images = _images(2)
    one = digest(fit({"image": images}, None, (IMAGE,), "here"))
    assert one == digest(fit({"image": np.asfortranarray(images)}, None, (IMAGE,), "here"))
    assert one != digest(fit({"image": images + 1}, None, (IMAGE,), "here"))


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (np.array(["cat", "dog"]), "labels are <U3 of shape (2,); expected one class number a sample"),
        (np.int64(1), "labels are int64 of shape (); expected one class number a sample"),
    ],
)
def test_labels_that_are_no_numbers_a_sample_are_refused(tmp_path: Path, labels: np.ndarray, says: str) -> None:
    np.savez(tmp_path / "d.npz", image=_images(2), labels=labels)
    with pytest.raises(DataError, match=re.escape(says)):
        load_samples(str(tmp_path / "d.npz"), (IMAGE,))


def test_an_npy_file_by_another_name_is_one_clear_line(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", _images(2))
    (tmp_path / "d.npy").rename(tmp_path / "d.npz")
    with pytest.raises(DataError, match=r"is an \.npy file, one array without a name: write it with numpy\.savez"):
        load_samples(str(tmp_path / "d.npz"), (IMAGE,))


def test_nan_is_no_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="here: 'image' holds NaN"):
        fit({"image": np.full((2, 1, 4, 4), np.nan, np.float32)}, None, (IMAGE,), "here")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise RuntimeError('no disk')", "RuntimeError: no disk"),
        ("yield (1, 2)", "AttributeError"),
        ("return None", "TypeError"),
        ("yield {'image': np.ones((2, 1, 4, 4))}; yield {'image': np.ones((2, 1, 4, 5))}", "ValueError"),
        (
            "yield {'image': np.ones(2), 'labels': np.ones(2)}; yield {'image': np.ones(2)}",
            "labels is missing from some",
        ),
        ("yield from ()", "yielded no batches"),
    ],
)
def test_mistakes_in_a_callable_are_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, says: str
) -> None:
    name = f"mistaken_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(f"import numpy as np\ndef batches():\n    {body}\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=f"'{name}:batches'.*{re.escape(says)}"):
        load_samples(f"{name}:batches", (IMAGE,))


def test_a_callable_is_found_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "here_batches.py").write_text(
        "import numpy as np\ndef batches():\n    yield {'x': np.ones((2, 3), np.float32)}\n"
    )
    code = (
        "import sys; from ipj_edge.samples.data import load_samples; from ipj_edge.values import TensorSpec\n"
        "sys.path[:] = [path for path in sys.path if path]\n"
        "spec = TensorSpec(name='x', shape=('batch', 3), dtype='float32')\n"
        "print(load_samples('here_batches:batches', (spec,)).count)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert out.stdout.strip() == "2"


def _image_folder(folder: Path, *names: str) -> Path:
    from PIL import Image

    for name in names:
        (folder / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(folder / name / "1.png")
    return folder


RULE = {"image": Preprocessing(size=(4, 4), channels="L")}


def test_images_are_labelled_by_the_models_own_class_names(tmp_path: Path) -> None:
    folder = _image_folder(tmp_path / "data", "cat", "dog")
    assert load_samples(str(folder), (IMAGE,), RULE, ("dog", "bird", "cat")).labels.tolist() == [2, 0]
    assert load_samples(str(folder), (IMAGE,), RULE, ("n01", "n02")).labels.tolist() == [0, 1]
    with pytest.raises(DataError, match="cat is no class of the model"):
        load_samples(str(folder), (IMAGE,), RULE, ("dog", "bird"))


def test_hidden_folders_are_no_classes(tmp_path: Path) -> None:
    folder = _image_folder(tmp_path / "data", ".ipynb_checkpoints", "cat", "dog")
    assert load_samples(str(folder), (IMAGE,), RULE).labels.tolist() == [0, 1]

from pathlib import Path

import numpy as np
import pytest

from ipj_edge.data import digest, fit, load_samples
from ipj_edge.errors import DataError
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

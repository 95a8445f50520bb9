import numpy as np
import pytest

from ipj_edge.errors import InputError
from ipj_edge.samples.preprocess import apply
from ipj_edge.values import Preprocessing


@pytest.fixture
def rgb() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)


def test_values_are_scaled_then_normalised_per_channel(rgb: np.ndarray) -> None:
    rule = Preprocessing(size=(6, 9), scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    expected = ((rgb / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).transpose(2, 0, 1)
    np.testing.assert_allclose(apply(rgb, rule, "float32"), expected, atol=1e-5)


def test_channel_order_and_layout_are_part_of_the_contract(rgb: np.ndarray) -> None:
    bgr = apply(rgb, Preprocessing(size=(6, 9), channels="BGR", layout="NHWC"), "float32")
    np.testing.assert_array_equal(bgr, rgb[..., ::-1])
    assert apply(rgb, Preprocessing(size=(6, 9)), "float32").shape == (3, 6, 9)


def test_integers_are_rounded_and_clipped_never_wrapped(rgb: np.ndarray) -> None:
    rule = Preprocessing(size=(6, 9), scale=2.0, mean=(100.0,), layout="NHWC")
    expected = np.clip(np.rint(2.0 * rgb - 100.0), -128, 127)
    np.testing.assert_array_equal(apply(rgb, rule, "int8"), expected)


def test_cover_keeps_the_aspect_ratio_and_crops_the_centre() -> None:
    rgb = np.zeros((4, 12, 3), np.uint8)
    rgb[:, 4:8] = 255
    assert apply(rgb, Preprocessing(size=(4, 4), resize="cover", layout="NHWC"), "float32").min() == 255
    assert apply(rgb, Preprocessing(size=(4, 4), resize="exact", layout="NHWC"), "float32").min() == 0


def test_grey_is_luma(rgb: np.ndarray) -> None:
    grey = apply(rgb, Preprocessing(size=(6, 9), channels="L"), "float32")
    np.testing.assert_allclose(grey[0], rgb @ [0.299, 0.587, 0.114], rtol=1e-5)


@pytest.mark.parametrize("shape", [(6, 9), (6, 9, 4), (3, 6, 9)])
def test_what_is_no_rgb_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="expected an RGB image"):
        apply(np.zeros(shape, np.uint8), Preprocessing(size=(6, 9)), "float32")

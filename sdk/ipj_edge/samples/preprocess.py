"""From an RGB image to a model's input, as the manifest says."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ipj_edge.errors import InputError
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array
from ipj_edge.values import Preprocessing

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


def read_image(path: str | Path) -> Array:
    """Read an image file as RGB, uint8 of shape (height, width, 3).

    Raises:
        InputError: missing or not an image.
        MissingDependencyError: Pillow is not installed.
    """
    with needs("images"):
        from PIL import Image, UnidentifiedImageError
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, UnidentifiedImageError) as error:
        raise InputError(f"cannot read the image {path}: {error}") from error


def apply(rgb: Array, rule: Preprocessing, dtype: str) -> Array:
    """Turn one RGB image into one sample (no batch axis).

    Args:
        rgb: uint8 of shape (height, width, 3).
        rule: Resize, channels, scale, mean, std and layout.
        dtype: numpy name of the input's dtype; integers are rounded and clipped.

    Raises:
        InputError: rgb is not an HWC uint8 RGB image.
    """
    if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8:
        raise InputError(f"expected an RGB image, uint8 of shape (height, width, 3); got {rgb.dtype} {rgb.shape}")
    values = _channels(_resize(rgb, rule), rule.channels)
    values = (values * np.float32(rule.scale) - np.asarray(rule.mean, np.float32)) / np.asarray(rule.std, np.float32)
    if rule.layout == "NCHW":
        values = values.transpose(2, 0, 1)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return np.ascontiguousarray(values, dtype=kind)


def _resize(rgb: Array, rule: Preprocessing) -> Array:
    height, width = rule.size
    if rgb.shape[:2] == (height, width):
        return rgb
    with needs("images"):
        from PIL import Image
    image = Image.fromarray(rgb)
    if rule.resize == "cover":
        factor = max(height / image.height, width / image.width)
        scaled = image.resize((round(image.width * factor), round(image.height * factor)), Image.Resampling.BILINEAR)
        left, top = (scaled.width - width) // 2, (scaled.height - height) // 2
        return np.asarray(scaled.crop((left, top, left + width, top + height)))
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))


def _channels(rgb: Array, channels: str) -> Array:
    if channels == "L":
        return (rgb.astype(np.float32) @ np.asarray(_LUMA, np.float32))[..., None]
    ordered = rgb[..., ::-1] if channels == "BGR" else rgb
    return ordered.astype(np.float32)

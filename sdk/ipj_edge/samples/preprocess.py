"""From an RGB image to a model's input, as the manifest says."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from ipj_edge.bundles.image_rule import why_no_image_fits
from ipj_edge.errors import ConfigError, InputError, reading
from ipj_edge.plugins import needs
from ipj_edge.protocols import Array
from ipj_edge.values import Preprocessing

# What Pillow tells apart by itself. Others start programs (EPS), or are no pictures of a camera.
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "GIF", "TIFF", "PPM")
_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


def read_image(path: str | Path) -> Array:
    """Read an image file as RGB, uint8 of shape (height, width, 3).

    Raises:
        InputError: missing, not an image, damaged, or of more than 89 million pixels (Pillow's own limit).
        MissingDependencyError: Pillow is not installed.
    """
    with needs("images"):
        from PIL import Image
    with reading(f"the image {path}", InputError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd metadata
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path, formats=_FORMATS) as image:
            return np.asarray(image.convert("RGB"))


def check_rule(rule: Preprocessing) -> None:
    """Check that a rule can be applied at all.

    Raises:
        ConfigError: a size, a factor or a number of values that no image can be brought to.
    """
    reason = why_no_image_fits(rule)
    if reason:
        raise ConfigError(reason)


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

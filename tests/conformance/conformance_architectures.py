"""Public architectures with small random weights: model classes of the installed ``transformers``, nothing downloaded.

Each entry is a factory for `ipj-edge convert`: ``conformance_architectures.py:NAME`` builds a module that takes one
tensor and returns one. Weights are seeded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

IMAGE = "image:1x3x64x64"
IDS = "ids:1x16:int64:0..99"

_TEXT: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 32,
}  # fmt: skip
_VISION: dict[str, Any] = {
    "image_size": 64, "patch_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "num_labels": 10,
}  # fmt: skip
_PYRAMID: dict[str, Any] = {
    "depths": [1, 1, 1, 1], "hidden_sizes": [16, 24, 32, 48], "num_labels": 10,
}  # fmt: skip

# Class of the model (its configuration has the same first name), settings, example input.
ARCHITECTURES: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "resnet": ("ResNetForImageClassification", {"embedding_size": 16, **_PYRAMID}, IMAGE),
    "regnet": ("RegNetForImageClassification", {"embedding_size": 16, "groups_width": 8, **_PYRAMID}, IMAGE),
    "convnext": ("ConvNextForImageClassification", {"image_size": 64, **_PYRAMID}, IMAGE),
    "convnextv2": ("ConvNextV2ForImageClassification", {"image_size": 64, **_PYRAMID}, IMAGE),
    "mobilenet_v1": (
        "MobileNetV1ForImageClassification",
        {"image_size": 64, "depth_multiplier": 0.25, "num_labels": 10},
        IMAGE,
    ),
    "mobilenet_v2": (
        "MobileNetV2ForImageClassification",
        {"image_size": 64, "depth_multiplier": 0.35, "num_labels": 10},
        IMAGE,
    ),
    "mobilevit": (
        "MobileViTForImageClassification",
        {
            "image_size": 64,
            "hidden_sizes": [32, 40, 48],
            "neck_hidden_sizes": [8, 16, 24, 32, 40, 48, 64],
            "num_labels": 10,
        },
        IMAGE,
    ),
    "mobilevitv2": (
        "MobileViTV2ForImageClassification",
        {"image_size": 64, "width_multiplier": 0.25, "num_labels": 10},
        IMAGE,
    ),
    "efficientnet": (
        "EfficientNetForImageClassification",
        {"image_size": 64, "width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320, "num_labels": 10},
        IMAGE,
    ),
    "poolformer": (
        "PoolFormerForImageClassification",
        {"hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 1, 1], "num_labels": 10},
        IMAGE,
    ),
    "bit": (
        "BitForImageClassification",
        {"embedding_size": 16, "hidden_sizes": [32, 64], "depths": [1, 1], "num_groups": 8, "num_labels": 10},
        IMAGE,
    ),
    "focalnet": (
        "FocalNetForImageClassification",
        {
            "image_size": 64,
            "embed_dim": 16,
            "depths": [1, 1],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
            "hidden_sizes": [16, 32],
            "num_labels": 10,
        },
        IMAGE,
    ),
    "vit": ("ViTForImageClassification", _VISION, IMAGE),
    "vit_msn": ("ViTMSNForImageClassification", _VISION, IMAGE),
    "deit": ("DeiTForImageClassification", _VISION, IMAGE),
    "beit": ("BeitForImageClassification", _VISION, IMAGE),
    "data2vec_vision": ("Data2VecVisionForImageClassification", _VISION, IMAGE),
    "dinov2": ("Dinov2ForImageClassification", _VISION, IMAGE),
    "ijepa": ("IJepaForImageClassification", _VISION, IMAGE),
    "swin": (
        "SwinForImageClassification",
        {"image_size": 64, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "num_labels": 10},
        IMAGE,
    ),
    "swinv2": (
        "Swinv2ForImageClassification",
        {"image_size": 64, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "num_labels": 10},
        IMAGE,
    ),
    "cvt": (
        "CvtForImageClassification",
        {"embed_dim": [16, 32, 48], "num_heads": [1, 2, 3], "depth": [1, 2, 3], "num_labels": 10},
        IMAGE,
    ),
    "levit": (
        "LevitForImageClassification",
        {
            "image_size": 64,
            "hidden_sizes": [32, 48, 64],
            "num_attention_heads": [2, 3, 4],
            "depths": [1, 1, 1],
            "key_dim": [16, 16, 16],
            "num_labels": 10,
        },
        IMAGE,
    ),
    "pvt": (
        "PvtForImageClassification",
        {
            "image_size": 64,
            "hidden_sizes": [16, 24, 32, 48],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
            "num_labels": 10,
        },
        IMAGE,
    ),
    "pvt_v2": (
        "PvtV2ForImageClassification",
        {
            "image_size": 64,
            "hidden_sizes": [16, 24, 32, 48],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
            "num_labels": 10,
        },
        IMAGE,
    ),
    "segformer": (
        "SegformerForImageClassification",
        {
            "hidden_sizes": [16, 24, 32, 48],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
            "num_labels": 10,
        },
        IMAGE,
    ),
    "hiera": (
        "HieraForImageClassification",
        {"image_size": [64, 64], "embed_dim": 16, "depths": [1, 1, 1, 1], "num_labels": 10},
        IMAGE,
    ),
    "swiftformer": (
        "SwiftFormerForImageClassification",
        {"image_size": 64, "depths": [1, 1, 1, 1], "embed_dims": [16, 24, 32, 48], "num_labels": 10},
        IMAGE,
    ),
    "clip_vision": ("CLIPVisionModel", _VISION, IMAGE),
    "siglip_vision": ("SiglipVisionModel", _VISION, IMAGE),
    "bert": ("BertForSequenceClassification", _TEXT, IDS),
    "roberta": ("RobertaForSequenceClassification", _TEXT, IDS),
    "distilbert": (
        "DistilBertForSequenceClassification",
        {"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 32},
        IDS,
    ),
    "albert": ("AlbertForSequenceClassification", {"embedding_size": 16, **_TEXT}, IDS),
    "electra": ("ElectraForSequenceClassification", {"embedding_size": 16, **_TEXT}, IDS),
    "mobilebert": (
        "MobileBertForSequenceClassification",
        {**_TEXT, "embedding_size": 16, "intra_bottleneck_size": 16},
        IDS,
    ),
    "squeezebert": (
        "SqueezeBertForSequenceClassification",
        {**_TEXT, "embedding_size": 32, "q_groups": 1, "k_groups": 1, "v_groups": 1},
        IDS,
    ),
    "mpnet": ("MPNetForSequenceClassification", _TEXT, IDS),
    "deberta": (
        "DebertaForSequenceClassification",
        {"pos_att_type": ["c2p", "p2c"], "relative_attention": True, **_TEXT},
        IDS,
    ),
    "deberta_v2": (
        "DebertaV2ForSequenceClassification",
        {"pos_att_type": ["c2p", "p2c"], "relative_attention": True, **_TEXT},
        IDS,
    ),
    "fnet": ("FNetForSequenceClassification", {"type_vocab_size": 2, **_TEXT}, IDS),
    "convbert": ("ConvBertForSequenceClassification", {**_TEXT, "embedding_size": 32}, IDS),
    "gpt2": ("GPT2Model", {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}, IDS),
    "t5_encoder": (
        "T5EncoderModel",
        {"vocab_size": 100, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
        IDS,
    ),
    "mamba": ("MambaModel", {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}, IDS),
}


class _OneTensor(nn.Module):
    """Takes one tensor and returns one: logits where the model has them, else its hidden states."""

    def __init__(self, model: nn.Module, argument: str) -> None:
        super().__init__()
        self.model, self._argument = model, argument

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer = self.model(**{self._argument: x}, return_dict=True)
        logits = getattr(answer, "logits", None)
        return answer.last_hidden_state if logits is None else logits


def build(name: str) -> nn.Module:
    """Return an architecture with seeded random weights, in evaluation mode."""
    import transformers

    class_name, settings, example = ARCHITECTURES[name]
    model_class = getattr(transformers, class_name)
    torch.manual_seed(0)
    config = model_class.config_class(**settings)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    model = model_class(config).eval()
    return _OneTensor(model, "pixel_values" if example is IMAGE else "input_ids").eval()


def __getattr__(name: str) -> Any:
    """Give a factory by the name of its architecture, as `ipj-edge convert FILE:NAME` asks for it."""
    if name not in ARCHITECTURES:
        raise AttributeError(name)
    return lambda: build(name)

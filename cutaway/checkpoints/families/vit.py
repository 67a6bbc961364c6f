"""ViT: patches of an image as tokens, pre-norm LayerNorm, a class token (Dosovitskiy et al. 2020, arXiv:2010.11929)."""

from __future__ import annotations

import re
from typing import Any

from cutaway import spec
from cutaway.checkpoints.activations import ACTIVATIONS, THEIRS
from cutaway.checkpoints.blocks import first_parts, repeated, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.decoders import eps_of
from cutaway.checkpoints.encoders import task
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.heads import classes, prefix, write_classes
from cutaway.checkpoints.rules import Reshape, Rule, linear, renames, same
from cutaway.errors import CheckpointError

CLASSIFIER = "ForImageClassification"


def to_spec(config: Config) -> spec.ImageEncoder:
    """config.json to a spec."""
    height, width = _pair(config, "image_size", 224)
    patch_height, patch_width = _pair(config, "patch_size", 16)
    n_patches = (height // patch_height) * (width // patch_width)
    embedding = spec.PatchEmbedding(
        image_height=height, image_width=width, patch_height=patch_height, patch_width=patch_width,
        n_channels=config.integer("num_channels", 3), positions=spec.Learned(n_positions=n_patches + 1),
    )  # fmt: skip
    bias, norm = config.flag("qkv_bias", True), spec.LayerNorm(eps=config.number("layer_norm_eps", 1e-12))
    attn = spec.MultiHead(
        n_heads=config.integer("num_attention_heads"), mask=spec.FullMask(),
        q_bias=bias, k_bias=bias, v_bias=bias, o_bias=True,
    )  # fmt: skip
    ffn = spec.Dense(
        d_ff=config.integer("intermediate_size"), activation=config.choice("hidden_act", ACTIVATIONS, "gelu")
    )
    dropped = config.number("hidden_dropout_prob", 0.0)
    return spec.ImageEncoder(
        d_model=config.integer("hidden_size"),
        embedding=embedding,
        layers=repeated([sequential(attn, ffn, norm)] * config.integer("num_hidden_layers")),
        final_norm=norm,
        head=_head(config),
        dropout=spec.Dropout(
            embedding=dropped, residual=dropped, attention=config.number("attention_probs_dropout_prob", 0.0)
        ),
    )


def _pair(config: Config, key: str, default: int) -> tuple[int, int]:
    """Height and width, one number where they are equal."""
    value = config.take(key, default)
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2 or not all(isinstance(side, int) and side > 0 for side in pair):
        raise CheckpointError(f"{config.where}: {key} is {value!r}, expected a number of pixels, or two")
    return pair[0], pair[1]


def _head(config: Config) -> spec.ClassHead | spec.VectorHead:
    width, name = config.take("pooler_output_size", None), config.choice("pooler_act", ACTIVATIONS, "tanh")
    if task(config, "ViT", ("Model", CLASSIFIER)) == CLASSIFIER:
        return spec.ClassHead(**classes(config), pool="first")
    if not config.holds("*pooler.dense.weight", True):
        return spec.VectorHead()
    d_model = config.integer("hidden_size")
    wide = "d_model" if width in (None, d_model) else config.integer("pooler_output_size")
    return spec.VectorHead(pooler=spec.Transform(width=wide, activation=name))


def _one_or_two(height: int, width: int) -> int | list[int]:
    return height if height == width else [height, width]


def to_config(record: spec.ImageEncoder) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    (attn, ffn), image, head = first_parts(record), record.embedding, record.head
    pooler = head.pooler if isinstance(head, spec.VectorHead) else spec.NoTransform()
    out = {
        "model_type": "vit", "architectures": ["ViTModel"], "hidden_size": record.d_model,
        "num_hidden_layers": len(record.blocks), "num_attention_heads": attn.n_heads, "intermediate_size": ffn.d_ff,
        "hidden_act": THEIRS.get(ffn.activation), "layer_norm_eps": eps_of(record.final_norm), "qkv_bias": attn.q_bias,
        "image_size": _one_or_two(image.image_height, image.image_width),
        "patch_size": _one_or_two(image.patch_height, image.patch_width),
        "num_channels": image.n_channels, "hidden_dropout_prob": record.dropout.embedding,
        "attention_probs_dropout_prob": record.dropout.attention,
    }  # fmt: skip
    if isinstance(pooler, spec.Transform):
        out["pooler_output_size"] = record.d_model if pooler.width == "d_model" else pooler.width
        out["pooler_act"] = THEIRS[pooler.activation]
    if isinstance(head, spec.ClassHead):
        out |= {"architectures": [f"ViT{CLASSIFIER}"], **write_classes(head)}
    return out


STACK = {
    "blocks.*.attn.norm_in": "encoder.layer.*.layernorm_before",
    "blocks.*.attn.q_proj": "encoder.layer.*.attention.attention.query",
    "blocks.*.attn.k_proj": "encoder.layer.*.attention.attention.key",
    "blocks.*.attn.v_proj": "encoder.layer.*.attention.attention.value",
    "blocks.*.attn.o_proj": "encoder.layer.*.attention.output.dense",
    "blocks.*.ffn.norm_in": "encoder.layer.*.layernorm_after",
    "blocks.*.ffn.up_proj": "encoder.layer.*.intermediate.dense",
    "blocks.*.ffn.down_proj": "encoder.layer.*.output.dense",
    "final_norm": "layernorm",
    "head.pooler.dense": "pooler.dense",
}
TODAY = {
    "attention.q_proj": "attention.attention.query", "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value", "attention.o_proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense",
}  # fmt: skip


def rules(record: spec.ImageEncoder) -> list[Rule]:
    """Their tensor names; a patch is the kernel of a convolution, and positions and class token have leading axes."""
    top, image, d_model = prefix(record, "vit."), record.embedding, record.d_model
    kernel = (d_model, image.n_channels, image.patch_height, image.patch_width)
    patches = f"{top}embeddings.patch_embeddings.projection"
    rows = (image.n_tokens, d_model)
    return [
        same(f"{patches}.weight", "embedding.patches.weight", Reshape(kernel, (d_model, image.patch_size))),
        same(f"{patches}.bias", "embedding.patches.bias"),
        same(f"{top}embeddings.cls_token", "embedding.class_token", Reshape((1, 1, d_model), (d_model,))),
        same(f"{top}embeddings.position_embeddings", "embedding.positions.weight", Reshape((1, *rows), rows)),
        *renames(record, STACK, top),
        *linear("classifier", "head.projection", bias=True),
    ]


def _renamed(name: str) -> str:
    found = re.match(r"(.*\b)layers\.(\d+)\.(.+)\.(weight|bias)$", name)
    return f"{found[1]}encoder.layer.{found[2]}.{TODAY.get(found[3], found[3])}.{found[4]}" if found else name


FAMILIES = (
    Family(
        ("vit",), spec.ImageEncoder, to_spec, rules, to_config, ("embeddings.mask_token", "pooler.dense.*"), _renamed,
        "vit.", {"encoder_stride": "of a decoder of masked patches, which is not loaded"},
    ),
)  # fmt: skip

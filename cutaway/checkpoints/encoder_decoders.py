"""What the configurations of most encoder-decoders have in common: both sides, their layers, names and heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cutaway import spec
from cutaway.checkpoints.activations import ACTIVATIONS, THEIRS
from cutaway.checkpoints.blocks import chain, repeated
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.encoders import attention, class_rules, task
from cutaway.checkpoints.heads import classes, write_classes
from cutaway.checkpoints.rules import Reshape, Rule, renames, same
from cutaway.errors import CheckpointError
from cutaway.spec.block import Part
from cutaway.spec.head import Head
from cutaway.spec.positions import AbsolutePositions

WRITES = "ForConditionalGeneration"
CLASSES = (WRITES, "Model", "ForSequenceClassification", "ForQuestionAnswering")
IGNORED = {
    "classifier_dropout": "training only", "classif_dropout": "training only", "*coder_layerdrop": "training only",
    "init_std": "training only", "gradient_checkpointing": "training only", "output_past": "an API switch",
    "num_hidden_layers": "said by encoder_layers", "extra_pos_embeddings": "the class says so",
    "static_position_embeddings": "the class says so", "add_bias_logits": "the bias is stored",
    "force_bos_token_to_be_generated": "read for generation",
}  # fmt: skip


@dataclass(frozen=True)
class Style:
    """What the classes of a family fix: their `stem`, where norms stand, and what tells positions apart.

    `writes`: the rest of the name of the class that writes. `logits_bias`: its logits have an offset, stored as a row.
    """

    model_type: str
    stem: str
    pre_norm: bool
    positions: Callable[[Config], AbsolutePositions]
    embedding_norm: bool = False
    logits_bias: bool = True
    writes: str = WRITES
    n_classes: int = 2


def read(config: Config, style: Style) -> spec.EncoderDecoder:
    """The model that the usual keys describe."""
    kind = task(config, style.stem, (style.writes, *CLASSES[1:]), style.writes)
    kind = kind if kind in CLASSES else WRITES
    config.expect("is_decoder", False)
    for key, value in (("normalize_before", style.pre_norm), ("add_final_layer_norm", style.pre_norm),
                       ("normalize_embedding", style.embedding_norm)):  # fmt: skip
        config.expect(key, value)
    tied, sides = config.flag("tie_word_embeddings", True), ("encoder", "decoder")
    shared = config.flag("share_encoder_decoder_embeddings", True)
    if shared and not tied:  # today's library unties all three tables, an older one the head alone
        shared = not all(config.holds(f"*{side}.embed_tokens.weight", True) for side in sides)
    bias = style.logits_bias and config.holds("final_logits_bias", True)
    dropout = config.number("dropout", 0.1)
    vocab_size = config.integer("vocab_size")
    return spec.EncoderDecoder(
        d_model=config.integer("d_model"), shared_embedding=shared,
        encoder=_read_side(config, style, "encoder", vocab_size),
        decoder=_read_side(config, style, "decoder", config.integer("decoder_vocab_size", vocab_size)),
        head=read_head(config, kind, spec.LanguageHead(tied=tied, bias=bias), style.n_classes),
        dropout=spec.Dropout(
            embedding=dropout, residual=dropout, attention=config.number("attention_dropout", 0.0),
            hidden=config.number("activation_dropout", 0.0),
        ),
    )  # fmt: skip


def _read_side(config: Config, style: Style, side: str, vocab_size: int) -> spec.Side:
    n_heads, d_ff = config.integer(f"{side}_attention_heads"), config.integer(f"{side}_ffn_dim")
    activation = config.choice("activation_function", ACTIVATIONS)
    ffn, attn, norm = spec.Dense(d_ff=d_ff, activation=activation), attention(n_heads), spec.LayerNorm()
    branches: list[Part] = [attn, ffn]
    if side == "decoder":
        cross = spec.Cross(n_heads=n_heads, q_bias=True, k_bias=True, v_bias=True, o_bias=True)
        branches = [attn.replace(mask=spec.CausalMask()), cross, ffn]
    block = chain(branches, before=norm) if style.pre_norm else chain(branches, after=norm)
    embedding = spec.TokenEmbedding(
        factor="sqrt_d_model" if config.flag("scale_embedding", False) else 1.0,
        norm=norm if style.embedding_norm else spec.NoNorm(), positions=style.positions(config),
    )  # fmt: skip
    return spec.Side(
        vocab_size=vocab_size, context_length=config.integer("max_position_embeddings"), embedding=embedding,
        layers=repeated([block] * config.integer(f"{side}_layers")),
        final_norm=norm if style.pre_norm else spec.NoNorm(),
    )  # fmt: skip


def write(record: spec.EncoderDecoder, style: Style) -> dict[str, Any]:
    """The usual keys of config.json; what does not fit shows when they are read back."""
    tied = not isinstance(record.head, spec.LanguageHead) or record.head.tied
    if record.shared_embedding and not tied:
        raise CheckpointError("today's library reads no shared embedding beside a head of its own")
    out: dict[str, Any] = {
        "model_type": style.model_type, **write_head(record, style.stem, style.writes), "d_model": record.d_model,
        "vocab_size": record.encoder.vocab_size, "max_position_embeddings": record.encoder.context_length,
        "scale_embedding": record.encoder.embedding.factor == "sqrt_d_model", "tie_word_embeddings": tied,
        "dropout": record.dropout.residual, "attention_dropout": record.dropout.attention,
        "activation_dropout": record.dropout.hidden, "is_encoder_decoder": True,
    }  # fmt: skip
    for side, stack in (("encoder", record.encoder), ("decoder", record.decoder)):
        match [branch.part for block in stack.blocks[:1] for branch in block.branches]:
            case [spec.MultiHead() as attn, *_, spec.Dense() as ffn]:
                out |= {
                    f"{side}_layers": len(stack.blocks), f"{side}_attention_heads": attn.n_heads,
                    f"{side}_ffn_dim": ffn.d_ff, "activation_function": THEIRS.get(ffn.activation),
                }  # fmt: skip
            case _:
                raise CheckpointError("only layers of attention and a feed-forward network of two matrices fit here")
    return out


def rules(record: spec.EncoderDecoder) -> list[Rule]:
    """The usual names of tensors."""
    top = "" if isinstance(record.head, spec.VectorHead) else "model."
    out: list[Rule] = []
    for side in ("encoder", "decoder"):
        names = {"embedding.positions": "embed_positions", "embedding.norm": "layernorm_embedding",
                 "final_norm": "layer_norm", "blocks.*.ffn.up_proj": "layers.*.fc1",
                 "blocks.*.ffn.down_proj": "layers.*.fc2"}  # fmt: skip
        for ours, theirs in (("attn", "self_attn"), ("cross", "encoder_attn"), ("ffn", "final")):
            names |= {f"blocks.*.{ours}.{norm}": f"layers.*.{theirs}_layer_norm" for norm in ("norm_in", "norm_sum")}
            names |= {f"blocks.*.{ours}.{x}_proj": f"layers.*.{theirs}.{x}_proj" for x in "qkv"}
            names[f"blocks.*.{ours}.o_proj"] = f"layers.*.{theirs}.out_proj"
        out += renames(record, {f"{side}.{ours}": f"{side}.{theirs}" for ours, theirs in names.items()}, top)
        table = f"{side}.embedding.tokens.weight"
        tables = [same(f"{top}shared.weight", table), same(f"{top}{side}.embed_tokens.weight", table)]
        out += tables if record.shared_embedding else [tables[1]]
    return out + head_rules(record)


def read_head(config: Config, kind: str, language: spec.LanguageHead, n_classes: int = 2) -> Head:
    """The head of a class: `language` where it writes.

    A classifier of rows reads the decoder's state for the end of the text, which is the last one where the decoder is
    given the start id and the source without its end.
    """
    match kind:
        case "ForSequenceClassification":
            return spec.ClassHead(
                **classes(config, n_classes), pool="last", transform=spec.Transform(activation="tanh")
            )
        case "ForQuestionAnswering":  # the two ends of the answer
            return spec.ClassHead(n_classes=2, pool="none")
        case "ForTokenClassification":
            return spec.ClassHead(**classes(config, n_classes), pool="none")
        case "Model" | "EncoderModel":
            return spec.VectorHead()
    return language


def write_head(record: spec.Encoder | spec.EncoderDecoder, stem: str, writes: str = WRITES) -> dict[str, Any]:
    """The class and the keys of a classifier."""
    two = isinstance(record, spec.EncoderDecoder)
    match record.head:
        case spec.LanguageHead():
            return {"architectures": [stem + writes]}
        case spec.ClassHead() as head:
            token = "ForQuestionAnswering" if two else "ForTokenClassification"
            kind = token if head.pool == "none" else "ForSequenceClassification"
            return {"architectures": [stem + kind], **write_classes(head)}
    return {"architectures": [stem + ("Model" if two else "EncoderModel")]}


def head_rules(record: spec.Encoder | spec.EncoderDecoder) -> list[Rule]:
    """The tensors of all of these heads."""
    match record.head:
        case spec.LanguageHead(bias=bias):
            n = spec.last_stack(record).vocab_size
            offset = [same("final_logits_bias", "head.bias", Reshape((1, n), (n,)))] if bias else []
            return [same("lm_head.weight", "head.weight"), *offset]
        case spec.ClassHead(pool="none"):
            rules = class_rules()
            return rules[::-1] if isinstance(record, spec.EncoderDecoder) else rules  # the first name is written
    names = {"head.transform.dense": "dense", "head.projection": "out_proj"}
    return renames(record, names, "classification_head.")

"""What the configurations of most encoders have in common: the class, its head, the positions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.heads import write_classes
from cutaway.checkpoints.rules import Rule, linear, same
from cutaway.errors import CheckpointError
from cutaway.spec.head import Head

IGNORED = {
    "classifier_dropout": "training only", "gradient_checkpointing": "training only", "pooler_*": "never read",
    "directionality": "never read", "output_past": "an API switch",
}  # fmt: skip
"""Keys of the first release, and of training."""


def task(config: Config, stem: str, known: Iterable[str], default: str = "Model") -> str:
    """What the name of the class says beyond the family's `stem`: `Model`, `ForMaskedLM`, ...

    `default` where the file names no class. Raises CheckpointError for a class that is not among `known`.
    """
    name = (config.take("architectures", None) or [stem + default])[0]
    if name.removeprefix(stem) not in known or not name.startswith(stem):
        classes = ", ".join(stem + each for each in known)
        raise CheckpointError(f"{config.where}: the class {name!r} is not supported; supported are {classes}")
    return name.removeprefix(stem)


def only_encoder(config: Config) -> None:
    """Flags that would make a decoder of an encoder, or give it other positions, must be off."""
    config.flag("tie_word_embeddings", True)  # of no consequence where the class has no matrix to tie
    config.expect("is_decoder", False)
    config.expect("add_cross_attention", False)
    config.expect("position_embedding_type", "absolute")


def attention(n_heads: int) -> spec.MultiHead:
    """Attention to the whole sequence, with biases."""
    return spec.MultiHead(n_heads=n_heads, mask=spec.FullMask(), q_bias=True, k_bias=True, v_bias=True, o_bias=True)


def n_positions(record: spec.Encoder) -> int:
    """Rows of the learned table of positions. Raises CheckpointError where there is none."""
    places = record.embedding.positions
    if not isinstance(places, spec.Learned):
        raise CheckpointError("an encoder without learned positions does not fit this family")
    return places.n_positions + places.offset


def write_head(head: Head, stem: str) -> dict[str, Any]:
    """The class, and the keys of a classifier."""
    match head:
        case spec.MaskedHead():
            return {"architectures": [f"{stem}ForMaskedLM"], "tie_word_embeddings": head.tied}
        case spec.ClassHead():
            kind = "Token" if head.pool == "none" else "Sequence"
            name = f"{stem}For{kind}Classification"
            return {"architectures": [name], "tie_word_embeddings": True, **write_classes(head)}
    return {"architectures": [f"{stem}Model"], "tie_word_embeddings": True}


def token_rules(head: spec.MaskedHead, theirs: str) -> list[Rule]:
    """The last matrix and the bias; of the two names of the bias an untied head reads the decoder's."""
    biases = [same(f"{theirs}.bias", "head.bias"), same(f"{theirs}.decoder.bias", "head.bias")]
    if not head.tied:
        biases = [biases[1], biases[0].as_spare()]
    return [same(f"{theirs}.decoder.weight", "head.weight"), *biases]


def class_rules() -> list[Rule]:
    """The last matrix of a classifier of rows or tokens, and of one that finds the two ends of an answer."""
    return linear("classifier", "head.projection", True) + linear("qa_outputs", "head.projection", True)


def first_names(name: str) -> str:
    """Today's name for one of the first release, when gain and shift of a norm were gamma and beta."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return name

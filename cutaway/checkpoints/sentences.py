"""Sentence encoders: what sentence-transformers lays beside a model's files, to a head of vectors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.fill import Source
from cutaway.checkpoints.rules import Rule, same
from cutaway.checkpoints.weights import open_weights
from cutaway.errors import CheckpointError
from cutaway.spec.feedforward import Activation
from cutaway.spec.head import Pool
from cutaway.tokenizers.json_files import read_json, read_table

MODULES = "modules.json"
ORDER = ("Transformer", "Pooling", "Dense", "Normalize")
POOLS: dict[str, Pool] = {
    "cls": "first",
    "cls_token": "first",
    "mean": "mean",
    "mean_tokens": "mean",
    "lasttoken": "last",
}
ACTIVATIONS: dict[str, Activation] = {
    "Identity": "identity", "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "Sigmoid": "sigmoid",
}  # fmt: skip
DENSE = "Dense."
"""What the names of the tensors of a Dense module begin with, as rules see them."""


def read_sentences(folder: Path, record: spec.Model, config: Config) -> spec.Model:
    """The model with the pooling, projection, normalisation and length that `modules.json` names.

    It comes back as it is where there is no such file. Texts are cut to `max_seq_length`, which is its context then.
    Raises CheckpointError for modules that are not known or come in another order.
    """
    modules = _modules(folder)
    if not modules:
        return record
    if isinstance(record, spec.EncoderDecoder):
        raise CheckpointError(f"{folder / MODULES}: an encoder-decoder makes no vectors of sentences here")
    pooler = record.head.pooler if isinstance(record.head, spec.VectorHead) else spec.NoTransform()
    head = spec.VectorHead(pool="mean", normalise="Normalize" in modules, pooler=pooler)
    if "Pooling" in modules:
        head = head.replace(pool=_pool(folder / modules["Pooling"] / "config.json", record.d_model, config))
    if "Dense" in modules:
        head = head.replace(transform=_transform(folder / modules["Dense"] / "config.json"))
    return record.replace(head=head, context_length=_length(folder, record.context_length))


def write_sentences(folder: Path, record: spec.Model) -> None:
    """The files that say how a model makes vectors of sentences; none for one that gives its states."""
    head = record.head
    if not isinstance(head, spec.VectorHead) or isinstance(record, spec.EncoderDecoder) or head.pool == "none":
        return
    modes = {"pooling_mode_cls_token": "first", "pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "last"}
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), *([("Normalize", "2_Normalize")] * head.normalise)]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds)
    ]
    pooling = {key: head.pool == pool for key, pool in modes.items()}
    length = None if record.context_length == "unlimited" else record.context_length
    (folder / "1_Pooling").mkdir()
    for name, table in (
        (MODULES, modules), ("1_Pooling/config.json", {"word_embedding_dimension": record.d_model} | pooling),
        ("sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False}),
    ):  # fmt: skip
        (folder / name).write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


def rules(record: spec.Model) -> list[Rule]:
    """The names of the projection's tensors."""
    if not isinstance(record.head, spec.VectorHead) or not isinstance(record.head.transform, spec.Transform):
        return []
    ours = "head.transform.dense."
    return [same(f"{DENSE}linear.{leaf}", ours + leaf) for leaf in ("weight", "bias")]


def with_projection(source: Source, folder: Path, allow_pickle: bool = False) -> Source:
    """The source with the tensors of a Dense module beside its own."""
    path = _modules(folder).get("Dense")
    return source if path is None else Beside(source, open_weights(folder / path, allow_pickle=allow_pickle))


class Beside:
    """Two sources as one; names of the second begin with DENSE."""

    def __init__(self, first: Source, second: Source) -> None:
        self.first, self.second, self.where = first, second, first.where

    def names(self) -> Iterable[str]:
        """The names of all tensors."""
        return [*self.first.names(), *(DENSE + name for name in self.second.names())]

    def _of(self, name: str) -> tuple[Source, str]:
        return (self.second, name.removeprefix(DENSE)) if name.startswith(DENSE) else (self.first, name)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        source, own = self._of(name)
        return source.shape(own)

    def dtype(self, name: str) -> torch.dtype | None:
        """The type in which the file holds a tensor."""
        source, own = self._of(name)
        return source.dtype(own)

    def read(self, name: str, out: Tensor | None = None) -> Tensor:
        """A tensor, in `out` when that is given."""
        source, own = self._of(name)
        return source.read(own, out)

    def drop(self) -> None:
        """Give back the memory of what was read."""
        self.first.drop()
        self.second.drop()


def _modules(folder: Path) -> dict[str, str]:
    """Kind to path of the modules, in their order; empty where the folder is no sentence encoder."""
    path = folder / MODULES
    if not path.is_file():
        return {}
    listed = read_json(path)
    try:
        kinds = [(str(each["type"]).rpartition(".")[2], PurePosixPath(each["path"])) for each in listed]
    except (TypeError, KeyError):
        raise CheckpointError(f"{path}: expected a list of modules with type and path; fetch it again") from None
    names = [kind for kind, _ in kinds]
    places = [ORDER.index(name) for name in names if name in ORDER]
    if len(places) != len(names) or places != sorted(set(places)) or names[0] != ORDER[0]:
        raise CheckpointError(f"{path}: modules {', '.join(names)}; known are {', '.join(ORDER)}, in this order")
    if any(inner.is_absolute() or ".." in inner.parts for _, inner in kinds):
        raise CheckpointError(f"{path}: a module lies outside of the folder")
    return {kind: str(inner) for kind, inner in kinds}


def _pool(path: Path, d_model: int, config: Config) -> Pool:
    if not path.is_file():
        config.defaulted["pooling_mode"] = "mean"
        return "mean"
    table = Config(read_table(path), str(path))
    table.expect("word_embedding_dimension", d_model)
    table.expect("embedding_dimension", d_model)
    named = table.take("pooling_mode", [])
    on = [named] if isinstance(named, str) else list(named)
    for key in table.data:
        if key.startswith("pooling_mode_") and table.flag(key):
            on.append(key.removeprefix("pooling_mode_"))
    if len(on) != 1 or on[0] not in POOLS:
        raise CheckpointError(
            f"{path}: pooling {' with '.join(map(str, on)) or 'of no kind'}; known are {', '.join(POOLS)}"
        )
    table.ignore({"include_prompt": "prompts are the caller's"})
    table.finish()
    return POOLS[on[0]]


def _transform(path: Path) -> spec.Transform:
    table = Config(read_table(path), str(path))
    activation = str(table.take("activation_function")).rpartition(".")[2]
    if activation not in ACTIVATIONS:
        raise CheckpointError(f"{path}: the projection's activation {activation} is not known")
    return spec.Transform(
        width=table.integer("out_features"), activation=ACTIVATIONS[activation], bias=table.flag("bias", True)
    )


def _length(folder: Path, context: int | str) -> int | str:
    for path in sorted(folder.glob("sentence_*_config.json")):
        table = Config(read_table(path), str(path))
        longest = table.nullable("max_seq_length", None)
        table.expect("do_lower_case", False)
        table.finish()
        if isinstance(longest, int):
            return longest if context == "unlimited" else min(longest, int(context))
    return context

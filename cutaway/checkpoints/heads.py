"""What stands on a stack: the class that `architectures` names, to our head and back."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.rules import Rule, linear, same
from cutaway.errors import CheckpointError

LANGUAGE = ("ForCausalLM", "LMHeadModel")
SEQUENCE, TOKEN, BARE = "ForSequenceClassification", "ForTokenClassification", "Model"


def read_head(config: Config, language: spec.LanguageHead) -> spec.Head:
    """The head of a decoder's folder: `language` unless its class is a classifier or has no head at all."""
    names = config.take("architectures", None) or [""]
    name = names[0]
    if name == "" or name.endswith(LANGUAGE):
        return language
    if name.endswith(SEQUENCE):
        return spec.ClassHead(n_classes=_n_classes(config), pool="last", bias=False)
    if name.endswith(TOKEN):
        return spec.ClassHead(n_classes=_n_classes(config), pool="none")
    if name.endswith(BARE) and "For" not in name and not name.endswith("HeadsModel"):
        return spec.VectorHead(transform=language.transform)
    raise CheckpointError(f"{config.where}: a head as {name} has it is not supported; load the model without it")


def write_head(head: spec.Head, stem: str, language: str = LANGUAGE[0]) -> dict[str, Any]:
    """The keys of config.json for a head, for the classes that begin with `stem`."""
    match head:
        case spec.LanguageHead():
            return {"architectures": [stem + language]}
        case spec.ClassHead():
            labels = {str(i): f"LABEL_{i}" for i in range(head.n_classes)}
            kind = TOKEN if head.pool == "none" else SEQUENCE
            return {
                "architectures": [stem + kind], "id2label": labels, "label2id": {v: int(k) for k, v in labels.items()},
            }  # fmt: skip
    return {"architectures": [stem + BARE]}


def head_rules(head: spec.Head, sequence: str = "score", token: str = "score", language: str = "lm_head") -> list[Rule]:
    """The tensors of a head by the names of its last matrix in the three classes."""
    if isinstance(head, spec.LanguageHead):
        return [same(f"{language}.weight", "head.weight"), *([same(f"{language}.bias", "head.bias")] * head.bias)]
    if isinstance(head, spec.ClassHead):
        return linear(token if head.pool == "none" else sequence, "head.projection", head.bias)
    return []


def prefix(record: spec.Model, name: str) -> str:
    """What the names of the stack's tensors begin with: nothing where the model has no head."""
    return "" if isinstance(record.head, spec.VectorHead) else name


def _n_classes(config: Config) -> int:
    labels = config.take("id2label", None)
    return config.integer("num_labels", 2) if labels is None else len(labels)

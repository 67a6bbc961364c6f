"""What stands on a stack: the class that `architectures` names, to our head and back."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.errors import CheckpointError
from cutaway.spec.head import Head

LANGUAGE = ("ForCausalLM", "LMHeadModel")
SEQUENCE, TOKEN, BARE = "ForSequenceClassification", "ForTokenClassification", "Model"
Problem = Literal["single_label", "multi_label", "regression"]
PROBLEMS: dict[str, Problem] = {
    "single_label_classification": "single_label", "multi_label_classification": "multi_label",
    "regression": "regression",
}  # fmt: skip


class Classes(TypedDict):
    """The fields of spec.ClassHead that say how many classes there are, what they are called, what kind they are."""

    n_classes: int
    labels: tuple[str, ...]
    problem: Problem


def read_head(config: Config, language: spec.LanguageHead) -> Head:
    """The head of a decoder's folder: `language` unless its class is a classifier or has no head at all."""
    names = config.take("architectures", None) or [""]
    name = names[0]
    if name == "" or name.endswith(LANGUAGE):
        return language
    if name.endswith(SEQUENCE):
        return spec.ClassHead(**classes(config), pool="last", bias=False, transform=language.transform)
    if name.endswith(TOKEN):
        return spec.ClassHead(**classes(config), pool="none", transform=language.transform)
    if name.endswith(BARE) and "For" not in name and not name.endswith("HeadsModel"):
        return spec.VectorHead(transform=language.transform)
    raise CheckpointError(f"{config.where}: a head as {name} has it is not supported; load the model without it")


def write_head(head: Head, stem: str, language: str = LANGUAGE[0]) -> dict[str, Any]:
    """The keys of config.json for a head, for the classes that begin with `stem`."""
    match head:
        case spec.LanguageHead():
            return {"architectures": [stem + language], "tie_word_embeddings": head.tied}
        case spec.ClassHead():
            name = stem + (TOKEN if head.pool == "none" else SEQUENCE)
            return {"architectures": [name], "tie_word_embeddings": False, **write_classes(head)}
    return {"architectures": [stem + BARE], "tie_word_embeddings": False}


def classifier(head: Head, rows: str = "score", tokens: str = "classifier") -> dict[str, str]:
    """The name of a classifier's matrix: one in classes of rows, another in classes of tokens."""
    return {"head.projection": tokens if isinstance(head, spec.ClassHead) and head.pool == "none" else rows}


def prefix(record: spec.Model, name: str) -> str:
    """What the names of the stack's tensors begin with: nothing where the model has no head."""
    return "" if isinstance(record.head, spec.VectorHead) else name


def classes(config: Config, default: int = 2) -> Classes:
    """The classes; without labels there are `default`. Labels that a program made up (LABEL_0, ...) are no names."""
    table = config.take("id2label", None)
    config.take("label2id", None)
    if table is None:
        n, labels = config.integer("num_labels", default), ()
    else:
        n = len(table)
        labels = tuple(str(table.get(str(i), "")) for i in range(n))
        if "" in labels or config.take("num_labels", n) != n:
            raise CheckpointError(f"{config.where}: id2label is {table}, expected a name for each of the {n} classes")
    problem = config.choice("problem_type", PROBLEMS, usual_problem(n))
    return {"n_classes": n, "labels": () if labels == made_up(n) else labels, "problem": problem}


def write_classes(head: spec.ClassHead) -> dict[str, Any]:
    """The keys for the classes of a head."""
    labels = head.labels or made_up(head.n_classes)
    problem = next(theirs for theirs, ours in PROBLEMS.items() if ours == head.problem)
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
        "problem_type": None if problem == usual_problem(head.n_classes) else problem,
    }


def usual_problem(n_classes: int) -> str:
    """What is meant where nothing is said."""
    return "multi_label_classification" if n_classes == 1 else "single_label_classification"


def made_up(n: int) -> tuple[str, ...]:
    """The labels of classes without names."""
    return tuple(f"LABEL_{i}" for i in range(n))

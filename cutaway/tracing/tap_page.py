"""The glossary of taps as a page: `python -m cutaway.tracing.tap_page > docs/taps.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from cutaway.tracing.names import GLOSSARY, LETTERS, NORMS, Tap, aliases

PATHS = {
    "stack": ("", "encoder."), "embedding": ("embedding.",), "block": ("blocks.*.",),
    "branch": ("blocks.*.attn.", "blocks.*.cross.", "blocks.*.ffn."),
    "attention": ("blocks.*.attn.", "decoder.blocks.*.cross."),
    "attention gated by element": ("blocks.*.attn.",), "latent attention": ("blocks.*.attn.",),
    "ffn": ("blocks.*.ffn.", "blocks.*.ffn.shared."), "expert": ("blocks.*.ffn.experts.*.",),
    "router": ("blocks.*.ffn.router.",), "norm": ("blocks.*.attn.norm_in.", "blocks.*.ffn.norm_in.", "final_norm."),
}  # fmt: skip
"""Where taps of a kind of module are; a head's are under `head`."""
TITLES = {"ffn": "Feed-forward network", "expert": "An expert of a mixture", "stack": "The stack itself"}
HEAD = "| tap | axes | what | also called |\n|---|---|---|---|"

START = """# Taps: the name of every tensor

`cutaway taps MODEL` lists those of a model with their sizes; this page is made from the same glossary. A name is the
path of a module and what the tensor is there: `blocks.3.attn.q`. In a model of two stacks it begins with `encoder.` or
`decoder.`. The names are the same in every family. `cutaway.record`, `cutaway.edit` and `cutaway.listening` take them.

`*` stands for anything, `blocks[3]`, `blocks[3:7]` and `blocks[-1]` for layers as in a list: `blocks.*.attn.pattern`,
`blocks[3:7].resid_post`. `record` and `edit` take the names of TransformerLens and Hugging Face too; the axes are ours
(heads before tokens). What TransformerLens calls `blocks.3` in a model of one stack is `encoder.3` or `decoder.3`, and
`decoder.3.cross_attn`, in one of two. `[i]` is the index of a layer. An alias means what this model computes there:
where a family scales its embeddings or caps its logits after the module of that name, the tap is still the one of the
formula.
"""


def page() -> str:
    """The whole page."""
    letters = "\n".join(f"| {letter} | {told} |" for letter, told in LETTERS.items())
    parts = [START, f"| letter | axis |\n|---|---|\n{letters}\n"]
    for where, entries in groupby(GLOSSARY, key=lambda entry: entry.where):
        rows = "\n".join(_row(entry) for entry in entries)
        parts.append(f"## {TITLES.get(where, where.capitalize())}\n\n{_place(where)}\n\n{HEAD}\n{rows}\n")
    return "\n".join(parts)


def _place(where: str) -> str:
    if where == "stack":
        return "With nothing before the name, or `encoder.` and `decoder.`."
    told = ", ".join(f"`{path}`" for path in PATHS.get(where, ("head.",)))
    return (
        f"Under {told}"
        + (", and every other norm: " + ", ".join(f"`{name}`" for name in NORMS) if where == "norm" else "")
        + "."
    )


def _row(entry: Tap) -> str:
    also = ", ".join(f"`{name}`" for name in dict.fromkeys(_others(entry)))
    return f"| `{entry.name}` | {entry.letters} | {_escaped(entry.told)} | {also} |"


def _others(entry: Tap) -> Iterator[str]:
    for path in PATHS.get(entry.where, ("head.",)):
        for names in aliases(path + entry.name).values():
            yield from names


def _escaped(text: str) -> str:
    return re.sub(r"([*|<_])", r"\\\1", text)


if __name__ == "__main__":
    print(page(), end="")

"""Lab `block`: one block, part by part, with and without any of its parts.

State: `design` `post` (2017), `pre`, `modern` (RMSNorm, RoPE, SwiGLU) or `encoder-decoder`; `part` the selected one;
`remove` a list of parts; `B`, `L`, `S` (source length), `d_model` (even), `heads`; `bias` whether matrices have one;
`seed` of the weights.

Result
- `removable` the parts that can be removed, `nodes` {id, kind, stack, on_path, title} from bottom to top and `edges`
  {from, to, kind: main | residual | memory}; `legal_heads` at this width.
- `part` everything about the selected part: `title`, `purpose`, `breaks`, `input`, `output` {letters, sizes}, `qkv`,
  `shapes` [[name, shape]], `parameters`, `parameters_with_bias`, `parameters_without_bias`; `parts` [{id, title,
  parameters, parameters_with_bias, parameters_without_bias}] and `parameters` of the block in all.
- `tokens` [L] and `source_tokens` [S] of the first row; `sizes`: `io`, `d_k`, `d_ff`, `mask`, `q_per_head`, `weights`.
- `tensors` in the order of the computation: `name`, `shape`, `what`, `rms`, `rms_without`, `difference` (largest),
  `changed`, `gone` (not computed any more), `part` it belongs to.
- `first` the first tensor that changes: `name`, `shape`, `difference`, `with`, `without` (its numbers), or null.
- `output` and `output_without` [B, L, d_model], `output_difference`; `pattern` and `pattern_without` [heads, L, L]
  of the first row's self-attention (null without it).
- `sees` and `sees_without` [L, L]: whether changing token j changes row i of the output, tried out.
- `numbers` parameters, output_difference, first_difference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.block_parts import edges, info, nodes, parameters
from cutaway.lab.labs.block_run import DESIGNS, Design, Run, Sizes, draw_weights
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.functions import Array

Runner = Callable[..., dict[str, Array]]
DEFAULT: dict[str, Any] = {
    "design": "pre", "part": "attn", "remove": [], "B": 1, "L": 4, "S": 5, "d_model": 8, "heads": 2,
    "bias": False, "seed": 0,
}  # fmt: skip
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "slept", "while", "rain", "fell", "outside")
SOURCE = ("le", "chat", "dort", "sur", "un", "tapis", "et", "rêve", "quand", "la", "pluie", "tombe")


def run(state: dict, say: Say) -> dict:
    """The same tokens through the block whole and with the parts removed, every tensor compared."""
    values = State("block", DEFAULT, state)
    name = values.choice("design", tuple(DESIGNS))
    design, sizes = DESIGNS[name], _sizes(values)
    legal = _legal_heads(design, sizes.d_model)
    if sizes.heads not in legal:
        raise values.refuse(
            "heads", f"one of {', '.join(map(str, legal))}, which share d_model {sizes.d_model} equally"
        )
    parts = design.parts()
    removed = values.choices("remove", parts)
    selectable = dict.fromkeys([*(node["id"] for node in nodes(design, say)), *parts])
    part = values.choice("part", tuple(selectable))
    weights = draw_weights(design, sizes, values.whole("seed", 0, 9999))
    whole, cut = (_runner(design, sizes, weights, gone) for gone in (frozenset(), frozenset(removed)))
    tensors, output, without = _compare(whole(), cut(), say)
    drawn = nodes(design, say)
    result: dict[str, Any] = {
        "removable": parts, "nodes": drawn, "edges": edges(drawn), "legal_heads": legal,
        "part": info(part, design, sizes, say), "parts": _counts(design, sizes, say),
        "parameters": sum(parameters(p, design, sizes, sizes.bias) for p in parts if p != "layer"),
        "tokens": WORDS[: sizes.length], "source_tokens": SOURCE[: sizes.source] if design.encoder else [],
        "sizes": _named_sizes(design, sizes), **tensors, "output": output, "output_without": without,
        "output_difference": float(np.abs(output - without).max()),
        "sees": _sees(whole, sizes), "sees_without": _sees(cut, sizes),
    }  # fmt: skip
    numbers = {
        "parameters": str(result["part"]["parameters"]),
        "output_difference": show.fixed(result["output_difference"], 4),
        "first_difference": show.fixed(result["first"]["difference"], 4) if result["first"] else "0",
    }
    return show.plain(result | {"numbers": numbers, "text": _sentence(say, removed, result, numbers)})


def _sizes(values: State) -> Sizes:
    return Sizes(
        values.whole("B", 1, 4), values.whole("L", 1, 8), values.whole("S", 1, 8),
        values.whole("d_model", 2, 32, step=2), values.whole("heads", 1, 16), values.flag("bias"),
    )  # fmt: skip


def _legal_heads(design: Design, d_model: int) -> list[int]:
    """The head counts that divide the width; RoPE turns pairs, so there a head has an even width."""
    unit = d_model // 2 if design.modern else d_model
    return [heads for heads in range(1, 17) if unit % heads == 0]


def _runner(design: Design, sizes: Sizes, weights: dict[str, Array], removed: frozenset[str]) -> Runner:
    """A function from token ids [B, L] to every tensor; without ids the lab's own sentences."""
    generator = np.random.default_rng(1)
    table, source_table = (generator.normal(size=(len(words), sizes.d_model)) for words in (WORDS, SOURCE))
    source = source_table[_ids(sizes.batch, sizes.source)]

    def run(ids: np.ndarray | None = None) -> dict[str, Array]:
        block = Run(design, sizes.heads, weights, removed)
        if ids is None:
            return block.all(table[_ids(sizes.batch, sizes.length)], source)
        return block.all(table[ids], source[:1].repeat(len(ids), 0))

    return run


def _ids(batch: int, length: int) -> np.ndarray:
    """Row b says the words from b on."""
    return (np.arange(batch)[:, None] + np.arange(length)) % len(WORDS)


def _compare(whole: dict[str, Array], cut: dict[str, Array], say: Say) -> tuple[dict[str, Any], Array, Array]:
    rows: list[dict[str, Any]] = []
    first = None
    for name, tensor in whole.items():
        other = cut.get(name)
        difference = None if other is None else float(np.abs(tensor - other).max())
        rows.append(
            {
                "name": name, "shape": list(tensor.shape), "what": say(f"what.{name.rpartition('.')[2]}"),
                "rms": _rms(tensor),
                "rms_without": None if other is None else _rms(other), "difference": difference,
                "changed": bool(difference), "gone": other is None, "part": _owner(name),
            }
        )  # fmt: skip
        if difference and first is None:
            first = {
                "name": name,
                "shape": list(tensor.shape),
                "difference": difference,
                "with": tensor,
                "without": other,
            }
    last = list(whole)[-1]
    patterns = {
        key: run["attn.pattern"][0] if "attn.pattern" in run else None
        for key, run in (("pattern", whole), ("pattern_without", cut))
    }
    return {"tensors": rows, "first": first, **patterns}, whole[last], cut[last]


def _owner(name: str) -> str:
    """The drawn part that a tensor belongs to."""
    stack = "encoder." if name.startswith("encoder.") else ""
    head, _, last = name.removeprefix("encoder.").partition(".")
    if head in ("attn", "cross", "ffn"):
        return f"{stack}{head}.residual" if last == "sum" else f"{stack}{head}"
    return {"embedding": f"{stack}input", "final_norm": "final_norm"}.get(head, f"{stack}layer")


def _rms(x: Array) -> float:
    return float(np.sqrt((x**2).mean()))


def _counts(design: Design, sizes: Sizes, say: Say) -> list[dict[str, Any]]:
    keys = ("id", "title", "parameters", "parameters_with_bias", "parameters_without_bias")
    return [{key: about[key] for key in keys} for about in (info(part, design, sizes, say) for part in design.parts())]


def _named_sizes(design: Design, sizes: Sizes) -> dict[str, Any]:
    b, length, d_k = sizes.batch, sizes.length, sizes.d_model // sizes.heads
    return {
        "io": [b, length, sizes.d_model], "d_k": d_k, "d_ff": sizes.gated_d_ff if design.modern else sizes.d_ff,
        "mask": [length, length], "q_per_head": [b, sizes.heads, length, d_k],
        "weights": [b, sizes.heads, length, length],
    }  # fmt: skip


def _sees(run: Runner, sizes: Sizes) -> np.ndarray:
    """Each token in turn replaced by a word of another place, all variants in one batch."""
    ids = _ids(1, sizes.length).repeat(sizes.length + 1, 0)
    changed = np.arange(sizes.length)
    ids[changed + 1, changed] = len(WORDS) - 1
    output = list(run(ids).values())[-1]
    return (np.abs(output[1:] - output[0]).max(-1) > 1e-12).T


def _sentence(say: Say, removed: list[str], result: dict, numbers: dict[str, str]) -> str:
    about = result["part"]
    if not removed:
        return say("part", title=about["title"], purpose=about["purpose"], **numbers)
    names = say.list(removed)
    if result["first"] is None:
        return say("same", names=names)
    return say("changed", names=names, first=result["first"]["name"], **numbers)

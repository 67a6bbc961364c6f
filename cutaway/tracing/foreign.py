"""A Hugging Face folder run by transformers, its tensors under the names of our taps."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cutaway import spec
from cutaway.checkpoints.opened import Opened, open_checkpoint
from cutaway.checkpoints.peers import open_transformers
from cutaway.checkpoints.rules import Transpose
from cutaway.errors import InputError
from cutaway.tracing.compare import Hear, Source
from cutaway.tracing.prompt import Prompt

BRANCHES = ("attn", "cross", "ffn", "")
TAPS = ("resid_pre", "in", "q", "k", "v", "pattern", "z", "pre", "hidden", "out")
"""The order in which a block makes them."""


def transformers(path: Path, dtype: torch.dtype = torch.float32) -> Source:
    """What transformers computes: hidden states, attentions, logits, and what its linear maps read and write.

    `hidden_states[i]` is our `blocks.i.resid_pre`, the last one `final`, `attentions[i]` is `blocks.i.attn.pattern`.
    Which of its linear maps is which of ours is told by the family's names of weights: `o_proj` reads `z` and writes
    `out`, and so on. Its attention is the written-out one.

    Raises InputError where transformers is missing for what is no Hugging Face folder, and for models of images.
    """
    if importlib.util.find_spec("transformers") is None:
        raise InputError("transformers is not installed; `pip install transformers`, or compare with a model of ours")
    opened = open_checkpoint(path)
    if opened.format != "hf":
        raise InputError(f"{path}: transformers reads Hugging Face folders, and this is none")
    if isinstance(opened.record, spec.ImageEncoder):
        raise InputError(
            f"{path}: the tensors of image models have no such names there; `cutaway verify` compares both"
        )
    model = open_transformers(opened.path, dtype, attn_implementation="eager")

    def run(prompt: Prompt, hear: Hear) -> None:
        kept: dict[str, Tensor] = {}
        handles = [
            model.get_submodule(theirs).register_forward_hook(_keeper(kept, taps, len(prompt.ids)))
            for theirs, taps in _linear_maps(opened, model).items()
        ]
        given = {"input_ids": prompt.ids}
        if prompt.source is not None:
            given = {"input_ids": prompt.source, "decoder_input_ids": prompt.ids}
        try:
            with torch.no_grad():
                out = model(**given, output_hidden_states=True, output_attentions=True, use_cache=False)
        finally:
            for handle in handles:
                handle.remove()
        kept |= _outputs(opened.record, out)
        for name in sorted(kept, key=_place):
            hear(name, kept[name])

    return run


def _outputs(record: spec.Model, out: Any) -> dict[str, Tensor]:
    """What the call returns, under our names."""
    kept: dict[str, Tensor] = {}
    for prefix in spec.stacks(record):
        theirs = prefix.replace(".", "_")
        for field, tap in (("hidden_states", "resid_pre"), ("attentions", "attn.pattern")):
            states = out.get(f"{theirs}{field}") or ()
            kept |= {f"{prefix}blocks.{i}.{tap}": x for i, x in enumerate(states) if x is not None}
        n = sum(name.startswith(f"{prefix}blocks.") and name.endswith("resid_pre") for name in kept)
        if n:  # the last state is the one after the final norm
            kept[f"{prefix}final"] = kept.pop(f"{prefix}blocks.{n - 1}.resid_pre")
    for i, x in enumerate(out.get("cross_attentions") or ()):
        kept[f"decoder.blocks.{i}.cross.pattern"] = x
    if isinstance(record.head, (spec.LanguageHead, spec.MaskedHead)) and out.get("logits") is not None:
        kept["head.logits"] = out["logits"]
    return kept


Shape = Callable[[Tensor], Tensor]
Taps = dict[str, tuple[str, Shape]]
"""`input` and `output` of a linear map: our tap, and what brings their tensor into its shape."""


def _linear_maps(opened: Opened, model: nn.Module) -> dict[str, Taps]:
    """Their linear maps, by path, that are one of ours row by row, with the taps that these read and write."""
    rules = [rule for rule in opened.rules if len(rule.ours) == 1 and rule.ours[0].endswith("_proj.weight")]
    ours = {
        rule.theirs.removesuffix(".weight"): rule.ours[0].removesuffix(".weight")
        for rule in rules if all(isinstance(op, Transpose) for op in rule.ops)
    }  # fmt: skip
    modules = dict(model.named_modules())
    found = {}
    for theirs, path in ours.items():
        taps = _taps(path, opened.record)
        if taps and theirs in modules:
            found[theirs] = taps
    return found


def _taps(path: str, record: spec.Model) -> Taps:
    where = re.fullmatch(r"(.*?)blocks\.(\d+)\.(attn|cross|ffn)\.(\w+)_proj", path)
    if where is None:
        return {}
    block = spec.stacks(record)[where[1]].blocks[int(where[2])]
    part = next(branch.part for branch in block.branches if branch.name == where[3])
    at, last = path.rpartition(".")[0], where[4]
    plain: Shape = lambda x: x
    if isinstance(part, (spec.MultiHead, spec.Cross)):
        n = spec.sizes(part, record.d_model)
        apart = {"q": n.n_heads, "k": n.n_kv_heads, "v": n.n_kv_heads, "o": n.n_heads}

        def heads(x: Tensor) -> Tensor:
            return x.unflatten(-1, (apart[last], -1)).transpose(1, 2)

        gated = isinstance(part, spec.MultiHead) and part.output_gate != "none"
        changed = isinstance(part, spec.MultiHead) and part.clip != "none"
        normed = last in ("q", "k") and isinstance(part.qk_norm, spec.QKNorm)
        if last == "o":
            return {"output": (f"{at}.out", plain)} | ({} if gated else {"input": (f"{at}.z", heads)})
        taps: Taps = {} if changed or normed else {"output": (f"{at}.{last}", heads)}
        return taps | ({"input": (f"{at}.in", plain)} if last == "q" else {})
    if isinstance(part, (spec.Dense, spec.Gated)):
        first = "gate" if isinstance(part, spec.Gated) else "up"
        if last == "down":
            return {"input": (f"{at}.hidden", plain), "output": (f"{at}.out", plain)}
        clamped = isinstance(part, spec.Gated) and part.clamp != "none"
        if last == first:
            return {"input": (f"{at}.in", plain)} | ({} if clamped else {"output": (f"{at}.pre", plain)})
    return {}


def _keeper(kept: dict[str, Tensor], taps: Taps, n_rows: int) -> Callable[..., None]:
    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        for side, x in (("input", inputs[0]), ("output", output)):
            if side in taps:
                name, shape = taps[side]
                x = x.unflatten(0, (n_rows, -1)) if x.dim() == 2 else x  # some lay rows end to end
                kept[name] = shape(x.detach().clone())  # some add to it in place

    return keep


def _place(name: str) -> tuple[int, int, int, int]:
    """Encoder before decoder before head, block by block, each in the order of its taps."""
    path, _, tap = name.rpartition(".")
    layer = re.search(r"blocks\.(\d+)(?:\.(\w+))?", path)
    stack = 2 if path == "head" else int(name.startswith("decoder."))
    if layer is None:
        return stack, 1 << 30, 0, 0
    return stack, int(layer[1]), BRANCHES.index(layer[2] or "") if layer[2] else -1, TAPS.index(tap)

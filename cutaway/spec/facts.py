"""What a spec says, aspect by aspect in plain words; two specs are compared by it."""

from __future__ import annotations

from typing import Any, NamedTuple

from cutaway.spec import words
from cutaway.spec.block import Block, Branch, Stage
from cutaway.spec.compare import differences, spans
from cutaway.spec.model import EncoderDecoder, Model, stacks
from cutaway.spec.norms import NoNorm

KINDS = {
    "decoder": "decoder-only", "prefix": "one stack that sees all of a prefix", "encoder": "encoder",
    "image_encoder": "encoder of images", "encoder_decoder": "encoder and decoder",
}  # fmt: skip
PARTS = {"attn": "attention", "cross": "cross-attention", "ffn": "feed-forward"}
PLACES = {"norm": "before {}", "norm_in": "before {}", "norm_out": "after {}", "norm_sum": "on the sum after {}"}
EVERY = {"norm": "each stage", "norm_in": "each part", "norm_out": "each part", "norm_sum": "each stage"}


class Difference(NamedTuple):
    """One aspect in which two specs differ, and what each says."""

    aspect: str
    first: str
    second: str


def compared(first: Model, second: Model) -> list[Difference]:
    """What differs, in words; where only digits beyond those said differ, the fields themselves. Names are not told.

    >>> from cutaway.spec.presets import preset
    >>> compared(preset("gpt2"), preset("gpt2-medium"))[0]
    Difference(aspect='width', first='768', second='1,024')
    """
    said = facts(first), facts(second)
    aspects = [*said[0], *(aspect for aspect in said[1] if aspect not in said[0])]
    pairs = [(aspect, *(each.get(aspect, "") or "none" for each in said)) for aspect in aspects]
    found = [Difference(*pair) for pair in pairs if pair[1] != pair[2]]
    return found or [Difference(path, str(a), str(b)) for path, a, b in differences(first, second, tolerance=0.0)]


def facts(spec: Model) -> dict[str, str]:
    """Every aspect of a spec; what is not there is ''."""
    out = {"model": KINDS[spec.kind], "width": words.number(spec.d_model)}
    if isinstance(spec, EncoderDecoder):
        out["tables"] = "one for both sides" if spec.shared_embedding else "one for each side"
    for prefix, stack in stacks(spec).items():
        side = prefix.replace(".", ": ")
        out |= {f"{side}{aspect}": said for aspect, said in _stack(stack, spec.d_model).items()}
    rates = [f"{name} {words.number(rate)}" for name, rate in spec.dropout if rate]
    out |= {"head": words.head(spec.head), "dropout in training": ", ".join(rates)}
    return out | {"generation": words.listed(spec.generation)}


def block_facts(block: Block, d_model: int) -> dict[str, str]:
    """Every aspect of a layer."""
    out: dict[str, str] = {}
    for branch in block.branches:
        if branch.name == "ffn":
            out["feed-forward"] = words.feed_forward(branch.part)
        else:
            said = words.attention(branch.part, d_model)
            out |= {f"{PARTS[branch.name]} {aspect}": text for aspect, text in said.items()}
    out["order"] = ", then ".join(_named(stage, " beside ") for stage in block.stages)
    residuals = [(_named(stage), words.residual(stage.residual)) for stage in block.stages]
    return out | _norms(block) | {"residual": _alike(residuals)}


def by_layer(said: list[str]) -> str:
    """What each layer says: once where all agree, else with the layers; of most layers last, as the others."""
    where: dict[str, list[int]] = {}
    for index, text in enumerate(said):
        where.setdefault(text or "none", []).append(index)
    if len(where) == 1:
        return said[0]
    *few, most = sorted(where, key=lambda text: len(where[text]))
    told = [f"{text} in layer{'s' * (len(where[text]) > 1)} {spans(where[text])}" for text in few]
    return "; ".join([*told, f"{most} in the others"])


def _stack(stack: Any, d_model: int) -> dict[str, str]:
    context = stack.context_length
    out = {
        "layers": str(len(stack.blocks)), "vocabulary": words.number(stack.vocab_size) if stack.vocab_size else "",
        "context": context if isinstance(context, str) else words.number(context),
        **words.embedding(stack.embedding, d_model),
    }  # fmt: skip
    layers = [block_facts(block, d_model) for block in stack.blocks]
    aspects = dict.fromkeys(aspect for layer in layers for aspect in layer)
    out |= {aspect: by_layer([layer.get(aspect, "") for layer in layers]) for aspect in aspects}
    relative = out.pop("attention positions", "")
    out["positions"] = " and ".join(filter(None, (out["positions"], relative)))
    return out | {"final norm": words.norm(stack.final_norm)}


def _norms(block: Block) -> dict[str, str]:
    """Which norms a layer has, and where."""
    found = [
        (place, _named(stage) if place in ("norm", "norm_sum") else PARTS[branch.name], words.norm(record))
        for stage in block.stages
        for branch, place, record in _placed(stage)
    ]
    kinds = dict.fromkeys(kind for _, _, kind in found)
    each = [frozenset(place for _, place, _ in _placed(stage)) for stage in block.stages]
    everywhere = len(set(each)) == 1 and all(len(_placed(stage)) == _full(stage, each[0]) for stage in block.stages)
    spelled = [f"{PLACES[place].format(target)}" for place, target, _ in found]
    if everywhere:
        spelled = [PLACES[place].format(EVERY[place]) for place in PLACES if place in each[0]]
    alone = next(iter(kinds), "none") if len(kinds) < 2 else ""
    split = "; ".join(f"{kind} {PLACES[place].format(target)}" for place, target, kind in found)
    return {"norm": alone or split, "norm placement": " and ".join(spelled) or "nowhere"}


def _placed(stage: Stage) -> list[tuple[Branch, str, Any]]:
    """The norms of a stage that are there: the branch they belong to, the place, the record."""
    own = [(stage.branches[0], place, getattr(stage, place)) for place in ("norm", "norm_sum")]
    inner = [(branch, place, getattr(branch, place)) for branch in stage.branches for place in ("norm_in", "norm_out")]
    return [each for each in own + inner if not isinstance(each[2], NoNorm)]


def _full(stage: Stage, places: frozenset[str]) -> int:
    """How many norms a stage has that has all its branches normed at these places."""
    return sum(1 if place in ("norm", "norm_sum") else len(stage.branches) for place in places)


def _named(stage: Stage, between: str = " and ") -> str:
    return between.join(PARTS[branch.name] for branch in stage.branches)


def _alike(said: list[tuple[str, str]]) -> str:
    """The one text, or each with its label."""
    if len({text for _, text in said}) == 1:
        return said[0][1]
    return "; ".join(f"{label}: {text}" for label, text in said)

"""What can be removed from a model: one table of names, each with what the spec says in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from cutaway import spec
from cutaway.errors import InputError
from cutaway.tap import matcher

Path = tuple[str | int, ...]

WITHOUT = {
    "positions": "nothing is added for them, nothing is turned, no bias joins the scores",
    "mask": "every position sees all; padding stays hidden",
    "layer": "x passes the whole block",
    "attn": "the branch gives 0, so x passes",
    "cross": "the branch gives 0, so x passes",
    "ffn": "the branch gives 0, so x passes",
    "residual": "the stream becomes what its branches give",
    "norm_in": "the identity, gain and shift gone with it",
    "norm_out": "the identity, gain and shift gone with it",
    "norm": "the identity, gain and shift gone with it; as a word, all norms of the blocks",
    "norm_sum": "the identity, gain and shift gone with it",
    "final_norm": "the identity, gain and shift gone with it",
    "qk_norm": "queries and keys stay as projected",
    "q_norm": "the latent of the queries stays as projected",
    "kv_norm": "the latent of keys and values stays as projected",
    "scale": "scores are not divided by sqrt(head_dim)",
    "clip": "queries, keys and values are not cut off",
    "soft_cap": "scores, or logits, are not capped",
    "sinks": "no learned logit joins the softmax",
    "output_gate": "z is not multiplied by a gate",
    "gate": "hidden = value: the gate is replaced by 1",
    "shared": "no expert that every token passes",
    "head": "a head's output is 0",
    "neuron": "a neuron's output is 0",
    "expert": "never routed to; the others are weighed as the router does",
    "embedding_factor": "the embedding's factor is 1",
}
"""The last word of each name, and what is left without such a part."""

ANY_NORM = ("norm", "norm_in", "norm_out", "norm_sum")
COUNTED = re.compile(r"((?:.*\.)?(?:head|neuron|expert))s?(\.\d+|\.\*|\[[^\]]*\])")


@dataclass(frozen=True)
class Knob:
    """A part: its name, and the records that stand in its place, by path in the spec with its repeats written out.

    Of `n` alike parts (heads, neurons, experts) each is one to remove: `weight` tells them apart, `width` columns each.
    """

    name: str
    puts: tuple[tuple[Path, Any], ...] = ()
    n: int = 0
    weight: str = ""
    width: int = 1

    @property
    def word(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Chosen:
    """A part to remove, and which of its n alike ones."""

    knob: Knob
    which: tuple[int, ...] = ()

    @property
    def names(self) -> list[str]:
        return [f"{self.knob.name}.{i}" for i in self.which] if self.knob.n else [self.knob.name]


def knobs(record: spec.Model) -> list[Knob]:
    """Every part of a model that can be removed, in running order. What is not there has no name.

    >>> from cutaway import preset
    >>> [knob.name for knob in knobs(preset("modern-tiny"))][:4]
    ['blocks.0.layer', 'blocks.0.attn', 'blocks.0.attn.norm_in', 'blocks.0.attn.positions']
    """
    found: list[Knob] = []
    for prefix, stack in spec.stacks(record).items():
        at: Path = (prefix.removesuffix("."),) if prefix else ()
        found += _embedding(stack.embedding, f"{prefix}embedding", (*at, "embedding"))
        for index, block in enumerate(stack.blocks):
            found += _block(block, f"{prefix}blocks.{index}", (*at, "layers", index), record.d_model)
        found += _replaced(f"{prefix}final_norm", (*at, "final_norm"), stack.final_norm, spec.NoNorm())
    head: Any = record.head
    if isinstance(head.transform, spec.Transform):
        found += _replaced("head.transform.norm", ("head", "transform", "norm"), head.transform.norm, spec.NoNorm())
    if isinstance(head, spec.LanguageHead):
        found += _replaced("head.soft_cap", ("head", "soft_cap"), head.soft_cap, "none")
    return found


def choose(record: spec.Model, words: tuple[str, ...]) -> list[Chosen]:
    """The parts that words mean: a name, a pattern of names, or the end of names, which means all of them.

    Raises InputError for a word that names no part of this model; it says which parts there are.
    """
    table = knobs(record)
    return [chosen for word in words for chosen in _choose(table, word)]


def listed(record: spec.Model) -> dict[str, list[str]]:
    """The words of a model's parts, each with the names that it means."""
    out: dict[str, list[str]] = {}
    for knob in knobs(record):
        last = f"{knob.name}[0:{knob.n}]" if knob.n else knob.name
        out.setdefault(knob.word, []).append(last)
    return out


def _choose(table: list[Knob], word: str) -> Iterator[Chosen]:
    counted = COUNTED.fullmatch(word)
    base, index = (counted[1], counted[2]) if counted else (re.sub(r"\b(head|neuron|expert)s$", r"\1", word), "")
    found = [knob for knob in _named(table, base) if knob.n or not index]
    if not found:
        raise InputError(f"remove: {_unknown(table, word)}")
    for knob in found:
        if not knob.n:
            yield Chosen(knob)
            continue
        parts = [f"part.{i}" for i in range(knob.n)]
        test = matcher([f"part{index or '.*'}"], parts)
        which = tuple(i for i, part in enumerate(parts) if test(part))
        if not which:
            raise InputError(f"remove: {word}: {knob.name} counts from 0 to {knob.n - 1}")
        yield Chosen(knob, which)


def _named(table: list[Knob], word: str) -> list[Knob]:
    """Knobs of exactly this name or pattern, else whose names end so, else also with the places between left out."""
    if re.search(r"(^|\.)blocks(\.\d+|\.\*|\[[^\]]*\])$", word):
        word += ".layer"
    paths = [knob.name.removesuffix(".layer") for knob in table if knob.word == "layer"]
    within = re.sub(r"^((?:.*\.)?blocks(?:\.[^.\[]+|\[[^\]]*\])|encoder|decoder)\.", r"\1.*.", word)
    for pattern in (word, f"*.{word}", within, f"*.{within}"):
        test = matcher([pattern], paths)
        found = [knob for knob in table if test(knob.name)]
        if word == "norm" or (not found and word.endswith(".norm")):
            found = [knob for knob in table if knob.word in ANY_NORM and _under(knob.name, pattern, paths)]
        if found:
            return found
    return []


def _under(name: str, pattern: str, paths: list[str]) -> bool:
    """Whether a norm of a block is meant by a pattern that ends in `norm`."""
    above = name.rpartition(".")[0]
    return "blocks." in name and matcher([pattern], paths)(f"{above}.norm")


def _unknown(table: list[Knob], word: str) -> str:
    names, words = [knob.name for knob in table], list(dict.fromkeys(knob.word for knob in table))
    layers = [knob for knob in table if knob.word == "layer"]
    if (at := re.match(r"blocks\.(\d+)(?:\.|$)", word)) and int(at[1]) >= len(layers) > 0:
        return f"{word}: the model has layers 0 to {len(layers) - 1}"
    at = re.search(r"\bblocks(\.[^.\[]+|\[[^\]]*\])\.", word)
    alike = [re.sub(r"\bblocks\.\d+\.", lambda _: at[0] if at else "", name) for name in names]
    if word in alike:
        return f"{word}: the model has that part in other layers, and in none of these; `--remove help` lists them"
    near = get_close_matches(word, [*words, *names, *alike], n=1, cutoff=0.75)
    meant = f"did you mean {near[0]}? It" if near else "it"
    return f"{word}: the model has no such part; {meant} has {', '.join(words)}, and `blocks.0.ffn` names one layer's"


def _replaced(name: str, path: Path, now: object, then: object) -> list[Knob]:
    return [] if now == then else [Knob(name, ((path, then),))]


def _embedding(record: spec.TokenEmbedding | spec.PatchEmbedding, name: str, at: Path) -> list[Knob]:
    factor = record.factor if isinstance(record, spec.TokenEmbedding) else 1.0
    return [
        *_replaced(f"{name}_factor", (*at, "factor"), factor, 1.0),
        *_replaced(f"{name}.positions", (*at, "positions"), record.positions, spec.NoPositions()),
        *_replaced(f"{name}.norm", (*at, "norm"), record.norm, spec.NoNorm()),
    ]


def _block(block: spec.Block, name: str, at: Path, d_model: int) -> Iterator[Knob]:
    gone = tuple(spec.Stage(branches=tuple(_gone(b) for b in stage.branches)) for stage in block.stages)
    yield Knob(f"{name}.layer", ((at, spec.Block(stages=gone)),))
    for index, stage in enumerate(block.stages):
        here = (*at, "stages", index)
        for number, branch in enumerate(stage.branches):
            yield from _branch(branch, f"{name}.{branch.name}", (*here, "branches", number), d_model)
        first = f"{name}.{stage.branches[0].name}"
        yield from _replaced(f"{first}.norm", (*here, "norm"), stage.norm, spec.NoNorm())
        yield from _replaced(f"{first}.norm_sum", (*here, "norm_sum"), stage.norm_sum, spec.NoNorm())
        yield from _replaced(f"{first}.residual", (*here, "residual"), stage.residual, spec.NoResidual())


def _gone(branch: spec.Branch) -> spec.Branch:
    nothing = {"attn": spec.NoAttention(), "cross": spec.NoCross(), "ffn": spec.NoFeedForward()}
    return spec.Branch(part=nothing[branch.name])


def _branch(branch: spec.Branch, name: str, at: Path, d_model: int) -> Iterator[Knob]:
    if branch.part == _gone(branch).part:
        return
    yield Knob(name, ((at, _gone(branch)),))
    yield from _replaced(f"{name}.norm_in", (*at, "norm_in"), branch.norm_in, spec.NoNorm())
    yield from _replaced(f"{name}.norm_out", (*at, "norm_out"), branch.norm_out, spec.NoNorm())
    match branch.part:
        case spec.MultiHead() | spec.Latent() | spec.Cross():
            yield from _attention(branch.part, name, (*at, "part"), d_model)
        case spec.MixtureOfExperts():
            yield from _mixture(branch.part, name, (*at, "part"))
        case spec.Dense() | spec.Gated():
            yield from _gate(name, ((*at, "part"), branch.part))
            yield Knob(f"{name}.neuron", n=branch.part.d_ff, weight=f"{name}.down_proj.weight")


def _attention(part: Any, name: str, at: Path, d_model: int) -> Iterator[Knob]:
    off: dict[str, Any] = {
        "positions": spec.NoPositions(), "mask": spec.FullMask(), "qk_norm": spec.NoQKNorm(), "q_norm": spec.NoNorm(),
        "kv_norm": spec.NoNorm(), "clip": "none", "soft_cap": "none", "sinks": False, "output_gate": "none",
    }  # fmt: skip
    for field, value in off.items():
        if field in type(part).model_fields and not (field == "q_norm" and part.q_rank == "none"):
            yield from _replaced(f"{name}.{field}", (*at, field), getattr(part, field), value)
    n = spec.sizes(part, d_model)
    if n.scale != 1.0:
        yield Knob(f"{name}.scale", (((*at, "scale"), 1.0),))
    yield Knob(f"{name}.head", n=n.n_heads, weight=f"{name}.o_proj.weight", width=n.value_dim)


def _mixture(part: spec.MixtureOfExperts, name: str, at: Path) -> Iterator[Knob]:
    networks = [((*at, "expert"), part.expert)]
    if isinstance(part.shared, spec.SharedExpert):
        networks.append(((*at, "shared", "expert"), part.shared.expert))
        yield Knob(f"{name}.shared", (((*at, "shared"), spec.NoSharedExpert()),))
        yield Knob(f"{name}.shared.neuron", n=part.shared.expert.d_ff, weight=f"{name}.shared.down_proj.weight")
    yield from _gate(name, *networks)
    choice = ((*at, "router", "choice_bias"), True)
    yield Knob(f"{name}.expert", (choice,), n=part.n_experts, weight=f"{name}.router.choice_bias")
    for e in range(part.n_experts):
        yield Knob(f"{name}.experts.{e}.neuron", n=part.expert.d_ff, weight=f"{name}.experts.{e}.down_proj.weight")


def _gate(name: str, *networks: tuple[Path, spec.Dense | spec.Gated]) -> Iterator[Knob]:
    puts: list[tuple[Path, Any]] = []
    for at, network in networks:
        if isinstance(network, spec.Gated) and network.activation != "removed":
            puts += [((*at, "activation"), "removed"), ((*at, "alpha"), 1.0)]
    if puts:
        yield Knob(f"{name}.gate", tuple(puts))

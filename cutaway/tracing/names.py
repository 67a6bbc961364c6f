"""What each tap is: one glossary for all models, and the names that users of other tools know them by.

A tap's full name is the path of its module and its own: `blocks.3.attn.q`, `encoder.blocks.0.ffn.hidden`,
`blocks.1.ffn.experts.4.pre`, `final_norm.scale`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from cutaway import spec
from cutaway.errors import InputError

LETTERS = {
    "B": "rows of the batch",
    "T": "tokens that this step reads; of cross-attention's keys and values, those of the source",
    "S": "tokens that are looked at: this step's and those in the cache; in cross-attention the source",
    "D": "d_model; after a head's transform its width", "W": "width of the embedding", "N": "heads",
    "K": "heads of keys and values", "H": "numbers a head: head_dim, of v and z value_dim", "F": "d_ff",
    "M": "rows: tokens of the whole batch, in an expert those routed to it", "E": "experts",
    "A": "active experts a token", "R": "kv_rank", "P": "patches of an image", "C": "classes", "V": "vocabulary",
    "...": "the axes of what is normed", "1": "one number",
}  # fmt: skip


@dataclass(frozen=True)
class Tap:
    """`where`: the kind of module. `letters`: its axes (`LETTERS`). `when`: empty where every such module has it."""

    where: str
    name: str
    letters: str
    formula: str
    when: str = ""

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(self.letters.split())

    def axes_of(self, n: int) -> tuple[str, ...]:
        """Those of a tensor of n axes: B T or B N T before the width of what is normed, B of a head that pools."""
        if self.axes[0] != "..." and len(self.axes) == n:
            return self.axes
        return *{2: ("B",), 3: ("B", "T"), 4: ("B", "N", "T")}[n], self.axes[-1]

    @property
    def told(self) -> str:
        """The formula, and when it is there."""
        return f"{self.formula}, where {self.when}" if self.when else self.formula


GLOSSARY = (
    Tap("stack", "positions", "B T", "real tokens of the row before this one; to be seen, not changed"),
    Tap("stack", "embedded", "B T D", "what the first block reads"),
    Tap("stack", "final", "B T D", "final_norm(resid_post of the last block)"),
    Tap("embedding", "tokens", "B T W", "table[id]"),
    Tap("embedding", "patches", "B P D", "W patch + b", "the model reads images"),
    Tap("embedding", "position", "B T W", "what is added for the position", "positions are absolute"),
    Tap("block", "resid_pre", "B T D", "the stream before the block"),
    Tap("block", "resid.*", "B T D", "the stream after stage *"),
    Tap("block", "resid_mid", "B T D", "the stream between the two stages", "the block has two stages"),
    Tap("block", "resid_post", "B T D", "the stream after the block"),
    Tap("branch", "in", "B T D", "norm_in(norm(x)): what the part reads"),
    Tap("branch", "out", "B T D", "part(in)"),
    Tap("branch", "update", "B T D", "residual_scale * norm_out(out): what joins the stream"),
    Tap("attention", "q", "B N T H", "q_norm(W_q in), clipped, before rotation"),
    Tap("attention", "k", "B K T H", "k_norm(W_k in), clipped, before rotation", "the layer has keys of its own"),
    Tap("attention", "v", "B K T H", "W_v in, clipped", "the layer has values of its own"),
    Tap("attention", "q_rot", "B N T H", "q turned by its position", "it is self-attention"),
    Tap("attention", "k_rot", "B K T H", "k turned by its position", "self-attention has keys of its own"),
    Tap("attention", "scores", "B N T S", "scale * q_rot k_rot^T, capped, biased, -inf where hidden"),
    Tap("attention", "pattern", "B N T S", "softmax(scores): the weights of a query sum to 1, less what sinks take"),
    Tap("attention", "z", "B N T H", "pattern v: a head's output before o_proj"),
    Tap("attention", "gate", "B N T 1", "sigmoid(W_gate in), multiplies z", "the output is gated per head"),
    Tap("attention gated by element", "gate", "B N T H", "sigmoid(W_gate in), multiplies z",
        "the output is gated per element"),
    Tap("latent attention", "latent", "B T R", "kv_norm(W_down in): what the cache keeps"),
    Tap("latent attention", "k_rot", "B N S H", "W_up latent beside the one rotated key, of all that is read"),
    Tap("latent attention", "v", "B N S H", "W_up latent, of all that is read"),
    Tap("ffn", "pre", "B T F", "W_up in; gated: W_gate in, clamped"),
    Tap("ffn", "gate", "B T F", "activation(pre)", "the network is gated"),
    Tap("ffn", "hidden", "B T F", "activation(pre); gated: gate * (W_up in): a neuron's output before down_proj"),
    Tap("expert", "pre", "M F", "as in a feed-forward network, of the rows routed to it"),
    Tap("expert", "gate", "M F", "activation(pre)", "the network is gated"),
    Tap("expert", "hidden", "M F", "a neuron's output before down_proj"),
    Tap("router", "logits", "M E", "W x + b, a row a token"),
    Tap("router", "ranked", "M E", "what experts are chosen by: scores, or logits, + choice_bias"),
    Tap("router", "weights", "M A", "of the chosen experts"),
    Tap("norm", "scale", "... 1", "sqrt(mean(x^2) + eps); LayerNorm: of x less its mean"),
    Tap("norm", "normed", "... D", "x / scale, before gain and shift"),
    Tap("head", "logits", "B T V", "of each token of the vocabulary"),
    Tap("head of classes", "pooled", "B D", "one state a row"),
    Tap("head of classes", "logits", "B C", "of each class"),
    Tap("head of classes a token", "pooled", "B T D", "the states: nothing is pooled"),
    Tap("head of classes a token", "logits", "B T C", "of each class"),
    Tap("head of vectors", "pooled", "B D", "pooler(the first state)", "the head has a pooler"),
    Tap("head of vectors", "vectors", "B D", "one state a row, of length 1 where the spec says so"),
    Tap("head of vectors a token", "vectors", "B T D", "the states, of length 1 where the spec says so"),
)  # fmt: skip
"""A name that a kind of module has no entry of is that of the plainer kind: latent attention's `q` is attention's."""

KINDS = {entry.where for entry in GLOSSARY}
NORMS = ("norm_in", "norm_out", "norm", "norm_sum", "final_norm", "q_norm", "k_norm", "kv_norm")

TRANSFORMER_LENS = (
    ("hook_embed", "embedding.tokens"), ("hook_pos_embed", "embedding.position"),
    ("blocks{L}.hook_resid_pre", "blocks{L}.resid_pre"), ("blocks{L}.hook_resid_mid", "blocks{L}.resid_mid"),
    ("blocks{L}.hook_resid_post", "blocks{L}.resid_post"), ("blocks{L}.hook_attn_out", "blocks{L}.attn.update"),
    ("blocks{L}.hook_mlp_out", "blocks{L}.ffn.update"), ("blocks{L}.attn.hook_q", "blocks{L}.attn.q"),
    ("blocks{L}.attn.hook_k", "blocks{L}.attn.k"), ("blocks{L}.attn.hook_v", "blocks{L}.attn.v"),
    ("blocks{L}.attn.hook_rot_q", "blocks{L}.attn.q_rot"), ("blocks{L}.attn.hook_rot_k", "blocks{L}.attn.k_rot"),
    ("blocks{L}.attn.hook_attn_scores", "blocks{L}.attn.scores"),
    ("blocks{L}.attn.hook_pattern", "blocks{L}.attn.pattern"), ("blocks{L}.attn.hook_z", "blocks{L}.attn.z"),
    ("blocks{L}.mlp.hook_pre", "blocks{L}.ffn.pre"), ("blocks{L}.mlp.hook_post", "blocks{L}.ffn.hidden"),
    ("blocks{L}.mlp.hook_expert_weights", "blocks{L}.ffn.router.weights"),
    ("blocks{L}.ln1.hook_scale", "blocks{L}.attn.norm_in.scale"),
    ("blocks{L}.ln1.hook_normalized", "blocks{L}.attn.norm_in.normed"),
    ("blocks{L}.ln2.hook_scale", "blocks{L}.ffn.norm_in.scale"),
    ("blocks{L}.ln2.hook_normalized", "blocks{L}.ffn.norm_in.normed"),
    ("ln_final.hook_scale", "final_norm.scale"), ("ln_final.hook_normalized", "final_norm.normed"),
    ("encoder{L}.hook_resid_mid", "encoder.blocks{L}.resid_mid"),
    ("encoder{L}.ln2.hook_scale", "encoder.blocks{L}.ffn.norm_in.scale"),
    ("decoder{L}.hook_resid_mid", "decoder.blocks{L}.resid.0"),
    ("decoder{L}.hook_resid_mid_cross", "decoder.blocks{L}.resid.1"),
    ("decoder{L}.hook_cross_attn_out", "decoder.blocks{L}.cross.update"),
    ("decoder{L}.ln2.hook_scale", "decoder.blocks{L}.cross.norm_in.scale"),
    ("decoder{L}.ln3.hook_scale", "decoder.blocks{L}.ffn.norm_in.scale"),
)  # fmt: skip
"""TransformerLens' hooks, and ours. `{L}`: a layer, `.3`, `.*` or `[2:5]`."""

HUGGING_FACE = (
    ("hidden_states{I}", "blocks{L}.resid_pre"), ("encoder_hidden_states{I}", "encoder.blocks{L}.resid_pre"),
    ("decoder_hidden_states{I}", "decoder.blocks{L}.resid_pre"), ("attentions{I}", "blocks{L}.attn.pattern"),
    ("encoder_attentions{I}", "encoder.blocks{L}.attn.pattern"),
    ("decoder_attentions{I}", "decoder.blocks{L}.attn.pattern"),
    ("cross_attentions{I}", "decoder.blocks{L}.cross.pattern"), ("router_logits{I}", "blocks{L}.ffn.router.logits"),
    ("hidden_states[-1]", "final"), ("last_hidden_state", "final"), ("encoder_last_hidden_state", "encoder.final"),
    ("logits", "head.logits"), ("lm_head", "head.logits"), ("pooler_output", "head.pooled"),
    ("model.embed_tokens", "embedding.tokens"), ("transformer.wte", "embedding.tokens"),
    ("model.layers{L}", "blocks{L}.resid_post"), ("transformer.h{L}", "blocks{L}.resid_post"),
    ("model.layers{L}.input_layernorm", "blocks{L}.attn.in"), ("transformer.h{L}.ln_1", "blocks{L}.attn.in"),
    ("model.layers{L}.self_attn", "blocks{L}.attn.out"), ("transformer.h{L}.attn", "blocks{L}.attn.out"),
    ("model.layers{L}.mlp", "blocks{L}.ffn.out"), ("transformer.h{L}.mlp", "blocks{L}.ffn.out"),
    ("model.norm", "final"), ("transformer.ln_f", "final"),
)  # fmt: skip
"""Hugging Face's outputs and the outputs of its modules, and ours. `{I}` is written as an index: `[3]`."""


def _of_two_stacks(theirs: str, ours: str) -> list[tuple[str, str]]:
    """The hooks of a block in both stacks of an encoder-decoder, and those of its attention in the cross-attention."""
    pairs = [(theirs.replace("blocks", side), f"{side}.{ours}") for side in ("encoder", "decoder")]
    if ".attn.hook_" in theirs and "rot" not in theirs:
        cross = theirs.replace("blocks", "decoder").replace(".attn.", ".cross_attn.")
        pairs.append((cross, f"decoder.{ours}".replace(".attn.", ".cross.")))
    return pairs


_SHARED = [
    pair for theirs, form in TRANSFORMER_LENS
    if theirs.startswith("blocks{L}") and ".ln2." not in theirs and "_mid" not in theirs
    for pair in _of_two_stacks(theirs, form)
]  # fmt: skip
TOOLS = {"TransformerLens": (*TRANSFORMER_LENS, *_SHARED), "Hugging Face": HUGGING_FACE}
LAYER = r"(\.(?:\d+|\*)|\[[^\]]*\])"
_FORMS = [
    (re.compile(re.escape(theirs).replace(r"\{L\}", LAYER).replace(r"\{I\}", LAYER)), theirs, form)
    for pairs in TOOLS.values() for theirs, form in pairs
]  # fmt: skip


@lru_cache(4096)  # a recording of a hundred names asks for each of them, each time
def ours(name: str) -> str:
    """Our name, or pattern of names, for one that TransformerLens or Hugging Face users know; others stay.

    Hugging Face counts one hidden state more than there are blocks, the last after the final norm, and so do negative
    indices here. Raises InputError for a range of hidden states that runs to that last one.

    >>> ours("blocks.3.attn.hook_pattern"), ours("hidden_states[2:4]"), ours("blocks.0.attn.q")
    ('blocks.3.attn.pattern', 'blocks[2:4].resid_pre', 'blocks.0.attn.q')
    >>> ours("hidden_states[-1]"), ours("hidden_states[-2]")
    ('final', 'blocks[-1].resid_pre')
    """
    for pattern, theirs, form in _FORMS:
        found = pattern.fullmatch(name)
        if found is None:
            continue
        if "hidden_states" not in theirs or "{I}" not in theirs:
            return form.replace("{L}", found[1] if found.groups() else "")
        layer = _without_the_last(name, found[1])
        return form.replace("{L}", layer) if layer else form.replace("blocks{L}.resid_pre", "final")
    return name


def _without_the_last(name: str, layer: str) -> str:
    """The layers of hidden states, as an index or a range of blocks; empty for the last one."""
    words = [word.strip() for word in layer.strip("[].").split(":")]
    if not all(re.fullmatch("-?[0-9]+", word) or (len(words) > 1 and not word) for word in words):
        return layer  # no number: the matcher says so
    if words == ["-1"]:
        return ""
    if len(words) > 1 and (not words[1] or words[0] == "-1"):
        raise InputError(f"{name}: it runs to the state after the final norm, which is `final`; end it, as [2:-1]")
    ends = ["" if word == "-1" else str(int(word) + 1) if word[:1] == "-" else word for word in words[:2]]
    return f"[{':'.join([*ends, *words[2:]])}]" if layer[0] == "[" else layer


def aliases(name: str) -> dict[str, list[str]]:
    """What others call a tap, by tool; of a pattern for all layers, with `*` or `i` for the layer.

    >>> aliases("blocks.3.resid_pre")
    {'TransformerLens': ['blocks.3.hook_resid_pre'], 'Hugging Face': ['hidden_states[3]']}
    >>> aliases("blocks.*.attn.scores")
    {'TransformerLens': ['blocks.*.attn.hook_attn_scores']}
    """
    out: dict[str, list[str]] = {}
    for tool, pairs in TOOLS.items():
        for theirs, form in pairs:
            found = re.fullmatch(re.escape(form).replace(r"\{L\}", LAYER), name)
            if found is not None:
                layer = found[1] if found.groups() else ""
                index = f"[{layer[1:].replace('*', 'i')}]"
                out.setdefault(tool, []).append(theirs.replace("{L}", layer).replace("{I}", index))
    return out


def describe(name: str, record: spec.Model | None = None) -> Tap:
    """The glossary's entry of a full name, with a spec that of its kind of part; InputError where no part has it.

    >>> describe("decoder.blocks.2.cross.pattern").letters
    'B N T S'
    """
    path, _, tap = name.rpartition(".")
    if tap.isdigit():
        path, tap = path.rpartition(".")[0], "resid.*"
    kinds = _where(path, record)
    for where in kinds if kinds[0] in KINDS else ("stack",):  # a model may be a part of another module
        for entry in GLOSSARY:
            if entry.name == tap and entry.where == where:
                return entry
    raise InputError(f"{name}: there is no such tap; `cutaway taps MODEL` lists those of a model")


def missing(asked: str, paths: Iterable[str]) -> str:
    """What to say of a name or pattern that no tap of a model with modules at `paths` answers to.

    >>> missing("blocks.3.attn.querry", ["blocks.0.attn"])
    'blocks.3.attn.querry: no tap of the model has that name; the nearest is blocks.3.attn.q'
    """
    name = ours(asked)
    layers = re.search(r"\bblocks(\.[^.\[]+|\[[^\]]*\])\.", name)
    known = {
        re.sub(r"\bblocks\.\d+\.", lambda _: layers[0] if layers else "blocks.*.", f"{path}.{entry.name}".lstrip("."))
        for path in paths
        for entry in GLOSSARY
        if entry.where in _where(path, None)
    }
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    where = "`cutaway taps` lists " + ("where it is" if name in known else "them")
    hint = f"the nearest is {near[0]}" if near and name not in known else where
    return f"{asked}: no tap of the model has that name; {hint}"


def kind_of(name: str) -> str:
    """A name without the number of its layer: a pattern that all layers' taps of the kind match.

    >>> kind_of("blocks.3.attn.q"), kind_of("decoder.blocks.0.ffn.experts.4.pre"), kind_of("final")
    ('*.attn.q', 'decoder.*.ffn.experts.*.pre', 'final')
    """
    return re.sub(r"\bblocks\.\d+\.", "*.", re.sub(r"\bexperts\.\d+\.", "experts.*.", name))


def _where(path: str, record: spec.Model | None) -> tuple[str, ...]:
    """The kinds of the module at a path, the closest first."""
    last = path.rpartition(".")[2]
    if path in ("", "encoder", "decoder"):
        return ("stack",)
    if last in NORMS:
        return ("norm",)
    if re.search(r"(^|\.)blocks\.\d+$", path):
        return ("block",)
    if re.search(r"\.ffn\.experts\.\d+$", path):
        return ("expert",)
    if last == "head":
        return _head(record)
    if last == "attn":
        return _attention(path, record)
    return {"cross": ("branch", "attention"), "ffn": ("branch", "ffn"), "shared": ("ffn",)}.get(last, (last,))


def _head(record: spec.Model | None) -> tuple[str, ...]:
    if record is None:
        return ("head", "head of classes", "head of vectors")
    if isinstance(record.head, (spec.LanguageHead, spec.MaskedHead)):
        return ("head",)
    kind = "head of classes" if isinstance(record.head, spec.ClassHead) else "head of vectors"
    return (f"{kind} a token", kind) if record.head.pool == "none" else (kind,)


def _attention(path: str, record: spec.Model | None) -> tuple[str, ...]:
    plain = ("branch", "attention")
    if record is None:
        return (*plain, "latent attention")
    stack, _, layer = path.removesuffix(".attn").rpartition("blocks.")
    part = next(each.part for each in spec.stacks(record)[stack].blocks[int(layer)].branches if each.name == "attn")
    if isinstance(part, spec.Latent):
        return ("latent attention", *plain)
    by_element = isinstance(part, spec.MultiHead) and part.output_gate == "per_element"
    return ("attention gated by element", *plain) if by_element else plain

"""What each tap is: one glossary for all models, and the names that users of other tools know them by.

A tap's full name is the path of its module and its own: `blocks.3.attn.q`, `encoder.blocks.0.ffn.hidden`,
`blocks.1.ffn.experts.4.pre`, `final_norm.scale`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cutaway.errors import InputError


@dataclass(frozen=True)
class Tap:
    """`where`: the module that has it. `letters`: B batch, T query, S key position, D d_model, W width of the
    embedding, N heads, K key/value heads, H head_dim, F d_ff, M rows routed to an expert, E experts, A active experts,
    R latent rank, C classes, V vocabulary. `when`: empty where every such module has it.
    """

    where: str
    name: str
    letters: str
    formula: str
    when: str = ""

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(self.letters.split())


GLOSSARY = (
    Tap("stack", "positions", "B T", "real tokens of the row before this one", "to be seen, not changed"),
    Tap("stack", "embedded", "B T D", "what the first block reads"),
    Tap("stack", "final", "B T D", "final_norm(resid_post of the last block)"),
    Tap("embedding", "tokens", "B T W", "table[id]"),
    Tap("embedding", "position", "B T W", "what is added for the position", "absolute positions"),
    Tap("block", "resid_pre", "B T D", "the stream before the block"),
    Tap("block", "resid.*", "B T D", "the stream after stage *"),
    Tap("block", "resid_mid", "B T D", "the stream between the two stages", "blocks of two stages"),
    Tap("block", "resid_post", "B T D", "the stream after the block"),
    Tap("branch", "in", "B T D", "norm_in(norm(x)): what the part reads"),
    Tap("branch", "out", "B T D", "part(in)"),
    Tap("branch", "update", "B T D", "residual_scale * norm_out(out): what joins the stream"),
    Tap("attention", "q", "B N T H", "q_norm(W_q in), clipped, before rotation"),
    Tap("attention", "k", "B K T H", "k_norm(W_k in), clipped, before rotation", "own keys; not latent attention"),
    Tap("attention", "v", "B K T H", "W_v in; of latent attention, of all that is read: B N S H", "own values"),
    Tap("attention", "q_rot", "B N T H", "q turned by its position", "self-attention"),
    Tap("attention", "k_rot", "B K T H", "k turned by its position; of latent attention, of all that is read: B N S H",
        "own keys of self-attention"),
    Tap("attention", "latent", "B T R", "kv_norm(W_down in)", "latent attention"),
    Tap("attention", "scores", "B N T S", "scale * q_rot k_rot^T, capped, biased, -inf where hidden"),
    Tap("attention", "pattern", "B N T S", "softmax(scores): the weights of a query sum to 1, less what sinks take"),
    Tap("attention", "z", "B N T H", "pattern v: a head's output before o_proj"),
    Tap("attention", "gate", "B N T 1", "sigmoid(W_gate in), multiplies z", "an output gate"),
    Tap("ffn", "pre", "B T F", "W_up in; gated: W_gate in, clamped"),
    Tap("ffn", "gate", "B T F", "activation(pre)", "gated"),
    Tap("ffn", "hidden", "B T F", "activation(pre); gated: gate * (W_up in): a neuron's output before down_proj"),
    Tap("router", "logits", "M E", "W x + b, a row a token"),
    Tap("router", "weights", "M A", "of the chosen experts"),
    Tap("norm", "scale", "... 1", "sqrt(mean(x^2) + eps); LayerNorm: of x less its mean"),
    Tap("norm", "normed", "... D", "x / scale, before gain and shift"),
    Tap("head", "pooled", "B D", "one state a row", "a head that pools"),
    Tap("head", "logits", "B T V", "of each token of the vocabulary; classes: B C", "a language model or classes"),
    Tap("head", "vectors", "B T D", "states, or one a row: B D", "an embedding model"),
)  # fmt: skip

NORMS = ("norm_in", "norm_out", "norm", "norm_sum", "final_norm", "q_norm", "k_norm", "kv_norm")

ALIASES = (
    (r"hook_embed", "embedding.tokens"),
    (r"hook_pos_embed", "embedding.position"),
    (r"blocks\.(\S+?)\.hook_(resid_pre|resid_mid|resid_post)", r"blocks.\1.\2"),
    (r"blocks\.(\S+?)\.hook_attn_out", r"blocks.\1.attn.update"),
    (r"blocks\.(\S+?)\.hook_mlp_out", r"blocks.\1.ffn.update"),
    (r"blocks\.(\S+?)\.attn\.hook_attn_scores", r"blocks.\1.attn.scores"),
    (r"blocks\.(\S+?)\.attn\.hook_rot_([qk])", r"blocks.\1.attn.\2_rot"),
    (r"blocks\.(\S+?)\.attn\.hook_(q|k|v|z|pattern)", r"blocks.\1.attn.\2"),
    (r"blocks\.(\S+?)\.mlp\.hook_pre", r"blocks.\1.ffn.pre"),
    (r"blocks\.(\S+?)\.mlp\.hook_post", r"blocks.\1.ffn.hidden"),
    (r"blocks\.(\S+?)\.ln1\.hook_(scale|normalized)", r"blocks.\1.attn.norm_in.\2"),
    (r"blocks\.(\S+?)\.ln2\.hook_(scale|normalized)", r"blocks.\1.ffn.norm_in.\2"),
    (r"ln_final\.hook_(scale|normalized)", r"final_norm.\1"),
    (r"(.*)\.normalized", r"\1.normed"),
    (r"hidden_states(\[[^\]]*\]|\.\S+)", r"blocks\1.resid_pre"),
    (r"attentions(\[[^\]]*\]|\.\S+)", r"blocks\1.attn.pattern"),
    (r"cross_attentions(\[[^\]]*\]|\.\S+)", r"decoder.blocks\1.cross.pattern"),
    (r"(?:model\.layers|transformer\.h)\.([^.]+)", r"blocks.\1.resid_post"),
    (r"(?:model\.layers|transformer\.h)\.([^.]+)\.(?:self_attn|attn)", r"blocks.\1.attn.out"),
    (r"(?:model\.layers|transformer\.h)\.([^.]+)\.mlp", r"blocks.\1.ffn.out"),
    (r"(?:model\.embed_tokens|transformer\.wte)", "embedding.tokens"),
    (r"(?:model\.norm|transformer\.ln_f)", "final"),
    (r"lm_head", "head.logits"),
)
"""Names of TransformerLens' hooks and of Hugging Face's modules and outputs, as patterns, to ours."""


def ours(name: str) -> str:
    """Our name, or pattern of names, for one that TransformerLens or Hugging Face users know; others stay.

    >>> ours("blocks.3.attn.hook_pattern"), ours("hidden_states[2:4]"), ours("blocks.0.attn.q")
    ('blocks.3.attn.pattern', 'blocks[2:4].resid_pre', 'blocks.0.attn.q')
    """
    for theirs, form in ALIASES:
        if re.fullmatch(theirs, name):
            name = re.sub(f"^(?:{theirs})$", form, name)
    return name


def describe(name: str) -> Tap:
    """The glossary's entry of a full name; raises InputError for a name that no part has.

    >>> describe("decoder.blocks.2.cross.pattern").letters
    'B N T S'
    """
    path, _, tap = name.rpartition(".")
    if tap.isdigit():
        path, tap = path.rpartition(".")[0], "resid.*"
    where = _where(path)
    for entry in GLOSSARY:
        if entry.name == tap and entry.where in where:
            return entry
    raise InputError(f"{name}: there is no such tap; `cutaway taps MODEL` lists those of a model")


def kind_of(name: str) -> str:
    """A name without the number of its layer: a pattern that all layers' taps of the kind match.

    >>> kind_of("blocks.3.attn.q"), kind_of("decoder.blocks.0.ffn.experts.4.pre"), kind_of("final")
    ('*.attn.q', 'decoder.*.ffn.experts.*.pre', 'final')
    """
    return re.sub(r"\bblocks\.\d+\.", "*.", re.sub(r"\bexperts\.\d+\.", "experts.*.", name))


def _where(path: str) -> tuple[str, ...]:
    last = path.rpartition(".")[2]
    if path in ("", "encoder", "decoder"):
        return ("stack",)
    if last in NORMS:
        return ("norm",)
    if re.search(r"(^|\.)blocks\.\d+$", path):
        return ("block",)
    known = {"attn": ("branch", "attention"), "cross": ("branch", "attention"), "ffn": ("branch", "ffn")}
    if last in known:
        return known[last]
    if re.search(r"\.ffn\.(experts\.\d+|shared)$", path):
        return ("ffn",)
    return (last,)  # embedding, head, router

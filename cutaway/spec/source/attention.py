"""Attention, written out: project, normalise, clip, rotate, score, mask, weigh, join."""

from __future__ import annotations

from dataclasses import dataclass

from cutaway.spec.attention import (
    CausalMask,
    ChunkedMask,
    Cross,
    FullMask,
    Latent,
    Mask,
    MultiHead,
    PrefixMask,
    QKNorm,
    Sizes,
    SlidingMask,
    TwoSidedMask,
    sizes,
)
from cutaway.spec.positions import ALiBi, RoPE, T5Buckets
from cutaway.spec.source.norms import norm
from cutaway.spec.source.positions import alibi, rotate
from cutaway.spec.source.writing import File, Part, linear, module, number, shape

AT = "at = torch.arange(T, device=x.device)"


@dataclass(frozen=True)
class Around:
    """What the branch adds to its part's class: norms as attributes, and the training's dropout of weights."""

    attributes: list[str]
    dropout: float


def multi_head(file: File, part: MultiHead, d_model: int, around: Around, lends: int | None) -> Part:
    """A layer that `lends` writes its keys and values into `kept`, from where a borrowing one reads them."""
    n, borrows = sizes(part, d_model), part.share_kv != "none"
    layer = part.share_kv if borrows else lends
    attributes = [f"self.q_proj = {linear(d_model, n.n_heads * n.head_dim, part.q_bias)}"]
    if not borrows:
        attributes += [f"self.k_proj = {linear(d_model, n.n_kv_heads * n.head_dim, part.k_bias)}"]
        attributes += [f"self.v_proj = {linear(d_model, n.n_kv_heads * n.value_dim, part.v_bias)}"]
    gate = {"none": 0, "per_head": 1, "per_element": n.value_dim}[part.output_gate]
    attributes += [f"self.gate_proj = {linear(d_model, n.n_heads * gate, bias=False)}"] if gate else []
    attributes += [f"self.o_proj = {linear(n.n_heads * n.value_dim, d_model, part.o_bias)}"]
    attributes += [f"self.sinks = nn.Parameter(torch.zeros({n.n_heads}))"] if part.sinks else []
    attributes += ["self.layer = layer"] if layer is not None else []
    names = ["q"] if borrows else ["q", "k"]
    norms, lines = _qk_norms(file, part, d_model, names)
    forward = ["B, T, _ = x.shape", *lines]
    clipped = names if borrows else [*names, "v"]
    if part.clip != "none":
        limit = number(part.clip)
        forward += [f"{name} = {name}.clamp(-{limit}, {limit})" for name in clipped]
    if isinstance(part.positions, RoPE):
        call = rotate(file, part.positions, n.head_dim)
        forward += [f"{', '.join(names)} = {', '.join(call.format(name) for name in names)}"]
    if borrows:
        forward += ["k, v = kept[self.layer]  # of an earlier layer"]
    elif lends is not None:
        forward += ["kept[self.layer] = k, v  # for later layers"]
    forward += _repeated(n, "T")
    forward += [*_scores(file, part, n.n_heads, "T", f"{n.head_dim}**0.5"), *_masked(part.mask)]
    forward += _weighed(n.n_heads, n.value_dim, part.sinks, around.dropout)
    if gate:
        forward += [f"gate = self.gate_proj(x).view(B, T, {n.n_heads}, {gate}).transpose(1, 2)"]
        forward += ["z = z * gate.sigmoid()"]
    forward += [f"return self.o_proj(z.transpose(1, 2).flatten(2)){shape('B', 'T', d_model)}"]
    takes = _takes(part) + (("kept",) if layer is not None else ())
    text = module(
        f"{_doc(part.mask)}: {_heads(n.n_heads, n.n_kv_heads, n.head_dim)}.", around.attributes + attributes + norms,
        forward, ", ".join(("x", *takes)), "layer" if layer is not None else "",
    )  # fmt: skip
    mark = file.define(text, "Attention", f"{part.mask.kind.title().replace('_', '')}Attention")
    return Part(f"{mark}({'' if layer is None else f'layer={layer}'})", takes)


def cross(file: File, part: Cross, d_model: int, around: Around) -> Part:
    """Queries of the decoder on the encoder's states."""
    n = sizes(part, d_model)
    attributes = [
        f"self.q_proj = {linear(d_model, n.n_heads * n.head_dim, part.q_bias)}",
        f"self.k_proj = {linear(d_model, n.n_kv_heads * n.head_dim, part.k_bias)}",
        f"self.v_proj = {linear(d_model, n.n_kv_heads * n.value_dim, part.v_bias)}",
        f"self.o_proj = {linear(n.n_heads * n.value_dim, d_model, part.o_bias)}",
    ]
    norms, lines = _qk_norms(file, part, d_model, ["q", "k"])
    forward = ["B, T, S = *x.shape[:2], memory.shape[1]", *lines]
    forward += _repeated(n, "S")
    forward += _scores(file, part, n.n_heads, "S", f"{n.head_dim}**0.5")
    forward += _weighed(n.n_heads, n.value_dim, False, around.dropout)
    forward += [f"return self.o_proj(z.transpose(1, 2).flatten(2)){shape('B', 'T', d_model)}"]
    doc = f"The encoder's states read by the decoder: {_heads(n.n_heads, n.n_kv_heads, n.head_dim)}."
    text = module(doc, around.attributes + attributes + norms, forward, "x, memory")
    return Part(f"{file.define(text, 'CrossAttention')}()", ("memory",))


def latent(file: File, part: Latent, d_model: int, around: Around) -> Part:
    """Keys and values rebuilt from one narrow latent a token."""
    width, n_heads, plain, turned = part.nope_dim + part.rope_dim, part.n_heads, part.nope_dim, part.rope_dim
    q_norm = None if part.q_rank == "none" else norm(file, part.q_norm, part.q_rank)
    kv_norm = norm(file, part.kv_norm, part.kv_rank)
    if part.q_rank == "none":
        attributes, q = [f"self.q_proj = {linear(d_model, n_heads * width, False)}"], "self.q_proj(x)"
    else:
        attributes = [f"self.q_down = {linear(d_model, part.q_rank, part.down_bias)}"]
        attributes += [f"self.q_norm = {q_norm}"] if q_norm else []
        attributes += [f"self.q_up = {linear(part.q_rank, n_heads * width, False)}"]
        q = "self.q_up(self.q_norm(self.q_down(x)))" if q_norm else "self.q_up(self.q_down(x))"
    attributes += [f"self.kv_down = {linear(d_model, part.kv_rank + turned, part.down_bias)}"]
    attributes += [f"self.kv_norm = {kv_norm}"] if kv_norm else []
    attributes += [
        f"self.kv_up = {linear(part.kv_rank, n_heads * (plain + part.value_dim), False)}",
        f"self.o_proj = {linear(n_heads * part.value_dim, d_model, part.o_bias)}",
    ]
    turn = rotate(file, part.positions, turned) if isinstance(part.positions, RoPE) else "{}"
    forward = [
        "B, T, _ = x.shape",
        f"q = {q}.view(B, T, {n_heads}, {width}).transpose(1, 2){shape('B', n_heads, 'T', width)}",
        *([f"plain, turned = q.split(({plain}, {turned}), -1)"] if turn != "{}" else []),
        *([f"q = torch.cat((plain, {turn.format('turned')}), -1)"] if turn != "{}" else []),
        f"latent, turned = self.kv_down(x).split(({part.kv_rank}, {turned}), -1)",
        f"kv = self.kv_up({'self.kv_norm(latent)' if kv_norm else 'latent'}).view(B, T, {n_heads}, -1)",
        f"k, v = kv.transpose(1, 2).split(({plain}, {part.value_dim}), -1)",
        f"turned = {turn.format('turned[:, None]')}  # B 1 T {turned}: one for all heads",
        f"k = torch.cat((k, turned.expand(-1, {n_heads}, -1, -1)), -1){shape('B', n_heads, 'T', width)}",
        *_scores(file, part, n_heads, "T", f"{width}**0.5"),
        *_masked(part.mask),
        *_weighed(n_heads, part.value_dim, False, around.dropout),
        f"return self.o_proj(z.transpose(1, 2).flatten(2)){shape('B', 'T', d_model)}",
    ]
    takes = _takes(part)
    doc = f"{_doc(part.mask)} over keys and values rebuilt from {part.kv_rank} numbers a token."
    text = module(doc, around.attributes + attributes, forward, ", ".join(("x", *takes)))
    return Part(f"{file.define(text, 'LatentAttention')}()", takes)


def _qk_norms(file: File, part: MultiHead | Cross, d_model: int, names: list[str]) -> tuple[list[str], list[str]]:
    """The norms of queries and keys as attributes, and the lines that make q, k and v, heads apart and normalised."""
    n, record = sizes(part, d_model), part.qk_norm
    heads = {"q": n.n_heads, "k": n.n_kv_heads, "v": n.n_kv_heads}
    source = {"q": "x"} | dict.fromkeys("kv", "memory" if isinstance(part, Cross) else "x")
    attributes, lines, after = [], [], []
    for name in [*names, "v"] if "k" in names else names:
        projected, width = f"self.{name}_proj({source[name]})", n.value_dim if name == "v" else n.head_dim
        length = "S" if source[name] == "memory" else "T"
        if isinstance(record, QKNorm) and name != "v":
            wide = record.over == "width"
            rows = heads[name] if record.gain == "per_head" and not wide else 0
            attributes += [f"self.{name}_norm = {norm(file, record.norm, width * (heads[name] if wide else 1), rows)}"]
            if wide:
                projected = f"self.{name}_norm({projected})"
            else:
                after += [f"{name} = self.{name}_norm({name})"]
        split = f"{name} = {projected}.view(B, {length}, {heads[name]}, {width}).transpose(1, 2)"
        lines += [split + shape("B", heads[name], length, width)]
    return attributes, lines + after


def _repeated(n: Sizes, keys: str) -> list[str]:
    """Keys and values that several heads read, once for each of them."""
    times = n.n_heads // n.n_kv_heads
    if times == 1:
        return []
    widths = {"k": n.head_dim, "v": n.value_dim}
    return [
        f"{name} = {name}.repeat_interleave({times}, 1){shape('B', n.n_heads, keys, width)}"
        for name, width in widths.items()
    ]


def _scores(file: File, part: MultiHead | Cross | Latent, n_heads: int, keys: str, root: str) -> list[str]:
    factor = f" / {root}" if part.scale == "auto" else "" if part.scale == 1.0 else f" * {number(part.scale)}"
    lines = [f"scores = q @ k.transpose(-1, -2){factor}{shape('B', n_heads, 'T', keys)}"]
    if isinstance(part, (MultiHead, Cross)) and part.soft_cap != "none":
        lines += [f"scores = {(cap := number(part.soft_cap))} * torch.tanh(scores / {cap})"]
    if isinstance(part, (MultiHead, Latent)) and isinstance(part.positions, ALiBi):
        lines += [f"scores = scores + {alibi(file, part.positions, n_heads)}"]
    if isinstance(part, (MultiHead, Latent)) and isinstance(part.positions, T5Buckets):
        lines += ["scores = scores + bias"]
    return lines


def _masked(mask: Mask) -> list[str]:
    """Which keys a query may see."""
    ones = "torch.ones(T, T, dtype=torch.bool, device=x.device)"
    match mask:
        case FullMask():
            return []
        case CausalMask():
            seen = [f"seen = {ones}.tril()"]
        case SlidingMask():
            seen = [f"seen = {ones}.tril().triu({1 - mask.window})"]
        case TwoSidedMask():
            seen = [f"seen = {ones}.tril({mask.half_width}).triu(-{mask.half_width})"]
        case ChunkedMask():
            seen = [AT, f"chunk = at // {mask.size}", "seen = (at <= at[:, None]) & (chunk == chunk[:, None])"]
        case PrefixMask():
            seen = [AT, "seen = (at <= at[:, None]) | (at < prefix[:, None, None, None])"]
    return [*seen, "scores = scores.masked_fill(~seen, -torch.inf)"]


def _weighed(n_heads: int, value_dim: int, sinks: bool, dropout: float) -> list[str]:
    if sinks:
        lines = [f"sinks = self.sinks.view(1, {n_heads}, 1, 1).expand(B, {n_heads}, T, 1)"]
        lines += ["pattern = torch.cat((scores, sinks), -1).softmax(-1)[..., :-1]  # sinks have no value"]
    else:
        lines = ["pattern = scores.softmax(-1)"]
    lines += [f"pattern = F.dropout(pattern, {number(dropout)}, self.training)"] if dropout else []
    return [*lines, f"z = pattern @ v{shape('B', n_heads, 'T', value_dim)}"]


def _takes(part: MultiHead | Latent) -> tuple[str, ...]:
    bias = ("bias",) if isinstance(part.positions, T5Buckets) else ()
    return bias + (("prefix",) if isinstance(part.mask, PrefixMask) else ())


def _doc(mask: Mask) -> str:
    match mask:
        case CausalMask():
            return "Causal attention"
        case SlidingMask():
            return f"Causal attention within {mask.window} tokens"
        case TwoSidedMask():
            return f"Attention within {mask.half_width} tokens to both sides"
        case ChunkedMask():
            return f"Causal attention within chunks of {mask.size} tokens"
        case PrefixMask():
            return "Attention that is causal beyond the prefix"
    return "Attention to all tokens"


def _heads(n_heads: int, n_kv_heads: int, head_dim: int) -> str:
    if n_heads == n_kv_heads:
        return f"{n_heads} heads of {head_dim}"
    return f"{n_heads} heads of {head_dim} on {n_kv_heads} of keys and values"

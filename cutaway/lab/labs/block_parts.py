"""What the page says and draws of each part of a block: purpose, shapes, parameters, nodes and arrows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from cutaway.lab.labs.block_run import Design, Sizes

Shape = dict[str, Any]

TITLES = {
    "input": "input",
    "positions": "position vectors",
    "attn": "self-attention",
    "cross": "cross-attention",
    "ffn": "feed-forward network",
    "mask": "causal mask",
    "scale": "scaling of the scores",
    "gate": "gate",
    "norm": "norm",
    "residual": "add",
    "final_norm": "final norm",
    "layer": "the whole block",
}
PURPOSE = {
    "input": "One vector for each token, looked up in the embedding table.",
    "positions": "Adds a different vector at each place, so that order can be told.",
    "rope": "Turns q and k by an angle that grows with their place, so that a score knows their distance.",
    "attn": "Each token gathers what it needs from the tokens that it may see.",
    "cross": "Each target token gathers what it needs from the encoder's output.",
    "ffn": "Each token is processed by itself: widened, bent by a nonlinearity, narrowed again.",
    "mask": "Hides the future: token i sees only tokens 0 to i.",
    "scale": "Divides the scores by the square root of d_k, so that softmax stays soft at any width.",
    "gate": "Decides for each hidden unit how much of its value passes.",
    "norm_in": "Rescales a copy of x before the sublayer reads it; x itself stays as it is.",
    "norm_sum": "Rescales the sum of x and the sublayer's output: it stands on the residual path.",
    "residual": "Adds the sublayer's output to x, so that a sublayer only has to learn a change.",
    "final_norm": "Rescales what leaves the last block, which nothing has normalised before.",
    "layer": "Everything between the block's input and its output.",
}
BREAKS = {
    "positions": "Order no longer shows, but for what a causal mask gives away.",
    "attn": "Every token is processed alone and never learns of its context.",
    "cross": "The target is written without a look at the source.",
    "ffn": "Only averages of linear maps are left: no token is processed any further.",
    "mask": "In training each token could copy the very token that it has to predict.",
    "scale": "Scores grow with the width; softmax goes to one key and its gradient towards 0.",
    "gate": "Hidden units become a plain linear map of the token: nothing bends any more.",
    "norm": "Sizes drift from layer to layer, and deep stacks become hard to train.",
    "residual": "x is replaced instead of changed: what came before is lost, and the gradient's direct way with it.",
    "final_norm": "The head reads vectors whose size grew with every block.",
    "layer": "x passes as it is: the model is one block shallower.",
}


def base(part: str) -> str:
    """ "encoder.attn.norm" -> "norm": what kind of part it is."""
    part = part.removeprefix("encoder.")
    return part.rpartition(".")[2]


def info(part: str, design: Design, sizes: Sizes) -> dict[str, Any]:
    """Everything written beside one part."""
    kind = base(part)
    with_bias, without = parameters(part, design, sizes, True), parameters(part, design, sizes, False)
    attention = kind in ("attn", "cross")
    return {
        "id": part,
        "title": _title(part, design),
        "purpose": PURPOSE[_purpose(kind, design)],
        "breaks": BREAKS.get(kind, ""),
        "input": _stream(part, sizes),
        "output": _stream(part, sizes),
        "qkv": _qkv(part, design) if attention else "",
        "shapes": _attention_shapes(part, sizes)
        if attention
        else _hidden(part, design, sizes)
        if kind == "ffn"
        else [],
        "parameters": with_bias if sizes.bias else without,
        "parameters_with_bias": with_bias,
        "parameters_without_bias": without,
    }


def parameters(part: str, design: Design, sizes: Sizes, bias: bool) -> int:
    """How many numbers are learned in it; a LayerNorm has gain and shift, an RMSNorm the gain alone."""
    d, ff = sizes.d_model, sizes.d_ff
    match base(part):
        case "attn" | "cross":
            return 4 * d * d + 4 * d * bias
        case "ffn" if design.modern:
            return 3 * d * sizes.gated_d_ff + (2 * sizes.gated_d_ff + d) * bias
        case "ffn":
            return 2 * d * ff + (ff + d) * bias
        case "norm" | "final_norm":
            return d if design.modern else 2 * d
        case "layer":
            inside = [p for p in design.parts() if not p.startswith("encoder.") and p not in ("layer", "final_norm")]
            return sum(parameters(p, design, sizes, bias) for p in inside)
    return 0


def nodes(design: Design) -> list[dict[str, Any]]:
    """The drawing from bottom to top: each node's part, kind, stack, and whether it stands on the residual path."""
    found = []
    for prefix, branches in (("encoder.", ("attn", "ffn")), ("", design.branches)):
        if prefix and not design.encoder:
            continue
        found.append(_node(f"{prefix}input", True))
        if not design.modern:
            found.append(_node(f"{prefix}positions", True))
        for branch in branches:
            name = f"{prefix}{branch}"
            around = [(name, False), (f"{name}.residual", True)]
            norm = (f"{name}.norm", design.post)
            found += [_node(*each) for each in ([*around, norm] if design.post else [norm, *around])]
    return found if design.post else [*found, _node("final_norm", True)]


def edges(drawn: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Arrows: up the stack, around each sublayer to its add, and from the encoder's end into cross-attention."""
    found = []
    for stack in ("encoder", "decoder"):
        own = [node for node in drawn if node["stack"] == stack]
        path = own[:1]
        for below, above in pairwise(own):
            found.append({"from": below["id"], "to": above["id"], "kind": "main"})
            if above["kind"] == "residual":
                found.append({"from": path[-1]["id"], "to": above["id"], "kind": "residual"})
            if above["on_path"]:
                path.append(above)
        if stack == "decoder" and any(node["id"] == "cross" for node in own):
            top = [node for node in drawn if node["stack"] == "encoder"][-1]
            found.append({"from": top["id"], "to": "cross", "kind": "memory"})
    return found


def _node(part: str, on_path: bool) -> dict[str, Any]:
    stack = "encoder" if part.startswith("encoder.") else "decoder"
    return {"id": part, "kind": base(part), "stack": stack, "on_path": on_path, "title": TITLES[base(part)]}


def _title(part: str, design: Design) -> str:
    kind, encoder = base(part), part.startswith("encoder.")
    if kind == "attn":
        return f"{'' if encoder else 'masked '}self-attention{' of the encoder' if encoder else ''}"
    if kind == "positions" and design.modern:
        return "rotation of q and k (RoPE)"
    if kind in ("norm", "final_norm"):
        name = "RMSNorm" if design.modern else "LayerNorm"
        return f"final {name}" if kind == "final_norm" else f"{name} of {TITLES[part.split('.')[-2]]}"
    return TITLES[kind]


def _purpose(kind: str, design: Design) -> str:
    if kind == "norm":
        return "norm_sum" if design.post else "norm_in"
    return "rope" if kind == "positions" and design.modern else kind


def _stream(part: str, sizes: Sizes) -> Shape:
    encoder = part.startswith("encoder.")
    length = sizes.source if encoder else sizes.length
    return _shape(f"(B, {'S' if encoder else 'L'}, d_model)", sizes.batch, length, sizes.d_model)


def _qkv(part: str, design: Design) -> str:
    read = "x" if design.post else "the normalised x"
    if part == "cross":
        return f"Q comes from {read} of the target; K and V come from the encoder's output. Nothing is masked."
    masked = "Every source token is seen." if part.startswith("encoder.") else "A causal mask hides the future."
    return f"Q, K and V all come from {read}. {masked}"


def _attention_shapes(part: str, sizes: Sizes) -> list[list[Any]]:
    queries = sizes.source if part.startswith("encoder.") else sizes.length
    keys = sizes.length if part == "attn" else sizes.source
    t, s = ("S" if part.startswith("encoder.") else "L"), ("L" if part == "attn" else "S")
    mask = [["mask", _shape("(L, L)", queries, keys)]] if part == "attn" else []
    return [["weights per head", _shape(f"(B, {t}, {s})", sizes.batch, queries, keys)], *mask]


def _hidden(part: str, design: Design, sizes: Sizes) -> list[list[Any]]:
    stream = _stream(part, sizes)
    width = sizes.gated_d_ff if design.modern else sizes.d_ff
    letters = stream["letters"].replace("d_model", "d_ff")
    return [["hidden layer", _shape(letters, *stream["sizes"][:2], width)]]


def _shape(letters: str, *sizes: int) -> Shape:
    return {"letters": letters, "sizes": list(sizes)}

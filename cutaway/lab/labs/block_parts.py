"""What the page says and draws of each part of a block: purpose, shapes, parameters, nodes and arrows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from cutaway.lab.labs.block_run import Design, Sizes
from cutaway.lab.labs.say import Say

Shape = dict[str, Any]


def base(part: str) -> str:
    """ "encoder.attn.norm" -> "norm": what kind of part it is."""
    part = part.removeprefix("encoder.")
    return part.rpartition(".")[2]


def info(part: str, design: Design, sizes: Sizes, say: Say) -> dict[str, Any]:
    """Everything written beside one part."""
    kind = base(part)
    with_bias, without = parameters(part, design, sizes, True), parameters(part, design, sizes, False)
    attention = kind in ("attn", "cross")
    return {
        "id": part,
        "title": _title(part, design, say),
        "purpose": say(f"purpose.{_purpose(kind, design)}"),
        "breaks": "" if kind == "input" else say(f"breaks.{kind}"),
        "input": _stream(part, sizes),
        "output": _stream(part, sizes),
        "qkv": _qkv(part, design, say) if attention else "",
        "shapes": _attention_shapes(part, sizes, say)
        if attention
        else _hidden(part, design, sizes, say)
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


def nodes(design: Design, say: Say) -> list[dict[str, Any]]:
    """The drawing from bottom to top: each node's part, kind, stack, and whether it stands on the residual path."""
    found: list[tuple[str, bool]] = []
    for prefix, branches in (("encoder.", ("attn", "ffn")), ("", design.branches)):
        if prefix and not design.encoder:
            continue
        found.append((f"{prefix}input", True))
        if not design.modern:
            found.append((f"{prefix}positions", True))
        for branch in branches:
            name = f"{prefix}{branch}"
            around = [(name, False), (f"{name}.residual", True)]
            norm = (f"{name}.norm", design.post)
            found += [*around, norm] if design.post else [norm, *around]
    found += [] if design.post else [("final_norm", True)]
    return [_node(part, on_path, say) for part, on_path in found]


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


def _node(part: str, on_path: bool, say: Say) -> dict[str, Any]:
    stack = "encoder" if part.startswith("encoder.") else "decoder"
    title = say(f"title.{base(part)}")
    return {"id": part, "kind": base(part), "stack": stack, "on_path": on_path, "title": title}


def _title(part: str, design: Design, say: Say) -> str:
    kind, encoder = base(part), part.startswith("encoder.")
    if kind == "attn":
        return say("title.encoder_attn" if encoder else "title.masked_attn")
    if kind == "positions" and design.modern:
        return say("title.rope")
    if kind in ("norm", "final_norm"):
        name = "RMSNorm" if design.modern else "LayerNorm"
        final = kind == "final_norm"
        return say("title.final", name=name) if final else say("title.of", name=name, branch=_branch(part, say))
    return say(f"title.{kind}")


def _branch(part: str, say: Say) -> str:
    return say(f"title.{part.split('.')[-2]}")


def _purpose(kind: str, design: Design) -> str:
    if kind == "norm":
        return "norm_sum" if design.post else "norm_in"
    return "rope" if kind == "positions" and design.modern else kind


def _stream(part: str, sizes: Sizes) -> Shape:
    encoder = part.startswith("encoder.")
    length = sizes.source if encoder else sizes.length
    return _shape(f"(B, {'S' if encoder else 'L'}, d_model)", sizes.batch, length, sizes.d_model)


def _qkv(part: str, design: Design, say: Say) -> str:
    read = say("read.x" if design.post else "read.normalised")
    return say(f"qkv.{part}", read=read)


def _attention_shapes(part: str, sizes: Sizes, say: Say) -> list[list[Any]]:
    queries = sizes.source if part.startswith("encoder.") else sizes.length
    keys = sizes.length if part == "attn" else sizes.source
    t, s = ("S" if part.startswith("encoder.") else "L"), ("L" if part == "attn" else "S")
    mask = [[say("shape.mask"), _shape("(L, L)", queries, keys)]] if part == "attn" else []
    return [[say("shape.weights"), _shape(f"(B, {t}, {s})", sizes.batch, queries, keys)], *mask]


def _hidden(part: str, design: Design, sizes: Sizes, say: Say) -> list[list[Any]]:
    stream = _stream(part, sizes)
    width = sizes.gated_d_ff if design.modern else sizes.d_ff
    letters = stream["letters"].replace("d_model", "d_ff")
    return [[say("shape.hidden"), _shape(letters, *stream["sizes"][:2], width)]]


def _shape(letters: str, *sizes: int) -> Shape:
    return {"letters": letters, "sizes": list(sizes)}

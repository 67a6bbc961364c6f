"""One token of one row through plain blocks as a short list of products: what a step costs beside reading the weights.

The parts' own forwards say what is computed; here the same is computed in fewer calls, on vectors, for the blocks that
most models are made of. Whatever else a model holds is run by its forwards, and so is any model while somebody listens.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway.generation.cache import Cache
from cutaway.models.one_stack import OneStack
from cutaway.parts.attention import MultiHead
from cutaway.parts.block import Block
from cutaway.parts.feedforward import Dense, Gated
from cutaway.parts.linear import Linear, joined, touched
from cutaway.parts.norms import LayerNorm, RMSNorm, normed
from cutaway.parts.positions import Rotary, Unplaced
from cutaway.parts.residual import Stage, norm_of, scale_of
from cutaway.parts.slots import LayerCache
from cutaway.parts.step import Given, Step
from cutaway.tap import heard

Row = Callable[[Float[Tensor, " D"]], Float[Tensor, " E"]]
Branch = Callable[[Float[Tensor, " D"], Step, LayerCache], Float[Tensor, " D"]]


PLAIN = frozenset({
    nn.ModuleList, Block, MultiHead, Rotary, Unplaced, Dense, Gated, Linear, LayerNorm, RMSNorm,
})  # fmt: skip
"""What plain blocks consist of."""


class Runner:
    """Logits [1 1 V] of one more token of one row, from a model of plain blocks: see `of`. Weights stay the model's."""

    def __init__(self, model: OneStack, blocks: list[list[Branch]]) -> None:
        self.model, self.blocks = model, blocks

    @staticmethod
    def of(model: nn.Module) -> Runner | None:
        """None where a module was touched (hooks, another forward), or put in the place of one that is known here, or
        a branch is not a plain x + part(norm(x)).
        """
        if type(model) is not OneStack or any(touched(module) for module in model.modules()):
            return None
        if any(type(module) not in PLAIN for module in model.blocks.modules()):
            return None
        room = _Room(model.embedding.table.weight)
        blocks: list[list[Branch]] = []
        for block in model.blocks:
            if not isinstance(block, Block):
                return None
            branches = [_branch(stage, room) for stage in block.stages]
            blocks.append([branch for branch in branches if branch is not None])
            if len(blocks[-1]) < len(branches):
                return None
        return Runner(model, blocks)

    def fits(self, ids: Int[Tensor, "B T"]) -> bool:
        """Whether these ids are one token of one row on a processor, and nobody listens."""
        return ids.numel() == 1 and ids.device.type == "cpu" and not heard()

    def __call__(self, ids: Int[Tensor, "1 1"], given: Given, cache: Cache) -> Float[Tensor, "1 1 V"]:
        model = self.model
        step = model.begin(ids, given, cache)
        x = model.embedding(ids, step).view(-1)  # D
        for index, branches in enumerate(self.blocks):
            layer = cache.layer(index)
            for branch in branches:
                x = branch(x, step, layer)
        cache.commit()
        return model.head(normed(model.final_norm, x[None, None]), step)


class _Room:
    """Memory for images, shared by layers of one shape: an image is used up before the next layer makes its own."""

    def __init__(self, like: Tensor) -> None:
        self.like, self.made = like, {}

    def __call__(self, name: str, n: int) -> Float[Tensor, " N"]:
        return self.made.setdefault((name, n), torch.empty(n, dtype=self.like.dtype))


def _branch(stage: Stage, room: _Room) -> Branch | None:
    part = stage.parts[0]
    plain = len(stage.parts) == 1 and stage.plain_sum and stage.scale == 1.0
    after = [norm_of(part, "norm_out"), scale_of(part)]
    if not plain or any(each is not None for each in after):
        return None
    if type(part) is MultiHead and _Heads.plain(part):
        return _Heads(part, room)
    if type(part) is Gated and _Gated.plain(part):
        return _Gated(part, room)
    return _Dense(part, room) if type(part) is Dense else None


class _Heads:
    def __init__(self, part: MultiHead, room: _Room) -> None:
        n, n_kv, width = part.n_heads, part.n_kv_heads, len(part.q_proj.weight) // part.n_heads
        self.norm, self.add, self.scale = _norms(part), _adding(part.o_proj), part.scoring.scale
        self.mask, self.view_key, self.placing, self.width = part.mask, part.view_key, part.placing, width
        image = room("image", (n + n_kv) * width + len(part.v_proj.weight))
        self.project = _into(image, part.q_proj, part.k_proj, part.v_proj)
        q_k, self.v = (
            image[: (n + n_kv) * width].view(n + n_kv, width),
            image[(n + n_kv) * width :].view(1, n_kv, 1, -1),
        )
        self.rotary = part.placing if isinstance(part.placing, Rotary) else None
        self.q_k = q_k
        self.turned = room("turned", q_k.numel()).view_as(q_k) if self.rotary is not None else q_k
        self.q, self.k = self.turned[:n].view(1, n_kv, -1, width), self.turned[n:].view(1, n_kv, 1, width)

    @staticmethod
    def plain(part: MultiHead) -> bool:
        odd = (part.q_norm, part.k_norm, part.clip, part.scoring.soft_cap, part.shared_from, part.sinks)
        return all(x is None for x in odd) and not part.gate_width and type(part.placing) in (Rotary, Unplaced)

    def __call__(self, x: Tensor, step: Step, cache: LayerCache) -> Tensor:
        self.project(self.norm(x))
        if self.rotary is not None:
            torch.mm(self.q_k, self.rotary.matrix(step, self.width), out=self.turned)
        keys, values = cache.extend(self.k, self.v)
        allowed = step.view(self.view_key, self.mask, cache.layout, self.placing).allowed
        z = F.scaled_dot_product_attention(self.q, keys, values, allowed, scale=self.scale)
        return self.add(x, z.view(-1))


class _Gated:
    def __init__(self, part: Gated, room: _Room) -> None:
        self.norm, self.add, self.activation = _norms(part), _adding(part.down_proj), part.activation
        image = room("image", 2 * len(part.up_proj.weight))
        self.project = _into(image, part.gate_proj, part.up_proj)
        self.gate, self.value = image.chunk(2)

    @staticmethod
    def plain(part: Gated) -> bool:
        return part.clamp is None and part.alpha == 1.0 and part.offset == 0.0

    def __call__(self, x: Tensor, step: Step, cache: LayerCache) -> Tensor:
        self.project(self.norm(x))
        return self.add(x, self.activation(self.gate).mul_(self.value))


class _Dense:
    def __init__(self, part: Dense, room: _Room) -> None:
        self.norm, self.add, self.activation = _norms(part), _adding(part.down_proj), part.activation
        self.image = room("image", len(part.up_proj.weight))
        self.project = _into(self.image, part.up_proj)

    def __call__(self, x: Tensor, step: Step, cache: LayerCache) -> Tensor:
        self.project(self.norm(x))
        return self.add(x, self.activation(self.image))


def _norms(part: nn.Module) -> Row:
    """The norm of the stage or that of the branch: a stage has one or the other."""
    norms = [_norm(norm) for norm in (norm_of(part, "norm"), norm_of(part, "norm_in")) if norm is not None]
    return norms[0] if norms else lambda x: x


def _norm(norm: nn.Module) -> Row:
    if type(norm) is not RMSNorm or norm.weight is None:
        return norm.forward
    eps, width = norm.eps, norm.width
    gain = norm.weight.float() if norm.weight.dtype.itemsize < 4 else norm.weight
    gain = 1 + gain if norm.one_plus else gain
    nothing = gain.new_zeros(())

    def rms(x: Tensor) -> Tensor:
        wide = x.float() if x.dtype.itemsize < 4 else x
        factor = (torch.dot(wide, wide).item() / width + eps) ** -0.5
        return torch.addcmul(nothing, wide, gain, value=factor).to(x.dtype)

    return rms


def _into(room: Tensor, *maps: Linear) -> Callable[[Tensor], object]:
    """Fills `room` with the images of a vector one after the other, in a single product where the weights allow it."""
    one = maps[0].weight if len(maps) == 1 and maps[0].bias is None else joined(maps)
    if one is None:
        return lambda x: torch.cat([each.forward(x) for each in maps], out=room)
    return lambda x: torch.mv(one, x, out=room)


def _adding(last: Linear) -> Callable[[Tensor, Tensor], Tensor]:
    """x + W h + b."""
    weight, bias = last.weight, last.bias
    if bias is None:
        return lambda x, h: torch.addmv(x, weight, h)
    return lambda x, h: torch.addmv(x + bias, weight, h)

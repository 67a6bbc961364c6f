"""A model's stacks, blocks and branches, as what looks inside asks for them."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from cutaway.errors import InputError
from cutaway.models import EncoderDecoder, Stack, Transformer
from cutaway.parts.attention import Cross, MultiHead
from cutaway.parts.block import Block
from cutaway.parts.feedforward import Dense, Gated
from cutaway.parts.head import TokenHead
from cutaway.parts.latent_attention import Latent
from cutaway.parts.norms import LayerNorm, RMSNorm, normed
from cutaway.parts.residual import Stage, scale_of
from cutaway.parts.step import Step
from cutaway.tap import original


def check_token_head(model: Transformer) -> None:
    """Raise InputError for a head that gives no logits of tokens."""
    if not isinstance(model.head, TokenHead):
        raise InputError(f"this needs logits of tokens; the model's head is {model.spec.head.kind!r}")


def stack_of(model: Transformer, encoder: bool = False) -> tuple[Stack, str]:
    """The stack that the head reads, or the encoder beside it, and what its taps' names begin with.

    Raises InputError for the encoder of a model of one stack.
    """
    if isinstance(model, EncoderDecoder):
        return (model.encoder, "encoder.") if encoder else (model.decoder, "decoder.")
    if encoder:
        raise InputError("encoder: the model has one stack, and no encoder beside it; leave that away")
    return model, ""


def read_out(model: Transformer, states: Float[Tensor, "*B D"], step: Step) -> Tensor:
    """head(final_norm(states)): what the model would say if it ended at these states of the stream."""
    return model.head(normed(stack_of(model)[0].final_norm, states), step)


def owner_of(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module that a tap is of, and what the tap is called there."""
    word, _, rest = name.partition(".")
    model = original(model)
    below = model._modules.get(word)
    return owner_of(below, rest) if below is not None and rest else (model, name)


def blocks_of(stack: Stack) -> list[Block]:
    return [block for block in stack.blocks if isinstance(block, Block)]


def check_layer(stack: Stack, layer: int) -> None:
    """Raise InputError for a layer that is not there."""
    if not 0 <= layer < len(stack.blocks):
        there = f"layers 0 to {len(stack.blocks) - 1}" if len(stack.blocks) else "no layers"
        raise InputError(f"layer {layer}: the model has {there}")


def factor_of(stage: Stage, part: nn.Module) -> Tensor | float:
    """What a branch's update is multiplied by: a learned scale, else the stage's number."""
    learned = scale_of(part)
    return stage.scale if learned is None else learned


def writing(part: nn.Module) -> Float[Tensor, "N V D"]:
    """What each head of an attention, or each neuron (V is 1) of a feed-forward network, writes of its output."""
    if isinstance(part, (Dense, Gated)):
        return part.down_proj.weight.T[:, None]
    assert isinstance(part, (MultiHead, Latent, Cross))
    return part.o_proj.weight.T.unflatten(0, (part.n_heads, -1))


def written_by_heads(stack: Stack, prefix: str, part: str = "attn") -> list[str]:
    """Patterns of the taps that say what each head gives: z, and the gate that multiplies it where there is one."""
    gated = any(isinstance(each, MultiHead) and each.gate_width for block in stack.blocks for each in block.children())
    return [f"{prefix}blocks.*.{part}.z", *([f"{prefix}blocks.*.attn.gate"] if gated else [])]


def gate_of(z: str) -> str:
    """The tap of the gate that multiplies the heads of this z."""
    return z.removesuffix("z") + "gate"


class Held:
    """A norm as the linear map that it is once the scale of its input is known, shift aside; x itself without one."""

    def __init__(self, norm: nn.Module | None, scale: Tensor | None) -> None:
        self.norm, self.scale = norm, scale

    def __call__(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        if self.norm is None or self.scale is None:
            return x
        assert isinstance(self.norm, (LayerNorm, RMSNorm))
        x = (x - x.mean(-1, keepdim=True) if isinstance(self.norm, LayerNorm) else x) / self.scale
        if self.norm.weight is None:
            return x
        plus = 1.0 if isinstance(self.norm, RMSNorm) and self.norm.one_plus else 0.0
        return x * (self.norm.weight + plus)

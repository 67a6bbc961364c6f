"""From records to modules: the only place that asks a record of which kind it is in order to choose a class.

Names that come out, for every family: `embedding.{tokens,positions,types,norm,projection}`,
`blocks.3.attn.{q,k,v,o}_proj` (latent: `q_down q_norm q_up kv_down kv_norm kv_up o_proj`), `.q_norm .k_norm .sinks
.gate_proj`, `blocks.3.cross.*`, `blocks.3.ffn.{gate,up,down}_proj` (mixture: `.router .experts.0.* .shared.*
.shared_gate`), a branch's `.norm_in .norm_out .residual_scale`, a stage's `.norm .norm_sum` on its first branch's part,
`relative_bias`, `final_norm`, `head.{weight,bias}`, `head.{transform,pooler}.{dense,norm}`, `head.projection`; the
stacks of an encoder-decoder stand under `encoder.` and `decoder.`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cutaway import spec
from cutaway.parts.attention import Cross, MultiHead, NoBranch
from cutaway.parts.block import Block
from cutaway.parts.embedding import PatchEmbedding, Table, TokenEmbedding
from cutaway.parts.feedforward import Dense, Gated
from cutaway.parts.head import ClassHead, TokenHead, Transform, VectorHead
from cutaway.parts.latent_attention import Latent
from cutaway.parts.linear import Linear
from cutaway.parts.moe import MixtureOfExperts
from cutaway.parts.norms import LayerNorm, RMSNorm
from cutaway.parts.positions import Alibi, Buckets, BucketTable, Placing, Rotary, Unplaced
from cutaway.parts.residual import Stage, attach
from cutaway.spec.head import Head

TOGETHER: dict[type, tuple[str, ...]] = {
    MultiHead: ("q_proj", "k_proj", "v_proj"), Gated: ("gate_proj", "up_proj"),
}  # fmt: skip
"""The maps of a part that are called on the same x."""

Norm = spec.NoNorm | spec.LayerNorm | spec.RMSNorm


def build_norm(record: Norm, width: int, heads: int = 0) -> nn.Module | None:
    """The norm over `width` numbers, None where there is none; `heads` > 0: with a row of weights for each head."""
    match record:
        case spec.LayerNorm():
            return LayerNorm(width, record.eps, record.gain, record.shift, heads)
        case spec.RMSNorm():
            return RMSNorm(width, record.eps, record.gain, heads)
    return None


class Builder:
    """Builds the blocks of one stack: what they share is its widths, its dropout and its table of T5 biases."""

    def __init__(self, d_model: int, dropout: spec.Dropout) -> None:
        self.d_model, self.dropout = d_model, dropout
        self.relative_bias: BucketTable | None = None

    def blocks(self, records: tuple[spec.Block, ...]) -> nn.ModuleList:
        blocks = nn.ModuleList(self.block(record) for record in records)
        for record in records:
            for branch in record.branches:
                if isinstance(branch.part, spec.MultiHead) and branch.part.share_kv != "none":
                    lender = blocks[branch.part.share_kv].get_submodule("attn")
                    assert isinstance(lender, MultiHead)
                    lender.lends = branch.part.share_kv
        return blocks

    def block(self, record: spec.Block) -> Block:
        parts: dict[str, nn.Module] = {}
        stages = []
        for stage in record.stages:
            mine = [self._branch(branch, stage, first=index == 0) for index, branch in enumerate(stage.branches)]
            parts.update(zip((branch.name for branch in stage.branches), mine, strict=True))
            stages.append(Stage(stage, mine, self.dropout.residual))
        return Block(parts, stages)

    def _branch(self, branch: spec.Branch, stage: spec.Stage, first: bool) -> nn.Module:
        norms = {"norm_in": branch.norm_in, "norm_out": branch.norm_out}
        if first:
            norms |= {"norm": stage.norm, "norm_sum": stage.norm_sum}
        built = {name: build_norm(norm, self.d_model) for name, norm in norms.items()}
        return attach(self.part(branch.part), stage.scale, self.d_model, **built)

    def part(self, part: object) -> nn.Module:
        """The module of a part, without the norms around it."""
        d = self.d_model
        match part:
            case spec.MultiHead():
                n = spec.sizes(part, d)
                q_norm, k_norm = self._qk_norms(part.qk_norm, n)
                k_norm = k_norm if part.share_kv == "none" else None  # what it reads was normalised where made
                placing = self._placing(part.positions, n.head_dim, n.n_heads)
                return MultiHead(part, d, placing, q_norm, k_norm, self.dropout.attention)
            case spec.Cross():
                return Cross(part, d, *self._qk_norms(part.qk_norm, spec.sizes(part, d)), self.dropout.attention)
            case spec.Latent():
                q_norm = build_norm(part.q_norm, part.q_rank) if part.q_rank != "none" else None
                placing = self._placing(part.positions, part.rope_dim, part.n_heads)
                kv_norm = build_norm(part.kv_norm, part.kv_rank)
                return Latent(part, d, placing, q_norm, kv_norm, self.dropout.attention)
            case spec.Dense() | spec.Gated():
                return self._network(part)
            case spec.MixtureOfExperts():
                experts = [self._network(part.expert) for _ in range(part.n_experts)]
                shared = self._network(part.shared.expert) if isinstance(part.shared, spec.SharedExpert) else None
                return MixtureOfExperts(part, d, experts, shared)
        return NoBranch()

    def _network(self, part: spec.Dense | spec.Gated) -> Dense | Gated:
        if isinstance(part, spec.Dense):
            return Dense(part, self.d_model, self.dropout.hidden)
        return Gated(part, self.d_model, self.dropout.hidden)

    def _placing(self, record: object, head_dim: int, n_heads: int) -> Placing:
        match record:
            case spec.RoPE():
                return Rotary(record, head_dim)
            case spec.ALiBi():
                return Alibi(record, n_heads)
            case spec.T5Buckets():
                if self.relative_bias is None:
                    self.relative_bias = BucketTable(record.n_buckets, n_heads)
                return Buckets(record, self.relative_bias)
        return Unplaced()

    def _qk_norms(
        self, record: spec.QKNorm | spec.NoQKNorm, n: spec.attention.Sizes
    ) -> tuple[nn.Module | None, nn.Module | None]:
        if isinstance(record, spec.NoQKNorm):
            return None, None
        if record.over == "width":
            return build_norm(record.norm, n.n_heads * n.head_dim), build_norm(record.norm, n.n_kv_heads * n.head_dim)
        heads = (n.n_heads, n.n_kv_heads) if record.gain == "per_head" else (0, 0)
        return build_norm(record.norm, n.head_dim, heads[0]), build_norm(record.norm, n.head_dim, heads[1])


def side_by_side(model: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """Unfilled memory for weights that are used together, by name: what is put there is multiplied as one matrix."""
    places: dict[str, Tensor] = {}
    for path, module in model.named_modules():
        names = TOGETHER.get(type(module), ())
        maps = {name: each.weight for name, each in module.named_children() if name in names and type(each) is Linear}
        if maps:
            rows = [len(weight) for weight in maps.values()]
            one = torch.empty(sum(rows), next(iter(maps.values())).shape[1], dtype=dtype)
            places |= {f"{path}.{name}.weight": piece for name, piece in zip(maps, one.split(rows), strict=True)}
    return places


def build_embedding(
    record: spec.TokenEmbedding | spec.PatchEmbedding, d_model: int, vocab_size: int, dropout: float,
    shared: Table | None = None,
) -> TokenEmbedding | PatchEmbedding:  # fmt: skip
    """The module of an embedding; `shared` is the table of another one to read instead of an own."""
    if isinstance(record, spec.PatchEmbedding):
        return PatchEmbedding(record, d_model, build_norm(record.norm, d_model), dropout)
    norm = build_norm(record.norm, spec.inner_width(record, d_model))
    return TokenEmbedding(record, d_model, vocab_size, norm, dropout, shared)


def build_head(record: Head, d_model: int, embedding: TokenEmbedding | PatchEmbedding) -> nn.Module:
    """The module of a head; a tied one reads the embedding's table."""
    transform = build_transform(record.transform, d_model)
    match record:
        case spec.ClassHead():
            return ClassHead(record, d_model, transform)
        case spec.VectorHead():
            return VectorHead(record, transform, build_transform(record.pooler, d_model))
    table = embedding.table if record.tied else None
    return TokenHead(record, d_model, embedding.vocab_size, transform, table)


def build_transform(record: object, d_model: int) -> Transform | None:
    """The module of a head's transform, None where states go on as they are."""
    if not isinstance(record, spec.Transform):
        return None
    return Transform(record, d_model, build_norm(record.norm, spec.transform_width(record, d_model)))

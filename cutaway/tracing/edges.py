"""Edges between heads: what one head writes, taken out of what one later head reads, and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from cutaway.errors import InputError
from cutaway.models import Transformer
from cutaway.parts.attention import MultiHead, split_heads
from cutaway.parts.block import Block
from cutaway.parts.norms import normed
from cutaway.parts.residual import Stage, norm_of
from cutaway.tracing.edit import Edit, Seen, Site
from cutaway.tracing.stacks import blocks_of, factor_of, stack_of, writing


@dataclass(frozen=True)
class Edge:
    """From a head (layer, head) to the q, k, v or output gate of a head of a later layer.

    Where heads share keys and values, k and v are those of the reader's group.
    """

    writer: tuple[int, int]
    reader: tuple[int, int]
    reads: Literal["q", "k", "v", "gate"] = "q"


def cut(model: Transformer, edges: Sequence[Edge]) -> dict[str, Edit]:
    """Edits that cut edges: the reader's q is W_q norm(x - z_writer W_o) in place of W_q norm(x), x its block's stream.

    All else reads x as it is (Wang et al. 2022, arXiv:2211.00593). Of an encoder-decoder the decoder's heads are meant.
    Nest other edits of the writers or of the stream outside of these: then they are seen.

    Raises InputError for a head that is not there, a reader not after its writer, and where the stream between them is
    no plain sum.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> with cutaway.edit(model, cut(model, [Edge((0, 1), (1, 3), "v")])) as report:
    ...     _ = model(torch.tensor([[1, 2, 3]]))
    >>> list(report.changes)
    ['blocks.1.attn.v']
    """
    stack, prefix = stack_of(model)
    blocks = blocks_of(stack)
    seen, edits = Seen(), dict[str, Edit]()
    by_tap: dict[str, list[Edge]] = {}
    for edge in edges:
        _check(edge, blocks)
        by_tap.setdefault(f"{prefix}blocks.{edge.reader[0]}.attn.{edge.reads}", []).append(edge)
        writer = f"{prefix}blocks.{edge.writer[0]}.attn"
        edits[f"{writer}.z"] = seen.look
        if _attn(blocks[edge.writer[0]]).gate_width:
            edits[f"{writer}.gate"] = seen.look
        edits[_stream(blocks[edge.reader[0]], f"{prefix}blocks.{edge.reader[0]}")] = seen.look
    for tap, mine in by_tap.items():
        edits[tap] = _Reading(mine, blocks, prefix, seen).edit
    return edits


class _Reading:
    """What some heads of one layer read in one way without the writers of their edges."""

    def __init__(self, edges: list[Edge], blocks: list[Block], prefix: str, seen: Seen) -> None:
        self.edges, self.blocks, self.prefix, self.seen = edges, blocks, prefix, seen

    def edit(self, x: Tensor, site: Site) -> Tensor:
        layer, reads = self.edges[0].reader[0], self.edges[0].reads
        block, new = self.blocks[layer], x.clone()
        stream = self.seen.tensors[_stream(block, f"{self.prefix}blocks.{layer}")]
        for head in {edge.reader[1] for edge in self.edges}:
            writers = {edge.writer for edge in self.edges if edge.reader[1] == head}
            less = stream - sum(self._written(*writer) for writer in sorted(writers))
            place = head // (_attn(block).n_heads // x.shape[1])
            new[:, place] = _projected(block, less, reads)[:, place]
        self.seen.look(new, site)  # a gate that is read without one head is what its own head writes with
        return new

    def _written(self, layer: int, head: int) -> Float[Tensor, "B T D"]:
        """What a head adds to the stream."""
        attn, path = _attn(self.blocks[layer]), f"{self.prefix}blocks.{layer}.attn"
        z = self.seen.tensors[f"{path}.z"]
        z = z * self.seen.tensors[f"{path}.gate"] if attn.gate_width else z
        return z[:, head] @ writing(attn)[head] * factor_of(_stage(self.blocks[layer])[1], attn)


def _projected(block: Block, x: Float[Tensor, "B T D"], reads: str) -> Float[Tensor, "B N T H"]:
    """q, k (before rotation), v or the gate, of a stream x."""
    attn = _attn(block)
    inner = normed(norm_of(attn, "norm_in"), normed(norm_of(_stage(block)[1].parts[0], "norm"), x))
    if reads == "gate":
        return split_heads(attn.gate_proj(inner).sigmoid(), attn.n_heads)
    out = {"q": attn.q_proj, "k": attn.k_proj, "v": attn.v_proj}[reads](inner)
    norm = {"q": attn.q_norm, "k": attn.k_norm, "v": None}[reads]
    out = split_heads(out, attn.n_heads if reads == "q" else attn.n_kv_heads, norm, attn.norm_first)
    return out if attn.clip is None else out.clamp(-attn.clip, attn.clip)


def _attn(block: Block) -> MultiHead:
    attn = block.get_submodule("attn")
    assert isinstance(attn, MultiHead)
    return attn


def _stage(block: Block) -> tuple[int, Stage]:
    """The stage of a block's attention and its number."""
    return next((i, stage) for i, stage in enumerate(block.stages) if any(p is _attn(block) for p in stage.parts))


def _stream(block: Block, path: str) -> str:
    """The tap of the stream that a block's attention reads."""
    index = _stage(block)[0]
    return f"{path}.resid.{index - 1}" if index else f"{path}.resid_pre"


def _check(edge: Edge, blocks: list[Block]) -> None:
    for layer, head in (edge.writer, edge.reader):
        if not 0 <= layer < len(blocks):
            raise InputError(f"cut: {edge}: the model has layers 0 to {len(blocks) - 1}")
        attn = dict(blocks[layer].named_children()).get("attn")
        if not isinstance(attn, MultiHead):
            raise InputError(f"cut: {edge}: layer {layer} has no multi-head attention")
        if not 0 <= head < attn.n_heads:
            raise InputError(f"cut: {edge}: layer {layer} has heads 0 to {attn.n_heads - 1}")
    first, last = edge.writer[0], edge.reader[0]
    if first >= last:
        raise InputError(f"cut: {edge}: the reader must stand in a later layer than the writer")
    if edge.reads not in ("q", "k", "v", "gate"):
        raise InputError(f"cut: {edge}: a head reads by q, k, v or gate")
    if edge.reads == "gate" and not _attn(blocks[last]).gate_width:
        raise InputError(f"cut: {edge}: layer {last} has no output gate")
    if edge.reads in ("k", "v") and _attn(blocks[last]).shared_from is not None:
        raise InputError(f"cut: {edge}: layer {last} reads the keys and values of another; cut the edge to that one")
    start, end = _stage(blocks[first])[0], _stage(blocks[last])[0]
    between = [
        stage for layer in range(first, last + 1) for i, stage in enumerate(blocks[layer].stages)
        if (layer, i) >= (first, start) and (layer, i) < (last, end)
    ]  # fmt: skip
    if not all(stage.plain_sum for stage in between) or norm_of(_attn(blocks[first]), "norm_out") is not None:
        raise InputError(f"cut: {edge}: what the writer adds is normed before the reader, so it cannot be taken out")

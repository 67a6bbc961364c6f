"""What must hold for any model: padding, batching, saving, listening and removing nothing change nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cutaway import spec
from cutaway.ablation.surgery import transplant
from cutaway.checkpoints import native
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.tap import listening
from tests.conformance.models import Inputs, drawn
from tests.conformance.strategies import PAD, random_specs

N, EVERY = 360, 7
SPECS = list(random_specs(N, seed=13))
SOME_FAST = pytest.mark.parametrize(
    "index", [pytest.param(i, marks=[pytest.mark.slow] if i % EVERY else []) for i in range(N)]
)


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool((a - b).abs().max() <= 1e-10 * max(1.0, float(b.abs().max())))


def one_row(given: Inputs, row: int, first: int = 0, first_source: int = 0) -> Inputs:
    """A row alone, from the given columns on."""
    return Inputs(
        given.ids[[row], first:], None if given.source is None else given.source[[row], first_source:],
        None if given.prefix is None else given.prefix[[row]],
    )  # fmt: skip


def padded(ids: torch.Tensor, starts: tuple[int, int], side: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row from its start on, padding on one side, two columns more than needed, and the mask."""
    width = ids.shape[1] + 2
    out, mask = torch.full((2, width), PAD), torch.zeros(2, width, dtype=torch.long)
    for row, start in enumerate(starts):
        n = ids.shape[1] - start
        where = slice(width - n, width) if side == "left" else slice(0, n)
        out[row, where], mask[row, where] = ids[row, start:], 1
    return out, mask


def counts_columns(stack: spec.Side | spec.Decoder) -> bool:
    """Whether absolute positions are the columns, which padding on the left moves: as the kind says."""
    places = stack.embedding.positions
    return not isinstance(places, spec.NoPositions) and isinstance(places.counted, spec.ByColumn)


@pytest.mark.parametrize("side", ["left", "right"])
@SOME_FAST
def test_padded_is_unpadded(index, side):
    record = SPECS[index]
    if isinstance(record, spec.ImageEncoder):
        pytest.skip("images of one batch are of one size")
    if side == "left" and any(counts_columns(stack) for stack in spec.stacks(record).values()):
        side = "right"
    model, given = drawn(record), Inputs.of(record)
    ids, mask = padded(given.ids, (0, 3), side)
    both = replace(given, ids=ids, mask=mask)
    if given.source is not None:
        source, source_mask = padded(given.source, (0, 2), side)
        both = replace(both, source=source, source_mask=source_mask)
    with torch.no_grad():
        got = both.run(model)
        for row, alone in enumerate((one_row(given, 0), one_row(given, 1, 3, 2))):
            mine = got[row] if got.dim() == 2 else got[row][mask[row] == 1]
            assert close(mine, alone.run(model)[0]), row


@SOME_FAST
def test_batched_is_single(index):
    record = SPECS[index]
    model, given = drawn(record), Inputs.of(record)
    with torch.no_grad():
        both = given.run(model)
        for row in range(2):
            assert close(both[row], one_row(given, row).run(model)[0])


@SOME_FAST
def test_saved_is_loaded(index, tmp_path):
    record = SPECS[index]
    model, given = drawn(record), Inputs.of(record)
    native.save(model, tmp_path)
    again = open_checkpoint(tmp_path).load(torch.float64)
    assert again.spec == record and spec.load(tmp_path / native.SPEC) == record
    assert [name for name, _ in again.named_parameters()] == [name for name, _ in model.named_parameters()]
    with torch.no_grad():
        assert torch.equal(given.run(again), given.run(model))


@SOME_FAST
def test_removing_nothing_changes_nothing(index):
    record = SPECS[index]
    model, given = drawn(record), Inputs.of(record)
    with torch.no_grad():
        whole = given.run(model)
        assert torch.equal(given.run(transplant(model, record)), whole)
        with listening(model, lambda name, x: x.clone()):
            assert close(given.run(model), whole)


# Taps.


def norm_taps(path: str, norm: object) -> set[str]:
    return set() if isinstance(norm, spec.NoNorm) else {f"{path}.scale", f"{path}.normed"}


def attention_taps(path: str, part: spec.MultiHead | spec.Cross) -> set[str]:
    own = isinstance(part, spec.Cross) or part.share_kv == "none"
    names = {"q", "scores", "pattern", "z"} | ({"k", "v"} if own else set())
    if isinstance(part, spec.MultiHead):
        names |= {"q_rot"} | ({"k_rot"} if own else set()) | (set() if part.output_gate == "none" else {"gate"})
    found = {f"{path}.{name}" for name in names}
    if isinstance(part.qk_norm, spec.QKNorm):
        for name in ("q_norm", "k_norm") if own else ("q_norm",):
            found |= norm_taps(f"{path}.{name}", part.qk_norm.norm)
    return found


def part_taps(path: str, part: object) -> set[str]:
    match part:
        case spec.MultiHead() | spec.Cross():
            return attention_taps(path, part)
        case spec.Latent():
            names = ("q", "q_rot", "latent", "k_rot", "v", "scores", "pattern", "z")
            norms = {"kv_norm": part.kv_norm} | ({"q_norm": part.q_norm} if part.q_rank != "none" else {})
            inner = set().union(*(norm_taps(f"{path}.{name}", norm) for name, norm in norms.items()))
            return {f"{path}.{name}" for name in names} | inner
        case spec.Dense():
            return {f"{path}.pre", f"{path}.hidden"}
        case spec.Gated():
            return {f"{path}.pre", f"{path}.gate", f"{path}.hidden"}
        case spec.MixtureOfExperts():
            found = {f"{path}.router.{tap}" for tap in ("logits", "ranked", "weights")}
            for index in range(part.n_experts):
                found |= part_taps(f"{path}.experts.{index}", part.expert)
            shared = isinstance(part.shared, spec.SharedExpert)
            return found | (part_taps(f"{path}.shared", part.shared.expert) if shared else set())
    return set()


def block_taps(path: str, block: spec.Block) -> set[str]:
    names = {"resid_pre", "resid_post", *(f"resid.{n}" for n in range(len(block.stages)))}
    found = {f"{path}.{name}" for name in names | ({"resid_mid"} if len(block.stages) == 2 else set())}
    for stage in block.stages:
        first = f"{path}.{stage.branches[0].name}"
        found |= norm_taps(f"{first}.norm", stage.norm) | norm_taps(f"{first}.norm_sum", stage.norm_sum)
        for branch in stage.branches:
            at = f"{path}.{branch.name}"
            found |= {f"{at}.in", f"{at}.out", f"{at}.update"} | part_taps(at, branch.part)
            found |= norm_taps(f"{at}.norm_in", branch.norm_in) | norm_taps(f"{at}.norm_out", branch.norm_out)
    return found


def head_taps(head: object) -> set[str]:
    found = {"head.vectors"} if isinstance(head, spec.VectorHead) else {"head.logits"}
    inner = {"transform": head.transform}
    if isinstance(head, spec.VectorHead) and isinstance(head.pooler, spec.Transform):
        inner["pooler"] = head.pooler
    found |= {"head.pooled"} if isinstance(head, spec.ClassHead) or "pooler" in inner else set()
    for name, record in inner.items():
        found |= norm_taps(f"head.{name}.norm", record.norm) if isinstance(record, spec.Transform) else set()
    return found


def expected_taps(record: spec.Model) -> set[str]:
    found = head_taps(record.head)
    for prefix, stack in spec.stacks(record).items():
        first = "patches" if isinstance(record, spec.ImageEncoder) else "tokens"
        found |= {f"{prefix}positions", f"{prefix}embedded", f"{prefix}final", f"{prefix}embedding.{first}"}
        if not isinstance(stack.embedding.positions, spec.NoPositions):
            found.add(f"{prefix}embedding.position")
        found |= norm_taps(f"{prefix}embedding.norm", stack.embedding.norm)
        found |= norm_taps(f"{prefix}final_norm", stack.final_norm)
        for index, block in enumerate(stack.blocks):
            found |= block_taps(f"{prefix}blocks.{index}", block)
    return found


@SOME_FAST
def test_every_documented_tap_fires_and_no_other(index):
    record = SPECS[index]
    model, given, heard = drawn(record), Inputs.of(record), {}
    with torch.no_grad(), listening(model, lambda name, x: heard.update({name: x})):
        given.run(model)
    silent = expected_taps(record) - set(heard)
    assert set(heard) <= expected_taps(record)
    assert all(".experts." in name for name in silent), silent  # an expert that no token chose


@pytest.mark.parametrize("index", range(0, N, 24))
def test_what_is_heard_alone_is_what_is_heard_with_all_and_stays_so(index):
    """A fused path is left for any one of its taps, and nothing is written over a tensor that somebody keeps."""
    record = SPECS[index]
    model, given, kept, copies = drawn(record), Inputs.of(record), {}, {}

    def hear(name: str, x: torch.Tensor) -> None:
        kept[name], copies[name] = x, x.clone()

    with torch.no_grad(), listening(model, hear):
        given.run(model)
    assert all(torch.equal(x, copies[name]) for name, x in kept.items())
    for last in {name.rpartition(".")[2] for name in copies}:
        alone: dict[str, torch.Tensor] = {}
        with torch.no_grad(), listening(model, lambda name, x, alone=alone: alone.update({name: x}), f"*{last}"):
            given.run(model)
        wanted = {name for name in copies if name.endswith(last)}
        assert set(alone) == wanted
        for name in wanted:
            torch.testing.assert_close(alone[name], copies[name], rtol=1e-10, atol=1e-10)


def test_enough_of_every_kind():
    fast = set().union(*(spec.kinds_in(record) for record in SPECS[::EVERY]))
    assert spec.pairs.all_kinds() - fast == set()
    assert set().union(*(spec.pairs_in(record) for record in SPECS)) >= set(spec.legal_pairs())

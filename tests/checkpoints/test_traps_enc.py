"""Traps of encoders and encoder-decoders on the handed checkpoints: how near the right way is, the wrong how far."""

from __future__ import annotations

import pytest
import torch

from cutaway import spec
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import InputError
from cutaway.generation import Cache, generate
from cutaway.parts.embedding import position_vectors
from cutaway.parts.positions import t5_bucket
from cutaway.parts.step import Given
from tests.checkpoints.case import Case, as_spec, off, opened

PAIRS = ("t5-a", "t5-c-v11", "mt5-a", "bart-a", "marian-a", "m2m_100-a")


@torch.no_grad()
def off_pair(model, refs, key="full"):
    """As `off`, for a model of two stacks."""
    memory = model.encode(refs[f"{key}.ids"], Given(mask=refs.get(f"{key}.mask")))
    return float((model(refs[f"{key}.dec"], Given(memory=memory)) - refs[f"{key}.logits"]).abs().max())


def wrong(case: Case, kind, **changes) -> float:
    """How far off the case is once every record of a kind has other values."""
    change = lambda each: each.replace(**changes) if isinstance(each, kind) else each
    model = as_spec(case.model, spec.mapped(case.model.spec, change))
    return (off_pair if isinstance(case.model.spec, spec.EncoderDecoder) else off)(model, case.refs)


def test_trap_04_an_encoder_pads_on_either_side(shared):
    for name in ("roberta-a-mlm", "modernbert-a-mlm"):
        case = opened(shared, name)
        assert off(case.model, case.refs, "lpad") <= case.tolerance
        assert off(case.model, case.refs, "rpad") <= case.tolerance


def test_trap_09_learned_positions_with_an_offset(shared):
    """RoBERTa starts in the row after the pad id's, BART in row 2; from row 0 they are far off."""
    case = opened(shared, "roberta-a-mlm")
    assert case.model.spec.embedding.positions.offset == 2
    assert wrong(case, spec.Learned, n_positions=50, offset=0) > 1
    case = opened(shared, "bart-a")
    assert wrong(case, spec.Learned, n_positions=50, offset=0) > 0.1


def _position(embedding, step):
    return position_vectors(embedding.record.positions, embedding.positions, step, embedding.width)[0]


def test_trap_09_positions_come_from_the_ids_that_are_no_padding(shared):
    """Under a mask of ones a pad id inside a text takes the pad row, and what follows counts on as if it were not."""
    case = opened(shared, "roberta-a-mlm")
    with_pad, without = torch.tensor([[5, 6, 1, 7]]), torch.tensor([[5, 6, 7]])
    seen = []
    for ids in (with_pad, without):
        step = case.model.begin(ids, Given(mask=torch.ones_like(ids)), None)
        seen.append(_position(case.model.embedding, step))
    rows = case.model.embedding.positions.weight
    assert torch.equal(seen[0], rows[[2, 3, 1, 4]]) and torch.equal(seen[1], rows[[2, 3, 4]])
    model = open_checkpoint(shared / "cases" / "given" / "m2m_100-a" / "model").load().encoder
    step = model.begin(with_pad, Given(), None)
    waves = _position(model.embedding, step)
    assert torch.equal(waves[2], torch.zeros_like(waves[2]))  # a pad has no position here
    step = model.begin(without, Given(), None)
    assert torch.equal(waves[[0, 1, 3]], _position(model.embedding, step))


@pytest.mark.parametrize(("name", "length"), [("bert-a-mlm", 48), ("roberta-a-mlm", 48), ("distilbert-a-mlm", 48)])
def test_trap_10_going_past_the_last_learned_position(shared, name, length):
    model = opened(shared, name).model
    with torch.no_grad():
        model(torch.full((1, length), 5))
    with pytest.raises(InputError, match=f"the model's context is {length}"):
        model(torch.full((1, length + 1), 5))


def test_trap_10_a_decoder_ends_at_its_last_row(shared):
    model = opened(shared, "bart-a").model
    options = model.spec.generation.replace(stop_ids=(), max_tokens="context")
    result = generate(model, [[5, 6, 2]], options)
    assert len(result.ids[0]) == 47 and "context of 48" in str(result.reasons[0])  # the start id takes a row


@pytest.mark.parametrize(
    ("distance", "encoder", "decoder"),
    [
        (0, 0, 0), (-1, 1, 1), (-9, 8, 9), (-16, 10, 16), (-20, 10, 17), (-128, 15, 31), (1, 17, 0), (8, 24, 0),
        (128, 31, 0),
    ],
)  # fmt: skip
def test_trap_11_t5_relative_buckets(distance, encoder, decoder):
    """Key minus query; half of the buckets are for keys ahead in an encoder, none in a decoder."""
    both, past = spec.T5Buckets(bidirectional=True), spec.T5Buckets()
    assert int(t5_bucket(torch.tensor([distance]), both)) == encoder
    assert int(t5_bucket(torch.tensor([distance]), past)) == decoder


def test_trap_11_the_far_buckets_count(shared):
    """Sources are longer than the buckets for single distances, so another largest distance is off."""
    case = opened(shared, "t5-a")
    assert off_pair(case.model, case.refs) <= case.tolerance
    assert wrong(case, spec.T5Buckets, max_distance=128) > 100 * case.tolerance


def test_trap_12_local_attention_is_the_total_width(shared):
    """ModernBERT's 8 means 4 tokens to either side; 3 or 5 are far off."""
    case = opened(shared, "modernbert-a-mlm")
    masks = [block.branches[0].part.mask for block in case.model.spec.blocks]
    assert masks == [spec.FullMask(), spec.TwoSidedMask(half_width=4), spec.TwoSidedMask(half_width=4)]
    for width in (3, 5):
        assert wrong(case, spec.TwoSidedMask, half_width=width) > 0.1


def test_trap_14_a_source_of_padding_alone_is_finite_and_stays_alone(shared):
    case = opened(shared, "bart-a")
    source, target = torch.tensor([[5, 6, 2], [1, 1, 1]]), torch.tensor([[2, 7], [2, 7]])
    with torch.no_grad():
        memory = case.model.encode(source, Given(mask=torch.tensor([[1, 1, 1], [0, 0, 0]])))
        both = case.model(target, Given(memory=memory))
        alone = case.model(target[:1], Given(memory=case.model.encode(source[:1])))
    assert both.isfinite().all()
    assert (both[0] - alone[0]).abs().max() < 1e-5


@pytest.mark.parametrize("name", PAIRS)
def test_trap_17_cache_and_no_cache_agree_at_every_step(shared, name):
    """Also those of the cross-attention, which are made once; M2M-100 counts its positions on through the cache."""
    case = opened(shared, name)
    target = case.refs["full.dec"]
    with torch.no_grad():
        memory = case.model.encode(case.refs["full.ids"])
        whole = case.model(target, Given(memory=memory))
        cache = Cache(case.model.spec.decoder.blocks)
        pieces = [case.model(target[:, i : i + 1], Given(memory=memory), cache) for i in range(target.shape[1])]
    assert (torch.cat(pieces, 1) - whole).abs().max() <= case.tolerance
    assert (whole - case.refs["full.logits"]).abs().max() <= case.tolerance


def test_trap_20_t5_has_no_factor_on_the_scores(shared):
    case = opened(shared, "t5-c-v11")
    assert wrong(case, (spec.MultiHead, spec.Cross), scale="auto") > 1


@pytest.mark.parametrize(
    ("name", "eps"), [("bert-a-mlm", 1e-12), ("roberta-a-mlm", 1e-5), ("t5-a", 1e-6), ("bart-a", 1e-5)]
)
def test_trap_25_epsilon(shared, name, eps):
    record = opened(shared, name).model.spec
    found = set()
    spec.mapped(record, lambda each: found.add(each.eps) or each if hasattr(each, "eps") else each)
    assert found == {eps}


def test_trap_26_embedding_multipliers(shared):
    """Marian and M2M-100 scale by 8, this BART does not; T5 1.0 multiplies its output by 1/8, 1.1 does not."""
    for name, factor in (("marian-a", "sqrt_d_model"), ("m2m_100-a", "sqrt_d_model"), ("bart-a", 1.0)):
        case = opened(shared, name)
        assert {side.embedding.factor for side in (case.model.spec.encoder, case.model.spec.decoder)} == {factor}
        other = 1.0 if factor != 1.0 else "sqrt_d_model"
        assert wrong(case, spec.TokenEmbedding, factor=other) > 0.1
    assert opened(shared, "t5-a").model.spec.head.input_factor == "1/sqrt_d_model"
    assert opened(shared, "t5-c-v11").model.spec.head.input_factor == 1.0
    case = opened(shared, "t5-a")
    assert wrong(case, spec.LanguageHead, input_factor=1.0) > 7 * case.refs["full.logits"].abs().max() * 0.9


def test_trap_29_which_name_of_a_shared_table_survives_does_not_matter(shared, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shared / "cases" / "given" / "bart-a" / "model"
    for name in ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"):
        table = load_file(folder / "model.safetensors")
        table[name] = table.pop("model.shared.weight")
        save_file(table, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
        model = open_checkpoint(tmp_path).load()
        assert off_pair(model, opened(shared, "bart-a").refs) <= opened(shared, "bart-a").tolerance
        assert model.encoder.embedding.table is model.decoder.embedding.table is model.head.tied[0]


@pytest.mark.parametrize("name", ["t5-a", "mt5-a"])
def test_trap_35_bfloat16_files_upcast_exactly(shared, name):
    case = opened(shared, name)
    assert {parameter.dtype for parameter in case.model.parameters()} == {torch.float32}
    assert all(torch.equal(p, p.bfloat16().float()) for p in case.model.parameters())
    assert off_pair(case.model, case.refs) <= case.tolerance


def test_trap_the_target_is_shifted_right(shared):
    """A decoder begins with the start id and reads its own tokens: without it the first choice is another."""
    case = opened(shared, "bart-a")
    prompt, new = case.refs["gen1.prompt"].tolist(), case.refs["gen1.new"].tolist()
    options = case.model.spec.generation.replace(max_tokens=len(new))
    assert generate(case.model, [prompt], options).ids[0] == new
    assert generate(case.model, [prompt], options.replace(start_id=0)).ids[0] != new
    with pytest.raises(InputError, match="start_id: an encoder-decoder needs the id"):
        generate(case.model, [prompt], options.replace(start_id="none"))

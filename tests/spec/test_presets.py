"""The presets are the models they are named after."""

from __future__ import annotations

import pytest

from cutaway import spec
from cutaway.errors import SpecError
from cutaway.spec.presets import families

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama": 134_515_008,  # SmolLM2-135M
    "llama-360m": 361_821_120,
    "llama-7b": 6_738_415_616,
    "bert": 109_514_298,  # with the masked-token head
    "t5": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_weights_are_as_many_as_published(name):
    assert spec.count(spec.preset(name)).parameters == PUBLISHED[name]


def test_the_original_has_about_the_weights_of_its_paper():
    assert spec.count(spec.preset("original-2017-base")).parameters == pytest.approx(65e6, rel=0.05)
    assert spec.count(spec.preset("original-2017-big")).parameters == pytest.approx(213e6, rel=0.05)


@pytest.mark.parametrize("name", spec.names())
def test_every_preset_is_legal_named_and_survives_text(name):
    record = spec.preset(name)
    assert spec.problems(record) == []
    assert record.name == name
    assert spec.parse(spec.read(spec.to_toml(record), "toml")) == record
    assert len(spec.about(name)) > 20


def test_the_promised_presets_are_there_each_with_sizes_for_a_cpu():
    assert set(families()) == {
        "original-2017", "textbook", "course-gpt", "modern", "gpt2", "bert", "t5", "llama",
    }  # fmt: skip
    for family in families():
        assert spec.count(spec.preset(f"{family}-tiny")).parameters < 500_000
        assert spec.count(spec.preset(f"{family}-mini")).parameters < 15_000_000


PAIRS = {
    "original-2017": ("sinusoidal", "multi_head", "post", "encoder_decoder"),
    "textbook": ("sinusoidal", "multi_head", "pre", "decoder"),
    "course-gpt": ("learned", "multi_head", "pre", "decoder"),
    "modern": ("rope", "multi_head", "pre", "decoder"),
    "gpt2": ("learned", "multi_head", "pre", "decoder"),
    "bert": ("learned", "multi_head", "post", "encoder"),
    "t5": ("t5", "multi_head", "pre", "encoder_decoder"),
    "llama": ("rope", "multi_head", "pre", "decoder"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_each_has_the_kinds_it_stands_for(name):
    assert spec.pairs_in(spec.preset(name)) == {PAIRS[name]}


def part(record, name, stack=""):
    block = spec.stacks(record)[stack].blocks[0]
    return next(branch.part for branch in block.branches if branch.name == name)


def test_original_2017():
    record = spec.preset("original-2017")
    assert record.shared_embedding
    assert record.head.tied
    for side in (record.encoder, record.decoder):
        assert side.embedding.factor == "sqrt_d_model"
        assert side.embedding.positions == spec.Sinusoidal(layout="interleaved", frequencies="paper")
        assert isinstance(side.final_norm, spec.NoNorm)
    assert part(record, "ffn", "decoder.") == spec.Dense(d_ff=2048, activation="relu")
    assert part(record, "attn", "encoder.").mask == spec.FullMask()


def test_modern_keeps_the_weights_of_a_dense_network():
    dense, gated = spec.preset("textbook"), part(spec.preset("modern"), "ffn")
    assert gated.d_ff == spec.gated_d_ff(part(dense, "ffn").d_ff, 128, "up")
    assert part(spec.preset("modern"), "attn").positions.layout == "interleaved"
    assert part(spec.preset("llama"), "attn").positions.layout == "halves"


def test_bert():
    record = spec.preset("bert")
    assert record.embedding.n_token_types == 2
    assert record.embedding.positions.counted == spec.ByColumn()
    norm = spec.LayerNorm(eps=1e-12)
    assert record.head.transform == spec.Transform(activation="gelu", norm=norm)
    assert {stage.norm_sum for block in record.blocks for stage in block.stages} == {norm, record.embedding.norm}


def test_t5():
    record = spec.preset("t5")
    assert record.head.input_factor == "1/sqrt_d_model"
    assert record.generation.start_id == 0
    assert part(record, "attn", "encoder.").positions.bidirectional
    assert not part(record, "attn", "decoder.").positions.bidirectional
    assert {part(record, name, "decoder.").scale for name in ("attn", "cross")} == {1.0}
    assert not any(name.endswith("bias") for name in spec.weights(record))


def test_course_gpt_turns_modern():
    record = spec.set_values(spec.preset("course-gpt-tiny"), {"positions.kind": "rope"})
    assert spec.pairs_in(record) == {("rope", "multi_head", "pre", "decoder")}


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(SpecError, match="no preset is named 'gpt2-tny'; the nearest is 'gpt2-tiny'"):
        spec.preset("gpt2-tny")
    with pytest.raises(SpecError, match="there are bert, course-gpt"):
        spec.preset("??")

from __future__ import annotations

import numpy as np
import pytest

from cutaway import spec
from cutaway.errors import InputError
from cutaway.reference.models import NOTHING, Given, forward
from cutaway.reference.norms import layer_norm, rms_norm
from cutaway.reference.positions import sinusoidal
from cutaway.reference.weights import Weights

D, VOCAB = 8, 13
IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
Arrays = dict[str, np.ndarray]


def pre(part: object) -> spec.Stage:
    return spec.Stage.model_validate(
        {"branches": (spec.Branch.model_validate({"part": part, "norm_in": spec.RMSNorm()}),)}
    )


def decoder(*parts: object, kind: type = spec.Decoder, **changes: object) -> spec.Decoder:
    base = {"d_model": D, "vocab_size": VOCAB, "context_length": 64, "final_norm": spec.LayerNorm()}
    return kind.model_validate({**base, "layers": tuple(spec.Block(stages=(pre(part),)) for part in parts), **changes})


def attention_arrays(block: str = "blocks.0.attn", n: int = 2, head: int = 4) -> Arrays:
    rng = np.random.default_rng(len(block) + ord(block.rsplit(".", 2)[-2][-1]))
    shapes = {"q_proj": (n * head, D), "k_proj": (n * head, D), "v_proj": (n * head, D), "o_proj": (D, n * head)}
    arrays = {f"{block}.{name}.weight": rng.normal(size=shape) for name, shape in shapes.items()}
    return {**arrays, f"{block}.norm_in.weight": rng.normal(size=D)}


def frame(prefix: str = "", vocab: int = VOCAB) -> Arrays:
    rng = np.random.default_rng(5)
    return {
        f"{prefix}embedding.tokens.weight": rng.normal(size=(vocab, D)),
        f"{prefix}final_norm.weight": rng.normal(size=D), f"{prefix}final_norm.bias": rng.normal(size=D),
    }  # fmt: skip


ROPE = spec.MultiHead(n_heads=2, positions=spec.RoPE())
RECORD, ARRAYS = decoder(ROPE, ROPE), {**frame(), **attention_arrays(), **attention_arrays("blocks.1.attn")}


def test_a_model_of_no_blocks_by_hand() -> None:
    record = decoder(final_norm=spec.NoNorm(), embedding=spec.TokenEmbedding(factor="sqrt_d_model"))
    table = frame()["embedding.tokens.weight"]
    got = forward(record, {"embedding.tokens.weight": table}, IDS)
    np.testing.assert_allclose(got.output, 8**0.5 * table[IDS] @ table.T)


def test_every_state_has_the_name_of_its_tap() -> None:
    result = forward(RECORD, ARRAYS, IDS)
    assert list(result.states) == ["embedded", "blocks.0.resid_post", "blocks.1.resid_post", "final"]
    assert all(state.shape == (2, 5, D) for state in result.states.values())
    np.testing.assert_allclose(result.states["final"] @ ARRAYS["embedding.tokens.weight"].T, result.output)


def test_a_missing_or_foreign_weight_is_named() -> None:
    for gone in ARRAYS:
        with pytest.raises(InputError, match=f"no {gone}"):
            forward(RECORD, {name: array for name, array in ARRAYS.items() if name != gone}, IDS)
    with pytest.raises(InputError, match=r"no place for blocks\.2\.attn\.q_proj\.bias"):
        forward(RECORD, {**ARRAYS, "blocks.2.attn.q_proj.bias": np.zeros(8)}, IDS)


def test_weights_are_seen_from_under_a_prefix() -> None:
    weights = Weights({"a.b.weight": [1.0], "a.c": [2.0], "d": [3.0]})
    inner = weights.under("a")
    assert sorted(inner) == ["b.weight", "c"] and len(inner) == 2
    assert inner["c"] == 2 and inner.get("bias") is None and "d" not in inner
    assert weights.used == {"a.c"}


@pytest.mark.parametrize("ids", [[[13]], [[-1]]])
def test_ids_outside_the_vocabulary_are_refused(ids: list[list[int]]) -> None:
    with pytest.raises(InputError, match="vocabulary of 13"):
        forward(RECORD, ARRAYS, ids)


def test_an_empty_batch_and_a_row_of_padding_give_numbers() -> None:
    assert forward(RECORD, ARRAYS, np.zeros((0, 4), dtype=int)).output.shape == (0, 4, VOCAB)
    nothing = forward(RECORD, ARRAYS, IDS, Given(mask=np.zeros_like(IDS))).output
    assert np.isfinite(nothing).all()


POSITIONS = {
    "rope": spec.MultiHead(n_heads=2, positions=spec.RoPE(layout="halves")),
    "alibi": spec.MultiHead(n_heads=2, positions=spec.ALiBi()),
    "alibi_rounded": spec.MultiHead(n_heads=2, positions=spec.ALiBi(bfloat16=True)),
    "t5": spec.MultiHead(n_heads=2, positions=spec.T5Buckets(n_buckets=8, max_distance=10)),
    "dynamic": spec.MultiHead(
        n_heads=2, positions=spec.RoPE(scaling=spec.DynamicScaling(factor=2.0, original_length=3))
    ),
    "window": spec.MultiHead(n_heads=2, mask=spec.SlidingMask(window=2), positions=spec.RoPE()),
    "chunk": spec.MultiHead(n_heads=2, mask=spec.ChunkedMask(size=2)),
    "full": spec.MultiHead(n_heads=2, mask=spec.FullMask(), positions=spec.ALiBi()),
}


def table_of_biases(part: spec.MultiHead) -> Arrays:
    rng = np.random.default_rng(8)
    return {"relative_bias.weight": rng.normal(size=(8, 2))} if isinstance(part.positions, spec.T5Buckets) else {}


@pytest.mark.parametrize("name", POSITIONS)
def test_trap_padding_on_either_side_moves_nothing(name: str) -> None:
    part = POSITIONS[name]
    record, arrays = decoder(part, part), {**ARRAYS, **table_of_biases(part)}
    alone = forward(record, arrays, IDS[:1]).output[0]
    for left, right in ((3, 0), (0, 3), (1, 2)):
        ids = np.concatenate([np.full(left, 7), IDS[0], np.full(right, 7)])
        mask = np.r_[np.zeros(left, int), np.ones(5, int), np.zeros(right, int)]
        batch = np.stack([ids, np.full(8, 2)])
        got = forward(record, arrays, batch, Given(mask=np.stack([mask, np.ones(8, int)]))).output[0]
        np.testing.assert_allclose(got[mask == 1], alone, atol=1e-12)


@pytest.mark.parametrize("name", POSITIONS)
def test_documents_in_one_row_are_as_if_alone(name: str) -> None:
    part = POSITIONS[name]
    record, arrays = decoder(part, part), {**ARRAYS, **table_of_biases(part)}
    packed = forward(record, arrays, IDS.reshape(1, 10), Given(owners=[[4] * 5 + [2] * 5])).output[0]
    np.testing.assert_allclose(packed.reshape(2, 5, -1), forward(record, arrays, IDS).output, atol=1e-12)


def test_a_prefix_sees_itself_and_the_rest_is_causal() -> None:
    record = decoder(spec.MultiHead(n_heads=2, mask=spec.PrefixMask()), kind=spec.PrefixDecoder)
    arrays = {**frame(), **attention_arrays()}
    given = Given(prefix=np.array([3, 3]))
    before = forward(record, arrays, IDS, given).output
    for changed, moved in ((2, [0, 1, 2, 3, 4]), (3, [3, 4]), (4, [4])):
        ids = IDS.copy()
        ids[:, changed] = 8
        after = forward(record, arrays, ids, given).output
        assert [t for t in range(5) if np.abs(after[:, t] - before[:, t]).max() > 1e-9] == moved


def test_a_layer_may_read_the_keys_of_an_earlier_one() -> None:
    part = spec.MultiHead(n_heads=2, positions=spec.RoPE())
    record = decoder(part, part.model_copy(update={"share_kv": 0}))
    own = ("k_proj", "v_proj")
    arrays = {name: array for name, array in ARRAYS.items() if not (".1." in name and name.split(".")[3] in own)}
    shared = forward(record, arrays, IDS)
    silent = {**arrays, "blocks.0.attn.v_proj.weight": np.zeros((8, D))}
    quiet = forward(record, silent, IDS)
    np.testing.assert_array_equal(quiet.states["final"].shape, shared.states["final"].shape)
    np.testing.assert_array_equal(quiet.states["blocks.1.resid_post"], quiet.states["embedded"])


def test_a_row_of_padding_and_five_tokens_has_length_five_for_a_dynamic_rotation() -> None:
    part = POSITIONS["dynamic"]
    got = forward(decoder(part, part), ARRAYS, np.c_[IDS, [7, 7]], Given(mask=[[1, 1, 1, 1, 1, 0]] * 2)).output
    base = 1e4 * (2 * 5 / 3 - 1) ** (4 / 2)
    plain = spec.MultiHead(n_heads=2, positions=spec.RoPE(base=base))
    np.testing.assert_allclose(got[:, :5], forward(decoder(plain, plain), ARRAYS, IDS).output, rtol=1e-12)


def embedded(record: spec.TokenEmbedding, arrays: Arrays, given: Given = NOTHING) -> np.ndarray:
    model = decoder(embedding=record, final_norm=spec.NoNorm(), head=spec.VectorHead())
    return forward(model, {f"embedding.{name}": array for name, array in arrays.items()}, IDS, given).states["embedded"]


def test_embeddings_by_hand() -> None:
    rng = np.random.default_rng(3)
    table, narrow, types = rng.normal(size=(VOCAB, D)), rng.normal(size=(VOCAB, 3)), rng.normal(size=(2, D))
    matrix, bias = rng.normal(size=(D, 3)), rng.normal(size=D)
    of_types = np.array([[0, 1, 1, 0, 0]] * 2)
    both = spec.TokenEmbedding(factor=2.0, n_token_types=2, norm=spec.LayerNorm(gain=False, shift=False, eps=0.0))
    got = embedded(both, {"tokens.weight": table, "types.weight": types}, Given(types=of_types))
    np.testing.assert_allclose(got, layer_norm(2 * table[IDS] + types[of_types]))
    projected = {"tokens.weight": narrow, "projection.weight": matrix, "projection.bias": bias}
    waves = {width: sinusoidal(np.tile(np.arange(5), (2, 1)), width) for width in (3, D)}
    common = {"width": 3, "projection_bias": True, "positions": spec.Sinusoidal()}
    opt = embedded(spec.TokenEmbedding(projection="before_positions", **common), projected)
    np.testing.assert_allclose(opt, narrow[IDS] @ matrix.T + bias + waves[D])
    electra = embedded(spec.TokenEmbedding(projection="after_norm", **common), projected)
    np.testing.assert_allclose(electra, (narrow[IDS] + waves[3]) @ matrix.T + bias)


def test_trap_positions_from_ids_give_a_pad_its_own_row_which_is_zero_when_closed() -> None:
    counted, zeros = spec.FromIds(pad_id=1), {"tokens.weight": np.zeros((VOCAB, D))}
    rows = np.array([[2, 1, 3, 1, 4], [2, 3, 4, 5, 6]])  # IDS has the pad twice in its first row
    learned = spec.Learned(n_positions=8, offset=2, counted=counted)
    table = np.random.default_rng(4).normal(size=(10, D))
    got = embedded(spec.TokenEmbedding(positions=learned), {**zeros, "positions.weight": table})
    np.testing.assert_array_equal(got, table[rows])
    closed = spec.Sinusoidal(frequencies="closed", layout="halves", offset=2, counted=counted)
    waves = sinusoidal(rows, D, "halves", closed=True) * (rows != 1)[..., None]
    np.testing.assert_allclose(embedded(spec.TokenEmbedding(positions=closed), zeros), waves)
    column = spec.Sinusoidal(offset=1, counted=spec.ByColumn())
    got = embedded(spec.TokenEmbedding(positions=column), zeros, Given(mask=[[0, 0, 1, 1, 1]] * 2))
    np.testing.assert_allclose(got[0], sinusoidal(np.arange(1, 6), D))


def encoder_decoder(shared: bool) -> tuple[spec.EncoderDecoder, Arrays]:
    full = spec.MultiHead(n_heads=2, mask=spec.FullMask())
    side = {"context_length": 32, "final_norm": spec.LayerNorm()}
    encoder = spec.Side(vocab_size=VOCAB, layers=(spec.Block(stages=(pre(full),)),), **side)
    stages = (pre(spec.MultiHead(n_heads=2)), pre(spec.Cross(n_heads=2)))
    decoder_ = spec.Side(vocab_size=VOCAB if shared else 11, layers=(spec.Block(stages=stages),), **side)
    record = spec.EncoderDecoder(d_model=D, encoder=encoder, decoder=decoder_, shared_embedding=shared)
    arrays = {**frame("encoder."), **frame("decoder.", decoder_.vocab_size)}
    if shared:
        del arrays["decoder.embedding.tokens.weight"]
    for name in ("encoder.blocks.0.attn", "decoder.blocks.0.attn", "decoder.blocks.0.cross"):
        arrays |= attention_arrays(name)
    return record, arrays


@pytest.mark.parametrize("shared", [True, False])
def test_a_decoder_looks_at_the_real_tokens_of_its_source(shared: bool) -> None:
    record, arrays = encoder_decoder(shared)
    source = np.array([[1, 2, 3], [4, 5, 6]])
    alone = forward(record, arrays, IDS, Given(source=source))
    assert alone.output.shape == (2, 5, record.decoder.vocab_size)
    assert "encoder.blocks.0.resid_post" in alone.states and "decoder.final" in alone.states
    padded = np.c_[np.full((2, 2), 9), source]
    mask = np.c_[np.zeros((2, 2), int), np.ones((2, 3), int)]
    got = forward(record, arrays, IDS, Given(source=padded, source_mask=mask)).output
    np.testing.assert_allclose(got, alone.output, atol=1e-12)
    other = forward(record, arrays, IDS, Given(source=source[:, ::-1] * 0 + 7)).output
    assert np.abs(other - alone.output).max() > 1e-3
    with pytest.raises(InputError, match="source"):
        forward(record, arrays, IDS)


def test_the_balance_is_the_sum_over_layers_and_counts_real_tokens() -> None:
    moe = spec.MixtureOfExperts(n_experts=4, n_active=1, expert=spec.Dense(d_ff=3, up_bias=False), load_balance=0.5)
    record = decoder(moe, moe)
    arrays = frame()
    for i in range(2):
        arrays |= {f"blocks.{i}.ffn.router.weight": np.zeros((4, D)), f"blocks.{i}.ffn.norm_in.weight": np.ones(D)}
        for e in range(4):
            arrays[f"blocks.{i}.ffn.experts.{e}.up_proj.weight"] = np.ones((3, D))
            arrays[f"blocks.{i}.ffn.experts.{e}.down_proj.weight"] = np.ones((D, 3))
    even = forward(record, arrays, IDS, Given(mask=[[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])).balance
    assert abs(even - 2 * 0.5 * 1.0) < 1e-15  # even probabilities cost 1 a layer whoever is chosen
    assert forward(decoder(), frame(), IDS).balance == 0


def headed(head: object, given: Given = NOTHING, **arrays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The states (rows of the table, unnormalised) and what a head makes of them."""
    record = decoder(final_norm=spec.NoNorm(), head=head, kind=spec.Encoder)
    named = {name.replace("__", "."): array for name, array in arrays.items()}
    result = forward(record, {"embedding.tokens.weight": frame()["embedding.tokens.weight"], **named}, IDS, given)
    return result.states["final"], result.output


def test_heads_by_hand() -> None:
    rng = np.random.default_rng(6)
    dense, bias, out = rng.normal(size=(4, D)), rng.normal(size=4), rng.normal(size=(VOCAB, 4))
    language = spec.LanguageHead(
        tied=False, transform=spec.Transform(width=4, activation="tanh"), input_factor="1/sqrt_d_model",
        logit_factor=0.5, soft_cap=1.5,
    )  # fmt: skip
    h, got = headed(language, head__transform__dense__weight=dense, head__transform__dense__bias=bias, head__weight=out)
    expected = 1.5 * np.tanh(0.5 * (np.tanh(h / 8**0.5 @ dense.T + bias) @ out.T) / 1.5)
    np.testing.assert_allclose(got, expected, rtol=1e-13)
    shift = rng.normal(size=VOCAB)
    h, got = headed(spec.MaskedHead(), head__bias=shift)
    np.testing.assert_allclose(got, h @ frame()["embedding.tokens.weight"].T + shift)


def test_pools_by_hand() -> None:
    given = Given(mask=[[0, 1, 1, 1, 0], [1, 1, 1, 1, 1]])  # IDS holds 5 last at columns 4 and 3
    h, first = headed(spec.VectorHead(pool="first"), given)
    np.testing.assert_array_equal(first, h[[0, 1], [1, 0]])
    np.testing.assert_array_equal(headed(spec.VectorHead(pool="last"), given)[1], h[[0, 1], [3, 4]])
    np.testing.assert_array_equal(headed(spec.VectorHead(pool="eos", eos_id=5))[1], h[[0, 1], [4, 3]])
    np.testing.assert_allclose(headed(spec.VectorHead(pool="mean"), given)[1], [h[0, 1:4].mean(0), h[1].mean(0)])
    np.testing.assert_array_equal(headed(spec.VectorHead(), given)[1], h)
    unit = headed(spec.VectorHead(pool="mean", normalise=True), given)[1]
    np.testing.assert_allclose(np.linalg.norm(unit, axis=-1), 1)
    with pytest.raises(InputError, match="pool eos"):
        headed(spec.VectorHead(pool="eos", eos_id=12))
    matrix = np.random.default_rng(7).normal(size=(3, D))
    classes = spec.ClassHead(n_classes=3, pool="last", bias=False)
    np.testing.assert_allclose(headed(classes, given, head__projection__weight=matrix)[1], h[[0, 1], [3, 4]] @ matrix.T)


@pytest.mark.parametrize("gated", [False, True])
def test_a_shared_expert_joins_the_routed_ones(gated: bool) -> None:
    expert = spec.Dense(d_ff=3, activation="identity", up_bias=False, down_bias=False)
    shared = spec.SharedExpert(expert=expert, gated=gated)
    moe = spec.MixtureOfExperts(n_experts=2, n_active=1, expert=expert, shared=shared)
    record = decoder(moe, final_norm=spec.NoNorm(), head=spec.VectorHead())
    rng, table = np.random.default_rng(9), frame()["embedding.tokens.weight"]
    ups, downs = rng.normal(size=(3, 3, D)), rng.normal(size=(3, D, 3))
    arrays = {"router.weight": np.zeros((2, D)), "router.bias": [0.0, 1.0], "norm_in.weight": np.ones(D)}
    arrays |= {"shared_gate.weight": np.zeros((1, D))} if gated else {}
    for name, up, down in zip(("experts.0", "experts.1", "shared"), ups, downs, strict=True):
        arrays |= {f"{name}.up_proj.weight": up, f"{name}.down_proj.weight": down}
    named = {f"blocks.0.ffn.{name}": array for name, array in arrays.items()}
    got = forward(record, {"embedding.tokens.weight": table, **named}, IDS).output
    h = rms_norm(table[IDS], eps=1e-6)
    of_shared = h @ ups[2].T @ downs[2].T * (0.5 if gated else 1.0)
    np.testing.assert_allclose(got, table[IDS] + h @ ups[1].T @ downs[1].T + of_shared, rtol=1e-12)


def test_positions_beyond_a_learned_table_are_refused() -> None:
    record = decoder(embedding=spec.TokenEmbedding(positions=spec.Learned(n_positions=4)))
    arrays = {**frame(), "embedding.positions.weight": np.ones((4, D))}
    with pytest.raises(InputError, match="position table"):
        forward(record, arrays, IDS)
    assert forward(record, arrays, IDS[:, :4]).output.shape == (2, 4, VOCAB)

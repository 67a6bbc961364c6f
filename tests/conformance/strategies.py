"""Small valid specs of every kind, built by construction: nothing drawn is thrown away.

One `Maker` builds them all and asks `pick` for each choice, so that Hypothesis can draw and shrink them (`any_spec`,
`spec_for`) and a seeded generator can list them (`random_specs`: every legal pair in turn, the same list each run).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from cutaway import spec as s
from cutaway.spec.checks import MASKS
from cutaway.spec.pairs import PLACEMENTS, POSITIONS, RELATIVE, Pair, legal_pairs
from cutaway.spec.part_checks import divisors
from tests.conformance.images import images

EOS = 2  # a row must hold this id where a model pools at its end token
PAD = 1  # what positions counted from ids leave out
ACTIVATIONS = ("relu", "relu2", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh", "sigmoid", "identity")


def any_spec() -> st.SearchStrategy[s.Model]:
    """A valid spec: width 8 to 24, one to three layers, 11 to 23 ids."""
    return st.sampled_from(legal_pairs()).flatmap(spec_for)


@st.composite
def spec_for(draw: Any, pair: Pair) -> s.Model:
    """A valid spec that has the given pair."""
    return Maker(lambda options: draw(st.sampled_from(options))).model(pair)


def random_specs(n: int, seed: int = 0) -> Iterator[s.Model]:
    """n specs, each legal pair in turn."""
    pairs = legal_pairs()
    for index in range(n):
        yield Maker(random.Random(f"{seed} {index}").choice).model(pairs[index % len(pairs)])


class Maker:
    """Builds one spec; `pick` takes one of several options, the simplest first."""

    def __init__(self, pick: Callable[[Sequence[Any]], Any]) -> None:
        self.pick = pick
        self.d_model = self.context = 0
        self.role = "decoder"
        self.crosses = False
        self.buckets: tuple[s.T5Buckets, int] | None = None

    def one_in(self, n: int) -> bool:
        return self.pick((False,) * (n - 1) + (True,))

    # Models

    def model(self, pair: Pair) -> s.Model:
        self.d_model = self.pick((8, 12, 16, 24, 9, 15, 20))
        common: dict[str, Any] = {
            "d_model": self.d_model, "name": self.pick(("", "a \"name\"\n\\ of é", "plain")),
            "dropout": self.pick((s.Dropout(), s.Dropout(embedding=0.1, attention=0.25, residual=1e-3, hidden=0.5))),
        }  # fmt: skip
        if pair.model != "encoder_decoder":
            if pair.model == "encoder" and self.one_in(4):
                return images(self, pair, common)
            stack = self.stack(pair, pair.model)
            record = {"decoder": s.Decoder, "prefix": s.PrefixDecoder, "encoder": s.Encoder}[pair.model]
            head = self.head(pair.model, stack["embedding"], stack["vocab_size"])
            return record(**common, **stack, head=head, generation=self.generation(stack["vocab_size"]))
        encoder, decoder = s.Side(**self.stack(pair, "encoder")), s.Side(**self.stack(pair, "decoder", crosses=True))
        alike = [(side.vocab_size, s.table_width(side.embedding, self.d_model)) for side in (encoder, decoder)]
        return s.EncoderDecoder(
            **common, encoder=encoder, decoder=decoder,
            shared_embedding=alike[0] == alike[1] and self.pick((True, True, False)),
            head=self.head(pair.model, decoder.embedding, decoder.vocab_size),
            generation=self.generation(decoder.vocab_size),
        )  # fmt: skip

    def stack(self, pair: Pair, role: str, crosses: bool = False) -> dict[str, Any]:
        self.role, self.crosses, self.buckets = role, crosses, None
        relative = pair.positions in RELATIVE
        absolute = pair.positions if not relative else self.pick(("none",) * 5 + ("sinusoidal", "learned"))
        self.context = self.pick((24, 32))
        unlimited = absolute != "learned" and self.one_in(4)
        blocks = [self.block(pair, self.relative(pair, first=True))]
        for _ in range(self.pick((0, 1, 2))):
            blocks.append(self.next_block(pair, blocks))
        layers: list[Any] = list(blocks)
        if len(layers) < 3 and self.one_in(3):
            layers[-1] = s.Repeat(times=2 if len(layers) == 2 else self.pick((2, 3)), blocks=(layers[-1],))
        return {
            "vocab_size": self.pick((11, 17, 23)), "context_length": "unlimited" if unlimited else self.context,
            "embedding": self.embedding(absolute), "layers": tuple(layers), "final_norm": self.norm(none=True),
        }  # fmt: skip

    # Blocks

    def next_block(self, pair: Pair, blocks: list[s.Block]) -> s.Block:
        """One more layer: like the pair, or of another kind that may stand beside it."""
        lenders = [(n, part) for n, block in enumerate(blocks) for part in _own_keys(block)]
        if lenders and self.pick((True, False)):
            layer, lender = self.pick(lenders)
            borrowed = lender.replace(
                share_kv=layer, k_bias=False, v_bias=False, q_bias=self.pick((False, True)), sinks=self.one_in(4)
            )
            return self.block_of(borrowed, self.pick(PLACEMENTS))
        if self.one_in(3):
            attention = self.pick([kind for kind in POSITIONS if kind == "multi_head" or kind == pair.attention])
            pair = pair._replace(attention=attention, placement=self.pick(PLACEMENTS))
        return self.block(pair, self.relative(pair, first=False))

    def relative(self, pair: Pair, first: bool) -> str:
        """The kind of relative positions of a layer; the first one has the pair's."""
        if pair.attention == "no_attn":
            return "none"
        if pair.positions in RELATIVE:
            return pair.positions if first else self.pick((pair.positions, pair.positions, "none"))
        if pair.positions == "none":
            return "none"
        return self.pick(("none", "none", "none", "rope", "rope", "alibi", "t5"))

    def block(self, pair: Pair, relative: str) -> s.Block:
        attention = s.NoAttention()
        if pair.attention == "multi_head":
            attention = self.multi_head(relative)
        elif pair.attention == "latent":
            attention = self.latent(relative)
        return self.block_of(attention, pair.placement)

    def block_of(self, attention: Any, placement: str) -> s.Block:
        parts = [attention, self.feed_forward()]
        if self.crosses and not self.one_in(8):
            parts.insert(1, s.NoCross() if self.one_in(5) else self.cross())
        if not placement.startswith("parallel"):
            return s.Block(stages=tuple(self.stage([part], placement) for part in parts))
        if len(parts) == 3 and self.pick((True, False)):
            return s.Block(stages=(self.stage(parts[::2], placement), self.stage([parts[1]], "pre")))
        return s.Block(stages=(self.stage(parts, placement),))

    def stage(self, parts: list[Any], placement: str) -> s.Stage:
        shared = placement == "parallel_shared" or (placement in ("pre", "sandwich") and self.one_in(4))
        branch: dict[str, Any] = {}
        if placement in ("pre", "sandwich", "parallel_own") and not shared:
            branch["norm_in"] = self.norm()
        if placement in ("sandwich", "output"):
            branch["norm_out"] = self.norm()
        around = {"norm": self.norm()} if shared else {}
        if placement == "post":
            around["norm_sum"] = self.norm()
        branches = tuple(s.Branch(part=part, **branch) for part in parts)
        return s.Stage(branches=branches, **around, residual=self.residual("norm_in" not in branch))

    def residual(self, may_be_normed: bool) -> Any:
        if self.one_in(10):
            return s.NoResidual()
        skip = "normed" if may_be_normed and self.one_in(3) else "x"
        return s.Add(scale=self.pick((1.0, 1.0, 0.5, "scalar", "channel")), skip=skip)

    def norm(self, none: bool = False) -> Any:
        kind = self.pick(("layernorm", "rmsnorm", "none") if none else ("layernorm", "rmsnorm"))
        if kind == "layernorm":
            return s.LayerNorm(eps=self.pick((1e-5, 1e-12, 3e-3)), gain=not self.one_in(4), shift=not self.one_in(4))
        if kind == "rmsnorm":
            return s.RMSNorm(eps=self.pick((1e-6, 2e-3)), gain=self.pick(("plain", "one_plus", "none")))
        return s.NoNorm()

    # Attention

    def multi_head(self, relative: str) -> s.MultiHead:
        heads = self.heads(even=relative == "rope")
        if relative == "t5" and self.buckets is not None:
            heads |= {"n_heads": self.buckets[1], "n_kv_heads": "n_heads", "head_dim": 4}
        n = s.sizes(s.MultiHead(**heads), self.d_model)
        return s.MultiHead(
            **heads, mask=self.mask(), positions=self.positions(relative, n.head_dim, n.n_heads),
            clip=self.pick(("none", "none", "none", 0.5)), sinks=self.one_in(4),
            output_gate=self.pick(("none", "none", "per_head", "per_element")),
            **self.projections(), **self.scoring(),
        )  # fmt: skip

    def cross(self) -> s.Cross:
        return s.Cross(**self.heads(), **self.projections(), **self.scoring())

    def heads(self, even: bool = False) -> dict[str, Any]:
        """Heads that share d_model, or a width of their own; `even`: at least two numbers a head."""
        least = 2 if even else 1
        if self.pick((True, False)):
            n_heads = self.pick([n for n in divisors(self.d_model) if n <= 6 and self.d_model // n >= least])
            head_dim: Any = "auto"
        else:
            n_heads, head_dim = self.pick((1, 2, 3, 4, 6)), self.pick((2, 4, 3, 6))
        return {
            "n_heads": n_heads, "n_kv_heads": self.pick(("n_heads", *divisors(n_heads))), "head_dim": head_dim,
            "value_dim": self.pick(("head_dim", "head_dim", 3, 5)),
        }  # fmt: skip

    def projections(self) -> dict[str, bool]:
        return {f"{name}_bias": self.pick((False, True)) for name in "qkvo"}

    def scoring(self) -> dict[str, Any]:
        over = self.pick(("head", "width"))
        gain = self.pick(("shared", "per_head")) if over == "head" else "shared"
        qk_norm = s.QKNorm(norm=self.norm(), over=over, gain=gain) if self.one_in(3) else s.NoQKNorm()
        return {
            "scale": self.pick(("auto", "auto", 0.3)), "qk_norm": qk_norm,
            "soft_cap": self.pick(("none", "none", "none", 1.5)),
        }  # fmt: skip

    def latent(self, relative: str) -> s.Latent:
        n_heads, rope_dim = self.pick((1, 2, 3)), self.pick((2, 4) if relative == "rope" else (2, 3))
        if relative == "t5" and self.buckets is not None:
            n_heads = self.buckets[1]
        return s.Latent(
            n_heads=n_heads, q_rank=self.pick(("none", 5)), kv_rank=self.pick((4, 6)), nope_dim=self.pick((1, 3, 4)),
            rope_dim=rope_dim, value_dim=self.pick((2, 5)), mask=self.mask(),
            positions=self.positions(relative, rope_dim, n_heads), scale=self.pick(("auto", 0.3)),
            q_norm=self.norm(none=True), kv_norm=self.norm(none=True),
            down_bias=self.pick((False, True)), o_bias=self.pick((False, True)),
        )  # fmt: skip

    def mask(self) -> Any:
        """Any mask that the stack may have, what it usually has more often."""
        usual = {"decoder": "causal", "prefix": "prefix", "encoder": "full"}[self.role]
        kind = self.pick((usual,) * 3 + MASKS[self.role])
        if kind == "sliding":
            return s.SlidingMask(window=self.pick((3, 1, 4)))
        if kind == "two_sided":
            return s.TwoSidedMask(half_width=self.pick((2, 0, 1)))
        if kind == "chunked":
            return s.ChunkedMask(size=self.pick((4, 1, 3)))
        return {"full": s.FullMask, "causal": s.CausalMask, "prefix": s.PrefixMask}[kind]()

    # Positions

    def positions(self, kind: str, width: int, n_heads: int) -> Any:
        if kind == "rope":
            return self.rope(width)
        if kind == "alibi":
            return s.ALiBi(
                max_bias=self.pick((8.0, 4.0)), factor=self.pick((1.0, 0.5)), bfloat16=self.pick((False, False, True))
            )
        if kind == "t5":
            if self.buckets is None:
                both = self.pick((self.role == "encoder", False))
                record = s.T5Buckets(
                    n_buckets=self.pick((8, 5)), max_distance=self.pick((10, 6)), bidirectional=both
                )  # fmt: skip
                self.buckets = record, n_heads
            return self.buckets[0]
        return s.NoPositions()

    def rope(self, width: int) -> s.RoPE:
        rotary = self.pick(range(2, width + 1, 2))
        whole = width % 2 == 0 and self.pick((True, False))
        return s.RoPE(
            base=self.pick((10000.0, 100.0, 5e5)), rotary_dim="head" if whole else rotary,
            layout=self.pick(("interleaved", "halves")), scaling=self.scaling((width if whole else rotary) // 2),
        )  # fmt: skip

    def scaling(self, pairs: int) -> Any:
        kind = self.pick(("none", "linear", "dynamic", "yarn", "llama3", "longrope"))
        original, factor = self.pick((8, 4)), self.pick((4.0, 2.5))
        if kind == "linear":
            return s.LinearScaling(factor=factor)
        if kind == "dynamic":
            return s.DynamicScaling(factor=factor, original_length=original)
        if kind == "yarn":
            mscale = self.pick((0.0, 0.7))
            return s.YarnScaling(
                factor=factor, original_length=original, attention_factor=self.pick(("auto", 1.2)), beta_fast=8.0,
                beta_slow=0.5, truncate=self.pick((True, False)), mscale=mscale, mscale_all_dim=self.pick((0.0, 0.4)),
            )  # fmt: skip
        if kind == "llama3":
            return s.Llama3Scaling(factor=factor, original_length=original)
        if kind == "longrope":
            return s.LongRopeScaling(
                short_factors=tuple(1.0 + 0.1 * n for n in range(pairs)),
                long_factors=tuple(2.0 + n for n in range(pairs)), original_length=original,
                factor=factor, attention_factor=self.pick(("auto", 1.1)),
            )  # fmt: skip
        return s.NoScaling()

    def embedding(self, absolute: str) -> s.TokenEmbedding:
        projection = self.pick(("none", "none", "none", "before_positions", "after_norm"))
        width = "d_model" if projection == "none" else self.pick((6, 5, "d_model"))
        record = s.TokenEmbedding(
            width=width, projection=projection, projection_bias=projection != "none" and self.pick((False, True)),
            factor=self.pick((1.0, "sqrt_d_model", 0.7)), n_token_types=self.pick((0, 0, 2)),
            norm=self.pick((s.NoNorm(), self.norm())),
        )  # fmt: skip
        return record.replace(positions=self.absolute(absolute, s.inner_width(record, self.d_model)))

    def absolute(self, kind: str, width: int) -> Any:
        counted = self.pick((s.FromMask(), s.ByColumn(), s.FromIds(pad_id=PAD)))
        offset = self.pick((0, 2))
        if kind == "sinusoidal":
            frequencies = self.pick(("paper", "closed") if width % 2 == 0 else ("paper",))
            return s.Sinusoidal(
                layout=self.pick(("interleaved", "halves")), frequencies=frequencies, base=self.pick((10000.0, 50.0)),
                offset=offset, counted=counted,
            )  # fmt: skip
        if kind == "learned":
            return s.Learned(n_positions=self.context + self.pick((0, 3)), offset=offset, counted=counted)
        return s.NoPositions()

    # Feed-forward

    def feed_forward(self) -> Any:
        kind = self.pick(("dense", "gated", "dense", "gated", "moe", "moe", "no_ffn"))
        if kind == "no_ffn":
            return s.NoFeedForward()
        return self.mixture() if kind == "moe" else self.expert(kind)

    def expert(self, kind: str) -> Any:
        d_ff, biases = self.pick((6, 11)), {name: self.pick((False, True)) for name in ("up_bias", "down_bias")}
        activation = self.pick(ACTIVATIONS)
        if kind == "dense":
            return s.Dense(d_ff=d_ff, activation=activation, **biases)
        activation = self.pick(("silu", activation, "removed"))
        return s.Gated(
            d_ff=d_ff, activation=activation, **biases, gate_bias=self.pick((False, True)),
            clamp=self.pick(("none", 0.5)), alpha=self.pick((1.0, 1.702)) if activation == "silu" else 1.0,
            up_offset=self.pick((0.0, 1.0)),
        )  # fmt: skip

    def mixture(self) -> s.MixtureOfExperts:
        n_experts = self.pick((2, 4, 6))
        n_groups = self.pick(divisors(n_experts))
        size, n_active_groups = n_experts // n_groups, self.pick(range(1, n_groups + 1))
        router = s.Router(
            score=self.pick(("softmax", "sigmoid", "softmax_after")), normalise=self.pick((True, False)),
            factor=self.pick((1.0, 2.5)), bias=self.pick((False, True)), choice_bias=self.pick((False, True)),
            n_groups=n_groups, n_active_groups=n_active_groups,
            group_score=self.pick(("max", "top2") if size >= 2 else ("max",)),
        )  # fmt: skip
        shared: Any = s.NoSharedExpert()
        if self.pick((False, True)):
            shared = s.SharedExpert(expert=self.expert(self.pick(("dense", "gated"))), gated=self.pick((False, True)))
        return s.MixtureOfExperts(
            n_experts=n_experts, n_active=self.pick(range(1, n_active_groups * size + 1)), router=router,
            expert=self.expert(self.pick(("dense", "gated"))), shared=shared, load_balance=self.pick((0.0, 0.01)),
        )  # fmt: skip

    # Heads and decoding

    def head(self, model: str, embedding: s.TokenEmbedding, vocab_size: int) -> Any:
        tokens = "masked" if model == "encoder" else "language"
        kind = self.pick((tokens, tokens, tokens, "classes", "vectors"))
        if kind != tokens:
            return self.pooling(kind, ("first", "mean", "last", "eos", "none"))
        fields: dict[str, Any] = {
            "transform": self.transform(), "bias": self.pick((False, True)), "logit_factor": self.pick((1.0, 0.5)),
            "tied": False,
        }  # fmt: skip
        if kind == "language":
            fields["input_factor"] = self.pick((1.0, "1/sqrt_d_model", 0.5))
            fields["soft_cap"] = self.pick(("none", 2.0))
        head = s.MaskedHead(**fields) if kind == "masked" else s.LanguageHead(**fields)
        fits = s.head_width(head, self.d_model) == s.table_width(embedding, self.d_model)
        return head.replace(tied=fits and self.pick((True, True, False)))

    def transform(self) -> Any:
        if not self.one_in(3):
            return s.NoTransform()
        return s.Transform(
            width=self.pick(("d_model", 5, 6)), activation=self.pick(ACTIVATIONS), bias=self.pick((True, False)),
            norm=self.norm(none=True),
        )  # fmt: skip

    def pooling(self, kind: str, pools: tuple[str, ...]) -> Any:
        pooled = {"pool": self.pick(pools), "eos_id": EOS, "transform": self.transform()}
        if kind == "classes":
            n_classes = self.pick((3, 1))
            return s.ClassHead(
                **pooled, n_classes=n_classes, bias=self.pick((True, False)),
                labels=self.pick(((), ("no", "maybe", "yes")[:n_classes])),
                problem=self.pick(("single_label", "multi_label", "regression")),
            )  # fmt: skip
        pooler = self.pick((s.NoTransform(), s.Transform(width=4, activation="tanh", norm=s.LayerNorm())))
        return s.VectorHead(**pooled, normalise=self.pick((False, True)), pooler=pooler)

    def generation(self, vocab_size: int) -> s.Generation:
        some_id = self.pick(range(vocab_size))
        full = s.Generation(
            temperature=0.7, top_k=3, top_p=0.9, min_p=1e-3, repetition_penalty=1.1, presence_penalty=-0.25, n_beams=2,
            length_penalty=0.6, max_tokens=5, min_tokens=2, no_repeat_ngram_size=3, stop_ids=(some_id,), stop_strings=("\n\n", "\u2028é"), start_id=some_id, early_stopping=True,  # noqa: E501
            forced_ids=(some_id, 0), end_forced_id=some_id, suppressed_ids=(0,), pad_id=PAD,
        )  # fmt: skip
        return self.pick((s.Generation(stop_ids=(some_id,)), full))


def _own_keys(block: s.Block) -> list[s.MultiHead]:
    """The attention of a block that has keys and values of its own to lend."""
    parts = [branch.part for branch in block.branches]
    return [part for part in parts if isinstance(part, s.MultiHead) and part.share_kv == "none"]

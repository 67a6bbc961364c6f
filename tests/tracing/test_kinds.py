"""Every explanation of every kind of model: numbers, or one line that says why there are none."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from cutaway import preset, spec
from cutaway.errors import InputError
from cutaway.models import EncoderDecoder, Transformer
from cutaway.tracing.attribution import attribute
from cutaway.tracing.gradients import integrated_gradients
from cutaway.tracing.heads import attention, entropy, head_scores, patterns, rollout
from cutaway.tracing.lens import logit_lens, next_token_losses, stream_sizes
from cutaway.tracing.neurons import top_activations
from cutaway.tracing.numerics import errors, watch
from cutaway.tracing.patching import Question, patch_sweep
from cutaway.tracing.paths import Receiver, path_sweep
from cutaway.tracing.prompt import Prompt
from cutaway.tracing.record import record
from cutaway.tracing.tuned import tune
from tests.conformance.models import drawn, images_for
from tests.tracing.test_knock_out import mixture

A, B, SOURCE = torch.tensor([[5, 3, 9, 1, 7]]), torch.tensor([[5, 8, 9, 2, 7]]), torch.tensor([[4, 8, 15]])
QUESTION = Question(11, 20)
NO_SUM, NO_LOGITS, NO_CROSS = "no sum of parts", "logits of tokens", "no cross attention"


def block(*parts):
    return spec.Block(stages=tuple(spec.Stage(branches=(spec.Branch(part=p, norm_in=spec.RMSNorm()),)) for p in parts))


def decoder(*blocks, kind=spec.Decoder):
    return kind(d_model=16, vocab_size=32, context_length=16, layers=blocks)


def prefix():
    attn = spec.MultiHead(n_heads=4, n_kv_heads=2, mask=spec.PrefixMask())
    return decoder(*[block(attn, spec.Gated(d_ff=12))] * 2, kind=spec.PrefixDecoder)


def two_stacks():
    """An encoder-decoder whose decoder has latent attention and experts."""
    whole, (latent, experts) = preset("t5-tiny"), (branch.part for branch in mixture().blocks[0].branches)
    cross = whole.decoder.blocks[0].branches[1].part
    layers = (block(latent, cross, experts),) * 2
    return whole.replace(decoder=whole.decoder.replace(layers=layers))


def classes():
    return preset("bert-tiny").replace(head=spec.ClassHead(n_classes=3, pool="first"))


RECORDS = {
    "latent attention and experts": mixture, "prefix": prefix, "two stacks with both": two_stacks,
    "norms on the sum": lambda: preset("original-2017-tiny"), "classes": classes,
}  # fmt: skip
ONE = ("latent attention and experts", "prefix", "classes")
REFUSED = {
    "lens": {"classes": NO_LOGITS},
    "tuned": {"classes": NO_LOGITS},
    "loss": {"classes": "next token"},
    "cross": dict.fromkeys(ONE, NO_CROSS),
    "attribution": {"classes": NO_LOGITS, "norms on the sum": NO_SUM},
    "by head": {"classes": NO_LOGITS, "norms on the sum": NO_SUM},
    "by neuron": {"classes": NO_LOGITS, "norms on the sum": NO_SUM, "latent attention and experts": "split by neuron",
                  "two stacks with both": "split by neuron"},
    "patch": {"classes": NO_LOGITS},
    "patch cross": dict.fromkeys(ONE, "has no cross-attention"),
    "paths": {"classes": NO_LOGITS},
    "paths to k": {"classes": NO_LOGITS},
    "gradients": {"classes": NO_LOGITS},
    "neuron": dict.fromkeys(("latent attention and experts", "two stacks with both"), "the layer has experts"),
}  # fmt: skip


@dataclass
class Asked:
    """A model, and the two prompts that it reads."""

    model: Transformer
    clean: Prompt
    corrupted: Prompt

    def sizes(self):
        with record(self.model, "*blocks.*.resid_post", "*blocks.*.update") as run:
            self.clean.run(self.model)
        return torch.tensor([row[1:] for row in stream_sizes(run).rows])

    def ranges(self):
        with watch(self.model) as found:
            self.clean.run(self.model)
        return torch.tensor([each.largest for each in found.ranges.values()])

    def attribution(self, by="branch"):
        return attribute(self.model, self.clean, 11, by=by).values

    def patch(self, what):
        return patch_sweep(self.model, self.clean, self.corrupted, QUESTION, what).effects

    def paths(self, to):
        return path_sweep(self.model, self.clean, self.corrupted, QUESTION, Receiver.parse(to)).effects


EXPLAINED = {
    "lens": lambda a: logit_lens(a.model, a.clean).log_probabilities,
    "tuned": lambda a: tune(a.model, [a.clean, a.corrupted, a.clean], 2).after,
    "loss": lambda a: next_token_losses(a.model, a.clean),
    "sizes": Asked.sizes,
    "attention": lambda a: attention(a.model, a.clean, 1, 1).values,
    "cross": lambda a: attention(a.model, a.clean, 1, 1, "cross").values,
    "heads": lambda a: torch.stack(list(head_scores(a.model, n_tokens=4, n_rows=1).scores.values())),
    "rollout": lambda a: rollout(patterns(a.model, a.clean)),
    "entropy": lambda a: entropy(patterns(a.model, a.clean)),
    "attribution": Asked.attribution,
    "by head": lambda a: a.attribution("head"),
    "by neuron": lambda a: a.attribution("neuron"),
    "patch": lambda a: torch.cat([a.patch(what).flatten() for what in ("stream", "attn", "ffn", "head")]),
    "patch cross": lambda a: a.patch("cross"),
    "paths": lambda a: torch.cat([a.paths(to).flatten() for to in ("logits", "1", "1.1.q", "1.1.v")]),
    "paths to k": lambda a: a.paths("1.1.k"),
    "gradients": lambda a: integrated_gradients(a.model, a.clean, QUESTION, most=16).values,
    "neuron": lambda a: torch.tensor(
        [hit.value for hit in top_activations(a.model, [a.clean, a.corrupted], 1, 3).hits]
    ),
    "rounding": lambda a: errors(a.model, a.clean).whole["float32"],
    "ranges": Asked.ranges,
}


def test_layers_may_differ_in_heads_and_lack_them():
    ffn = spec.Gated(d_ff=12)
    parts = spec.NoAttention(), spec.MultiHead(n_heads=4), spec.MultiHead(n_heads=2, head_dim=8)
    model = drawn(decoder(*(block(part, ffn) for part in parts))).requires_grad_(False)
    weights = patterns(model, Prompt(A))
    assert weights.isnan()[:, 0, :, 0, 0].tolist() == [[True] * 4, [False] * 4, [False, False, True, True]]
    assert torch.equal(weights[2, 0, 1], attention(model, Prompt(A), 2, 1).values)
    torch.testing.assert_close(rollout(weights), rollout(weights[1:]))
    torch.testing.assert_close(rollout(weights).sum(-1), torch.ones(1, 5))
    scores = head_scores(model, n_tokens=4, n_rows=1)
    assert len(scores.top("first")) == 6 and {head[0] for head in scores.top("first")} == {1, 2}
    assert str(scores.table().grids[0]).count("\n") > 3


def test_an_image_has_attention_whose_tokens_are_numbered():
    patches = spec.PatchEmbedding(
        n_channels=3, image_height=8, image_width=8, patch_height=4, patch_width=4, class_token=True
    )
    layers = (block(spec.MultiHead(n_heads=4, mask=spec.FullMask()), spec.Gated(d_ff=12)),)
    record_ = spec.ImageEncoder(d_model=16, embedding=patches, layers=layers, head=spec.ClassHead(n_classes=3))
    model = drawn(record_).requires_grad_(False)
    image = Prompt(images_for(patches, 0, 1))
    grid = attention(model, image)
    assert grid.rows == grid.columns == ("0", "1", "2", "3", "4") and "looks at" in str(grid)
    torch.testing.assert_close(rollout(patterns(model, image)).sum(-1), torch.ones(1, 5))
    with pytest.raises(InputError, match="reads images"):
        head_scores(model)


@pytest.fixture(scope="module", params=RECORDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def asked(kind):
    model = drawn(RECORDS[kind]()).requires_grad_(False)
    source = SOURCE if isinstance(model, EncoderDecoder) else None
    return Asked(model, Prompt(A, source), Prompt(B, source))


@pytest.mark.parametrize("what", EXPLAINED)
def test_an_explanation_has_numbers_or_is_refused_in_a_line(what, kind, asked):
    if (why := REFUSED.get(what, {}).get(kind)) is not None:
        with pytest.raises(InputError, match=why) as refusal:
            EXPLAINED[what](asked)
        assert "\n" not in str(refusal.value)
        return
    values = EXPLAINED[what](asked)
    assert values.numel() and values.isfinite().all() and values.abs().max() > 0

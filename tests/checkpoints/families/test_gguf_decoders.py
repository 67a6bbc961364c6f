"""GGUF files of Llama, Qwen, Gemma 3 and Phi-3: ours give the logits of the folders, and transformers opens them."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Cohere2Config,
    Cohere2ForCausalLM,
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Olmo3Config,
    Olmo3ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

import cutaway
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.family import gguf_of
from cutaway.errors import CheckpointError
from tests.checkpoints.families.decoders import SMALL
from tests.checkpoints.families.tiny import peer, tiny

YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.2, 1.5, 1.9], "long_factor": [1.0, 2, 4, 7.0],
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip
SIX = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 5, "num_hidden_layers": 7, "rms_norm_eps": 1e-6}
FILES = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SMALL, rope_parameters={"rope_theta": 500.0, "rope_type": "default"})),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SMALL, rope_parameters=YARN | {"rope_type": "default"})),
    "qwen2-tied": (Qwen2ForCausalLM, Qwen2Config(**SMALL, tie_word_embeddings=True)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SMALL, head_dim=128)),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig(**SMALL | SIX | {"head_dim": 256, "query_pre_attn_scalar": 256})),
    "phi3": (Phi3ForCausalLM, Phi3Config(**SMALL)),
}
FACTORS = {
    "embedding_multiplier": 12.0, "logits_scaling": 3.0, "residual_multiplier": 0.22, "attention_multiplier": 0.25,
}  # fmt: skip
OURS = FILES | {
    "llama-llama3": (LlamaForCausalLM, LlamaConfig(**SMALL, rope_parameters=LLAMA3)),
    "llama-yarn": (LlamaForCausalLM, LlamaConfig(**SMALL, rope_parameters=YARN)),
    "qwen3-yarn": (Qwen3ForCausalLM, Qwen3Config(**SMALL, head_dim=12, rope_parameters=YARN | {"beta_fast": 16.0})),
    "gemma3-types": (
        Gemma3ForCausalLM,
        Gemma3TextConfig(**SMALL | SIX | {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}),
    ),
    "phi3-long": (
        Phi3ForCausalLM, Phi3Config(**SMALL, rope_parameters=LONG, original_max_position_embeddings=12),
    ),
    "granite": (GraniteForCausalLM, GraniteConfig(**SMALL, **FACTORS)),
    "granite-plain": (GraniteForCausalLM, GraniteConfig(**SMALL, attention_bias=True, mlp_bias=True)),
    "llama-biases": (LlamaForCausalLM, LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True)),
    "smollm3": (SmolLM3ForCausalLM, SmolLM3Config(**SMALL | {"num_hidden_layers": 5})),
    "command-r": (CohereForCausalLM, CohereConfig(**SMALL, logit_scale=0.3)),
    "command-r-normed": (CohereForCausalLM, CohereConfig(**SMALL, use_qk_norm=True)),
    "cohere2": (Cohere2ForCausalLM, Cohere2Config(**SMALL | {"num_hidden_layers": 5}, sliding_window=5)),
    "olmo2": (Olmo2ForCausalLM, Olmo2Config(**SMALL)),
    "olmo3": (Olmo3ForCausalLM, Olmo3Config(**SMALL | {"num_hidden_layers": 5}, sliding_window=5, rope_parameters={
        "full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 1e6},
    })),
    "gemma": (GemmaForCausalLM, GemmaConfig(**SMALL, head_dim=12)),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config(**SMALL, head_dim=8, query_pre_attn_scalar=8, sliding_window=5)),
    "phi3-window": (Phi3ForCausalLM, Phi3Config(**SMALL, sliding_window=5)),
}  # fmt: skip


def file_of(name, path):
    model_class, config = OURS[name]
    folder = tiny(model_class, config, path / "in")
    convert(folder, "gguf", path / "out")
    (file,) = (path / "out").iterdir()
    return folder, file


@pytest.mark.parametrize("name", OURS)
def test_a_file_gives_the_folders_logits(name, tmp_path):
    folder, file = file_of(name, tmp_path)
    ids = torch.randint(3, 61, (2, 24), generator=torch.Generator().manual_seed(1))
    ours, theirs = cutaway.load(file, tokenizer=False), peer(folder)
    for part in (ids[:, :12], ids):
        with torch.no_grad():
            want = theirs(part).logits
        assert (ours(part) - want).abs().max() <= 1e-5 * want.abs().max()


@pytest.mark.parametrize("name", FILES)
def test_transformers_opens_what_we_write(name, tmp_path):
    folder, file = file_of(name, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    ids = torch.randint(3, 61, (2, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want, got = peer(folder)(ids).logits, theirs(ids).logits
    assert (got - want).abs().max() <= 1e-5 * want.abs().max()


OTHERWISE = {
    "phi3-window": "its window is not used there",
    "command-r-normed": "norms of queries and keys are read there in models of 64 layers or more",
}
"""What llama.cpp computes otherwise than the folder's own software."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OURS if name not in OTHERWISE])
def test_llama_cpp_gives_the_folders_logits(name, tmp_path):
    llama_cpp = pytest.importorskip("llama_cpp")
    folder, file = file_of(name, tmp_path)
    ids = torch.randint(3, 61, (1, 24), generator=torch.Generator().manual_seed(1))
    model = llama_cpp.Llama(str(file), n_ctx=64, n_batch=64, logits_all=True, n_threads=1, verbose=False)
    model.eval(ids[0].tolist())
    got = torch.tensor(model.scores[: ids.shape[1]])
    with torch.no_grad():
        want = peer(folder)(ids).logits[0]
    assert (got - want).abs().max() <= 2e-3 * want.abs().max()


KEYS = {
    "block_count": 2, "context_length": 64, "embedding_length": 32, "feed_forward_length": 40,
    "attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 10000.0, "tied": True, "n_embedding_rows": 61,
}  # fmt: skip


def read(architecture, **keys):
    config = Config(json.loads(json.dumps(KEYS | keys)), "file.gguf")
    record = gguf_of(architecture, "test").to_spec(config)
    config.finish()
    return record


def rope_of(record, layer=0):
    return record.blocks[layer].branches[0].part.positions


def test_scalings_of_a_file():
    assert rope_of(read("llama", **{"rope.scaling.factor": 2.0})).scaling.kind == "linear"
    assert rope_of(read("llama", **{"rope.scaling.type": "none", "rope.scaling.factor": 2.0})).scaling.kind == "none"
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16}
    scaling = rope_of(read("qwen2", **yarn)).scaling
    assert (scaling.factor, scaling.original_length, scaling.attention_factor) == (4.0, 16, "auto")
    divided = rope_of(read("llama", rope_freqs=[1.0, 2.0, 3.0, 4.0])).scaling
    assert divided.short_factors == divided.long_factors == (1.0, 2.0, 3.0, 4.0) and divided.attention_factor == 1.0


def test_layers_of_gemma3():
    keys = {"attention.sliding_window": 5, "rope.freq_base": 1e6, "block_count": 7}
    record = read("gemma3", **keys)
    assert [block.branches[0].part.mask.kind for block in record.blocks] == ["sliding"] * 5 + ["causal", "sliding"]
    assert [rope_of(record, i).base for i in (0, 5)] == [10000.0, 1e6]
    listed = read("gemma3", **keys | {"attention.sliding_window_pattern": [False, True] + [False] * 5})
    assert [i for i, block in enumerate(listed.blocks) if block.branches[0].part.mask.kind == "sliding"] == [1]
    assert read("gemma3", block_count=62).blocks[0].branches[0].part.scale == 8**-0.5
    assert {block.branches[0].part.mask.kind for block in read("gemma3").blocks} == {"causal"}


@pytest.mark.parametrize(
    ("architecture", "keys", "message"),
    [
        ("llama", {"rope.scaling.type": "ntk"}, "'ntk'"),
        ("llama", {"rope.scaling.type": "longrope"}, "'longrope'"),
        ("llama", {"rope.scaling.attn_factor": 1.2}, "rope.scaling.type 'none'"),
        ("llama", {"attention.value_length": 16}, "attention.value_length is 16"),
        ("llama", {"attention.clamp_kqv": 8.0}, "attention.clamp_kqv .*not understood"),
        ("qwen3", {"n_embedding_rows": None}, "token_embd.weight is missing"),
        ("gemma3", {"attention.sliding_window_pattern": [True]}, "1 of 2 layers"),
    ],
)
def test_what_is_refused(architecture, keys, message):
    with pytest.raises(CheckpointError, match=message):
        read(architecture, **keys)

"""GPT-Neo against transformers: patterns of global and local layers, and what is refused."""

from __future__ import annotations

import pytest
from transformers import (
    GPTNeoConfig,
    GPTNeoForCausalLM,
    GPTNeoForSequenceClassification,
    GPTNeoForTokenClassification,
    GPTNeoModel,
)

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, tiny


def config(types, **changes):
    layers = sum(len(kinds) * times for kinds, times in types)
    sizes = {"vocab_size": 61, "hidden_size": 32, "num_layers": layers, "num_heads": 4, "max_position_embeddings": 48}
    return GPTNeoConfig(**sizes | TOKENS | {"attention_types": types, "window_size": 5} | changes)


@pytest.mark.parametrize(
    ("types", "changes"),
    [
        ([[["global", "local"], 1]], {}),
        ([[["local"], 2], [["global"], 1]], {"intermediate_size": 40, "window_size": 3}),
        ([[["global"], 2]], {"activation_function": "relu", "tie_word_embeddings": False, "layer_norm_epsilon": 3e-3}),
        ([[["local"], 1]], {"window_size": 1, "resid_dropout": 0.1, "embed_dropout": 0.2}),
    ],
)
def test_equals_the_peer_both_ways(types, changes, tmp_path):
    both_ways(GPTNeoForCausalLM, config(types, **changes), tmp_path)


@pytest.mark.parametrize("model_class", [GPTNeoModel, GPTNeoForSequenceClassification, GPTNeoForTokenClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, config([[["global", "local"], 1]], num_labels=3), tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_types": [[["global"], 3]]},
        {"attention_types": [[["global", "sparse"], 1]]},
        {"attention_types": "global"},
        {"attention_layers": ["local", "local"]},
    ],
)
def test_what_is_refused(changes, tmp_path):
    folder = rewrite(tiny(GPTNeoForCausalLM, config([[["global", "local"], 1]]), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=next(iter(changes))):
        hf.read_spec(folder)

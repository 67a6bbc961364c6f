"""Hugging Face folders: config.json, generation_config.json and safetensors, read strictly."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

from cutaway import spec
from cutaway.checkpoints import sentences
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, described, family_of
from cutaway.checkpoints.fill import Source
from cutaway.checkpoints.generation_config import KEYS, read_generation
from cutaway.checkpoints.packed import check_packing, unpacked
from cutaway.checkpoints.rules import Rule
from cutaway.checkpoints.stacked import stacked
from cutaway.checkpoints.weights import open_weights
from cutaway.tokenizers.json_files import read_table

BOOKKEEPING = {
    "architectures": "read for the head", "model_type": "names the family", "transformers_version": "bookkeeping",
    "torch_dtype": "the caller chooses the dtype", "dtype": "the caller chooses the dtype",
    "_name_or_path": "bookkeeping",
    "_commit_hash": "bookkeeping", "transformers.js_config": "another program's",
    "pretraining_tp": "cuts a product into pieces of the same sum",
    "use_cache": "the caller owns the cache", "cache_implementation": "the caller owns the cache",
    "initializer_range": "training only", "return_dict": "an API switch",
    "output_attentions": "an API switch", "output_hidden_states": "an API switch",
    "_attn_implementation*": "an API switch",
    "problem_type": "training only", "id2label": "names only", "label2id": "names only", "torchscript": "an API switch",
    "chunk_size_feed_forward": "changes memory only", "is_encoder_decoder": "the family says so",
    "sep_token_id": "the tokenizer's", "cls_token_id": "the tokenizer's", "mask_token_id": "the tokenizer's",
    "unk_token_id": "the tokenizer's", "tokenizer_class": "the tokenizer's", "task_specific_params": "advice",
    "finetuning_task": "bookkeeping", "auto_map": "code of the folder is never run", "pruned_heads": "bookkeeping",
    "add_cross_attention": "the family says so", "tie_encoder_decoder": "the family says so",
    "is_decoder": "the family says so",
    "cross_attention_hidden_size": "the family says so", "prefix": "bookkeeping",
    "bos_token_id": "the tokenizer's", "eos_token_id": "read for generation", "pad_token_id": "read for generation",
    "decoder_start_token_id": "read for generation", "forced_*": "read for generation",
    **dict.fromkeys(KEYS, "read for generation"), "output_scores": "an API switch",
    "return_dict_in_generate": "an API switch", "tf_legacy_loss": "training only", "use_bfloat16": "training only",
}  # fmt: skip


def read_config(folder: Path) -> Config:
    """config.json of a folder, with the names of the folder's tensors at hand where it has any."""

    def tensors() -> Collection[str]:
        return open_weights(folder).names()

    here = any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))
    return Config(read_table(folder / "config.json"), str(folder / "config.json"), cache(tensors) if here else None)


def read_spec(folder: Path) -> tuple[spec.Model, Config]:
    """The spec that the folder's configuration describes, and what became of each of its keys."""
    config = read_config(folder)
    family = family_of(str(config.data.get("model_type")), config.where)
    record = described(lambda config: sentences.read_sentences(folder, family.to_spec(config), config), config)
    check_packing(config)
    config.ignore(BOOKKEEPING | family.ignored_keys)
    config.finish()
    path = folder / "generation_config.json"
    table, two_stacks = read_table(path) if path.is_file() else None, isinstance(record, spec.EncoderDecoder)
    generation = read_generation(table, config, family.generation, two_stacks)
    return record.replace(name=record.name or folder.name, generation=generation), config


def rules_of(family: Family[Any], record: spec.Model) -> list[Rule]:
    """The names of the tensors of a folder's model."""
    return family.rules(record) + sentences.rules(record)


def open_source(folder: Path, config: Config, rules: list[Rule], allow_pickle: bool = False) -> Source:
    """The tensors of a folder as the rules of its family see them: packed weights plain, numbered parts in one."""
    family = family_of(config.data["model_type"], config.where)
    source = unpacked(open_weights(folder, allow_pickle=allow_pickle), config)
    return sentences.with_projection(stacked(source, rules, family.bare), folder, allow_pickle)

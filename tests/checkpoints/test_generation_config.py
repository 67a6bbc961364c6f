"""Defaults of generation out of both files."""

from __future__ import annotations

import pytest

from cutaway.checkpoints.config import Config
from cutaway.checkpoints.generation_config import read_generation
from cutaway.errors import CheckpointError
from cutaway.spec import Generation

CLASS = Generation(start_id=2, stop_ids=(2,), end_forced_id=2, pad_id=1)


def read(table, config=None, two_stacks=True, defaults=CLASS):
    config = Config(config or {}, "config.json")
    return read_generation(table, config, defaults, two_stacks), config.ignored


def test_trap_40_several_end_tokens_and_which_file_wins():
    assert read({"eos_token_id": [5, 7, 5]}, {"eos_token_id": 3})[0].stop_ids == (5, 7)
    assert read({}, {"eos_token_id": 3, "pad_token_id": 4})[0].stop_ids == (3,)
    assert read({"eos_token_id": None})[0].stop_ids == ()
    assert read({})[0].stop_ids == (2,)
    assert read({"pad_token_id": -1})[0].pad_id == "none"


def test_forced_ids_are_those_of_one_file():
    assert read({}, {"forced_bos_token_id": 9, "forced_eos_token_id": 3})[0] == CLASS.replace(end_forced_id="none")
    old = read(None, {"forced_bos_token_id": 9, "forced_eos_token_id": None})[0]
    assert (old.forced_ids, old.end_forced_id) == ((9,), "none")
    assert read(None)[0] == CLASS


def test_settings_of_a_summariser():
    table = {
        "num_beams": 4, "length_penalty": 2.0, "early_stopping": True, "no_repeat_ngram_size": 3, "min_length": 56,
        "max_length": 142, "bad_words_ids": [[61], [4, 5]], "suppress_tokens": [8],
    }  # fmt: skip
    got, ignored = read(table)
    assert got == Generation(
        n_beams=4, length_penalty=2.0, early_stopping=True, no_repeat_ngram_size=3, min_tokens=55, max_tokens=141,
        stop_ids=(2,), start_id=2, pad_id=1, suppressed_ids=(8, 61),
    )  # fmt: skip
    assert list(ignored) == ["generation: bad_words_ids"]
    assert read(None, table)[0] == got.replace(end_forced_id=2)


def test_sampling_counts_only_where_it_is_on():
    table = {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.1, "max_new_tokens": 5}
    assert read(table, two_stacks=False)[0].temperature == 0.0
    got = read(table | {"do_sample": True}, two_stacks=False)[0]
    assert (got.temperature, got.top_k, got.top_p, got.min_p, got.max_tokens) == (0.7, 20, 0.9, 0.1, 5)


def test_what_is_not_carried_out_is_noted():
    table = {"typical_p": 0.9, "num_beam_groups": 1, "early_stopping": "never", "new_thing": 3, "output_scores": True}
    assert list(read(table)[1]) == ["generation: typical_p", "generation: early_stopping", "generation: new_thing"]
    assert list(read({"min_length": 4, "max_length": 9}, two_stacks=False)[1]) == ["generation: min_length"]


@pytest.mark.parametrize(
    "table", [{"top_p": "all"}, {"num_beams": True}, {"eos_token_id": "</s>"}, {"num_beams": 0}, {"max_length": "long"}]
)
def test_values_of_another_kind_are_named(table):
    with pytest.raises(CheckpointError, match="config.json"):
        read(table | {"do_sample": True})

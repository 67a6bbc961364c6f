"""Defaults of generation: generation_config.json, or config.json of older folders, to our record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.errors import CheckpointError, SpecError

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "typical_p": (1.0,), "epsilon_cutoff": (0.0,), "eta_cutoff": (0.0,), "encoder_repetition_penalty": (1.0,),
    "encoder_no_repeat_ngram_size": (0,), "diversity_penalty": (0.0,), "num_beam_groups": (1,),
    "num_return_sequences": (1,), "begin_suppress_tokens": ([],), "exponential_decay_length_penalty": (),
    "guidance_scale": (1.0,), "sequence_bias": (), "penalty_alpha": (0.0,), "forced_decoder_ids": (),
    "renormalize_logits": (False,), "remove_invalid_values": (False,), "early_stopping": (True, False),
}  # fmt: skip
"""Settings that are not carried out here, with the values at which they change nothing; null always does nothing."""
KEYS = {
    *NEUTRAL, "do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "no_repeat_ngram_size",
    "num_beams", "length_penalty", "max_length", "min_length", "max_new_tokens", "min_new_tokens", "suppress_tokens",
    "bad_words_ids",
}  # fmt: skip
"""Keys that older folders have in config.json."""
API = (
    "_token_id", "_version", "_from_model_config", "use_cache", "cache_implementation", "dict_in_generate", "_hash",
    "output_attentions", "output_hidden_states", "output_scores", "output_logits",
)  # fmt: skip
"""Ends of the names of keys that are ids, or bookkeeping and switches of another library's interface."""


def read_generation(
    table: Mapping[str, Any] | None, config: Config, defaults: spec.Generation, two_stacks: bool
) -> spec.Generation:
    """What `table` (generation_config.json) says, or config.json where there is none; `defaults` for absent ids.

    Ids that end, start and pad are looked for in both files. Settings that are not carried out are noted among the
    ignored keys. With `two_stacks` lengths count the start id.

    Raises CheckpointError for values of another kind than theirs.
    """
    own = {key: config.data[key] for key in KEYS if key in config.data} if table is None else dict(table)
    ids, forced = _Ids({**config.data, **own}), _Ids(own if table is not None else config.data)
    end_forced_id = "none" if table is not None else defaults.end_forced_id
    for key, value in own.items():
        neutral = NEUTRAL.get(key, (value,) if key in KEYS or key.endswith(API) else ())
        if value is not None and value not in neutral:
            config.ignored[f"generation: {key}"] = f"{value!r:.40} is not carried out"
    sampled = bool(own.get("do_sample", False))
    temperature = _number(own, "temperature", 1.0, config) if sampled else 0.0
    most, least = own.get("max_new_tokens"), own.get("min_new_tokens")
    if two_stacks:
        most = _number(own, "max_length", 0, config) - 1 if most is None and own.get("max_length") else most
        least = _number(own, "min_length", 0, config) - 1 if least is None and own.get("min_length") else least
    elif own.get("min_length"):
        config.ignored["generation: min_length"] = "it counts the prompt; give min_tokens"
    try:
        return defaults.replace(
            temperature=temperature,
            top_k=int(_number(own, "top_k", 0, config)) if sampled else 0,
            top_p=_number(own, "top_p", 1.0, config) if sampled else 1.0,
            min_p=_number(own, "min_p", 0.0, config) if sampled else 0.0,
            repetition_penalty=_number(own, "repetition_penalty", 1.0, config),
            no_repeat_ngram_size=int(_number(own, "no_repeat_ngram_size", 0, config)),
            n_beams=int(_number(own, "num_beams", 1, config)),
            length_penalty=_number(own, "length_penalty", 1.0, config),
            early_stopping=own.get("early_stopping") is True,
            max_tokens="context" if not most else int(most),
            min_tokens=int(least or 0),
            stop_ids=ids.several("eos_token_id", defaults.stop_ids),
            start_id=ids.one("decoder_start_token_id", defaults.start_id),
            forced_ids=forced.several("forced_bos_token_id", ()),
            end_forced_id=forced.one("forced_eos_token_id", end_forced_id),
            suppressed_ids=forced.several("suppress_tokens", ()) + _words(own.get("bad_words_ids"), config),
            pad_id=ids.one("pad_token_id", defaults.pad_id),
        )
    except (SpecError, TypeError, ValueError) as error:
        raise CheckpointError(f"{config.where}: the settings of generation cannot be used ({error})") from error


class _Ids:
    """Ids of either file by key; null means none, an absent key the default."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.table = table

    def several(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        if key not in self.table:
            return default
        value = self.table[key]
        return () if value is None else tuple(dict.fromkeys(value if isinstance(value, list) else [value]))

    def one(self, key: str, default: int | Literal["none"]) -> int | Literal["none"]:
        found = self.several(key, () if default == "none" else (default,))
        return found[0] if found and found[0] != -1 else "none"  # -1 means none in older files


def _number(table: Mapping[str, Any], key: str, default: float, config: Config) -> float:
    value = table.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise CheckpointError(f"{config.where}: {key} of generation is {value!r}, expected a number")
    return float(value)


def _words(words: Any, config: Config) -> tuple[int, ...]:
    """Words of one id never come; longer ones are not carried out."""
    if any(len(word) > 1 for word in words or []):
        config.ignored["generation: bad_words_ids"] = "words of several ids are not carried out"
    return tuple(word[0] for word in words or [] if len(word) == 1)

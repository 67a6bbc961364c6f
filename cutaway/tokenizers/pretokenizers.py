"""How byte-level tokenizers cut a text before merging, by the names that GGUF files use (`tokenizer.ggml.pre`).

Each name stands for a list of regular expressions: every match becomes a piece of its own, and so does what lies
between; the next expression then cuts the pieces further. A wrong name changes ids in silence, so an unknown one is an
error.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex
from tokenizers import pre_tokenizers as pre

from cutaway.errors import CheckpointError

WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)
SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
DIGIT = r"\p{N}"


def _modern(digits: str) -> str:
    """Short forms in any case, words with one leading sign, numbers by so many digits, line ends kept together."""
    return rf"{SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}|{SIGNS}|{SPACES}"


GPT2 = (WORDS,)
DIGITS_APART = (DIGIT, WORDS)
QWEN2 = (_modern(DIGIT),)
LLAMA3 = (_modern(r"\p{N}{1,3}"),)
TEKKEN = (rf"{CASED[0]}|{CASED[1]}|{DIGIT}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}",)
O200K = (rf"{CASED[0]}{SHORT}?|{CASED[1]}{SHORT}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}",)
BLOOM = (r" ?[^(\s|.,!?…。，、।۔،)]+",)
FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", WORDS, r"[0-9][0-9][0-9]")
DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", DIGIT)
DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    + SPACES,
)
SEED_CODER = (rf"{SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{SPACES}",)
NAMELESS = (r"[\p{P}\$\+<=>\^~\|]+", WORDS, r"\p{N}+", r"[0-9][0-9][0-9]")


@dataclass(frozen=True)
class ByteLevelRule:
    """The cutting, and what goes with the name: whole pieces taken before merging, a begin token by default."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


BY_NAME: dict[str, ByteLevelRule] = {
    name: ByteLevelRule(patterns, ignore_merges="whole" in marks, add_bos="bos" in marks)
    for names, patterns, marks in (
        ("gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum modern-bert exaone4", GPT2, ""),
        ("jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe", GPT2, ""),
        ("smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", DIGITS_APART, ""),
        ("llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2", LLAMA3, "whole bos"),
        ("dbrx smaug-bpe glm4 chatglm-bpe", LLAMA3, ""),
        (
            "qwen2 deepseek-r1-qwen stablelm2 hunyuan solar-open megrez kormo grok-2 bailingmoe bailingmoe2 llada-moe",
            QWEN2,
            "",
        ),
        ("gpt-4o llama4 kanana2 minimax-m2", O200K, ""),
        ("tekken", TEKKEN, "whole bos"),
        ("deepseek-v3 hunyuan-dense joyai-llm", DEEPSEEK3, ""),
        ("deepseek-coder", DEEPSEEK_CODER, ""),
        ("falcon", FALCON, ""),
        ("bloom gpt3-finnish poro-chat", BLOOM, ""),
        ("viking", (*BLOOM, DIGIT), ""),
        ("seed-coder", SEED_CODER, ""),
        ("default", NAMELESS, ""),
    )
    for name in names.split()
}


def byte_level(name: str) -> tuple[pre.PreTokenizer, ByteLevelRule]:
    """The cutting of that name, with bytes written as letters after it. Raises CheckpointError for an unknown name."""
    if name not in BY_NAME:
        raise CheckpointError(
            f"tokenizer.ggml.pre is {name!r}, which is not known here, and a guess would give wrong ids; "
            f"known are: {', '.join(sorted(BY_NAME))}"
        )
    rule = BY_NAME[name]
    cuts = [pre.Split(Regex(pattern), "isolated") for pattern in rule.patterns]
    return pre.Sequence([*cuts, pre.ByteLevel(add_prefix_space=False, use_regex=False)]), rule

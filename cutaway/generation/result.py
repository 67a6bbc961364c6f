"""What goes into a generation beside its options, and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.generation.cache import Kind
from cutaway.generation.stopping import Reason
from cutaway.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class Run:
    """How one generation is carried out, beside what the options say.

    `seeds`: one a prompt, or one number that each prompt gets; a prompt with its seed has the same text alone and in a
    batch. `tokenizer`: for texts and stop strings. `logprobs`: log-probability of each token under the model itself,
    before penalties, temperature and cuts; of beams, what the token added to the score. `cache` None reads all again at
    each step. `chunk`: how many tokens of a prompt are read at a time. `forward`: what is called in the model's place,
    as the model is, such as its compiled code (`torch.compile(model)`); for an encoder-decoder it has an `encode` too.

    >>> import cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> warm = cutaway.spec.Generation(max_tokens=4, temperature=1.0)
    >>> alone = cutaway.generate(model, [[1, 2]], warm, cutaway.Run(seeds=7))
    >>> both = cutaway.generate(model, [[1, 2], [3]], warm, cutaway.Run(seeds=[7, 8], cache=None))
    >>> alone.ids[0] == both.ids[0]
    True
    """

    seeds: int | Sequence[int | None] | None = None
    tokenizer: Tokenizer | None = None
    logprobs: bool = False
    cache: Kind | None = "growing"
    chunk: int = 2048
    forward: Any = None


@dataclass
class Timing:
    """Seconds of work up to the first token and after it; what a caller does between two tokens is left out."""

    n_prompt: int = 0
    n_new: int = 0
    n_decoded: int = 0
    prefill: float = 0.0
    decode: float = 0.0

    def count(self, seconds: float, n_rows: int, first: bool) -> None:
        """A step that gave each of n_rows a token, their first or a later one."""
        self.n_new += n_rows
        if first:
            self.prefill += seconds
        else:
            self.decode += seconds
            self.n_decoded += n_rows

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all rows but each one's first, by the seconds of decoding; 0 where there were none."""
        return self.n_decoded / self.decode if self.decode else 0.0

    @property
    def prompt_tokens_per_second(self) -> float:
        """Tokens of all prompts, by the seconds up to the first new token; 0 where there were none."""
        return self.n_prompt / self.prefill if self.prefill else 0.0


@dataclass(frozen=True, slots=True)
class Token:
    """One new token of one row, the text that it made certain, and, with the row's last, why the row ended."""

    row: int
    id: int
    text: str = ""
    logprob: float | None = None
    reason: Reason | None = None


@dataclass(frozen=True)
class Result:
    """New ids of each prompt (a stop id included), why each ended, and texts and log-probabilities if asked for.

    `timing` tells seconds and tokens, up to the first new token and after it.

    >>> import cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> options = cutaway.spec.Generation(max_tokens=2)
    >>> result = cutaway.generate(model, [[1, 2, 3]], options, cutaway.Run(logprobs=True))
    >>> result.reasons[0].kind, result.timing.n_prompt, all(each < 0 for each in result.logprobs[0])
    ('limit', 3, True)
    """

    ids: list[list[int]]
    reasons: list[Reason]
    timing: Timing
    texts: list[str] | None = None
    logprobs: list[list[float]] | None = None

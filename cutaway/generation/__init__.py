"""Text out of a model: what to choose, when to stop, and the loop around both.

>>> import cutaway
>>> from cutaway.generation import generate
>>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
>>> options = cutaway.spec.Generation(max_tokens=3)
>>> result = generate(model, [[1, 2, 3], [4, 5]], options)
>>> [len(ids) for ids in result.ids], str(result.reasons[0])
([3, 3], 'the limit of new tokens, 3, is reached')
"""

from cutaway.generation.cache import Cache
from cutaway.generation.loop import Stream, generate
from cutaway.generation.prompts import with_changes
from cutaway.generation.result import Result, Run, Timing, Token
from cutaway.generation.stopping import Reason

__all__ = ["Cache", "Reason", "Result", "Run", "Stream", "Timing", "Token", "generate", "with_changes"]

"""The four errors a user can meet. Each message says where, what is wrong, and what to do."""

from __future__ import annotations


class CutawayError(Exception):
    """Base of every error that is the input's fault; the command line prints it in one line and exits with 2.

    >>> import cutaway
    >>> try:
    ...     cutaway.preset("gpt3")
    ... except cutaway.CutawayError as error:
    ...     print(error)
    no preset is named 'gpt3'; the nearest is 'gpt2'
    """


class SpecError(CutawayError):
    """A spec is malformed, or combines parts that cannot work together.

    >>> import cutaway
    >>> try:
    ...     cutaway.spec.set_values(cutaway.preset("gpt2-tiny"), {"n_heads": 5})
    ... except cutaway.SpecError as error:
    ...     print(str(error).partition(".n_heads: ")[2])
    5 heads cannot share d_model 64 equally; head_dim is auto; legal: 1, 2, 4, 8, 16, 32, 64
    """


class CheckpointError(CutawayError):
    """A file of weights, a configuration or a tokenizer is missing, broken or not understood.

    >>> import cutaway
    >>> try:
    ...     cutaway.load("nothing-here")
    ... except cutaway.CheckpointError as error:
    ...     print(str(error)[:28])
    nothing-here: no such model;
    """


class InputError(CutawayError):
    """A value handed to a working model does not fit it: ids, text, shapes, lengths, options.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("gpt2-tiny"), seed=0)
    >>> try:
    ...     model(torch.tensor([[0, 999]]))
    ... except cutaway.InputError as error:
    ...     print(error)
    ids: 999 is not in the vocabulary of 256 tokens
    """

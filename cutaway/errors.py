"""The four errors a user can meet. Each message says where, what is wrong, and what to do."""

from __future__ import annotations


class CutawayError(Exception):
    """Base of every error that is the input's fault; the command line prints it in one line and exits with 2."""


class SpecError(CutawayError):
    """A spec is malformed, or combines parts that cannot work together."""


class CheckpointError(CutawayError):
    """A file of weights, a configuration or a tokenizer is missing, broken or not understood."""


class InputError(CutawayError):
    """A value handed to a working model does not fit it: ids, text, shapes, lengths, options."""

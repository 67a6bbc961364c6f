"""Names on the Hugging Face hub (`owner/name`), for those who have `huggingface_hub`: fetched once, then a folder."""

from __future__ import annotations

import re
from pathlib import Path

from cutaway.errors import CheckpointError

__all__ = ["fetch", "is_name"]

FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
"""Weights in the safe format, configuration and tokenizer; nothing that runs code when it is read."""


def is_name(name: str) -> bool:
    """Whether a word reads as `owner/name` and no file or folder of that name is here."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name) is not None and not Path(name).exists()


def fetch(name: str) -> Path:
    """The folder of a model of the hub, in the hub's own cache; what is there already is not fetched again.

    Raises CheckpointError without `huggingface_hub`, and for what the hub refuses or cannot deliver.
    """
    try:
        import huggingface_hub
    except ModuleNotFoundError:
        raise CheckpointError(
            f"{name}: names on the hub need the package huggingface_hub; pip install 'cutaway[hub]', or name a folder"
        ) from None
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=list(FILES)))
    except Exception as error:  # its errors have no common base, and a failed download is no fault of the program
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise CheckpointError(
            f"{name}: nothing of that name is here, and the hub did not deliver it ({reason}); check the name and the "
            "network"
        ) from None

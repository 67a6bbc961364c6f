"""Names on the Hugging Face hub (`owner/name@revision`), for those who have `huggingface_hub`: fetched once."""

from __future__ import annotations

import re
from pathlib import Path

from cutaway.errors import CheckpointError

FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
"""Weights in the safe format, configuration and tokenizer; nothing that runs code when it is read."""


def is_name(name: str) -> bool:
    """Whether a word reads as `owner/name` or `owner/name@revision` and no file or folder of that name is here."""
    word = r"[A-Za-z0-9][\w.-]*"
    return re.fullmatch(rf"{word}/{word}(@[\w./-]+)?", name) is not None and not Path(name).exists()


def fetch(name: str) -> Path:
    """The folder of a model of the hub, in the hub's own cache; what is there already is not fetched again.

    A revision is a branch, a tag or a commit. With HF_HUB_OFFLINE=1 only what is in the cache is used.

    Raises CheckpointError without `huggingface_hub`, and for what the hub refuses or cannot deliver.
    """
    try:
        import huggingface_hub
    except ModuleNotFoundError:
        raise CheckpointError(
            f"{name}: names on the hub need the package huggingface_hub; pip install 'cutaway[hub]', or name a folder"
        ) from None
    repository, _, revision = name.partition("@")
    try:
        folder = huggingface_hub.snapshot_download(repository, revision=revision or None, allow_patterns=list(FILES))
        return Path(folder)
    except Exception as error:  # its errors have no common base, and a failed download is no fault of the program
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise CheckpointError(
            f"{name}: nothing of that name is here, and the hub did not deliver it ({reason}); check the name and the "
            "network"
        ) from None

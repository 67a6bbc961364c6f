"""The JSON files of a model's folder, read with errors that name them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cutaway.errors import CheckpointError


def read_json(path: Path) -> Any:
    """What a file holds. Raises CheckpointError for one that is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; a model's folder has one") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error}); fetch it again") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON ({error}); fetch it again") from None


def read_table(path: Path) -> dict[str, Any]:
    """The table that a file holds. Raises CheckpointError for anything else in it too."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: holds a {type(data).__name__}, expected a table of keys; fetch it again")
    return data

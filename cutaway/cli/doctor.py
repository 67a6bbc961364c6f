"""`cutaway doctor`: what this set-up has and lacks."""

from __future__ import annotations

import importlib.metadata
import os
import sys

NEEDED = ("torch", "numpy", "safetensors", "tokenizers", "pydantic", "jinja2", "rich", "cyclopts", "tomli-w")


def examine() -> int:
    """Print a line a finding; the exit status is 1 where something is missing."""
    faults = 0
    print(f"python {sys.version.split()[0]}")
    for name in NEEDED:
        try:
            print(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            faults += 1
            print(f"{name} is missing: pip install {name}")
    from cutaway.checkpoints.cache import cache_dir
    from cutaway.checkpoints.pull import KNOWN, find

    folder = cache_dir()
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    if not os.access(nearest, os.W_OK):
        faults += 1
        print(f"cache {folder} cannot be written: set CUTAWAY_CACHE to a folder that can")
    else:
        print(f"cache {folder}")
    for name in KNOWN:
        print(f"model {name}: {'here' if find(name) else f'not fetched yet: cutaway pull {name}'}")
    print("all well" if not faults else f"{faults} to mend")
    return 1 if faults else 0

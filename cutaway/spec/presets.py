"""Named specs. A file in `presets/` holds one whole spec, a sentence about it, and its sizes as `--set` tables."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from cutaway.errors import SpecError
from cutaway.spec.explain import nearest
from cutaway.spec.files import parse, read, read_text
from cutaway.spec.model import Model
from cutaway.spec.override import set_values

FOLDER = Path(__file__).with_name("presets")


def preset(name: str) -> Model:
    """The spec of that name: a preset in its own size (`gpt2`) or in a named one (`gpt2-tiny`); see `names`.

    Raises SpecError with the nearest name for one that is not known.

    >>> import cutaway
    >>> cutaway.preset("gpt2").d_model, cutaway.preset("gpt2-tiny").d_model
    (768, 64)
    """
    family, size = _split(name)
    data = dict(_file(family))
    sizes = data.pop("sizes")
    del data["about"]
    spec = parse(data | {"name": name}, f"preset {family}")
    return set_values(spec, sizes[size]) if size else spec


def names() -> list[str]:
    """Every name that `preset` knows: the families, each followed by its sizes."""
    found = []
    for family in families():
        found += [family, *(f"{family}-{size}" for size in _file(family)["sizes"])]
    return found


def families() -> list[str]:
    """The names without a size."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def about(name: str) -> str:
    """What a preset is, in a sentence."""
    return _file(_split(name)[0])["about"]


def _split(name: str) -> tuple[str, str]:
    for family in families():
        size = name.removeprefix(family).removeprefix("-")
        if name == family or (name.startswith(f"{family}-") and size in _file(family)["sizes"]):
            return family, size
    close = nearest(name, names(), cutoff=0.4)
    hint = f"the nearest is '{close}'" if close else f"there are {', '.join(families())}"
    raise SpecError(f"no preset is named '{name}'; {hint}")


@cache
def _file(family: str) -> dict[str, Any]:
    path = FOLDER / f"{family}.toml"
    return read(read_text(path), "toml", str(path))

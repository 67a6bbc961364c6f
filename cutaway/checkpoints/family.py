"""What a family of checkpoints is to us: a translation of its configuration and a table of its tensor names."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from cutaway import spec
from cutaway.checkpoints.blocks import Stack
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.gguf_keys import standard_keys
from cutaway.checkpoints.rules import Rule
from cutaway.errors import CheckpointError, SpecError
from cutaway.spec.explain import explain

Kind = TypeVar("Kind", bound=spec.Model)


@dataclass(frozen=True)
class Gguf:
    """The same for one architecture of GGUF files; keys there carry the architecture's name as a prefix.

    to_keys: the keys for export, of which those are written that to_spec takes; a family that needs others adds them.
    """

    architecture: str
    to_spec: Callable[[Config], Stack]
    rules: Callable[[Stack], list[Rule]]
    to_keys: Callable[[Stack], dict[str, Any]] = standard_keys


@dataclass(frozen=True)
class Family(Generic[Kind]):
    """`model_types` of config.json that it reads, and the `kind` of model that these are. All functions are pure.

    to_spec: configuration to spec (the class named in `architectures` decides the head). to_config: the reverse, for
    export, which is refused unless to_spec gives the same spec back. rules: their tensor names. `ignored_tensors`:
    patterns of leftover buffers. `renamed`: names of older files to today's. `prefix`: what all names but the head's
    begin with (`transformer.`), which files of a model without a head leave out. `ignored_keys`: keys of the
    configuration without a meaning here, with the reason. `generation`: what a checkpoint's defaults of generation are
    where its files say nothing.
    """

    model_types: tuple[str, ...]
    kind: type[Kind] | tuple[type[Kind], ...]
    to_spec: Callable[[Config], Kind]
    rules: Callable[[Kind], list[Rule]]
    to_config: Callable[[Kind], dict[str, Any]]
    ignored_tensors: tuple[str, ...] = ()
    renamed: Callable[[str], str] = str
    prefix: str = ""
    ignored_keys: dict[str, str] = field(default_factory=dict)
    generation: spec.Generation = spec.Generation()
    gguf: tuple[Gguf, ...] = ()

    def bare(self, name: str) -> str:
        """The name that old and new, prefixed and bare names of one tensor have in common."""
        return self.renamed(name).removeprefix(self.prefix)


def described(to_spec: Callable[[Config], Kind], config: Config) -> Kind:
    """The spec that a configuration describes, checked.

    Raises CheckpointError, naming the file, for values that no spec can have.
    """
    try:
        record = to_spec(config)
        spec.check(record, config.where)
    except ValidationError as error:
        raise CheckpointError(explain(error, f"{config.where}: {error.title}", getattr(spec, error.title))) from None
    except SpecError as error:
        raise CheckpointError(str(error)) from None
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:  # a value of a kind that nobody expects
        raise CheckpointError(
            f"{config.where}: a value in it cannot be used ({error}); fetch the file again"
        ) from error
    return record


@cache
def families() -> tuple[Family[Any], ...]:
    """All families, one from each module of `checkpoints.families` (a module may define several: FAMILIES)."""
    package = importlib.import_module("cutaway.checkpoints.families")
    found: list[Family[Any]] = []
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        found.extend(module.FAMILIES)
    return tuple(found)


def family_of(model_type: str, where: str) -> Family[Any]:
    """The family of a config.json's model_type."""
    for family in families():
        if model_type in family.model_types:
            return family
    known = sorted(name for family in families() for name in family.model_types)
    raise CheckpointError(f"{where}: model_type {model_type!r} is not known; known are {', '.join(known)}")


def gguf_of(architecture: str, where: str) -> Gguf:
    """The description of a GGUF architecture."""
    for family in families():
        for each in family.gguf:
            if each.architecture == architecture:
                return each
    known = sorted(each.architecture for family in families() for each in family.gguf)
    raise CheckpointError(f"{where}: architecture {architecture!r} is not known; known are {', '.join(known)}")

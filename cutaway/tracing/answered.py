"""Whether the names that were asked for are those of taps: what to refuse at the end of a recording."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from torch import nn

from cutaway.errors import InputError
from cutaway.tap import matcher, original
from cutaway.tracing.names import GLOSSARY, missing, ours
from cutaway.tracing.stacks import owner_of

OWN = frozenset(tap.name.split(".")[0] for tap in GLOSSARY)
"""Words that a name may begin with although no module is called so."""


@lru_cache(64)
def patterns_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """Our names of these; of all taps where there is none."""
    return tuple(map(ours, names)) or ("*",)


def check_answered(model: nn.Module, names: tuple[str, ...], taken: Mapping[str, object]) -> None:
    """Raise InputError for a name or pattern that none of the taps answers to, but for those that a run may pass by."""
    for asked, pattern in zip(names, patterns_of(names)):  # of no name there is one pattern, which all answer to
        if pattern in taken:
            continue
        paths = _paths(model)
        test = matcher([pattern], paths)
        if any(map(test, taken)) or _idle(model, pattern, taken):
            continue
        if not any(map(test, _passed_by(model, paths, taken))):
            raise InputError(f"record: {missing(asked, paths)}")


def check_begun(model: nn.Module, names: tuple[str, ...]) -> None:
    """Raise InputError where nothing was heard for a name that begins with no module: the model may not have run."""
    for name in patterns_of(names):
        begins = re.match(r"([^.*\[]+)[.\[]", name)  # a word alone may be a tap that the module itself has
        if begins and begins[1] not in OWN and begins[1] not in original(model)._modules:
            raise InputError(f"record: {missing(name, _paths(model))}")


def _paths(model: nn.Module) -> dict[str, nn.Module]:
    """Every path of every module, without what torch.compile puts into it."""
    found = original(model).named_modules(remove_duplicate=False)
    return {path.replace("._orig_mod", ""): module for path, module in found}


def _passed_by(model: nn.Module, paths: Mapping[str, nn.Module], taken: Iterable[str]) -> Iterator[str]:
    """Names that are right although none is heard under them: of experts to which no token goes, second names."""
    own = {owner_of(model, name) for name in taken}
    for path, module in paths.items():
        if re.search(r"(^|\.)experts\.\d+$", path):
            yield from (f"{path}.{tap.name}" for tap in GLOSSARY if tap.where == "expert")
        yield from (f"{path}.{tap}" for each, tap in own if each is module)


def _idle(model: nn.Module, pattern: str, taken: Mapping[str, object]) -> bool:
    """Whether it is of the stack of an encoder-decoder that did not run: `encode` alone, or a memory that was given."""
    word = pattern.partition(".")[0]
    stack = {"head": "decoder"}.get(word, word)
    stacks = {"encoder", "decoder"} & original(model)._modules.keys()
    return len(stacks) == 2 and stack in stacks and f"{stack}.positions" not in taken

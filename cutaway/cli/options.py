"""What commands take: each option's type, help and range once. What is out of range is refused before any work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.loaded import Loaded

Model = Annotated[
    str, Parameter(help="a preset, a spec file, a known name, a folder, a .gguf file, or a name on the hub")
]
Checkpoint = Annotated[str, Parameter(help="a known name, a folder, a .gguf file, or a name on the hub")]

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Json = Annotated[bool, Parameter(name="--json", help="print JSON for programs", negative="", show_default=False)]
Set = Annotated[
    tuple[str, ...], Parameter(name="--set", help="change any field: --set n_layers=4", negative="", show_default=False)
]
Texts = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]
Word = Annotated[str, Parameter(show_default=False)]
"""A text that may be left out."""

Text = Annotated[str, Parameter(help="what the model reads")]

Ids = Annotated[Flag, Parameter(help="texts and tokens are numbers: '5 3 9'")]

Position = Annotated[
    int | None,
    Parameter(help="at which token, counted from 0 or from the end as -1; without it the mask, else the last"),
]

Seed = Annotated[int, Parameter(validator=Number(gte=0, lt=2**64))]
"""What torch's generator takes."""

AtLeastOne = Annotated[int, Parameter(validator=Number(gte=1))]

NotNegative = Annotated[float, Parameter(validator=Number(gte=0))]
"""NaN is refused too."""

NotNegativeIfGiven = Annotated[float | None, Parameter(validator=Number(gte=0))]


@Parameter(name="*")
@dataclass(frozen=True)
class Writing:
    """How a text is to go on."""

    max_tokens: Annotated[int | None, Parameter(help="most new tokens; 24 unless given")] = None
    greedy: Annotated[Flag, Parameter(help="always the likeliest token, as temperature 0")] = False
    temperature: Annotated[
        float | None, Parameter(help="0 is greedy, 1 leaves the model's probabilities as they are")
    ] = None
    top_k: Annotated[int | None, Parameter(help="sample among the k likeliest tokens")] = None
    top_p: Annotated[
        float | None, Parameter(help="sample among the likeliest tokens that together have this probability")
    ] = None
    min_p: Annotated[
        float | None, Parameter(help="sample among tokens with at least this share of the likeliest one's probability")
    ] = None
    repetition_penalty: Annotated[float | None, Parameter(help="above 1 makes tokens that came before less likely")] = (
        None
    )
    stop: Annotated[Texts, Parameter(help="a text that ends the continuation, itself not shown")] = ()
    seed: Annotated[int | None, Parameter(help="equal seeds give equal texts; 0 unless given")] = None
    chat: Annotated[Flag, Parameter(help="put the text into the model's chat template")] = False

    def given(self) -> list[str]:
        """The options that were given, as they are written."""
        named = [each.name for each in fields(self) if getattr(self, each.name) != each.default]
        return [f"--{name.replace('_', '-')}" for name in named]

    def stream(self, loaded: Loaded, ids: list[int]) -> Iterator[str]:
        """Pieces of what a model writes so."""
        return loaded.stream_ids(ids, self.seed or 0, **self.options())

    def options(self) -> dict[str, Any]:
        """As fields of `spec.Generation`; what was not given is left to the checkpoint, but for the most new tokens."""
        chosen = {name: getattr(self, name) for name in ("top_k", "top_p", "min_p", "repetition_penalty")}
        chosen |= {"max_tokens": 24 if self.max_tokens is None else self.max_tokens, "stop_strings": self.stop or None}
        chosen["temperature"] = 0.0 if self.greedy else self.temperature
        return {name: value for name, value in chosen.items() if value is not None}


@Parameter(name="*")
@dataclass(frozen=True)
class Out:
    """In which forms an answer is given."""

    html: Annotated[Word, Parameter(help="write an HTML page to this file instead")] = ""
    png: Annotated[Word, Parameter(help="write a picture to this file instead (.png, .svg, .pdf)")] = ""
    json: Json = False

    def __post_init__(self) -> None:
        """Raise InputError for a file that cannot be written, before a model is loaded."""
        for path in self.files:
            from cutaway.cli.output import check_target

            check_target(path)
        if len(self.files) == 2 and Path(self.html).absolute() == Path(self.png).absolute():
            raise InputError(f"{self.png}: both the page and the picture; name two files")
        if self.png:
            from cutaway.tracing.pictures import check_kind

            check_kind(self.png)

    @property
    def files(self) -> list[str]:
        """Those that were asked for."""
        return [path for path in (self.html, self.png) if path]

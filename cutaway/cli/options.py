"""What commands take: each option's type, help and range once. What is out of range is refused before any work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

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
        if self.png:
            from cutaway.tracing.pictures import check_kind

            check_kind(self.png)

    @property
    def files(self) -> list[str]:
        """Those that were asked for."""
        return [path for path in (self.html, self.png) if path]

"""Texts and numbers that commands take: a number out of range is refused before anything is loaded."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

Word = Annotated[str, Parameter(show_default=False)]
"""A text that may be left out."""

Seed = Annotated[int, Parameter(validator=Number(gte=0, lt=2**64))]
"""What torch's generator takes."""

AtLeastOne = Annotated[int, Parameter(validator=Number(gte=1))]

NotNegative = Annotated[float, Parameter(validator=Number(gte=0))]
"""NaN is refused too."""

NotNegativeIfGiven = Annotated[float | None, Parameter(validator=Number(gte=0))]

"""`cutaway spec check`: whether the parts of a model fit together."""

from __future__ import annotations

import sys

from cutaway import spec
from cutaway.cli.models import spec_of
from cutaway.cli.output import print_json


def show_check(model: str, sets: dict[str, str], as_json: bool) -> None:
    """Say that a spec is sound, or raise SpecError; as JSON every problem with the values that would be legal."""
    record = spec_of(model, sets)
    if not as_json:
        spec.check(record, model)
        print(f"{model}: sound")
        return
    found = spec.problems(record)
    print_json({"sound": not found, "problems": [problem._asdict() for problem in found]})
    if found:
        sys.exit(2)

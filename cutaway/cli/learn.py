"""`cutaway learn`: the exercises in the learner's own editor."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from cutaway.cli.options import Flag, Json
from cutaway.cli.output import print_entry, print_json
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.lab.exercises.exercise import Exercise
    from cutaway.lab.runner import Job

app = App(name="learn", help="Write the parts of a Transformer yourself, in your own editor.")


@app.command(name="list")
def list_(*, folder: Path = Path(), json: Json = False) -> None:
    """List the exercises, and which have a file in the folder.

    :param folder: where the files are
    """
    from cutaway.lab.exercises import IDS, load

    rows = [(load(exercise_id), _file(folder, exercise_id)) for exercise_id in IDS]
    if json:
        print_json([_row(exercise, file) for exercise, file in rows])
        return
    for exercise, file in rows:
        print_entry(exercise.id, exercise.title + (f"  {file}" if file.exists() else ""), 20)


@app.command
def start(exercise: str, /, *, folder: Path = Path(), json: Json = False) -> None:
    """Write an exercise's first lines into a file, to be finished in any editor.

    :param exercise: its id, as `cutaway learn list` shows it
    :param folder: where to write the file
    """
    from cutaway.lab.exercises import load

    chosen = load(exercise)
    file = _file(folder, exercise)
    try:
        with file.open("x", encoding="utf-8") as sink:
            sink.write(chosen.starter)
    except FileExistsError:
        raise InputError(
            f"exercise {exercise}: {file} is there already; edit it, or move it away to start anew"
        ) from None
    except OSError as error:
        raise InputError(
            f"exercise {exercise}: {file} cannot be written ({error.strerror}); choose another --folder"
        ) from None
    if json:
        print_json(_row(chosen, file))
        return
    print(f"{chosen.title}: {chosen.prompt}\n\nEdit {file}, then: cutaway learn check {exercise}")


@app.command
def check(exercise: str, /, *, folder: Path = Path(), hints: Flag = False, json: Json = False) -> None:
    """Run an answer on the hidden cases; exit code 1 if it is not right yet.

    :param exercise: its id
    :param folder: where its file is
    :param hints: print the hints too
    """
    job = _run(exercise, folder)
    _tell(job, json, hints)
    if not job.report.passed:
        sys.exit(1)


@app.command
def watch(exercise: str, /, *, folder: Path = Path(), json: Json = False) -> None:
    """Check an answer each time its file is saved, until it is right; ends with Ctrl+C.

    :param exercise: its id
    :param folder: where its file is
    """
    seen = None
    while True:
        saved = _saved(exercise, folder)
        if saved != seen:
            seen = saved
            job = _run(exercise, folder)
            _tell(job, json)
            if job.report.passed:
                return
        time.sleep(0.3)


def _row(exercise: Exercise, file: Path) -> dict[str, str | None]:
    found = str(file) if file.exists() else None
    return {"id": exercise.id, "title": exercise.title, "signature": exercise.signature, "file": found}


def _run(exercise: str, folder: Path) -> Job:
    from cutaway.lab.runner import make_job

    _saved(exercise, folder)
    file = _file(folder, exercise)
    try:
        code = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"exercise {exercise}: {file} cannot be read ({error}); save it as UTF-8 text") from None
    return make_job(exercise, code).run()


def _saved(exercise: str, folder: Path) -> int:
    """When the file was saved last, in nanoseconds."""
    from cutaway.lab.exercises import load

    load(exercise)
    file = _file(folder, exercise)
    if not file.is_file():
        raise InputError(f"exercise {exercise}: there is no {file}; begin with: cutaway learn start {exercise}")
    return file.stat().st_mtime_ns


def _file(folder: Path, exercise: str) -> Path:
    return folder / f"{exercise.replace('-', '_')}.py"


def _tell(job: Job, as_json: bool, hints: bool = False) -> None:
    if as_json:
        print_json({"exercise": job.exercise.id, **job.public()})
        return
    mark = "right" if job.report.passed else "not yet"
    print(f"{job.exercise.title}: {mark}")
    for message in job.report.messages:
        print(f"  {message}")
    if job.output:
        print(f"  printed:\n{job.output.rstrip()}", flush=True)
    for hint in job.exercise.hints if hints else ():
        print(f"  hint: {hint}")

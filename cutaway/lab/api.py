"""The lab's HTTP interface: JSON in, JSON out, no state but the runs of answers."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cutaway.errors import InputError
from cutaway.lab import course as texts
from cutaway.lab import labs
from cutaway.lab.content import markup
from cutaway.lab.exercises import IDS, load
from cutaway.lab.runner import Runner

HONEST_TRIES = 3


class Json(Response):
    """A value as JSON; numbers that JSON does not know are an error here, not in the browser."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Compact, pure ASCII: any text can be said, half a surrogate pair included."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class LabRequest(_Body):
    state: dict[str, Any] = {}


class AnswerRequest(_Body):
    question: str = Field(max_length=100)
    answer: str = Field(max_length=2000)


class SkipRequest(_Body):
    seed: int


class SkipCheckRequest(_Body):
    seed: int
    answers: dict[str, str] = Field(max_length=20)


class CodeRequest(_Body):
    code: str


Model = TypeVar("Model", bound=_Body)


async def body(request: Request) -> Any:
    """The request's JSON. Raises InputError for anything else, numbers that are not finite included."""
    try:
        return json.loads(await request.body(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise InputError("request: its body is not JSON; send one JSON object") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _read(model: type[Model], value: Any) -> Model:
    fields = ", ".join(model.model_fields)
    if not isinstance(value, dict):
        raise InputError(f"request: its body is not an object; send one with {fields}")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part)[:40] for part in first["loc"])
        raise InputError(f"request: {place}: {first['msg'].lower()}; send an object with {fields}") from None


Sent = Annotated[Any, Depends(body)]


def routes(runner: Runner, exercises: bool) -> APIRouter:
    """All of /api. With exercises False (bound to more than loopback) no answer is run."""
    router = APIRouter(prefix="/api", default_response_class=Json)
    _add_course(router)
    _add_labs(router)
    _add_exercises(router, runner, exercises)
    return router


def _add_course(router: APIRouter) -> None:
    @router.get("/course")
    def course() -> Json:
        return Json(texts.course())

    @router.post("/answers")
    def answer(sent: Sent) -> Json:
        asked = _read(AnswerRequest, sent)
        verdict = texts.check(asked.question, asked.answer)
        return Json({"right": verdict.right, "reason_html": verdict.reason, "value": verdict.value})

    @router.post("/skip/{level}")
    def skip(level: str, sent: Sent) -> Json:
        return Json({"questions": texts.skip_test(level, _read(SkipRequest, sent).seed)})

    @router.post("/skip/{level}/check")
    def check_skip(level: str, sent: Sent) -> Json:
        asked = _read(SkipCheckRequest, sent)
        return Json(texts.check_skip(level, asked.seed, asked.answers))

    @router.get("/demos/{level}")
    def demo(level: str) -> Response:
        source = texts.demo(level)
        headers = {"content-disposition": 'attachment; filename="demo.py"'}
        return Response(source, media_type="text/x-python; charset=utf-8", headers=headers)


def _add_labs(router: APIRouter) -> None:
    @router.get("/labs")
    def defaults() -> Json:
        return Json({lab: labs.default(lab) for lab in labs.IDS})

    @router.post("/labs/{lab}")
    def run(lab: str, sent: Sent) -> Json:
        return Json({"result": labs.run(lab, _read(LabRequest, sent).state)})


def _add_exercises(router: APIRouter, runner: Runner, allowed: bool) -> None:
    @router.get("/exercises")
    def exercises() -> Json:
        return Json([_public(exercise_id) for exercise_id in IDS])

    @router.post("/exercises/{exercise_id}/run")
    def run(exercise_id: str, sent: Sent) -> Json:
        if not allowed:
            raise InputError(
                "exercises: this server can be reached from outside, so it runs no code; bind it to 127.0.0.1"
            )
        return Json({"job": runner.start(exercise_id, _read(CodeRequest, sent).code)})

    @router.get("/jobs/{name}")
    def job(name: str) -> Json:
        return Json(runner.job(name).public())

    @router.delete("/jobs/{name}")
    def stop(name: str) -> Json:
        found = runner.job(name)
        found.stop()
        return Json(found.public())

    @router.get("/exercises/{exercise_id}/solution")
    def solution(exercise_id: str, attempts: str = "0") -> Json:
        tried = int(attempts) if attempts.isascii() and attempts.isdigit() and len(attempts) < 7 else 0
        exercise = load(exercise_id)
        if tried < HONEST_TRIES:
            missing = HONEST_TRIES - tried
            raise InputError(f"solution of {exercise_id}: it is shown after {HONEST_TRIES} tries; run {missing} more")
        return Json({"solution": exercise.solution})


def _public(exercise_id: str) -> dict[str, Any]:
    exercise = load(exercise_id)
    return {
        "id": exercise.id, "title": exercise.title, "prompt_html": markup.html(exercise.prompt),
        "starter": exercise.starter, "hints": [markup.line(hint) for hint in exercise.hints],
        "signature": exercise.signature, "tries_before_solution": HONEST_TRIES,
    }  # fmt: skip

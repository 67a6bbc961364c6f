"""Our texts are our own: no run of eight words is shared with the pages that the course covers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from cutaway.lab import course
from cutaway.lab.content.questions import read_toml

ENGLISH = course.CONTENT / "en"
RUN = 8


def words(text: str) -> list[str]:
    """The words of prose: formulas, code, numbers and single letters are facts, not wording."""
    text = re.sub(r"```.*?```|`[^`]*`|\$[^$\n]*\$|«\w+»", " ", text, flags=re.DOTALL)
    text = text.lower().replace("’", "'")
    return [word for word in re.findall(r"[a-z]+(?:'[a-z]+)?", text) if len(word) > 1]


def runs(text: str) -> set[tuple[str, ...]]:
    found = words(text)
    return set(zip(*(found[shift:] for shift in range(RUN)), strict=False))


def test_no_eight_words_in_a_row_are_shared_with_the_source_pages(shared: Path) -> None:
    pages = sorted((shared / "seeds").glob("*.txt"))
    assert len(pages) == 3, "the three source pages are needed to compare with"
    theirs = set().union(*(runs(page.read_text(encoding="utf-8")) for page in pages))
    lab = Path(course.__file__).parent
    ours = [
        file
        for suffix in ("md", "toml", "json", "py")
        for file in lab.rglob(f"*.{suffix}")
        if "static" not in file.parts
    ]
    assert len(ours) > 100
    copied = {file.name: hits for file in ours if (hits := sorted(runs(file.read_text(encoding="utf-8")) & theirs))}
    assert not copied


def test_the_comparison_sees_a_copied_sentence(shared: Path) -> None:
    page = next((shared / "seeds").glob("000*.txt")).read_text(encoding="utf-8")
    sentence = next(line for line in page.splitlines() if len(words(line)) > 20)
    assert runs(f"Before. {sentence.upper()} After.") & runs(page)


def test_every_file_of_texts_is_read() -> None:
    plan = read_toml(ENGLISH / "course.toml")
    names = {*plan["main"], *plan["side"]}
    for folder, suffix in (("chapters", ".md"), ("questions", ".toml"), ("skip", ".toml")):
        assert {file.stem for file in (ENGLISH / folder).iterdir()} == names
        assert {file.suffix for file in (ENGLISH / folder).iterdir()} == {suffix}
    assert {file.stem.replace("_", "-") for file in (course.CONTENT / "demos").glob("*.py")} == names
    for file in ENGLISH.rglob("*.toml"):
        tomllib.loads(file.read_text(encoding="utf-8"))


def test_files_stay_short() -> None:
    for file in course.CONTENT.rglob("*.*"):
        if file.suffix in (".md", ".toml", ".py"):
            assert len(file.read_text(encoding="utf-8").splitlines()) <= 400, file


def test_a_reason_does_not_say_right_again() -> None:
    """The page writes the verdict above it."""
    files = [*(ENGLISH / "questions").iterdir(), *(ENGLISH / "skip").iterdir()]
    repeated = r'\b(right|reason) = "(Right|Wrong|Correct|Not yet)[.:,!]'
    assert not [file.name for file in files if re.search(repeated, file.read_text(encoding="utf-8"))]

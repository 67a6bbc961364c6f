"""What a notebook shows: models, specs, recordings and attention, as HTML that is safe anywhere, and as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
import torch

from cutaway import build, preset, spec
from cutaway.loaded import Loaded
from cutaway.tracing.heads import attention
from cutaway.tracing.prompt import Prompt
from cutaway.tracing.record import Taken, record
from cutaway.tracing.tables import Table

HOSTILE = "</td><script>alert(1)</script><img src=x onerror='alert(2)'>&\"'"
IDS = torch.tensor([[5, 3, 9, 1]])


class Reader(HTMLParser):
    """The elements of a page, their attributes and its text; each element must be closed where it was opened."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.words, self.open = [], [], "", []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


@pytest.fixture(scope="module")
def things():
    described = preset("modern-tiny").replace(name=HOSTILE)
    model = build(described, seed=0).eval()
    with torch.no_grad(), record(model, "blocks.0.attn.*") as run:
        model(IDS)
    grid = attention(model, Prompt(IDS, name=lambda i: HOSTILE if i == 3 else f" t{i}"))
    table = Table(HOSTILE, (HOSTILE, "x"), [(HOSTILE, 0.5)], HOSTILE, heat=(1,))
    return {"spec": described, "model": model, "loaded": Loaded(model, None, HOSTILE), "run": run, "grid": grid,
            "table": table}  # fmt: skip


@pytest.mark.parametrize("kind", ["spec", "model", "loaded", "run", "grid", "table"])
def test_html_is_closed_escaped_and_needs_nothing_else(things, kind):
    page = things[kind]._repr_html_()
    read = Reader(page)
    assert not {"script", "img", "link", "iframe", "style"} & set(read.tags)
    assert not {"src", "href", "onerror", "onclick"} & {name for name, _ in read.attributes}
    assert "//" not in page.replace("</", "")
    if kind != "run":
        assert "alert(1)" in read.words
    styles = ";".join(value for name, value in read.attributes if name == "style")
    assert not re.search(r"(?<!-)\bcolor:", styles), "letters keep the page's own colour, light or dark"
    assert all("/" in each for each in re.findall(r"background:rgb\(([^)]*)\)", styles)), "backgrounds are see-through"


@pytest.mark.parametrize("kind", ["spec", "model", "loaded", "run", "grid", "table"])
def test_the_text_says_what_the_html_says(things, kind):
    text, words = str(things[kind]), Reader(things[kind]._repr_html_()).words
    assert len(text.splitlines()) > 1
    squeezed = re.sub(r"\s", "", words)
    numbers = re.findall(r"\d[\d,]{2,}", text)
    assert all(number in squeezed for number in numbers)


def test_a_model_tells_its_parts_type_and_place(things):
    text = repr(things["model"].to(torch.bfloat16))
    things["model"].to(torch.float32)
    first = text.splitlines()[0]
    cost = spec.count(things["spec"])
    assert f"{cost.parameters:,} parameters" in first and "in bfloat16 on cpu" in first
    assert "4 heads of 16" in text and "q_proj 64×64" in text
    assert "no tokenizer" in repr(things["loaded"]).splitlines()[0]


def test_parts_that_do_not_fit_are_told(things):
    wrong = things["spec"].replace(context_length=4, final_norm=spec.NoNorm(), d_model=63)
    assert "do not fit" in str(wrong).splitlines()[0]
    Reader(wrong._repr_html_())


def test_a_recording_tells_axes_steps_and_size(things):
    run = things["run"]
    rows = {row[0]: row[1:] for row in run.table().rows}
    assert rows["blocks.0.attn.pattern"] == ("B N T S", "1 × 4 × 4 × 4", 1, "float32", 4 * 64)
    assert "blocks.0.attn.pattern" in repr(run)
    with torch.no_grad(), record(things["model"], "embedded", taken=Taken(reduce=lambda x: x[:, -1])) as small:
        things["model"](IDS)
    assert small.table().rows == [("embedded", "reduced", "1 × 64", 1, "float32", 256)]

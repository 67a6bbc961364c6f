"""Each result that the source pages print, read off the screen: from a lab, or from a chapter's text.

A case is shown where its own numbers are set; what is printed there must be what the case expects, as it is rounded.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Go
from tests.seed_cases import CASES

STATED = [case for case in CASES if case.get("status") == "stated"]
THREE = "?X=[[2,0],[1,1],[0,2]]"


def printed(page: Page, name: str) -> list[float]:
    """The numbers within a printed value."""
    return numbers(page.locator(f"[data-number='{name}']").first.inner_text())


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", text.replace("−", "-"))]


def grid(page: Page, caption: str) -> list[list[float]]:
    table = page.locator("figure", has=page.locator("figcaption", has_text=caption)).last.locator("tbody tr")
    return [numbers(" ".join(row.locator("td:not(.after)").all_inner_texts())) for row in table.all()]


def prose(page: Page, section: str) -> str:
    """A section's words; formulas as they were written in TeX."""
    page.evaluate("document.querySelectorAll('main details').forEach((fold) => (fold.open = true))")
    page.wait_for_load_state("networkidle")
    return page.locator(f"section#{section}").evaluate(
        """(section) => {
            const copy = section.cloneNode(true);
            for (const tex of copy.querySelectorAll('.katex')) tex.replaceWith(
                tex.querySelector('annotation')?.textContent ?? tex.textContent);
            return copy.textContent.replace(/\\\\,|\\{|\\}|\\s+/g, ' ');
        }"""
    )


#: Where a case stands: the address, and how it is read there.
def lab(path: str, *names: str) -> Any:
    return path, lambda page: [number for name in names for number in printed(page, name)]


def table(path: str, caption: str) -> Any:
    return path, lambda page: grid(page, caption)


def said(chapter: str, section: str, *phrases: str) -> Any:
    """Words that must stand in a chapter; what they say is the case's result."""

    def look(page: Page) -> None:
        text = re.sub(r"\s+", " ", prose(page, section))
        for phrase in phrases:
            assert phrase in text, f"{phrase!r} is not in {text}"

    return f"{chapter}/{section}", look


PLACES = {
    "l16.order.cat_first_no_pe": lab("labs/order", "first"),
    "l16.order.cat_last_no_pe": lab("labs/order", "second"),
    "l16.pe.row3_of_16x8": lab("labs/pe", "vector"),
    "l16.pe.shape_16x8": ("labs/pe", lambda page: [rows(page), columns(page)]),
    "l16.embed.word_plus_pe0": lab("labs/pe", "plain"),
    "l16.embed.word_times2_plus_pe0": lab("labs/pe", "scaled"),
    "l16.pe.last_pair_speed_d4": lab("labs/pe?d=4", "slowest"),
    "l16.ffn.chain_shape": ("labs/ffn", lambda page: printed(page, "chain")[-2:]),
    "l16.ffn.hidden": table("labs/ffn", "Hidden units"),
    "l16.ffn.units_on": ("labs/ffn", lambda page: numbers(" ".join(page.locator(".after").all_inner_texts()))),
    "l16.ffn.output": table("labs/ffn", "Output (3, 2)"),
    "l16.ffn.share_of_layer_weights": said("parts", "ffn", "two out of three weights of a layer sit here"),
    "l16.relu_example": said("parts", "stable", "np.array([2.0, -2.0, 1.0, 0.0])", "array([2., 0., 1., 0.])"),
    "l16.ln.before_stats": lab("labs/layernorm", "mean", "std"),
    "l16.ln.one_word": lab("labs/layernorm", "out"),
    "l16.ln.per_word_table": table("labs/layernorm", "Normalised"),
    "l16.q.ln_1155": lab("labs/layernorm?word=[1,1,5,5]", "out"),
    "l16.q.ln_1155_stats": lab("labs/layernorm?word=[1,1,5,5]", "mean", "std"),
    "l16.ln.keepdims_true": said("parts", "stable", "has shape (2, 1)"),
    "l16.ln.keepdims_false": said("parts", "stable", "from (2, 4) to (2,)"),
    "l16.stack.post_norm_size": lab("labs/stack?rule=post", "size"),
    "l16.explorer.default": ("labs/block", lambda page: explorer(page)),
    "l16.decoder.one_token_trace": said("parts", "block", "LayerNorm: [-1, 1]", "[0, 4] + [-1, 1] = [-1, 5]",
                                        "Hidden layer after ReLU: [0, 2, 0, 0]", "[-1, 5] + [0, 2] = [-1, 7]"),
    "l16.ex.decoder.one_token_n1_residual": said("parts", "block", "[-1, 5] + [0, 2] = [-1, 7], the block's output"),
    "l19.path.post_default": lab("labs/residual-path", "in_layers"),
    "l19.post_norm_example": lab("labs/residual-path", "post"),
    "l19.pre_norm_example": lab("labs/residual-path", "pre"),
    "l19.rms.layernorm_stats": lab("labs/norms", "mean", "std"),
    "l19.rms.layernorm_out": lab("labs/norms", "layer_norm"),
    "l19.keepdims": said("modern", "rmsnorm", "# (2, 1): one number a token"),
    "l19.rope.quarter_turn_x": said("modern", "rope", "It sends [1, 0] to [0, 1]"),
    "l19.rope.quarter_turn_y": said("modern", "rope", "[0, 1] to [-1, 0]"),
    "l19.rope.one_radian_degrees": said("modern", "rope", "one radian is about 57 degrees"),
    "l19.rope.score_m0_n0": lab("labs/rope", "score"),
    "l19.rope.score_m2_n0": lab("labs/rope?m=2", "score"),
    "l19.rope.q_at_0": lab("labs/rope", "q_after"),
    "l19.rope.k_at_0": lab("labs/rope", "k_after"),
    "l19.rope.q_at_2": lab("labs/rope?m=2", "q_after"),
    "l19.rope.thetas_dk4": ("labs/rope?d_k=4", lambda page: [
        numbers(text)[1] for text in page.locator(".lab .name", has_text="Pair").all_inner_texts()]),
    "l19.rope.demo_py": ("labs/rope?d_k=4&m=7&n=4", lambda page: shifted(page)),
    "l19.swiglu.default": lab("labs/swiglu", "silu", "output"),
    "tbb.pe_4x4": ("labs/pe?L=4&d=4", lambda page: rows_read(page, 4)),
    "tbb.embeddings_plus_pe": ("transformers/block", lambda page: sums(page)),
    "tbb.causal_softmax": ("labs/mask?masked=false", lambda page: masked(page)),
}  # fmt: skip


def rows(page: Page) -> int:
    return int(page.get_by_role("slider", name="Position, one row each").get_attribute("aria-valuemax")) + 1


def columns(page: Page) -> int:
    return len(printed(page, "vector"))


def rows_read(page: Page, count: int) -> list[list[float]]:
    """Each row of the picture, read by arrow key."""
    picture = page.get_by_role("slider", name="Position, one row each")
    picture.press("Home")
    found = []
    for row in range(count):
        page.locator(".vector", has_text=f"position {row}:").wait_for()
        found.append(printed(page, "vector"))
        picture.press("ArrowDown")
    return found


def explorer(page: Page) -> dict[str, Any]:
    names, values = page.locator(".about dt").all_inner_texts(), page.locator(".about dd").all_inner_texts()
    about = {name: numbers(value.partition("=")[2]) for name, value in zip(names, values, strict=True)}
    page.locator("summary", has_text="Every tensor").click()
    shapes = {
        row.locator("code").inner_text(): numbers(row.locator("td").first.inner_text())
        for row in page.locator("details[open] tbody tr").all()
    }
    return {
        "io": about["input"],
        "weights_per_head": about["weights per head"],
        "mask": about["mask"],
        "d_k": shapes["attn.q"][-1],
        "q_per_head": shapes["attn.q"],
        "weights": shapes["attn.pattern"],
        "attention_parameters_no_bias": printed(page, "parameters")[0],
    }


def sums(page: Page) -> list[list[float]]:
    """The last column of the chapter's table of embeddings and positions."""
    table = page.locator("section#block figure", has_text="embedding + position").locator("tbody tr")
    table.first.wait_for()
    return [numbers(row.locator("td").last.inner_text()) for row in table.all()]


def shifted(page: Page) -> list[float]:
    """The score, and once more with both positions a hundred further on."""
    before = printed(page, "score")
    for _ in range(10):
        page.get_by_role("button", name="both +10", exact=True).click()
    page.locator(".seen", has_text="position 107").wait_for()
    return [*before, *printed(page, "score")]


def masked(page: Page) -> dict[str, Any]:
    raw = grid(page, "Scores")
    page.get_by_role("switch", name="Causal mask").click()
    page.get_by_text("-∞").first.wait_for()
    return {"raw": raw, "weights": grid(page, "Weights")}


def close(shown: Any, expected: Any, tolerance: float) -> None:
    """Equal as far as the screen rounds: to two decimals at least, or as far as the page printed."""
    if isinstance(expected, dict):
        assert shown.keys() == expected.keys()
        for key in expected:
            close(shown[key], expected[key], tolerance)
    else:
        assert flat([shown]) == pytest.approx(flat([expected]), abs=max(tolerance, 0.005))


def flat(value: Any) -> Any:
    return [inner for item in value for inner in flat(item)] if isinstance(value, list) else [value]


def test_every_stated_case_has_its_place() -> None:
    assert {case["name"] for case in STATED} == set(PLACES)
    assert len(PLACES) == 44


@pytest.mark.parametrize("case", STATED, ids=[case["name"] for case in STATED])
def test_a_stated_number_stands_on_the_screen(tab: Go, case: dict[str, Any]) -> None:
    path, read = PLACES[case["name"]]
    page = tab(path)
    if path.startswith("labs/"):
        page.locator(f".lab[data-lab='{path[5:].partition('?')[0]}'] .seen").wait_for(timeout=30_000)
    shown = read(page)
    if shown is None:
        return
    close(shown, case["expected"], case["tolerance"])

"""Every lab by mouse and by keyboard; the pages' printed numbers are read from the screen."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from cutaway.lab import labs
from tests.browser.conftest import Go, Open, number


def shows(page: Page, name: str, text: str) -> None:
    expect(page.locator(f"[data-number='{name}']").first).to_have_text(text)


def slider(page: Page, label: str) -> Locator:
    return page.get_by_role("slider", name=label, exact=True)


def cells(page: Page, caption: str) -> list[list[str]]:
    table = page.locator("figure", has=page.locator("figcaption", has_text=caption)).last.locator("tbody tr")
    return [row.locator("td:not(.after)").all_inner_texts() for row in table.all()]


@pytest.mark.parametrize("lab_id", labs.IDS)
def test_every_lab_draws_its_default_and_says_what_is_seen(lab: Go, lab_id: str) -> None:
    page = lab(lab_id)
    expect(page.locator(".seen")).to_have_text(labs.run(lab_id, {})["text"], timeout=30_000)


def test_order(lab: Go) -> None:
    page = lab("order")
    shows(page, "first", "[1.72, 0.28]")
    shows(page, "second", "[1.72, 0.28]")
    expect(page.locator("[data-number=verdict]")).to_contain_text("Same output")
    page.get_by_role("switch", name="Add positional encoding").click()
    shows(page, "first", "[1.78, 1.33]")
    shows(page, "second", "[2.84, -0.30]")
    page.get_by_role("switch", name="Add positional encoding").press("Space")
    page.get_by_role("switch", name="Causal mask").press("Space")
    shows(page, "first", "[2.00, 0.00]")
    shows(page, "second", "[1.72, 0.28]")
    page.get_by_label("First order").fill("dog cat car")
    expect(page.locator(".seen")).to_contain_text("cat")


def test_pe(lab: Go) -> None:
    page = lab("pe")
    row_3 = "[0.14, -0.99, 0.30, 0.96, 0.03, 1.00, 0.00, 1.00]"
    shows(page, "vector", row_3)
    shows(page, "plain", "[-0.77, 0.38, 0.91, 0.72]")
    shows(page, "scaled", "[-1.54, -0.24, 1.82, 0.44]")
    grid = page.get_by_role("slider", name="Position, one row each")
    grid.focus()
    grid.press("ArrowDown")
    assert number(page, "vector") != row_3 or page.wait_for_timeout(200) is None
    grid.press("Home")
    shows(page, "vector", "[0.00, 1.00, 0.00, 1.00, 0.00, 1.00, 0.00, 1.00]")
    box = grid.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 3.5 / 16)
    shows(page, "vector", row_3)
    width = slider(page, "d_model")
    width.focus()
    width.press("Home")
    shows(page, "vector", "[0.14, -0.99]")


def test_ffn(lab: Go) -> None:
    page = lab("ffn")
    shows(page, "chain", "(3, 2) @ (2, 4) → (3, 4) → ReLU → (3, 4) @ (4, 2) → (3, 2)")
    assert cells(page, "Hidden units") == [["2", "0", "1", "0"], ["1", "0", "0", "0"], ["0", "2", "0", "0"]]
    assert cells(page, "Output (3, 2)") == [["1", "1"], ["1", "0"], ["0", "2"]]
    assert page.locator(".after").all_inner_texts() == ["2 on", "1 on", "1 on"]
    cat = page.locator("[data-dot=cat]")
    cat.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "ArrowUp"):
        cat.press(key)
    expect(page.locator(".seen")).to_contain_text("[3, 1]")
    assert cells(page, "Hidden units")[0] == ["3", "0", "0", "2"]
    box = cat.locator("path").bounding_box()
    assert box
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 70, y + 3, steps=8)
    page.mouse.up()
    expect(page.locator(".seen")).not_to_contain_text("cat [3, 1]")


def test_ffn_rows_follow_hover_tap_and_focus_alike(lab: Go) -> None:
    page = lab("ffn")
    for act in ("hover", "focus", "click"):
        page.get_by_role("button", name="car").first.evaluate("node => node.blur()")
        getattr(page.get_by_role("button", name="cat").first, act)()
        expect(page.locator(".seen")).to_contain_text("cat [2, 0]")
        getattr(page.get_by_role("button", name="car").first, act)()
        expect(page.locator(".seen")).to_contain_text("car [0, 2]")


def test_layernorm(lab: Go) -> None:
    page = lab("layernorm")
    for name, text in {"mean": "3.00", "std": "1.87", "mean_after": "0.00", "std_after": "1.00"}.items():
        shows(page, name, text)
    shows(page, "out", "[-1.069, -0.535, 0.000, 1.604]")
    per_word = [  # noqa: E501
        ["-1.07", "-0.53", "0.00", "1.60"],
        ["0.00", "0.00", "1.41", "-1.41"],
        ["-1.41", "0.00", "1.41", "0.00"],
    ]
    assert cells(page, "Normalised") == per_word
    page.get_by_text("each column").click()
    expect(page.locator("[data-number=others_move]")).to_contain_text("moves the others")
    assert cells(page, "Normalised")[1] == ["1.39", "1.39", "1.39", "0.98"]
    page.get_by_label("word 2, number 0").fill("9")
    expect(page.locator("figure table").last).to_contain_text("-1.41")
    assert [row[0] for row in cells(page, "Normalised")[:2]] == ["-1.41", "0.83"]
    for i, value in enumerate(("1", "1", "5", "5")):
        page.get_by_label(f"number {i}", exact=True).fill(value)
    shows(page, "out", "[-1.000, -1.000, 1.000, 1.000]")


def test_stack(lab: Go) -> None:
    page = lab("stack")
    expect(page.locator("[data-number=verdict]")).to_have_text("the signal vanished")
    page.get_by_text("x ← LayerNorm(x + f(x))").click()
    shows(page, "size", "2.83")
    gain = slider(page, "Gain")
    gain.focus()
    gain.press("End")
    shows(page, "size", "2.83")
    page.get_by_text("x ← f(x)", exact=True).click()
    expect(page.locator("[data-number=verdict]")).to_have_text("the signal grew very large")


def test_residual_path(lab: Go) -> None:
    page = lab("residual-path")
    shows(page, "in_layers", "3")
    shows(page, "post", "[1.29, 0.64, -0.81, -1.13]")
    shows(page, "pre", "[4, 2, -2.5, -3.5]")
    layers = slider(page, "Layers")
    layers.focus()
    for _ in range(9):
        layers.press("ArrowRight")
    shows(page, "in_layers", "12")
    shows(page, "in_blocks", "24")
    page.get_by_text("pre-norm (today)").first.click()
    shows(page, "in_layers", "0 in the layers, 1 at the end")


def test_norms(lab: Go) -> None:
    page = lab("norms")
    shows(page, "mean", "2.5000")
    shows(page, "centred", "[-1.50, -1.50, 0.50, 2.50]")
    shows(page, "std", "1.6583")
    shows(page, "layer_norm", "[-0.9045, -0.9045, 0.3015, 1.5076]")
    shows(page, "rms_norm", "[0.3333, 0.3333, 1.0000, 1.6667]")
    page.get_by_label("x3").press("ArrowUp")
    shows(page, "mean", "2.6250")


def test_rope(lab: Go) -> None:
    page = lab("rope")
    shows(page, "score", "0.0000")
    shows(page, "q_after", "[1.0000, 0.0000]")
    shows(page, "k_after", "[0.0000, 1.0000]")
    m = slider(page, "Position m of q")
    m.focus()
    m.press("ArrowRight")
    m.press("ArrowRight")
    shows(page, "score", "0.8415")
    shows(page, "q_after", "[0.5403, 0.8415]")
    for label in ("both +1", "both +10", "both +1000"):
        page.get_by_role("button", name=label, exact=True).click()
        shows(page, "score", "0.8415")
    shows(page, "distance", "2")
    page = lab("rope?d_k=4&m=107&n=104")
    shows(page, "score", "1.058526")


def test_swiglu(lab: Go) -> None:
    page = lab("swiglu")
    shows(page, "silu", "-0.2689")
    shows(page, "output", "-0.5379")
    g = slider(page, "Gate g")
    g.focus()
    for _ in range(10):
        g.press("ArrowRight")
    shows(page, "silu", "0.0000")
    shows(page, "width", "1,365")
    page.get_by_text("128", exact=True).click()
    shows(page, "width", "1,408")


def test_mask(lab: Go) -> None:
    page = lab("mask")
    assert cells(page, "Weights")[0] == ["1.0000", "0.0000", "0.0000", "0.0000"]
    assert cells(page, "Weights")[3] == ["0.1495", "0.1406", "0.6413", "0.0687"]
    assert cells(page, "Scores")[0] == ["1.624", "-∞", "-∞", "-∞"]
    page.get_by_role("switch", name="Causal mask").press("Space")
    expect(page.locator(".seen")).to_have_text(labs.run("mask", {"masked": False})["text"])
    assert "-∞" not in sum(cells(page, "Scores"), [])


def test_block_selects_by_mouse_and_keyboard(lab: Go) -> None:
    page = lab("block")
    shows(page, "parameters", "256")
    shows(page, "input", "(1, 4, 8)")
    page.locator("[data-part='ffn']").click()
    shows(page, "parameters", "512")
    page.locator("[data-part='attn.norm']").focus()
    shows(page, "parameters", "16")
    page.get_by_role("switch", name="With biases").press("Space")
    page.locator("[data-part='ffn']").press("Enter")
    shows(page, "parameters", "552")


def differences(page: Page) -> dict[str, bool]:
    """Of each tensor in the folded table, whether a difference is written beside it."""
    rows = page.locator("details", has_text="Every tensor, in the order").locator("tbody tr")
    read = "rows => rows.map(row => [row.querySelector('code').textContent, row.lastElementChild.textContent])"
    return {name: difference not in ("0", "–") for name, difference in rows.evaluate_all(read)}


@pytest.mark.slow
@pytest.mark.parametrize("design", ["post", "pre", "modern", "encoder-decoder"])
def test_removing_each_part_shows_the_first_tensor_that_changes(lab: Go, design: str) -> None:
    page = lab(f"block?design={design}")
    legal = labs.run("block", {"design": design})["removable"]
    boxes = page.locator("fieldset", has=page.locator("legend", has_text="Remove parts")).get_by_role("checkbox")
    assert boxes.count() == len(legal)
    for index, part in enumerate(legal):
        expected = labs.run("block", {"design": design, "remove": [part]})
        boxes.nth(index).press("Space")
        expect(page.locator(".seen")).to_have_text(expected["text"])
        if expected["first"]:
            shows(page, "first", expected["first"]["name"])
            shows(page, "output_difference", expected["numbers"]["output_difference"])
            assert differences(page) == {row["name"]: bool(row["changed"]) for row in expected["tensors"]}
            changed = [row["name"] for row in expected["tensors"] if row["changed"]]
            assert changed[0] == expected["first"]["name"]
        boxes.nth(index).press("Space")
        expect(page.locator(".outcome")).to_have_count(0)


def test_hover_tap_and_focus_are_equal(open_page: Open) -> None:
    """Each picture that follows a pointer follows a finger and the keyboard in the same way."""
    page = open_page("labs/pe", has_touch=True)
    picture = page.get_by_role("slider", name="Position, one row each")
    box = picture.bounding_box()
    assert box
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + box["height"] * 5.5 / 16)
    expect(page.locator(".vector")).to_contain_text("position 5")
    page.touchscreen.tap(middle, box["y"] + box["height"] * 9.5 / 16)
    expect(page.locator(".vector")).to_contain_text("position 9")
    picture.focus()
    picture.press("ArrowUp")
    expect(page.locator(".vector")).to_contain_text("position 8")

    for lab_id, caption in (("ffn", "Hidden units"), ("attention", "Weights"), ("heads", "Weights of head")):
        page.goto(page.url.partition("#")[0] + f"#/labs/{lab_id}")
        rows = page.locator("figure", has=page.locator("figcaption", has_text=caption)).last.locator("tbody tr")
        rows.first.wait_for()
        for index, act in enumerate((Locator.hover, Locator.tap, Locator.hover)):
            act(rows.nth(index).locator("td").nth(1))
            expect(rows.nth(index).get_by_role("button")).to_have_attribute("aria-pressed", "true")
        rows.nth(0).get_by_role("button").focus()
        expect(rows.nth(0).get_by_role("button")).to_have_attribute("aria-pressed", "true")


def test_pictures_move_gently_unless_motion_is_reduced(open_page: Open) -> None:
    for motion, moves in (("no-preference", True), ("reduce", False)):
        page = open_page("labs/norms", reduced_motion=motion)
        bar = page.locator(".lab svg rect").first
        bar.wait_for()
        lasts = bar.evaluate(
            "node => Math.max(...getComputedStyle(node).transitionDuration.split(',').map(parseFloat))"
        )
        assert (lasts > 0) is moves

"""What each command prints: within 80 columns, without colour where it is piped, and as JSON."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from rich.cells import cell_len
from rich.console import Console

from cutaway import spec
from cutaway.cli import output
from cutaway.cli.app import app, specs

QUICK = [
    "show bert-tiny", "show t5", "show llama-7b", "show gpt2 --diff llama", "show course-gpt --set positions.kind=rope",
    "show gpt2-tiny --code", "taps t5-tiny", "taps original-2017-tiny", "list",
    "run t5 --remove help", "run original-2017 --remove help", "lab list", "learn list",
    "doctor", "spec check gpt2",
    "spec print modern-tiny", "spec schema", "spec count t5", "spec count llama-7b --tokens 8192",
    "spec count gpt2-tiny --tokens 100 --measure",
]  # fmt: skip


@pytest.mark.parametrize("words", QUICK)
def test_a_command_prints_within_80_columns_and_as_json(cutaway, words):
    done = cutaway(*words.split())
    assert (done.status, done.err) == (0, "") and done.out.strip() and "\x1b" not in done.out
    if words not in ("doctor", "spec schema"):
        assert max(map(len, done.lines)) <= 80, max(done.lines, key=len)
    if words != "spec schema":
        assert json.loads(cutaway(*words.split(), "--json").out)


def verbs():
    """Every command by its words."""
    for sub in app:
        if sub.startswith("-"):
            continue
        inner = [name for name in app[sub] if not name.startswith("-")]
        yield from (f"{sub} {name}" for name in inner) if inner else [sub]


def test_every_verb_takes_json(cutaway):
    known = list(verbs())
    assert len(known) >= 18 and {f"spec {name}" for name in specs if not name.startswith("-")} <= set(known)
    for words in [*known, "lab"]:
        help_ = cutaway(*words.split(), "--help").out
        assert "--json" in help_ and 'default: ""' not in help_, words


def test_every_verb_is_described(cutaway):
    for group in ("", "spec", "lab", "learn", "trace"):
        listed = cutaway(*group.split(), "--help").out.split("Commands")[1].split("╰")[0]
        names = re.findall(r"^│ ([a-z]+) +(\S.*)?│", listed, re.M)
        assert len(names) >= 2 and all(told.strip() for _, told in names), (group, names)


def test_run_as_json_tells_the_ids_the_text_and_the_inside(cutaway, tiny):
    done = json.loads(cutaway("run", tiny, "the capital", "--greedy", "--max-tokens", "5", "--json", "--trace").out)
    assert len(done["ids"]) == 5 and done["reason"] == "the limit of new tokens, 5, is reached"
    inside = done["inside"]
    assert inside["shapes"]["blocks.0.attn.pattern"] == [1, 4, *[len(done["prompt_ids"])] * 2]
    assert len(inside["likeliest"]["block 1"]) == 5 and inside["sizes"]["parameters"] > 0
    assert done["without"]["parts"] == ["blocks.0.ffn", "blocks.1.ffn"] and done["without"]["whole"]["loss"] > 0


def test_chat_as_json_is_a_line_an_answer(cutaway, tiny):
    done = cutaway("chat", tiny, "--max-tokens", "3", "--json", stdin="hello\nand more\n")
    assert [json.loads(line)["role"] for line in done.lines] == ["assistant", "assistant"]


def test_pull_tells_where_it_lies(cutaway):
    path = cutaway("pull", "smollm2").out.strip()
    assert json.loads(cutaway("pull", "smollm2", "--json").out) == {"name": "smollm2", "path": path}


def test_no_color_is_kept_on_a_terminal(monkeypatch):
    def shown():
        return Console(force_terminal=True, color_system="standard", _environ=dict(__import__("os").environ))

    monkeypatch.setenv("NO_COLOR", "1")
    assert shown().no_color


def test_a_listed_preset_is_shown(cutaway):
    listed = json.loads(cutaway("list", "--json").out)
    assert listed["presets"] == spec.names() and "smollm2" in listed["models"]


def test_show_says_words_shapes_and_cost(cutaway):
    out = cutaway("show", "smollm2").out
    for words in ("9 heads of 64 on 3 of keys and values", "q_proj 576×576", "blocks 0 to 29", "134,515,008",
                  "1,536 bytes of cache a token", "RMSNorm with gain (eps 1e-5)", "(tied)"):  # fmt: skip
        assert words in re.sub(r"[\s│]+", " ", out), words


def test_show_keeps_a_name_beside_its_shape(cutaway):
    lines = cutaway("show", "smollm2").out.splitlines()
    assert any(line.endswith("norm_in 576") and "o_proj" not in line for line in lines)
    assert all(line == line.rstrip() and "\xa0" not in line for line in lines)


def test_diff_says_what_follows(cutaway):
    out = cutaway("show", "gpt2", "--diff", "llama").out
    assert "norm: LayerNorm with gain and shift (eps 1e-5) → RMSNorm with gain (eps 1e-5)" in out
    assert "layers: 12 → 30" in out and "parameters: 124,439,808 → 134,515,008  (+8.1%)" in out
    assert "bytes of cache a token: 73,728 → 46,080  (-37.5%)" in out
    assert "are the same model" in cutaway("show", "gpt2", "--diff", "gpt2").out
    changed = cutaway("show", "gpt2", "--set", "n_layers=3", "--diff", "gpt2").out
    assert "gpt2 with --set → gpt2" in changed and "layers: 3 → 12" in changed


def test_count_is_the_sum_of_its_parts_and_predicts(cutaway):
    told = json.loads(cutaway("spec", "count", "modern-tiny", "--tokens", "64", "--measure", "--json").out)
    assert told["parameters"] == sum(part["parameters"] for part in told["parts"])
    speed = told["speed"]
    assert speed["bandwidth"] > 1e8 and speed["flop_rate"] > 1e8
    cost = spec.count(spec.preset("modern-tiny"), tokens=64)
    by_memory = speed["bandwidth"] / (cost.read_bytes + cost.cache_bytes)
    assert speed["writing_predicted"] == pytest.approx(min(by_memory, speed["flop_rate"] / cost.decode_flops))
    assert speed["writing_measured"] > 0 and speed["reading_measured"] > 0


@pytest.mark.parametrize(
    ("n", "said"),
    [(12, "12 B"), (999.6, "1.00 kB"), (46080, "46.1 kB"), (538060032, "538 MB"), (1e12, "1.00 TB"),
     (2.56e20, "256 EB"), (1e30, "1.00e30 B"), (10**30, "1.00e30 B")],
)  # fmt: skip
def test_numbers_have_three_digits(n, said):
    assert spec.words.scaled(n, "B") == said


def test_counts_have_all_digits_as_long_as_a_person_reads_them():
    told = [spec.words.counted(n) for n in (0, 134_515_008, 10**15 - 1, 64 * 10**18, 4e30)]
    assert told == ["0", "134,515,008", "999,999,999,999,999", "6.40e19", "4.00e30"]


@pytest.mark.parametrize("width", [20, 40, 80, 400])
def test_a_table_fits_any_width_and_loses_nothing(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [
        ("blocks.0.attn.norm_in.scale", "1,234,567", "' Mediterranean' 12%"),
        ("\u65e5\u672c\u8a9e\u306e\u3053\u3068\u3070" * 3, "8", ""),
        ("x", "", "a"),
    ]
    output.print_table(("tensor", "parameters", "what it is"), rows, left=(0, 2))
    out = capsys.readouterr().out
    assert max(map(cell_len, out.splitlines())) <= width
    assert len(out.splitlines()) >= 4 and (len(out.splitlines()) == 4) == (width >= 80)
    letters = Counter(char for row in rows for cell in row for char in cell if char != " ")
    assert not letters - Counter(out)


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (66, ["after     1 to 5",
              "embedded  ' a' 40%  ' the' 9% ' is' 5%  ' of' 2%  ',' 1%",
              "blocks.0  ' b' 50%  ' Liechtenstein' 12%          ' to' 3%  ',' 1%",
              "          ' by' 1%"]),
        (40, ["after     1 to 5",
              "embedded  ' a' 40%  ' the' 9% ' is' 5%",
              "          ' of' 2%  ',' 1%",
              "blocks.0  ' b' 50%  ' Liechtenstein' 12%",
              "          ' to' 3%  ',' 1%    ' by' 1%"]),
    ],
)  # fmt: skip
def test_what_is_listed_stays_whole_and_goes_on_below(capsys, monkeypatch, width, said):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [
        ("embedded", "' a' 40%", "' the' 9%", "' is' 5%", "' of' 2%", "',' 1%"),
        ("blocks.0", "' b' 50%", "' Liechtenstein' 12%", "' to' 3%", "',' 1%", "' by' 1%"),
    ]
    output.print_table(("after", "1", "2", "3", "4", "5"), rows, left=range(6), listed=True)
    assert capsys.readouterr().out.splitlines() == said


NARROW = ["show t5-tiny", "show gpt2 --diff llama", "taps modern-tiny", "run t5 --remove help", "lab run rope",
          "learn list", "spec count t5", "trace numerics modern-tiny", "trace heads modern-tiny",
          "trace lens modern-tiny 5,3,9 --ids", "trace attention modern-tiny 5,3,9 --ids",
          "trace attribution modern-tiny 5,3,9 --ids"]  # fmt: skip


@pytest.mark.parametrize("width", [20, 40])
@pytest.mark.parametrize("words", NARROW)
def test_a_narrow_terminal_is_kept_to(cutaway, words, width):
    done = cutaway(*words.split(), columns=width)
    assert (done.status, done.err) == (0, "") and max(map(cell_len, done.lines)) <= width


def test_what_stands_in_a_narrow_table_is_what_stands_in_a_wide_one(cutaway):
    wide, narrow = (cutaway("spec", "count", "t5-tiny", columns=width) for width in (400, 20))
    cells = {cell for line in wide.lines[:-2] for cell in re.split("  +", line.strip())}
    assert len(cells) > 30 and all("".join(cell.split()) in "".join(narrow.out.split()) for cell in cells)

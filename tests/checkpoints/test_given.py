"""Every handed case, compared by the checker that came with the cases."""

from __future__ import annotations

import importlib.util
import json
import os
from argparse import Namespace
from pathlib import Path

import pytest

from cutaway.checkpoints.family import families
from tests import adapter

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(os.environ.get("CUTAWAY_CASES", ROOT.parent / "shared")) / "cases"
GIVEN = CASES / "given"
INDEX = json.loads((GIVEN / "index.json").read_text())["cases"] if GIVEN.is_dir() else []
FILES = sorted(folder.name for folder in (GIVEN / "gguf").iterdir() if folder.is_dir()) if GIVEN.is_dir() else []
KNOWN = {name for family in families() for name in family.model_types}
ARCHITECTURES = {each.architecture for family in families() for each in family.gguf}


@pytest.fixture(scope="module")
def check():
    described = importlib.util.spec_from_file_location("check", CASES / "check.py")
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


def test_every_case_is_of_a_family_that_is_known():
    assert len(INDEX) >= 45 and {case["family"] for case in INDEX} <= KNOWN
    assert {name.split("-")[1] for name in FILES} <= ARCHITECTURES


@pytest.mark.parametrize("case", INDEX, ids=lambda case: case["case"])
def test_a_case_is_met(check, case):
    _, fails, _ = check.run_case(adapter, str(GIVEN), case, Namespace(skip_hidden=False, verbose=False))
    assert fails == []


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_met(check, name):
    folder = GIVEN / "gguf" / name
    _, fails, _ = check.run_gguf(adapter, str(folder), json.loads((folder / "case.json").read_text()))
    assert fails == []


def test_every_block_type_is_unpacked(check):
    _, fails, done = check.run_dequant(adapter, str(GIVEN / "gguf"))
    assert fails == [] and done == ["25 types"]

"""The page of the benchmarks' JSON has every key of the schema, described; and no other."""

import json
import re
from pathlib import Path

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
SCHEMA = json.loads((REFERENCE / "bench.schema.json").read_text(encoding="utf-8"))
PAGE = (REFERENCE / "bench.md").read_text(encoding="utf-8")


def test_every_key_is_described_on_the_page():
    wanted = {}
    for one in (SCHEMA, *SCHEMA["$defs"].values()):
        wanted |= one["properties"]
    assert all(what.get("description") for what in wanted.values())
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(wanted)


def test_the_page_says_what_the_schema_says():
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (.*) \|$", PAGE, re.MULTILINE)
    tables = (SCHEMA, *SCHEMA["$defs"].values())
    said = [(name, what["description"]) for one in tables for name, what in one["properties"].items()]
    assert set(said) <= set(rows)

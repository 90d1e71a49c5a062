"""Write `schemas/evidence-v2.json`, the schema of evidence files, from the models."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import JsonValue

from contribbot.model.evidence import Statement


def evidence_schema() -> dict[str, JsonValue]:
    """Return the JSON schema (draft 2020-12) of an evidence file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Statement.model_json_schema(by_alias=True, mode="validation"),
        "title": "contribbot evidence v2: an in-toto Statement with a test-result v0.1 predicate",
    }


if __name__ == "__main__":
    text = json.dumps(evidence_schema(), indent=2, sort_keys=True)
    Path(__file__).with_name("schemas").joinpath("evidence-v2.json").write_text(text + "\n")

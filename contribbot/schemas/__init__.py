"""The JSON schema of evidence files; `python -m contribbot.schemas` writes it from the models."""

from __future__ import annotations

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


def evidence_schema_path() -> Path:
    """Return the path of the schema file in this package."""
    return Path(__file__).with_name("evidence-v2.json")

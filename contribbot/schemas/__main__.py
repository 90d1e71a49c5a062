"""Write the JSON schema of evidence files into this package."""

import json

from contribbot.schemas import evidence_schema, evidence_schema_path

if __name__ == "__main__":
    text = json.dumps(evidence_schema(), indent=2, sort_keys=True)
    evidence_schema_path().write_text(text + "\n", encoding="utf-8")

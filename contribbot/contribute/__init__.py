"""From proof to pull request: the text, the gate, the attestation, the branch, what follows."""

"""Contribute proved patches: text, gate, attestation, branch, pull request and follow-up."""

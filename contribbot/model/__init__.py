"""Pydantic models and other types that several packages use."""

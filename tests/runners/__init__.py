"""Tests of the runners room."""

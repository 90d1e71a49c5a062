"""ROCm runners over GitHub Actions: what runs where, and what came back."""

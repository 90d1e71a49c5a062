"""Scripts that measure; each prints ratios from one run."""

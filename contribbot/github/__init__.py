"""GitHub behind a narrow protocol: see `protocol`, and `connect` for an open client."""

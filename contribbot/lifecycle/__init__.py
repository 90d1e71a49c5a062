"""What becomes of a queue while its upstreams move on."""

"""The life of a queue while its upstreams move on."""

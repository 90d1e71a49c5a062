"""The life of a queue: where its patches stand, what another release makes of them."""

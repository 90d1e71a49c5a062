"""A row that is no power of two is read to its end, and no further."""

import torch
from toy.sums import sums


def test_a_row_of_200() -> None:
    assert sums(torch.ones(1, 200, device="cuda")).tolist() == [200.0]

"""Decides on one machine what pytorch/ao#2460 was: `python -m pytest -rs test_int8_weight_only.py`.

Needs torch and pytest, not torchao: the model is computed from the same seed, and quantised bit
for bit as torchao does it. docs/int8-tolerance.md says what each outcome means.
"""

import pytest
import torch
from torch import Tensor

#: What the test of torchao reported on ROCm: elements off, and both maxima with their index.
PUBLISHED_OFF, PUBLISHED_ABS, PUBLISHED_REL = 63, (5.71131706e-4, 12), (3.22028399e-2, 36)

Layers = list[tuple[Tensor, Tensor]]


def draw() -> tuple[Layers, Tensor]:
    """Draw the weights and the input from the seed of torch's TestCase; int8 and a scale a row."""
    torch.manual_seed(1234)
    weights = [
        torch.nn.Linear(*sizes, bias=False).weight.detach() for sizes in ((64, 32), (32, 64))
    ]
    layers = []
    for weight in weights:
        scale = (weight.abs().amax(1) / 127.5).clamp(min=torch.finfo(torch.float32).eps)
        whole = torch.round(weight * (1 / scale[:, None])).clamp(-128, 127)
        layers.append((whole.to(torch.int8), scale))
    return layers, torch.randn(1, 64)


def compute(layers: Layers, x: Tensor, *, cut: bool = False) -> Tensor:
    """Multiply as torchao does; `cut`: of the activations, the upper 19 bits alone."""
    for whole, scale in layers:
        if cut:
            x = (x.view(torch.int32) & ~0x1FFF).view(torch.float32)
        x = torch.mm(x, whole.t().to(x.dtype)) * scale
    return x


def compute_on_gpu(precision: str) -> Tensor:
    """Compute on the GPU under a precision of float32 products."""
    if not torch.cuda.is_available():
        pytest.skip(f"torch {torch.__version__} sees no GPU here")
    layers, x = draw()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        return compute([(whole.cuda(), scale.cuda()) for whole, scale in layers], x.cuda()).cpu()
    finally:
        torch.set_float32_matmul_precision(before)


def differences(actual: Tensor, expected: Tensor) -> tuple[int, Tensor, Tensor]:
    """Return how many elements are off by `assert_close`'s defaults, and both differences."""
    absolute = (actual - expected).abs()[0]
    off = int((absolute > 1e-5 + 1.3e-6 * expected.abs()[0]).sum())
    return off, absolute, absolute / expected.abs()[0]


def test_published_figures_are_those_of_cut_activations() -> None:
    """On any machine: 63 of 64, and both maxima where they were reported."""
    layers, x = draw()
    off, absolute, relative = differences(compute(layers, x), compute(layers, x, cut=True))
    assert off == PUBLISHED_OFF
    # The processor's order of adding moves them by up to 1.2e-7 and 3.4e-5.
    for difference, (published, index), spread in (
        (absolute, PUBLISHED_ABS, 2e-7),
        (relative, PUBLISHED_REL, 5e-5),
    ):
        assert int(difference.argmax()) == index
        assert difference.max().item() == pytest.approx(published, abs=spread)


def test_highest_is_float32() -> None:
    """On any GPU: without TF32 the test's own tolerance is enough."""
    torch.testing.assert_close(compute(*draw()), compute_on_gpu("highest"))


def test_high_cuts_activations_on_gfx942(monkeypatch: pytest.MonkeyPatch) -> None:
    """On gfx942: with TF32 the result is that of cut activations, within the same tolerance."""
    monkeypatch.setenv("HIPBLASLT_ALLOW_TF32", "1")  # older releases of PyTorch ask for it
    result = compute_on_gpu("high")
    here = getattr(torch.cuda.get_device_properties(0), "gcnArchName", torch.cuda.get_device_name())
    if torch.version.hip is None or not here.startswith("gfx942"):
        pytest.skip(f"needs gfx942, whose matrix units have XF32; this is {here}")
    torch.testing.assert_close(compute(*draw(), cut=True), result)
    assert differences(compute(*draw()), result)[0] == PUBLISHED_OFF

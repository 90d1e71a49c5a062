"""The emulated GPU as torch and Triton programs see it."""

from __future__ import annotations

import copy
import ctypes
import gc
import importlib
import io
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import triton
from torch import nn

from contribbot.emulate import EmulatedGpu, KernelError, RequestError, UnmodelledError, device
from contribbot.emulate.decode import FACTS, TABLES
from tests.kernels import add, copy_all, count, gather, scale


@pytest.fixture(scope="module")
def gpu() -> Iterator[EmulatedGpu]:
    with device("gfx942") as active:
        yield active


@pytest.mark.parametrize("target", TABLES)
def test_a_kernel_of_triton_is_executed_on_each_target(target: str) -> None:
    with device(target) as gpu:
        x, y = torch.randn(1000, device="cuda"), torch.randn(1000).cuda()
        out = torch.empty_like(x)
        add[(8,)](x, y, out, 1000, size=128)
        assert torch.equal(out, x + y)
        assert gpu.kernels[-1].target == target
        assert torch.cuda.get_device_properties(0).gcnArchName.split(":")[0] == target
        assert torch.cuda.get_device_capability() == FACTS[target].capability
        assert triton.runtime.driver.active.get_current_target().arch == target


def test_a_kernel_that_outlives_the_gpu_is_unloaded_by_nobody(tmp_path: Path) -> None:
    """Triton 3.8's compiled kernels have this finaliser."""
    script = tmp_path / "outlive.py"
    script.write_text(
        "import torch\nfrom triton.compiler import CompiledKernel\n"
        "from triton.runtime import driver\n"
        "CompiledKernel.__del__ = lambda kernel: driver.active.utils.unload_module(kernel.module)\n"
        "from contribbot.emulate import device\nfrom tests.kernels import scale\n"
        "for target in ('gfx942', 'gfx1201'):\n    with device(target):\n"
        "        x = torch.ones(16, device='cuda')\n"
        "        scale[(1,)](x, x, 8.0, 2.0, 1, True)\nscale.device_caches.clear()\n"
    )
    ran = subprocess.run(
        [sys.executable, script],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ".", "TRITON_CACHE_DIR": str(tmp_path / "triton")},
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_torch_is_as_before_afterwards() -> None:
    before = {name: getattr(torch.cuda, name) for name in dir(torch.cuda)}
    version, environment = dict(vars(torch.version)), dict(os.environ)
    with device("gfx1201"):
        assert torch.version.hip
        assert torch.cuda.is_available()
    assert {name: getattr(torch.cuda, name) for name in dir(torch.cuda)} == before
    assert (dict(vars(torch.version)), dict(os.environ)) == (version, environment)
    assert not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError, NotImplementedError)):
        torch.empty(1, device="cuda")


def test_a_real_gpu_of_nvidia_is_not_seen(tmp_path: Path) -> None:
    library = tmp_path / "libnvidia-ml.so.1"
    shutil.copy(Path(torch.__file__).with_name("lib") / "libshm.so", library)
    ctypes.CDLL(str(library))  # vLLM asks it whether the platform is CUDA
    with device("gfx942"), pytest.raises(OSError, match="no real GPU is used"):
        ctypes.CDLL(str(library))
    ctypes.CDLL(str(library))
    with device("gfx942"):
        ctypes.CDLL(None)


@pytest.mark.parametrize(
    ("target", "said"),
    [("gfx906", "gfx906 is not modelled: gfx90a"), ("gfx942", "gfx942 is emulated already")],
)
@pytest.mark.usefixtures("gpu")
def test_a_device_that_cannot_be(target: str, said: str) -> None:
    with pytest.raises(RequestError, match=said), device(target):
        pass


@pytest.mark.usefixtures("gpu")
class TestTensors:
    """What torch's own tensors of a GPU do."""

    def test_they_say_where_they_are(self) -> None:
        x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda")
        assert (x.device, x.is_cuda, x.get_device()) == (torch.device("cuda", 0), True, 0)
        assert (
            (x @ x).device.type == (x > 1).device.type == torch.zeros_like(x).device.type == "cuda"
        )
        assert (x.cpu().device.type, x.to("cpu").tolist()) == ("cpu", [[1, 2], [3, 4]])
        assert repr(x[0]) == "tensor([1., 2.], device='cuda:0')"
        assert x.sum().item() == 10
        with pytest.raises(TypeError, match="can't convert cuda"):
            x.numpy()
        with torch.device("cuda"):
            assert torch.arange(3).is_cuda
            assert torch.tensor([1.0]).is_cuda
        assert x.to(torch.ones(1)).device.type == "cpu"
        assert torch.ones(1).to(x).is_cuda
        assert torch.from_numpy(x.cpu().numpy()).to("cuda:0").is_cuda

    def test_a_number_names_the_gpu(self) -> None:
        # A build of torch for processors has no device to a number.
        named = torch.device(0)
        assert named == torch.device("cuda:0") == torch.device(named) == torch.device("cuda", 0)
        assert isinstance(named, torch.device)
        assert isinstance(torch.device(type="cpu", index=0), torch.device)
        assert torch.zeros(2, device=named).is_cuda

        def take(x: torch.Tensor, place: torch.device | None = None) -> torch.Tensor:
            raise NotImplementedError

        take.__annotations__ = {"x": torch.Tensor, "place": torch.device | None,
                                "return": torch.Tensor}  # fmt: skip
        schema = torch.library.infer_schema(take, mutates_args=())
        assert schema == "(Tensor x, Device? place=None) -> Tensor"

    def test_views_share_memory_and_have_addresses_in_it(self) -> None:
        x = torch.zeros(4, 8, dtype=torch.float16, device="cuda")
        x[2].fill_(3)
        assert x.sum().item() == 24
        assert x[2].data_ptr() - x.data_ptr() == 32
        assert x.data_ptr() % 256 == 0
        assert torch.empty(0, device="cuda").data_ptr() == 0
        y = torch.empty_like(x)
        assert abs(y.data_ptr() - x.data_ptr()) > 1 << 31
        x.unsqueeze_(0).transpose_(0, 2)
        assert x.shape == (8, 4, 1)
        with pytest.raises(NotImplementedError, match="resize_"):
            y.resize_(2)
        assert y.shape == (4, 8)
        y.data = y.data[:, :3]
        assert (y.shape, y.cpu().shape) == ((4, 3), (4, 3))

    def test_modules_gradients_and_copies(self) -> None:
        def trained(where: str) -> list[torch.Tensor | None]:
            torch.manual_seed(0)
            x = torch.randn(3, 4).to(where).requires_grad_()
            model = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.GELU()).to(where)
            y = model(Square.apply(None, x, 2))  # type: ignore[no-untyped-call]  # torch's has no types
            a, b = y.split([2, 3], 1)
            loss = (torch.cat([a * 2, b], 1).softmax(-1) * y).sum() + x.sum()
            (first,) = torch.autograd.grad(loss, [x], retain_graph=True)
            loss.backward()
            (x**2).sum().backward()  # type: ignore[no-untyped-call]  # torch has no types
            return [first, x.grad, *(weight.grad for weight in model.parameters())]

        for here, there in zip(trained("cuda"), trained("cpu"), strict=True):
            assert here is not None
            assert here.is_cuda
            torch.testing.assert_close(here.cpu(), there)
        x = torch.ones(2, device="cuda", requires_grad=True)
        y = copy.deepcopy(x)
        assert y.requires_grad
        assert y.data_ptr() != x.data_ptr()

    def test_random_numbers_threads_and_inference(self) -> None:
        generator = torch.Generator(device="cuda").manual_seed(7)
        a = torch.randn(3, device="cuda", generator=generator)
        assert torch.equal(a, torch.randn(3, device="cuda", generator=generator.manual_seed(7)))
        made = []
        thread = threading.Thread(target=lambda: made.append(torch.zeros(2, device="cuda")))
        thread.start()
        thread.join()
        assert made[0].is_cuda
        with torch.inference_mode():
            assert (a[1:] + 1).is_cuda

    @pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
    def test_a_copy_has_its_device_and_memory_of_its_own(
        self, mode: Callable[[], AbstractContextManager[None]]
    ) -> None:
        with mode():
            gpu, cpu = torch.ones(3, device="cuda"), torch.ones(3)
            down = [gpu.cpu(), gpu.to("cpu", torch.float64), gpu.to(cpu)]
            up = [cpu.cuda(), cpu.to("cuda", torch.float64), cpu.to(gpu), gpu[cpu.to(torch.int32)]]
            gpu.add_(1)
            cpu.add_(1)
            assert [x.device.type for x in (*down, *up)] == ["cpu"] * 3 + ["cuda"] * 4
            assert all(x.tolist() == [1, 1, 1] for x in (*down, *up))

    def test_too_large_a_tensor(self) -> None:
        with pytest.raises(torch.OutOfMemoryError, match=r"no room for 4096\.0 GiB"):
            torch.empty(1 << 40, device="cuda")

    def test_a_file_brings_tensors_back_to_their_device(self, tmp_path: Path) -> None:
        x = torch.arange(6.0, device="cuda").view(2, 3)
        state = {"all": x, "row": x[1], "cpu": x.cpu(), "weight": nn.Parameter(x)}
        torch.save(state, tmp_path / "state.pt")
        loaded = [
            torch.load(tmp_path / "state.pt"),
            torch.load(tmp_path / "state.pt", weights_only=False),
            pickle.loads(pickle.dumps(state)),  # noqa: S301  its own
        ]
        for found in loaded:
            assert [each.device.type for each in found.values()] == ["cuda", "cuda", "cpu", "cuda"]
            assert found["row"].tolist() == [3, 4, 5]
            assert found["weight"].requires_grad
        torch.save(x.cpu(), tmp_path / "cpu.pt")
        assert torch.load(tmp_path / "cpu.pt", map_location="cuda").is_cuda
        assert torch.load(tmp_path / "state.pt", map_location="cpu")["all"].device.type == "cpu"

    def test_the_file_of_a_real_gpu_is_loaded(self, tmp_path: Path) -> None:
        x = torch.arange(3.0)
        with mock.patch("torch.serialization.location_tag", return_value="cuda:0"):
            torch.save({"x": x, "view": x[1:]}, tmp_path / "x.pt")
        found = torch.load(tmp_path / "x.pt")
        assert (found["x"].is_cuda, found["view"].tolist()) == (True, [1, 2])
        found["x"][1] = 7
        assert found["view"].tolist() == [7, 2]

    def test_memory_is_counted(self) -> None:
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        before, (free, total) = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()
        x = torch.zeros(1 << 20, device="cuda")
        views = x[1:], x.view(2, -1)
        assert torch.cuda.memory_allocated() - before == 4 << 20
        y = x + 1
        del x, views, y
        gc.collect()
        assert torch.cuda.memory_allocated() == before
        assert torch.cuda.max_memory_allocated() - before == 8 << 20
        assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] - before == 8 << 20
        assert torch.cuda.memory.memory_allocated() == before
        assert torch.cuda.memory.get_allocator_backend() == "native"
        assert free <= total == torch.cuda.get_device_properties(0).total_memory == 192 << 30

    def test_operators_that_only_a_gpu_has(self) -> None:
        a, b = torch.randn(2, 8, 8, dtype=torch.bfloat16), torch.randn(2, 8, 8).bfloat16()
        for product, x, y in ((torch.mm, a[0], b[0]), (torch.bmm, a, b)):
            made = product(x.cuda(), y.cuda(), out_dtype=torch.float32)
            assert (made.dtype, made.is_cuda) == (torch.float32, True)
            torch.testing.assert_close(made.cpu(), product(x.float(), y.float()))
            assert product(x.cuda(), y.cuda(), out_dtype=torch.float32, out=made) is made
        q = torch.randn(1, 2, 16, 8)
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        made = flash(*[q.cuda()] * 3, is_causal=True)[0]
        expected = nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        torch.testing.assert_close(made.cpu(), expected)

    def test_layer_norm_of_short_floats_is_computed_in_float32(self) -> None:
        """On processors its mean is rounded to bfloat16: gradients of short rows are far off."""
        torch.manual_seed(0)
        x, w, b = (torch.randn(size, 2).squeeze(0).bfloat16() for size in (128, 1, 1))
        grads = []
        for kind in (torch.bfloat16, torch.float64):
            mine = [each.to("cuda", kind).requires_grad_() for each in (x, w, b)]
            out = nn.functional.layer_norm(mine[0], (2,), mine[1], mine[2])
            assert out.dtype == kind
            grads.append(torch.autograd.grad(out, mine, x.to("cuda", kind)))
        for grad, exact in zip(*grads, strict=True):
            assert grad.dtype == torch.bfloat16
            assert torch.allclose(grad.double(), exact, rtol=0.02, atol=0.02)
        mean = torch.ops.aten.native_layer_norm(x.cuda(), (2,), None, None, 1e-5)[1]
        assert mean.dtype == torch.float32

    @pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
    def test_softmax_of_float16_is_float32_if_asked(self, function: Any) -> None:
        """Torch has that on GPUs alone; autocast asks for it."""
        x = torch.randn(2, 4).half().cuda().requires_grad_()
        out = function(x, -1, dtype=torch.float32)
        assert torch.allclose(out.cpu(), function(x.cpu().float(), -1))
        (grad,) = torch.autograd.grad(out[0, 0], x)
        assert grad.dtype == torch.float16

    def test_batch_norm_runs_where_torch_has_its_decomposition_in_python(self) -> None:
        importlib.import_module("torch._decomp")
        norm = nn.BatchNorm1d(3, affine=False).cuda()
        out = norm(torch.randn(8, 3).half().cuda())
        assert out.dtype == torch.float16
        assert bool(norm.running_mean.any())  # type: ignore[union-attr]  # torch's stub

    def test_numbers_have_formats(self) -> None:
        assert format(torch.tensor(1.23456).cuda(), ".3g") == "1.23"
        with pytest.raises(TypeError):
            format(torch.ones(2).cuda(), ".3g")

    def test_tensors_for_other_processes_are_the_gpus(self) -> None:
        """Another process received tensors of the processor, and kernels read nothing."""
        for x in (torch.ones(2).cuda(), nn.Parameter(torch.ones(2).cuda())):
            reduce: Any = ForkingPickler(io.BytesIO()).dispatch_table[type(x)]
            build, parts = reduce(x)
            made = build(*parts)
            assert (made.device.type, made.tolist()) == ("cuda", [1, 1])
            assert made.requires_grad == isinstance(x, nn.Parameter)

    def test_conjugates_and_negatives_are_values(self) -> None:
        """Liger's rotary embedding of Llama 4 had another gradient: the conjugate was lost."""
        x = torch.tensor([1 + 2j, 3 - 1j]).cuda().requires_grad_()
        y = torch.tensor([2 + 1j, 1 + 4j]).cuda()
        (grad,) = torch.autograd.grad((x * y).abs().square().sum(), x)
        assert torch.allclose(grad.cpu(), 2 * (x * y * y.conj()).detach().cpu())
        assert (x * y.conj()).tolist() == [4 + 3j, -1 - 13j]
        assert (y.conj().imag * 2).tolist() == [-2, -8]

    def test_whole_numbers_are_counted_into_a_histogram(self) -> None:
        counts = torch.histc(torch.tensor([0, 1, 1, 3], dtype=torch.int32, device="cuda"), 4, 0, 3)
        assert (counts.dtype, counts.tolist()) == (torch.int32, [1, 2, 0, 1])

    def test_an_operator_that_is_not_there_is_not_modelled_in_one_line(self) -> None:
        x = torch.ones(2, 2, device="cuda")
        with pytest.raises(UnmodelledError) as caught:
            torch.ops.aten._triton_multi_head_attention(x, x, x, 2, 1, x, x, x, x)
        assert re.fullmatch(
            r"aten\._triton_multi_head_attention\S* .*not modelled", str(caught.value)
        )

    def test_generators_and_scalars(self) -> None:
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        torch.manual_seed(3)
        first = torch.randn(2, device="cuda")
        generator.manual_seed(3)
        assert torch.equal(torch.randn(2, device="cuda"), first)
        # As FlagGems takes numbers for its kernels: eight bytes each of a seed and an offset.
        state = generator.get_state()
        seed, offset = state.view(torch.int64)
        assert (seed, offset) == (3, 0)
        second = torch.randn(2, device="cuda")
        offset += 4
        generator.set_state(state)  # another offset of one seed: numbers go on
        assert not torch.equal(torch.randn(2, device="cuda"), second)
        offset -= 4
        generator.set_state(state)
        assert torch.equal(torch.randn(2, device="cuda"), second)
        scalars = [torch.tensor(n, device="cuda") for n in (1, 2)]
        made = torch.tensor([scalars, scalars], dtype=torch.long, device="cuda")
        assert (made.tolist(), made.is_cuda) == ([[1, 2], [1, 2]], True)

    def test_operators_with_a_python_kernel_for_gpus_run_it(self) -> None:
        torch.library.define("emulated_test::twice", "(Tensor x) -> Tensor")
        torch.library.impl(
            "emulated_test::twice", "cuda", lambda x: torch.empty_like(x).copy_(x * 2)
        )
        x = torch.ones(2, device="cuda")
        assert torch.ops.emulated_test.twice(x).tolist() == [2, 2]
        torch.library.define(
            "emulated_test::scaled", "(Tensor x, ScalarType kind=None, float by=1.) -> Tensor"
        )
        torch.library.impl("emulated_test::scaled", "cuda", lambda x, _=None, by=1: x * by)
        assert torch.ops.emulated_test.scaled(x, by=3).tolist() == [3, 3]
        with pytest.raises(AttributeError, match="'_OpNamespace' 'emulated_test'"):
            torch.ops.emulated_test.thrice(x)

    def test_a_library_replaces_operators_of_torch_on_the_gpu_as_flaggems_does(self) -> None:
        x = torch.tensor([1.0, 2.0], device="cuda", requires_grad=True)
        with torch.library._scoped_library("aten", "IMPL") as library:
            library.impl("mul.Tensor", lambda a, b: a + b, "CUDA")
            library.impl("isclose", lambda a, _: a, "CUDA")  # composed of others in torch
            made = x * x
            assert (made.tolist(), (x.cpu() * x.cpu()).tolist()) == ([2, 4], [1, 4])
            assert torch.isclose(x.detach(), made).tolist() == [1, 2]
            assert (x.detach() * 3.0).tolist() == [4, 5]
        assert (x * x).tolist() == [1, 4]

    def test_graphs_and_sparse_tensors_are_refused(self) -> None:
        with pytest.raises(NotImplementedError, match="CUDA graphs are not emulated"):
            torch.cuda.CUDAGraph()
        with pytest.raises(NotImplementedError, match=r"no torch\.sparse_coo tensors"):
            torch.ones(2, 2, device="cuda").to_sparse()

    def test_compiled_functions_run_as_they_are(self) -> None:
        with mock.patch.dict(os.environ):  # torch names its cache there
            self.compiled()

    @staticmethod
    def compiled() -> None:
        assert torch.compile(lambda x: x * 2)(torch.ones(2, device="cuda")).tolist() == [2, 2]


class Square(torch.autograd.Function):
    """A function whose gradient is written in Python, as Triton's users do."""

    @staticmethod
    def forward(ctx: Any, _: None, x: torch.Tensor, power: int) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**power

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[None, torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        assert x.is_cuda == grad.is_cuda
        return None, 2 * x * grad, None


def _leaf_hook(x: Any) -> list[torch.Tensor | None]:
    handle = x.register_hook(lambda gradient: gradient * 2)
    (x * 3).sum().backward()
    handle.remove()
    (x * 3).sum().backward()
    return [x.grad]


def _inner_hooks(x: Any) -> list[torch.Tensor | None]:
    y = x * 3
    y.retain_grad()
    first, second = y.split([2, 1])
    y.register_hook(lambda gradient: gradient + 1)
    second.register_hook(lambda gradient: gradient * 5)
    (first.sum() + second.sum() * 2).backward()
    return [x.grad, y.grad]


def _hooks_of_nodes(x: Any) -> list[torch.Tensor | None]:
    y = x.exp()
    node = y.grad_fn
    seen = list[torch.Tensor | None]()
    node.register_prehook(lambda outer: tuple(each * 2 for each in outer))
    node.register_hook(lambda inner, _: (inner[0] + 7,))
    node.register_hook(lambda _, outer: seen.extend(outer))
    (y * y).sum().backward()
    return [x.grad, *seen]


def _tenfold(weight: torch.Tensor) -> None:
    assert weight.grad is not None
    weight.grad.mul_(10)


def _threefold(_: nn.Module, outer: Any) -> tuple[torch.Tensor]:
    return (outer[0] * 3,)


def _hooks_of_modules(x: Any) -> list[torch.Tensor | None]:
    first, second = nn.Linear(3, 3, bias=False).to(x.device), nn.Tanh().to(x.device)
    nn.init.constant_(first.weight, 0.5)
    seen = list[torch.Tensor | None]()
    first.register_full_backward_hook(lambda _, inner, outer: seen.extend([*inner, *outer]))
    second.register_full_backward_pre_hook(_threefold)
    weight: Any = first.weight
    weight.register_post_accumulate_grad_hook(_tenfold)
    second(first(x)).sum().backward()
    return [x.grad, weight.grad, *seen]


def _hooks_where_gradients_are_asked_for(x: Any) -> list[torch.Tensor | None]:
    y = x * 3
    for each in (x, y):
        each.register_hook(lambda gradient: gradient * 2)
    return [*torch.autograd.grad((y * y).sum(), [x, y])]


@pytest.mark.parametrize(
    "work",
    [
        _leaf_hook,
        _inner_hooks,
        _hooks_of_nodes,
        _hooks_of_modules,
        _hooks_where_gradients_are_asked_for,
    ],
)
@pytest.mark.usefixtures("gpu")
def test_backward_calls_hooks(work: Callable[[torch.Tensor], list[torch.Tensor | None]]) -> None:
    x = torch.tensor([1.0, -2.0, 0.5])
    expected = work(x.clone().requires_grad_())
    for here, there in zip(work(x.cuda().requires_grad_()), expected, strict=True):
        assert here is not None
        assert here.is_cuda
        torch.testing.assert_close(here.cpu(), there)


@pytest.mark.usefixtures("gpu")
class TestLaunches:
    """Launches through Triton's own runtime."""

    def test_out_of_bounds_is_found_to_the_byte(self, gpu: EmulatedGpu) -> None:
        x, out = torch.zeros(1023, device="cuda"), torch.zeros(1024, device="cuda")
        said = r"argument 0 \(x\) \(4092 bytes\), 4 bytes past its end"
        with pytest.raises(KernelError, match=said) as found:
            copy_all[(1,)](x, out, size=1024)
        assert gpu.record.drain() == [found.value]
        # A view is as large as its storage, and an address before it is nobody's.
        table = torch.tensor([out.data_ptr() - 64], device="cuda")
        with pytest.raises(KernelError, match=r"bytes before the start of argument 1 \(out\)"):
            gather[(1,)](table, out, size=16)

    def test_the_first_workgroup_that_fails_is_the_one_that_is_told(self) -> None:
        x, out = torch.zeros(1000, device="cuda"), torch.zeros(4096, device="cuda")
        for _ in range(5):
            with pytest.raises(KernelError, match=r"4 bytes at offset 4000 of argument 0"):
                copy_all[(32,)](x, out, size=128)

    def test_tables_of_addresses(self) -> None:
        groups = [torch.randn(64, device="cuda") for _ in range(5)]
        table = torch.tensor([group.data_ptr() for group in groups], device="cuda")
        out = torch.zeros(5, 64, device="cuda")
        gather[(5,)](table, out, size=64)
        assert torch.equal(out, torch.stack(groups))
        # A tensor that is gone leaves its address to nobody.
        del groups[2]
        with pytest.raises(KernelError, match="where nothing lies"):
            gather[(5,)](table, out, size=64)

    def test_tensors_of_the_processor(self) -> None:
        assert torch.tensor([1.0], pin_memory=True).is_pinned()
        x, out = torch.ones(64), torch.zeros(64, device="cuda")
        with pytest.raises(ValueError, match="Pointer argument cannot be accessed from Triton"):
            copy_all[(1,)](x, out, size=64)
        pinned = x.pin_memory()
        assert (x.is_pinned(), pinned.is_pinned()) == (False, True)
        assert torch.zeros(2, pin_memory=True).is_pinned()
        assert x.new_empty(2, pin_memory=True).shape == (2,)
        copy_all[(1,)](pinned, out, size=64)
        assert out.sum().item() == 64

    def test_the_driver_has_the_properties_that_triton_s_own_has(self) -> None:
        source = Path(triton.__file__).parent / "backends" / "amd" / "driver.c"
        found = source.read_text().partition("static PyObject *getDeviceProperties")[2]
        names = re.findall(r'"(\w+)"', found.partition("Py_BuildValue")[2].partition(";")[0])
        ours = triton.runtime.driver.active.utils.get_device_properties(0)
        assert sorted(ours) == sorted(names)

    def test_numbers_of_each_type(self) -> None:
        x = torch.full((16,), 2.0, device="cuda")
        out = torch.zeros(16, device="cuda")
        scale[(1,)](x, out, 1.5, half=0.25, whole=-3, flag=True)
        assert out.tolist() == [0.25] * 16

    def test_sums_of_all_workgroups_are_those_of_one_thread(self) -> None:
        out = torch.zeros(1, device="cuda")
        count[(1000,)](out)
        assert out.item() == 1500

    def test_autotuning_takes_the_first_configuration_that_can_be_launched(self) -> None:
        # 32 waves are 2,048 work-items; a workgroup has 1,024 at most.
        configurations = [triton.Config({"size": 64}, num_warps=warps) for warps in (32, 2, 1)]
        tuned = triton.autotune(configurations, key=[])(copy_all)
        x, out = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
        tuned[(1,)](x, out)
        assert tuned.best_config.num_warps == 2
        assert out.sum().item() == 64

    @pytest.mark.filterwarnings("ignore:warmup, rep, and use_cuda_graph:DeprecationWarning")
    def test_autotuning_by_graphs_takes_the_first_configuration(self) -> None:
        tuned = triton.autotune(
            [triton.Config({"size": 64}, num_warps=warps) for warps in (2, 1)],
            key=[],
            use_cuda_graph=True,
        )(copy_all)
        x, out = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
        tuned[(1,)](x, out)
        assert (tuned.best_config.num_warps, out.sum().item()) == (2, 64)

    def test_a_cooperative_launch_is_not_modelled(self) -> None:
        out = torch.zeros(1, device="cuda")
        with pytest.raises(UnmodelledError, match="cooperative launch"):
            count[(4,)](out, launch_cooperative_grid=True)

    def test_what_is_not_modelled_is_recorded(
        self, gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise UnmodelledError("an instruction")

        gpu.record.drain()
        monkeypatch.setattr(sys.modules["contribbot.emulate.dispatch"], "_registers", refuse)
        x = torch.ones(64, device="cuda")
        with pytest.raises(UnmodelledError):
            copy_all[(1,)](x, torch.zeros_like(x), size=64)
        assert [str(error) for error in gpu.record.drain()] == ["an instruction"]

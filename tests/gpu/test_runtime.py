"""Streams, graphs, threads, processes and torch's features around a convolution on a GPU."""

import os
import subprocess
import sys
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F

import aotconv
from tools import channels_last, exact, integers, outcome

ARGUMENTS = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)


def ours():
    return aotconv.ops.runtime


def problem():
    return channels_last(integers(2, 16, 9, 9)), channels_last(integers(16, 16, 3, 3))


def test_c61_runs_on_the_current_stream():
    x, w = torch.zeros(1, 8, 64, 64, device="cuda").half(), torch.ones(8, 8, 1, 1, device="cuda").half()
    aotconv.conv2d(x, w)
    side = torch.cuda.Stream()
    for _ in range(20):
        x.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000)
            x.fill_(3)
            y = aotconv.conv2d(x, w)
        side.synchronize()
        assert (y == 24).all()


def captured(call):
    """(graph, result) of a captured call."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = call()
    return graph, y


def test_graph_after_preload():
    assert aotconv.preload() > 0
    x, w = problem()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph, y = captured(lambda: aotconv.conv2d(x, w, None, 1, 1))
    for value in (1, 2):
        x.fill_(value)
        graph.replay()
        assert torch.equal(y.cpu(), exact(x, w, None, 1, 1))


def test_graph_before_anything_is_loaded_is_atens():
    x, w = problem()
    F.conv2d(x, w, None, 1, 1)
    runtime = ours()
    handles, said = dict(runtime.handles), set(runtime.said)
    runtime.handles.clear(), runtime.said.clear(), runtime.native.memo_clear()
    try:
        with pytest.warns(aotconv.AotconvWarning, match="preload"):
            graph, y = captured(lambda: aotconv.conv2d(x, w, None, 1, 1))
    finally:
        runtime.handles.update(handles), runtime.said.update(said)
    x.fill_(2)
    graph.replay()
    assert torch.equal(y.cpu(), exact(x, w, None, 1, 1))
    before = runtime.native.memo_stats()["size"]
    aotconv.conv2d(x, w, None, 1, 1)
    assert runtime.native.memo_stats()["size"] == before + 1, "aten's turn during the capture must not be remembered"


def test_threads_that_meet_only_new_sizes():
    aotconv.preload()
    right = {}
    threads = [threading.Thread(target=new_sizes, args=(number, right)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert not any(thread.is_alive() for thread in threads)
    assert right == dict.fromkeys(range(8), True)
    assert ours().native.memo_stats()["size"] <= 4096


def new_sizes(number, right):
    """10,000 problems that no other thread has, each once; every fiftieth result is looked at."""
    generator = torch.Generator("cuda").manual_seed(number)
    base = torch.randint(-3, 4, (1, 1, 100, 1000 + number), device="cuda", generator=generator).half()
    w = torch.full((1, 1, 1, 1), 2.0, device="cuda").half()
    bad = torch.zeros((), dtype=torch.bool, device="cuda")
    with torch.inference_mode():
        for i in range(10_000):
            x = base[:, :, : 1 + i // 100, : 1 + i % 100]  # its row stride is the thread's own
            y = aotconv.conv2d(x, w)
            if i % 50 == 0:
                bad |= (y != 2 * x).any()
    right[number] = not bad.item()


def test_current_device_stays():
    before = torch.cuda.current_device()
    aotconv.conv2d(*problem())
    assert torch.cuda.current_device() == before


def test_c59_tensors_on_two_devices():
    x, w = problem()
    assert outcome(aotconv.conv2d, x, w.cpu()) is outcome(F.conv2d, x, w.cpu()) is RuntimeError
    if torch.cuda.device_count() > 1:
        y = aotconv.conv2d(x.to("cuda:1"), w.to("cuda:1"), None, 1, 1)
        assert y.device.index == 1 and torch.cuda.current_device() == 0
        assert torch.equal(y.cpu(), exact(x, w, None, 1, 1))


CHILD = """
import os, torch, aotconv
aotconv.conv2d
assert not torch.cuda.is_initialized()
if os.fork() == 0:
    y = aotconv.conv2d(torch.ones(1, 8, 4, 4, device="cuda").half(), torch.ones(8, 8, 3, 3, device="cuda").half())
    assert (y == 72).all()
    assert aotconv.ops.runtime.native.memo_stats()["size"] == 1
    os._exit(0)
_, status = os.wait()
assert status == 0, status
print("right")
"""


def test_c63_import_then_fork():
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True)
    assert done.stdout == "right\n", done.stderr


def test_c65_inference_mode():
    x, w = problem()
    with torch.inference_mode():
        assert aotconv.conv2d(x, w, None, 1, 1).is_inference()
        frozen = x.clone()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        aotconv.conv2d(frozen, w.clone().requires_grad_(), None, 1, 1).sum().backward()


def test_gradients():
    x, w = (t.float().requires_grad_() for t in problem())
    b = torch.zeros(16, device="cuda", requires_grad=True)
    with torch.backends.cudnn.flags(allow_tf32=False):
        ours = torch.autograd.grad(aotconv.conv2d(x, w, b, 1, 1).pow(2).sum(), (x, w, b))
    x, w, b = (t.detach().double().cpu().requires_grad_() for t in (x, w, b))
    theirs = torch.autograd.grad(F.conv2d(x, w, b, 1, 1).pow(2).sum(), (x, w, b))
    for mine, reference in zip(ours, theirs):
        assert torch.equal(mine.double().cpu(), reference)  # every partial sum is an integer below 2^24


def test_c25_gradients_that_are_views():
    x, w = problem()
    other = channels_last(integers(16, 16, 3, 3, seed=1))
    for g in (integers(1, 1, 1, 1).expand(2, 16, 9, 9), integers(2, 32, 9, 9)[:, 16:], channels_last(integers(2, 32, 9, 9))[:, ::2],
              integers(2, 9, 9, 1).permute(0, 3, 1, 2).expand(2, 16, 9, 9)):
        dx, dw, _ = aotconv.convolution_backward(g, x, other, None, *ARGUMENTS, [True, True, False])
        exact_dx, exact_dw, _ = torch.ops.aten.convolution_backward(*(t.double().cpu() for t in (g, x, other)), None, *ARGUMENTS, [True, True, False])
        assert torch.equal(dx.cpu(), exact_dx.half()) and torch.equal(dw.cpu(), exact_dw.half())


STRICT = """
import torch, aotconv
x, w = torch.ones(1, 8, 4, 4, device="cuda"), torch.ones(8, 8, 3, 3, device="cuda")
assert (aotconv.conv2d(x.half(), w.half()) == 72).all()
for arguments, expected in (((x.double(), w.double()), aotconv.AotconvError), ((x, w, None, 0), RuntimeError), ((x, w.half()), RuntimeError)):
    try:
        aotconv.conv2d(*arguments)
    except RuntimeError as error:
        assert type(error) is expected, error
        print(error)
    else:
        raise AssertionError(arguments)
assert aotconv.conv2d(x[:0], w).shape == (0, 8, 2, 2)
runtime = aotconv.ops.runtime
runtime.handles.clear()
runtime.native.load_kernel = lambda *_: (_ for _ in ()).throw(RuntimeError("the driver says no"))
try:
    aotconv.conv2d(x.half()[:, :, 1:], w.half())
except aotconv.AotconvError as error:
    print(error)
"""


def test_strict_mode_raises_with_the_reason():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", STRICT], capture_output=True, text=True, env={**os.environ, "AOTCONV_MODE": "strict"})
    assert done.returncode == 0, done.stderr
    dtype, stride, mixed, driver = done.stdout.strip().splitlines()
    assert "float64" in dtype and "stride" in stride and "same" in mixed and "the driver says no" in driver


def test_forward_mode_gradients_are_not_dropped():
    x, w = (t.float() for t in problem())
    with torch.autograd.forward_ad.dual_level():
        y = aotconv.conv2d(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)), w, None, 1, 1)
        tangent = torch.autograd.forward_ad.unpack_dual(y).tangent
    torch.testing.assert_close(tangent, F.conv2d(torch.ones_like(x), w, None, 1, 1))


def test_transforms():
    x, w = (t.float() for t in problem())
    mapped = torch.vmap(lambda one: aotconv.conv2d(one[None], w, None, 1, 1)[0])(x)
    torch.testing.assert_close(mapped, F.conv2d(x, w, None, 1, 1))
    grad = torch.func.grad(lambda weight: aotconv.conv2d(x, weight, None, 1, 1).sum())(w)
    torch.testing.assert_close(grad, torch.func.grad(lambda weight: F.conv2d(x, weight, None, 1, 1).sum())(w))


def test_autocast():
    x, w = (t.float() for t in problem())
    w.requires_grad_()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y = aotconv.conv2d(x, w, None, 1, 1)
        assert y.dtype == torch.bfloat16
        with torch.no_grad():
            assert aotconv.conv2d(x, w, None, 1, 1).dtype == torch.bfloat16
    y.float().sum().backward()
    assert w.grad.dtype == torch.float32


def test_operator_is_as_torch_expects():
    x, w = problem()
    for first, second in ((x, w), (x.contiguous(), w.contiguous()), (x.float().requires_grad_(), w.float().requires_grad_())):
        torch.library.opcheck(torch.ops.aotconv.convolution.default, (first, second, None, *ARGUMENTS))
    permuted, weight = integers(2, 7, 1).permute(0, 2, 1), integers(4, 1, 3)  # C21: the fake strides are the real ones
    torch.library.opcheck(torch.ops.aotconv.convolution.default, (permuted, weight, None, [1], [1], [1], False, [0], 1))


def test_compile_and_export():
    x, w = problem()
    compiled = torch.compile(lambda x: aotconv.conv2d(x, w, None, 1, 1).relu(), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), aotconv.conv2d(x, w, None, 1, 1).relu())

    class Model(torch.nn.Module):
        def forward(self, x):
            return aotconv.conv2d(x, w, None, 1, 1)

    program = torch.export.export(Model(), (x,))
    assert "aotconv.convolution" in str(program.graph)
    assert torch.equal(program.module()(x), aotconv.conv2d(x, w, None, 1, 1))


def test_trace_records_an_operator_that_any_torch_script_knows():
    x, w = problem()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(lambda x: aotconv.conv2d(x, w, None, 1, 1), (x,))
    assert "aotconv::_run" not in str(traced.graph)
    assert torch.equal(traced(x), aotconv.conv2d(x, w, None, 1, 1))


def test_a_failed_launch_is_one_sentence_and_aten():
    x, w = channels_last(integers(3, 16, 11, 9)), channels_last(integers(16, 16, 3, 3))
    runtime = ours()
    aotconv.conv2d(*problem())
    genuine = runtime.plan

    def unloaded(words):
        plan = genuine(words)
        head = 3 + 2 * plan[2] + 3  # magic, dtype, rank, sizes, strides, workspace, zeroed, steps
        plan[head] = 10**9          # the first step's kernel handle
        return plan

    runtime.native.set_planner(unloaded)
    try:
        with pytest.warns(aotconv.AotconvWarning, match="1000000000"):
            y = aotconv.conv2d(x, w, None, 1, 1)
    finally:
        runtime.native.set_planner(genuine)
    assert torch.equal(y, F.conv2d(x, w, None, 1, 1))


def test_info_and_verify():
    info = aotconv.info()
    assert info.device in info.targets and info.admitted[info.device] == info.packs[info.device]
    assert aotconv.verify() == []

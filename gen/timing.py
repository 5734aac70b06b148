"""Device time of aten and of artifacts: graph replays over rotated inputs, large problems hot. Needs torch alone.

A call is a function of the number of an input set. Sets together exceed the L2 where they are few enough; all are cut
from one arena of random numbers, so that a problem costs no allocation and no copy.
"""

from statistics import median
from typing import NamedTuple

import torch

from aotconv import geometry
from aotconv.families import launch
from aotconv.geometry import DTYPE_CODES
from aotconv.plan import WORKSPACE, plan_words
from aotconv.problem import ITEMSIZE, Layout, Problem

TORCH_DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
SLOTS = {"x": 0, "w": 1, "b": 2, "y": 3}
ROTATED_BYTES, MAX_SETS = 150_000_000, 16   # an L2 holds 60 MB on an H200
ALIGN = 256
REPLAYS, FEW = 7, 3                        # of a call, and of one that is slower than the best by more than MATTERS
MATTERS = 1.3
GRAPH_US, MAX_CALLS = 400.0, 64             # what one replay should last, and hold
EAGER_US = 60.0                             # under this a first timing may have seen the host, not the device
SLOW_US = 3_000.0                           # above this a call is timed alone: the host is far ahead
HOT_FLOPS, HOT_US = 10e9, 6_000.0           # heavy problems are timed on a card that has been at it for a while
HOPELESS = 4.0                              # a first call this many times slower than the best is not timed further


class Timing(NamedTuple):
    """Median microseconds of a call, half the middle half's width over it, and how many replays."""

    us: float
    spread: float
    samples: int


class Arena:
    """Memory from which tensors of any layout are cut; random numbers, until something writes there."""

    def __init__(self, dtype: torch.dtype):
        self.dtype, self.used, self.buffer = dtype, 0, None

    def reserve(self, elements: int):
        """Room for `elements`, from the beginning."""
        self.used = 0
        if self.buffer is None or self.buffer.numel() < elements:
            self.buffer = None  # the old one first
            self.buffer = torch.randn(max(elements, ROTATED_BYTES), dtype=self.dtype, device="cuda")

    def cut(self, layout: Layout) -> torch.Tensor:
        tensor = self.buffer.as_strided(layout.sizes, layout.strides, self.used)
        self.used += room(layout)
        return tensor


def room(layout: Layout) -> int:
    """Elements that a tensor takes in an arena."""
    return -(-(layout.extent + 1) // ALIGN) * ALIGN


class Bench:
    """Arenas, a stream and a pool for the graphs of one process."""

    def __init__(self):
        self.arenas = {}
        self.stream = torch.cuda.Stream()
        self.pool = torch.cuda.graph_pool_handle()
        self.anchor = self.capture(lambda i: torch.zeros(1, device="cuda"), 1, 1)  # keeps the pool's memory

    def tensors(self, problem: Problem) -> list[dict]:
        """Input sets of a problem with a place for its result in each, by name."""
        layouts = {"x": problem.x, "w": problem.w, "y": problem.y} | ({"b": problem.bias} if problem.bias else {})
        size = ITEMSIZE[problem.dtype] * sum(map(room, layouts.values()))
        count = min(max(-(-ROTATED_BYTES // size), 1), MAX_SETS)
        arena = self.arenas.setdefault(problem.dtype, Arena(TORCH_DTYPES[problem.dtype]))
        arena.reserve(count * sum(map(room, layouts.values())))
        return [{name: arena.cut(layout) for name, layout in layouts.items()} for _ in range(count)]

    def measure(self, call, sets: int, heavy: bool = False, best_us: float = float("inf")) -> Timing:
        """The time of a call. A call that is hopeless beside `best_us` is timed once."""
        with torch.cuda.stream(self.stream):
            call(0)
            first = self.eager(call, 1)
            if first > HOPELESS * max(best_us, EAGER_US):
                return Timing(first, 0.0, 1)
            first = min(first, self.eager(call, 1))
            if first > SLOW_US:
                return repeated(lambda: self.eager(call, 1), best_us)
            return self.replayed(call, sets, first, heavy, best_us)

    def replayed(self, call, sets: int, first_us: float, heavy: bool, best_us: float) -> Timing:
        wanted = MAX_CALLS if first_us < EAGER_US else min(GRAPH_US / first_us, MAX_CALLS)
        calls = max(-(-int(wanted) // sets), 1) * sets
        graph = self.capture(call, sets, calls)
        for _ in range(1 + int(HOT_US / (calls * first_us)) if heavy else 1):
            graph.replay()
        return repeated(lambda: between(graph.replay) / calls, best_us)

    def eager(self, call, calls: int) -> float:
        return between(lambda: [call(i) for i in range(calls)]) / calls

    def capture(self, call, sets: int, calls: int) -> torch.cuda.CUDAGraph:
        """A graph of `calls` calls. Results live on until their set's turn comes again, so that they rotate too."""
        graph, results = torch.cuda.CUDAGraph(), [None] * sets
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                for i in range(calls):
                    results[i % sets] = call(i % sets)
            finally:
                graph.capture_end()
        return graph


def between(work) -> float:
    """Microseconds on the device from before to after, work's own launches included."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1000


def repeated(once, best_us: float) -> Timing:
    """A few timings, and more where they could matter."""
    values = [once() for _ in range(FEW)]
    if median(values) < MATTERS * best_us:
        values += [once() for _ in range(REPLAYS - FEW)]
    return timing(values)


def timing(values) -> Timing:
    values = sorted(values)
    quarter = len(values) // 4
    middle = median(values)
    return Timing(middle, (values[-1 - quarter] - values[quarter]) / 2 / middle, len(values))


def together(timings: list[Timing]) -> Timing:
    """Several timings of one call as one: the median of the medians, the widest spread."""
    return Timing(median(t.us for t in timings), max(t.spread for t in timings), sum(t.samples for t in timings))


def kernel_call(runtime, artifact, problem: Problem, tensors: list[dict], stream: torch.cuda.Stream):
    """A call that launches an artifact on a stream; None when it cannot be loaded. Plans are made as dispatch makes them."""
    handle = runtime.load_artifact(0, artifact)
    if not handle:
        return None
    slots = {name: slot for name, slot in SLOTS.items() if name in tensors[0]}
    steps, workspace, zeroed = launch(artifact, problem, handle, slots, runtime.libraries[0].device.multiprocessors)
    plan = plan_words(problem, DTYPE_CODES[problem.dtype], steps, workspace, zeroed)
    scratch = torch.empty(max(workspace, 1), dtype=torch.uint8, device="cuda")
    pointers = [pointers_of(one, slots, scratch) for one in tensors]
    start, where = runtime.native.launch, stream.cuda_stream
    return lambda i, keep=scratch: start(plan, 0, where, pointers[i])


def pointers_of(tensors: dict, slots: dict, scratch) -> list:
    pointers = [None] * 5
    pointers[WORKSPACE] = scratch.data_ptr()
    for name, slot in slots.items():
        pointers[slot] = tensors[name].data_ptr()
    return pointers


def aten_call(entry, tensors: list[dict]):
    """aten's call for an entry of a problem file, on the same tensors."""
    p = entry.problem
    lists = (list(p.stride), list(p.padding), list(p.dilation), entry.transposed, list(entry.output_padding), p.groups)
    given, result = ("y", "x") if entry.transposed else ("x", "y")
    if entry.kind == geometry.FWD:
        operator = torch.ops.aten.convolution.default
        return lambda i: operator(tensors[i][given], tensors[i]["w"], tensors[i].get("b"), *lists)
    mask = [entry.kind == geometry.BWD_INPUT, entry.kind == geometry.BWD_WEIGHT, False]
    operator = torch.ops.aten.convolution_backward.default
    return lambda i: operator(tensors[i][result], tensors[i][given], tensors[i]["w"], None, *lists, mask)


def set_flags(problem: Problem):
    """What aten may do for this problem: try every algorithm that cuDNN has, and use TF32 where the problem allows it."""
    torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, 0
    torch.backends.cudnn.allow_tf32 = problem.tf32

"""What runs inside the deployment check's sandbox: standard library, torch and the installed wheel, nothing else.

    python3 -I -B deployment_probe.py SITE TASK ...

An audit hook, set before the first import of torch, records every process that starts, every file opened for writing,
every connection, and every import of triton, which is hidden. Answers go to standard output: a JSON line, then the bytes it
announces. gen/deployment.py starts it and judges; both draw the same inputs from `inputs`.
"""

import json
import os
import sys
import time

STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "pty.spawn")
WRITES = ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.truncate", "tempfile.mkstemp", "tempfile.mkdtemp")
TALKS = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FULL = 4_000_000   # outputs up to this many elements are compared whole
GEOMETRY = ("stride", "padding", "dilation", "output_padding")
SAMPLES = 4096     # of larger ones: this many, and the corners
events: list[str] = []


def main():
    watch()
    site, task, *rest = sys.argv[1:]
    sys.path.insert(0, site)
    {"first": first, "results": results, "speed": speed}[task](*rest)


# ---- what must not happen ---------------------------------------------------------------------------------------------


def watch():
    """Record what a deployment must not do; hide triton."""
    sys.addaudithook(record)
    sys.meta_path[:] = map(Without, sys.meta_path)


def record(event: str, arguments):
    if event == "open":
        path, _, flags = arguments
        if not isinstance(path, int) and flags & WRITING:
            events.append(f"file opened for writing: {path}")
    elif event == "import" and is_triton(arguments[0]):
        events.append(f"import of {arguments[0]}")
    elif event in STARTS or event in WRITES or event in TALKS:
        events.append(f"{event} {arguments!r}"[:200])


def is_triton(name: str) -> bool:
    return name.split(".")[0] == "triton"


class Without:
    """An import finder that does not find triton: importing it fails, and torch, which asks whether it is there, hears no."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if is_triton(name) else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


# ---- inputs, the same in the sandbox and in the checker ---------------------------------------------------------------


def inputs(row: dict, number: int):
    """(x, w, bias or None) in bfloat16 on the GPU: channels-last for 2-D, but for a tenth of the rows; else contiguous."""
    import torch

    generator = torch.Generator("cuda").manual_seed(number)
    draw = lambda sizes: torch.randn(sizes, generator=generator, device="cuda").bfloat16()
    x, w = draw(row["x"]), draw(row["w"])
    if is_last(row, number):
        x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
    channels = row["w"][1] * row["groups"] if row["transposed"] else row["w"][0]
    return x, w, draw(channels) if row["bias"] else None


def is_last(row: dict, number: int) -> bool:
    return len(row["stride"]) == 2 and number % 10 != 0


def picks(sizes, number: int):
    """Indices of the outputs that are compared, a tensor for each dimension; None for all of them."""
    import itertools
    import math

    import torch

    if math.prod(sizes) <= FULL:
        return None
    generator = torch.Generator().manual_seed(number)
    corners = torch.tensor(list(itertools.product(*((0, size - 1) for size in sizes))))
    drawn = torch.stack([torch.randint(size, (SAMPLES,), generator=generator) for size in sizes], 1)
    return tuple(torch.cat([corners, drawn]).T.cuda())


# ---- tasks ------------------------------------------------------------------------------------------------------------


def say(header: dict, data: bytes = b""):
    sys.stdout.buffer.write(json.dumps({**header, "bytes": len(data)}).encode() + b"\n" + data)
    sys.stdout.buffer.flush()


def first(which: str):
    """The first convolution of a fresh process, by `aotconv` or by `eager` torch."""
    import torch

    if which == "aotconv":
        from aotconv import conv2d
    else:
        from torch.nn.functional import conv2d
    x = torch.ones(1, 64, 56, 56, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    w = torch.full((64, 64, 3, 3), 0.5, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        value = conv2d(x, w, None, 1, 1)[0, 0, 1, 1].item()
    say({"right": value == 288, "events": events})


def results(problems: str):
    """Every problem once: what served it, and its result."""
    import torch

    import aotconv

    for number, row in enumerate(map(json.loads, open(problems))):
        say(*one_result(torch, aotconv, row, number))
    say({"events": events, "triton": "triton" in sys.modules, "home": os.environ["HOME"], "uid": os.getuid(),
         "faults": aotconv.verify(), "package": os.path.dirname(aotconv.__file__)})


def one_result(torch, aotconv, row: dict, number: int):
    """(header, bytes of the compared outputs)."""
    x, w, bias = inputs(row, number)
    arguments = (row["stride"], row["padding"], row["dilation"], row["transposed"], row["output_padding"], row["groups"])
    why = aotconv.explain(x, w, bias, *arguments)
    try:
        with torch.inference_mode():
            y = call(aotconv, row, x, w, bias)
    except aotconv.AotconvError as error:
        return {"tier": why.tier, "raised": str(error)}, b""
    chosen = picks(y.shape, number)
    seen = y.contiguous().flatten() if chosen is None else y[chosen]
    header = {"tier": why.tier, "variant": why.variant, "sizes": list(y.shape), "strides": list(y.stride())}
    return header, raw(seen.view(torch.int16).cpu())


def raw(tensor) -> bytes:
    """The bytes of a contiguous CPU tensor; numpy may be absent."""
    import ctypes

    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def call(aotconv, row: dict, x, w, bias):
    """The functional call of the row's rank."""
    rank, (stride, padding, dilation, extra) = len(row["stride"]), (tuple(row[n]) for n in GEOMETRY)
    if row["transposed"]:
        conv = getattr(aotconv, f"conv_transpose{rank}d")
        return conv(x, w, bias, stride, padding, extra, row["groups"], dilation)
    return getattr(aotconv, f"conv{rank}d")(x, w, bias, stride, padding, dilation, row["groups"])


def speed():
    """Microseconds of a call, of aotconv and of F.conv2d, and of a plan miss."""
    import torch

    import aotconv

    modes = {"inference_mode": torch.inference_mode, "no_grad": torch.no_grad}
    say({"host": {name: host(torch, aotconv, mode, False) for name, mode in modes.items()},
         "host_bias": {name: host(torch, aotconv, mode, True) for name, mode in modes.items()},
         "miss": misses(torch, aotconv), "events": events})


def host(torch, aotconv, mode, with_bias: bool, calls: int = 1000, blocks: int = 15):
    """(aotconv, F.conv2d): median over blocks of microseconds a call, the two alternating; the GPU keeps up."""
    last = torch.channels_last
    x = torch.randn(1, 32, 8, 8, device="cuda", dtype=torch.bfloat16).to(memory_format=last)
    w = torch.randn(32, 32, 3, 3, device="cuda", dtype=torch.bfloat16).to(memory_format=last)
    bias = torch.randn(32, device="cuda", dtype=torch.bfloat16) if with_bias else None
    times = ([], [])
    with mode():
        for block in range(-1, blocks):
            for side, conv in enumerate((aotconv.conv2d, torch.nn.functional.conv2d)):
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(calls):
                    conv(x, w, bias, 1, 1)
                took = time.perf_counter() - start
                if block >= 0:
                    times[side].append(took / calls * 1e6)
    return [sorted(side)[len(side) // 2] for side in times]


def misses(torch, aotconv, count: int = 300):
    """Microseconds of calls at sizes never seen, their kernels loaded: median, 99th of 100, and the median of a hit."""
    aotconv.preload()
    w = torch.randn(64, 64, 3, 3, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    inputs = [torch.randn(1, 64, 8, 9 + i, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
              for i in range(count)]
    with torch.inference_mode():
        aotconv.conv2d(torch.randn_like(inputs[0][:, :, :5]), w, None, 1, 1)
        rounds = [[timed(torch, aotconv, x, w) for x in inputs] for _ in range(2)]
    new, seen = (sorted(times) for times in rounds)
    return {"median": new[count // 2], "p99": new[count * 99 // 100], "hit": seen[count // 2]}


def timed(torch, aotconv, x, w) -> float:
    start = time.perf_counter()
    aotconv.conv2d(x, w, None, 1, 1)
    took = time.perf_counter() - start
    torch.cuda.synchronize()
    return took * 1e6


if __name__ == "__main__":
    main()

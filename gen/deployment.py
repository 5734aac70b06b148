"""The deployment proof: a wheel, on a machine with a GPU, torch and nothing else.

    python -m gen.deployment WHEEL [--json FILE] [--repeats N]

Installs the wheel into an empty folder and runs gen/deployment_probe.py in sandboxed processes: an empty environment,
PATH, HOME and TMPDIR that do not exist, another user where the machine allows it, triton hidden, an audit hook. Every
problem of tests/data/deployment_problems.jsonl runs in strict and in fallback mode and is judged here, outside the
sandbox, against float64. Needs torch and the standard library.
"""

import argparse
import json
import math
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from aotconv.formats import result_layout
from aotconv.problem import forward_problem, transposed_size, with_op
from gen import deployment_probe as probe
from gen.reference import convolve, error_over_bound
from gen.sampled import at_places

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = ROOT / "tests" / "data" / "deployment_problems.jsonl"
NOWHERE = "/proc/nonexistent"  # no user, not even root, can make it
OTHER_USER = 12345
DRIVER = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")  # how some machines say where the driver and the GPU are


def main(arguments=None) -> int:
    """Run the proof; 1 when anything in it is not as promised."""
    args = parse_arguments(arguments)
    if not torch.cuda.is_available():
        print("the deployment check needs a GPU: torch.cuda.is_available() is False here", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        box = Sandbox(Path(folder), args.wheel)
        found = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__, "user": box.user or os.getuid()}
        found["start"] = start_times(box, args.repeats)
        found["speed"] = box.ask("speed")
        found.update(judge_results(box))
        found["left"] = box.changes()
    found["faults"] = faults(found)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    print(report(found))
    return int(bool(found["faults"]))


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="scripts/deployment_check", description="Prove a wheel on this GPU.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--json", type=Path, help="write every figure here")
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes for the time to the first result")
    return parser.parse_args(arguments)


# ---- the sandbox ------------------------------------------------------------------------------------------------------


class Sandbox:
    """An installed wheel in an empty folder, and processes that see nothing else."""

    def __init__(self, folder: Path, wheel: Path):
        self.site, self.probe, self.problems = folder / "site", folder / "probe.py", folder / "problems.jsonl"
        install(wheel, self.site)
        shutil.copy(probe.__file__, self.probe)
        shutil.copy(PROBLEMS, self.problems)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        self.user = OTHER_USER if can_switch_user() else None
        self.before = snapshot(self.site)

    def start(self, task: str, *rest: str, mode: str = "strict") -> subprocess.Popen:
        environment = {"PATH": "/nonexistent", "HOME": NOWHERE, "TMPDIR": NOWHERE, "AOTCONV_MODE": mode}
        environment.update({name: os.environ[name] for name in DRIVER if name in os.environ})
        user = {"user": self.user, "group": self.user, "extra_groups": []} if self.user else {}
        command = [sys.executable, "-I", "-B", str(self.probe), str(self.site), task, *rest]
        return subprocess.Popen(command, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **user)

    def ask(self, task: str, *rest: str, mode: str = "strict") -> dict:
        """The one answer of a task that gives one."""
        with self.start(task, *rest, mode=mode) as process:
            return read_answer(process)[0]

    def changes(self) -> list[str]:
        """Files of the installed package that came, went or changed."""
        after = snapshot(self.site)
        return sorted(name for name in self.before.keys() | after.keys() if self.before.get(name) != after.get(name))


def install(wheel: Path, site: Path):
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check",
               "--root-user-action", "ignore", "--target", str(site), str(wheel)]
    subprocess.run(command, check=True)


def can_switch_user() -> bool:
    """Whether a process of another user could run this Python, import torch and open the GPU."""
    paths = [Path(sys.executable).resolve(), Path(torch.__file__).resolve(), Path(os.__file__).resolve()]
    folders = {parent for path in paths for parent in path.parents}
    readable = all(os.stat(path).st_mode & stat.S_IROTH for path in paths)
    reachable = all(os.stat(folder).st_mode & stat.S_IXOTH for folder in folders)
    devices = all(os.stat(path).st_mode & stat.S_IWOTH for path in Path("/dev").glob("nvidia[0-9]*"))
    return os.getuid() == 0 and readable and reachable and devices


def snapshot(folder: Path) -> dict:
    return {str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def read_answer(process) -> tuple[dict, bytes]:
    """The next answer of a probe: its header and its bytes."""
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the sandboxed process ended with status {process.wait()} before it answered; its error stands above")
    header = json.loads(line)
    return header, process.stdout.read(header["bytes"])


# ---- time to the first result -----------------------------------------------------------------------------------------


def start_times(box: Sandbox, repeats: int) -> dict:
    """Seconds from a process's start to its first result, for aotconv and eager torch, by turns."""
    times, events = {"eager": [], "aotconv": []}, []
    for number in range(repeats + 1):
        for which, seconds in times.items():
            begin = time.perf_counter()
            with box.start("first", which) as process:
                answer, _ = read_answer(process)
                took = time.perf_counter() - begin
            if not answer["right"]:
                raise RuntimeError(f"the first convolution by {which} is wrong")
            events += answer["events"] if which == "aotconv" else []
            if number:  # the first round fills the file cache
                seconds.append(took)
    medians = {which: sorted(seconds)[len(seconds) // 2] for which, seconds in times.items()}
    return {**times, "median": medians, "ratio": medians["aotconv"] / medians["eager"], "events": events}


# ---- right or wrong ---------------------------------------------------------------------------------------------------


def judge_results(box: Sandbox) -> dict:
    """Every problem in both modes, judged against one reference."""
    rows = [json.loads(line) for line in PROBLEMS.read_text().splitlines()]
    processes = {mode: box.start("results", str(box.problems), mode=mode) for mode in ("strict", "fallback")}
    judged = {mode: [] for mode in processes}
    for number, row in enumerate(rows):
        reference = Reference(row, number)
        for mode, process in processes.items():
            judged[mode].append(reference.judge(*read_answer(process)))
    ends = {mode: read_answer(process)[0] for mode, process in processes.items()}
    for process in processes.values():
        process.wait()
    return {"problems": len(rows), "transposed": sum(row["transposed"] for row in rows), "ends": ends, "judged": judged, "rows": rows}


class Reference:
    """What a row's result must be, in float64, at the outputs that are compared."""

    def __init__(self, row: dict, number: int):
        self.row, self.last = row, probe.is_last(row, number)
        self.x, self.w, self.bias = probe.inputs(row, number)
        self.problem = problem_of(row)
        self.sizes = (self.problem.x if row["transposed"] else self.problem.y).sizes
        self.picks = probe.picks(self.sizes, number)
        self.values, self.magnitude = self.compute(self.x, self.w, self.bias), self.compute(*map(absolute, (self.x, self.w, self.bias)))

    def compute(self, x, w, bias):
        operands = {"y" if self.row["transposed"] else "x": x, "w": w, "bias": bias}
        if self.picks is None:
            return convolve(self.problem.op, self.problem, **operands).flatten()
        return at_places(self.problem.op, self.problem, torch.stack(self.picks, 1), **operands)[0]

    def judge(self, header: dict, data: bytes) -> dict:
        """The header, and `error` over the bound; `wrong` says what is not as aten's."""
        if "raised" in header:
            return header
        result = torch.frombuffer(bytearray(data), dtype=torch.bfloat16).cuda()
        header["error"] = error_over_bound(result, self.values, self.magnitude, self.problem.values["reduction"], False)
        strides = list(result_layout(self.sizes, self.last).strides)
        if header["sizes"] != list(self.sizes) or header["strides"] != strides:
            header["wrong"] = f"sizes {header['sizes']} strides {header['strides']}, expected {list(self.sizes)} {strides}"
        return header


def absolute(tensor):
    return None if tensor is None else tensor.abs()


def problem_of(row: dict):
    """The row as a Problem; a transposed one as the input gradient of its convolution."""
    geometry = (tuple(row[name]) for name in ("stride", "padding", "dilation"))
    if not row["transposed"]:
        return forward_problem(tuple(row["x"]), tuple(row["w"]), "bf16", *geometry, row["groups"])
    stride, padding, dilation = geometry
    spatial = map(transposed_size, row["x"][2:], row["w"][2:], stride, padding, dilation, row["output_padding"])
    x = (row["x"][0], row["w"][1] * row["groups"], *spatial)
    return with_op(forward_problem(x, tuple(row["w"]), "bf16", stride, padding, dilation, row["groups"]), "bwd_input")


# ---- the report -------------------------------------------------------------------------------------------------------


def faults(found: dict) -> list[str]:
    """What is not as promised, a sentence each."""
    wrong = [f"{mode}, problem {number}: {row.get('wrong') or row['error']}" for mode, rows in found["judged"].items()
             for number, row in enumerate(rows) if row.get("wrong") or judged_wrong(row)]
    raised = [f"strict, problem {number}: {row['raised']}" for number, row in enumerate(found["judged"]["strict"])
              if "raised" in row]
    answers = (found["start"], found["speed"], *found["ends"].values())
    happened = [event for answer in answers for event in answer["events"]]
    unsound = [fault for end in found["ends"].values() for fault in end["faults"]]
    triton = [f"triton was imported in {mode} mode" for mode, end in found["ends"].items() if end["triton"]]
    return wrong + raised + sorted(set(happened)) + unsound + triton + [f"changed: {name}" for name in found["left"]]


def judged_wrong(row: dict) -> bool:
    """Aten's own results need not lie within the bound."""
    return row["tier"] != "aten" and not row.get("error", 0) <= 1


def report(found: dict) -> str:
    lines = [f"deployment check: {found['device']}, torch {found['torch']}, as user {found['user']}",
             f"problems: {found['problems']}, of which {found['transposed']} transposed"]
    for mode, rows in found["judged"].items():
        lines.append(f"{mode}: {tiers(rows)}; worst error {worst(rows)} of the bound")
    start, speed = found["start"], found["speed"]
    lines.append("process start to first result: aotconv {aotconv:.2f} s, eager {eager:.2f} s".format(**start["median"])
                 + f", ratio {start['ratio']:.3f} (medians of {len(start['eager'])})")
    for name, title in (("host", "without bias"), ("host_bias", "with bias")):
        for mode, (ours, theirs) in speed[name].items():
            lines.append(f"a call {title}, {mode}: {ours:.2f} us, F.conv2d {theirs:.2f} us, ratio {ours / theirs:.3f}")
    lines.append("a size never seen: {median:.0f} us a call (99 of 100 within {p99:.0f}), seen again {hit:.1f} us".format(**speed["miss"]))
    lines.append("processes started, files written, connections, imports of triton: "
                 + ("none" if not found["faults"] else "see below"))
    return "\n".join(lines + [f"FAULT {fault}" for fault in found["faults"]] + [f"{len(found['faults'])} faults"])


def tiers(rows: list[dict]) -> str:
    served = Counter(row["tier"] for row in rows if "raised" not in row)
    raised = sum("raised" in row for row in rows)
    return ", ".join(f"{tier} {count}" for tier, count in sorted(served.items())) + f", raised {raised}"


def worst(rows: list[dict]) -> str:
    """Largest error of our kernels, and of what aten served."""
    largest = lambda ours: max((r["error"] for r in rows if "error" in r and (r["tier"] != "aten") == ours), default=math.nan)
    return f"{largest(True):.3f} (aten's own {largest(False):.3f})"


if __name__ == "__main__":
    sys.exit(main())

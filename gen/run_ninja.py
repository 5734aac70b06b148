"""Ninja as a child: progress for people, failures in full."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from gen.graph import ROOT, Place
from gen.jobs import Jobs

STATUS = re.compile(r"@(\d+)/(\d+)@ (.*)")
IDLE = "ninja: no work to do."
INTERRUPTED = 130                # ninja's exit status after Control-C


class BuildFailed(RuntimeError):
    """An edge failed; what it said was printed before."""


def ninja_command(place: Place, *arguments: str) -> list[str]:
    import ninja

    return [str(Path(ninja.BIN_DIR) / "ninja"), "-f", place("build.ninja"), *arguments]


def remove_dead(place: Place):
    """Remove the outputs that ninja made once and that no edge makes any more."""
    if (place.path / ".ninja_log").exists():
        subprocess.run(ninja_command(place, "-t", "cleandead"), cwd=ROOT, check=True, capture_output=True)


def run_ninja(place: Place, goals: list[str], jobs: Jobs, lock: int, say=print) -> bool:
    """Build `goals` (all, when empty); returns whether there was anything to do. All that can be built is."""
    command = ninja_command(place, "-j", str(jobs.all), "-k", "0", *goals)
    environment = {**os.environ, "NINJA_STATUS": "@%f/%t@ ", "PYTHON": sys.executable}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[lock], text=True, errors="replace",
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        idle = follow(process.stdout, say)
    except BaseException:
        process.send_signal(signal.SIGINT)  # ninja stops its own children, and must be waited for
        raise
    finally:
        process.communicate()
    if process.returncode == INTERRUPTED:  # ninja heard Control-C, and this process perhaps not yet
        raise KeyboardInterrupt
    if process.returncode:
        raise BuildFailed(f"the build failed (ninja's exit status {process.returncode}); what failed is named above, "
                          "the rest was built")
    return not idle


def follow(lines, say) -> bool:
    """Show ninja's output; returns whether it had nothing to do."""
    return follow_bar(lines, say) if sys.stdout.isatty() else follow_plain(lines, say)


def follow_plain(lines, say) -> bool:
    idle = False
    for line in map(str.rstrip, lines):
        idle |= line == IDLE
        match = STATUS.fullmatch(line)
        if line != IDLE:
            say(f"[{match[1]}/{match[2]}] {match[3]}" if match else line)
    return idle


def follow_bar(lines, say) -> bool:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    idle = False
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task("", total=None)
        for line in map(str.rstrip, lines):
            idle |= line == IDLE
            if match := STATUS.fullmatch(line):
                progress.update(task, completed=int(match[1]), total=int(match[2]), description=match[3])
            elif line != IDLE:
                progress.console.print(line, markup=False, highlight=False)
    return idle

#!/usr/bin/env python3
"""Wall time and memory of a passive run on the simulated 8-GPU host.

Usage: benches/passive.py [RUNS]     (after `cargo build --release`)

Prints the median and spread of wall time over RUNS runs (default 21), and the peak of the
proportional set size of all processes of a run together, sampled every 2 ms over further runs.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BINARY = ROOT / "target/release/nodegate"
HOST = ROOT / "fixtures/hosts/hgx-h100-8"


def command(state):
    return [str(BINARY), "run", "--fixture", str(HOST), "--state", state, "--format", "json"]


def timed(state):
    began = time.monotonic()
    ended = subprocess.run(command(state), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if ended.returncode != 0:
        sys.exit(f"the run ended with {ended.returncode}, not 0")
    return (time.monotonic() - began) * 1000


def family(pid):
    """The process and its descendants that are still there."""
    found, frontier = [], [pid]
    while frontier:
        parent = frontier.pop()
        found.append(parent)
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children") as children:
                    frontier.extend(int(child) for child in children.read().split())
        except OSError:
            continue
    return found


def pss(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup") as rollup:
            return next(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


def peak(state):
    process = subprocess.Popen(command(state), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    highest = 0
    while process.poll() is None:
        highest = max(highest, sum(pss(pid) for pid in family(process.pid)))
        time.sleep(0.002)
    return highest / 1024


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    with tempfile.TemporaryDirectory() as state:
        timed(state)
        times = [timed(state) for _ in range(runs)]
        peaks = [peak(state) for _ in range(9)]
    size = BINARY.stat().st_size / 1e6
    print(f"wall    median {statistics.median(times):.0f} ms, min {min(times):.0f}, max {max(times):.0f}, {runs} runs")
    print(f"memory  peak PSS of all processes, median {statistics.median(peaks):.1f} MiB, max {max(peaks):.1f}, 9 runs")
    print(f"binary  {size:.1f} MB")


if __name__ == "__main__":
    main()

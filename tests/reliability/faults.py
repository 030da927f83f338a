"""Commands under faults.cpp: how they are started, watched, judged and counted."""
import csv
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# In the order of faults.cpp.
FILE_KINDS = ["full", "broken", "short", "interrupted", "kill", "kill_all", "flip_file"]
NETWORK_KINDS = ["flip", "reset", "cut", "delay", "stall", "stop", "kill_sending"]
KINDS = FILE_KINDS + NETWORK_KINDS
LIMIT = 120  # Seconds that a command may take; it takes one when the machine is idle.


def add_arguments(parser):
    build = ROOT / "build/release"
    parser.add_argument("--minutes", type=float, default=0, help="stop after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this trial alone")
    parser.add_argument("--program", default=build / "tools/orrery")
    parser.add_argument("--shim", default=build / "tests/reliability/liborrery_faults.so")
    parser.add_argument("--table", type=pathlib.Path, help="CSV of what ran, added to what it has")


def report(counts, keys, columns, table):
    """Prints how often each of `columns` came by key (a tuple of `keys`), and adds it to `table`."""
    head = [*keys, *columns]
    for row in [head] + [[*key, *(counts[key][column] for column in columns)]
                         for key in sorted(counts)]:
        print("".join(f"{cell!s:>14}" for cell in row))
    if not table:
        return
    if table.exists():
        with table.open(newline="") as file:
            for row in csv.DictReader(file):
                count = counts[tuple(row[key] for key in keys)]
                for column in columns:
                    count[column] += int(row[column])
    with table.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [head] + [[*key, *(counts[key][column] for column in columns)]
                      for key in sorted(counts)])


def state_of(pid):
    """Its state, as ps has it, and its session."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "X", 0
    return fields[0], int(fields[3])


def processes_of(session):
    """Processes that are in the session of a command and no zombies."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        state, its_session = state_of(entry.name) if entry.name.isdigit() else ("X", 0)
        if its_session == session and state not in "ZX":
            found.append(int(entry.name))
    return found


class Runner:
    def __init__(self, program, shim):
        self.program, self.shim = program, shim
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="orrery-reliability-"))
        self.number = 0

    def close(self):
        shutil.rmtree(self.base, ignore_errors=True)

    def start(self, words, fault=None, preloads=(), variables=None):
        """Under no fault, or with `fault` as ORRERY_FAULT; empty: calls are counted. `preloads` are
        libraries to load beside the shim, `variables` of the environment are added."""
        self.number += 1
        environment = dict(os.environ, XDG_CACHE_HOME=str(self.base / "cache"),
                           ORRERY_REPORT_PAGE=str(ROOT / "tools/report/page.html"))
        counts = self.base / f"counts{self.number}"
        if fault is not None:
            counts.write_bytes(bytes(8 * len(KINDS)))
            environment.update(LD_PRELOAD=":".join(map(str, [self.shim, *preloads])),
                               ORRERY_FAULT_COUNTS=str(counts), **(variables or {}))
            if fault:
                environment["ORRERY_FAULT"] = fault
        words = [self.program] + [str(word) for word in words]
        log = self.base / f"log{self.number}"
        with log.open("wb") as out:
            process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=out,
                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       start_new_session=True)
        process.log, process.counts = log, counts
        return process

    def finish(self, process, limit=LIMIT):
        """Its exit code, and what was wrong with how it ended."""
        problem, code = "", None
        deadline = time.monotonic() + limit
        stopped_since = None
        while code is None and not problem:
            try:
                code = process.wait(0.1)
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    problem = f"hangs ({limit} s)"
                # A command that was stopped goes on after ten seconds; its ranks stay stopped.
                if state_of(process.pid)[0] != "T":
                    stopped_since = None
                elif stopped_since is None:
                    stopped_since = time.monotonic()
                elif time.monotonic() > stopped_since + 10:
                    os.kill(process.pid, signal.SIGCONT)
        deadline = time.monotonic() + 10
        while not problem and (left := processes_of(process.pid)):
            if time.monotonic() > deadline:
                problem = f"leaves {len(left)} processes"
            time.sleep(0.02)
        if problem:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code is not None and code < 0 and code != -signal.SIGKILL:
            problem = problem or f"dies of signal {-code}"
        output = process.log.read_text(errors="replace")
        process.log.unlink()
        process.struck = 0
        if process.counts.exists():
            process.struck = struct.unpack(f"{len(KINDS)}Q", process.counts.read_bytes())
            process.counts.unlink()
        return code, output, problem

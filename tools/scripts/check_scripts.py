#!/usr/bin/python3
"""Checks the scripts of this repository: Python compiles, bash parses, what starts with #! is
executable.

    tools/scripts/check_scripts.py [ROOT]

Looks at *.py, *.sh and extensionless files with a #! line. Prints `file:line: what` or bash's own
words. Exit code 0: none found; 1: some found.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

NOT_OURS = {".git", "build", "results", "__pycache__", ".cache"}


def scripts(root):
    """(path, first line) of every script below `root`, sorted."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in NOT_OURS)
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_symlink() or (path.suffix not in (".py", ".sh") and path.suffix):
                continue
            with path.open("rb") as file:
                first = file.readline(200).decode(errors="replace").rstrip("\n")
            if path.suffix or first.startswith("#!"):
                yield path, first


def check_script(path, first):
    """The problems of one script as lines of text."""
    problems = []
    if first.startswith("#!") and not os.access(path, os.X_OK):
        problems.append(f"{path}:1: starts with #! and is not executable")
    if path.suffix == ".py" or re.match(r"#!.*\bpython", first):
        try:
            compile(path.read_bytes(), str(path), "exec")
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            problems.append(f"{path}:{line}: {error}")
    elif path.suffix == ".sh" or re.match(r"#!.*\b(bash|sh)\b", first):
        run = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
        problems.extend(run.stderr.splitlines())
    return problems


def main(arguments):
    root = Path(arguments[0] if arguments else Path(__file__).resolve().parents[2])
    found = list(scripts(root))
    problems = [line for path, first in found for line in check_script(path, first)]
    print("\n".join(problems + [f"check_scripts: {len(found)} scripts, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

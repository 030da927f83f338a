#!/usr/bin/python3
"""How large the tree is, and how many files a new planner or command has to touch, at two commits.

    tools/scripts/house.py BEFORE AFTER [--depth N]

Counts the lines of C++ and CUDA sources and of their tests by folder (the first N parts of its path,
default 1). Then, for one existing member of each family (the planner whale, the command annotate),
lists the sources and CMakeLists.txt outside its own files that name it other than in a comment: what
adding another one means to touch. Tests are counted apart."""

import argparse
import re
import subprocess
from collections import Counter
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {".cpp", ".h", ".cu", ".cuh"}
# Family, member, and the paths that belong to others of that name.
FAMILIES = [("planner", "whale", r"^$"),
            ("recovery policy", "gemini", r"^$"),
            ("schedule", "zero_bubble", r"^$"),
            ("op kind", "backward_weight", r"^$"),
            ("trace importer", "parcae", r"(^|/)planners/|recovery"),
            ("command", "annotate", r"^$")]


def git(*arguments, text=None):
    return subprocess.run(["git", "-C", str(ROOT), *arguments], input=text, check=True,
                          capture_output=True).stdout


def tree(revision):
    """{path: text} of the sources and CMakeLists.txt of a commit."""
    names = git("ls-tree", "-r", "--name-only", revision).decode().splitlines()
    names = [name for name in names if PurePosixPath(name).suffix in SOURCES
             or PurePosixPath(name).name == "CMakeLists.txt"]
    data = git("cat-file", "--batch",
               text="".join(f"{revision}:{name}\n" for name in names).encode())
    files, at = {}, 0
    for name in names:
        end = data.index(b"\n", at)
        size = int(data[at:end].split()[2])
        files[name] = data[end + 1:end + 1 + size].decode(errors="replace")
        at = end + size + 2
    return files


def is_test(name):
    return name.startswith("tests/")


def lines_by_folder(files, depth):
    """Counters of source lines, test lines and files by folder."""
    sources, tests, count = Counter(), Counter(), Counter()
    for name, text in files.items():
        if PurePosixPath(name).suffix not in SOURCES:
            continue
        parts = name.split("/")[:-1]
        if is_test(name):  # Tests of models/base once lay in tests/models_base.
            parts = parts[1].split("_", 1) + parts[2:] if len(parts) > 1 else []
        folder = "/".join(parts[:depth]) or "."
        (tests if is_test(name) else sources)[folder] += text.count("\n")
        count[folder] += 1
    return sources, tests, count


def without_comments(name, text):
    if name.endswith("CMakeLists.txt"):
        return re.sub(r"#.*", "", text)
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def named_in(files, member, others):
    """Files that name a member of a family; those of its own are left out."""
    camel = "".join(part.capitalize() for part in member.split("_"))
    pattern = re.compile(rf"(?<![A-Za-z0-9]){member}(?![a-z0-9])|(?<![A-Za-z]){camel}(?![a-z0-9])")
    own = re.compile(rf"(^|/){member}(/|[_.])|(^|/)[a-z_]*{member}\.")
    return sorted(name for name, text in files.items()
                  if not re.search(others, name) and not own.search(name)
                  and pattern.search(without_comments(name, text)))


def table(rows):
    """Rows of cells: the first column to the left, the others to the right."""
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join([str(row[0]).ljust(widths[0])]
                        + [str(each).rjust(width) for each, width in zip(row[1:], widths[1:])]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--depth", type=int, default=1, help="parts of a folder's path (default: 1)")
    arguments = parser.parse_args()
    trees = [tree(arguments.before), tree(arguments.after)]

    counts = [lines_by_folder(files, arguments.depth) for files in trees]
    rows = [("folder", "source", "after", "tests", "after", "files", "after")]
    for folder in sorted({folder for three in counts for each in three for folder in each}):
        rows.append((folder, *(count[i][folder] for i in range(3) for count in counts)))
    rows.append(("all", *(sum(row[i] for row in rows[1:]) for i in range(1, 7))))
    table(rows)

    for where, test in (("sources", False), ("tests", True)):
        print(f"\nfiles of others that name it, {where}")
        for family, member, others in FAMILIES:
            found = [[name for name in named_in(files, member, others) if is_test(name) == test]
                     for files in trees]
            print(f"  {family} {member}: {len(found[0])} before, {len(found[1])} after")
            for mark, names in (("-", sorted(set(found[0]) - set(found[1]))),
                                ("+", sorted(set(found[1]) - set(found[0]))),
                                (" ", sorted(set(found[0]) & set(found[1])))):
                for name in names:
                    print(f"    {mark} {name}")


if __name__ == "__main__":
    main()

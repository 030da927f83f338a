#!/usr/bin/python3
"""Checks which folder includes which: the table "Folders, lowest first" of the design.

    tools/scripts/check_layers.py [ROOT]

Reads every C++ and CUDA file of the tree at ROOT (this repository without an argument) and prints
`file:line: what` for each include that its folder's row does not name, for each file outside the
table, for SimGrid and libyaml outside their only user, and for each header without #pragma once.
Exit code 0: none found; 1: some found; 2: ROOT is not a tree with sources.
"""

import re
import sys
from pathlib import Path

MODELS_BELOW_CHECK = ["models/base", "models/config", "models/ir", "models/spec",
                      "models/sharding", "models/schedule", "models/cost"]

# Folder -> what it may include in addition to itself. "models" means every folder below models/.
MAY_INCLUDE = {
    "models/base": [],
    "models/config": ["models/base"],
    "models/ir": ["models/base"],
    "models/spec": ["models/base", "models/config", "models/ir"],
    "models/sharding": ["models/base", "models/ir"],
    "models/schedule": ["models/base", "models/ir"],
    "models/cost": ["models/base", "models/ir", "models/spec", "models/sharding",
                    "models/schedule"],
    "models/check": MODELS_BELOW_CHECK,
    "models/lower": MODELS_BELOW_CHECK + ["models/check"],
    "models/reshard": MODELS_BELOW_CHECK + ["models/check", "models/lower"],
    "models/interfaces": ["models/base", "models/config", "models/ir", "models/spec", "models/cost"],
    "traces": ["models"],
    "planners": ["models"],
    "sim": ["models", "traces"],
    "executor": ["models/base", "models/ir", "models/config"],
    "calibration": ["models"],
    "experiments": ["models", "planners", "sim", "traces", "calibration", "executor"],
    "docs/howto": ["models", "planners"],  # examples that are built against an installation
}
# These wire or test everything; nothing includes them.
MAY_INCLUDE_ALL = ["tools", "tests"]

# Library whose use is confined: pattern of its headers -> the only folder that includes them.
CONFINED = {
    re.compile(r"(simgrid|xbt|smpi)(/|\.h)"): ("SimGrid", "sim/flow"),
    re.compile(r"^yaml\.h$"): ("libyaml", "models/config"),
}

SUFFIXES = {".h", ".hpp", ".cuh", ".cpp", ".cc", ".cu"}
HEADERS = {".h", ".hpp", ".cuh"}
NOT_OURS = {"build", "cmake", "results", "__pycache__"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
PRAGMA_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.MULTILINE)
COMMENT_OR_LITERAL = re.compile(
    r"""//(?:[^\n\\]|\\.)*|/\*.*?\*/|R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)'""",
    re.DOTALL)


def blank_comments(text):
    """`text` with comments and raw strings blanked; line numbers stay."""
    def blank(match):
        token = match.group(0)
        return token if token[0] in "\"'" else re.sub(r"[^\n]", " ", token)
    return COMMENT_OR_LITERAL.sub(blank, text)


def layer_of(path):
    """The row of the table for `path` (relative, with /), or None."""
    parts = path.split("/")[:-1]
    for depth in (2, 1):
        folder = "/".join(parts[:depth])
        if folder in MAY_INCLUDE or folder in MAY_INCLUDE_ALL:
            return folder
    return None


def allowed(user, used):
    """Whether files of the folder `user` may include those of the folder `used`."""
    if used == user or user == "tests":
        return True
    if used in MAY_INCLUDE_ALL:
        return False
    return user in MAY_INCLUDE_ALL or any(
        used == name or used.startswith(name + "/") for name in MAY_INCLUDE[user])


def sources(root):
    """Every source file below `root`, relative and sorted; not hidden folders, builds, results."""
    for path in sorted(root.iterdir()):
        if path.name.startswith(".") or path.name in NOT_OURS:
            continue
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.suffix in SUFFIXES and file.is_file():
                yield file.relative_to(root).as_posix()


def check_file(root, path, tops):
    """The problems of one file as (line, what)."""
    text = blank_comments((root / path).read_text(encoding="utf-8", errors="replace"))
    problems = []
    user = layer_of(path)
    if user is None:
        problems.append((1, "lies in no folder of the table in tools/scripts/check_layers.py"))
    if Path(path).suffix in HEADERS and not PRAGMA_ONCE.search(text):
        problems.append((1, "header without #pragma once"))
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        quoted, angled = match.groups()
        name = quoted or angled
        for pattern, (library, owner) in CONFINED.items():
            if pattern.match(name) and not path.startswith(owner + "/"):
                problems.append((line, f"includes <{name}>: only {owner} may use {library}"))
        if name.split("/")[0] not in tops or "/" not in name:
            if quoted and (root / path).parent.joinpath(name).is_file():
                problems.append((line, f'includes "{name}": write the path from the root'))
            continue
        used = layer_of(name)
        if used is None:
            problems.append((line, f"includes {name}, which lies in no folder of the table"))
        elif user is not None and not allowed(user, used):
            may = ("anything but tests" if user in MAY_INCLUDE_ALL
                   else ", ".join(MAY_INCLUDE[user]) or "nothing")
            problems.append((line, f"{user} includes {name}; it may include {may}"))
    return problems


def main(arguments):
    if len(arguments) > 1 or any(a.startswith("-") for a in arguments):
        print(__doc__.strip())
        return 0 if arguments in (["-h"], ["--help"]) else 2
    root = Path(arguments[0] if arguments else Path(__file__).resolve().parents[2])
    paths = list(sources(root)) if root.is_dir() else []
    if not paths:
        print(f"check_layers: no sources below {root}", file=sys.stderr)
        return 2
    tops = {folder.split("/")[0] for folder in [*MAY_INCLUDE, *MAY_INCLUDE_ALL]}
    found = 0
    for path in paths:
        for line, what in check_file(root, path, tops):
            print(f"{path}:{line}: {what}")
            found += 1
    if found:
        print(f"check_layers: {found} problems in {len(paths)} files")
        return 1
    print(f"check_layers: {len(paths)} files keep to the table of folders")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/python3
"""Makes the sources of planners_recovery_howto from docs/howto/recovery-policy.md, so that the
guide's example is compiled and tested as printed there:

    howto_example.py GUIDE CATALOG FOLDER

The first ```cpp block of GUIDE is written to FOLDER/example.cpp, and a copy of CATALOG
(planners/recovery/catalog.cpp) with the two lines of the second block to FOLDER/catalog.cpp. Fails
with a sentence when the guide has no such blocks."""

import re
import sys
from pathlib import Path


def blocks(guide):
    found = re.findall(r"^```cpp\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    if len(found) < 2:
        sys.exit(f"{len(found)} cpp blocks instead of a policy and its two lines of the catalog")
    return found


def registered(catalog, lines):
    """The catalog with the guide's declaration and, in the order of names, its entry."""
    declaration = re.search(r"^extern const RecoveryEntry (k\w+);", lines, re.MULTILINE)
    entry = re.search(r"^\s*&(k\w+),", lines, re.MULTILINE)
    if not declaration or not entry or declaration[1] != entry[1]:
        sys.exit("the second cpp block is not a declaration and an entry of the catalog")
    head, array, tail = re.fullmatch(r"(.*kCatalog = \{)(.*?)(\};.*)", catalog, re.DOTALL).groups()
    entries = sorted(re.findall(r"&k\w+", array) + ["&" + entry[1]])
    place = head.index("namespace {")
    return (head[:place] + declaration[0] + "\n\n" + head[place:] + "\n    "
            + ",\n    ".join(entries) + ",\n" + tail)


def main():
    guide, catalog, folder = map(Path, sys.argv[1:])
    example, lines, *_ = blocks(guide.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "example.cpp").write_text(example)
    (folder / "catalog.cpp").write_text(registered(catalog.read_text(), lines))


if __name__ == "__main__":
    main()

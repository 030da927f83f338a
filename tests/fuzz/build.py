#!/usr/bin/env python3
"""Writes build/fuzz/build.ninja, which builds tests/fuzz with clang, libFuzzer and the sanitizers.

Only what reads bytes from outside is compiled anew, instrumented: the folders below. The rest
(planners, the simulator, kernels) is linked from the release build, which must be up to date; that
is a tenth of the work. Checks of pointers that AddressSanitizer makes itself are left out.
"""
import json
import pathlib
import re
import shlex

# Not experiments/study, which would be half as much again.
READERS = ["models/base", "models/config", "models/ir", "models/spec", "models/check", "traces",
           "calibration/importers", "executor/net", "executor/launcher", "tools/cli"]
SANITIZERS = "address,undefined"
FLAGS = ["-O2", "-g1", "-DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION", "-fno-omit-frame-pointer",
         f"-fsanitize=fuzzer-no-link,{SANITIZERS}",
         "-fno-sanitize=null,alignment,object-size,vptr,function", "-fno-sanitize-recover=all"]
DROPPED = re.compile(r"-W.*|-O\d|-fpch-preprocess")

root = pathlib.Path(__file__).resolve().parents[2]
release = root / "build/release"
fuzz = root / "build/fuzz"


def compile_flags(command):
    """Of a release command: what defines and includes, without its precompiled header."""
    words = shlex.split(command)
    words = words[words.index(next(w for w in words if w.startswith("-"))):]
    out = []
    skip = False
    for word in words:
        if skip or word == "-c" or DROPPED.fullmatch(word):
            skip = False
        elif word in ("-include", "-o"):
            skip = True
        else:
            out.append(word)
    return out


def main():
    lines = ["rule compile", "  command = ccache clang++ -MMD -MF $out.d $flags -c $in -o $out",
             "  depfile = $out.d", "  deps = gcc", "rule link", "  command = clang++ $in -o $out $libs"]
    objects = []
    flags_of_readers = None

    def compile_one(source, flags):
        out = "objects/" + re.sub(r"[^\w.]", "_", str(source.relative_to(root))) + ".o"
        objects.append(out)
        words = " ".join(shlex.quote(word) for word in flags + FLAGS)
        lines.extend([f"build {out}: compile {source}", f"  flags = {words}"])

    folder = re.compile(r"(?:build/release/)?(?:generated/)?(.*?)/(?:CMakeFiles/.*/)?[^/]*")
    for entry in json.loads((release / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        if folder.fullmatch(str(source.relative_to(root))).group(1) not in READERS:
            continue
        flags = compile_flags(entry["command"])[:-1]  # The last word is the source.
        compile_one(source, flags)
        if "generated" in " ".join(flags):
            flags_of_readers = flags
    for source in ["entry", "targets", "readers", "network"]:
        compile_one(root / f"tests/fuzz/{source}.cpp", flags_of_readers)

    ninja = (release / "build.ninja").read_text()
    target = ninja[re.search(r"^build tools/orrery:", ninja, re.M).start():]
    names = re.search(r"LINK_LIBRARIES = (.*)", target).group(1).split()
    own = {f"{reader}/liborrery_{reader.replace('/', '_')}.a" for reader in READERS}
    libs = []
    for name in names:
        if name in own or name in ("-lcudart", "-lcudadevrt"):  # libcudart.so has its path here.
            continue
        libs.append(str(release / name) if name.endswith(".a") and name[0] != "/" else name)
    lines.append(f"build orrery_fuzz: link {' '.join(objects)} | "
                 + " ".join(sorted({lib for lib in libs if lib.startswith(str(release))})))
    lines.append(f"  libs = -fuse-ld=gold -fsanitize=fuzzer,{SANITIZERS} -Wl,--start-group "
                 + " ".join(libs) + " -Wl,--end-group")
    fuzz.mkdir(parents=True, exist_ok=True)
    (fuzz / "build.ninja").write_text("\n".join(lines) + "\n")


main()

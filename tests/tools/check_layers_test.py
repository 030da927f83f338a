#!/usr/bin/python3
"""tools/scripts/check_layers.py finds each kind of violation, and nothing in a tree that has none."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "scripts" / "check_layers.py"
HEADER = "#pragma once\n"


def check(files):
    """Exit code and output of the tool on a tree with `files` (path -> text)."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        run = subprocess.run([sys.executable, "-B", TOOL, folder], capture_output=True, text=True)
        return run.returncode, run.stdout + run.stderr


def include(path):
    return f'// a comment\n#include "{path}"\n'


class CheckLayers(unittest.TestCase):
    def expect_clean(self, files):
        code, output = check(files)
        self.assertEqual((code, output),
                         (0, f"check_layers: {len(files)} files keep to the table of folders\n"))

    def expect_problem(self, files, where, what):
        code, output = check(files)
        self.assertEqual(code, 1, output)
        self.assertEqual(output.count("\n"), 2, output)
        self.assertTrue(output.startswith(where + ": "), output)
        self.assertIn(what, output)

    def test_what_the_table_names_is_allowed(self):
        self.expect_clean({
            "models/spec/job.h": HEADER + '#include "models/config/reader.h"\n',
            "models/lower/lower.cpp": include("models/check/validate.h"),
            "planners/kit/search.cpp": include("models/interfaces/evaluator.h"),
            "planners/amp/amp.cpp": include("planners/kit/search.h"),
            "sim/replay/replay.cpp": include("traces/reader.h"),
            "sim/flow/engine.cpp": "#include <simgrid/s4u.hpp>\n",
            "models/config/reader.cpp": "#include <yaml.h>\n",
            "executor/worker.cpp": include("models/ir/program.h"),
            "experiments/study/run.cpp": include("planners/catalog.h"),
            "tools/main.cpp": include("sim/iteration/simulate.h"),
            "tests/sim/flow/engine_test.cpp": include("sim/flow/engine.h"),
        })

    def expect_each_refused(self, user, headers):
        """A file of `user` that includes a header of each of `headers` has as many problems."""
        code, output = check({f"{user}/a.cpp": "".join(include(f"{h}/b.h") for h in headers)})
        self.assertEqual(code, 1, user)
        for line, header in enumerate(headers, 1):
            self.assertRegex(output, rf"(?m)^{user}/a.cpp:{2 * line}: \S+ includes {header}/b.h")

    def test_wings_never_include_each_other(self):
        wings = ["planners", "sim", "executor", "calibration"]
        for wing in wings:
            self.expect_each_refused(wing, [other for other in wings if other != wing])

    def test_nothing_includes_what_is_above_it(self):
        floors = ["models/base", "models/config", "models/spec", "models/cost", "models/check",
                  "models/lower", "traces", "sim/replay", "experiments/study", "tools", "tests"]
        for i, floor in enumerate(floors[:-1]):
            self.expect_each_refused(floor, floors[i + 1:])
        self.expect_each_refused("executor", ["models/spec"])
        self.expect_each_refused("planners/kit", ["sim/iteration"])

    def test_angle_brackets_do_not_hide_our_own_headers(self):
        self.expect_problem({"models/base/a.h": HEADER + "#include <models/ir/plan.h>\n"},
                            "models/base/a.h:2", "may include nothing")

    def test_simgrid_is_confined_to_sim_flow(self):
        for header in ["simgrid/s4u.hpp", "xbt/log.h"]:
            self.expect_problem({"sim/iteration/a.cpp": f"#include <{header}>\n"},
                                "sim/iteration/a.cpp:1", "only sim/flow may use SimGrid")

    def test_libyaml_is_confined_to_models_config(self):
        self.expect_problem({"models/spec/a.cpp": "#include <yaml.h>\n"},
                            "models/spec/a.cpp:1", "only models/config may use libyaml")

    def test_a_folder_outside_the_table_is_found(self):
        self.expect_problem({"models/extra/a.cpp": "int a;\n"}, "models/extra/a.cpp:1",
                            "lies in no folder")
        self.expect_problem({"tools/a.cpp": include("models/extra/a.h")}, "tools/a.cpp:2",
                            "lies in no folder")

    def test_a_path_that_is_not_from_the_root_is_found(self):
        self.expect_problem({"models/ir/a.cpp": '#include "b.h"\n', "models/ir/b.h": HEADER},
                            "models/ir/a.cpp:1", "write the path from the root")

    def test_a_header_without_pragma_once_is_found(self):
        for text in ["int a;\n", "// #pragma once\n", 'auto a = R"(\n#pragma once\n)";\n']:
            self.expect_problem({"models/ir/a.h": text}, "models/ir/a.h:1", "#pragma once")

    def test_comments_and_strings_are_not_includes(self):
        self.expect_clean({"models/base/a.cpp": (
            '/* a\n#include "sim/flow/a.h"\n*/\nauto a = R"x(\n#include "sim/flow/a.h"\n)x";\n'
            "char b = '\"'; // #include \"sim/flow/a.h\"\n")})

    def test_builds_and_results_are_not_looked_at(self):
        self.expect_clean({"models/base/a.cpp": "int a;\n"})
        code, output = check({"models/base/a.cpp": "int a;\n", "build/x/a.h": "", "results/a.h": "",
                              ".cache/a.h": ""})
        self.assertEqual((code, output),
                         (0, "check_layers: 1 files keep to the table of folders\n"))

    def test_an_empty_tree_is_an_error(self):
        self.assertEqual(check({})[0], 2)


if __name__ == "__main__":
    unittest.main()

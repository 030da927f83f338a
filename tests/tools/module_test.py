"""An installation of this build, the example module of docs/howto/module built against it, and what
the installed program makes of good and bad modules.

    module_test.py SOURCE_FOLDER BUILD_FOLDER CMAKE CXX
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = pathlib.Path(sys.argv.pop(1)).resolve(), pathlib.Path(sys.argv.pop(1)).resolve()
CMAKE, CXX = sys.argv.pop(1), sys.argv.pop(1)

STUDY = """\
schema: orrery/study/1
name: tests/modules
command: plan
settings:
  cluster: pair.yaml
  model: gpt3_125m
  job: {global_batch: 4, sequence_length: 512}
axes:
  planner: [{name: megatron_grid, options: {evaluate_top: 1}}, {name: PLANNER}]
"""
PAIR = """\
schema: orrery/cluster/1
name: pair
nodes:
  - name: a
    gpus: {type: A100-80GB, count: 2}
    domains: [{link: nvlink3}]
    nics: [{link: ethernet-1GBps, count: 1}]
"""


# A program of one's own with the simulator, and a planner that keeps no promise.
OWN = """\
cmake_minimum_required(VERSION 3.25)
project(own LANGUAGES CXX)
find_package(orrery 0.1.0 EXACT REQUIRED)
add_executable(own own.cpp)
target_link_libraries(own PRIVATE orrery::sim_replay)
orrery_module(careless SOURCES careless.cpp)
"""
PROGRAM = """\
#include <cstdio>
#include "models/spec/library.h"
#include "sim/flow/engine.h"
int main() {
  orrery::config::Diagnostics problems;
  const auto library =
      orrery::models::load_library(orrery::models::default_library_root(), problems);
  std::printf("%s %d", orrery::sim::simgrid_version().c_str(), !library.gpus.empty());
}
"""
CARELESS = """\
#include "planners/kit/settings.h"
#include "planners/modules/module.h"
namespace {
using namespace orrery;
struct Nothing {};
[[maybe_unused]] void describe(config::Visitor&, Nothing&) {}
struct Careless final : planners::Planner {
  using Settings = Nothing;
  explicit Careless(const Nothing&) {}
  planners::PlannerResult plan(const planners::PlannerInput&) const override {
    return {ir::Plan(), {}};
  }
};
constexpr planners::PlannerEntry kCareless =
    planners::planner_entry<Careless>("careless", "none", "nothing", "everything");
}  // namespace
ORRERY_MODULE((orrery::planners::Module{{&kCareless}, {}}));
"""


class Modules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        cls.folder = pathlib.Path(cls.holder.name)
        cls.stage = cls.folder / "stage"
        cls.carry_out(CMAKE, "--install", BUILD, "--prefix", cls.stage)
        cls.carry_out(CMAKE, "-S", SOURCE / "docs/howto/module", "-B", cls.folder / "module", "-G",
                      "Ninja", f"-DCMAKE_PREFIX_PATH={cls.stage}", f"-DCMAKE_CXX_COMPILER={CXX}",
                      "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
        cls.carry_out(CMAKE, "--build", cls.folder / "module")
        cls.module = cls.folder / "module/example.so"
        (cls.folder / "pair.yaml").write_text(PAIR)

    @classmethod
    def carry_out(cls, *words):
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{words}\n{done.stdout}{done.stderr}")

    def orrery(self, *words, modules=""):
        environment = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"),
                           ORRERY_MODULES=str(modules))
        done = subprocess.run([self.stage / "bin/orrery", *words], env=environment,
                              cwd=self.folder, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def test_the_installed_program_has_its_own_library(self):
        status, out, err = self.orrery("list", "clusters", "--json")
        self.assertEqual(status, 0, err)
        paths = {row["path"] for row in json.loads(out)}
        self.assertTrue(paths and all(path.startswith(str(self.stage)) for path in paths), paths)

    def test_what_it_brings_is_listed_with_where_it_is_from(self):
        for words in (["--module", self.module, "list", "planners", "even_chain"],
                      ["list", "policies", "patient", f"--module={self.module}"]):
            status, out, err = self.orrery(*words)
            self.assertEqual(status, 0, err)
            self.assertIn("docs/howto/modules.md", out)
            self.assertIn(str(self.module), out.replace("\n            ", ""))
        status, out, err = self.orrery("list", "planners", "--json", modules=self.module)
        self.assertEqual(status, 0, err)
        from_module = [row["name"] for row in json.loads(out) if row.get("module")]
        self.assertEqual(from_module, ["even_chain"])
        status, _, err = self.orrery("list", "planners", "even_chain")
        self.assertEqual(status, 2, err)

    def test_its_planner_plans(self):
        status, out, err = self.orrery(
            "plan", "--cluster", "pair.yaml", "--model", "gpt3_125m", "--global-batch", "4",
            "--sequence-length", "512", "--planner", "even_chain", "-o", "micro_batch_size=2",
            "--output", "plan.yaml", modules=self.module)
        self.assertEqual(status, 0, out + err)
        plan = (self.folder / "plan.yaml").read_text()
        self.assertIn("planner: even_chain", plan)
        self.assertIn("micro_batch_size: 2", plan)
        status, _, err = self.orrery(
            "plan", "--cluster", "pair.yaml", "--model", "gpt3_125m", "--planner", "even_chain",
            "-o", "micro_batch_size=0", modules=self.module)
        self.assertEqual(status, 2, err)
        self.assertIn("micro_batch_size", err)

    def test_its_policy_recovers(self):
        status, out, err = self.orrery(
            "replay", "--cluster", SOURCE / "experiments/spot/bamboo/cluster.yaml", "--model",
            "bert_large", "--dtype", "fp16", "--global-batch", "256", "--sequence-length", "512",
            "--generate", "bamboo_p3", "--days", "0.1", "--seeds", "1", "--policy",
            "patient,checkpoint_restart", "--json", modules=self.module)
        self.assertEqual(status, 0, out + err)
        self.assertIn('"patient"', out)

    def test_others_results_stay_theirs(self):
        other = self.folder / "other"
        other.mkdir()
        (self.folder / "study.yaml").write_text(STUDY.replace(", {name: PLANNER}", ""))
        status, out, err = self.orrery("run", "study.yaml", "--no-figure", "--cache", "off")
        self.assertEqual(status, 0, out + err)
        before = sorted(path.name for path in self.folder.glob("results/tests/modules/runs/*"))
        (self.folder / "study.yaml").write_text(STUDY.replace("PLANNER", "even_chain"))
        status, out, err = self.orrery("run", "study.yaml", "--no-figure", "--cache", "off",
                                       modules=self.module)
        self.assertEqual(status, 0, out + err)
        self.assertIn("1 run done, 1 were present", out)
        # The same module with a byte more is other code: its own run is done again, the other not.
        changed = other / "example.so"
        changed.write_bytes(self.module.read_bytes() + b"\0")
        status, out, err = self.orrery("run", "study.yaml", "--no-figure", "--cache", "off",
                                       modules=changed)
        self.assertEqual(status, 0, out + err)
        self.assertIn("1 run done, 1 were present", out)
        after = sorted(path.name for path in self.folder.glob("results/tests/modules/runs/*"))
        self.assertEqual(len(before), 1)
        self.assertEqual(len(after), 3)
        self.assertLess(set(before), set(after))

    def test_a_program_of_ones_own_and_a_careless_planner(self):
        own = self.folder / "own"
        own.mkdir()
        for name, text in (("CMakeLists.txt", OWN), ("own.cpp", PROGRAM),
                           ("careless.cpp", CARELESS)):
            (own / name).write_text(text)
        self.carry_out(CMAKE, "-S", own, "-B", own / "build", "-G", "Ninja",
                       f"-DCMAKE_PREFIX_PATH={self.stage}", f"-DCMAKE_CXX_COMPILER={CXX}")
        self.carry_out(CMAKE, "--build", own / "build")
        done = subprocess.run([own / "build/own"], capture_output=True, text=True)
        self.assertRegex(done.stdout, r"^\d+\.\d+(\.\d+)? 1$")
        status, out, err = self.orrery(
            "plan", "--cluster", "pair.yaml", "--model", "gpt3_125m", "--sequence-length", "512",
            "--planner", "careless",
            modules=own / "build/careless.so")
        self.assertEqual(status, 2, out + err)
        self.assertRegex(err, r"careless\.so: planner 'careless' made a plan with a defect: ")

    def test_a_module_of_another_build_is_refused(self):
        source = self.folder / "old.c"
        source.write_text('const char orrery_module_stamp[] = "0.0.9, headers 0, GNU 1";\n'
                          "void orrery_module(void) { __builtin_trap(); }\n")
        self.carry_out(CXX, "-xc", "-shared", "-fPIC", "-o", self.folder / "old.so", source)
        status, _, err = self.orrery("list", "planners", "--module", "old.so")
        self.assertEqual(status, 2, err)
        self.assertIn("--module: the module 'old.so' was built for Orrery 0.0.9, headers 0, GNU 1, "
                      "and this is 0.1.0, headers ", err)
        self.assertIn("build it again", err)

    def test_what_is_no_module_is_named(self):
        source = self.folder / "empty.c"
        source.write_text("int nothing;\n")
        self.carry_out(CXX, "-xc", "-shared", "-fPIC", "-o", self.folder / "empty.so", source)
        (self.folder / "text.so").write_text("text")
        for name, what in (("empty.so", "is no module of Orrery"), ("none.so", "cannot read"),
                           ("text.so", "cannot load")):
            status, _, err = self.orrery("list", "planners", modules=name)
            self.assertEqual(status, 2, err)
            self.assertTrue(err.startswith("ORRERY_MODULES: "), err)
            self.assertIn(what, err)
        status, _, err = self.orrery("list", "planners", "--module")
        self.assertEqual(status, 2, err)
        # A second copy brings names that are taken.
        again = self.folder / "again.so"
        again.write_bytes(self.module.read_bytes())
        status, _, err = self.orrery("list", "planners", modules=f"{self.module}:{again}")
        self.assertEqual(status, 2, err)
        self.assertIn(f"there is a planner 'even_chain' already, from {self.module}", err)
        self.assertIn("there is a recovery policy 'patient' already", err)


if __name__ == "__main__":
    unittest.main()

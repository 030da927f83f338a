#!/usr/bin/python3
"""tools/orrery on made-up machines: every program that it would call is a recorder on PATH."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [line.split("#")[0].strip() for line in
            (ROOT / "tools/scripts/packages.txt").read_text(encoding="utf-8").splitlines()]
PACKAGES = sorted(name for name in PACKAGES if name)

# Installed packages are listed one a line in $FAKE/installed; apt-get install adds to them. Without
# $FAKE/lists apt-get knows no package, as on an image that was never updated.
FAKES = {
    "dpkg-query": 'sed "s/^/installed /" "$FAKE/installed"; exit 1\n',
    "apt-get": '''echo "apt-get $*" >>"$FAKE/calls"
case $* in
  update) touch "$FAKE/lists" ;;
  *) [ -e "$FAKE/lists" ] && [ ! -e "$FAKE/broken" ] || { echo "E: no such package"; exit 100; }
     case $* in *--simulate* | *--download-only*) exit 0 ;; esac
     for word; do echo "$word" >>"$FAKE/installed"; done ;;
esac
''',
    "cmake": '''echo "cmake $*" >>"$FAKE/calls"
mkdir -p "$FAKE/repo/build/release/tools"; touch "$FAKE/repo/build/release/build.ninja"
echo "noise of cmake"
''',
    "ninja": '''echo "ninja $*" >>"$FAKE/calls"
echo "[1/2] noise of ninja"
[ -e "$FAKE/bad_source" ] && { echo "FAILED: a.o"; echo "a.cpp:1: error: bad"; exit 1; }
cp "$FAKE/binary" "$FAKE/repo/build/release/tools/orrery"
''',
    "sudo": '[ -e "$FAKE/password" ] && exit 1; [ "$1" = -v ] || [ "$1" = -n ] || exec "$@"\n',
    "id": 'cat "$FAKE/uid"\n',
}
BINARY = '#!/bin/sh\necho "binary in $PWD with" "$@"\ncat\nexit 7\n'


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.fake = Path(folder.name).resolve()
        tools = self.fake / "repo/tools"
        (tools / "scripts").mkdir(parents=True)
        for name in ["orrery", "scripts/setup.sh", "scripts/packages.txt"]:
            shutil.copy(ROOT / "tools" / name, tools / name)
        for name in ["CMakeLists.txt", "CMakePresets.json"]:
            (self.fake / "repo" / name).write_text("", encoding="utf-8")
        (self.fake / "bin").mkdir()
        for name, text in FAKES.items():
            self.script(f"bin/{name}", "#!/bin/sh\n" + text)
        self.script("binary", BINARY)
        self.write("uid", "0\n")
        self.installed_without()

    def write(self, name, text=""):
        (self.fake / name).write_text(text, encoding="utf-8")

    def installed_without(self, *names):
        self.write("installed", "".join(f"{p}\n" for p in PACKAGES if p not in names))

    def script(self, name, text):
        self.write(name, text)
        (self.fake / name).chmod(0o755)

    def orrery(self, *arguments, command=None):
        """Runs tools/orrery; returns its exit code, stdout, stderr and what it called."""
        self.write("calls")
        environment = {"PATH": f"{self.fake}/bin:/usr/bin:/bin", "FAKE": str(self.fake),
                       "HOME": str(self.fake / "home"), "ORRERY_JOBS": "3"}
        run = subprocess.run([command or self.fake / "repo/tools/orrery", *arguments],
                             env=environment, cwd=self.fake / "bin", input="from stdin\n",
                             capture_output=True, text=True)
        calls = (self.fake / "calls").read_text(encoding="utf-8").splitlines()
        return run.returncode, run.stdout, run.stderr, calls

    def expect_binary_ran(self, code, stdout):
        self.assertEqual((code, stdout),
                         (7, f"binary in {self.fake}/bin with a b  c\nfrom stdin\n"))

    def test_the_binary_gets_arguments_stdin_and_folder_and_stdout_is_its_own(self):
        code, stdout, _, calls = self.orrery("a", "b  c")
        self.expect_binary_ran(code, stdout)
        self.assertEqual([call.split()[0] for call in calls], ["cmake", "ninja"])
        self.assertIn("-j 3 orrery", calls[1])

    def test_a_second_call_only_asks_ninja(self):
        self.orrery()
        code, stdout, stderr, calls = self.orrery("a", "b  c")
        self.expect_binary_ran(code, stdout)
        self.assertEqual([call.split()[0] for call in calls], ["ninja"])
        self.assertNotIn("configuring", stderr)

    def test_a_new_folder_or_package_is_noticed(self):
        self.orrery()
        (self.fake / "repo/sim").mkdir()
        self.write("repo/sim/CMakeLists.txt")
        self.assertEqual([call.split()[0] for call in self.orrery()[3]], ["cmake", "ninja"])
        self.write("lists")
        self.write("repo/tools/scripts/packages.txt", "\n".join(PACKAGES + ["new-package"]))
        self.assertIn("apt-get install", self.orrery()[3][0])

    def test_it_works_through_a_symbolic_link(self):
        os.symlink(self.fake / "repo/tools/orrery", self.fake / "link")
        code, stdout, _, _ = self.orrery("a", "b  c", command=self.fake / "link")
        self.expect_binary_ran(code, stdout)

    def test_root_installs_exactly_what_is_missing_after_an_update(self):
        self.installed_without("cmake", "libmetis-dev")
        code, stdout, stderr, calls = self.orrery("a", "b  c")
        self.expect_binary_ran(code, stdout)
        self.assertIn("2 Debian packages are missing: cmake libmetis-dev", stderr)
        apt = [call for call in calls if call.startswith("apt-get")]
        self.assertIn("apt-get update", apt)
        self.assertRegex(apt[-1], r"^apt-get install -y --no-install-recommends --no-remove "
                                  r".* cmake libmetis-dev$")
        self.assertNotIn("libboost1.81", (self.fake / "repo/tools/scripts/packages.txt").read_text(
            encoding="utf-8").replace("# Never add libboost1.81*", ""))

    def test_package_lists_that_suffice_are_not_updated(self):
        self.installed_without("cmake")
        self.write("lists")
        self.assertNotIn("apt-get update", self.orrery()[3])

    def test_sudo_is_used_where_it_asks_no_password(self):
        self.write("uid", "1000\n")
        self.installed_without("cmake")
        code, stdout, stderr, _ = self.orrery("a", "b  c")
        self.expect_binary_ran(code, stdout)
        self.assertIn("installing them with sudo: apt-get install", stderr)

    def test_without_root_the_command_is_printed(self):
        self.write("uid", "1000\n")
        self.write("password")
        self.installed_without("cmake")
        code, stdout, stderr, calls = self.orrery()
        self.assertEqual((code, stdout, calls), (1, "", []))
        self.assertIn("apt-get update && apt-get install -y --no-install-recommends cmake\n",
                      stderr)

    def test_a_failed_installation_shows_the_log_and_is_tried_again(self):
        self.installed_without("cmake")
        self.write("broken")
        code, stdout, stderr, calls = self.orrery()
        self.assertEqual((code, stdout), (1, ""))
        self.assertIn("E: no such package", stderr)
        self.assertIn("build/release/apt-install.log", stderr)
        self.assertFalse(any(call.startswith("cmake") for call in calls))
        (self.fake / "broken").unlink()
        self.assertEqual(self.orrery()[0], 7)

    def test_a_failed_build_shows_the_error_and_the_log_and_runs_nothing(self):
        self.write("bad_source")
        code, stdout, stderr, _ = self.orrery()
        self.assertEqual((code, stdout), (1, ""))
        self.assertIn("a.cpp:1: error: bad", stderr)
        self.assertIn(f"{self.fake}/repo/build/release/build.log", stderr)

    def test_calls_at_once_build_one_after_the_other(self):
        self.script("bin/ninja", "#!/bin/sh\n" + '''mkdir "$FAKE/busy" || touch "$FAKE/overlap"
sleep 0.2; rmdir "$FAKE/busy"
''' + FAKES["ninja"])
        environment = {"PATH": f"{self.fake}/bin:/usr/bin:/bin", "FAKE": str(self.fake),
                       "HOME": str(self.fake / "home")}
        runs = [subprocess.Popen([self.fake / "repo/tools/orrery"], env=environment,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL) for _ in range(3)]
        self.assertEqual([run.wait() for run in runs], [7, 7, 7])
        self.assertFalse((self.fake / "overlap").exists())


if __name__ == "__main__":
    unittest.main()

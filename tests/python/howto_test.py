"""The page docs/howto/python.md runs as it stands."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Howto(unittest.TestCase):
    def test_the_script_of_the_page_runs_and_draws(self):
        page = (ROOT / "docs" / "howto" / "python.md").read_text(encoding="utf-8")
        (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        lines = [line for line in script.splitlines() if line.strip()]
        self.assertLessEqual(len(lines), 40)
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-B", "-c", script], cwd=folder,
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            for line in done.stdout.splitlines():
                self.assertIn(f"\n    {line}\n", page)
            self.assertIn("s without recomputation", done.stdout)
            self.assertGreater(os.path.getsize(os.path.join(folder, "replay.png")), 5000)


if __name__ == "__main__":
    unittest.main()

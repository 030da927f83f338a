"""The commands of docs/tour.md run as they stand there, and leave what the page promises.

    tour_test.py SOURCE_FOLDER ORRERY
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE, ORRERY = Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()


class Tour(unittest.TestCase):
    def test_its_commands_run(self):
        page = (SOURCE / "docs" / "tour.md").read_text(encoding="utf-8")
        commands = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        self.assertEqual(len(commands), 10)
        with tempfile.TemporaryDirectory() as folder:
            # The page of reports needs npm; that it works there is report_browser's to test.
            (Path(folder) / "page.html").write_text('<script>{"orrery":"data"}</script>')
            environment = dict(os.environ, ORRERY_REPORT_PAGE=str(Path(folder) / "page.html"))
            (Path(folder) / "tests").symlink_to(SOURCE / "tests")
            for command in commands:
                line = command.strip().replace("tools/orrery", str(ORRERY), 1)
                done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment,
                                      capture_output=True, text=True)
                lost = " switch " in command  # Exit code 1: state that no device has any more.
                self.assertEqual(done.returncode, int(lost), f"{command}{done.stdout}{done.stderr}")
            made = {path.name: path.read_text() for path in Path(folder).glob("*.*") if path.is_file()}
        self.assertIn('"title":"llama2_13b on mine"', made["plan.html"])
        self.assertIn('"policy":"torchft"', made["replay.html"])
        self.assertIn("pretrain_gpt.py", made["train.sh"])
        self.assertIn("node:h100-2", made["incidents.csv"])


if __name__ == "__main__":
    unittest.main()

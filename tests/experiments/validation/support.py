"""Where the studies that are under test lie, and folders with files for them."""

import sys
import tempfile
import unittest
from pathlib import Path

VALIDATION = Path(__file__).resolve().parents[3] / "experiments" / "validation"
sys.path.insert(0, str(VALIDATION))


class Folder(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")
        return self.folder / name

#!/usr/bin/python3
"""The command line of Orrery in a process that can load planners and policies of Python:

    tools/orrery plan --planner my.py:MyPlanner ...
    python3 -m orrery plan --planner my.py:MyPlanner ..."""

import os
import sys

if __name__ == "__main__":
    if not __package__:
        sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.environ["ORRERY_PROGRAM"] = os.path.abspath(__file__)  # What `execute` starts as ranks.
    from orrery import _orrery

    sys.exit(_orrery.main(["orrery", *sys.argv[1:]]))

"""Commands as functions: the same results as on the command line, from the same descriptions."""

import contextlib
import inspect
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import orrery

CASE = {"cluster": "hexiscale_case_study", "model": "llama2_7b", "global_batch": 8,
        "sequence_length": 512}


def command_line(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "orrery", *arguments], capture_output=True,
                          text=True)


class Commands(unittest.TestCase):
    def test_a_result_is_what_the_command_line_prints(self):
        with tempfile.TemporaryDirectory() as folder:
            plan = os.path.join(folder, "plan.yaml")
            made = orrery.plan(**CASE, planner="hexiscale", output=plan)
            again = orrery.simulate(**CASE, plan=[plan]) if "plan" in inspect.signature(
                orrery.simulate).parameters else orrery.simulate(**CASE, plans=[plan])
            flags = ["--cluster", CASE["cluster"], "--model", CASE["model"], "--global-batch", "8",
                     "--sequence-length", "512"]
            printed = command_line("simulate", plan, *flags)
            self.assertEqual(printed.returncode, 0, printed.stderr)
            self.assertEqual(str(again), printed.stdout)
            tree = json.loads(command_line("simulate", plan, *flags, "--json").stdout)
            self.assertEqual(again.plans[0].evaluation.iteration_seconds,
                             tree["plans"][0]["evaluation"]["iteration_seconds"])
        self.assertEqual(made.status, 0)
        self.assertEqual(made.best, "hexiscale")
        self.assertIsInstance(made.planners[0].plan, orrery.Plan)
        self.assertEqual(made.planners[0].evaluation.iteration_seconds,
                         again.plans[0].evaluation.iteration_seconds)
        self.assertEqual(pickle.loads(pickle.dumps(made)), made)
        self.assertEqual(made.to_dict()["planners"][0]["name"], "hexiscale")

    def test_values_may_stand_for_their_files(self):
        cluster = orrery.load_cluster(CASE["cluster"])
        for gpu in cluster.gpu_types:
            gpu.efficiency /= 2
        slower = orrery.plan(**{**CASE, "cluster": cluster}, planner="megatron_grid")
        usual = orrery.plan(**CASE, planner="megatron_grid")
        self.assertGreater(slower.planners[0].evaluation.iteration_seconds,
                           1.2 * usual.planners[0].evaluation.iteration_seconds)

    def test_bad_settings_are_named(self):
        with self.assertRaises(orrery.ConfigError) as caught:
            orrery.plan(cluster="hexiscale_case_studi", model="llama2_7b", global_batch=0,
                        planner="hexiscale")
        places = {problem.file for problem in caught.exception.problems}
        self.assertLessEqual({"cluster", "global_batch"}, places)
        with self.assertRaisesRegex(TypeError, "no setting 'planer' .did you mean 'planner'"):
            orrery.plan(**CASE, planer="hexiscale")

    def test_settings_and_results_describe_themselves(self):
        for name, function in orrery.commands.functions.items():
            signature = inspect.signature(function)
            self.assertTrue(all(each.kind is each.KEYWORD_ONLY
                                for each in signature.parameters.values()), name)
            for key in signature.parameters:
                if key != "progress":
                    self.assertIn(f"  {key}: ", function.__doc__, name)
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            help(orrery.plan)
        self.assertIn("sequence_length", text.getvalue())

    def test_ctrl_c_ends_a_command_and_the_next_one_runs(self):
        timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            for _ in range(1000):
                orrery.plan(cluster="hexiscale_240", model="llama_30b", global_batch=512,
                            sequence_length=4096, planner="hexiscale")
        timer.join()
        self.assertEqual(orrery.plan(**CASE, planner="megatron_grid").status, 0)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/python3
"""Figures 9 and 10 of Oobleck (SOSP 2023): does the artifact's own count give every published
digit, and how far is replay from it (experiments/oobleck/throughput)?"""

import csv
import sys
import unittest
from pathlib import Path

STUDY = Path(__file__).resolve().parents[2] / "experiments" / "oobleck" / "throughput"
sys.path.insert(0, str(STUDY))
import compat  # noqa: E402
import honest  # noqa: E402
import orrery  # noqa: E402
import throughput  # noqa: E402
from inputs import MODELS, Change  # noqa: E402


class Figures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = throughput.data_folder()
        if not (folder / "throughput.csv").exists():
            raise unittest.SkipTest(f"no throughput.csv in {folder} (set ORRERY_DATA)")
        cls.runs = list(throughput.run_cases(folder))

    def test_the_artifacts_count_gives_every_published_digit(self):
        published = {}
        with open(STUDY / "published.csv", newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                key = (int(row["figure"]), row["trace"], row["model"], row["system"])
                published.setdefault(key, []).append((row["quantity"], row["value"]))
        found = 0
        for run in self.runs:
            key = (run.figure, run.trace, run.model.label, run.system)
            for quantity, value in published.get(key, []):
                parts = run.compat.breakdown
                ours = {"samples_per_second": run.compat.samples_per_second,
                        "effective": parts.effective / parts.sum(),
                        "redundant": parts.redundant / parts.sum()}[quantity]
                unit = 10.0 ** -len(value.partition(".")[2])
                # GPT-3 medium, 6 h, is 29.3046 and printed as 29.31: rounded to 29.305 first.
                twice = key[:3] == (9, "6h", "GPT-3 M") and value == "29.31"
                self.assertAlmostEqual(ours, float(value), delta=(0.55 if twice else 0.5001) * unit,
                                       msg=f"{key} {quantity}")
                found += 1
        self.assertEqual(found, sum(map(len, published.values())))
        self.assertEqual(found, 48 + 12 + 4)

    def test_replay_is_near_for_losses_one_by_one(self):
        for run in self.runs:
            # Varuna's largest models live on steps that the artifact counts during restarts.
            if run.figure == 9 and not (run.system == "varuna" and
                                        run.model.label in ("2.7B", "6.7B")):
                distance = run.honest.samples_per_second / run.compat.samples_per_second - 1
                self.assertLess(abs(distance), 0.02 if run.system == "oobleck" else 0.09, msg=run)

    def test_replay_does_not_stop_at_losses_of_one_instant(self):
        for run in self.runs:
            if run.figure == 10 and run.system == "oobleck":
                ratio = run.honest.samples_per_second / run.compat.samples_per_second
                self.assertGreater(ratio, 1.02, msg=run)
                self.assertLess(ratio, 1.23, msg=run)

    def test_replay_accounts_for_all_time_once(self):
        for run in self.runs:
            own = run.honest
            whole = own.effective + own.checkpoint + own.restart + own.fallback + own.idle
            self.assertAlmostEqual(whole, 1, delta=1e-9)
            self.assertGreaterEqual(own.idle, -1e-12)


class Counts(unittest.TestCase):
    def test_one_loss_as_by_hand(self):
        # 8192 samples a step, 20.48 s on 30 nodes and 27.306 s on 29; one node leaves in the third.
        changes = [Change(0, True, f"node{i}") for i in range(30)]
        changes += [Change(100_000, False, "node3"), Change(300_000, False, "node4")]
        got = compat.count(MODELS[0], "oobleck", {29: 300.0, 30: 400.0}, changes, True)
        # 47 s: steps of 20.48 s end at 67.48, 87.96; the third is lost at 100 s. From 102 s on steps
        # of 27.306 s: the seventh ends at 293.142 s.
        self.assertEqual(got.steps, 9)
        self.assertAlmostEqual(got.samples_per_second, 9 * 8192 / (293.142 - 47), delta=1e-9)
        self.assertEqual(got.breakdown, compat.Breakdown(effective=3 * 20480 + 8 * 27306,
                                                         restart=4000, fallback=20480))


class Joins(unittest.TestCase):
    def test_nodes_that_leave_before_they_are_ready_never_come(self):
        def event(second, kind, node, sequence):
            return orrery.ClusterEvent(time=int(second * 1e9), kind=kind, sequence=sequence,
                                       scope=orrery.EventScope(kind="node", node=node))

        trace = orrery.Trace(
            horizon=int(1000e9),
            nodes=[orrery.TraceNode(name="a", gpus=1), orrery.TraceNode(name="b", gpus=1)],
            events=[event(0, "join", 0, 0), event(100, "join", 1, 1), event(120, "leave", 1, 2),
                    event(200, "join", 1, 3), event(300, "leave", 1, 4)])
        delayed = honest.delay_joins(trace).events
        self.assertEqual([(one.time, one.kind) for one in delayed],
                         [(0, "join"), (int(245e9), "join"), (int(300e9), "leave")])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

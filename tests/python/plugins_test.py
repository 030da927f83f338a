"""Planners and policies in Python keep the laws that those of C++ keep, and are told what breaks
them."""

import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
from typing import Annotated

import orrery
from orrery import (CheckpointLevel, ClusterEvent, EventScope, Infeasible, Plan, RecoveryDecision,
                    RecoveryPhase, Trace, TraceNode)

HOWTO = pathlib.Path(__file__).resolve().parents[2] / "docs" / "howto" / "python"
PLANNER = f"{HOWTO / 'first_fit.py'}:FirstFit"
POLICY = f"{HOWTO / 'keep_or_replan.py'}:KeepOrReplan"
HOUR = 3600 * 10**9


def random_training(draw: random.Random) -> orrery.Training:
    kinds = ["A100-80GB", "RTX4090-24GB", "A800-80GB-NVLink"]
    nodes = [{"name": f"n{i}", "gpus": {"type": draw.choice(kinds), "count": draw.choice([1, 2, 4])},
              "pcie": {"link": "pcie4-x16"}, "nics": {"link": "infiniband-200"},
              "host_memory": {"capacity": 1e12, "bandwidth": 1e11}}
             for i in range(draw.randint(1, 4))]
    return orrery.Training(
        {"name": "random", "nodes": nodes,
         "storage": {"bandwidth": draw.choice([1e9, 5e9])}},
        draw.choice(["llama2_7b", "llama2_13b"]), global_batch=draw.choice([4, 8]),
        sequence_length=draw.choice([256, 1024]))


def random_trace(draw: random.Random, at: orrery.Training) -> Trace:
    nodes = at.cluster.nodes
    events, gone, time = [], set(), 0
    while (time := time + draw.randint(1, 8) * HOUR // 4) < 12 * HOUR:
        node = draw.randrange(len(nodes))
        events.append(ClusterEvent(time=time, kind="repair" if node in gone else "fail",
                                   scope=EventScope(kind="node", node=node),
                                   sequence=len(events)))
        gone ^= {node}
    return Trace(nodes=[TraceNode(name=node.name, gpus=len(node.gpu_types)) for node in nodes],
                 horizon=12 * HOUR, events=events)


class PlannerLaws(unittest.TestCase):
    def test_plans_are_valid_fit_and_repeat(self):
        plans = 0
        for seed in range(25):
            draw = random.Random(seed)
            at = random_training(draw)
            count = len(at.cluster.devices)
            devices = sorted(draw.sample(range(count), draw.randint(1, count)))
            result = at.plan(PLANNER, devices=devices, tensor_parallel=draw.choice([1, 2, 4]))
            again = at.plan(PLANNER, devices=devices, tensor_parallel=4)
            self.assertEqual(again, at.plan(PLANNER, devices=devices, tensor_parallel=4))
            if isinstance(result.outcome, Infeasible):
                self.assertTrue(result.outcome.witness)
                continue
            plans += 1
            self.assertEqual(at.validate(result.outcome), [])
            self.assertTrue(at.memory(result.outcome).fits)
            self.assertLessEqual(set(orrery.plan_devices(result.outcome)), set(devices))
            self.assertEqual(result.outcome.planner, "FirstFit")
            self.assertEqual(result.outcome.cluster_hash, at.cluster.hash)
            self.assertGreater(at.simulate(result.outcome).iteration_time, 0)
        self.assertGreater(plans, 5)

    def test_a_plan_with_a_defect_is_refused(self):
        at = next(each for each in (random_training(random.Random(seed)) for seed in range(20))
                  if isinstance(each.plan(PLANNER).outcome, Plan))
        plan = at.plan(PLANNER).outcome
        plan.pipelines.append(plan.pipelines[0])

        class TwiceTheSame(orrery.Planner):
            def plan(self, input):
                return plan

        with self.assertRaisesRegex(orrery.ConfigError, r"TwiceTheSame.plan\(\).pipelines"):
            at.plan(TwiceTheSame)
        with self.assertRaisesRegex(TypeError, r"Nothing.plan\(\): expected Plan | Infeasible"):
            at.plan(type("Nothing", (orrery.Planner,), {"plan": lambda self, input: None}))
        with self.assertRaises(ZeroDivisionError):
            at.plan(type("Broken", (orrery.Planner,), {"plan": lambda self, input: 1 / 0}))

    def test_an_input_that_is_kept_has_no_answers_once_the_planner_or_policy_has_ended(self):
        at = random_training(random.Random(0))
        plan = at.plan("megatron_grid").outcome
        self.assertIsInstance(plan, Plan)
        kept = []

        class Planner(orrery.Planner):
            breaks: Annotated[bool, "raises"] = False

            def plan(self, input):
                kept.append(input)
                input.evaluate(plan)
                return plan if not self.breaks else {}["nothing"]

        class Policy(orrery.RecoveryPolicy):
            breaks: Annotated[bool, "raises"] = False

            def __init__(self, input, **settings):
                super().__init__(input, **settings)
                kept.append(input)
                input.evaluate(plan)
                if self.breaks:
                    raise KeyError("nothing")

        at.plan(Planner)
        with self.assertRaises(KeyError):
            at.plan(Planner, breaks=True)
        policy = at.policy(Policy)
        kept[-1].evaluate(plan)
        del policy
        with self.assertRaises(KeyError):
            at.policy(Policy, breaks=True)
        self.assertEqual(len(kept), 4)
        for each in kept:
            with self.assertRaisesRegex(ValueError, "that asked has ended"):
                each.evaluate(plan)

    def test_settings_are_named_and_typed(self):
        at = random_training(random.Random(2))
        with self.assertRaisesRegex(orrery.ConfigError, "options.tensor: FirstFit has no such"):
            at.plan(PLANNER, tensor=3)
        with self.assertRaisesRegex(orrery.ConfigError, "options.tries: 'many' is no int"):
            at.plan(PLANNER, tries="many")
        with self.assertRaisesRegex(orrery.ConfigError, "has no Planner 'Fit' .it has: FirstFit"):
            at.plan(PLANNER.replace(":FirstFit", ":Fit"))


class PolicyLaws(unittest.TestCase):
    def test_replays_account_for_all_time_and_repeat(self):
        stalls = 0
        for seed in range(12):
            draw = random.Random(seed)
            at = random_training(draw)
            trace = random_trace(draw, at)
            settings = {"planner": "megatron_grid", "every": draw.choice([10, 1000])}
            replay = at.replay(trace, POLICY, **settings)
            self.assertEqual(sum(replay.wall), trace.horizon)
            hours = replay.device_hours
            self.assertAlmostEqual(sum(hours.in_plan) + hours.spare + hours.absent,
                                   12 * len(at.cluster.devices), places=6)
            self.assertLessEqual(replay.ettr, 1)
            self.assertLessEqual(replay.goodput, 1 + 1e-9)
            self.assertEqual(replay, at.replay(trace, POLICY, **settings))
            stalls += replay.interruptions
        self.assertGreater(stalls, 10)

    def test_numbers_and_plans_that_policies_are_given_are_checked(self):
        draw = random.Random(0)
        at = random_training(draw)
        trace = random_trace(draw, at)
        for given, what in ((float("nan"), "iteration_time: expected a finite number"),
                            (lambda plan, conditions: None, "a time: expected a number")):
            with self.assertRaisesRegex(TypeError, what):
                at.replay(trace, POLICY, planner="megatron_grid", iteration_time=given)
        with self.assertRaisesRegex(ValueError, "interruptions_per_second must be zero or more"):
            at.policy("checkpoint_restart", interruptions_per_second=-1.0)
        policy = at.policy("checkpoint_restart", planner="megatron_grid")
        plan = policy.first_plan([device.id for device in at.cluster.devices])
        self.assertTrue(policy.checkpoints(plan, 1.0))
        with self.assertRaisesRegex(ValueError, "iteration_time must be positive, is 0"):
            policy.checkpoints(plan, 0.0)
        plan.pipelines[0].stages[0].segments[0].groups[0].devices[0] = 99
        with self.assertRaisesRegex(orrery.ConfigError, "unknown device 99"):
            policy.checkpoints(plan, 1.0)

    def test_a_decision_that_breaks_the_contract_is_named(self):
        at = random_training(random.Random(0))
        names = [TraceNode(name=node.name, gpus=len(node.gpu_types)) for node in at.cluster.nodes]
        trace = Trace(nodes=names, horizon=12 * HOUR, events=[
            ClusterEvent(time=HOUR, kind="fail", scope=EventScope(kind="node", node=0)),
            ClusterEvent(time=2 * HOUR, kind="repair", scope=EventScope(kind="node", node=0))])
        plan = at.plan("megatron_grid").outcome
        self.assertIsInstance(plan, Plan)
        self.assertIn(0, [at.cluster.devices[id].node for id in orrery.plan_devices(plan)])

        class Answers(orrery.RecoveryPolicy):
            answer: Annotated[str, "how to break it"] = ""

            def first_plan(self, live):
                return plan

            def checkpoints(self, plan, iteration_time):
                return [CheckpointLevel(every=0)] if self.answer == "level" else []

            def on_events(self, state, events):
                return {"proceed": RecoveryDecision(action="proceed"),
                        "dead": RecoveryDecision(action="resume", plan=plan),
                        "none": RecoveryDecision(action="resume"),
                        "phase": RecoveryDecision(action="wait"),
                        }[self.answer]

        for answer, message in [("proceed", "lost a device"), ("dead", "is not there"),
                                ("none", "without a plan"), ("level", "every: must be at least 1")]:
            with self.assertRaisesRegex(orrery.ConfigError, message):
                at.replay(trace, Answers, answer=answer)
        waits = at.replay(trace, Answers, answer="phase")
        self.assertEqual(waits.interruptions, 1)

        # Their class sees what it takes to notice a loss and to start again.
        class Looks(Answers):
            seen = []

            def first_plan(self, live):
                self.seen.append(self.input.runtime)
                return plan

        known = orrery.Runtime(monitor="inspection", start_node=12.5, search={"metis": 3.0})
        for runtime in [None, known]:
            policy = at.policy(Looks, runtime=runtime)
            self.assertEqual(policy.first_plan([device.id for device in at.cluster.devices]), plan)
        self.assertEqual(Looks.seen, [orrery.Runtime(), known])
        self.assertEqual(Looks.seen[0].monitor, "agent")


class CommandLine(unittest.TestCase):
    def test_plan_takes_a_class_and_its_options(self):
        arguments = ["plan", "--planner", PLANNER, "-o", "tensor_parallel=2", "--cluster",
                     "hexiscale_case_study", "--model", "llama2_7b", "--global-batch", "8",
                     "--sequence-length", "512"]
        done = subprocess.run([sys.executable, "-m", "orrery", *arguments], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("FirstFit", done.stdout)
        wrong = subprocess.run([sys.executable, "-m", "orrery", *arguments, "-o", "tensor=1"],
                               capture_output=True, text=True)
        self.assertEqual(wrong.returncode, 2, wrong.stdout)
        self.assertIn("tensor", wrong.stderr)

    def test_commands_of_the_package_take_it_too(self):
        made = orrery.plan(cluster="hexiscale_case_study", model="llama2_7b", global_batch=8,
                           sequence_length=512, planner=[PLANNER, "megatron_grid"])
        self.assertEqual([report.name for report in made.planners], [PLANNER, "megatron_grid"])
        self.assertIsNotNone(made.planners[0].evaluation)


if __name__ == "__main__":
    unittest.main()

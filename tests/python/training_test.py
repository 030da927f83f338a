"""The core calls: the same answers as the command line's, and no abort whatever is asked."""

import multiprocessing
import os
import signal
import threading
import time
import unittest

import orrery
from orrery import Group, Pipeline, Plan, Segment, Stage, Straggler


def training() -> orrery.Training:
    return orrery.Training("hexiscale_case_study", "llama2_13b", global_batch=8,
                           sequence_length=1024)


def plan_of(*devices: int) -> Plan:
    """One pipeline with a stage on each device."""
    bounds = [round(42 * i / len(devices)) for i in range(len(devices) + 1)]
    return Plan(pipelines=[Pipeline(micro_batches=8, stages=[
        Stage(segments=[Segment(first_block=first, last_block=past - 1,
                                groups=[Group(devices=[device])])])
        for device, first, past in zip(devices, bounds, bounds[1:])])])


def _ask(slowdown: float) -> float:
    return asked(slowdown)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class Training(unittest.TestCase):
    def test_equal_questions_have_equal_answers(self):
        at, plan = training(), plan_of(0, 1, 2)
        first = at.simulate(plan)
        at.simulate(plan_of(0, 3))
        again = at.simulate(plan)
        self.assertEqual(first, again)
        self.assertEqual(first, training().simulate(plan))
        self.assertEqual(first.iteration_time, at.evaluate(plan).iteration_time)
        self.assertEqual(first.iteration_time,
                         at.simulate(at.lower(plan), op_times=at.op_times(at.lower(plan)))
                         .iteration_time)

    def test_a_straggler_and_own_prices_count(self):
        at, plan = training(), plan_of(0, 1)
        even = at.simulate(plan).iteration_time
        slow = at.simulate(plan, stragglers=[Straggler(device=1, slowdown=3)]).iteration_time
        self.assertGreater(slow, 1.2 * even)
        program = at.lower(plan)
        nothing = at.simulate(program, op_times=[0.0] * len(program.ops)).iteration_time
        self.assertLess(nothing, 0.5 * even)

    def test_bad_questions_raise_and_the_next_one_is_answered(self):
        at = training()
        with self.assertRaisesRegex(orrery.ConfigError, "plan.*device"):
            at.simulate(plan_of(0, 99))
        with self.assertRaisesRegex(orrery.ConfigError, "no device 77|unknown device|77"):
            at.simulate(plan_of(0, 1), stragglers=[Straggler(device=77, slowdown=2)])
        with self.assertRaisesRegex(ValueError, "op_times has 1 entries"):
            at.simulate(at.lower(plan_of(0, 1)), op_times=[1.0])
        program = at.lower(plan_of(0, 1))
        program.ops[0].rank = 17
        with self.assertRaisesRegex(ValueError, "not well formed"):
            at.simulate(program)
        with self.assertRaisesRegex(IndexError, "no such block"):
            at.block_time(999)
        for field in ("tensor_parallel", "sequence_degree", "samples", "expert_parallel"):
            with self.assertRaisesRegex(ValueError, f"{field} must be at least 1, is 0"):
                at.block_time(1, **{field: 0})
        with self.assertRaisesRegex(ValueError, "optimizer"):
            at.block_time(1, pass_="optimizer")
        with self.assertRaisesRegex(ValueError, "parameters must be zero or more, is -1"):
            at.optimizer_time(-1.0)
        for segment in (Segment(), Segment(first_block=0, last_block=999)):
            with self.assertRaisesRegex(IndexError, "the model has no blocks"):
                at.segment_memory(segment, Group(devices=[0]), 1)
        with self.assertRaisesRegex(ValueError, "no devices"):
            at.segment_memory(Segment(first_block=0, last_block=1), Group(), 1)
        for ask in (at.evaluate, lambda plan: at.evaluation_of(plan, 1.0)):
            with self.assertRaisesRegex(orrery.ConfigError, "unknown device 99"):
                ask(plan_of(0, 99))
        for ask in (at.evaluation_of, at.tokens_per_second):
            with self.assertRaisesRegex(ValueError, "seconds must be positive, is 0"):
                ask(plan_of(0, 1), 0.0)
        program = at.lower(plan_of(0, 1))
        for seconds, what in ((-1.0, r"op_times\[0\] must be zero or more, is -1"),
                              (1e300, "add up to")):
            with self.assertRaisesRegex(ValueError, what):
                at.simulate(program, op_times=[seconds] * len(program.ops))
        self.assertGreater(at.simulate(plan_of(0, 1)).iteration_time, 0)

    def test_this_process_has_no_engine_and_threads_may_ask(self):
        times = []
        plan = plan_of(0, 1)

        def ask() -> None:
            times.append(training().simulate(plan).iteration_time)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(times), 3)
        self.assertEqual(len(set(times)), 1)

    def test_a_fork_asks_a_simulator_of_its_own(self):
        at, plan = training(), plan_of(0, 1)

        def ask(slowdown: float) -> float:
            return at.simulate(plan, stragglers=[Straggler(device=1, slowdown=slowdown)]) \
                .iteration_time

        slow = [1.0 + i / 4 for i in range(12)]
        here = [ask(each) for each in slow]
        global asked  # what a pool calls must have a name
        asked = ask
        with multiprocessing.get_context("fork").Pool(3) as pool:
            self.assertEqual(pool.map(_ask, slow, chunksize=1), here)
        self.assertEqual(ask(slow[1]), here[1])

    def test_after_ctrl_c_the_same_training_answers(self):
        at, plan = training(), plan_of(0, 1, 2)
        before = at.evaluate(plan)
        for _ in range(3):  # most of the time, but not all of it, goes into waiting for an answer
            timer = threading.Timer(0.2, interrupt)
            with self.assertRaises(KeyboardInterrupt):
                timer.start()
                while True:
                    at.evaluate(plan)
            timer.join()
            self.assertEqual(at.evaluate(plan), before)

    def test_ctrl_c_ends_the_searches_of_the_main_thread_only(self):
        alone = training().plan("hexiscale", rounds=50).outcome
        found = []

        def search() -> None:
            for _ in range(4):
                found.append(training().plan("hexiscale", rounds=50).outcome)

        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        with self.assertRaises(KeyboardInterrupt):
            interrupt()
            time.sleep(10)
        for thread in threads:
            thread.join()
        with self.assertRaises(KeyboardInterrupt):
            interrupt()
            time.sleep(10)
        self.assertEqual(found, [alone] * 12)

        class Asks(orrery.Planner):
            """Asks another planner, on and on."""

            def plan(self, input):
                while True:
                    training().plan("hexiscale", rounds=200)

        timer = threading.Timer(0.5, interrupt)
        with self.assertRaises(KeyboardInterrupt):
            timer.start()
            training().plan(Asks)
        timer.join()

    def test_topologies_know_what_collectives_take(self):
        cluster = orrery.load_cluster("hexiscale_case_study")
        network = orrery.Topology(cluster)
        path = network.path(0, 1)
        bytes_, ranks = 1e9, 3
        steps = 2 * (ranks - 1)
        self.assertAlmostEqual(
            network.collective_time("all_reduce", "ring", [0, 1, 2], bytes_),
            steps * (bytes_ / ranks / path["bandwidth"] + path["latency"]), places=9)
        with self.assertRaisesRegex(IndexError, "no device 8"):
            network.path(0, 8)


if __name__ == "__main__":
    unittest.main()

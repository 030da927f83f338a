"""The core calls: the same answers as the command line's, and no abort whatever is asked."""

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
        self.assertGreater(at.simulate(plan_of(0, 1)).iteration_time, 0)

    def test_this_process_has_no_engine_and_threads_may_ask(self):
        import threading

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

"""What calling simulate() from Python adds to the same run in C++ (in the session: forking,
simulating, delivering). Target: below 1 ms.

    tools/orrery python tests/bench/python_call_bench.py"""

import statistics
import time

import orrery
from orrery import Group, IterationOptions, Pipeline, Plan, Segment, Stage

REPEATS = 200


def main() -> None:
    at = orrery.Training("hexiscale_case_study", "llama2_7b", global_batch=8, sequence_length=1024)
    plan = Plan(pipelines=[Pipeline(micro_batches=8, stages=[
        Stage(segments=[Segment(first_block=0, last_block=20, groups=[Group(devices=[0])])]),
        Stage(segments=[Segment(first_block=21, last_block=33, groups=[Group(devices=[1])])])])])
    quiet = {"record_spans": False, "record_memory": False, "record_links": False}
    options = IterationOptions(**quiet)
    program = at.lower(plan)
    simulator = at._simulator(False)
    print("call,python_ms,cpp_ms,overhead_ms")
    for name, question in [("program", program), ("plan", plan)]:
        python, cpp = [], []
        for _ in range(REPEATS):
            start = time.perf_counter()
            at.simulate(question, **quiet)
            python.append(time.perf_counter() - start)
            cpp.append(simulator.seconds_of_run(program, options))
        ours, theirs = 1e3 * statistics.median(python), 1e3 * statistics.median(cpp)
        print(f"{name},{ours:.3f},{theirs:.3f},{ours - theirs:.3f}")


if __name__ == "__main__":
    main()

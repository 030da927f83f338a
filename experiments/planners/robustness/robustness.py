"""Plans made for clusters as their files say, and their simulated times on hardware that differs.
Prints a CSV: a row for each cluster, planner and change of the hardware."""

import orrery

CASES = {  # cluster: model, global batch, sequence length
    "hexiscale_case_study": ("llama2_13b", 24, 4096),
    "autohet_8a100_8h800": ("gpt3_6.7b", 64, 2048),
    "hethub_pair2": ("llama2_7b", 256, 1024),
    "hetu_16h800_16h20": ("hetu_32b", 64, 4096),
}
OTHERS = ["megatron_grid", "hexiscale", "hetu", "hethub", "metis"]
HARDWARE = {
    "as planned": {},
    "links half as fast": {"scale_network": 0.5},
    "links twice as fast": {"scale_network": 2.0},
    "GPUs vary by 10 %": {"step_jitter": 0.1, "steps": 20},
}
ALLOWED = {
    "recompute": ["none", "selective", "full"],
    "zero_stages": [0, 1, 2, 3],
    "sequence_parallel": True,
    "schedules": ["gpipe", "1f1b", "interleaved_1f1b", "zero_bubble"],
}


def plans_of(job):
    """(planner, plan) of all that found one that fits."""
    reports = list(orrery.plan(planner=["orrery"], option={"budget": "150"}, **job,
                               **ALLOWED).planners)
    reports += orrery.plan(planner=OTHERS, option={"default_budget": "2000000"}, **job,
                           **ALLOWED).planners
    for report in reports:
        if report.plan is not None:
            report.plan.cluster_hash = ""  # Scaled links are another cluster's.
            yield report.name, report.plan


def seconds_of(plan, job, changes):
    """(median, 5 %, 95 %) of a step."""
    found = orrery.simulate(plan=[plan], **job, **changes)
    if "steps" in changes:
        steps = found.steps[0]
        return steps.median, steps.p5, steps.p95
    return (found.plans[0].evaluation.iteration_seconds,) * 3


def main():
    print("cluster,model,planner,hardware,seconds,p5,p95")
    for cluster, (model, batch, length) in CASES.items():
        job = {"cluster": cluster, "model": model, "global_batch": batch,
               "sequence_length": length}
        for planner, plan in plans_of(job):
            for hardware, changes in HARDWARE.items():
                times = ",".join(f"{time:.10g}" for time in seconds_of(plan, job, changes))
                print(f"{cluster},{model},{planner},{hardware},{times}")


if __name__ == "__main__":
    main()

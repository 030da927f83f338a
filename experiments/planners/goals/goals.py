"""Frontiers of time, dollars and energy by the Orrery planner. Prints a CSV: a row for each plan
that no other of its search beats in all of them."""

import csv
import sys

import orrery

CASES = {  # cluster: model, global batch, sequence length, dtype
    "metis_t4_v100_16": ("metis_gpt_2.6b", 128, 1024, "fp16"),
    "hetu_16h800_16h20": ("hetu_32b", 64, 4096, "bf16"),
    "b200_h100": ("llama3_70b", 256, 8192, "bf16"),
}
POWER = {  # The cluster's own H800 and H20 say no watts; those of the library.
    "hetu_16h800_16h20": {"H800-80GB": "700 W", "H20-96GB": "500 W"},
}
ALLOWED = {
    "recompute": ["none", "selective", "full"],
    "zero_stages": [0, 1, 2, 3],
    "sequence_parallel": True,
    "schedules": ["gpipe", "1f1b", "interleaved_1f1b", "zero_bubble"],
}


def main():
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["cluster", "model", "devices", "seconds", "dollars_per_million_tokens",
                  "joules_per_token", "plan"])
    for cluster, (model, batch, length, dtype) in CASES.items():
        found = orrery.plan(planner=["orrery"], option={"objective": "frontier", "budget": "240"},
                            cluster=cluster, model=model, global_batch=batch,
                            sequence_length=length, dtype=dtype, seed=1,
                            power=POWER.get(cluster, {}), **ALLOWED)
        for one in found.planners[0].search.frontier:
            dollars = one.dollars_per_million_tokens
            out.writerow([cluster, model, one.devices, f"{one.evaluated_seconds:.10g}",
                          "" if dollars is None else f"{dollars:.10g}",
                          f"{one.joules_per_token:.10g}", one.what])


if __name__ == "__main__":
    main()

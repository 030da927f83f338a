"""Training runs on clusters of A100 nodes, as published tables give them: one run is a GPT model,
how it is distributed over GPUs, what its software does, and the measured time of an iteration, if
there is one. Shared by the validation against vTrain's and Megatron's measurements.

What a row says is input and is never fitted. What is fitted are the few numbers of DECLARED, which
hold for all rows of a study."""

from dataclasses import dataclass

import tables

GPUS_PER_NODE = 8


@dataclass(frozen=True)
class Software:
    """What the training software does, where it matters to time."""
    gradient_bytes: float = 2.0  # of one gradient in the data-parallel all-reduce
    # Bytes that are moved for each parameter to add a micro-batch's gradient to the sum: fp16 sums
    # read two and write one (6), fp32 sums read fp16 and fp32 and write fp32 (10).
    accumulation_bytes: float = 6.0
    # Gradients are reduced while the backward pass still runs, in buckets of 25 MiB (PyTorch DDP).
    overlapped_gradients: bool = False
    older: bool = False  # code of 2021 (SC'21): see older_software below


@dataclass
class Run:
    """One row."""
    id: str
    set: str  # rows whose errors are counted together
    layers: int
    hidden: int
    heads: int
    sequence: int  # tokens
    vocabulary: int  # padded
    tp: int
    pp: int
    dp: int
    micro_batch: int  # sequences
    global_batch: int  # sequences
    virtual_stages: int = 1  # 1: plain 1F1B
    recompute: str = "full"
    sequence_parallel: bool = False
    nics_per_node: int = 8  # of 200 Gb/s; nodes have eight GPUs
    software: Software = Software()
    measured: float | None = None  # seconds of one iteration
    fitted: bool = False  # parameters are fitted on it
    scored: bool = True  # False: its measurement does not count

    @property
    def gpus(self):
        return self.tp * self.pp * self.dp

    @property
    def micro_batches(self):
        return self.global_batch // self.dp // self.micro_batch

    def use(self):
        if self.measured is None:
            return "unmeasured"
        return "fitted" if self.fitted else "scored"


def padded_vocabulary(vocabulary, tp):
    """GPT's vocabulary padded to a multiple of 128 x tp [Shoeybi et al. 2019, 3]."""
    unit = 128 * tp
    return (vocabulary + unit - 1) // unit * unit


def check_run(run, row):
    """Numbers of a row of a published table that do not fit together are problems."""
    if run.gpus != row.count("gpus"):
        row.problem("gpus", "is not tp x dp x pp")
    replica_batch = run.dp * run.micro_batch
    if replica_batch > 0 and run.global_batch % replica_batch != 0:
        row.problem("global_batch", "is no multiple of dp x micro_batch")


# Parameters with the values that are taken where nothing is fitted: matrix products at 0.8 of peak
# (assumed); memory, NVLink and InfiniBand as models/library declares them; 28 kernels of 15 us (the
# library's launch) for one pass of a layer; no difference between versions of the software.
DECLARED = {
    "gemm_share": 0.8,  # share of peak that products reach before tile and wave quantization
    "memory_share": 0.8,  # share of memory bandwidth that memory-bound kernels reach
    "nvlink_share": 0.8,  # share of the port's bandwidth that collectives inside a node reach
    "network_share": 0.9,  # share of the adapter's bandwidth
    "host_per_layer": 28 * 15e-6,  # s that the host needs to launch one pass of a layer
    "older_software": 1.0,  # compute time of the code of 2021 over that of later code
}
UNITS = {"host_per_layer": "s"}
# Least and largest value, and other starts to try: the time of the host, which has no influence
# where it is short, would never move.
RANGES = {name: (0.1, 1.0, ()) for name in DECLARED} | {
    "host_per_layer": (1e-4, 2e-2, (1e-3, 2e-3, 4e-3)),
    "older_software": (0.8, 1.5, ()),
}


def read_parameters(path, problems):
    """parameters.csv of another study; what it does not name is as declared."""
    parameters = dict(DECLARED)
    for row in tables.Table(path, ["name", "value"], problems):
        name, value = row.text("name"), row.number("value")
        if name not in DECLARED:
            row.problem("name", f"no parameter is called '{name}'")
        elif value is None:
            row.problem("value", "is missing")
        elif not RANGES[name][0] <= value <= RANGES[name][1]:
            row.problem("value", f"{value:g} of {name} is out of range")
        else:
            parameters[name] = value
    return parameters

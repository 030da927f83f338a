"""How steps of a run differ: each GPU's speed changes from step to step, and a step is as long as
its slowest GPU's. What `orrery simulate --steps N --step-jitter S` draws, in closed form for any
number of GPUs."""

import statistics

NORMAL = statistics.NormalDist()
TAILS = (0.05, 0.95)


def deviations(gpus, share):
    """Of the slowest of so many GPUs, above the mean in standard deviations, the quantile."""
    return NORMAL.inv_cdf(share ** (1 / gpus))


def over_median(gpus, share, deviation):
    """Quantile of a step over its median."""
    return 1 + deviation * (deviations(gpus, share) - deviations(gpus, 0.5))


def fit(series):
    """The standard deviation, from (GPUs, p5 over median, p95 over median) of runs: the median of
    what the width of each run says."""
    return statistics.median(
        (high - low) / (deviations(gpus, TAILS[1]) - deviations(gpus, TAILS[0]))
        for gpus, low, high in series)

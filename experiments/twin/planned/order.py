#!/usr/bin/python3
"""Is the measured order of plans the predicted one?

    experiments/twin/planned/order.py TWIN_CSV

Prints Spearman's rank correlation of predicted and measured iterations over the runs that nothing was
fitted on, their mean error, and the pairs of plans in the wrong order with how far apart they are."""

import csv
import sys
from itertools import combinations


def ranks(values):
    """1 for the least; equal values share the mean of their ranks."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) + 1) / 2 for value in values]


def correlation(first, second):
    a, b = ranks(first), ranks(second)
    mean = (len(a) + 1) / 2
    both = sum((x - mean) * (y - mean) for x, y in zip(a, b))
    return both / (sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)) ** 0.5


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        runs = [row for row in csv.DictReader(file)
                if row["set"] == "predict" and row["status"] == "ok"]
    predicted = [float(row["iteration_predicted_s"]) for row in runs]
    measured = [float(row["iteration_measured_s"]) for row in runs]
    error = sum(abs(p / m - 1) for p, m in zip(predicted, measured)) / len(runs)
    print(f"{len(runs)} plans: rank correlation {correlation(predicted, measured):.3f}, "
          f"mean error {100 * error:.1f} %")
    wrong = [abs(measured[i] / measured[j] - 1) for i, j in combinations(range(len(runs)), 2)
             if (predicted[i] - predicted[j]) * (measured[i] - measured[j]) < 0]
    pairs = len(runs) * (len(runs) - 1) // 2
    print(f"{len(wrong)} of {pairs} pairs in the wrong order, at most {100 * max(wrong, default=0):.1f} "
          "% apart")


if __name__ == "__main__":
    main()

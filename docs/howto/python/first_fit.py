"""A planner in Python: one pipeline over groups of equal GPUs, layers by their speed."""

from typing import Annotated, Union

import orrery
from orrery import Group, Infeasible, Pipeline, Plan, Segment, Stage


class FirstFit(orrery.Planner):
    """One pipeline, a stage for each group of equal GPUs of a node, layers in proportion to speed."""

    tensor_parallel: Annotated[int, "largest degree of a group"] = 4
    tries: Annotated[int, "divisions of layers that are tried"] = 8

    def plan(self, input: orrery.PlannerInput) -> Union[Plan, Infeasible]:
        groups = self.groups(input)
        speeds = [len(group.devices) / input.block_time(1, gpu_type=self.gpu_type(input, group))
                  for group in groups]
        best, witness = None, "the cluster has no GPU"
        # The first stages keep more activations: give them less, step by step, until all fit.
        for attempt in range(self.tries):
            weights = [speed * (1 - 0.1 * attempt * (1 - i / max(1, len(groups) - 1)))
                       for i, speed in enumerate(speeds)]
            plan = self.pipeline(input, groups, weights)
            if input.validate(plan):
                witness = input.validate(plan)[0].what
                continue
            verdict = input.memory(plan)
            if not verdict.fits:
                witness = str(verdict)
                continue
            seconds = input.evaluate(plan).iteration_time
            if best is None or seconds < best[0]:
                best = seconds, plan
            if input.canceled:
                break
        return best[1] if best else Infeasible(constraint="device memory", witness=witness)

    def groups(self, input: orrery.PlannerInput) -> list[Group]:
        """Neighbors of one node and one type, as many as a power of two up to the setting."""
        runs: list[list[int]] = []
        devices = input.cluster.devices
        for device in input.devices:
            last = devices[runs[-1][-1]] if runs else None
            if last and (last.node, last.gpu_type) == (devices[device].node,
                                                       devices[device].gpu_type):
                runs[-1].append(device)
            else:
                runs.append([device])
        groups = []
        for run in runs:
            while run:
                size = min(self.tensor_parallel, 1 << (len(run).bit_length() - 1))
                groups.append(Group(devices=run[:size], tensor_parallel=size))
                run = run[size:]
        return groups[:len(input.workload.blocks) - 2]

    @staticmethod
    def gpu_type(input: orrery.PlannerInput, group: Group) -> int:
        return input.cluster.devices[group.devices[0]].gpu_type

    @staticmethod
    def pipeline(input: orrery.PlannerInput, groups: list[Group], weights: list[float]) -> Plan:
        """Layers in proportion to the weights, at least one each."""
        blocks = len(input.workload.blocks)
        free, total, done, bounds = blocks - len(groups), sum(weights), 0.0, [0]
        for i, weight in enumerate(weights):
            done += weight
            bounds.append(i + 1 + round(free * done / total))
        stages = [Stage(segments=[Segment(first_block=first, last_block=past - 1, groups=[group],
                                          recompute="full")])
                  for group, first, past in zip(groups, bounds, bounds[1:])]
        return Plan(pipelines=[Pipeline(micro_batches=input.job.global_batch, stages=stages)])

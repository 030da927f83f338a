"""A recovery policy in Python: keeps the plan while its devices live, else plans anew and loads the
newest checkpoint from the cloud."""

from typing import Annotated, Union

import orrery
from orrery import (CheckpointLevel, ClusterEvent, Infeasible, JobState, Plan, RecoveryDecision,
                    RecoveryPhase)

SECOND = 10**9  # nanoseconds


class KeepOrReplan(orrery.RecoveryPolicy):
    """Replans with every change of the devices that the plan uses, from the cloud's checkpoint."""

    planner: Annotated[str, "that is asked for each set of devices"] = "hexiscale"
    restart: Annotated[float, "seconds from detection until training goes on"] = 120.0
    every: Annotated[int, "iterations between checkpoints"] = 100

    def first_plan(self, live: list[int]) -> Union[Plan, Infeasible]:
        given = self.input.first
        if given is not None and set(orrery.plan_devices(given)) <= set(live):
            return given
        return self.input.find_plan(self.planner, live)

    def checkpoints(self, plan: Plan, iteration_time: float) -> list[CheckpointLevel]:
        storage = self.input.cluster.storage
        if storage is None:
            return []
        parameters = sum(parameter.elements for block in self.input.workload.blocks
                         for parameter in block.parameters)
        state = self.input.job.state_bytes
        seconds = parameters * (state.weight + state.master + state.moments) / storage.bandwidth
        return [CheckpointLevel(location="cloud", every=max(self.every,
                                                            int(seconds / iteration_time) + 1),
                                stall=SECOND, persist=int((1 + seconds) * SECOND),
                                source="one copy of the state over the storage's bandwidth")]

    def on_events(self, state: JobState, events: list[ClusterEvent]) -> RecoveryDecision:
        lost = any(event.kind in ("fail", "leave") for event in events)
        grown = any(event.kind in ("repair", "join") for event in events)
        if state.training and not grown and not lost:
            return RecoveryDecision(action="proceed", reason="nothing that the plan needs changed")
        plan = self.input.find_plan(self.planner, state.live)
        if isinstance(plan, Infeasible):
            return RecoveryDecision(action="wait", reason=f"{plan.constraint}: {plan.witness}")
        saved = [replica.iteration for replica in state.replicas
                 if replica.location == "cloud" and not replica.lost_shards]
        return RecoveryDecision(
            action="resume", plan=plan, resume_iteration=max(saved, default=0),
            phases=[RecoveryPhase(kind="reinitialize", duration=int(self.restart * SECOND),
                                  source="option restart")],
            reason="lost devices" if lost else "more devices")

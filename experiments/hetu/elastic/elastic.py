"""Both elastic traces of Hetu v2, section 7.2 (Figure 14): simulated step time of each configuration
and system, and the time of each transition: a restart and a load from storage, what a policy of the
catalog decides, or graph specialization and fused batched send-receive. Reads elastic.yaml and
prints a CSV.

Detection, planning and lost iterations are not part of a transition here."""

import sys
from pathlib import Path

import orrery
import yaml

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[1]))
from recovery_case import Move, state_after  # noqa: E402


class Transition(Move):
    """From one configuration to the next: a fixed part, then the move of the state."""

    def __init__(self, note=""):
        super().__init__()
        self.fixed, self.note = 0.0, note


def running(at, plan, live):
    """The job right after the loss, with `plan` still the running one."""
    return state_after(at, plan, live, nvme=False).replace(
        training=True, iteration_time=at.evaluate(plan).iteration_time)


def change(at, study, recovery, state, to):
    """To a given plan: restart and load from storage, or send-receive between GPUs."""
    if recovery == "restart":
        transition = Transition("restart and load")
        transition.fixed = study["restart_s"]
        order, size = ["cloud"], orrery.all_state_bytes(at.job)
    else:
        transition = Transition("specialization and send-receive")
        transition.fixed = study["specialization_s"]
        order = ["own_gpu", "peer_gpu"]
        size = (orrery.weight_bytes if recovery == "switch" else orrery.all_state_bytes)(at.job)
    restore = at.restore(state, to, iteration=1, order=order, bytes=size)
    if restore.missing:
        sys.exit(f"missing: {restore.witness}")
    transition.add(at, restore.transfers)
    return transition


def decide(at, policy, state, lost):
    """What a policy decides: (its plan, or None, and the transition)."""
    event = orrery.ClusterEvent(scope=orrery.EventScope(devices=lost))
    decision = policy.on_events(state, [event])
    transition = Transition(decision.reason)
    if decision.action != "resume":
        return (None if decision.action == "wait" else state.plan), transition
    transition.fixed = sum(phase.duration / 1e9 for phase in decision.phases
                           if phase.kind != "detect")
    transition.add(at, decision.transfers)
    return decision.plan, transition


def show(at, trace, configuration, live, system, plan, transition):
    step, words = ",,", ""
    if plan is not None:
        result = at.evaluate(plan)
        fits = "yes" if result.memory.fits else "no"
        step = f"{len(orrery.plan_devices(plan))},{result.iteration_time:.4f},{fits}"
        words = orrery.plan_words(plan, at.workload)
    note = transition.note.replace('"', "'")
    print(f"{trace},{configuration['name']},\"{configuration['devices']}\",{len(live)},"
          f"\"{system['name']}\",{step},{transition.fixed + transition.time:.3f},"
          f"{transition.fixed:.3f},{transition.time:.3f},{transition.bound:.3f},"
          f"{transition.bytes / 1e9:.2f},\"{note}\",\"{words}\"")


def run(at, study, trace, system):
    """One system through the configurations of a trace."""
    plans = [orrery.load_plan(FOLDER / name) for name in system.get("plans", [])]
    policy = None
    if "policy" in system:  # with its paper's constants, as the other systems have theirs
        policy = at.policy(system["policy"], constants="as_published")
    live = [device.id for device in at.cluster.devices]
    plan = None
    for number, configuration in enumerate(trace["configurations"]):
        lost = configuration.get("lost", [])
        live = [device for device in live if device not in lost]
        if number == 0:
            following = policy.first_plan(live) if policy else plans[0]
            transition = Transition("start")
        elif policy:
            following, transition = decide(at, policy, running(at, plan, live), lost)
        elif plans[number] == plan:
            following = plan
            transition = Transition("the running plan is not touched")
        else:
            following = plans[number]
            transition = change(at, study, system["recovery"], running(at, plan, live), following)
        plan = following
        show(at, trace["name"], configuration, live, system, plan, transition)
        if plan is None:
            return


def main():
    study = yaml.safe_load((FOLDER / "elastic.yaml").read_text())
    print("trace,configuration,devices,live,system,used,step_s,fits,transition_s,fixed_s,move_s,"
          "bound_s,moved_gb,note,plan")
    for trace in study["traces"]:
        at = orrery.Training(FOLDER / trace["cluster"], study["model"], study["job"])
        for system in trace["systems"]:
            run(at, study, trace, system)


if __name__ == "__main__":
    main()

"""Recovery times of AutoHet's section V-C: AutoHet (own NVMe, then NVMe of peers over RDMA, then the
cloud) and Varuna's way to fetch checkpoints (cloud only), from plans before and after, the kit of
recovery policies and simulated transfers. Reads recovery.yaml and prints a CSV."""

import sys
from pathlib import Path

import orrery
import yaml

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[1]))
from recovery_case import Move, in_folder, one_group, state_after  # noqa: E402

AUTOHET = ["own_nvme", "peer_nvme", "cloud"]
VARUNA = ["cloud"]
GPUS = ["own_gpu", "peer_gpu"]


def layers_of(layout, workload):
    """Layers of each stage, so that its blocks (embedding and head at the ends) weigh what they
    should, as nearly as whole layers allow."""
    sizes = [float(orrery.parameters(block)) for block in workload.blocks]
    weights = sum(stage["weight"] for stage in layout["stages"])
    count = orrery.count_layers(workload)
    layers, wanted, first = [], 0.0, 0
    for stage in layout["stages"][:-1]:
        wanted += sum(sizes) * stage["weight"] / weights

        def distance(end):
            last = orrery.segment_of_layers(workload, 0, end).last_block
            return abs(sum(sizes[:last + 1]) - wanted)

        end = min(range(first + 1, count), key=distance)
        layers.append(end - first)
        first = end
    return layers + [count - first]


def plan_of(layout, workload):
    layers = layers_of(layout, workload)
    pipelines = []
    for starts in layout["pipelines"]:
        stages, first = [], 0
        for start, stage, count in zip(starts, layout["stages"], layers, strict=True):
            segment = orrery.segment_of_layers(workload, first, count)
            segment.groups = [one_group(start, stage["width"])]
            stages.append(orrery.Stage(segments=[segment]))
            first += count
        pipelines.append(orrery.Pipeline(stages=stages))
    return orrery.Plan(pipelines=pipelines)


def first_stage_share(plan, workload):
    """Share of the state on the devices: a tied matrix at both ends counts twice."""
    end = plan.pipelines[0].stages[0].segments[0].last_block
    sizes = [float(orrery.parameters(block)) for block in workload.blocks]
    return sum(sizes[:end + 1]) / sum(sizes)


def origin_of(transfer, cluster):
    """own disk, peer or cloud."""
    if transfer.from_ == "cloud":
        return "cloud"
    nodes = {cluster.devices[device].node for device in (transfer.source, transfer.destination)}
    return "own" if len(nodes) == 1 else "peer"


class Fetch(Move):
    """A recovery of the plan `to` from sources in this order."""

    def __init__(self, at, state, to, order, variant, size):
        super().__init__()
        readers = to
        once = variant.get("replica_dedup") and len(to.pipelines) > 1
        if variant.get("replica_dedup"):
            readers = to.replace(pipelines=to.pipelines[:1])
        restore = at.restore(state, readers, iteration=1, order=order, bytes=size)
        assert restore.missing == 0, restore.witness
        origins = [origin_of(transfer, at.cluster) for transfer in restore.transfers]
        self.read = {"cloud": 0.0, "nvme": 0.0}  # bytes by where they come from
        self.network = 0.0  # of what is read from NVMe
        for transfer, origin in zip(restore.transfers, origins):
            self.read[transfer.from_] += transfer.bytes
            self.network += transfer.bytes if origin == "peer" else 0.0
        if variant.get("overlap", True):
            self.add(at, restore.transfers)
        else:
            for part in ("own", "peer", "cloud"):
                if part in origins:
                    self.add(at, [transfer for transfer, origin in zip(restore.transfers, origins)
                                  if origin == part])
        if once:
            replica = orrery.StateReplica(iteration=1, location="peer", layout=readers)
            read = state.replace(replicas=[replica])
            self.add(at, at.restore(read, to, iteration=1, order=GPUS, bytes=size).transfers)


def rows(at, model, scenario, variant, size):
    """AutoHet and Varuna."""
    before, after = (plan_of(scenario[when], at.workload) for when in ("before", "after"))
    lost = set(scenario.get("lost", []))
    live = [device.id for device in at.cluster.devices if device.id not in lost]
    state = state_after(at, before, live, nvme=True)
    keep = ["own_gpu"] if scenario.get("keep_running") else []
    autohet = Fetch(at, state, after, keep + AUTOHET, variant, size)
    varuna = Fetch(at, state, after, VARUNA, variant, size)
    for name, fetch in (("AutoHet", autohet), ("Varuna", varuna)):
        print(f"{scenario['name']},\"{scenario['reading']}\",{variant['name']},{model['name']},"
              f"{model['state_gb']:g},{first_stage_share(before, at.workload):.4f},{name},"
              f"{fetch.time:.3f},{fetch.bound:.3f},{fetch.read['cloud'] / 1e9:.2f},"
              f"{fetch.read['nvme'] / 1e9:.2f},{fetch.network / 1e9:.2f},"
              f"{varuna.time / fetch.time:.3f}")


def main():
    study = yaml.safe_load((FOLDER / "recovery.yaml").read_text())
    print("scenario,reading,variant,model,state_gb,first_stage_share,system,time_s,bound_s,cloud_gb,"
          "nvme_gb,network_gb,speedup")
    for model in study["models"]:
        for variant in study["variants"]:
            cluster = orrery.load_cluster(FOLDER / study["cluster"])
            cluster.storage.scope = variant.get("cloud_scope", "shared")
            at = orrery.Training(cluster, in_folder(FOLDER, model["model"]), global_batch=1,
                                 sequence_length=study["sequence_length"])
            # The nominal state: 14 bytes per parameter of the size that the paper names.
            size = orrery.all_state_bytes(at.job)
            scale = model["state_gb"] * 1e9 / float(orrery.parameters(at.workload)) / (
                size.weight + (size.master + size.moments))
            size = orrery.ReshardBytes(weight=size.weight * scale, master=size.master * scale,
                                       moments=size.moments * scale)
            for scenario in study["scenarios"]:
                rows(at, model, scenario, variant, size)


if __name__ == "__main__":
    main()

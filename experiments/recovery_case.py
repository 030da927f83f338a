"""What the studies of single recoveries share (autohet/recovery, hetu/elastic): the state of a job
that has just lost devices, and what moving state takes."""

import orrery


def in_folder(folder, name):
    """The file of that name in the folder, or the name itself (of the library) where there is
    none."""
    return folder / name if (folder / name).exists() else name


def one_group(first, width):
    """A tensor-parallel group of consecutive devices."""
    return orrery.Group(devices=list(range(first, first + width)), tensor_parallel=width)


def state_after(at, plan, live, nvme):
    """Iteration 1 was `plan`'s last one, the devices `live` are left. Its state is on the GPUs that
    live and in the cloud and, with `nvme`, on the NVMe of nodes with a live device."""
    cluster, devices = at.cluster, orrery.plan_devices(plan)
    nodes = {cluster.devices[device].node for device in live}
    alive = set(live)

    def replica(location, has):
        lost = [] if has is None else [i for i, device in enumerate(devices) if not has(device)]
        return orrery.StateReplica(iteration=1, location=location, layout=plan, lost_shards=lost)

    replicas = [replica("peer", lambda device: device in alive)]
    if nvme:
        replicas.append(replica("nvme", lambda device: cluster.devices[device].node in nodes))
    replicas.append(replica("cloud", None))
    return orrery.JobState(iteration=1, plan=plan, live=sorted(live), replicas=replicas)


class Move:
    """Seconds and bytes of transfers: simulated, and by the busiest resource's bytes over its
    bandwidth, a closed form to compare the simulation with."""

    def __init__(self):
        self.time = self.bound = self.bytes = 0.0

    def add(self, at, transfers):
        self.time += at.transfer_time(transfers)
        self.bound += at.transfer_estimate(transfers)
        self.bytes += sum(transfer.bytes for transfer in transfers)

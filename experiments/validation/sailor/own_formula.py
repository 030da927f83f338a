"""Sailor's own closed form of iteration time and peak memory, rewritten from the description in the
README of the data ("Check of the units"). Not a prediction of ours: it reproduces the estimates
that come with the measurements, which shows that the data is read correctly."""

import orrery

BUCKET = 5e8  # bytes
MEMORY_BEYOND = 5.06e9  # bytes
STATE_BYTES = 24.0  # of one parameter


def send_time(data, sender, receiver, sender_pairs, receiver_pairs, message):
    row = data.bandwidth(sender.gpu, receiver.gpu, sender_pairs, receiver_pairs)
    if row is None:
        raise LookupError(f"no bandwidth from {sender.gpu} x {sender_pairs} to {receiver.gpu} x "
                          f"{receiver_pairs}")
    return message / orrery.sailor_rate(row, message)


def passes(plan, data, stage, replica):
    time = 0.0
    for row in data.tables.layer_times:
        if (row.model, row.gpu, row.tensor_parallel, row.micro_batch_size) == (
                plan.model, replica.gpu, replica.tensor_parallel, plan.micro_batch):
            layers = (min(row.last_layer, stage.last_layer) -
                      max(row.first_layer, stage.first_layer) + 1)
            time += max(0, layers) * (row.forward + row.backward)
    return time


def crossing(plan, data, start, end, size):
    """Time of the slowest replica to send `size` between the stages of these numbers."""
    return max(send_time(data, a, b, a.tensor_parallel, b.tensor_parallel, size)
               for a, b in zip(plan.stages[start].replicas, plan.stages[end].replicas))


def sends(plan, data, i):
    stages = len(plan.stages)
    if stages == 1:
        return 0.0
    stage = plan.stages[i]
    degree = stage.replicas[0].tensor_parallel
    activation = (plan.micro_batch *
                  data.layer_memory(plan.model, degree, stage.last_layer).output)
    gradient = plan.micro_batch * data.layer_memory(plan.model, degree, stage.first_layer).input
    if i == 0:
        return (2.0 if stages > 3 else 1.0) * crossing(plan, data, 0, 1, activation)
    if i + 1 == stages:
        return 2 * crossing(plan, data, i, i - 1, gradient)
    return crossing(plan, data, i, i + 1, activation) + crossing(plan, data, i, i - 1, gradient)


def synchronization(plan, data, stage):
    parameters = sum(data.layer_memory(plan.model, 1, layer).parameters
                     for layer in range(stage.first_layer, stage.last_layer + 1))
    left = 4 * parameters / min(plan.tensor_parallel, 4)
    total = 0.0
    while left > 0:
        bucket = min(left, BUCKET)
        left -= bucket
        slowest = max([0.0] + [send_time(data, a, b, 1, 1, bucket / plan.data_parallel)
                               for a, b in zip(stage.replicas, stage.replicas[1:])])
        total += 2 * (plan.data_parallel - 1) * slowest
    return total


def time(plan, data):
    """With B micro-batches, T = (B - 1) max(c_i + p_i) + sum(c_i + p_i) + step + sync over stages
    i: c_i passes of the slowest replica (profiled layers as they stand), p_i sends at the fits with
    as many pairs as the degree (first stage: activation, twice if there are more than 3 stages;
    last one: twice the gradient; between: both; one stage: none), step the profiled optimizer step,
    unscaled, sync the slowest stage's 2 (dp - 1) t(bucket / dp), summed over buckets of 5e8 bytes
    of 4 x parameters (degree 1) / min(degree, 4), between neighboring replicas without closing the
    ring. In seconds."""
    slowest = total = step = sync = 0.0
    for i, stage in enumerate(plan.stages):
        for replica in stage.replicas:
            step = max([step] + [
                row.step for row in data.tables.optimizer_times
                if (row.model, row.gpu, row.tensor_parallel, row.micro_batch_size) == (
                    plan.model, replica.gpu, replica.tensor_parallel, plan.micro_batch)])
        own = (max(passes(plan, data, stage, replica) for replica in stage.replicas) +
               sends(plan, data, i))
        slowest = max(slowest, own)
        total += own
        sync = max(sync, synchronization(plan, data, stage))
    return (plan.micro_batches - 1) * slowest + total + step + sync


def memory(plan, data):
    """Largest over stages of 24 bytes x parameters + saved activations x micro-batch x (stages - i)
    + 5.06e9 bytes."""
    most = 0.0
    for i, stage in enumerate(plan.stages):
        rows = [data.layer_memory(plan.model, plan.tensor_parallel, layer)
                for layer in range(stage.first_layer, stage.last_layer + 1)]
        most = max(most, STATE_BYTES * sum(row.parameters for row in rows) +
                   plan.micro_batch * (len(plan.stages) - i) *
                   sum(row.saved_activations for row in rows) + MEMORY_BEYOND)
    return most

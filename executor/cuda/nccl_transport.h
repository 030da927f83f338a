/// Ranks that exchange payloads over NCCL: point-to-point sends between GPUs, from and to host
/// memory through pinned staging. Tags, sizes, liveness, the order of transfers and the id of the
/// communicator go over a control transport (TCP). Collectives are the rings of net/ring.h on top,
/// so that their order of sums is that of every other transport.
///
/// A kernel of NCCL occupies its stream until the other rank's kernel runs, and CUDA promises no
/// progress of one stream next to another [nccl#195, nccl#783]. What is guaranteed here rests on
/// neither: a rank has one communicator, one stream and at most one operation of NCCL at a time,
/// and all ranks enter them in the one order of ordered_transport.h. An operation is a piece of up
/// to 4 MiB out, one in, or both in one group, whose calls do not block each other [NCCL user
/// guide, "Point-to-point communication"]; a pair's first piece in each direction, for which NCCL
/// connects the ranks, goes alone. Nothing is allocated or freed here while an operation waits, and
/// where another thread's call (cudaMalloc, cudaFree) waits for the device, it waits for an
/// operation whose other side is still free to enter it. Kernels of the model may be held up behind
/// a waiting operation where streams share a hardware queue (rank_variables.h), not for ever.
///
/// Not guaranteed: that NCCL allocates nothing of its own at a pair's first piece (the order makes
/// that harmless); progress where more ranks share a GPU than it can time-slice; that a rank may
/// end its communicator while others go on, so that one that leaves early keeps it to the end of
/// its process. Hardware queues do not limit the number of ranks. Rank 0 does, which hears of every
/// piece once and tells two ranks: some ten microseconds each. [estimate, unverified]
///
/// NCCL refuses two ranks of one host on one GPU; processes of their own with distinct NCCL_HOSTID
/// pass that check and are then joined by sockets [NCCL 2.28, src/init.cc]. rank_variables.h gives
/// ranks what they need.
#pragma once
#include <memory>
#include <string>

#include "executor/net/transport.h"

namespace orrery::executor {

/// Why there is no NCCL here: built without, or no device. Empty: there is.
std::string nccl_problem();

/// Takes the control transport, which carries nothing else from now on, and this rank's GPU. Called
/// by all ranks; returns when their communicator is ready. Waits have a deadline of a minute until
/// another one is set. Throws std::runtime_error(nccl_problem()), TransportError.
std::unique_ptr<Transport> make_nccl_transport(std::unique_ptr<Transport> control, int device = 0);

}  // namespace orrery::executor

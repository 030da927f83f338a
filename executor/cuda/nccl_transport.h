/// Ranks that exchange payloads over NCCL: point-to-point sends between GPUs, from and to host
/// memory through pinned staging. Tags, sizes, liveness and the ids of communicators go over a
/// control transport (TCP). Collectives are the rings of net/ring.h on top, so that their order of
/// sums is that of every other transport.
///
/// Each pair and direction has a communicator of two ranks, made at the first message: a blocked
/// direction cannot hold up another one. NCCL refuses two ranks of one host on one GPU; processes
/// of their own with distinct NCCL_HOSTID pass that check and are then joined by sockets
/// [NCCL 2.28, src/init.cc].
#pragma once
#include <memory>
#include <string>

#include "executor/net/transport.h"

namespace orrery::executor {

/// Why there is no NCCL here: built without, or no device. Empty: there is.
std::string nccl_problem();

/// Takes the control transport, which carries nothing else from now on, and this rank's GPU. Waits
/// have a deadline of a minute until another one is set. Throws std::runtime_error(nccl_problem()).
std::unique_ptr<Transport> make_nccl_transport(std::unique_ptr<Transport> control, int device = 0);

}  // namespace orrery::executor

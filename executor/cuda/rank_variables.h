/// Environment variables that a rank process sets for itself before it touches CUDA and NCCL, which
/// read them once. What is set already is the user's and stays.
///
///   CUDA_DEVICE_MAX_CONNECTIONS=32   with CUDA or NCCL: hardware queues [CUDA C++ Programming
///   Guide,
///                                    "CUDA Environment Variables"; default 8], so that kernels of
///                                    the model less often queue behind a waiting one of NCCL.
/// With NCCL, where ranks of a machine share a GPU or play the nodes of an emulated network:
///   NCCL_HOSTID=<run>-<device>       takes each rank for a host of its own: NCCL refuses two ranks
///                                    of one host on one GPU [NCCL 2.28, src/init.cc]
///   NCCL_P2P_DISABLE=1, NCCL_SHM_DISABLE=1, NCCL_IB_DISABLE=1, NCCL_NVLS_ENABLE=0
///                                    sockets are the only way between such ranks
///   NCCL_SOCKET_IFNAME==<interface>  that of the address on which the rank listens (loopback, or
///                                    the node's in a lab), by its exact name
/// All ranks of a run must have NCCL's network switches alike: where machines with and without
/// shared GPUs are mixed, set NCCL_IB_DISABLE=1 on all of them.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace orrery::executor {

/// What a rank knows before it starts.
struct RankSurroundings {
  bool nccl = false;
  std::string run;
  int device = 0;               ///< Number of this rank's device in the plan.
  std::vector<int> neighbors;   ///< Numbers of all devices that may run on this machine.
  bool emulated_nodes = false;  ///< The machine plays several nodes of an emulated network.
  int gpus = 0;                 ///< Of this machine.
  std::string interface;        ///< Network interface of its address; empty: unknown.
};

using Variables = std::vector<std::pair<std::string, std::string>>;  ///< Name and value.

/// True when two of the devices get the same GPU of `gpus` (cuda_device_for).
bool share_gpus(const std::vector<int>& devices, int gpus);

/// "8 ranks share 1 GPU: ..." when they do, else empty.
std::string sharing_note(const std::vector<int>& devices, int gpus);

/// What the rank is to set where nothing is set.
Variables rank_variables(const RankSurroundings& here);

/// Sets those that are not set. Not while other threads of the process run: they may read the
/// environment.
void set_missing(const Variables& variables);

/// The network interface that has this address (a name is looked up); empty: none has.
std::string interface_of(const std::string& address);

}  // namespace orrery::executor

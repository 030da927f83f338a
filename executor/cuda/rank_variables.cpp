#include "executor/cuda/rank_variables.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <set>

namespace orrery::executor {
namespace {

/// What the driver grants at most. [CUDA C++ Programming Guide, "CUDA Environment Variables"]
constexpr const char* kConnections = "32";

/// The address as text, so that families can be compared; empty for others than IP.
std::string text_of(const sockaddr* address) {
  if (address == nullptr) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                sizeof text);
  } else if (address->sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
                sizeof text);
  }
  return text;
}

std::set<std::string> addresses_of(const std::string& name) {
  std::set<std::string> out;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, nullptr, &found) != 0) return out;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next)
    out.insert(text_of(at->ai_addr));
  ::freeaddrinfo(found);
  out.erase("");
  return out;
}

/// GPUs that the devices get.
std::set<int> gpus_of(const std::vector<int>& devices, int gpus) {
  std::set<int> out;
  for (const int device : devices) out.insert(device % gpus);
  return out;
}

}  // namespace

bool share_gpus(const std::vector<int>& devices, int gpus) {
  if (gpus < 1) return false;
  const std::set<int> distinct(devices.begin(), devices.end());
  return gpus_of(devices, gpus).size() < distinct.size();
}

std::string sharing_note(const std::vector<int>& devices, int gpus) {
  if (!share_gpus(devices, gpus)) return "";
  const std::size_t used = gpus_of(devices, gpus).size();
  return fmt::format(
      "{0} ranks share {1} GPU{2}, memory included: step times are not those of {0} devices",
      devices.size(), used, used == 1 ? "" : "s");
}

Variables rank_variables(const RankSurroundings& here) {
  Variables out = {{"CUDA_DEVICE_MAX_CONNECTIONS", kConnections}};
  if (!here.nccl || !(here.emulated_nodes || share_gpus(here.neighbors, here.gpus))) return out;
  out.emplace_back("NCCL_HOSTID", fmt::format("{}-{}", here.run, here.device));
  for (const char* way : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"}) {
    out.emplace_back(way, "1");
  }
  out.emplace_back("NCCL_NVLS_ENABLE", "0");
  // The second equals sign asks for the very name instead of all that begin with it.
  if (!here.interface.empty()) out.emplace_back("NCCL_SOCKET_IFNAME", "=" + here.interface);
  return out;
}

void set_missing(const Variables& variables) {
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 0);
}

std::string interface_of(const std::string& address) {
  const std::set<std::string> wanted = addresses_of(address);
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  std::string out;
  for (const ifaddrs* at = all; at != nullptr && out.empty(); at = at->ifa_next) {
    if (wanted.contains(text_of(at->ifa_addr))) out = at->ifa_name;
  }
  ::freeifaddrs(all);
  return out;
}

}  // namespace orrery::executor

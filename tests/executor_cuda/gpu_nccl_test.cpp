// Do ranks on GPUs exchange the right bytes over NCCL, and notice when one dies? Every rank is a
// process of its own, this executable started again. Where the ranks outnumber the GPUs, each gets
// an NCCL_HOSTID of its own, by which NCCL takes them for ranks on different hosts.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "executor/cuda/backend.h"
#include "executor/cuda/nccl_transport.h"
#include "executor/net/ring.h"
#include "executor/net/store.h"
#include "executor/net/tcp_transport.h"
#include "tests/executor_cuda/gpu_main.h"

namespace orrery::executor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kToken = "a token";
constexpr int kWrong = 3;   ///< Exit status: wrong numbers.
constexpr int kLost = 4;    ///< A TransportError.
constexpr int kFailed = 5;  ///< Anything else.
constexpr int kDied = 6;    ///< As told.

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// The transport of this process, through the store of the test that started it.
std::unique_ptr<Transport> join(int rank, int size, int store_port, int device) {
  StoreClient store({"127.0.0.1", store_port}, kToken);
  Listener listener;
  store.set("port" + std::to_string(rank), std::to_string(listener.port()));
  std::vector<Endpoint> endpoints;
  for (int other = 0; other < size; ++other) {
    const auto port = store.get("port" + std::to_string(other), milliseconds(60'000));
    endpoints.push_back({"127.0.0.1", std::stoi(port.value())});
  }
  TcpOptions options;
  options.token = kToken;
  auto transport = make_nccl_transport(
      make_tcp_transport(rank, std::move(listener), endpoints, options), device);
  transport->set_deadline(milliseconds(60'000));
  return transport;
}

/// Sums over all ranks; with `dies`, the last rank leaves without a word after the first ones.
int run_ring(Transport& transport, bool dies) {
  RingGroup all{std::vector<int>(static_cast<std::size_t>(transport.size())), transport.rank()};
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  const double sum = transport.size() * (transport.size() + 1) / 2.0;
  std::uint64_t step = 0;
  for (const std::size_t length : {0u, 1u, 1000u, 100'003u, 2'000'000u}) {
    std::vector<double> data(length, transport.rank() + 1.0);
    const auto begin = Clock::now();
    all_reduce(transport, all, Element::f64, std::as_writable_bytes(std::span(data)),
               {++step, 0, 0});
    const std::chrono::duration<double> took = Clock::now() - begin;
    if (data != std::vector<double>(length, sum)) return kWrong;
    if (transport.rank() == 0) {
      fmt::print("all-reduce of {} bytes: {:.2f} ms\n", 8 * length, 1e3 * took.count());
    }
    if (dies && length == 1000 && transport.rank() + 1 == transport.size()) ::_exit(kDied);
  }
  return 0;
}

int run_rank() {
  try {
    const int rank = std::stoi(variable("ORRERY_TEST_RANK"));
    const int devices = static_cast<int>(cuda_status().devices.size());
    const auto transport =
        join(rank, std::stoi(variable("ORRERY_TEST_SIZE")),
             std::stoi(variable("ORRERY_TEST_STORE")), rank % std::max(devices, 1));
    return run_ring(*transport, !variable("ORRERY_TEST_DIES").empty());
  } catch (const TransportError& error) {
    fmt::print("rank {}: {}\n", variable("ORRERY_TEST_RANK"), error.what());
    return kLost;
  } catch (const std::exception& error) {
    fmt::print("rank {}: {}\n", variable("ORRERY_TEST_RANK"), error.what());
    return kFailed;
  }
}

pid_t start(int rank, int size, int store_port, bool shared, bool dies) {
  std::vector<std::string> variables = {"ORRERY_TEST_RANK=" + std::to_string(rank),
                                        "ORRERY_TEST_SIZE=" + std::to_string(size),
                                        "ORRERY_TEST_STORE=" + std::to_string(store_port)};
  if (dies) variables.push_back("ORRERY_TEST_DIES=1");
  if (shared) {
    for (const std::string& one :
         {"NCCL_HOSTID=r" + std::to_string(rank), std::string("NCCL_SOCKET_IFNAME=lo"),
          std::string("NCCL_P2P_DISABLE=1"), std::string("NCCL_SHM_DISABLE=1"),
          std::string("NCCL_IB_DISABLE=1"), std::string("NCCL_NVLS_ENABLE=0")}) {
      variables.push_back(one);
    }
  }
  std::vector<char*> environment;
  for (char** entry = ::environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  for (std::string& one : variables) environment.push_back(one.data());
  environment.push_back(nullptr);
  std::string program = "/proc/self/exe";
  char* const arguments[] = {program.data(), nullptr};
  pid_t child = -1;
  // /proc/self is that of the child when it starts the program: the same file.
  if (::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environment.data()) !=
      0) {
    return -1;
  }
  return child;
}

/// Exit statuses by rank; -1: killed after two minutes.
std::vector<int> run_processes(int size, bool dies) {
  StoreServer store(Listener(), kToken);
  const bool shared = static_cast<int>(cuda_status().devices.size()) < size;
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    children.push_back(start(rank, size, store.port(), shared, dies));
  }
  std::vector<int> statuses(children.size(), -1);
  const auto deadline = Clock::now() + std::chrono::minutes(2);
  for (std::size_t i = 0; i < children.size(); ++i) {
    int status = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(children[i], &status, WNOHANG)) == 0 && Clock::now() < deadline) {
      ::usleep(10'000);
    }
    if (ended == 0) {
      ::kill(children[i], SIGKILL);
      ::waitpid(children[i], &status, 0);
    } else if (WIFEXITED(status)) {
      statuses[i] = WEXITSTATUS(status);
    }
  }
  return statuses;
}

TEST(Nccl, RingsOfProcessesSumOverAllRanks) {
  if (!nccl_problem().empty()) GTEST_SKIP() << nccl_problem();
  EXPECT_EQ(run_processes(2, false), (std::vector<int>{0, 0}));
  EXPECT_EQ(run_processes(3, false), (std::vector<int>{0, 0, 0}));
}

TEST(Nccl, ADeadRankEndsTheWaitsOfTheOthers) {
  if (!nccl_problem().empty()) GTEST_SKIP() << nccl_problem();
  const auto begin = Clock::now();
  EXPECT_EQ(run_processes(3, true), (std::vector<int>{kLost, kLost, kDied}));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(60));
}

}  // namespace
}  // namespace orrery::executor

int main(int argc, char** argv) {
  if (!orrery::executor::variable("ORRERY_TEST_RANK").empty()) {
    return orrery::executor::run_rank();
  }
  return orrery::executor::run_gpu_tests(argc, argv);
}

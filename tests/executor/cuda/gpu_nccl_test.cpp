// Do ranks on GPUs exchange the right bytes over NCCL, whatever the order of messages, and notice
// when one dies? Every rank is a process of its own, this executable started again, with the
// environment that ranks of a run give themselves (executor/cuda/rank_variables.h).
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/cuda/backend.h"
#include "executor/cuda/nccl_transport.h"
#include "executor/cuda/rank_variables.h"
#include "executor/net/ring.h"
#include "executor/net/store.h"
#include "executor/net/tcp_transport.h"
#include "models/base/ids.h"
#include "models/base/subprocess.h"
#include "tests/executor/cuda/gpu_main.h"

namespace orrery::executor::gpu_nccl_test {
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
  RingGroup all{std::vector<int>(transport.size()), transport.rank()};
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  const double sum = transport.size() * (transport.size() + 1) / 2.0;
  std::uint64_t step = 0;
  for (const std::size_t length : {0u, 1u, 1000u, 100'003u, 2'000'000u}) {
    std::vector<double> data(length, transport.rank() + 1.0);
    const auto begin = Clock::now();
    all_reduce(transport, all, ElementType::f64, std::as_writable_bytes(std::span(data)),
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

/// All send to all others at once, each in another order and before any receive, in messages of
/// several pieces, of one, and empty.
int run_everyone(Transport& transport) {
  const int own = transport.rank(), size = transport.size();
  constexpr std::size_t kMessages = 4;
  const auto length = [](std::size_t i) -> std::size_t {
    return i == 0 ? 1'500'000 : i == 1 ? 0 : 1000 * i;
  };
  const auto value = [](int from, int to, std::size_t i) {
    return 100.0 * from + 10.0 * to + static_cast<double>(i);
  };
  std::vector<std::vector<double>> out, in;
  std::vector<RequestPointer> requests;
  const auto count = as_size(size) * kMessages;
  for (std::size_t k = 0; k < count; ++k) {
    const int other = static_cast<int>(k / kMessages);
    out.emplace_back(length(k % kMessages), value(own, other, k % kMessages));
    in.emplace_back(length(k % kMessages));
  }
  for (int step = 1; step < size; ++step) {
    const int other = own % 2 == 0 ? (own + step) % size : (own + size - step) % size;
    for (std::size_t i = 0; i < kMessages; ++i) {
      auto& data = out[as_size(other) * kMessages + i];
      requests.push_back(transport.send(other, make_tag(1, i, 0), std::as_bytes(std::span(data))));
    }
  }
  for (int other = size - 1; other >= 0; --other) {
    for (std::size_t i = 0; other != own && i < kMessages; ++i) {
      auto& data = in[as_size(other) * kMessages + i];
      requests.push_back(
          transport.receive(other, make_tag(1, i, 0), std::as_writable_bytes(std::span(data))));
    }
  }
  for (const RequestPointer& request : requests) request->wait();
  for (std::size_t k = 0; k < count; ++k) {
    const int other = static_cast<int>(k / kMessages);
    if (other == own) continue;
    const std::vector<double> want(length(k % kMessages), value(other, own, k % kMessages));
    if (in[k] != want) return kWrong;
  }
  return 0;
}

/// As a rank of a run does before it touches NCCL.
int prepare(int rank, int size) {
  RankSurroundings here;
  here.nccl = true;
  here.run = "test";
  here.device = rank;
  here.neighbors.resize(size);
  std::iota(here.neighbors.begin(), here.neighbors.end(), 0);
  set_missing(rank_variables(here));
  here.gpus = static_cast<int>(cuda_status().devices.size());
  here.interface = interface_of("127.0.0.1");
  set_missing(rank_variables(here));
  return cuda_device_for(rank);
}

int run_rank() {
  try {
    const int rank = std::stoi(variable("ORRERY_TEST_RANK"));
    const int size = std::stoi(variable("ORRERY_TEST_SIZE"));
    const int device = prepare(rank, size);
    const auto transport = join(rank, size, std::stoi(variable("ORRERY_TEST_STORE")), device);
    const std::string what = variable("ORRERY_TEST_WHAT");
    return what == "everyone" ? run_everyone(*transport) : run_ring(*transport, what == "dies");
  } catch (const TransportError& error) {
    fmt::print("rank {}: {}\n", variable("ORRERY_TEST_RANK"), error.what());
    return kLost;
  } catch (const std::exception& error) {
    fmt::print("rank {}: {}\n", variable("ORRERY_TEST_RANK"), error.what());
    return kFailed;
  }
}

/// Exit statuses by rank; -1: killed after two minutes.
std::vector<int> run_processes(int size, const std::string& what) {
  StoreServer store(Listener(), kToken);
  std::vector<Subprocess> children;
  for (int rank = 0; rank < size; ++rank) {
    SubprocessOptions child;
    child.command = {own_executable()};
    child.environment = environment_without();
    for (const auto& [name, value] : {std::pair("RANK", std::to_string(rank)),
                                      {"SIZE", std::to_string(size)},
                                      {"STORE", std::to_string(store.port())},
                                      {"WHAT", what}}) {
      child.environment->push_back(fmt::format("ORRERY_TEST_{}={}", name, value));
    }
    children.emplace_back(child);
  }
  std::vector<int> statuses;
  const auto deadline = Clock::now() + std::chrono::minutes(2);
  for (Subprocess& child : children) {
    auto status = child.poll();
    for (; !status && Clock::now() < deadline; status = child.poll()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    statuses.push_back(status && status->signal == 0 ? status->code : -1);
  }
  return statuses;
}

TEST(Nccl, RingsOfProcessesSumOverAllRanks) {
  if (!nccl_problem().empty()) GTEST_SKIP() << nccl_problem();
  EXPECT_EQ(run_processes(2, "ring"), (std::vector<int>{0, 0}));
  EXPECT_EQ(run_processes(3, "ring"), (std::vector<int>{0, 0, 0}));
}

TEST(Nccl, EightRanksExchangeWithAllOthersInBothDirectionsAtOnce) {
  if (!nccl_problem().empty()) GTEST_SKIP() << nccl_problem();
  EXPECT_EQ(run_processes(8, "everyone"), std::vector<int>(8, 0));
  EXPECT_EQ(run_processes(8, "ring"), std::vector<int>(8, 0));
}

TEST(Nccl, ADeadRankEndsTheWaitsOfTheOthers) {
  if (!nccl_problem().empty()) GTEST_SKIP() << nccl_problem();
  EXPECT_EQ(run_processes(3, "dies"), (std::vector<int>{kLost, kLost, kDied}));
}

}  // namespace
}  // namespace orrery::executor::gpu_nccl_test

int main(int argc, char** argv) {
  if (!orrery::executor::gpu_nccl_test::variable("ORRERY_TEST_RANK").empty()) {
    return orrery::executor::gpu_nccl_test::run_rank();
  }
  return orrery::executor::run_gpu_tests(argc, argv);
}

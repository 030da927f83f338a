// Does a transport whose payloads take another way keep what a Transport promises: any order of
// tags, deadlines, errors instead of hangs, a clean end?
#include "executor/cuda/announced_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "executor/cuda/nccl_transport.h"
#include "executor/net/ring.h"
#include "tests/executor_cuda/pipe_channels.h"
#include "tests/executor_net/meshes.h"

namespace orrery::executor {
namespace {

using Clock = std::chrono::steady_clock;

std::span<std::byte> bytes_of(std::vector<double>& values) {
  return std::as_writable_bytes(std::span(values));
}

/// Every rank in a thread of its own on a transport over TCP and pipes.
std::vector<std::exception_ptr> run_ranks(int size, Pipes& pipes,
                                          const std::function<void(Transport&)>& body) {
  std::vector<Listener> listeners(static_cast<std::size_t>(size));
  std::vector<Endpoint> endpoints;
  for (const Listener& listener : listeners) endpoints.push_back({"127.0.0.1", listener.port()});
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      try {
        const auto transport = make_announced_transport(
            make_tcp_transport(rank, std::move(listeners[index]), endpoints, test_options()),
            std::make_unique<PipeMaker>(pipes), "pipes");
        transport->set_deadline(std::chrono::milliseconds(60'000));
        body(*transport);
      } catch (...) {
        errors[index] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(Announced, RingsSumOverAllRanks) {
  Pipes pipes;
  const auto begin = Clock::now();
  const auto errors = run_ranks(4, pipes, [](Transport& transport) {
    for (const std::size_t length : {0u, 1u, 5u, 100'000u}) {
      std::vector<double> data(length, transport.rank() + 1.0);
      all_reduce(transport, {{0, 1, 2, 3}, transport.rank()}, Element::f64, bytes_of(data),
                 {length, 0, 0});
      if (data != std::vector<double>(length, 10)) throw std::runtime_error("wrong sum");
    }
    if (transport.name() != "pipes" || transport.size() != 4) throw std::runtime_error("name");
  });
  EXPECT_EQ(first_error(errors), "");
  EXPECT_EQ(pipes.drawn, 4u);  // One channel for each direction that was used.
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30)) << "ranks leave without waiting";
}

TEST(Announced, TagsComeInAnyOrderAndEmptyMessagesToo) {
  Pipes pipes;
  const auto errors = run_ranks(2, pipes, [](Transport& transport) {
    const int other = 1 - transport.rank();
    std::vector<std::vector<double>> out, in(6);
    std::vector<RequestPointer> requests;
    for (std::size_t i = 0; i < 6; ++i) out.emplace_back(i * 1000, static_cast<double>(i));
    for (std::size_t i = 0; i < 6; ++i) {
      requests.push_back(transport.send(other, make_tag(1, i, 0), bytes_of(out[i])));
    }
    for (std::size_t i = 6; i-- > 0;) {
      in[i].resize(i * 1000);
      requests.push_back(transport.receive(other, make_tag(1, i, 0), bytes_of(in[i])));
    }
    for (const RequestPointer& request : requests) request->wait();
    if (in != out) throw std::runtime_error("wrong payload");
    const LinkTraffic link = transport.traffic()[static_cast<std::size_t>(other)];
    if (link.sent_bytes != 15'000 * 8 || link.messages_sent != 6) throw std::runtime_error("count");
  });
  EXPECT_EQ(first_error(errors), "");
}

TEST(Announced, BothDirectionsOfAPairGoOnByThemselves) {
  Pipes pipes;
  const auto errors = run_ranks(2, pipes, [](Transport& transport) {
    // Both send first: with one queue for both directions they would wait for each other.
    const int other = 1 - transport.rank();
    std::vector<double> out(10'000, transport.rank()), in(10'000);
    for (std::uint64_t i = 0; i < 50; ++i) {
      const RequestPointer sent = transport.send(other, make_tag(0, i, 0), bytes_of(out));
      sent->wait();
      transport.receive(other, make_tag(0, i, 0), bytes_of(in))->wait();
      if (in.front() != other) throw std::runtime_error("wrong payload");
    }
  });
  EXPECT_EQ(first_error(errors), "");
}

TEST(Announced, AReceiveThatNobodyServesEndsAtItsDeadline) {
  Pipes pipes;
  std::promise<std::string> ended;
  std::shared_future<std::string> how = ended.get_future().share();
  run_ranks(2, pipes, [&](Transport& transport) {
    std::vector<double> data(3);
    if (transport.rank() == 1) return how.wait();
    transport.set_deadline(std::chrono::milliseconds(200));
    const auto begin = Clock::now();
    try {
      transport.receive(1, make_tag(0, 0, 0), bytes_of(data))->wait();
      ended.set_value("no error");
    } catch (const TransportError& error) {
      const bool late = Clock::now() - begin > std::chrono::seconds(30);
      ended.set_value(error.kind() != TransportError::Kind::timeout ? error.what()
                      : late                                        ? "late"
                                                                    : "timeout");
    }
  });
  EXPECT_EQ(how.get(), "timeout");
}

TEST(Announced, ABrokenChannelEndsTheWaitsOfAllRanks) {
  Pipes pipes;
  const auto begin = Clock::now();
  std::atomic<int> failures = 0;
  run_ranks(3, pipes, [&](Transport& transport) {
    std::vector<double> data(1000, 1);
    try {
      all_reduce(transport, {{0, 1, 2}, transport.rank()}, Element::f64, bytes_of(data), {0, 0, 0});
      if (transport.rank() == 0) {
        const std::lock_guard lock(pipes.mutex);
        pipes.broken = true;
      }
      for (std::uint64_t step = 1; step < 1000; ++step) {
        all_reduce(transport, {{0, 1, 2}, transport.rank()}, Element::f64, bytes_of(data),
                   {step, 0, 0});
      }
    } catch (const TransportError&) {
      ++failures;
    }
  });
  EXPECT_EQ(failures, 3);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
}

TEST(Announced, AbortEndsTheWaitsOfAllRanks) {
  Pipes pipes;
  std::atomic<int> failures = 0;
  run_ranks(3, pipes, [&](Transport& transport) {
    std::vector<double> data(1000);
    if (transport.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return transport.abort("for a test");
    }
    try {
      transport.receive(2, make_tag(0, 0, 0), bytes_of(data))->wait();
    } catch (const TransportError& error) {
      failures += error.kind() == TransportError::Kind::peer_lost;
    }
  });
  EXPECT_EQ(failures, 2);
}

TEST(Announced, ARankMayLeaveWhileOthersGoOn) {
  Pipes pipes;
  const auto errors = run_ranks(3, pipes, [](Transport& transport) {
    std::vector<double> data(1000, 1);
    all_reduce(transport, {{0, 1, 2}, transport.rank()}, Element::f64, bytes_of(data), {0, 0, 0});
    if (transport.rank() == 2) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    all_reduce(transport, {{0, 1}, transport.rank()}, Element::f64, bytes_of(data), {1, 0, 0});
    if (data.front() != 6) throw std::runtime_error("wrong sum");
  });
  EXPECT_EQ(first_error(errors), "");
}

TEST(Nccl, SaysWhyItIsNotThere) {
  if (nccl_problem().empty()) GTEST_SKIP() << "it is";
  try {
    make_nccl_transport(nullptr);
    ADD_FAILURE() << "a transport without a device";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), nccl_problem());
  }
}

}  // namespace
}  // namespace orrery::executor

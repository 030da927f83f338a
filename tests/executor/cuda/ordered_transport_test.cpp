// Does a transport over an exchange that does one thing at a time keep what a Transport promises:
// any order of tags, deadlines, errors instead of hangs, a clean end? And does no order of messages
// make two ranks wait for each other?
#include "executor/cuda/ordered_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <stdexcept>
#include <thread>

#include "executor/net/ring.h"
#include "tests/executor/cuda/pipe_exchange.h"
#include "tests/executor/net/meshes.h"

namespace orrery::executor::ordered_transport_test {
namespace {

using Clock = std::chrono::steady_clock;

std::span<std::byte> bytes_of(std::vector<double>& values) {
  return std::as_writable_bytes(std::span(values));
}

/// Every rank in a thread of its own on a transport over TCP and pipes; `gone` is called with a
/// rank when its transport is.
std::vector<std::exception_ptr> run_ranks(
    int size, Pipes& pipes, const std::function<void(Transport&)>& body,
    std::chrono::milliseconds farewell = std::chrono::milliseconds(30'000),
    const std::function<void(int)>& gone = [](int) {}) {
  std::vector<Listener> listeners(size);
  std::vector<Endpoint> endpoints;
  for (const Listener& listener : listeners) endpoints.push_back({"127.0.0.1", listener.port()});
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const std::size_t index = rank;
      try {
        const auto transport = make_ordered_transport(
            make_tcp_transport(rank, std::move(listeners[index]), endpoints, test_options()),
            std::make_unique<PipeMaker>(pipes), "pipes", farewell);
        transport->set_deadline(std::chrono::milliseconds(60'000));
        body(*transport);
      } catch (...) {
        errors[index] = std::current_exception();
      }
      gone(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(Ordered, RingsSumOverAllRanks) {
  Pipes pipes;
  const auto begin = Clock::now();
  const auto errors = run_ranks(4, pipes, [](Transport& transport) {
    for (const std::size_t length : {0u, 1u, 5u, 100'000u}) {
      std::vector<double> data(length, transport.rank() + 1.0);
      all_reduce(transport, {{0, 1, 2, 3}, transport.rank()}, ElementType::f64, bytes_of(data),
                 {length, 0, 0});
      if (data != std::vector<double>(length, 10)) throw std::runtime_error("wrong sum");
    }
    if (transport.name() != "pipes" || transport.size() != 4) throw std::runtime_error("name");
  });
  EXPECT_EQ(first_error(errors), "");
  EXPECT_EQ(pipes.drawn, 1u);
  EXPECT_GT(pipes.shared_calls, 0) << "a ring's sends and receives share calls";
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30)) << "ranks leave without waiting";
}

TEST(Ordered, TagsComeInAnyOrderAndEmptyMessagesToo) {
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
    const LinkTraffic link = transport.traffic()[other];
    if (link.sent_bytes != 15'000 * 8 || link.messages_sent != 6) throw std::runtime_error("count");
  });
  EXPECT_EQ(first_error(errors), "");
}

TEST(Ordered, BothDirectionsOfAPairGoOnByThemselves) {
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

/// What rank `from` sends to rank `to` as number `i`.
std::vector<double> pattern(int from, int to, std::size_t i) {
  const std::size_t length = i % 4 == 0 ? 6'000 : 10 * i;  // Of several pieces, of one, empty.
  return std::vector<double>(i == 2 ? 0 : length,
                             100.0 * from + 10.0 * to + static_cast<double>(i));
}

TEST(Ordered, EightRanksExchangeWithAllOthersInBothDirectionsAtOnce) {
  constexpr int kRanks = 8;
  constexpr std::size_t kMessages = 6;
  Pipes pipes;
  const auto errors = run_ranks(kRanks, pipes, [](Transport& transport) {
    const int own = transport.rank();
    std::map<std::pair<int, std::size_t>, std::vector<double>> out, in;
    std::vector<RequestPointer> requests;
    // Each in another order, sends before receives: without one order of all they would be stuck.
    for (std::size_t k = 0; k < kMessages; ++k) {
      for (int step = 1; step < kRanks; ++step) {
        const int other = own % 2 == 0 ? (own + step) % kRanks : (own + kRanks - step) % kRanks;
        const std::size_t i = own % 3 == 0 ? kMessages - 1 - k : k;
        auto& data = out[{other, i}] = pattern(own, other, i);
        requests.push_back(transport.send(other, make_tag(1, i, 0), bytes_of(data)));
      }
    }
    for (int other = kRanks - 1; other >= 0; --other) {
      for (std::size_t i = 0; other != own && i < kMessages; ++i) {
        auto& data = in[{other, i}];
        data.resize(pattern(other, own, i).size());
        requests.push_back(transport.receive(other, make_tag(1, i, 0), bytes_of(data)));
      }
    }
    for (const RequestPointer& request : requests) request->wait();
    for (const auto& [key, data] : in) {
      if (data != pattern(key.first, own, key.second)) throw std::runtime_error("wrong payload");
    }
  });
  EXPECT_EQ(first_error(errors), "");
}

TEST(Ordered, RingsOfEightRanksBothWaysRoundGoOnBesideEachOther) {
  constexpr int kRanks = 8;
  Pipes pipes;
  const auto errors = run_ranks(kRanks, pipes, [](Transport& transport) {
    RingGroup ring{{0, 1, 2, 3, 4, 5, 6, 7}, transport.rank()};
    RingGroup back{{7, 6, 5, 4, 3, 2, 1, 0}, kRanks - 1 - transport.rank()};
    std::vector<double> first(50'001, transport.rank()), second(30'000, 1);
    std::exception_ptr error;
    std::thread other([&] {
      try {
        for (std::uint64_t step = 1; step <= 3; ++step) {
          all_reduce(transport, back, ElementType::f64, bytes_of(second), {step, 1, 0});
        }
      } catch (...) {
        error = std::current_exception();
      }
    });
    all_reduce(transport, ring, ElementType::f64, bytes_of(first), {1, 0, 0});
    other.join();
    if (error) std::rethrow_exception(error);
    if (first != std::vector<double>(50'001, 28)) throw std::runtime_error("wrong sum");
    if (second != std::vector<double>(30'000, 512)) throw std::runtime_error("wrong sum back");
  });
  EXPECT_EQ(first_error(errors), "");
}

TEST(Pipes, RanksThatBothSendFirstWaitForEachOther) {
  // The trap that the order avoids: this test's exchange has it, as NCCL has.
  Pipes pipes;
  PipeMaker maker(pipes);
  ExchangeLimits limits;
  const ExchangeId id = maker.draw_id();
  std::atomic<int> timeouts = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto exchange = maker.open(id, rank, 2, limits);
      limits.patience_ms = 200;
      std::vector<std::byte> data(10);
      try {
        exchange->pass({1 - rank, data}, {});
        exchange->pass({}, {1 - rank, data});
      } catch (const TransportError& error) {
        timeouts += error.kind() == TransportError::Kind::timeout;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(timeouts, 2);
}

TEST(Ordered, AShortMessagePassesALongOne) {
  Pipes pipes;
  pipes.piece_bytes = 64;
  std::atomic<bool> long_was_done = true;
  const auto errors = run_ranks(2, pipes, [&](Transport& transport) {
    std::vector<double> large(20'000, 1), small(4, 2);
    if (transport.rank() == 1) {
      const RequestPointer all = transport.receive(0, make_tag(0, 0, 0), bytes_of(large));
      transport.receive(0, make_tag(0, 1, 0), bytes_of(small))->wait();
      long_was_done = all->done();
      return all->wait();
    }
    const RequestPointer first = transport.send(1, make_tag(0, 0, 0), bytes_of(large));
    transport.send(1, make_tag(0, 1, 0), bytes_of(small))->wait();
    first->wait();
  });
  EXPECT_EQ(first_error(errors), "");
  EXPECT_FALSE(long_was_done);
}

TEST(Ordered, AReceiveThatNobodyServesEndsAtItsDeadline) {
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

TEST(Ordered, ABrokenExchangeEndsTheWaitsOfAllRanks) {
  Pipes pipes;
  const auto begin = Clock::now();
  std::atomic<int> failures = 0;
  run_ranks(3, pipes, [&](Transport& transport) {
    std::vector<double> data(1000, 1);
    try {
      all_reduce(transport, {{0, 1, 2}, transport.rank()}, ElementType::f64, bytes_of(data),
                 {0, 0, 0});
      if (transport.rank() == 0) {
        const std::lock_guard lock(pipes.mutex);
        pipes.broken = true;
      }
      for (std::uint64_t step = 1; step < 1000; ++step) {
        all_reduce(transport, {{0, 1, 2}, transport.rank()}, ElementType::f64, bytes_of(data),
                   {step, 0, 0});
      }
    } catch (const TransportError&) {
      ++failures;
    }
  });
  EXPECT_EQ(failures, 3);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
}

TEST(Ordered, AbortEndsTheWaitsOfAllRanks) {
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

TEST(Ordered, ARankMayLeaveWhileOthersGoOn) {
  Pipes pipes;
  const auto errors = run_ranks(3, pipes, [](Transport& transport) {
    std::vector<double> data(1000, 1);
    all_reduce(transport, {{0, 1, 2}, transport.rank()}, ElementType::f64, bytes_of(data),
               {0, 0, 0});
    if (transport.rank() == 2) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    all_reduce(transport, {{0, 1}, transport.rank()}, ElementType::f64, bytes_of(data), {1, 0, 0});
    if (data.front() != 6) throw std::runtime_error("wrong sum");
  });
  EXPECT_EQ(first_error(errors), "");
}

TEST(Ordered, AnExchangeThatARankIsGoneFromIsNotClosedByTheOthers) {
  Pipes pipes;
  std::promise<void> gone;
  std::shared_future<void> over = gone.get_future().share();
  // Rank 2 waits 50 ms for the others and gives its transport up; they go on by themselves.
  const auto body = [&](Transport& transport) {
    std::vector<double> data(1000, 1);
    all_reduce(transport, {{0, 1, 2}, transport.rank()}, ElementType::f64, bytes_of(data),
               {0, 0, 0});
    if (transport.rank() == 2) return;
    over.wait();
    all_reduce(transport, {{0, 1}, transport.rank()}, ElementType::f64, bytes_of(data), {1, 0, 0});
    if (data.front() != 6) throw std::runtime_error("wrong sum");
  };
  const auto errors = run_ranks(3, pipes, body, std::chrono::milliseconds(50), [&](int rank) {
    if (rank == 2) gone.set_value();
  });
  EXPECT_EQ(first_error(errors), "");
  EXPECT_EQ(pipes.worlds.begin()->second.closed, 0);
}

TEST(Ordered, WhoSendsToARankThatHasLeftIsTold) {
  Pipes pipes;
  std::promise<void> told;
  std::shared_future<void> over = told.get_future().share();
  const auto errors = run_ranks(3, pipes, [&](Transport& transport) {
    std::vector<double> data(10'000, 1);
    if (transport.rank() == 2) return;
    if (transport.rank() == 0) return over.wait();
    for (;;) {  // Until its leave is known here: then sends fail, and the rest goes on.
      try {
        transport.send(2, make_tag(0, 0, 0), bytes_of(data))->wait();
      } catch (const TransportError& error) {
        told.set_value();
        if (error.kind() != TransportError::Kind::peer_lost || error.peer() != 2) throw;
        return;
      }
    }
  });
  EXPECT_EQ(first_error(errors), "");
}

}  // namespace
}  // namespace orrery::executor::ordered_transport_test

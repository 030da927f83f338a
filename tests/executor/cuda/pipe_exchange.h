/// An exchange of executor/cuda/ordered_transport.h between threads of one process that behaves as
/// NCCL on one stream of each rank does where it can least: a piece passes only while both sides
/// are at it, nothing else goes on at the same time, the first piece of a connection holds up what
/// shares its call, opening and closing meet, and what one side does alone lasts until the limits
/// end it.
#pragma once
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "executor/cuda/ordered_transport.h"

namespace orrery::executor {

/// What one exchange has in common among its ranks.
struct PipeWorld {
  std::map<std::pair<int, int>, std::span<const std::byte>> offered;  ///< By sender and receiver.
  std::map<std::pair<int, int>, std::set<int>> connecting;            ///< Who has come, of the two.
  int opened = 0, closed = 0;
};

/// All exchanges of a test, by number.
struct Pipes {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint64_t, PipeWorld> worlds;
  std::uint64_t drawn = 0;
  std::size_t piece_bytes = 16 << 10;  ///< Small: messages have several pieces.
  std::int64_t pieces = 0;             ///< That have passed.
  std::int64_t shared_calls = 0;       ///< With a piece each way.
  bool broken = false;                 ///< All exchanges fail from now on.
};

class PipeExchange final : public PayloadExchange {
 public:
  PipeExchange(PipeWorld& world, Pipes& pipes, int rank, int size, const ExchangeLimits& limits)
      : world_(world), pipes_(pipes), rank_(rank), size_(size), limits_(limits) {
    meet(&PipeWorld::opened);
  }

  void pass(const Out& out, const In& in) override {
    std::unique_lock lock(pipes_.mutex);
    const std::pair there{rank_, out.to}, here{in.from, rank_};
    for (const auto& pair : {there, here}) {
      if (pair.first >= 0 && pair.second >= 0) connect(lock, pair);
    }
    if (out.to >= 0) world_.offered[there] = out.data;
    pipes_.changed.notify_all();
    bool sent = out.to < 0, received = in.from < 0;
    if (!sent && !received) ++pipes_.shared_calls;
    wait(lock, [&] {
      if (!received && world_.offered.contains(here)) {
        const std::span<const std::byte> data = world_.offered[here];
        if (data.size() != in.into.size()) throw std::runtime_error("another size");
        std::memcpy(in.into.data(), data.data(), data.size());
        world_.offered.erase(here);
        ++pipes_.pieces;
        received = true;
        pipes_.changed.notify_all();
      }
      sent = sent || !world_.offered.contains(there);
      return sent && received;
    });
  }

  void close() override { meet(&PipeWorld::closed); }

 private:
  void connect(std::unique_lock<std::mutex>& lock, const std::pair<int, int>& pair) {
    std::set<int>& come = world_.connecting[pair];
    come.insert(rank_);
    pipes_.changed.notify_all();
    wait(lock, [&] { return come.size() == 2; });
  }

  void meet(int PipeWorld::*count) {
    std::unique_lock lock(pipes_.mutex);
    ++(world_.*count);
    pipes_.changed.notify_all();
    wait(lock, [&] { return world_.*count == size_; });
  }

  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    using Kind = TransportError::Kind;
    const auto begin = std::chrono::steady_clock::now();
    while (!condition()) {
      if (pipes_.broken) throw TransportError(Kind::local, -1, "the pipe broke");
      if (limits_.stop) throw TransportError(Kind::peer_lost, -1, "the transport has ended");
      const std::chrono::milliseconds patience(limits_.patience_ms.load());
      if (std::chrono::steady_clock::now() - begin > patience) {
        throw TransportError(Kind::timeout, -1, "the pipe took too long");
      }
      pipes_.changed.wait_for(lock, std::chrono::milliseconds(5));
    }
  }

  PipeWorld& world_;
  Pipes& pipes_;
  int rank_;
  int size_;
  const ExchangeLimits& limits_;
};

class PipeMaker final : public ExchangeMaker {
 public:
  explicit PipeMaker(Pipes& pipes) : pipes_(pipes) {}
  ExchangeId draw_id() override {
    const std::lock_guard lock(pipes_.mutex);
    ++pipes_.drawn;
    ExchangeId id{};
    std::memcpy(id.data(), &pipes_.drawn, sizeof pipes_.drawn);
    return id;
  }
  std::size_t piece_bytes() const override { return pipes_.piece_bytes; }
  std::unique_ptr<PayloadExchange> open(const ExchangeId& id, int rank, int size,
                                        const ExchangeLimits& limits) override {
    std::uint64_t number = 0;
    std::memcpy(&number, id.data(), sizeof number);
    PipeWorld* world = nullptr;
    {
      const std::lock_guard lock(pipes_.mutex);
      world = &pipes_.worlds[number];
    }
    return std::make_unique<PipeExchange>(*world, pipes_, rank, size, limits);
  }

 private:
  Pipes& pipes_;
};

}  // namespace orrery::executor

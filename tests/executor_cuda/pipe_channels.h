/// Channels of executor/cuda/announced_transport.h between threads of one process that behave as
/// NCCL does: a send ends when the other side has taken it, opening and closing meet, and what one
/// side does alone lasts until the limits end it.
#pragma once
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "executor/cuda/announced_transport.h"

namespace orrery::executor {

struct Pipe {
  std::mutex mutex;
  int opened = 0, closed = 0;
  std::span<const std::byte> offered;  ///< Null data: nothing.
  std::size_t taken = 0;
};

/// All pipes of a test, by number.
struct Pipes {
  std::mutex mutex;
  std::map<std::uint64_t, std::shared_ptr<Pipe>> all;
  std::uint64_t drawn = 0;
  bool broken = false;  ///< All channels fail from now on.
};

class PipeChannel final : public PayloadChannel {
 public:
  PipeChannel(std::shared_ptr<Pipe> pipe, Pipes& pipes, int peer, const ChannelLimits& limits)
      : pipe_(std::move(pipe)), pipes_(pipes), peer_(peer), limits_(limits) {
    meet(&Pipe::opened);
  }
  void send(std::span<const std::byte> data) override {
    {
      const std::lock_guard lock(pipe_->mutex);
      pipe_->offered = data;
      pipe_->taken = 0;
    }
    wait([&] { return pipe_->taken == data.size(); });
  }
  void receive(std::span<std::byte> into) override {
    wait([&] { return pipe_->offered.data() != nullptr; });
    const std::lock_guard lock(pipe_->mutex);
    if (pipe_->offered.size() != into.size()) throw std::runtime_error("another size");
    std::memcpy(into.data(), pipe_->offered.data(), into.size());
    pipe_->offered = {};
    pipe_->taken = into.size();
  }
  void close() override { meet(&Pipe::closed); }

 private:
  void meet(int Pipe::*count) {
    {
      const std::lock_guard lock(pipe_->mutex);
      ++((*pipe_).*count);
    }
    wait([&] { return (*pipe_).*count == 2; });
  }
  template <class Condition>
  void wait(const Condition& condition) {
    using Kind = TransportError::Kind;
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
      {
        const std::lock_guard lock(pipe_->mutex);
        if (condition()) return;
      }
      {
        const std::lock_guard lock(pipes_.mutex);
        if (pipes_.broken) throw TransportError(Kind::local, peer_, "the pipe broke");
      }
      if (limits_.stop) throw TransportError(Kind::peer_lost, peer_, "the transport has ended");
      const std::chrono::milliseconds patience(limits_.patience_ms.load());
      if (std::chrono::steady_clock::now() - begin > patience) {
        throw TransportError(Kind::timeout, peer_, "the pipe took too long");
      }
      std::this_thread::sleep_for(std::chrono::microseconds(10));
    }
  }

  std::shared_ptr<Pipe> pipe_;
  Pipes& pipes_;
  int peer_;
  const ChannelLimits& limits_;
};

class PipeMaker final : public ChannelMaker {
 public:
  explicit PipeMaker(Pipes& pipes) : pipes_(pipes) {}
  ChannelId draw_id() override {
    const std::lock_guard lock(pipes_.mutex);
    ++pipes_.drawn;
    ChannelId id{};
    std::memcpy(id.data(), &pipes_.drawn, sizeof pipes_.drawn);
    return id;
  }
  std::unique_ptr<PayloadChannel> open(const ChannelId& id, int peer, bool,
                                       const ChannelLimits& limits) override {
    std::uint64_t number = 0;
    std::memcpy(&number, id.data(), sizeof number);
    std::shared_ptr<Pipe> pipe;
    {
      const std::lock_guard lock(pipes_.mutex);
      auto& entry = pipes_.all[number];
      if (!entry) entry = std::make_shared<Pipe>();
      pipe = entry;
    }
    return std::make_unique<PipeChannel>(pipe, pipes_, peer, limits);
  }

 private:
  Pipes& pipes_;
};

}  // namespace orrery::executor

#include "executor/launcher/thread_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <stdexcept>

#include "executor/engine/worker.h"
#include "executor/launcher/reports.h"
#include "executor/launcher/tokens.h"
#include "executor/net/clock.h"
#include "executor/net/handshake.h"
#include "executor/net/tcp_transport.h"

namespace orrery::executor {
namespace {

using Kind = MemberStatus::Kind;

TransportError run_has_ended() {
  return {TransportError::Kind::peer_lost, -1, "the run has ended"};
}

/// One rank, on its own thread.
class ThreadRank {
 public:
  ThreadRank(std::shared_ptr<ThreadBoard> board, int rank)
      : board_(std::move(board)),
        rank_(rank),
        device_(board_->program.ranks[static_cast<std::size_t>(rank)].device) {}

  void run() {
    try {
      train();
    } catch (const TransportError& error) {
      status_.kind = board_->stopped() ? Kind::stopped : Kind::lost;
      status_.message = error.what();
    } catch (const std::bad_alloc&) {
      status_.kind = Kind::error;
      status_.message = "out of memory";
    } catch (const std::exception& error) {
      status_.kind = Kind::error;
      status_.message = error.what();
    }
    status_.at_ns = now_ns();
    board_->post(fmt::format("status/{:06d}", rank_), to_text(status_));
    board_->end(rank_);
  }

 private:
  /// Shows the board a transport, and keeps its traffic when it goes.
  struct Attached {
    ThreadBoard& board;
    Transport& transport;
    MemberStatus& status;
    Attached(ThreadBoard& the_board, Transport& the_transport, MemberStatus& the_status)
        : board(the_board), transport(the_transport), status(the_status) {
      board.attach(transport.rank(), &transport);
    }
    ~Attached() {
      board.attach(transport.rank(), nullptr);
      status.traffic = transport.traffic();
    }
    Attached(const Attached&) = delete;
    Attached& operator=(const Attached&) = delete;
  };

  void event(const std::string& kind, const std::string& detail) {
    board_->post(fmt::format("event/{:06d}/{:06d}", rank_, events_++),
                 fmt::format("{} {} {}", now_ns(), kind, detail));
  }

  void train() {
    const RunSettings& s = board_->settings;
    const std::unique_ptr<Backend> backend = board_->ranks.backend
                                                 ? board_->ranks.backend(rank_, device_)
                                                 : make_backend(s, device_.value);
    const std::unique_ptr<TokenSource> tokens = make_tokens(s, board_->program.header);
    board_->arrive();
    const std::unique_ptr<Transport> transport =
        make_tcp_transport(rank_, std::move(board_->listeners[static_cast<std::size_t>(rank_)]),
                           board_->endpoints, s.transport_options(board_->token, 0));
    event("mesh", transport->name());
    // All threads read the same clock: nothing is to be estimated.
    board_->post(fmt::format("clock/{:06d}", rank_), fmt::format("0 0 {} {}", now_ns(), boot_id()));
    const Attached attached(*board_, *transport, status_);
    WorkerOptions options;
    options.adam.learning_rate = s.learning_rate;
    const auto slow = s.slowdowns.find(device_.value);
    if (slow != s.slowdowns.end()) options.slowdown = slow->second;
    options.before_op = [this](OpId op) { before_op(op); };
    Worker worker(board_->program, *backend, *transport, *tokens, options);
    worker.shard().initialize();
    run_steps(worker);
  }

  void before_op(OpId op) {
    board_->ops.fetch_add(1, std::memory_order_relaxed);
    if (board_->stopped()) {
      throw run_has_ended();
    }
    if (board_->ranks.before_op) board_->ranks.before_op(rank_, op);
  }

  void run_steps(Worker& worker) {
    const RunSettings& s = board_->settings;
    std::int64_t compute_ops = 0;
    std::int64_t disturbed_ops = 0;
    for (std::int64_t step = 1; step <= s.steps; ++step) {
      StepResult result = worker.step(step);
      compute_ops += result.compute_ops;
      disturbed_ops += result.disturbed_ops;
      status_.last_step = step;
      StepReport report{
          step, result.start_ns, result.end_ns, result.peak_bytes, std::move(result.losses), {},
          {}};
      if (step <= s.log_steps) {
        report.spans = std::move(result.spans);
        report.memory = std::move(result.memory);
      }
      board_->post(fmt::format("step/{:012d}/{:06d}", step, rank_), to_text(report));
    }
    event("disturbed",
          fmt::format("{} of {} compute ops ran over their time", disturbed_ops, compute_ops));
  }

  std::shared_ptr<ThreadBoard> board_;
  int rank_;
  DeviceId device_;
  MemberStatus status_;
  int events_ = 0;
};

}  // namespace

ThreadBoard::ThreadBoard(ir::Program the_program, RunSettings the_settings, ThreadRanks the_ranks)
    : program(std::move(the_program)),
      settings(std::move(the_settings)),
      ranks(std::move(the_ranks)),
      token(make_token()),
      listeners(program.ranks.size()),
      transports_(program.ranks.size(), nullptr),
      ended_(program.ranks.size(), false) {
  for (const Listener& listener : listeners) endpoints.push_back({"127.0.0.1", listener.port()});
}

void ThreadBoard::post(std::string key, std::string value) {
  {
    const std::lock_guard lock(mutex_);
    messages_.emplace_back(std::move(key), std::move(value));
  }
  changed_.notify_all();
}

void ThreadBoard::stop(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (Transport* transport : transports_) {
      if (transport != nullptr) transport->abort(why);
    }
  }
  changed_.notify_all();
}

void ThreadBoard::attach(int rank, Transport* transport) {
  const std::lock_guard lock(mutex_);
  transports_[static_cast<std::size_t>(rank)] = transport;
  if (transport != nullptr && stopped_) transport->abort(run_has_ended().what());
}

void ThreadBoard::arrive() {
  std::unique_lock lock(mutex_);
  ++arrived_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return stopped_ || arrived_ == program.ranks.size(); });
  if (stopped_) throw run_has_ended();
}

void ThreadBoard::end(int rank) {
  {
    const std::lock_guard lock(mutex_);
    ended_[static_cast<std::size_t>(rank)] = true;
  }
  changed_.notify_all();
}

std::vector<int> ThreadBoard::running() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> out;
  for (std::size_t r = 0; r < ended_.size(); ++r) {
    if (!ended_[r]) out.push_back(static_cast<int>(r));
  }
  return out;
}

std::deque<ThreadBoard::Message> ThreadBoard::take(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return !messages_.empty() || all_ended(); });
  return std::exchange(messages_, {});
}

bool ThreadBoard::all_ended() const {
  return std::all_of(ended_.begin(), ended_.end(), [](bool ended) { return ended; });
}

void run_thread_rank(std::shared_ptr<ThreadBoard> board, int rank) {
  ThreadRank(std::move(board), rank).run();
}

}  // namespace orrery::executor

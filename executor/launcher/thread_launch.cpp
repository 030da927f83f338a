#include "executor/launcher/thread_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/launcher/generation_record.h"
#include "executor/launcher/reports.h"
#include "executor/launcher/run_files.h"
#include "executor/launcher/thread_rank.h"
#include "executor/net/clock.h"
#include "models/base/check.h"

namespace orrery::executor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Kind = MemberStatus::Kind;

/// Between looks at an interrupt and at what hangs; reports are taken as they come.
constexpr milliseconds kInterruptLook{100};
/// Until it is said for which ranks the end of the run waits.
constexpr milliseconds kStuckWord{8'000};
constexpr const char* kNode = "local";

class ThreadLaunch {
 public:
  ThreadLaunch(LaunchOptions options, ThreadRanks ranks)
      : o_(std::move(options)),
        origin_ns_(now_ns()),
        board_(std::make_shared<ThreadBoard>(std::move(o_.first.program), o_.settings,
                                             std::move(ranks))),
        record_(board_->program, 0, devices(), origin_ns_) {}

  /// A thread that does not end is left behind.
  ~ThreadLaunch() {
    board_->stop("the run has ended");
    const auto limit = Clock::now() + patience();
    while (!gave_up_ && !left().empty() && Clock::now() < limit) board_->take(kInterruptLook);
    for (const int rank : left()) threads_[static_cast<std::size_t>(rank)].detach();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  ThreadLaunch(const ThreadLaunch&) = delete;
  ThreadLaunch& operator=(const ThreadLaunch&) = delete;

  LaunchReport run() {
    if (!o_.out.empty()) losses_ = std::make_unique<LossFile>(o_.out);
    for (int r = 0; r < record_.ranks(); ++r) {
      threads_.emplace_back(run_thread_rank, board_, r);
    }
    supervise();
    conclude();
    GenerationSummary summary = record_.summary();
    summary.what = o_.first.what;
    report_.generations.push_back(std::move(summary));
    if (!o_.out.empty()) {
      write_generation(
          o_.out, board_->program, record_.log(), [](DeviceId) { return 0; },
          [](int) { return std::string(kNode); });
    }
    return std::move(report_);
  }

 private:
  std::vector<std::int32_t> devices() const {
    std::vector<std::int32_t> out;
    for (const ir::Rank& rank : board_->program.ranks) out.push_back(rank.device.value);
    return out;
  }
  /// For ranks to end when the run has.
  milliseconds patience() const { return o_.settings.deadline + o_.settings.connect; }
  /// Ranks whose thread runs.
  std::vector<int> left() const {
    std::vector<int> out = board_->running();
    std::erase_if(out, [&](int rank) { return rank >= static_cast<int>(threads_.size()); });
    return out;
  }
  bool interrupted() const { return o_.interrupted != nullptr && *o_.interrupted; }
  void say(const std::string& line) const {
    if (o_.on_message) o_.on_message(line);
  }
  std::string names(const std::vector<int>& ranks) const {
    std::string text;
    for (const int rank : ranks) {
      text += fmt::format("{}device {}", text.empty() ? "" : ", ",
                          record_.members()[static_cast<std::size_t>(rank)]);
    }
    return text;
  }

  void collect(milliseconds limit) {
    for (const auto& [key, value] : board_->take(limit)) record_.take(key, value);
    for (const StepLine& line : record_.take_finished()) {
      report_.steps.push_back(line);
      if (losses_) losses_->add(line);
      if (o_.on_step) o_.on_step(line);
    }
  }

  bool failed() const {
    for (int r = 0; r < record_.ranks(); ++r) {
      const auto& status = record_.status(r);
      if (status && status->kind != Kind::done) return true;
    }
    return false;
  }

  /// Returns when all ranks have ended, or will not.
  void supervise() {
    std::optional<Clock::time_point> ending;
    const auto end = [&](const std::string& why) {
      if (ending) return;
      ending = Clock::now();
      board_->stop(why);
    };
    std::int64_t ops = 0;
    bool said = false;
    for (Clock::time_point moved = Clock::now();;) {
      const bool all = board_->running().empty();
      collect(all ? milliseconds(0) : kInterruptLook);
      if (all) return;
      if (interrupted()) end("the run is interrupted");
      if (failed()) end("another rank has failed");
      const auto now = Clock::now();
      if (const std::int64_t begun = board_->ops; begun != ops) {
        ops = begun;
        moved = now;
      } else if (!ending && now - moved > board_->ranks.stall) {
        stalled_ = true;
        end("no op has begun for too long");
      }
      if (!ending) continue;
      if (!said && now - *ending > kStuckWord) {
        say(fmt::format("waiting for {} to end an op", names(board_->running())));
        said = true;
      }
      gave_up_ = now - *ending > patience();
      if (gave_up_) return;
    }
  }

  void conclude() {
    std::string error;
    std::string lost;
    const auto add = [](std::string& text, const std::string& what) {
      text += (text.empty() ? "" : "; ") + what;
    };
    if (stalled_) {
      add(error, fmt::format("no op has begun for {:.3g} s",
                             std::chrono::duration<double>(board_->ranks.stall).count()));
    }
    for (int r = 0; r < record_.ranks(); ++r) {
      const auto& status = record_.status(r);
      if (!status) {
        add(error, fmt::format("{}: does not answer", names({r})));
      } else if (status->kind == Kind::error || status->kind == Kind::lost) {
        // What others say follows from a rank's own error.
        add(status->kind == Kind::error ? error : lost,
            fmt::format("{}: {}", names({r}), status->message));
      }
    }
    if (error.empty() && lost.empty() && !failed()) {
      report_.result = LaunchReport::Result::completed;
    } else if (interrupted()) {
      report_.result = LaunchReport::Result::interrupted;
      report_.problem = "interrupted";
      if (!error.empty()) say(error);
    } else {
      report_.result = LaunchReport::Result::failed;
      report_.problem =
          fmt::format("after step {}: {}", record_.last_step(0), error.empty() ? lost : error);
    }
  }

  LaunchOptions o_;
  std::int64_t origin_ns_;
  std::shared_ptr<ThreadBoard> board_;
  GenerationRecord record_;
  std::unique_ptr<LossFile> losses_;
  std::vector<std::thread> threads_;
  bool stalled_ = false;
  bool gave_up_ = false;  ///< Some thread does not end.
  LaunchReport report_;
};

}  // namespace

LaunchReport launch_on_threads(LaunchOptions options, ThreadRanks ranks) {
  const RunSettings& s = options.settings;
  ORRERY_CHECK(s.faults.empty() && s.checkpoint_every == 0 && !s.elastic && s.transport == "tcp",
               "settings that ranks as threads cannot have");
  ORRERY_CHECK(options.hosts.empty() && options.switches.empty(),
               "ranks as threads are on one machine and have one plan");
  return ThreadLaunch(std::move(options), std::move(ranks)).run();
}

}  // namespace orrery::executor

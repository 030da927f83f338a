#include "executor/bench/session.h"

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <thread>
#include <utility>

#include "executor/launcher/agent_spawner.h"
#include "executor/net/message.h"
#include "models/ir/wire.h"

namespace orrery::executor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kJoinWait{100};
/// Between looks at processes and new samples.
constexpr milliseconds kLook{20};

}  // namespace

class BenchSession::Impl {
 public:
  explicit Impl(BenchSessionOptions options)
      : o_(std::move(options)), store_(o_), client_(store_.client()), spawner_(store_, o_) {
    publish();
    try {
      const auto problem = spawner_.prepare();
      if (problem) throw std::runtime_error(problem->what);
      start_ranks();
    } catch (...) {
      end_cases();
      throw;
    }
  }

  ~Impl() { end_cases(); }

  void run(const BenchCase& one, const std::vector<ir::Measurement>& before,
           const std::function<void(const ir::Measurement&)>& sample) {
    const std::int64_t n = next_case_++;
    client_.set(fmt::format("bench/case/{}", n), to_message(BenchOrder{one, before}));
    const std::string prefix = fmt::format("bench/out/{}/", n);
    const std::string done = fmt::format("bench/done/{}", n);
    for (bool ended = false; !ended;) {
      ended = client_.get(done, kLook).has_value();
      for (const auto& [key, text] : client_.list(prefix)) {
        sample(from_message<BenchSample>(text, key).sample);
        client_.remove(key);
      }
      if (!ended) look();
    }
    client_.remove(done);
  }

 private:
  void publish() {
    std::string members;
    for (const DeviceId device : o_.devices) members += fmt::format("{} ", device.value);
    ir::Program program;
    program.header = bench_header(o_.model, o_.model.shape.layers);
    client_.set("rank", kBenchRankCommand);
    client_.set("bench/members", members);
    client_.set("bench/program", ir::serialize(program));
    client_.set("bench/rule", to_message(o_.rule));
  }

  void start_ranks() {
    look();  // The preparation ends at an interrupt, too.
    for (const DeviceId device : o_.devices) spawner_.start(device.value, 0);
    const auto deadline = Clock::now() + o_.settings.connect;
    for (const DeviceId device : o_.devices) {
      while (!client_.get(fmt::format("bench/joined/{}", device.value), kJoinWait)) {
        look();
        if (Clock::now() > deadline) {
          throw std::runtime_error(fmt::format("device {} did not join", device.value));
        }
      }
    }
  }

  /// Throws where going on makes no sense.
  void look() {
    if (o_.is_interrupted()) throw BenchInterrupted();
    if (const std::string ended = spawner_.find_ended_agent(); !ended.empty()) {
      throw std::runtime_error(ended);
    }
    std::string problem;
    for (const auto& [key, text] : client_.list("bench/error/")) {
      problem += fmt::format("{}device {}: {}", problem.empty() ? "" : "; ",
                             key.substr(std::string("bench/error/").size()), text);
    }
    for (const auto& [device, how] : spawner_.take_ended()) {
      if (problem.empty()) problem = fmt::format("device {}: {}", device, how);
    }
    if (!problem.empty()) throw std::runtime_error(problem);
  }

  /// The spawner ends the processes.
  void end_cases() {
    try {
      client_.set(fmt::format("bench/case/{}", next_case_), "end");
    } catch (const TransportError&) {
      // The store has failed: agents notice that and end their ranks.
    }
  }

  BenchSessionOptions o_;
  RunStore store_;
  StoreClient& client_;
  AgentSpawner spawner_;
  std::int64_t next_case_ = 0;
};

BenchSession::BenchSession(BenchSessionOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
BenchSession::~BenchSession() = default;

void BenchSession::run(const BenchCase& one, const std::vector<ir::Measurement>& before,
                       const std::function<void(const ir::Measurement&)>& sample) {
  impl_->run(one, before, sample);
}

}  // namespace orrery::executor

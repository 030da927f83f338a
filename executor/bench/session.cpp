#include "executor/bench/session.h"

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <thread>
#include <utility>

#include "executor/launcher/agent.h"
#include "executor/launcher/process_table.h"
#include "executor/launcher/remote_agents.h"
#include "executor/net/handshake.h"
#include "executor/net/store.h"
#include "models/ir/wire.h"

namespace orrery::executor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAgentWait{100};
/// Between looks at processes and new samples.
constexpr milliseconds kLook{20};
/// For processes to end after the stop was ordered.
constexpr milliseconds kEnd{8'000};

}  // namespace

class BenchSession::Impl {
 public:
  explicit Impl(BenchSessionOptions options)
      : o_(std::move(options)),
        token_(make_token()),
        server_(Listener(address(), o_.port), token_),
        client_({own_address(), server_.port()}, token_),
        processes_(client_, o_.hosts, o_.settings) {
    if (o_.settings.run.empty()) o_.settings.run = make_token().substr(0, 16);
    if (o_.executable.empty()) o_.executable = own_executable();
    publish();
    try {
      start_agents();
      start_ranks();
    } catch (...) {
      end();
      throw;
    }
  }

  ~Impl() { end(); }

  void run(const BenchCase& one, const std::vector<ir::Measurement>& before,
           const std::function<void(const ir::Measurement&)>& sample) {
    const std::int64_t n = next_case_++;
    client_.set(fmt::format("bench/case/{}", n), to_text(BenchOrder{one, before}));
    const std::string prefix = fmt::format("bench/out/{}/", n);
    const std::string done = fmt::format("bench/done/{}", n);
    for (bool ended = false; !ended;) {
      ended = client_.get(done, kLook).has_value();
      for (const auto& [key, text] : client_.list(prefix)) {
        sample(measurement_from(text));
        client_.remove(key);
      }
      if (!ended) look();
    }
    client_.remove(done);
  }

 private:
  std::string address() const {
    if (!o_.listen.empty()) return o_.listen;
    return o_.hosts.empty() ? "" : "0.0.0.0";
  }
  std::string own_address() const {
    const std::string listens = address();
    return listens.empty() || listens == "0.0.0.0" ? "127.0.0.1" : listens;
  }
  std::string advertised_address() const {
    if (!o_.advertise.empty()) return o_.advertise;
    return o_.listen.empty() || o_.listen == "0.0.0.0" ? own_host_name() : o_.listen;
  }
  void say(const std::string& line) const {
    if (o_.on_message) o_.on_message(line);
  }

  void publish() {
    std::string nodes;
    for (const std::string& node : processes_.nodes()) nodes += node + "\n";
    std::string members;
    for (const DeviceId device : o_.devices) members += fmt::format("{} ", device.value);
    ir::Program program;
    program.header = bench_header(o_.model, o_.model.shape.layers);
    client_.set("settings", to_text(o_.settings));
    client_.set("nodes", nodes);
    client_.set("rank", kBenchRankCommand);
    client_.set("bench/members", members);
    client_.set("bench/program", ir::serialize(program));
    client_.set("bench/rule", to_text(o_.rule));
  }

  void start_agents() {
    if (o_.hosts.empty()) {
      AgentOptions agent;
      agent.store = {own_address(), server_.port()};
      agent.token = token_;
      agent.node = processes_.nodes().front();
      agent.executable = o_.executable;
      agent.arguments = {kBenchRankCommand};
      agent_ = std::thread([this, agent] {
        try {
          run_agent(agent);
        } catch (const std::exception& error) {
          say(fmt::format("this machine's agent ended: {}", error.what()));
        }
      });
    } else {
      remote_ = std::make_unique<RemoteAgents>(
          o_.hosts, Endpoint{advertised_address(), server_.port()}, o_.executable, token_, o_.ssh,
          [this](const std::string& line) { say(line); });
    }
    const bool started = remote_ == nullptr || remote_->all_started();
    const auto deadline = Clock::now() + (started ? o_.started_wait : o_.agents_wait);
    for (const std::string& node : processes_.nodes()) {
      while (!client_.get("node/" + node, kAgentWait)) {
        look();
        if (Clock::now() > deadline) {
          throw std::runtime_error(fmt::format("no agent came from {}", node));
        }
      }
      if (const auto lacking = client_.get("refuse/" + node, milliseconds(0))) {
        throw std::runtime_error(fmt::format("{}: {}", node, *lacking));
      }
    }
  }

  void start_ranks() {
    for (const DeviceId device : o_.devices) processes_.start(device.value, 0);
    const auto deadline = Clock::now() + o_.settings.connect;
    for (const DeviceId device : o_.devices) {
      while (!client_.get(fmt::format("bench/joined/{}", device.value), kAgentWait)) {
        look();
        if (Clock::now() > deadline) {
          throw std::runtime_error(fmt::format("device {} did not join", device.value));
        }
      }
    }
  }

  /// Throws where going on makes no sense.
  void look() {
    if (o_.interrupted != nullptr && *o_.interrupted) throw BenchInterrupted();
    if (remote_ != nullptr) {
      for (const auto& [host, how] : remote_->take_ended()) {
        throw std::runtime_error(fmt::format("the agent of {} {}", host, how));
      }
    }
    std::string problem;
    for (const auto& [key, text] : client_.list("bench/error/")) {
      problem += fmt::format("{}device {}: {}", problem.empty() ? "" : "; ",
                             key.substr(std::string("bench/error/").size()), text);
    }
    for (const auto& [device, how] : processes_.take_exits()) {
      if (problem.empty()) problem = fmt::format("device {}: {}", device, how);
    }
    for (const std::int32_t device : processes_.silent()) {
      if (problem.empty()) problem = fmt::format("device {}: silent", device);
      processes_.kill(device);
    }
    if (!problem.empty()) throw std::runtime_error(problem);
  }

  void end() {
    try {
      client_.set(fmt::format("bench/case/{}", next_case_), "end");
      processes_.end(kEnd);
    } catch (const TransportError&) {
      // The store has failed: agents notice that and end their ranks.
    }
    if (agent_.joinable()) agent_.join();
  }

  BenchSessionOptions o_;
  std::string token_;
  StoreServer server_;
  StoreClient client_;
  ProcessTable processes_;
  std::thread agent_;
  std::unique_ptr<RemoteAgents> remote_;
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

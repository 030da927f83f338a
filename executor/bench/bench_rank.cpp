#include "executor/bench/bench_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <variant>

#include "executor/bench/compute_bench.h"
#include "executor/bench/network_bench.h"
#include "executor/bench/storage_bench.h"
#include "executor/launcher/rank.h"
#include "executor/launcher/settings.h"
#include "executor/net/message.h"
#include "executor/net/tcp_transport.h"
#include "models/ir/wire.h"

namespace orrery::executor {
namespace {

using std::chrono::milliseconds;

/// How long one question to the store waits before the process looks around again.
constexpr milliseconds kCaseWait{500};

class BenchRank {
 public:
  explicit BenchRank(const RankEnvironment& environment)
      : environment_(environment),
        store_(environment.store, environment.token),
        settings_(from_message<RunSettings>(need("settings"), "settings")),
        commands_(environment, settings_.heartbeat, CommandListener::WhenLost::exit) {
    rule_ = from_message<SamplingRule>(need("bench/rule"), "bench/rule");
    const auto program = ir::parse_program(need("bench/program"));
    if (const auto* problem = std::get_if<std::string>(&program)) {
      throw std::runtime_error("the program " + *problem);
    }
    const ir::ProgramHeader& header = std::get<ir::Program>(program).header;
    model_.shape = header.model;
    model_.sequence_length = header.sequence_length;
    model_.dtype = header.dtype;
  }

  void serve() {
    join();
    for (std::uint64_t n = 0;; ++n) {
      const std::string key = fmt::format("bench/case/{}", n);
      const auto text = wait_for(key);
      if (!text || *text == "end") break;
      const auto order = from_message<BenchOrder>(*text, key);
      const auto& devices = order.what.devices;
      const DeviceId me{environment_.device};
      if (std::find(devices.begin(), devices.end(), me) == devices.end()) continue;
      run(order, n);
      if (devices.front() == me) store_.set(fmt::format("bench/done/{}", n), "1");
    }
    commands_.attach(nullptr, -1);
    transport_.reset();
  }

  bool stopped() const { return commands_.stopped(); }

  void report(const std::string& problem) {
    store_.set(fmt::format("bench/error/{}", environment_.device), problem);
  }

 private:
  std::string need(const std::string& key) {
    auto value = store_.get(key, milliseconds(20'000));
    if (!value) throw std::runtime_error(fmt::format("the driver gave no {}", key));
    return std::move(*value);
  }

  /// None after an order to stop.
  std::optional<std::string> wait_for(const std::string& key) {
    while (!commands_.stopped()) {
      if (auto value = store_.get(key, kCaseWait)) return value;
    }
    return std::nullopt;
  }

  void join() {
    std::vector<DeviceId> members;
    std::istringstream words(need("bench/members"));
    for (DeviceId device; words >> device.value;) {
      ranks_[device] = static_cast<int>(members.size());
      members.push_back(device);
    }
    Listener listener(environment_.address);
    store_.set(fmt::format("bench/endpoint/{}", environment_.device),
               fmt::format("{}:{}", environment_.address, listener.port()));
    std::vector<Endpoint> endpoints;
    for (const DeviceId device : members) {
      const auto text = wait_for(fmt::format("bench/endpoint/{}", device.value));
      if (!text) return;
      endpoints.push_back(endpoint_from(*text));
    }
    transport_ = make_tcp_transport(ranks_.at(DeviceId{environment_.device}), std::move(listener),
                                    endpoints, settings_.transport_options(environment_.token, 0));
    commands_.attach(transport_.get(), 0);
    store_.set(fmt::format("bench/joined/{}", environment_.device), "1");
  }

  void run(const BenchOrder& order, std::uint64_t n) {
    int count = 0;
    BenchSink sink;
    sink.sample = [&](const ir::Measurement& sample) {
      store_.set(fmt::format("bench/out/{}/{:06d}", n, count++), to_message(BenchSample{sample}));
    };
    sink.check = [&] {
      if (commands_.stopped()) throw BenchInterrupted();
    };
    try {
      dispatch(order, n, sink);
    } catch (const BenchInterrupted&) {
      // The next question to the store ends the loop.
    }
  }

  void dispatch(const BenchOrder& order, std::uint64_t n, const BenchSink& sink) {
    using enum ir::MeasurementKind;
    switch (order.what.key.kind) {
      case point_to_point:
      case collective:
        return time_transfer(order.what, n, *transport_, ranks_, rule_, order.before, sink);
      case checkpoint_write:
      case checkpoint_read: {
        const bool cloud = order.what.key.location == ir::Location::cloud;
        return time_checkpoint(order.what,
                               cloud ? settings_.cloud_checkpoints : settings_.local_checkpoints,
                               rule_, order.before, system_bench_clock(), sink);
      }
      default:
        break;
    }
    if (!compute_) {
      backend_ = make_backend(settings_, environment_.device);
      compute_ = std::make_unique<ComputeBench>(*backend_, model_, system_bench_clock());
    }
    compute_->run(order.what, rule_, order.before, sink);
  }

  RankEnvironment environment_;
  StoreClient store_;
  RunSettings settings_;
  CommandListener commands_;
  SamplingRule rule_;
  BenchModel model_;
  RankOfDevice ranks_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ComputeBench> compute_;
};

int serve(const RankEnvironment& environment) {
  BenchRank rank(environment);
  try {
    rank.serve();
    return 0;
  } catch (const std::bad_alloc&) {
    rank.report("out of memory");
  } catch (const std::exception& error) {
    if (rank.stopped()) return 0;
    rank.report(error.what());
    fmt::print(stderr, "orrery: device {}: {}\n", environment.device, error.what());
  }
  return 1;
}

}  // namespace

void describe(config::Visitor& v, BenchOrder& order) {
  v.required("what", order.what, "is measured");
  describe_field(v, "before", order.before, "samples that exist");
}

void describe(config::Visitor& v, BenchSample& one) {
  describe_field(v, "sample", one.sample, "new");
}

int run_bench_rank_process() {
  RankEnvironment environment;
  try {
    environment = read_rank_environment();
  } catch (const std::exception& error) {
    fmt::print(stderr, "orrery: a rank is started by `orrery calibrate`: {}\n", error.what());
    return 2;
  }
  try {
    return serve(environment);
  } catch (const TransportError& error) {
    fmt::print(stderr, "orrery: device {}: {}\n", environment.device, error.what());
    return kStoreLost;
  } catch (const std::exception& error) {
    fmt::print(stderr, "orrery: device {}: {}\n", environment.device, error.what());
    return 1;
  }
}

}  // namespace orrery::executor

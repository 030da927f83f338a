#include "sim/replay/simulated_iteration_timer.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "models/base/check.h"
#include "models/interfaces/answer_bytes.h"
#include "sim/flow/forked_server.h"
#include "sim/iteration/evaluator.h"
#include "sim/replay/device_renaming.h"
#include "sim/replay/pipeline_order.h"
#include "sim/replay/question.h"

namespace orrery::sim {

/// A question under the names that all equal ones get.
struct IterationQuestion {
  ir::Plan plan;
  std::vector<models::SlowDevice> slow;
  models::DegradedLinks degraded_links;
  std::vector<models::StateTransfer> background;
};

struct IterationAnswer {
  models::Evaluation evaluation;
  std::vector<std::string> prices;  ///< Pricer::take_recent_entries().

  void put(ByteWriter& out) const {
    models::put(out, evaluation);
    out.put(prices.size());
    for (const std::string& line : prices) out.put(std::string_view(line));
  }
  static IterationAnswer get(ByteReader& in) {
    IterationAnswer answer{models::get_evaluation(in), {}};
    answer.prices.resize(in.count());
    for (std::string& line : answer.prices) line = in.text();
    return answer;
  }
};

class SimulatedIterationTimer::Impl {
 public:
  Impl(IterationSimulator& simulator, const TransferPaths& paths, const models::Workload& workload,
       const models::Job& job, const ir::Profile& profile, IterationOptions options,
       CacheOptions cache, std::string context)
      : topology_(simulator.topology()),
        paths_(paths),
        renaming_(simulator.cluster(), simulator.topology(), cache.ignore_leaves),
        renames_(cache.rename && !options.noisy() && options.stragglers.empty() &&
                 options.slow_links.empty()),
        evaluator_(simulator, workload, job, profile, std::move(options)),
        answers_(cache.answers, std::move(context)) {}

  bool is_undisturbed() const { return evaluator_.is_undisturbed(); }

  models::Evaluation evaluate(const ir::Plan& plan, const IterationConditions& conditions) {
    if (recorded_prices_) return evaluate_named(plan, conditions);
    for (auto recent = recent_.begin(); recent != recent_.end(); ++recent) {
      if (recent->conditions != conditions || recent->plan != plan) continue;
      std::rotate(recent_.begin(), recent, recent + 1);
      answers_.count_asked();
      return recent_.front().evaluation;
    }
    if (recent_.size() == kRecent) recent_.pop_back();
    recent_.push_front({plan, conditions, evaluate_named(plan, conditions)});
    return recent_.front().evaluation;
  }

  std::unique_ptr<models::Evaluator::Pending> start_evaluation(const ir::Plan& plan) {
    return std::make_unique<Started>(*this, plan);
  }

  const CacheCounts& counts() const { return answers_.counts(); }

  AskedIterations record(const std::function<void()>& ask) {
    recorded_prices_.emplace();
    answers_.begin_asked();
    ask();
    const AskedQuestions asked = answers_.take_asked();
    const std::set<std::string> prices = *std::exchange(recorded_prices_, std::nullopt);
    ByteWriter out;
    out.put(asked.asked);
    out.put(static_cast<std::uint64_t>(asked.different.size()));
    for (const auto& [first, second] : asked.different) {
      out.put(first);
      out.put(second);
    }
    out.put(static_cast<std::uint64_t>(prices.size()));
    for (const std::string& line : prices) out.put(std::string_view(line));
    return out.bytes();
  }

  bool count_asked(const AskedIterations& bytes) {
    ByteReader in(bytes);
    AskedQuestions asked{in.get<std::int64_t>(), {}};
    asked.different.resize(in.count());
    for (auto& [first, second] : asked.different) {
      first = in.get<std::uint64_t>();
      second = in.get<std::uint64_t>();
    }
    std::vector<std::string> prices(in.count());
    for (std::string& line : prices) line = in.text();
    if (!in.complete()) return false;
    answers_.count_asked(asked);
    prices_.insert(prices.begin(), prices.end());
    return true;
  }

  std::vector<std::string> used_entries() const {
    std::set<std::string> all = prices_;
    for (std::string& line : evaluator_.pricer().used_entries()) all.insert(std::move(line));
    return {all.begin(), all.end()};
  }

 private:
  /// A question as it was asked. Policy and replay ask about a plan several times before the next.
  struct Recent {
    ir::Plan plan;
    IterationConditions conditions;
    models::Evaluation evaluation;
  };
  static constexpr std::size_t kRecent = 8;

  using Answers = Remembered<IterationAnswer>;

  struct Named {
    IterationQuestion question;
    std::vector<std::size_t> pipelines;  ///< order_of_pipelines()
    std::vector<DeviceId> devices;       ///< Of the plan in that order, under its own names.
    IdVector<DeviceId, DeviceId> to;
  };

  /// An evaluation on healthy devices that a server works on, or whose answer is known.
  class Started final : public models::Evaluator::Pending {
   public:
    Started(Impl& of, const ir::Plan& plan) : of_(of), named_(of.name(plan, {})) {
      known_ = of.answers_.look_up([&](ByteWriter& out) { put_question(out, named_.question); },
                                   question_);
      if (known_ != nullptr) return;
      server_ = &of.ask(named_.question);
    }
    ~Started() override {
      if (server_ != nullptr) server_->join();
    }
    models::Evaluation join() override {
      if (server_ != nullptr) {
        known_ = &of_.answers_.keep(question_, answer_of(*std::exchange(server_, nullptr)));
      }
      return of_.answered(*known_, named_);
    }

   private:
    Impl& of_;
    Named named_;
    Answers::Question question_;
    const IterationAnswer* known_ = nullptr;
    ForkedServer* server_ = nullptr;
  };

  /// A server is a copy of the process as it was at the first question, and has each question
  /// answered by a copy of itself: memory that this process took since is never copied, and its
  /// pages, which copies share, cost this process no faults when it writes to them.
  ForkedServer& idle_server() {
    for (const auto& server : servers_) {
      if (!server->busy()) return *server;
    }
    return *servers_.emplace_back(std::make_unique<ForkedServer>([this](const std::string& asked) {
      ByteReader in(asked);
      const IterationQuestion question{models::get_plan(in), get_slow_devices(in),
                                       get_degraded_links(in), get_transfers(in)};
      ORRERY_CHECK(in.complete(), "a question arrived broken");
      ByteWriter out;
      simulate(question).put(out);
      return out.bytes();
    }));
  }
  ForkedServer& ask(const IterationQuestion& question) {
    ForkedServer& server = idle_server();
    ByteWriter out;
    put_question(out, question);
    server.ask(out.bytes());
    return server;
  }
  static IterationAnswer answer_of(ForkedServer& server) {
    const ForkResult told = server.join();
    if (const auto* failure = std::get_if<ChildFailure>(&told)) {
      const bool thrown = failure->kind == ChildFailure::Kind::exception;  // By the evaluator.
      throw std::runtime_error((thrown ? "" : "simulation failed: ") + failure->message);
    }
    ByteReader in(std::get<std::string>(told));
    return IterationAnswer::get(in);
  }

  models::Evaluation evaluate_named(const ir::Plan& plan, const IterationConditions& conditions) {
    Named named;
    const IterationAnswer& known = answers_.get(
        [&](ByteWriter& out) {
          named = name(plan, conditions);
          put_question(out, named.question);
        },
        [&] { return answer_of(ask(named.question)); });
    return answered(known, named);
  }

  static void put_question(ByteWriter& out, const IterationQuestion& question) {
    models::put(out, question.plan);
    put(out, question.slow);
    put(out, question.degraded_links);
    put(out, question.background);
  }

  /// Under the names that were asked for.
  models::Evaluation answered(const IterationAnswer& known, const Named& named) {
    prices_.insert(known.prices.begin(), known.prices.end());
    if (recorded_prices_) {
      recorded_prices_->insert(known.prices.begin(), known.prices.end());
    }
    models::Evaluation evaluation = known.evaluation;
    const std::vector<Seconds>& times = known.evaluation.pipeline_times;
    for (std::size_t i = 0; i < times.size(); ++i) {
      evaluation.pipeline_times[named.pipelines[i]] = times[i];
    }
    // The verdict names devices and pipelines: those of the plan that was asked for.
    for (ir::MemoryUse& use : evaluation.memory.by_gpu_type) {
      use.pipeline = static_cast<int>(named.pipelines[use.pipeline]);
      for (const DeviceId device : named.devices) {
        if (named.to[device] != use.device) continue;
        use.device = device;
        break;
      }
    }
    return evaluation;
  }

  Named name(const ir::Plan& plan, const IterationConditions& conditions) const {
    Named named;
    if (renames_) {
      named.pipelines = order_of_pipelines(plan, conditions.slow, renaming_);
    } else {
      named.pipelines.resize(plan.pipelines.size());
      std::iota(named.pipelines.begin(), named.pipelines.end(), std::size_t{0});
    }
    const bool stays = std::is_sorted(named.pipelines.begin(), named.pipelines.end());
    std::optional<ir::Plan> other;
    if (!stays) other = reordered(plan, named.pipelines);
    const ir::Plan& sorted = stays ? plan : *other;
    named.devices = devices_in_order(sorted);
    DeviceRenaming::Names names =
        renames_ ? renaming_.names(named.devices, conditions.degraded_links)
                 : renaming_.unchanged(named.devices, conditions.degraded_links);
    named.to = std::move(names.to);
    IterationQuestion& question = named.question;
    question.plan = renamed(sorted, named.to);
    for (const models::SlowDevice& device : conditions.slow) {
      const DeviceId to = named.to[device.device];
      if (to.valid() && device.factor != 1.0) question.slow.push_back({to, device.factor});
    }
    std::sort(question.slow.begin(), question.slow.end(),
              [](const auto& a, const auto& b) { return a.device < b.device; });
    question.degraded_links = std::move(names.degraded_links);
    question.background = conditions.background;
    for (models::StateTransfer& transfer : question.background) {
      for (DeviceId* end : {&transfer.source, &transfer.destination}) {
        if (!end->valid()) continue;
        const DeviceId to = named.to[*end];
        ORRERY_CHECK(to.valid(), "device {} transfers in the background of a plan without it",
                     end->value);
        *end = to;
      }
    }
    std::sort(question.background.begin(), question.background.end());
    return named;
  }

  IterationAnswer simulate(const IterationQuestion& question) const {
    std::vector<Straggler> stragglers;
    for (const models::SlowDevice& device : question.slow) {
      stragglers.push_back({device.device, 1 / device.factor});
    }
    std::vector<SlowLink> links;
    for (const auto& [link, factor] : question.degraded_links) links.push_back({link, 1 / factor});
    add_background(question, links);
    SimulatorEvaluator::Priced priced =
        evaluator_.evaluate_priced(question.plan, stragglers, links);
    return {std::move(priced.evaluation), std::move(priced.prices)};
  }

  /// What background transfers take from links, as slower links.
  void add_background(const IterationQuestion& question, std::vector<SlowLink>& links) const {
    std::map<LinkId, double> rates;
    for (const models::StateTransfer& transfer : question.background) {
      std::vector<LinkId> route;
      Seconds latency;
      paths_.path(transfer, route, latency);
      for (const LinkId link : route) {
        if (link.index() < topology_.links().size()) rates[link] += transfer.bytes.value;
      }
    }
    for (const auto& [id, rate] : rates) {
      const models::Link& link = topology_.links()[id];
      double bandwidth = link.bandwidth.value;
      const std::string link_name = topology_.name_of(id);
      for (const auto& [name, factor] : question.degraded_links) {
        bandwidth *= name == link_name ? factor : 1;
      }
      links.push_back({link_name, bandwidth / std::max(bandwidth - rate, bandwidth / 2)});
    }
  }

  const models::Topology& topology_;
  const TransferPaths& paths_;
  DeviceRenaming renaming_;
  bool renames_;  ///< False where the options tell devices or links of one kind apart.
  SimulatorEvaluator evaluator_;
  Answers answers_;
  std::vector<std::unique_ptr<ForkedServer>> servers_;  ///< Of start().
  std::deque<Recent> recent_;                           ///< Asked last first.
  std::set<std::string> prices_;
  std::optional<std::set<std::string>> recorded_prices_;  ///< In record().
};

SimulatedIterationTimer::SimulatedIterationTimer(IterationSimulator& simulator,
                                                 const TransferPaths& paths,
                                                 const models::Workload& workload,
                                                 const models::Job& job, const ir::Profile& profile,
                                                 IterationOptions options, CacheOptions cache,
                                                 std::string context)
    : impl_(std::make_unique<Impl>(simulator, paths, workload, job, profile, std::move(options),
                                   cache, std::move(context))) {}

SimulatedIterationTimer::~SimulatedIterationTimer() = default;

models::Evaluation SimulatedIterationTimer::evaluate(const ir::Plan& plan,
                                                     const IterationConditions& conditions) const {
  return impl_->evaluate(plan, conditions);
}

std::unique_ptr<models::Evaluator::Pending> SimulatedIterationTimer::start(
    const ir::Plan& plan) const {
  return impl_->start_evaluation(plan);
}

bool SimulatedIterationTimer::is_undisturbed() const { return impl_->is_undisturbed(); }

AskedIterations SimulatedIterationTimer::record(const std::function<void()>& ask) const {
  return impl_->record(ask);
}
bool SimulatedIterationTimer::count_asked(const AskedIterations& asked) const {
  return impl_->count_asked(asked);
}
CacheCounts SimulatedIterationTimer::counts() const { return impl_->counts(); }
std::vector<std::string> SimulatedIterationTimer::used_entries() const {
  return impl_->used_entries();
}

models::Evaluation CachedEvaluator::evaluate(const ir::Plan& plan) const {
  return timer_.evaluate(plan);
}
std::unique_ptr<models::Evaluator::Pending> CachedEvaluator::start(const ir::Plan& plan) const {
  return timer_.start(plan);
}

}  // namespace orrery::sim

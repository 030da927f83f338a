#include "executor/launcher/rank_generation.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <variant>

#include "executor/cuda/backend.h"
#include "executor/cuda/nccl_transport.h"
#include "executor/launcher/checkpoint.h"
#include "executor/launcher/inventory.h"
#include "executor/launcher/state.h"
#include "executor/launcher/state_fetch.h"
#include "executor/net/clock.h"
#include "executor/net/message.h"
#include "models/base/ids.h"
#include "models/base/rng.h"
#include "models/ir/wire.h"

namespace orrery::executor {
namespace {

using std::chrono::milliseconds;

/// What fails here fails in every generation: no reason for another attempt.
Listener listen(const std::string& address) {
  try {
    return Listener(address);
  } catch (const TransportError& error) {
    throw std::runtime_error(error.what());
  }
}

/// What a rank has saved to a target; kWritesNone: others do.
std::string saved_key(const std::string& target, int rank) {
  return fmt::format("saved/{}/{}", target, rank);
}
constexpr const char* kWritesNone = "-";

}  // namespace

/// What exists while this member trains.
struct RankGeneration::Live {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<TokenSource> tokens;
  std::unique_ptr<Worker> worker;
  std::unique_ptr<CheckpointWriter> checkpoints;
  std::int64_t step = 0;  ///< That runs.
  std::int64_t last = 0;  ///< Whose state the worker has, unless it is torn.
  bool loaded = false;
  bool torn = false;
  std::int64_t compute_ops = 0;
  std::int64_t disturbed_ops = 0;
  std::optional<StateBank> before_update;
  std::vector<std::pair<OpId, const FaultInjection*>>
      faults;                       ///< In this step; the op where a fault at an op strikes.
  mutable std::mutex faults_mutex;  ///< Ops run on several threads.
  ~Live() {
    worker.reset();
    transport.reset();
  }
};

RankGeneration::RankGeneration(RankContext& context, std::int64_t generation,
                               std::vector<std::int32_t> members, int me)
    : context_(context),
      keys_(context, generation, me),
      generation_(generation),
      members_(std::move(members)),
      me_(me) {}

void RankGeneration::run() {
  MemberStatus status;
  try {
    train(status);
  } catch (const TransportError& error) {
    const bool ordered = context_.commands.stopped();
    status.kind = ordered ? MemberStatus::Kind::stopped : MemberStatus::Kind::lost;
    status.message = error.what();
  } catch (const std::bad_alloc&) {
    status.kind = MemberStatus::Kind::error;
    status.message = "out of memory";
  } catch (const std::exception& error) {
    status.kind = MemberStatus::Kind::error;
    status.message = error.what();
  }
  if (status.at_ns == 0) status.at_ns = now_ns();
  context_.reporter.drain();
  keys_.set(fmt::format("out/status/{:06d}", me_), to_message(status));
}

std::unique_ptr<Backend> RankGeneration::make_its_backend() const {
  const std::int32_t device = context_.environment.device;
  if (context_.threads != nullptr && context_.threads->ranks.backend) {
    return context_.threads->ranks.backend(me_, {device});
  }
  return make_backend(context_.settings, device);
}

std::unique_ptr<Transport> RankGeneration::join() {
  Listener listener = listen(context_.environment.address);
  keys_.set(fmt::format("endpoint/{}", me_),
            fmt::format("{}:{}", context_.environment.address, listener.port()));
  std::vector<Endpoint> endpoints;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    endpoints.push_back(endpoint_from(keys_.get(fmt::format("endpoint/{}", m))));
  }
  auto transport =
      make_tcp_transport(me_, std::move(listener), endpoints,
                         context_.settings.transport_options(
                             context_.environment.token, static_cast<std::uint32_t>(generation_)));
  // Threads of one process read the same clock.
  const ClockEstimate clock =
      context_.threads != nullptr ? ClockEstimate{} : estimate_clock(*transport, 0);
  keys_.post(fmt::format("clock/{:06d}", me_),
             to_message(ClockReport{clock.offset_ns, clock.uncertainty_ns, now_ns(), boot_id()}));
  if (context_.settings.transport == "nccl") {
    transport =
        make_nccl_transport(std::move(transport), cuda_device_for(context_.environment.device));
    transport->set_deadline(context_.settings.deadline);
  }
  return transport;
}

void RankGeneration::train(MemberStatus& status) {
  auto program = ir::parse_program(keys_.get("program"));
  if (const auto* problem = std::get_if<std::string>(&program)) {
    throw std::runtime_error("the program " + *problem);
  }
  program_ = std::move(std::get<ir::Program>(program));
  until_ = std::stoll(keys_.get("until"));
  const std::int64_t finished = std::stoll(keys_.get("after"));
  Live live;
  const bool is_rank = me_ < static_cast<int>(program_.ranks.size());
  if (is_rank) {
    live.backend = make_its_backend();
    live.tokens = make_tokens(context_.settings, program_.header);
  }
  live.transport = join();
  keys_.event("mesh", live.transport->name());
  context_.commands.attach(live.transport.get(), generation_);
  struct Detach {
    CommandListener& commands;
    ~Detach() { commands.attach(nullptr, -1); }
  } detach{context_.commands};
  try {
    if (is_rank) {
      WorkerOptions options = context_.settings.worker_options(context_.environment.device);
      options.before_op = [this, &live](OpId op) { before_op(live, op); };
      options.after_update = [this, &live] { strike(live, FaultPoint::after_update, {-1}); };
      live.worker =
          std::make_unique<Worker>(program_, *live.backend, *live.transport, *live.tokens, options);
    }
    prune();
    StateFetch fetch(context_, keys_, program_, static_cast<int>(members_.size()));
    const std::vector<StateReport> members = fetch.exchange(live.worker.get());
    live.last = fetch.load(live.worker.get(), *live.transport, plan_state(members, finished));
    live.loaded = live.worker != nullptr;
    status.last_step = live.last;
    if (live.worker) {
      live.checkpoints = std::make_unique<CheckpointWriter>(
          context_.environment.device, me_, checkpoint_targets(members),
          [this](const std::string& target, const CheckpointWriter::Versions& written) {
            return saved_by_all(target, written);
          });
      run_steps(live, live.last + 1, status);
    }
    if (live.checkpoints) live.checkpoints->wait();
    post_notes(live);
    status.traffic = live.transport->traffic();
  } catch (const TransportError&) {
    status.at_ns = now_ns();
    status.traffic = live.transport->traffic();
    keep_state(live);
    std::string kept;
    for (const StateBank& bank : context_.banks) kept += fmt::format(" {}", bank.version.step);
    keys_.event("kept", fmt::format("{} the update of step {}: states after steps{}",
                                    live.torn ? "after" : "before", live.step, kept));
    status.last_step = live.last;
    if (live.checkpoints) live.checkpoints->wait();
    post_notes(live);
    throw;
  }
}

std::vector<CheckpointWriter::Target> RankGeneration::checkpoint_targets(
    const std::vector<StateReport>& members) const {
  const RunSettings& s = context_.settings;
  std::vector<CheckpointWriter::Target> targets;
  if (s.checkpoint_every > 0 && !s.local_checkpoints.empty()) {
    targets.push_back({CheckpointFolder(s.local_checkpoints, s.run, context_.environment.node),
                       slices_to_save(members, me_, true), "local"});
  }
  if (s.checkpoint_every > 0 && !s.cloud_checkpoints.empty()) {
    targets.push_back({CheckpointFolder(s.cloud_checkpoints, s.run),
                       slices_to_save(members, me_, false), "cloud"});
  }
  // What others write does not hold this rank.
  std::erase_if(targets, [&](const CheckpointWriter::Target& one) {
    if (one.slices.empty()) keys_.set(saved_key(one.name, me_), kWritesNone);
    return one.slices.empty();
  });
  return targets;
}

std::optional<StateVersion> RankGeneration::saved_by_all(
    const std::string& target, const CheckpointWriter::Versions& written) const {
  std::string steps = " ";
  for (const StateVersion& version : written) steps += fmt::format("{} ", version.step);
  keys_.set(saved_key(target, me_), steps);
  const auto saved = keys_.list(fmt::format("saved/{}/", target));
  if (saved.size() < program_.ranks.size()) return std::nullopt;  // Not all have written yet.
  for (auto version = written.rbegin(); version != written.rend(); ++version) {
    const std::string step = fmt::format(" {} ", version->step);
    const bool all = std::all_of(saved.begin(), saved.end(), [&](const auto& one) {
      return one.second == kWritesNone || one.second.find(step) != std::string::npos;
    });
    if (all) return *version;
  }
  return std::nullopt;
}

void RankGeneration::prune() {
  const RunSettings& s = context_.settings;
  if (!s.prune_checkpoints || generation_ > 0) return;
  const auto tell = [&](const std::string& folder) {
    for (const std::string& run : prune_checkpoints(folder, s.run)) {
      keys_.event("checkpoints_pruned", fmt::format("{}/{}", folder, run));
    }
  };
  if (!s.local_checkpoints.empty() && keys_.claim("prune/" + context_.environment.node)) {
    tell(s.local_checkpoints);
  }
  if (!s.cloud_checkpoints.empty() && keys_.claim("prune")) tell(s.cloud_checkpoints);
}

void RankGeneration::strike(const Live& live, FaultPoint point, OpId op) {
  for (const auto& [at, fault] : live.faults) {
    if (fault->point != point || (point == FaultPoint::op && at != op)) continue;
    {
      const std::lock_guard lock(live.faults_mutex);
      if (!context_.struck.insert(fault).second) continue;
    }
    const std::string where = point == FaultPoint::op              ? fmt::format("op {}", op.value)
                              : point == FaultPoint::before_update ? std::string("the update")
                                                                   : std::string("the updated end");
    const bool holds = fault->hold.count() > 0;
    if (holds) keys_.set(fmt::format("hold/{}", fault->device), "1");
    if (fault->after >= 0) keys_.get(fmt::format("hold/{}", fault->after));
    keys_.last_word(holds ? "hold" : "fault",
                    fmt::format("device {} {} at {} of step {}", context_.environment.device,
                                holds         ? "waits"
                                : fault->stop ? "stops itself"
                                              : "kills itself",
                                where, live.step));
    if (!holds) ::raise(fault->stop ? SIGSTOP : SIGKILL);
    const auto until = std::chrono::steady_clock::now() + fault->hold;
    while (holds && std::chrono::steady_clock::now() < until) {
      keys_.check_canceled();
      std::this_thread::sleep_for(milliseconds(2));
    }
  }
}

void RankGeneration::before_op(Live& live, OpId op) {
  if (context_.threads != nullptr) {
    context_.threads->ops.fetch_add(1, std::memory_order_relaxed);
    keys_.check_canceled();
    if (context_.threads->ranks.before_op) context_.threads->ranks.before_op(me_, op);
  }
  if (!live.faults.empty()) strike(live, FaultPoint::op, op);
  if (program_.op(op).kind != ir::OpKind::optimizer_step) return;
  strike(live, FaultPoint::before_update, op);
  if (context_.settings.elastic) {
    live.before_update = take_state(*live.worker, {live.step - 1, generation_});
  }
  // All ranks have loaded, else this one would not be here: older states are of no use any more.
  context_.banks.clear();
  live.torn = true;
}

void RankGeneration::run_steps(Live& live, std::int64_t first, MemberStatus& status) {
  const RunSettings& s = context_.settings;
  for (std::int64_t step = first; step <= until_; ++step) {
    if (context_.commands.stopped()) {
      throw TransportError(TransportError::Kind::peer_lost, -1, "the launcher stops the run");
    }
    live.step = step;
    live.faults.clear();
    for (const FaultInjection& fault : s.faults) {
      if (fault.device != context_.environment.device || fault.step != step) continue;
      const std::size_t row = as_size(me_) * ir::kStreams;
      const std::int64_t begin = program_.stream_begin[row];
      const std::int64_t end = program_.stream_begin[row + ir::kStreams];
      const OpId at = {static_cast<std::int32_t>(Rng(fault.seed).integer(begin, end - 1))};
      live.faults.emplace_back(at, &fault);
    }
    StepResult result = live.worker->step(step);
    live.compute_ops += result.compute_ops;
    live.disturbed_ops += result.disturbed_ops;
    live.torn = false;
    live.last = step;
    status.last_step = step;
    StepReport report{
        step, result.start_ns, result.end_ns, result.peak_bytes, std::move(result.losses), {}, {}};
    if (step <= s.log_steps) {
      report.spans = std::move(result.spans);
      report.memory = std::move(result.memory);
    }
    keys_.post(fmt::format("step/{:012d}/{:06d}", step, me_), to_text(report));
    if (s.checkpoint_every > 0 && step % s.checkpoint_every == 0) save(live, step);
    post_notes(live);
  }
  keys_.event("disturbed", fmt::format("{} of {} compute ops ran over their time",
                                       live.disturbed_ops, live.compute_ops));
  // Another rank may die at the end of this very step, or training goes on with another plan.
  if (s.elastic) {
    keep_state(live);
  } else if (until_ < s.steps) {
    context_.banks = {take_state(*live.worker, {live.last, generation_})};
  }
}

void RankGeneration::keep_state(Live& live) {
  if (!context_.settings.elastic || !live.loaded) return;
  std::vector<StateBank> banks;
  if (!live.torn) banks.push_back(take_state(*live.worker, {live.last, generation_}));
  if (live.before_update) banks.push_back(std::move(*live.before_update));
  // Older states are still here if this generation has updated nothing.
  for (StateBank& bank : context_.banks) banks.push_back(std::move(bank));
  context_.banks = std::move(banks);
}

void RankGeneration::save(Live& live, std::int64_t step) {
  if (!live.checkpoints || !live.checkpoints->wanted()) return;
  const std::int64_t since = now_ns();
  live.checkpoints->start(take_state(*live.worker, {step, generation_}), since);
}

void RankGeneration::post_notes(Live& live) {
  if (!live.checkpoints) return;
  for (const CheckpointWriter::Note& note : live.checkpoints->take_notes()) {
    keys_.event_at(note.at_ns, note.kind, note.detail);
  }
}

}  // namespace orrery::executor

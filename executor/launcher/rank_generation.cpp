#include "executor/launcher/rank_generation.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>
#include <variant>

#include "executor/cuda/backend.h"
#include "executor/cuda/nccl_transport.h"
#include "executor/net/clock.h"
#include "models/base/check.h"
#include "models/base/rng.h"
#include "models/ir/wire.h"

namespace orrery::executor {
namespace {

using std::chrono::milliseconds;

/// Tags of state moves: step 0, this op, the block as part.
constexpr std::uint64_t kStateOp = 0xfffffd;
constexpr milliseconds kSlice{500};

std::unique_ptr<TokenSource> make_tokens(const RunSettings& settings,
                                         const ir::ProgramHeader& header) {
  const int vocabulary = header.model.vocabulary;
  if (settings.data.empty()) return make_synthetic_tokens(settings.data_seed, vocabulary);
  return make_text_tokens(settings.data, settings.data_seed, vocabulary, header.sequence_length);
}

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
  std::vector<std::pair<OpId, const FaultInjection*>> faults;  ///< Of this step; at ops: where.
  mutable std::mutex faults_mutex;                             ///< Ops run on several threads.
  ~Live() {
    worker.reset();
    transport.reset();
  }
};

RankGeneration::RankGeneration(RankContext& context, std::int64_t generation,
                               std::vector<std::int32_t> members, int me)
    : context_(context), generation_(generation), members_(std::move(members)), me_(me) {}

std::string RankGeneration::key(const std::string& rest) const {
  return fmt::format("g/{}/{}", generation_, rest);
}

std::string RankGeneration::get(const std::string& key) {
  const auto deadline = std::chrono::steady_clock::now() + context_.settings.connect;
  do {
    if (auto value = context_.store.get(key, kSlice)) return std::move(*value);
    if (context_.watcher.cancelled(generation_)) {
      throw TransportError(TransportError::Kind::peer_lost, -1, "ended by the launcher");
    }
  } while (std::chrono::steady_clock::now() < deadline);
  throw TransportError(TransportError::Kind::timeout, -1, fmt::format("{} did not come", key));
}

void RankGeneration::event(const std::string& kind, const std::string& detail) {
  context_.reporter.post(key(fmt::format("out/event/{:06d}/{:06d}", me_, events_++)),
                         fmt::format("{} {} {}", now_ns(), kind, detail));
}

void RankGeneration::run() {
  MemberStatus status;
  try {
    train(status);
  } catch (const TransportError& error) {
    const bool ordered = context_.watcher.stopped();
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
  context_.store.set(key(fmt::format("out/status/{:06d}", me_)), to_text(status));
}

std::unique_ptr<Transport> RankGeneration::join() {
  Listener listener(context_.environment.address);
  context_.store.set(key(fmt::format("endpoint/{}", me_)),
                     fmt::format("{}:{}", context_.environment.address, listener.port()));
  std::vector<Endpoint> endpoints;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    endpoints.push_back(endpoint_from(get(key(fmt::format("endpoint/{}", m)))));
  }
  auto transport =
      make_tcp_transport(me_, std::move(listener), endpoints,
                         context_.settings.transport_options(
                             context_.environment.token, static_cast<std::uint32_t>(generation_)));
  const ClockEstimate clock = estimate_clock(*transport, 0);
  context_.reporter.post(
      key(fmt::format("out/clock/{:06d}", me_)),
      fmt::format("{} {} {} {}", clock.offset_ns, clock.uncertainty_ns, now_ns(), boot_id()));
  if (context_.settings.transport == "nccl") {
    transport =
        make_nccl_transport(std::move(transport), cuda_device_for(context_.environment.device));
    transport->set_deadline(context_.settings.deadline);
  }
  return transport;
}

void RankGeneration::train(MemberStatus& status) {
  auto program = ir::parse_program(get(key("program")));
  if (const auto* problem = std::get_if<std::string>(&program)) {
    throw std::runtime_error("the program " + *problem);
  }
  program_ = std::move(std::get<ir::Program>(program));
  until_ = std::stoll(get(key("until")));
  const std::int64_t finished = std::stoll(get(key("after")));
  Live live;
  const bool is_rank = me_ < static_cast<int>(program_.ranks.size());
  if (is_rank) {
    live.backend = make_backend(context_.settings, context_.environment.device);
    live.tokens = make_tokens(context_.settings, program_.header);
  }
  live.transport = join();
  event("mesh", live.transport->name());
  context_.watcher.attach(live.transport.get(), generation_);
  struct Detach {
    OrderWatcher& watcher;
    ~Detach() { watcher.attach(nullptr, -1); }
  } detach{context_.watcher};
  try {
    if (is_rank) {
      WorkerOptions options;
      options.adam.learning_rate = context_.settings.learning_rate;
      const auto slow = context_.settings.slowdowns.find(context_.environment.device);
      if (slow != context_.settings.slowdowns.end()) options.slowdown = slow->second;
      options.before_op = [this, &live](OpId op) { before_op(live, op); };
      options.after_update = [this, &live] { strike(live, FaultPoint::after_update, {-1}); };
      live.worker =
          std::make_unique<Worker>(program_, *live.backend, *live.transport, *live.tokens, options);
    }
    prune();
    StateReport mine = offers();
    if (live.worker) mine.needs = needs_of(*live.worker);
    const std::vector<StateReport> members = exchange(mine);
    const std::int64_t last = load(live, plan_state(members, finished));
    status.last_step = last;
    if (live.worker) {
      std::vector<CheckpointWriter::Target> targets;
      const RunSettings& s = context_.settings;
      if (s.checkpoint_every > 0 && !s.local_checkpoints.empty()) {
        targets.push_back({CheckpointFolder(s.local_checkpoints, s.run, mine.node),
                           slices_to_save(members, me_, true), "local"});
      }
      if (s.checkpoint_every > 0 && !s.cloud_checkpoints.empty()) {
        targets.push_back({CheckpointFolder(s.cloud_checkpoints, s.run),
                           slices_to_save(members, me_, false), "cloud"});
      }
      live.checkpoints =
          std::make_unique<CheckpointWriter>(context_.environment.device, std::move(targets));
      run_steps(live, last + 1, status);
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
    event("kept", fmt::format("{} the update of step {}: states after steps{}",
                              live.torn ? "after" : "before", live.step, kept));
    status.last_step = live.last;
    if (live.checkpoints) live.checkpoints->wait();
    post_notes(live);
    throw;
  }
}

StateReport RankGeneration::offers() {
  StateReport report;
  report.node = context_.environment.node;
  const auto add = [&](StateSource source, const StateBank& bank) {
    for (const StateBank::Entry& entry : bank.entries()) {
      report.offers.push_back({source, bank.version, entry.slice});
    }
  };
  for (const StateBank& bank : context_.banks) add(StateSource::memory, bank);
  const RunSettings& s = context_.settings;
  if (generation_ == 0 || s.checkpoint_every == 0) return report;
  // Files of a node are read and offered by one member on it; the cloud's are shared out.
  std::vector<std::string> problems;
  if (!s.local_checkpoints.empty()) {
    const std::string claim = key("files/" + report.node);
    if (context_.store.add(claim, 1) == 1) {
      auto found = CheckpointFolder(s.local_checkpoints, s.run, report.node).read();
      files_ = std::move(found.banks);
      problems = std::move(found.problems);
      for (const StateBank& bank : files_) add(StateSource::local, bank);
    }
  }
  if (!s.cloud_checkpoints.empty()) {
    auto found =
        CheckpointFolder(s.cloud_checkpoints, s.run).read(me_, static_cast<int>(members_.size()));
    for (const StateBank& bank : found.banks) add(StateSource::cloud, bank);
    problems.insert(problems.end(), found.problems.begin(), found.problems.end());
  }
  for (const std::string& problem : problems) event("checkpoint_refused", problem);
  return report;
}

void RankGeneration::prune() {
  const RunSettings& s = context_.settings;
  if (!s.prune_checkpoints || generation_ > 0) return;
  const auto claim = [&](const std::string& what) { return context_.store.add(key(what), 1) == 1; };
  const auto tell = [&](const std::string& folder) {
    for (const std::string& run : prune_checkpoints(folder, s.run)) {
      event("checkpoints_pruned", fmt::format("{}/{}", folder, run));
    }
  };
  if (!s.local_checkpoints.empty() && claim("prune/" + context_.environment.node)) {
    tell(s.local_checkpoints);
  }
  if (!s.cloud_checkpoints.empty() && claim("prune")) tell(s.cloud_checkpoints);
}

std::vector<StateReport> RankGeneration::exchange(const StateReport& mine) {
  context_.store.set(key(fmt::format("state/{}", me_)), to_text(mine));
  std::vector<StateReport> out;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    out.push_back(state_report_from(get(key(fmt::format("state/{}", m)))));
  }
  return out;
}

std::int64_t RankGeneration::load(Live& live, const StatePlan& plan) {
  if (live.worker) live.worker->shard().initialise();
  if (plan.version) move(live, plan);
  std::array<std::size_t, 4> units{};
  for (const StateMove& move : plan.moves) {
    if (move.to != me_) continue;
    const std::size_t from = move.source == StateSource::memory && move.from == me_ ? 0
                             : move.source == StateSource::memory                   ? 1
                             : move.source == StateSource::local                    ? 2
                                                                                    : 3;
    ++units[from];
  }
  live.last = plan.version ? plan.version->step : 0;
  live.loaded = live.worker != nullptr;
  files_.clear();
  event("loaded", fmt::format("step {}: {} slices from own memory, {} from peers, {} from local "
                              "checkpoints, {} from the cloud",
                              live.last, units[0], units[1], units[2], units[3]));
  return live.last;
}

std::vector<std::byte> RankGeneration::read(const StateMove& move, StateVersion version,
                                            std::size_t parts) {
  const auto find = [&](const std::vector<StateBank>& banks) -> const StateBank& {
    for (const StateBank& bank : banks) {
      if (bank.version == version && bank.covers(move.slice)) return bank;
    }
    throw std::runtime_error(fmt::format("block {} of step {} is gone from {}", move.slice.block,
                                         version.step, name_of(move.source)));
  };
  switch (move.source) {
    case StateSource::memory:
      return find(context_.banks).read(move.slice, parts);
    case StateSource::local:
      return find(files_).read(move.slice, parts);
    case StateSource::cloud:
      break;
  }
  const RunSettings& s = context_.settings;
  const auto found = CheckpointFolder(s.cloud_checkpoints, s.run)
                         .read(move.slice.block, static_cast<int>(program_.header.blocks.size()));
  return find(found.banks).read(move.slice, parts);
}

void RankGeneration::move(Live& live, const StatePlan& plan) {
  const std::size_t all_parts = state_parts(program_);
  const auto parts = [&](const StateMove& one) { return one.whole ? all_parts : 1; };
  const auto size = [&](const StateMove& one) {
    const HeldParameter& held = live.worker->shard().parameters(
        {one.slice.block})[static_cast<std::size_t>(one.slice.parameter)];
    return static_cast<std::size_t>((one.slice.end - one.slice.begin) * held.info.unit) *
           live.backend->element_bytes(true) * parts(one);
  };
  // Block after block, in the same order everywhere; one message for each pair and block.
  for (auto at = plan.moves.begin(); at != plan.moves.end();) {
    const std::int32_t block = at->slice.block;
    std::map<int, std::vector<std::byte>> out;
    std::map<int, std::vector<std::byte>> in;
    std::map<int, std::vector<const StateMove*>> coming;
    for (; at != plan.moves.end() && at->slice.block == block; ++at) {
      if (at->from == me_) {
        const std::vector<std::byte> bytes = read(*at, *plan.version, parts(*at));
        if (at->to == me_) {
          put_state(live.worker->shard(), at->slice, parts(*at), bytes);
        } else {
          out[at->to].insert(out[at->to].end(), bytes.begin(), bytes.end());
        }
      } else if (at->to == me_) {
        coming[at->from].push_back(&*at);
        in[at->from].resize(in[at->from].size() + size(*at));
      }
    }
    const Tag tag = make_tag(0, kStateOp, static_cast<std::uint64_t>(block));
    std::vector<RequestPointer> requests;
    for (auto& [from, bytes] : in) requests.push_back(live.transport->receive(from, tag, bytes));
    for (auto& [to, bytes] : out) requests.push_back(live.transport->send(to, tag, bytes));
    for (const RequestPointer& request : requests) request->wait();
    for (const auto& [from, moves] : coming) {
      std::size_t begin = 0;
      for (const StateMove* one : moves) {
        put_state(live.worker->shard(), one->slice, parts(*one),
                  std::span(in[from]).subspan(begin, size(*one)));
        begin += size(*one);
      }
    }
  }
  if (live.worker) live.backend->synchronise();
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
    if (holds) context_.store.set(key(fmt::format("hold/{}", fault->device)), "1");
    if (fault->after >= 0) get(key(fmt::format("hold/{}", fault->after)));
    context_.reporter.drain();
    context_.store.set(key(fmt::format("out/event/{:06d}/{}", me_, holds ? "hold" : "fault")),
                       fmt::format("{} {} device {} {} at {} of step {}", now_ns(),
                                   holds ? "hold" : "fault", context_.environment.device,
                                   holds         ? "waits"
                                   : fault->stop ? "stops itself"
                                                 : "kills itself",
                                   where, live.step));
    if (!holds) ::raise(fault->stop ? SIGSTOP : SIGKILL);
    const auto until = std::chrono::steady_clock::now() + fault->hold;
    while (holds && std::chrono::steady_clock::now() < until) {
      if (context_.watcher.cancelled(generation_)) {
        throw TransportError(TransportError::Kind::peer_lost, -1, "ended by the launcher");
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
  }
}

void RankGeneration::before_op(Live& live, OpId op) {
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
    if (context_.watcher.stopped()) {
      throw TransportError(TransportError::Kind::peer_lost, -1, "the launcher stops the run");
    }
    live.step = step;
    live.faults.clear();
    for (const FaultInjection& fault : s.faults) {
      if (fault.device != context_.environment.device || fault.step != step) continue;
      const std::size_t row = static_cast<std::size_t>(me_) * ir::kStreams;
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
    context_.reporter.post(step_key(generation_, step, me_), to_text(report));
    if (s.checkpoint_every > 0 && step % s.checkpoint_every == 0) save(live, step);
    post_notes(live);
  }
  event("disturbed", fmt::format("{} of {} compute ops ran over their time", live.disturbed_ops,
                                 live.compute_ops));
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
  if (live.checkpoints && live.checkpoints->wanted()) {
    live.checkpoints->start(take_state(*live.worker, {step, generation_}));
  }
}

void RankGeneration::post_notes(Live& live) {
  if (!live.checkpoints) return;
  for (const CheckpointWriter::Note& note : live.checkpoints->take_notes()) {
    context_.reporter.post(key(fmt::format("out/event/{:06d}/{:06d}", me_, events_++)),
                           fmt::format("{} {} {}", note.at_ns, note.kind, note.detail));
  }
}

}  // namespace orrery::executor

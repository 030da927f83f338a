#include "executor/launcher/state_fetch.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <span>
#include <stdexcept>
#include <utility>

#include "executor/launcher/checkpoint.h"
#include "executor/net/message.h"
#include "models/base/ids.h"

namespace orrery::executor {
namespace {

/// Tags of state moves: step 0, this op, the block as part.
constexpr std::uint64_t kStateOp = 0xfffffd;

}  // namespace

std::vector<StateReport> StateFetch::exchange(Worker* worker) {
  StateReport mine = offers();
  if (worker != nullptr) mine.needs = needs_of(*worker);
  keys_.set(fmt::format("state/{}", keys_.me()), to_message(mine));
  std::vector<StateReport> out;
  for (int m = 0; m < members_; ++m) {
    out.push_back(from_message<StateReport>(keys_.get_of("state", m), fmt::format("state/{}", m)));
  }
  return out;
}

StateReport StateFetch::offers() {
  StateReport report;
  report.node = context_.environment.node;
  const auto add = [&](StateOrigin origin, const StateBank& bank) {
    for (const StateBank::Entry& entry : bank.entries()) {
      report.offers.push_back({origin, bank.version, entry.slice});
    }
  };
  for (const StateBank& bank : context_.banks) add(StateOrigin::memory, bank);
  const RunSettings& s = context_.settings;
  if (keys_.generation() == 0 || s.checkpoint_every == 0) return report;
  // Files of a node are read and offered by one member on it; the cloud's are shared out.
  const auto busy = [&] { keys_.busy(); };
  std::vector<std::string> problems;
  if (!s.local_checkpoints.empty()) {
    if (keys_.claim("files/" + report.node)) {
      auto found = CheckpointFolder(s.local_checkpoints, s.run, report.node).read(busy);
      files_ = std::move(found.banks);
      problems = std::move(found.problems);
      for (const StateBank& bank : files_) add(StateOrigin::local, bank);
    }
  }
  if (!s.cloud_checkpoints.empty()) {
    auto found = CheckpointFolder(s.cloud_checkpoints, s.run).read(busy, keys_.me(), members_);
    for (const StateBank& bank : found.banks) add(StateOrigin::cloud, bank);
    problems.insert(problems.end(), found.problems.begin(), found.problems.end());
  }
  for (const std::string& problem : problems) keys_.event("checkpoint_refused", problem);
  return report;
}

std::int64_t StateFetch::load(Worker* worker, Transport& transport, const StatePlan& plan) {
  if (worker != nullptr) worker->shard().initialize();
  if (plan.version) move(worker, transport, plan);
  std::array<std::size_t, 4> units{};
  for (const StateMove& move : plan.moves) {
    if (move.to != keys_.me()) continue;
    const std::size_t from = move.origin == StateOrigin::memory && move.from == keys_.me() ? 0
                             : move.origin == StateOrigin::memory                          ? 1
                             : move.origin == StateOrigin::local                           ? 2
                                                                                           : 3;
    ++units[from];
  }
  const std::int64_t last = plan.version ? plan.version->step : 0;
  files_.clear();
  keys_.event("loaded",
              fmt::format("step {}: {} slices from own memory, {} from peers, {} from local "
                          "checkpoints, {} from the cloud",
                          last, units[0], units[1], units[2], units[3]));
  if (!plan.version) return last;
  // Else those with little to read would take the others for lost in the first step.
  keys_.set(fmt::format("loaded/{}", keys_.me()), "1");
  for (int m = 0; m < members_; ++m) keys_.get_of("loaded", m);
  return last;
}

std::vector<std::byte> StateFetch::read(const StateMove& move, StateVersion version,
                                        std::size_t parts) {
  const auto find = [&](const std::vector<StateBank>& banks) -> const StateBank& {
    for (const StateBank& bank : banks) {
      if (bank.version == version && bank.covers(move.slice)) return bank;
    }
    throw std::runtime_error(fmt::format("block {} of step {} is gone from {}", move.slice.block,
                                         version.step, name_of(move.origin)));
  };
  switch (move.origin) {
    case StateOrigin::memory:
      return find(context_.banks).read(move.slice, parts);
    case StateOrigin::local:
      return find(files_).read(move.slice, parts);
    case StateOrigin::cloud:
      break;
  }
  if (cloud_.empty()) {
    const RunSettings& s = context_.settings;
    cloud_ = CheckpointFolder(s.cloud_checkpoints, s.run)
                 .read([&] { keys_.busy(); }, move.slice.block,
                       static_cast<int>(program_.header.blocks.size()))
                 .banks;
  }
  return find(cloud_).read(move.slice, parts);
}

void StateFetch::move(Worker* worker, Transport& transport, const StatePlan& plan) {
  const std::size_t all_parts = state_parts(program_);
  const auto parts = [&](const StateMove& one) { return one.whole ? all_parts : 1; };
  const auto size = [&](const StateMove& one) {
    const HeldParameter& held = worker->shard().parameters({one.slice.block})[one.slice.parameter];
    return as_size((one.slice.end - one.slice.begin) * held.info.unit) *
           worker->shard().backend().element_bytes(true) * parts(one);
  };
  // Block after block, in the same order everywhere; one message for each pair and block.
  for (auto at = plan.moves.begin(); at != plan.moves.end();) {
    const std::int32_t block = at->slice.block;
    keys_.busy();
    cloud_.clear();
    std::map<int, std::vector<std::byte>> out;
    std::map<int, std::vector<std::byte>> in;
    std::map<int, std::vector<const StateMove*>> coming;
    for (; at != plan.moves.end() && at->slice.block == block; ++at) {
      if (at->from == keys_.me()) {
        const std::vector<std::byte> bytes = read(*at, *plan.version, parts(*at));
        if (at->to == keys_.me()) {
          put_state(worker->shard(), at->slice, parts(*at), bytes);
        } else {
          out[at->to].insert(out[at->to].end(), bytes.begin(), bytes.end());
        }
      } else if (at->to == keys_.me()) {
        coming[at->from].push_back(&*at);
        in[at->from].resize(in[at->from].size() + size(*at));
      }
    }
    const Tag tag = make_tag(0, kStateOp, static_cast<std::uint64_t>(block));
    std::vector<RequestPointer> requests;
    for (auto& [from, bytes] : in) requests.push_back(transport.receive(from, tag, bytes));
    for (auto& [to, bytes] : out) requests.push_back(transport.send(to, tag, bytes));
    for (const RequestPointer& request : requests) request->wait();
    for (const auto& [from, moves] : coming) {
      std::size_t begin = 0;
      for (const StateMove* one : moves) {
        put_state(worker->shard(), one->slice, parts(*one),
                  std::span(in[from]).subspan(begin, size(*one)));
        begin += size(*one);
      }
    }
  }
  cloud_.clear();
  if (worker != nullptr) worker->shard().backend().synchronize();
}

}  // namespace orrery::executor

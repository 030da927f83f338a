#include "experiments/oobleck/throughput/compat.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "experiments/oobleck/throughput/compat_queue.h"
#include "models/base/check.h"

namespace orrery::experiments {
namespace {

std::int64_t to_ms(Seconds time) { return static_cast<std::int64_t>(time.value * 1000 + 0.5); }

class CompatRun {
 public:
  CompatRun(const OobleckModel& model, OobleckSystem system, const NodeThroughput& throughput,
            const std::vector<NodeChange>& changes, bool falls_back);
  CompatResult run();

 private:
  using Place = std::pair<int, int>;  ///< Pipeline, stage.
  struct Node {
    int id = 0;
    enum class State { booting, waiting, working } state = State::booting;
    std::vector<Place> places;  ///< Two: computes for a lost neighbor as well.
  };
  enum class State { stopped, rendezvous, running };

  bool is(OobleckSystem system) const { return system_ == system; }
  Node* find(int id);
  void handle(const CompatEvent& event);
  void ready(int id, std::int64_t now);
  void remove(int id, std::int64_t now);
  bool shadowed(const Node& lost);
  void slow_down(std::int64_t now);
  void start_rendezvous(std::int64_t now, bool fatal);
  void schedule_rendezvous(std::int64_t now, bool fatal);
  void end_rendezvous(std::int64_t now, bool fatal);
  void place_nodes();
  void take_throughput();
  void start_step(std::int64_t now);
  void end_step(const CompatEvent& event);
  void take_checkpoint();
  bool checkpoint_fails();
  void fall_back(std::int64_t now);
  bool should_rebuild() const;
  CompatResult result() const;

  const OobleckModel& model_;
  OobleckSystem system_;
  const NodeThroughput& throughput_;
  bool falls_back_;
  CompatQueue queue_;
  std::int64_t end_ = 0;

  State state_ = State::stopped;
  std::vector<Node> nodes_;  ///< In order of arrival.
  std::vector<int> participants_;
  int rendezvous_ = 0;
  int pipelines_ = 0;
  int waiting_ = 0;
  std::int64_t step_ms_ = 0;
  std::int64_t restart_ms_ = 0;  ///< Varuna.
  std::optional<std::int64_t> started_;
  std::int64_t step_began_ = 0;
  std::int64_t steps_ = 0;

  /// Bamboo's first loss since the last rendezvous: steps so far, time.
  std::optional<std::pair<std::int64_t, std::int64_t>> loss_;
  bool loss_paid_ = false;
  bool lost_since_checkpoint_ = false;  ///< Varuna.
  std::optional<std::int64_t> checkpointed_;

  /// Ends of steps, from and to by turns, and samples per second at each. Varuna's fall-backs can
  /// make `rates_` the longer one; the count pairs them by position.
  std::vector<std::int64_t> ends_;
  std::vector<double> rates_;
  CompatBreakdown breakdown_;
};

CompatRun::CompatRun(const OobleckModel& model, OobleckSystem system,
                     const NodeThroughput& throughput, const std::vector<NodeChange>& changes,
                     bool falls_back)
    : model_(model),
      system_(system),
      throughput_(throughput),
      falls_back_(falls_back),
      restart_ms_(to_ms(model.varuna_restart)) {
  std::map<std::string, int> ids;
  for (const NodeChange& change : changes) {
    const int id = ids.try_emplace(change.name, static_cast<int>(ids.size())).first->second;
    queue_.push({change.ms, change.comes ? CompatKind::add : CompatKind::remove, id});
  }
  queue_.rebuild();
  end_ = queue_.in_memory().back().ms;
}

CompatRun::Node* CompatRun::find(int id) {
  const auto found =
      std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& node) { return node.id == id; });
  return found == nodes_.end() ? nullptr : &*found;
}

CompatResult CompatRun::run() {
  while (!queue_.empty()) {
    const CompatEvent event = queue_.pop();
    if (event.ms >= end_) break;
    handle(event);
  }
  return result();
}

void CompatRun::handle(const CompatEvent& event) {
  switch (event.kind) {
    case CompatKind::add:
      nodes_.push_back({event.subject, Node::State::booting, {}});
      queue_.push({event.ms + to_ms(kNodeReady), CompatKind::ready, event.subject});
      break;
    case CompatKind::remove:
      remove(event.subject, event.ms);
      break;
    case CompatKind::ready:
      ready(event.subject, event.ms);
      break;
    case CompatKind::fatal_rendezvous:
    case CompatKind::rendezvous:
      end_rendezvous(event.ms, event.kind == CompatKind::fatal_rendezvous);
      break;
    case CompatKind::step:
      if (event.subject == rendezvous_) end_step(event);
      break;
    case CompatKind::checkpoint:
      break;
  }
}

void CompatRun::ready(int id, std::int64_t now) {
  Node* node = find(id);
  if (node == nullptr) return;
  node->state = Node::State::waiting;
  if (state_ == State::stopped) {
    start_rendezvous(now, true);
  } else if (state_ == State::rendezvous) {
    participants_.push_back(id);
  } else {
    ++waiting_;
  }
}

void CompatRun::remove(int id, std::int64_t now) {
  const Node* found = find(id);
  ORRERY_CHECK(found != nullptr, "node {} is not there", id);
  const Node lost = *found;
  nodes_.erase(nodes_.begin() + (found - nodes_.data()));
  if (is(OobleckSystem::varuna)) {
    lost_since_checkpoint_ = true;
    if (falls_back_) fall_back(now);
  } else {
    breakdown_.fallback += static_cast<double>(step_ms_);
    if (is(OobleckSystem::oobleck)) queue_.rebuild();
  }
  if (!is(OobleckSystem::bamboo) || (lost.state == Node::State::working && !shadowed(lost))) {
    start_rendezvous(now, true);
  } else {
    slow_down(now);
  }
}

/// Whether the node before it takes over; false: its work is lost.
bool CompatRun::shadowed(const Node& lost) {
  if (lost.places.size() > 1) return false;
  const Place place = lost.places.front();
  const Place before{place.first, (place.second + kLeastNodes - 1) % kLeastNodes};
  for (Node& node : nodes_) {
    if (std::find(node.places.begin(), node.places.end(), before) == node.places.end()) continue;
    if (node.places.size() > 1) return false;
    node.places.push_back(place);
    break;
  }
  return true;
}

void CompatRun::slow_down(std::int64_t now) {
  if (state_ != State::running || loss_) return;
  loss_ = {steps_, now};
  loss_paid_ = false;
  step_ms_ = static_cast<std::int64_t>(static_cast<double>(step_ms_) * kBambooSlowdown);
}

void CompatRun::start_rendezvous(std::int64_t now, bool fatal) {
  state_ = State::rendezvous;
  schedule_rendezvous(now, fatal);
}

void CompatRun::schedule_rendezvous(std::int64_t now, bool fatal) {
  participants_.clear();
  for (const Node& node : nodes_) {
    if (node.state != Node::State::booting) participants_.push_back(node.id);
  }
  std::int64_t takes = 0;
  if (is(OobleckSystem::bamboo)) {
    takes = to_ms(fatal ? kBambooRestart : model_.bamboo_rebuild);
  } else if (is(OobleckSystem::varuna)) {
    takes = restart_ms_ - to_ms(model_.varuna_checkpoint);
  } else {
    takes = to_ms(model_.oobleck_stall);
  }
  breakdown_.restart += static_cast<double>(takes);
  queue_.push({now + takes, fatal ? CompatKind::fatal_rendezvous : CompatKind::rendezvous, 0});
}

void CompatRun::end_rendezvous(std::int64_t now, bool fatal) {
  const bool complete = std::all_of(participants_.begin(), participants_.end(),
                                    [&](int id) { return find(id) != nullptr; });
  if (!complete) {
    schedule_rendezvous(now, fatal);
    return;
  }
  place_nodes();
  loss_.reset();
  loss_paid_ = false;
  ++rendezvous_;
  participants_.clear();
  if (pipelines_ == 0) {
    state_ = State::stopped;
    return;
  }
  state_ = State::running;
  take_throughput();
  start_step(now);
  if (!started_) {
    started_ = now;
    step_began_ = now;
  }
}

void CompatRun::place_nodes() {
  const int count = static_cast<int>(participants_.size());
  pipelines_ = count / kLeastNodes;
  waiting_ = 0;
  for (int i = 0; i < count; ++i) {
    Node& node = *find(participants_[static_cast<std::size_t>(i)]);
    if (i < pipelines_ * kLeastNodes) {
      node.state = Node::State::working;
      node.places = {{i / kLeastNodes, i % kLeastNodes}};
    } else {
      node.state = Node::State::waiting;
      node.places.clear();
      ++waiting_;
    }
  }
}

void CompatRun::take_throughput() {
  const auto active = std::count_if(nodes_.begin(), nodes_.end(), [](const Node& node) {
    return node.state != Node::State::booting;
  });
  const double rate = throughput_at(throughput_, static_cast<int>(active));
  constexpr std::int64_t kNever = 1'000'000'000'000;
  step_ms_ = rate == 0 ? kNever : static_cast<std::int64_t>((model_.samples / rate) * 1000);
  if (model_.varuna_restart_by_nodes.empty()) return;
  const auto& table = model_.varuna_restart_by_nodes;
  restart_ms_ = to_ms(
      table.at(std::clamp(static_cast<int>(active), table.begin()->first, table.rbegin()->first)));
}

void CompatRun::start_step(std::int64_t now) {
  const double useful = is(OobleckSystem::bamboo) ? kBambooUseful : 1;
  breakdown_.effective += static_cast<double>(step_ms_) * useful;
  breakdown_.redundant += static_cast<double>(step_ms_) * (1 - useful);
  queue_.push({now + step_ms_, CompatKind::step, rendezvous_});
}

void CompatRun::end_step(const CompatEvent& event) {
  if (loss_ && !loss_paid_ && loss_->first == steps_) {
    const auto more = static_cast<std::int64_t>(static_cast<double>(event.ms - loss_->second) *
                                                (kBambooSlowdown - 1));
    queue_.push({event.ms + more, CompatKind::step, event.subject});
    loss_paid_ = true;
    return;
  }
  ++steps_;
  const double seconds = static_cast<double>(event.ms - step_began_) / 1000;
  const double rate = seconds == 0 ? 0 : model_.samples / seconds;
  ends_.insert(ends_.end(), {step_began_, event.ms});
  rates_.insert(rates_.end(), {rate, rate});
  step_began_ = event.ms;
  if (is(OobleckSystem::varuna) && (steps_ % kCheckpointEvery == 0 || lost_since_checkpoint_)) {
    take_checkpoint();
  }
  if (is(OobleckSystem::bamboo) && should_rebuild()) {
    start_rendezvous(step_began_, false);
  } else {
    start_step(step_began_);
  }
}

void CompatRun::take_checkpoint() {
  lost_since_checkpoint_ = false;
  step_began_ += to_ms(model_.varuna_checkpoint);
  breakdown_.checkpoint += static_cast<double>(to_ms(model_.varuna_checkpoint));
  queue_.push({step_began_ + to_ms(model_.varuna_checkpoint), CompatKind::checkpoint, 0});
  queue_.rebuild();
  if (!falls_back_ || !checkpoint_fails()) {
    checkpointed_ = step_began_;
    return;
  }
  breakdown_.fallback += static_cast<double>(kCheckpointEvery * step_ms_);
  steps_ = std::max<std::int64_t>(0, steps_ - kCheckpointEvery);
  // Two entries a step. A shorter list grows: what follows is no longer next to its own times.
  constexpr std::size_t kEntries = 2 * kCheckpointEvery;
  rates_.resize(std::max(rates_.size(), kEntries));
  std::fill(rates_.end() - kEntries, rates_.end(), 0.0);
}

bool CompatRun::checkpoint_fails() {
  for (const CompatEvent& event : queue_.in_memory()) {
    if (event.kind == CompatKind::remove) return true;
    if (event.kind == CompatKind::checkpoint) return false;
  }
  return false;
}

void CompatRun::fall_back(std::int64_t now) {
  if (!checkpointed_) {
    std::fill(rates_.begin(), rates_.end(), 0.0);
    breakdown_.fallback += static_cast<double>(now);
    return;
  }
  const std::size_t known = std::min(ends_.size(), rates_.size());
  std::size_t at = 0;
  while (at + 1 < known && ends_[at] != *checkpointed_) ++at;
  const std::size_t from = std::min(at + 1, rates_.size());
  std::fill(rates_.begin() + static_cast<std::ptrdiff_t>(from), rates_.end(), 0.0);
  breakdown_.fallback += static_cast<double>(step_ms_) * static_cast<double>(rates_.size() - from);
}

bool CompatRun::should_rebuild() const {
  const int overloaded =
      static_cast<int>(std::count_if(nodes_.begin(), nodes_.end(), [](const Node& node) {
        return node.state == Node::State::working && node.places.size() > 1;
      }));
  const int active = pipelines_ * kLeastNodes - overloaded;
  if (overloaded > 0 && (waiting_ >= overloaded || 2.0 * overloaded / active > 0.05)) return true;
  return (active + waiting_) / kLeastNodes > pipelines_;
}

CompatResult CompatRun::result() const {
  CompatResult result;
  result.steps = static_cast<int>(steps_);
  result.breakdown = breakdown_;
  if (ends_.empty() || ends_.back() == *started_) return result;
  double samples = 0;
  for (std::size_t i = 1; i < std::min(ends_.size(), rates_.size()); i += 2) {
    samples += static_cast<double>(ends_[i] - ends_[i - 1]) / 1000 * rates_[i];
  }
  result.samples_per_second = samples / (static_cast<double>(ends_.back() - *started_) / 1000);
  return result;
}

}  // namespace

CompatResult count_compat(const OobleckModel& model, OobleckSystem system,
                          const NodeThroughput& throughput, const std::vector<NodeChange>& changes,
                          bool falls_back) {
  return CompatRun(model, system, throughput, changes, falls_back).run();
}

}  // namespace orrery::experiments

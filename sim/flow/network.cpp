#include "sim/flow/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <limits>
#include <span>

#include "models/base/check.h"
#include "models/base/id_vector.h"
#include "sim/flow/compat.h"
#include "sim/flow/event_queue.h"

namespace orrery::sim {

namespace s4u = compat::s4u;
namespace kernel = simgrid::kernel;
using kernel::routing::NetPoint;

/// Two hosts represent all: SimGrid asks for a route when a flow starts, and gets that of the flow
/// which is being started.
class FlatZone final : public kernel::routing::NetZoneImpl {
 public:
  explicit FlatZone(const std::string& name) : NetZoneImpl(name) {}

  /// Reports no latency: the engine adds it after the flow (see FlowEngine).
  void get_local_route(const NetPoint*, const NetPoint*, kernel::routing::Route* into,
                       double*) override {
    into->link_list_.insert(into->link_list_.end(), route.begin(), route.end());
  }

  std::vector<kernel::resource::StandardLinkImpl*> route;
};

namespace {

/// SimGrid keeps its engine in a global; it is created once and lives as long as the process.
/// SimGrid installs handlers of its own; signals belong to the program that uses us.
class KeepSignalHandlers {
 public:
  KeepSignalHandlers() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &before_[i]);
  }
  ~KeepSignalHandlers() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  KeepSignalHandlers(const KeepSignalHandlers&) = delete;
  KeepSignalHandlers& operator=(const KeepSignalHandlers&) = delete;

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGSEGV, SIGABRT};
  std::array<struct sigaction, kSignals.size()> before_ = {};
};

s4u::Engine& the_engine(const FlowOptions& options) {
  static bool created = false;
  ORRERY_CHECK(!created, "a process can hold one FlowEngine in its life");
  created = true;
  std::vector<std::string> words = {
      "orrery",
      "--log=root.thres:warning",
      "--cfg=contexts/factory:raw",
      "--cfg=network/model:CM02",
      "--cfg=network/optim:Lazy",
      "--cfg=network/crosstraffic:0",
      "--cfg=network/TCP-gamma:1e20",
      fmt::format("--cfg={}:{}", compat::kTimingPrecision, options.timing_precision.value)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int count = static_cast<int>(words.size());
  const KeepSignalHandlers keep;
  static s4u::Engine* const engine = new s4u::Engine(&count, arguments.data());
  return *engine;
}

}  // namespace

/// A flow that has its links to itself takes bytes / the narrowest of them, and no solver is asked
/// for it: such lone flows are kept here, by their ends. When another one asks for a link of it, a
/// flow is handed over to SimGrid with the bytes that it has left, and shares. SimGrid's loop runs
/// only when a flow of its own ends; its clock follows ours to where one starts. Times are to the
/// bit those that SimGrid alone would give (FlowOptions::solve_all): dates are made, and the clock
/// moves to them, by the same additions.
class Network::Impl {
 public:
  struct UsedLink {
    s4u::Link* link;
    kernel::resource::StandardLinkImpl* impl;  ///< Of `link`.
  };

  Impl(FlowPlatform platform, const FlowOptions& options, Listener& listener)
      : listener_(listener),
        routes_(std::move(platform.routes)),
        precision_(options.timing_precision.value),
        lone_flows_(compat::kShowsModel && !options.solve_all),
        engine_(the_engine(options)),
        root_(compat::root_zone(engine_)),
        zone_(*new FlatZone("platform")),
        late_zone_(*new FlatZone("links")),
        place_of_link_(platform.links.size(), -1),
        link_on_(platform.links.size(), true),
        host_on_(platform.hosts, true),
        users_(platform.links.size(), 0),
        times_(platform.links.size(), 0) {
    s4u::NetZone* const zone = zone_.get_iface();
    zone->set_parent(root_);
    bandwidths_.reserve(platform.links.size());
    for (const LinkSpec& spec : platform.links) {
      ORRERY_CHECK(spec.bandwidth.value > 0 && std::isfinite(spec.bandwidth.value),
                   "link {} has bandwidth {}", bandwidths_.size(), spec.bandwidth.value);
      bandwidths_.push_back(spec.bandwidth.value);
    }
    ends_ = {compat::add_host(zone, "source", 1.0), compat::add_host(zone, "destination", 1.0)};
    zone->seal();
    root_->seal();
    engine_.seal_platform();
    late_zone_.set_network_model(zone_.get_network_model());
    live_ = this;
    compat::on_comm_end([](const s4u::Comm& comm) {
      if (live_ != nullptr) live_->comm_ended(comm);
    });
  }
  ~Impl() {
    live_ = nullptr;
    set_timer(kNever);
  }

  // ---- time ----
  double now() const { return clock_; }
  void set_alarm(double time) { alarm_ = time; }
  void clear_alarm() { alarm_ = kNever; }

  void run() {
    if (lone_flows_) {
      while (step(kNever)) {
      }
    } else {
      follow(kNever);
    }
    retired_.clear();
  }
  void run_until(double time) {
    do {
      if (lone_flows_) {
        step(time);
      } else {
        follow(time);
      }
    } while (clock_ < time);
  }
  void settle() {
    if (!lone_flows_) return follow(clock_);
    if (dirty_) clear_away();
  }

  const Route& route(int source, int destination) {
    if (source != route_source_ || destination != route_destination_) {
      route_.links.clear();
      Seconds latency;
      routes_->route(source, destination, route_.links, latency);
      route_.latency = latency.value;
      route_source_ = source;
      route_destination_ = destination;
    }
    return route_;
  }

  UsedLink& link(LinkId id) {
    std::int32_t& place = place_of_link_[id];
    if (place < 0) {
      place = static_cast<std::int32_t>(used_links_.size());
      s4u::Link* const made = compat::add_link(late_zone_.get_iface(),
                                               fmt::format("link{}", id.value), bandwidths_[id]);
      made->seal();
      used_links_.push_back({made, made->get_impl()});
    }
    return used_links_[place];
  }
  /// Null: no flow has used it yet.
  s4u::Link* used(LinkId id) const {
    const std::int32_t place = place_of_link_[id];
    return place < 0 ? nullptr : used_links_[place].link;
  }

  std::int32_t start(std::int32_t task, const Route& route, std::uint64_t bytes) {
    if (free_slots_.empty()) {
      free_slots_.push_back(static_cast<std::int32_t>(slots_.size()));
      slots_.emplace_back();
    }
    const std::int32_t slot = free_slots_.back();
    free_slots_.pop_back();
    Slot& flow = slots_[slot];
    flow.task = task;
    flow.bytes = bytes;
    flow.links = route.links;
    if (!start_alone(slot)) {
      hand_over_users(route.links);
      start_in_solver(slot);
    }
    return slot;
  }
  std::vector<std::int32_t> running() const {
    std::vector<std::int32_t> tasks;
    for (const Slot& slot : slots_)
      if (slot.state != Slot::State::free) tasks.push_back(slot.task);
    std::sort(tasks.begin(), tasks.end());
    return tasks;
  }
  void cancel(std::int32_t slot) {
    if (slots_[slot].state != Slot::State::solved) return retire_lone(slot);
    synchronize();
    const s4u::CommPtr comm = retire(slot);
    comm->cancel();
    dirty_ = true;
  }

  void set_link(LinkId link, bool on) {
    if (link_on_[link] != on) dead_links_ += on ? -1 : 1;
    link_on_[link] = on;
    hand_over_users({&link, 1});
    s4u::Link* const known = used(link);
    if (known == nullptr) return;
    synchronize();
    on ? known->turn_on() : known->turn_off();
    dirty_ = true;
  }
  void set_bandwidth(LinkId link, double bandwidth) {
    hand_over_users({&link, 1});
    bandwidths_[link] = bandwidth;
    s4u::Link* const known = used(link);
    if (known == nullptr) return;
    synchronize();
    known->set_bandwidth(bandwidth);
    unsolved_ = true;
  }

  Listener& listener_;
  std::shared_ptr<const RouteTable> routes_;
  double precision_;  ///< FlowOptions::timing_precision
  bool lone_flows_;   ///< Else all go through the solver.
  s4u::Engine& engine_;
  s4u::NetZone* root_;  ///< Must exist before other zones.
  FlatZone& zone_;      ///< Owned by SimGrid.
  /// SimGrid's platform is complete before the first run; links that a flow asks for later lie in a
  /// zone that is never part of it. A million links cost nothing until they are used.
  FlatZone& late_zone_;
  std::vector<UsedLink> used_links_;
  IdVector<LinkId, std::int32_t> place_of_link_;  ///< In used_links_; -1 until used.
  IdVector<LinkId, double> bandwidths_;
  IdVector<LinkId, bool> link_on_;
  int dead_links_ = 0;
  std::vector<bool> host_on_;
  std::array<s4u::Host*, 2> ends_ = {};

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  struct Slot {
    enum class State : std::uint8_t {
      free,
      lone,
      due,     ///< A lone flow that has ended at this instant; the listener is to be told.
      solved,  ///< In SimGrid.
    };
    State state = State::free;
    bool queued = false;  ///< In `ends_of_lone_`, perhaps with an end that no longer holds.
    std::int32_t task = -1;
    std::uint64_t bytes = 0;
    double start = 0, rate = 0;  ///< Of a lone flow, and so is `order`: in which they started.
    std::int64_t order = 0;
    std::vector<LinkId> links;
    s4u::CommPtr comm;
  };

  // ---- the clock ----
  /// To what happens next, at most `until`. False: nothing is pending.
  bool step(double until) {
    if (dirty_) clear_away();
    const double next = std::min({alarm_, next_lone_end(), until});
    const double solved = next_solved_end();
    if (std::min(next, solved) == kNever) return false;
    if (solved - next >= precision_) {
      clock_ += next - clock_;  // as SimGrid moves its clock
      handle_instant();
    } else {
      step_solver(next, solved);
    }
    return true;
  }
  /// When SimGrid's next flow ends, if nothing changes.
  double next_solved_end() {
    if (solved_ == 0) return kNever;
    if (std::exchange(unsolved_, false)) compat::solve(model_);
    return compat::next_end(model_).value_or(clock_);
  }
  /// SimGrid goes to `next` or the end of its next flow, whichever comes first.
  void step_solver(double next, double solved) {
    synchronize();
    in_solver_ = true;
    if (next <= solved) set_timer(next);
    engine_.run_until(std::min(next, solved));
    left_solver();
  }
  /// SimGrid looks for failed activities after its solver moved the clock; this moves it by
  /// nothing.
  void clear_away() {
    synchronize();
    in_solver_ = true;
    dirty_ = false;
    engine_.run_until(clock_);
    left_solver();
  }
  void left_solver() {
    in_solver_ = false;
    set_timer(kNever);
    clock_ = s4u::Engine::get_clock();
    unsolved_ = true;
  }
  /// Moves SimGrid's clock to ours, by steps that are exact; nothing happens meanwhile.
  void synchronize() {
    if (in_solver_) return;
    for (double now = s4u::Engine::get_clock(); now < clock_; now = s4u::Engine::get_clock()) {
      engine_.run_until(now > 0 ? std::min(clock_, 2 * now) : clock_);
    }
  }
  /// All flows are SimGrid's, and so is the clock: it runs its own loop, with a timer for the
  /// alarm.
  void follow(double until) {
    in_solver_ = true;
    follows_ = true;
    set_timer(alarm_);
    until == kNever ? engine_.run() : engine_.run_until(until);
    follows_ = false;
    left_solver();
  }

  void set_timer(double time) {
    if (timer_time_ == time) return;
    if (timer_ != nullptr) timer_->remove();
    timer_ = nullptr;
    timer_time_ = time;
    if (time == kNever) return;
    timer_ = kernel::timer::Timer::set(time, [this] {
      timer_ = nullptr;
      timer_time_ = kNever;
      clock_ = s4u::Engine::get_clock();
      handle_instant();
      if (follows_) set_timer(alarm_);
    });
  }

  /// In SimGrid, too, flows end that are due when the clock moves, but timers come first.
  void handle_instant() {
    find_due();
    while (alarm_ <= clock_) {
      alarm_ = kNever;
      listener_.alarm();
    }
    tell_due();
  }

  // ---- lone flows ----
  double next_lone_end() {
    while (!ends_of_lone_.empty() && !is_end(ends_of_lone_.top())) drop_top_end();
    return ends_of_lone_.empty() ? kNever : ends_of_lone_.top().time;
  }
  bool is_end(const EventQueue::Event& event) const {
    return slots_[event.subject].state == Slot::State::lone;
  }
  void drop_top_end() {
    const std::int32_t slot = ends_of_lone_.pop().subject;
    slots_[slot].queued = false;
    if (slots_[slot].state == Slot::State::free) free_slots_.push_back(slot);
  }

  /// False: it meets others, or its end cannot be told as SimGrid would.
  bool start_alone(std::int32_t slot) {
    Slot& flow = slots_[slot];
    if (!lone_flows_) return false;
    for (const LinkId link : flow.links) {
      if (users_[link] != 0) return false;
    }
    flow.start = clock_;
    flow.rate = rate_alone(flow.links);
    const double end = clock_ + static_cast<double>(flow.bytes) / flow.rate;
    // Shorter ones may end before the clock moves; of a date further away than the clock has come
    // the distance is rounded, and differently if others come between.
    if (end - clock_ < 2 * precision_ || (clock_ > 0 && end > 2 * clock_)) return false;
    for (const LinkId link : flow.links) users_[link] = ~slot;
    flow.state = Slot::State::lone;
    flow.order = started_++;
    flow.queued = true;
    ends_of_lone_.push(end, slot);
    return true;
  }
  double rate_alone(const std::vector<LinkId>& links) {
    for (const LinkId link : links) ++times_[link];
    double rate = kNever;
    for (const LinkId link : links) rate = std::min(rate, bandwidths_[link] / times_[link]);
    for (const LinkId link : links) times_[link] = 0;
    return rate;
  }
  /// Lone flows on these links go on in the solver, in the order in which they started.
  void hand_over_users(std::span<const LinkId> links) {
    moved_.clear();
    for (const LinkId link : links) {
      if (users_[link] >= 0) continue;
      const std::int32_t slot = ~users_[link];
      if (std::find(moved_.begin(), moved_.end(), slot) == moved_.end()) moved_.push_back(slot);
    }
    std::sort(moved_.begin(), moved_.end(),
              [&](std::int32_t a, std::int32_t b) { return slots_[a].order < slots_[b].order; });
    for (const std::int32_t slot : moved_) {
      const Slot& flow = slots_[slot];
      for (const LinkId link : flow.links) users_[link] = 0;
      const double moved = flow.rate * (clock_ - flow.start);
      start_in_solver(slot);
      if (moved > 0) compat::carry(model_, moved);
    }
  }
  void find_due() {
    while (next_lone_end() - clock_ < precision_) {
      const std::int32_t slot = ends_of_lone_.top().subject;
      Slot& flow = slots_[slot];
      for (const LinkId link : flow.links) users_[link] = 0;
      flow.state = Slot::State::due;
      due_.push_back(slot);
      drop_top_end();
    }
  }
  void tell_due() {
    for (const std::int32_t slot : due_) {
      if (slots_[slot].state != Slot::State::due) continue;  // canceled
      slots_[slot].state = Slot::State::free;
      free_slots_.push_back(slot);
      listener_.flow_ended(slots_[slot].task, true);
    }
    due_.clear();
  }
  void retire_lone(std::int32_t slot) {
    Slot& flow = slots_[slot];
    if (flow.state == Slot::State::lone) {
      for (const LinkId link : flow.links) users_[link] = 0;
    }
    flow.state = Slot::State::free;
    if (!flow.queued) free_slots_.push_back(slot);
  }

  // ---- flows in SimGrid ----
  void start_in_solver(std::int32_t slot) {
    synchronize();
    Slot& flow = slots_[slot];
    for (const LinkId link : flow.links) ++users_[link];
    flow.state = Slot::State::solved;
    ++solved_;
    flow.comm = s4u::Comm::sendto_init();
    flow.comm->set_payload_size(flow.bytes);
    flow.comm->set_data(reinterpret_cast<void*>(static_cast<std::intptr_t>(slot)));
    zone_.route.clear();
    for (const LinkId id : flow.links) zone_.route.push_back(link(id).impl);
    compat::start_between(flow.comm, ends_[0], ends_[1]);
    if (lone_flows_) model_ = compat::model_of(engine_, *flow.comm, model_);
    unsolved_ = true;
  }
  /// Frees the slot. SimGrid may tell of the activity once more within this instant, so it lives
  /// until the clock moves.
  s4u::CommPtr retire(std::int32_t slot) {
    const double now = s4u::Engine::get_clock();
    if (now != retired_at_) retired_.clear();
    retired_at_ = now;
    Slot& flow = slots_[slot];
    for (const LinkId link : flow.links) --users_[link];
    flow.state = Slot::State::free;
    --solved_;
    retired_.push_back(std::move(flow.comm));
    if (!flow.queued) free_slots_.push_back(slot);
    return retired_.back();
  }
  void comm_ended(const s4u::Comm& comm) {
    const auto slot =
        static_cast<std::int32_t>(reinterpret_cast<std::intptr_t>(comm.get_data<void>()));
    if (slots_[slot].comm.get() != &comm) return;  // canceled by us, or told a second time
    clock_ = s4u::Engine::get_clock();
    find_due();
    tell_due();
    if (slots_[slot].comm.get() != &comm) return;
    const s4u::CommPtr kept = retire(slot);
    listener_.flow_ended(slots_[slot].task, kept->get_state() == s4u::Activity::State::FINISHED);
    if (follows_) set_timer(alarm_);
  }

  static inline Impl* live_ = nullptr;  ///< SimGrid's signals are global and cannot be left.
  Route route_;
  int route_source_ = -1, route_destination_ = -1;
  double clock_ = 0;
  double alarm_ = kNever;
  kernel::timer::Timer* timer_ = nullptr;
  double timer_time_ = kNever;
  bool in_solver_ = false;          ///< SimGrid's loop is on the stack.
  bool follows_ = false;            ///< In follow().
  bool unsolved_ = false;           ///< SimGrid's flows or links have changed since its solver ran.
  bool dirty_ = false;              ///< SimGrid has failed or canceled flows to clear away.
  compat::Model* model_ = nullptr;  ///< Of the network, once a flow has started.
  int solved_ = 0;                  ///< Flows in SimGrid.
  /// By link: how often flows in SimGrid cross it, or ~ of the slot of a lone flow.
  IdVector<LinkId, std::int32_t> users_;
  IdVector<LinkId, std::int32_t> times_;  ///< Scratch of rate_alone().
  EventQueue ends_of_lone_;               ///< Subject: a slot.
  std::int64_t started_ = 0;              ///< Lone flows.
  std::vector<std::int32_t> due_, moved_;
  std::vector<Slot> slots_;
  std::vector<std::int32_t> free_slots_;
  std::vector<s4u::CommPtr> retired_;
  double retired_at_ = 0;
};

Network::Network(FlowPlatform platform, const FlowOptions& options, Listener& listener)
    : impl_(std::make_unique<Impl>(std::move(platform), options, listener)) {}
Network::~Network() = default;

double Network::now() const { return impl_->now(); }
void Network::run() { impl_->run(); }
void Network::run_until(double time) { impl_->run_until(time); }
void Network::settle() { impl_->settle(); }
void Network::set_alarm(double time) { impl_->set_alarm(time); }
void Network::clear_alarm() { impl_->clear_alarm(); }

const Network::Route& Network::route(int source, int destination) {
  return impl_->route(source, destination);
}
bool Network::alive(const Route& route) const {
  if (impl_->dead_links_ == 0) return true;
  for (const LinkId link : route.links)
    if (!link_on(link)) return false;
  return true;
}
std::vector<std::int32_t> Network::running() const { return impl_->running(); }
void Network::make_links() {
  for (std::size_t i = 0; i < links(); ++i) impl_->link({static_cast<std::int32_t>(i)});
}
std::int32_t Network::start(std::int32_t task, const Route& route, std::uint64_t bytes) {
  return impl_->start(task, route, bytes);
}
void Network::cancel(std::int32_t slot) { impl_->cancel(slot); }

void Network::set_link(LinkId link, bool on) { impl_->set_link(link, on); }
void Network::set_host(int host, bool on) { impl_->host_on_[host] = on; }
void Network::set_bandwidth(LinkId link, double bandwidth) {
  impl_->set_bandwidth(link, bandwidth);
}
bool Network::link_on(LinkId link) const { return impl_->link_on_[link]; }
bool Network::host_on(int host) const { return impl_->host_on_[host]; }
std::size_t Network::links() const { return impl_->bandwidths_.size(); }
std::size_t Network::hosts() const { return impl_->host_on_.size(); }

std::string simgrid_version() {
  int major = 0, minor = 0, patch = 0;
  sg_version_get(&major, &minor, &patch);
  return fmt::format("{}.{}.{}", major, minor, patch);
}

std::vector<std::pair<std::string, std::string>> Network::effective_config() const {
  std::vector<std::pair<std::string, std::string>> result;
  result.emplace_back("simgrid/version", simgrid_version());
  for (const char* name : {"contexts/factory", "network/model", "network/optim"})
    result.emplace_back(name, simgrid::config::get_value<std::string>(name));
  for (const char* name :
       {"network/TCP-gamma", "network/bandwidth-factor", "network/latency-factor",
        "network/weight-S", compat::kTimingPrecision, compat::kWorkPrecision})
    result.emplace_back(name, fmt::format("{}", simgrid::config::get_value<double>(name)));
  for (const char* name : {"network/crosstraffic", "network/maxmin-selective-update"})
    result.emplace_back(name, simgrid::config::get_value<bool>(name) ? "1" : "0");
  return result;
}

}  // namespace orrery::sim

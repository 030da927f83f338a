#include "sim/flow/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>

#include "models/base/check.h"
#include "models/base/id_vector.h"
#include "sim/flow/compat.h"

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

class Network::Impl {
 public:
  struct UsedLink {
    s4u::Link* link;
    kernel::resource::StandardLinkImpl* impl;  ///< Of `link`.
  };

  Impl(FlowPlatform platform, const FlowOptions& options, Listener& listener)
      : listener_(listener),
        routes_(std::move(platform.routes)),
        engine_(the_engine(options)),
        root_(compat::root_zone(engine_)),
        zone_(*new FlatZone("platform")),
        late_zone_(*new FlatZone("links")),
        place_of_link_(platform.links.size(), -1),
        link_on_(platform.links.size(), true),
        host_on_(platform.hosts, true) {
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
    clear_alarm();
  }

  void set_alarm(double time) {
    if (alarm_ != nullptr && alarm_time_ == time) return;
    clear_alarm();
    alarm_time_ = time;
    alarm_ = kernel::timer::Timer::set(time, [this] {
      alarm_ = nullptr;
      listener_.alarm();
    });
  }
  void clear_alarm() {
    if (alarm_ != nullptr) alarm_->remove();
    alarm_ = nullptr;
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
    const s4u::CommPtr comm = s4u::Comm::sendto_init();
    comm->set_payload_size(bytes);
    comm->set_data(reinterpret_cast<void*>(static_cast<std::intptr_t>(slot)));
    slots_[slot] = {comm, task};
    zone_.route.clear();
    for (const LinkId id : route.links) zone_.route.push_back(link(id).impl);
    compat::start_between(comm, ends_[0], ends_[1]);
    return slot;
  }
  std::vector<std::int32_t> running() const {
    std::vector<std::int32_t> tasks;
    for (const Slot& slot : slots_)
      if (slot.comm != nullptr) tasks.push_back(slot.task);
    std::sort(tasks.begin(), tasks.end());
    return tasks;
  }
  void cancel(std::int32_t slot) {
    const s4u::CommPtr comm = retire(slot);
    comm->cancel();
  }
  void run() {
    engine_.run();
    retired_.clear();
  }

  Listener& listener_;
  std::shared_ptr<const RouteTable> routes_;
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
  struct Slot {
    s4u::CommPtr comm;
    std::int32_t task = -1;
  };

  /// Frees the slot. SimGrid may tell of the activity once more within this instant, so it lives
  /// until the clock moves.
  s4u::CommPtr retire(std::int32_t slot) {
    const double now = s4u::Engine::get_clock();
    if (now != retired_at_) retired_.clear();
    retired_at_ = now;
    retired_.push_back(std::move(slots_[slot].comm));
    free_slots_.push_back(slot);
    return retired_.back();
  }
  void comm_ended(const s4u::Comm& comm) {
    const auto slot = reinterpret_cast<std::intptr_t>(comm.get_data<void>());
    Slot& entry = slots_[slot];
    if (entry.comm.get() != &comm) return;  // canceled by us, or told a second time
    const s4u::CommPtr kept = retire(static_cast<std::int32_t>(slot));
    listener_.flow_ended(entry.task, kept->get_state() == s4u::Activity::State::FINISHED);
  }

  static inline Impl* live_ = nullptr;  ///< SimGrid's signals are global and cannot be left.
  Route route_;
  int route_source_ = -1, route_destination_ = -1;
  kernel::timer::Timer* alarm_ = nullptr;
  double alarm_time_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::int32_t> free_slots_;
  std::vector<s4u::CommPtr> retired_;
  double retired_at_ = 0;
};

Network::Network(FlowPlatform platform, const FlowOptions& options, Listener& listener)
    : impl_(std::make_unique<Impl>(std::move(platform), options, listener)) {}
Network::~Network() = default;

double Network::now() const { return s4u::Engine::get_clock(); }
void Network::run() { impl_->run(); }
/// SimGrid stops up to its timing precision early; each further call makes at least one step.
void Network::run_until(double time) {
  do {
    impl_->engine_.run_until(time);
  } while (now() < time);
}
/// SimGrid looks for failed activities after its solver moved the clock; this moves it by nothing.
void Network::settle() { impl_->engine_.run_until(now()); }
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

void Network::set_link(LinkId link, bool on) {
  if (impl_->link_on_[link] != on) impl_->dead_links_ += on ? -1 : 1;
  impl_->link_on_[link] = on;
  s4u::Link* const known = impl_->used(link);
  if (known != nullptr) on ? known->turn_on() : known->turn_off();
}
void Network::set_host(int host, bool on) { impl_->host_on_[host] = on; }
void Network::set_bandwidth(LinkId link, double bandwidth) {
  impl_->bandwidths_[link] = bandwidth;
  s4u::Link* const known = impl_->used(link);
  if (known != nullptr) known->set_bandwidth(bandwidth);
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

/// The differences between SimGrid 3.32 (Debian 12) and 4.x, and SimGrid's headers. Included by
/// network.cpp alone; only 3.32 is built and tested here, the other branches follow the headers
/// and the change log of the later releases.
#pragma once
#include <simgrid/forward.h>  // defines macros that version.h uses
#include <simgrid/version.h>

#include <simgrid/kernel/Timer.hpp>
#if SIMGRID_VERSION < 40000
#include <simgrid/kernel/resource/Model.hpp>
#endif
#include <optional>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <simgrid/s4u.hpp>
#include <string>
#include <xbt/config.hpp>

namespace orrery::sim::compat {

namespace s4u = simgrid::s4u;

/// The options below which two dates, and two amounts of work, count as equal.
#if SIMGRID_VERSION >= 40000
inline constexpr const char* kTimingPrecision = "precision/timing";
inline constexpr const char* kWorkPrecision = "precision/work-amount";
#else
inline constexpr const char* kTimingPrecision = "surf/precision";
inline constexpr const char* kWorkPrecision = "maxmin/precision";
#endif

/// Calls `callback(const s4u::Comm&)` whenever a communication finishes, fails or is canceled
/// (3.32: twice for a canceled one). Until 3.33 one signal served all kinds of activities; there
/// are no others here.
template <class Callback>
void on_comm_end(Callback callback) {
#if SIMGRID_VERSION >= 33400
  s4u::Comm::on_completion_cb([callback](const s4u::Comm& comm) { callback(comm); });
#else
  s4u::Activity::on_completion_cb([callback](const s4u::Activity& activity) {
    callback(static_cast<const s4u::Comm&>(activity));
  });
#endif
}

/// The zone that holds all others; 4.0 creates it with the engine.
inline s4u::NetZone* root_zone([[maybe_unused]] const s4u::Engine& engine) {
#if SIMGRID_VERSION >= 40000
  return engine.get_netzone_root();
#else
  return s4u::create_full_zone("root");
#endif
}

/// 4.1 renamed create_host and create_link.
inline s4u::Host* add_host(s4u::NetZone* zone, const std::string& name, double flops) {
#if SIMGRID_VERSION >= 40100
  return zone->add_host(name, flops);
#else
  return zone->create_host(name, flops);
#endif
}
inline s4u::Link* add_link(s4u::NetZone* zone, const std::string& name, double bandwidth) {
#if SIMGRID_VERSION >= 40100
  return zone->add_link(name, bandwidth);
#else
  return zone->create_link(name, bandwidth);
#endif
}

/// Sets the end points of a communication between hosts and starts it. 3.32 starts it when the
/// second end is known; later releases wait for start().
inline void start_between(const s4u::CommPtr& comm, s4u::Host* source, s4u::Host* destination) {
  comm->set_source(source);
  comm->set_destination(destination);
#if SIMGRID_VERSION >= 33400
  if (comm->get_state() == s4u::Activity::State::INITED) comm->start();
#endif
}

/// Whether SimGrid shows what it works with, so that flows can be handed over and their next end is
/// known; 4.0 hides it.
#if SIMGRID_VERSION >= 40000
inline constexpr bool kShowsModel = false;
struct Model {};
inline Model* model_of(const s4u::Engine&, s4u::Comm&, Model*) { return nullptr; }
inline void carry(Model*, double) {}
inline void solve(Model*) {}
inline std::optional<double> next_end(Model*) { return std::nullopt; }
#else
inline constexpr bool kShowsModel = true;
using simgrid::kernel::resource::Model;
/// Of the communication, the last one that was started; `known` if it has been found before.
inline Model* model_of(const s4u::Engine& engine, s4u::Comm& comm, Model* known) {
  if (known != nullptr) return known;
  for (Model* const model : engine.get_all_models()) {
    auto* const started = model->get_started_action_set();
    if (!started->empty() && started->back().get_activity() == comm.get_impl()) return model;
  }
  return nullptr;
}
/// The communication that was started last has moved `bytes` before.
inline void carry(Model* model, double bytes) {
  model->get_started_action_set()->back().update_remains(bytes);
}
/// Shares links anew after communications have started or ended, or links have changed.
inline void solve(Model* model) { model->next_occurring_event(s4u::Engine::get_clock()); }
/// When the next communication ends if nothing changes; after solve(). None: nothing moves.
inline std::optional<double> next_end(Model* model) {
  if (model->get_action_heap().empty()) return std::nullopt;
  return model->get_action_heap().top_date();
}
#endif

}  // namespace orrery::sim::compat

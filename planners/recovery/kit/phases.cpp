#include "planners/recovery/kit/phases.h"

#include <fmt/format.h>

#include "models/config/units.h"

namespace orrery::planners {

namespace {

constexpr const char* kAuto = "auto";

/// Seconds, or auto.
struct StallText {
  std::optional<Seconds> seconds;
};

bool from_scalar(const std::string& text, StallText& out, std::string& error) {
  out.seconds.reset();
  if (text == kAuto) return true;
  constexpr double kMost = 1e7;
  config::TextError unused;
  const auto number = config::parse_number(text, unused);
  if (number && *number >= 0 && *number <= kMost) {
    out.seconds = Seconds{*number};
    return true;
  }
  error = fmt::format("expected auto or seconds from 0 to {:g}, not '{}'", kMost, text);
  return false;
}

std::string to_scalar(const StallText& text) {
  return text.seconds ? config::format_number(text.seconds->value) : kAuto;
}

}  // namespace

std::vector<std::pair<Constants, const char*>> enum_names(Constants) {
  return {{Constants::runtime, "runtime"}, {Constants::as_published, "as_published"}};
}

void describe_stall(config::Visitor& v, const char* name, Stall& stall) {
  StallText text;
  if (stall.of == Stall::Of::option) text.seconds = stall.duration;
  const std::string published =
      stall.duration.value < 0 ? "by that formula" : fmt::format("{:g}", stall.duration.value);
  const std::string doc =
      fmt::format("{} auto: by the runtime; as_published: {}.", stall.source, published);
  v.optional(name, text, doc.c_str());
  if (text.seconds && v.reading()) {
    stall = {*text.seconds, fmt::format("option {}", name), Stall::Of::option};
  }
}

Stall settled(Stall stall, Constants constants) {
  if (stall.of == Stall::Of::published && constants == Constants::runtime) {
    stall = {{}, "runtime", Stall::Of::runtime};
  }
  return stall;
}

void describe_phases(config::Visitor& v, Phases& phases) {
  v.optional("constants", phases.constants,
             "of stalls and intervals that are auto. runtime: what is done costs what it costs on "
             "this runtime, for every policy; as_published: what the policy's paper printed.");
  describe_stall(v, "detect", phases.detect);
  describe_stall(v, "detect_exception", phases.detect_exception);
  describe_stall(v, "decide", phases.decide);
  describe_stall(v, "reinitialize", phases.reinitialize);
  if (phases.restart) describe_stall(v, "restart", *phases.restart);
}

Phases settled(Phases phases, const models::Runtime& runtime) {
  const auto by_monitor = [&](Stall& stall, Seconds seconds) {
    stall = settled(std::move(stall), phases.constants);
    if (stall.of != Stall::Of::runtime) return;
    stall.duration = seconds;
    stall.source = models::monitor_source(runtime);
  };
  by_monitor(phases.detect, models::detection_of_loss(runtime));
  by_monitor(phases.detect_exception, models::detection_of_process(runtime));
  phases.decide = settled(std::move(phases.decide), phases.constants);
  phases.reinitialize = settled(std::move(phases.reinitialize), phases.constants);
  if (phases.restart) *phases.restart = settled(std::move(*phases.restart), phases.constants);
  return phases;
}

void add_phase(models::RecoveryDecision& decision, PhaseKind kind, const Stall& stall) {
  const bool planning = kind == PhaseKind::decide && !stall.source.empty();
  if (stall.duration.value <= 0 && !planning) return;
  decision.phases.push_back({kind, to_nanoseconds(stall.duration), stall.source});
}

}  // namespace orrery::planners

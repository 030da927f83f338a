#include "sim/replay/question.h"

#include "models/base/check.h"
#include "models/base/hash.h"
#include "models/config/document.h"
#include "models/spec/library.h"

namespace orrery::sim {

void put(ByteWriter& out, const std::vector<models::StateTransfer>& transfers) {
  out.put(transfers.size());
  for (const auto& [from, to, source, destination, bytes] : transfers) {
    out.put(from);
    out.put(to);
    out.put(source.value);
    out.put(destination.value);
    out.put(bytes.value);
  }
}

void put(ByteWriter& out, const models::DegradedLinks& links) {
  out.put(links.size());
  for (const auto& [link, factor] : links) {
    out.put(std::string_view(link));
    out.put(factor);
  }
}

void put(ByteWriter& out, const std::vector<models::SlowDevice>& devices) {
  out.put(devices.size());
  for (const auto& [device, factor] : devices) {
    out.put(device.value);
    out.put(factor);
  }
}

std::vector<models::StateTransfer> get_transfers(ByteReader& in) {
  std::vector<models::StateTransfer> transfers(in.count());
  for (auto& [from, to, source, destination, bytes] : transfers) {
    from = in.get<ir::Location>();
    to = in.get<ir::Location>();
    source = {in.get<std::int32_t>()};
    destination = {in.get<std::int32_t>()};
    bytes = Bytes{in.get<double>()};
  }
  return transfers;
}

models::DegradedLinks get_degraded_links(ByteReader& in) {
  models::DegradedLinks links(in.count());
  for (auto& [link, factor] : links) {
    link = in.text();
    factor = in.get<double>();
  }
  return links;
}

std::vector<models::SlowDevice> get_slow_devices(ByteReader& in) {
  std::vector<models::SlowDevice> devices(in.count());
  for (auto& [device, factor] : devices) {
    device = {in.get<std::int32_t>()};
    factor = in.get<double>();
  }
  return devices;
}

std::string transfer_context(const models::Cluster& cluster, const ir::Profile& profile,
                             const std::vector<std::pair<std::string, std::string>>& simgrid) {
  ORRERY_CHECK(!cluster.hash.empty(), "cluster '{}' has no hash", cluster.name);
  ByteWriter out;
  out.put(std::string_view("transfers"));
  out.put(std::string_view(cluster.hash));
  out.put(std::string_view(cluster.power_hash));  // Evaluations of iterations have energy.
  out.put(std::string_view(models::dump_profile(profile)));
  for (const auto& [name, value] : simgrid) {
    out.put(std::string_view(name));
    out.put(std::string_view(value));
  }
  return content_digest(out.bytes());
}

std::string iteration_context(const std::string& transfers, const models::Workload& workload,
                              const models::Job& job, const IterationOptions& options) {
  ORRERY_CHECK(!workload.hash.empty(), "model '{}' has no hash", workload.name);
  ByteWriter out;
  out.put(std::string_view("iterations"));
  out.put(std::string_view(transfers));
  out.put(std::string_view(workload.hash));
  out.put(std::string_view(workload.shape.name));  // Entries of a profile may name a model.
  out.put(std::string_view(config::dump(job)));
  out.put(std::string_view(config::dump(options)));
  return content_digest(out.bytes());
}

}  // namespace orrery::sim

/// InfraGraph (github.com/Keysight/infragraph, schema 2.4), the infrastructure model of MLCommons
/// Chakra, with its counts and slices expanded. Private to calibration/importers.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/units.h"
#include "models/config/diagnostics.h"

namespace orrery::calibration {

enum class PartKind { custom, device, cpu, xpu, npu, nic, memory, port, switch_ };
std::vector<std::pair<PartKind, const char*>> enum_names(PartKind);

struct InfraLink {
  std::string name;
  config::Position at;
  std::optional<BytesPerSecond> bandwidth;
  std::optional<Seconds> latency;
  std::string text;  ///< Bandwidth as the file says it: "400 Gbps"; "16 GT/s" is no bandwidth.
};

/// One component of a device. What is in a device within the device is a part of both.
struct InfraPart {
  PartKind kind = PartKind::custom;  ///< Never `device`, nor `npu`, the old word for `xpu`.
  std::string name;                  ///< "nic[3]", "cx5[0].port[1]"
  std::string component;             ///< "nic"
  std::string device;                ///< That describes it.
  std::string description;
  int card = 0;  ///< First part of the device within the device that it belongs to, or its own.
};

/// Two parts of a device.
struct InfraWire {
  int a = 0;
  int b = 0;
  int link = 0;  ///< Index into InfraGraph::links.
  auto operator<=>(const InfraWire&) const = default;
};

struct InfraDevice {
  std::string name;
  config::Position at;
  std::vector<InfraPart> parts;
  std::vector<InfraWire> wires;  ///< Sorted, each once.

  bool has(PartKind kind) const;
};

struct InfraInstance {
  std::string name;
  config::Position at;
  int device = 0;
  int count = 0;
  int first = 0;  ///< Machine i of the instance is machine `first` + i of all.
};

/// A part of one machine (a device that stands somewhere).
struct InfraEnd {
  int machine = 0;
  int part = 0;
  auto operator<=>(const InfraEnd&) const = default;
};

struct InfraEdge {
  InfraEnd a;
  InfraEnd b;
  int link = 0;
  int source = 0;  ///< Index into InfraGraph::edges_at.
};

struct InfraGraph {
  std::string name;
  std::vector<InfraLink> links;
  std::vector<InfraDevice> devices;
  std::vector<InfraInstance> instances;
  std::vector<int> instance_of;  ///< By machine.
  std::vector<InfraEdge> edges;  ///< Between machines; each once, in the order of their ends.
  std::vector<config::Position> edges_at;
  std::vector<std::string> notes;  ///< What was not read.

  const InfraInstance& instance(int machine) const;
  const InfraDevice& device(int machine) const;
  std::string machine_name(int machine) const;  ///< "host[3]"
};

/// Reads YAML or JSON: the infrastructure itself, or below the key `infrastructure`. Unknown keys
/// and names, slices past the end, devices that contain themselves, and more than 100,000 machines,
/// 131,072 parts or edges of devices, or 2,097,152 edges between machines are problems at their
/// position.
InfraGraph read_infragraph(const std::string& path, config::Diagnostics& diagnostics);

}  // namespace orrery::calibration

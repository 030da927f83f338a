#include "calibration/importers/infragraph_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>
#include <utility>

#include "models/base/limit.h"
#include "models/config/document.h"

namespace orrery::calibration {
namespace {

constexpr std::int64_t kMostMachines = limit(100'000);
constexpr std::int64_t kMostParts = limit(1 << 17);  ///< Of all devices together.
constexpr std::int64_t kMostWires = limit(1 << 17);  ///< The same: edges.
constexpr std::int64_t kMostEdges = limit(1 << 21);  ///< Between machines.
constexpr std::int64_t kMostEnds = limit(1 << 23);   ///< That all edges name, joined or not.
constexpr int kDeepest = 16;                         ///< Devices within devices.

using Name = config::Located<std::string>;

enum class Scheme { one2one, many2many, ring };
std::vector<std::pair<Scheme, const char*>> enum_names(Scheme) {
  return {{Scheme::one2one, "one2one"}, {Scheme::many2many, "many2many"}, {Scheme::ring, "ring"}};
}

struct ComponentEntry {
  Name name;
  std::string description;
  config::Located<int> count;
  PartKind choice = PartKind::custom;
};

struct BandwidthEntry {
  std::string choice;
  std::optional<double> bits, bytes, transfers;  ///< 10^9 a second.
};

struct LatencyEntry {
  std::string choice;
  std::optional<double> ms, us, ns;
};

struct PhysicalEntry {
  BandwidthEntry bandwidth;
  LatencyEntry latency;
};

struct LinkEntry {
  Name name;
  PhysicalEntry physical;
};

/// Of a device's edge, or of one between instances.
struct EndEntry {
  Name owner;  ///< Device within the device; instance.
  Name component;
};
struct DeviceEnd : EndEntry {};
struct InstanceEnd : EndEntry {};

template <class End>
struct EdgeEntry {
  End ep1, ep2;
  config::Located<Scheme> scheme;
  Name link;
};

struct DeviceEntry {
  Name name;
  std::vector<ComponentEntry> components;
  std::vector<LinkEntry> links;
  std::vector<EdgeEntry<DeviceEnd>> edges;
};

struct InstanceEntry {
  Name name;
  Name device;
  config::Located<int> count;
};

struct FileEntry {
  std::string name;
  std::vector<DeviceEntry> devices;
  std::vector<LinkEntry> links;
  std::vector<InstanceEntry> instances;
  std::vector<EdgeEntry<InstanceEnd>> edges;
  bool annotated = false;
};

/// A key that is allowed and says nothing that is used.
void unused(config::Visitor& v, const char* key) {
  config::Value value;
  v.optional(key, value, "not used");
}

void describe(config::Visitor& v, ComponentEntry& component) {
  v.required("name", component.name, "unique in its device");
  v.optional("description", component.description, "for people");
  v.required("count", component.count, "in one device");
  v.required("choice", component.choice, "kind of component");
  for (const auto& [kind, name] : enum_names(PartKind{})) unused(v, name);
}

/// `choice` says which of the numbers counts; without it the only one does.
void describe_choice(config::Visitor& v, std::string& choice,
                     const std::vector<std::pair<const char*, std::optional<double>*>>& numbers) {
  v.optional("choice", choice, "which unit counts");
  std::vector<std::string> names;
  for (const auto& [key, number] : numbers) {
    names.emplace_back(key);
    v.optional(key, *number, "number of this unit");
    if (*number) v.between(key, **number, 0.0, 1e9);
    if (choice.empty() && *number) choice = key;
  }
  if (!v.reading() || !v.given("choice")) return;
  if (std::find(names.begin(), names.end(), choice) == names.end()) {
    return v.problem("choice", fmt::format("unknown value '{}'", choice),
                     config::suggest(choice, names, "values"));
  }
  for (const auto& [key, number] : numbers) {
    if (choice == key && !*number) v.problem("choice", fmt::format("'{}' is not given", choice));
  }
}

void describe(config::Visitor& v, BandwidthEntry& bandwidth) {
  describe_choice(v, bandwidth.choice,
                  {{"gigabits_per_second", &bandwidth.bits},
                   {"gigabytes_per_second", &bandwidth.bytes},
                   {"gigatransfers_per_second", &bandwidth.transfers}});
}

void describe(config::Visitor& v, LatencyEntry& latency) {
  describe_choice(v, latency.choice,
                  {{"ms", &latency.ms}, {"us", &latency.us}, {"ns", &latency.ns}});
}

void describe(config::Visitor& v, PhysicalEntry& physical) {
  v.optional("bandwidth", physical.bandwidth, "of the link, one direction");
  v.optional("latency", physical.latency, "of the link");
}

void describe(config::Visitor& v, LinkEntry& link) {
  v.required("name", link.name, "unique in its device or infrastructure");
  unused(v, "description");
  v.optional("physical", link.physical, "bandwidth and latency");
}

void describe(config::Visitor& v, DeviceEnd& end) {
  v.optional("device", end.owner, "device within the device, with indexes");
  v.required("component", end.component, "with indexes");
}

void describe(config::Visitor& v, InstanceEnd& end) {
  v.required("instance", end.owner, "with indexes");
  v.required("component", end.component, "with indexes");
}

template <class End>
void describe(config::Visitor& v, EdgeEntry<End>& edge) {
  v.required("ep1", edge.ep1, "one end");
  v.required("ep2", edge.ep2, "the other end");
  v.required("scheme", edge.scheme, "how ends are joined");
  v.required("link", edge.link, "name of a link");
}

void describe(config::Visitor& v, DeviceEntry& device) {
  v.required("name", device.name, "unique");
  unused(v, "description");
  v.required("components", device.components, "what it is made of");
  v.optional("links", device.links, "of its edges");
  v.optional("edges", device.edges, "between components");
}

void describe(config::Visitor& v, InstanceEntry& instance) {
  v.required("name", instance.name, "unique");
  unused(v, "description");
  v.required("device", instance.device, "name of a device");
  v.required("count", instance.count, "equal machines");
}

void describe(config::Visitor& v, FileEntry& file) {
  v.optional("name", file.name, "of the infrastructure");
  unused(v, "description");
  v.required("devices", file.devices, "kinds of machines");
  v.optional("links", file.links, "of the edges between instances");
  v.required("instances", file.instances, "machines");
  v.optional("edges", file.edges, "between instances");
  unused(v, "annotations");
  if (v.reading()) file.annotated = v.given("annotations");
}

/// "nic[0:4:2]"
struct Slice {
  std::string name;
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::int64_t size = 0;
};

std::optional<std::int64_t> index_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// Python's notation without negative numbers; `name` may be cut off before.
bool parse_slice(std::string_view text, std::int64_t count, Slice& out) {
  const std::size_t open = text.find('[');
  out = {std::string(text.substr(0, open)), 0, 1, count};
  if (open == std::string_view::npos) return true;
  if (!text.ends_with(']')) return false;
  std::string_view inside = text.substr(open + 1, text.size() - open - 2);
  std::int64_t numbers[] = {0, count, 1};
  const bool one = inside.find(':') == std::string_view::npos;
  for (std::int64_t& number : numbers) {
    const std::size_t colon = std::min(inside.find(':'), inside.size());
    if (colon > 0) {
      const auto read = index_of(inside.substr(0, colon));
      if (!read) return false;
      number = *read;
    } else if (one) {
      return false;
    }
    if (colon == inside.size()) {
      inside = {};
      break;
    }
    inside.remove_prefix(colon + 1);
  }
  if (one) numbers[1] = numbers[0] + 1;
  if (!inside.empty() || numbers[2] < 1 || numbers[1] > count || numbers[0] >= numbers[1]) {
    return false;
  }
  out.first = numbers[0];
  out.step = numbers[2];
  out.size = (numbers[1] - numbers[0] + out.step - 1) / out.step;
  return true;
}

InfraLink link_of(const LinkEntry& entry) {
  InfraLink link{entry.name.value, entry.name.at, {}, {}, ""};
  const BandwidthEntry& bandwidth = entry.physical.bandwidth;
  if (bandwidth.choice == "gigabits_per_second") {
    link.bandwidth = BytesPerSecond{*bandwidth.bits * 1e9 / 8};
    link.text = fmt::format("{:.12g} Gbps", *bandwidth.bits);
  } else if (bandwidth.choice == "gigabytes_per_second") {
    link.bandwidth = BytesPerSecond{*bandwidth.bytes * 1e9};
    link.text = fmt::format("{:.12g} GB/s", *bandwidth.bytes);
  } else if (bandwidth.choice == "gigatransfers_per_second") {
    link.text = fmt::format("{:.12g} GT/s", *bandwidth.transfers);
  }
  // A link without bandwidth carries nothing; files say 0 where they do not know.
  if (link.bandwidth && link.bandwidth->value <= 0) link.bandwidth.reset();
  const LatencyEntry& latency = entry.physical.latency;
  if (latency.choice == "ms") link.latency = Seconds{*latency.ms * 1e-3};
  if (latency.choice == "us") link.latency = Seconds{*latency.us * 1e-6};
  if (latency.choice == "ns") link.latency = Seconds{*latency.ns * 1e-9};
  return link;
}

class Expansion {
 public:
  Expansion(const FileEntry& file, config::Diagnostics& diagnostics)
      : file_(file), diagnostics_(diagnostics), layouts_(file.devices.size()) {
    graph_.name = file.name;
    graph_.devices.resize(file.devices.size());
  }

  InfraGraph run() {
    add_links(file_.links, links_);
    for (std::size_t d = 0; d < file_.devices.size(); ++d) {
      const DeviceEntry& device = file_.devices[d];
      graph_.devices[d].name = device.name.value;
      graph_.devices[d].at = device.name.at;
      add_once(devices_, device.name, d, "device");
    }
    for (std::size_t d = 0; d < file_.devices.size(); ++d) add_device(d, 0);
    add_instances();
    // What follows would name the same problems once more.
    if (!diagnostics_.empty()) return std::move(graph_);
    for (const auto& edge : file_.edges) add_edge(edge);
    if (uneven_ > 1) {
      graph_.notes.push_back(fmt::format("{} more edges are one2one of unequal ends", uneven_ - 1));
    }
    auto& edges = graph_.edges;
    const auto key = [](const InfraEdge& edge) { return std::tie(edge.a, edge.b, edge.link); };
    std::stable_sort(edges.begin(), edges.end(),
                     [&](const auto& x, const auto& y) { return key(x) < key(y); });
    edges.erase(std::unique(edges.begin(), edges.end(),
                            [&](const auto& x, const auto& y) { return key(x) == key(y); }),
                edges.end());
    return std::move(graph_);
  }

 private:
  using Names = std::map<std::string, std::size_t, std::less<>>;
  /// A component in the parts of its device.
  struct Place {
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::int64_t size = 1;  ///< Parts of each.
    std::optional<std::size_t> device;
  };
  struct Layout {
    std::map<std::string, Place, std::less<>> places;
    bool open = false;  ///< Being read: a device within itself.
    bool read = false;
  };

  void fail(const config::Position& at, std::string what, std::string hint = "") {
    diagnostics_.add(at, std::move(what), std::move(hint));
  }

  /// Of what goes beyond a limit the first is named.
  void fail_limit(const config::Position& at, std::string what) {
    if (!std::exchange(beyond_, true)) fail(at, std::move(what));
  }

  void add_once(Names& names, const Name& name, std::size_t index, const char* what) {
    if (names.try_emplace(name.value, index).second) return;
    fail(name.at, fmt::format("a second {} '{}'", what, name.value));
  }

  const std::size_t* find(const Names& names, const Name& name, const std::string& text,
                          const char* what) {
    const auto found = names.find(text);
    if (found != names.end()) return &found->second;
    std::vector<std::string> known;
    for (const auto& [each, index] : names) known.push_back(each);
    fail(name.at, fmt::format("unknown {} '{}'", what, text),
         config::suggest(text, known, fmt::format("{}s", what)));
    return nullptr;
  }

  void add_links(const std::vector<LinkEntry>& entries, Names& names) {
    for (const LinkEntry& entry : entries) {
      add_once(names, entry.name, graph_.links.size(), "link");
      graph_.links.push_back(link_of(entry));
    }
  }

  bool count_is_good(const config::Located<int>& count, std::int64_t most) {
    if (count.value >= 0 && count.value <= most) return true;
    fail(count.at, fmt::format("must be from 0 to {}, is {}", most, count.value));
    return false;
  }

  /// Its parts and wires, after those of the devices within it.
  void add_device(std::size_t index, int depth) {
    Layout& layout = layouts_[index];
    if (layout.read) return;
    layout.read = layout.open = true;
    const DeviceEntry& entry = file_.devices[index];
    InfraDevice& device = graph_.devices[index];
    for (const ComponentEntry& component : entry.components) {
      add_component(component, index, depth);
    }
    layout.open = false;
    Names links;
    add_links(entry.links, links);
    for (const auto& edge : entry.edges) {
      const auto a = device_end(index, edge.ep1);
      const auto b = device_end(index, edge.ep2);
      const std::size_t* link = find(links, edge.link, edge.link.value, "link");
      if (link == nullptr) continue;
      join(edge, a, b, wires_, kMostWires, [&](int x, int y) {
        device.wires.push_back({std::min(x, y), std::max(x, y), static_cast<int>(*link)});
      });
    }
    std::sort(device.wires.begin(), device.wires.end());
    device.wires.erase(std::unique(device.wires.begin(), device.wires.end()), device.wires.end());
  }

  void add_component(const ComponentEntry& component, std::size_t index, int depth) {
    Layout& layout = layouts_[index];
    InfraDevice& device = graph_.devices[index];
    if (!count_is_good(component.count, kMostParts)) return;
    const std::string& name = component.name.value;
    Place place{std::ssize(device.parts), component.count.value, 1, {}};
    if (component.choice == PartKind::device) {
      const std::size_t* inner = find(devices_, component.name, name, "device");
      if (inner == nullptr) return;
      if (layouts_[*inner].open || depth == kDeepest) {
        return fail(component.name.at,
                    layouts_[*inner].open
                        ? fmt::format("device '{}' contains itself", name)
                        : fmt::format("more than {} devices within each other", kDeepest));
      }
      add_device(*inner, depth + 1);
      place.device = *inner;
      place.size = std::ssize(graph_.devices[*inner].parts);
    }
    if (!layout.places.try_emplace(name, place).second) {
      return fail(component.name.at, fmt::format("a second component '{}'", name));
    }
    parts_ += place.count * std::max<std::int64_t>(place.size, 1);
    if (parts_ > kMostParts) {
      return fail_limit(component.count.at,
                        fmt::format("the devices have more than {} parts", kMostParts));
    }
    for (int i = 0; i < place.count; ++i) {
      const int first = static_cast<int>(device.parts.size());
      const std::string own = fmt::format("{}[{}]", name, i);
      if (!place.device) {
        device.parts.push_back(
            {component.choice == PartKind::npu ? PartKind::xpu : component.choice, own, name,
             device.name, component.description, first});
        continue;
      }
      const InfraDevice& inner = graph_.devices[*place.device];
      wires_ += std::ssize(inner.wires);
      if (wires_ > kMostWires) return too_many(component.count.at, kMostWires);
      for (InfraPart part : inner.parts) {
        part.name = own + "." + part.name;
        part.card = first;
        device.parts.push_back(std::move(part));
      }
      for (const InfraWire& wire : inner.wires) {
        device.wires.push_back({wire.a + first, wire.b + first, wire.link});
      }
    }
  }

  void too_many(const config::Position& at, std::int64_t most) {
    fail_limit(at, fmt::format("the file has more than {} edges", most));
  }

  /// What is refused costs no more than this.
  bool spend_ends(std::int64_t count, const config::Position& at) {
    ends_ += count;
    if (ends_ <= kMostEnds) return true;
    fail_limit(at, fmt::format("the edges name more than {} ends", kMostEnds));
    return false;
  }

  /// Parts that "cx5[0:2].port[0]" names, in order; none after a problem.
  std::vector<int> parts_of(std::size_t device, const Name& path, const std::string& text) {
    std::vector<std::int64_t> firsts = {0};
    std::optional<std::size_t> inside = device;
    std::size_t begin = 0;
    while (begin <= text.size()) {
      const std::size_t dot = std::min(text.find('.', begin), text.size());
      const std::string_view step = std::string_view(text).substr(begin, dot - begin);
      const std::string_view name = step.substr(0, step.find('['));
      // The schema lets a path begin with the device itself.
      const bool itself = begin == 0 && dot < text.size() && name == step &&
                          name == file_.devices[device].name.value;
      begin = dot + 1;
      if (itself) continue;
      if (!inside) {
        fail(path.at, fmt::format("'{}' has a component within a component", text));
        return {};
      }
      const auto& places = layouts_[*inside].places;
      const auto place = places.find(name);
      if (place == places.end()) {
        std::vector<std::string> known;
        for (const auto& [each, where] : places) known.push_back(each);
        fail(path.at,
             fmt::format("device '{}' has no component '{}'", file_.devices[*inside].name.value,
                         name),
             config::suggest(name, known, "components"));
        return {};
      }
      Slice slice;
      if (!parse_slice(step, place->second.count, slice)) {
        fail(path.at,
             fmt::format("'{}' is no part of the {} of device '{}'", step, place->second.count,
                         file_.devices[*inside].name.value),
             fmt::format("as in {0}, {0}[0] or {0}[0:2]", name));
        return {};
      }
      if (!spend_ends(std::ssize(firsts) * slice.size, path.at)) return {};
      std::vector<std::int64_t> next;
      next.reserve(firsts.size() * static_cast<std::size_t>(slice.size));
      for (const std::int64_t first : firsts) {
        for (std::int64_t i = 0; i < slice.size; ++i) {
          next.push_back(first + place->second.first +
                         (slice.first + i * slice.step) * place->second.size);
        }
      }
      firsts = std::move(next);
      inside = place->second.device;
    }
    if (inside) {
      fail(path.at, fmt::format("'{}' is a whole device", text), "name one of its components");
      return {};
    }
    return {firsts.begin(), firsts.end()};
  }

  std::vector<int> device_end(std::size_t device, const EndEntry& end) {
    if (end.owner.value.empty()) return parts_of(device, end.component, end.component.value);
    return parts_of(device, end.owner, end.owner.value + "." + end.component.value);
  }

  std::vector<InfraEnd> instance_end(const EndEntry& end) {
    const std::string& text = end.owner.value;
    const std::size_t* found =
        find(instances_, end.owner, text.substr(0, text.find('[')), "instance");
    if (found == nullptr) return {};
    const InfraInstance& instance = graph_.instances[*found];
    Slice slice;
    if (!parse_slice(text, instance.count, slice)) {
      fail(end.owner.at,
           fmt::format("'{}' is no part of the {} of instance '{}'", text, instance.count,
                       instance.name),
           fmt::format("as in {0}, {0}[0] or {0}[0:2]", instance.name));
      return {};
    }
    const std::vector<int> parts =
        parts_of(static_cast<std::size_t>(instance.device), end.component, end.component.value);
    std::vector<InfraEnd> ends;
    if (!spend_ends(slice.size * std::ssize(parts), end.owner.at)) return {};
    for (std::int64_t i = 0; i < slice.size; ++i) {
      const std::int64_t machine = instance.first + slice.first + i * slice.step;
      for (const int part : parts) ends.push_back({static_cast<int>(machine), part});
    }
    return ends;
  }

  /// Calls f for the pairs that the edge joins.
  template <class Entry, class End, class F>
  void join(const Entry& edge, const std::vector<End>& a, const std::vector<End>& b,
            std::int64_t& joined, std::int64_t most, F f) {
    if (a.empty() || b.empty()) return;
    if (edge.scheme.value == Scheme::ring) {
      return fail(edge.scheme.at, "scheme 'ring' is not read",
                  "the schema does not say which ends it joins; use one2one");
    }
    const bool all = edge.scheme.value == Scheme::many2many;
    if (!all && a.size() != b.size() && ++uneven_ == 1) {
      graph_.notes.push_back(fmt::format("{}: one2one of {} and {} ends joins the first {} of each",
                                         config::to_string(edge.scheme.at), a.size(), b.size(),
                                         std::min(a.size(), b.size())));
    }
    joined += all ? std::ssize(a) * std::ssize(b) : std::min(std::ssize(a), std::ssize(b));
    if (joined > most) return too_many(edge.scheme.at, most);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::size_t last = all ? b.size() : std::min(i + 1, b.size());
      for (std::size_t j = all ? 0 : i; j < last; ++j) {
        if (a[i] != b[j]) f(a[i], b[j]);
      }
    }
  }

  void add_instances() {
    std::int64_t machines = 0;
    for (const InstanceEntry& entry : file_.instances) {
      add_once(instances_, entry.name, graph_.instances.size(), "instance");
      const std::size_t* device = find(devices_, entry.device, entry.device.value, "device");
      if (device == nullptr || !count_is_good(entry.count, kMostMachines)) continue;
      graph_.instances.push_back({entry.name.value, entry.name.at, static_cast<int>(*device),
                                  entry.count.value, static_cast<int>(machines)});
      machines += entry.count.value;
      if (machines > kMostMachines) {
        return fail(entry.count.at, fmt::format("more than {} machines", kMostMachines));
      }
      graph_.instance_of.resize(static_cast<std::size_t>(machines),
                                static_cast<int>(graph_.instances.size()) - 1);
    }
  }

  void add_edge(const EdgeEntry<InstanceEnd>& edge) {
    const auto a = instance_end(edge.ep1);
    const auto b = instance_end(edge.ep2);
    const std::size_t* link = find(links_, edge.link, edge.link.value, "link");
    if (link == nullptr) return;
    const int source = static_cast<int>(graph_.edges_at.size());
    graph_.edges_at.push_back(edge.ep1.owner.at);
    join(edge, a, b, edges_, kMostEdges, [&](const InfraEnd& x, const InfraEnd& y) {
      graph_.edges.push_back({std::min(x, y), std::max(x, y), static_cast<int>(*link), source});
    });
  }

  const FileEntry& file_;
  config::Diagnostics& diagnostics_;
  InfraGraph graph_;
  std::vector<Layout> layouts_;  ///< By device.
  Names devices_;
  Names instances_;
  Names links_;  ///< Between machines.
  std::int64_t parts_ = 0;
  std::int64_t wires_ = 0;
  std::int64_t edges_ = 0;
  std::int64_t ends_ = 0;
  bool beyond_ = false;  ///< A limit.
  int uneven_ = 0;       ///< Edges that are one2one of unequal ends.
};

}  // namespace

std::vector<std::pair<PartKind, const char*>> enum_names(PartKind) {
  return {
      {PartKind::custom, "custom"}, {PartKind::device, "device"}, {PartKind::cpu, "cpu"},
      {PartKind::xpu, "xpu"},       {PartKind::npu, "npu"},       {PartKind::nic, "nic"},
      {PartKind::memory, "memory"}, {PartKind::port, "port"},     {PartKind::switch_, "switch"}};
}

bool InfraDevice::has(PartKind kind) const {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const InfraPart& part) { return part.kind == kind; });
}

const InfraInstance& InfraGraph::instance(int machine) const {
  return instances[static_cast<std::size_t>(instance_of[static_cast<std::size_t>(machine)])];
}

const InfraDevice& InfraGraph::device(int machine) const {
  return devices[static_cast<std::size_t>(instance(machine).device)];
}

std::string InfraGraph::machine_name(int machine) const {
  return fmt::format("{}[{}]", instance(machine).name, machine - instance(machine).first);
}

InfraGraph read_infragraph(const std::string& path, config::Diagnostics& diagnostics) {
  config::Diagnostics own;
  const config::Value tree = config::load_value(path, own);
  InfraGraph graph;
  if (own.empty()) {
    const config::Value* inner = tree.find("infrastructure");
    FileEntry file;
    if (config::describe_value(inner != nullptr ? *inner : tree, file, own)) {
      graph = Expansion(file, own).run();
    }
    for (const config::Value::Entry& entry : tree.entries) {
      if (inner == nullptr || &entry.value == inner || entry.key == "annotations") continue;
      own.add(entry.at, fmt::format("unknown key '{}'", entry.key), "infrastructure, annotations");
    }
    if (file.annotated || (inner != nullptr && tree.find("annotations") != nullptr)) {
      graph.notes.push_back("annotations (ranks, addresses) are not read");
    }
  }
  for (const config::Problem& problem : own.problems()) {
    diagnostics.add(problem.at, problem.what, problem.hint);
  }
  return graph;
}

}  // namespace orrery::calibration

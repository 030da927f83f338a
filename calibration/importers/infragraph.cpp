#include "calibration/importers/infragraph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "calibration/importers/infragraph_file.h"
#include "calibration/importers/node_topology.h"
#include "models/base/limit.h"
#include "models/config/document.h"
#include "models/spec/cluster_file.h"

namespace orrery::calibration {
namespace {

using config::Value;

constexpr std::size_t kMostGpus = 1024;  ///< Of a machine.
constexpr std::size_t kMostGpusOfAll = limit(1 << 20);
constexpr std::size_t kMostCards = 1024;            ///< Of a machine.
constexpr std::size_t kMostUsers = limit(1 << 22);  ///< GPUs of each NIC, over all hosts.
constexpr int kFar = std::numeric_limits<int>::max();

Value number(std::size_t value) { return Value::scalar(std::to_string(value)); }

Value list_of(const std::vector<int>& numbers) {
  Value list = Value::list({});
  for (const int each : numbers) list.items.push_back(Value::scalar(std::to_string(each)));
  return list;
}

std::string microseconds(Seconds time) { return fmt::format("{:.9g} us", time.value * 1e6); }

/// What the library assumes of links of a kind (models/library/links.yaml).
struct Medium {
  double latency_us;
  double efficiency;
};
constexpr Medium kInside{3, 0.8};
constexpr Medium kSlot{5, 0.8};
constexpr Medium kNetwork{5, 0.9};

/// Sets of equals.
class Groups {
 public:
  explicit Groups(std::size_t size) : parent_(size) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  int find(int a) {
    while (parent_[as_size(a)] != a) {
      a = parent_[as_size(a)] = parent_[as_size(parent_[as_size(a)])];
    }
    return a;
  }
  void join(int a, int b) { parent_[as_size(find(b))] = find(a); }

 private:
  std::vector<int> parent_;
};

/// Links of the file as link classes: of --link, or written into the cluster file.
class LinkClasses {
 public:
  LinkClasses(const InfraGraph& graph, const InfraNames& names, const models::Library& library,
              std::string file, config::Diagnostics& diagnostics, std::vector<std::string>& notes)
      : graph_(graph),
        names_(names),
        library_(library),
        file_(std::move(file)),
        diagnostics_(diagnostics),
        notes_(notes) {}

  /// Bandwidth of one such link, 0 after a problem.
  BytesPerSecond bandwidth(int link) {
    const InfraLink& own = graph_.links[as_size(link)];
    const models::LinkClass* given = given_for(own);
    if (given != nullptr) return given->bandwidth;
    if (own.bandwidth) return *own.bandwidth;
    if (missing_.insert(own.name).second) {
      diagnostics_.add(
          own.at,
          own.text.empty() || own.text.find("GT/s") == std::string::npos
              ? fmt::format("link '{}' has no bandwidth", own.name)
              : fmt::format("link '{}' has {}, and no number of lanes", own.name, own.text),
          fmt::format("--link {}=CLASS (orrery list links)", own.name));
    }
    return {};
  }
  /// Share of bandwidth() that large messages achieve.
  double efficiency(int link) {
    const models::LinkClass* given = given_for(graph_.links[as_size(link)]);
    return given != nullptr ? given->efficiency : kNetwork.efficiency;
  }
  std::optional<Seconds> latency(int link) const { return graph_.links[as_size(link)].latency; }

  /// Class of `count` such links side by side, of which a path passes `passed` one after another.
  std::string name_of(int link, int count, int passed, const Medium& medium) {
    const InfraLink& own = graph_.links[as_size(link)];
    const BytesPerSecond all = count * bandwidth(link);
    if (all.value <= 0) return "";
    if (const models::LinkClass* given = given_for(own)) {
      compare(own, count, *given);
      return given->name;
    }
    const bool bits = own.text.ends_with("Gbps");
    Value out = Value::map({});
    out.append("bandwidth",
               Value::scalar(fmt::format("{:.12g} {}", all.value * (bits ? 8 : 1) / 1e9,
                                         bits ? "Gbps" : "GB/s")));
    out.append("latency", Value::scalar(own.latency ? microseconds(passed * *own.latency)
                                                    : fmt::format("{} us", medium.latency_us)));
    out.append("efficiency", Value::scalar(fmt::format("{}", medium.efficiency)));
    out.append("source",
               Value::scalar(fmt::format("{}, {}; {}: assumed", file_, counted_links(own, count),
                                         own.latency ? "efficiency" : "latency, efficiency")));
    std::string name = count == 1 ? own.name : fmt::format("{}-x{}", own.name, count);
    const std::string stem = name;
    for (int i = 2;
         written_.contains(name) && config::to_flow(written_.at(name)) != config::to_flow(out);
         ++i) {
      name = fmt::format("{}-{}", stem, i);
    }
    written_.emplace(name, std::move(out));
    (own.latency ? timed_ : untimed_).insert(own.name);
    return name;
  }

  /// `links` of the cluster file.
  Value written() const {
    Value out = Value::map({});
    for (const auto& [name, value] : written_) out.append(name, value);
    return out;
  }

  void check_names() {
    std::vector<std::string> known;
    for (const InfraLink& link : graph_.links) known.push_back(link.name);
    for (const auto& [name, given] : names_.links) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      diagnostics_.add({"--link", 0, 0}, fmt::format("the file has no link '{}'", name),
                       config::suggest(name, known, "links"));
    }
  }

  /// To be called at the end.
  void note_assumptions() {
    for (const auto& [links, what] :
         {std::pair(&untimed_, "latency and efficiency are assumed"),
          std::pair(&timed_,
                    "latency is the file's, without what software adds; efficiency is assumed")}) {
      for (const std::string& name : *links) {
        notes_.push_back(fmt::format("link '{}': {} (--link {}=CLASS takes them from the library)",
                                     name, what, name));
      }
    }
  }

 private:
  static std::string counted_links(const InfraLink& link, int count) {
    return count == 1 ? fmt::format("link '{}'", link.name)
                      : fmt::format("{} links '{}'", count, link.name);
  }

  const models::LinkClass* given_for(const InfraLink& link) const {
    const auto name = names_.links.find(link.name);
    if (name == names_.links.end()) return nullptr;
    const auto found = library_.links.find(name->second);
    return found == library_.links.end() ? nullptr : &found->second;
  }

  void compare(const InfraLink& link, int count, const models::LinkClass& given) {
    if (!link.bandwidth) return;
    const double ratio = given.bandwidth / (count * *link.bandwidth);
    if (std::abs(ratio - 1) < 0.01 || !compared_.insert({link.name, count}).second) return;
    notes_.push_back(fmt::format("{} of the file: {:.4g} GB/s; class {}: {:.4g} GB/s",
                                 counted_links(link, count), count * link.bandwidth->value / 1e9,
                                 given.name, given.bandwidth.value / 1e9));
  }

  const InfraGraph& graph_;
  const InfraNames& names_;
  const models::Library& library_;
  std::string file_;
  config::Diagnostics& diagnostics_;
  std::vector<std::string>& notes_;
  std::map<std::string, Value> written_;
  std::set<std::string> missing_, timed_, untimed_;
  std::set<std::pair<std::string, int>> compared_;
};

/// A NIC of one machine: a component, or a device within the device.
struct Card {
  int key = 0;  ///< Its first part.
  int link = 0;
  int edges = 0;
  std::vector<int> switches;  ///< Machines; each once.
  bool alike(const Card& other) const {
    return key == other.key && link == other.link && edges == other.edges;
  }
};

/// What is inside machines of one device.
class Inside {
 public:
  Inside(const InfraDevice& device, LinkClasses& links, config::Diagnostics& diagnostics,
         std::vector<std::string>& notes)
      : device_(device),
        links_(links),
        notes_(notes),
        wires_of_(device.parts.size()),
        joins_gpus_(device.parts.size(), false) {
    gpu_of_.assign(device.parts.size(), -1);
    has_gpu_.assign(device.parts.size(), false);
    card_number_.assign(device.parts.size(), -1);
    for (std::size_t p = 0; p < device.parts.size(); ++p) {
      if (device.parts[p].kind != PartKind::xpu) continue;
      gpu_of_[p] = static_cast<int>(gpus_.size());
      gpus_.push_back(static_cast<int>(p));
      has_gpu_[as_size(device.parts[p].card)] = true;
    }
    for (const InfraWire& wire : device.wires) {
      wires_of_[as_size(wire.a)].push_back(wire);
      wires_of_[as_size(wire.b)].push_back({wire.b, wire.a, wire.link});
    }
    if (gpus_.size() > kMostGpus) {
      diagnostics.add(device.at, fmt::format("more than {} GPUs in one machine", kMostGpus));
      return;
    }
    find_domains();
    find_slots();
  }

  const std::vector<int>& gpus() const { return gpus_; }
  const Value& domains() const { return domains_; }
  const Value& pcie() const { return pcie_; }

  /// The NIC that the part belongs to.
  int card_of(int part) const {
    const int card = device_.parts[as_size(part)].card;
    return has_gpu_[as_size(card)] ? part : card;
  }

  /// Cards that some machine of the device uses; to be known before users(). False: too many.
  bool add_card(int card) {
    int& number = card_number_[as_size(card)];
    if (number < 0) number = cards_++;
    return as_size(cards_) <= kMostCards;
  }

  /// To be called when all cards are known.
  void note_idle_nics() {
    std::vector<std::string> idle;
    for (const InfraPart& part : device_.parts) {
      const std::size_t own = static_cast<std::size_t>(&part - device_.parts.data());
      if (part.kind == PartKind::nic && card_number_[as_size(card_of(static_cast<int>(own)))] < 0) {
        idle.push_back(part.name);
      }
    }
    if (idle.empty()) return;
    note(fmt::format("'{}'{} no edge to a switch: left out", idle.front(),
                     idle.size() == 1 ? std::string(" has")
                                      : fmt::format(" and {} more NICs have", idle.size() - 1)));
  }

  /// GPUs that use each of the cards, in their order; a card may have none.
  std::vector<std::vector<int>> users(const std::vector<Card>& cards) {
    std::vector<std::vector<int>> users(cards.size());
    for (std::size_t g = 0; g < gpus_.size(); ++g) {
      const std::vector<int>& away = distances(g);
      const auto distance = [&](const Card& card) {
        return away[as_size(card_number_[as_size(card.key)])];
      };
      int nearest = kFar;
      for (const Card& card : cards) nearest = std::min(nearest, distance(card));
      BytesPerSecond fastest;
      for (const Card& card : cards) {
        if (distance(card) == nearest) fastest = std::max(fastest, bandwidth(card));
      }
      for (std::size_t c = 0; c < cards.size(); ++c) {
        if (distance(cards[c]) > nearest || bandwidth(cards[c]) < fastest) continue;
        users[c].push_back(static_cast<int>(g));
      }
    }
    return users;
  }

  BytesPerSecond bandwidth(const Card& card) { return card.edges * links_.bandwidth(card.link); }

 private:
  PartKind kind(int part) const { return device_.parts[as_size(part)].kind; }

  void note(std::string what) {
    notes_.push_back(fmt::format("device '{}': {}", device_.name, what));
  }

  /// An entry of `domains`, `pcie` or `nics`; all GPUs need no list.
  Value entry_of(const std::string& link, const std::vector<int>& members) const {
    Value out = Value::map({});
    out.append("link", Value::scalar(link));
    if (members.size() < gpus_.size()) out.append("members", list_of(members));
    return out;
  }

  /// Switches that lead out of the GPUs' own network.
  bool leads_to_host(int part) const {
    return std::any_of(wires_of_[as_size(part)].begin(), wires_of_[as_size(part)].end(),
                       [&](const InfraWire& wire) {
                         return kind(wire.b) != PartKind::xpu && kind(wire.b) != PartKind::switch_;
                       });
  }

  void add_domain(int link, int count, int passed, const std::vector<int>& members) {
    const std::string name = links_.name_of(link, count, passed, kInside);
    if (!name.empty()) domains_.items.push_back(entry_of(name, members));
  }

  void find_domains() {
    std::map<int, std::vector<InfraWire>> by_link;
    for (const InfraWire& wire : device_.wires) by_link[wire.link].push_back(wire);
    for (const auto& [link, wires] : by_link) {
      add_switched(link, wires);
      add_direct(link, wires);
    }
  }

  void add_switched(int link, const std::vector<InfraWire>& wires) {
    std::map<int, int> switches;  // Part to number.
    for (const InfraWire& wire : wires) {
      for (const int part : {wire.a, wire.b}) {
        if (kind(part) == PartKind::switch_) switches.try_emplace(part, std::ssize(switches));
      }
    }
    Groups groups(switches.size());
    for (const InfraWire& wire : wires) {
      if (kind(wire.a) == PartKind::switch_ && kind(wire.b) == PartKind::switch_) {
        groups.join(switches.at(wire.a), switches.at(wire.b));
      }
    }
    std::set<int> to_host;
    for (const auto& [part, number] : switches) {
      if (leads_to_host(part)) to_host.insert(groups.find(number));
    }
    std::map<int, std::map<int, int>> ports;  // By group: GPU to number of links.
    for (const InfraWire& wire : wires) {
      for (const auto& [a, b] : {std::pair(wire.a, wire.b), std::pair(wire.b, wire.a)}) {
        if (kind(a) != PartKind::xpu || kind(b) != PartKind::switch_) continue;
        const int group = groups.find(switches.at(b));
        if (!to_host.contains(group)) ++ports[group][gpu_of_[as_size(a)]];
      }
    }
    std::map<std::vector<int>, std::map<int, int>> domains;  // By members: switches side by side.
    std::set<int> joining;
    for (const auto& [group, links_of] : ports) {
      std::vector<int> members;
      for (const auto& [gpu, count] : links_of) members.push_back(gpu);
      if (members.size() < 2) continue;
      for (const auto& [gpu, count] : links_of) domains[members][gpu] += count;
      joining.insert(group);
    }
    for (const auto& [part, number] : switches) {
      if (joining.contains(groups.find(number))) joins_gpus_[as_size(part)] = true;
    }
    for (const auto& [members, links_of] : domains) {
      const auto [least, most] =
          std::minmax_element(links_of.begin(), links_of.end(),
                              [](const auto& a, const auto& b) { return a.second < b.second; });
      if (least->second != most->second) {
        note(fmt::format("GPU {} has {} links to switches, GPU {} has {}: all count as having {}",
                         least->first, least->second, most->first, most->second, least->second));
      }
      add_domain(link, least->second, 2, members);
    }
  }

  void add_direct(int link, const std::vector<InfraWire>& wires) {
    std::vector<std::pair<int, int>> pairs;
    std::map<int, std::size_t> numbers;  // Of the GPUs that such links join.
    for (const InfraWire& wire : wires) {
      const int a = gpu_of_[as_size(wire.a)];
      const int b = gpu_of_[as_size(wire.b)];
      if (a < 0 || b < 0) continue;
      pairs.emplace_back(a, b);
      numbers[a] = numbers[b] = 0;
    }
    std::vector<int> gpus;
    for (auto& [gpu, number] : numbers) {
      number = gpus.size();
      gpus.push_back(gpu);
    }
    std::vector<std::vector<bool>> joined(gpus.size(), std::vector<bool>(gpus.size(), false));
    for (const auto& [a, b] : pairs) joined[numbers.at(a)][numbers.at(b)] = true;
    for (std::vector<int>& members : link_domains(joined)) {
      for (int& member : members) member = gpus[as_size(member)];
      const int links = static_cast<int>(members.size()) - 1;
      if (links > 1) {
        note(
            fmt::format("the {} links of a GPU to the others count as one port: right for "
                        "collectives, {} times too fast for one pair",
                        links, links));
      }
      add_domain(link, links, 1, members);
    }
  }

  /// How near to the host a part is that a GPU's slot leads to.
  static int slot_rank(PartKind kind) {
    switch (kind) {
      case PartKind::switch_:
        return 0;
      case PartKind::cpu:
        return 1;
      case PartKind::custom:
        return 2;
      case PartKind::nic:
      case PartKind::port:
        return 3;
      default:
        return 4;  // Memory of its own, other GPUs.
    }
  }

  void find_slots() {
    std::map<std::tuple<int, int>, std::vector<int>> slots;  // By switch (-1: none) and link.
    int more = -1;
    for (const int part : gpus_) {
      const InfraWire* best = nullptr;
      for (const InfraWire& wire : wires_of_[as_size(part)]) {
        if (slot_rank(kind(wire.b)) == 4 || joins_gpus_[as_size(wire.b)]) continue;
        if (best != nullptr && slot_rank(kind(best->b)) <= 2 && slot_rank(kind(wire.b)) <= 2) {
          more = part;
        }
        if (best == nullptr || slot_rank(kind(wire.b)) < slot_rank(kind(best->b))) best = &wire;
      }
      if (best == nullptr) continue;
      const int behind = kind(best->b) == PartKind::switch_ ? best->b : -1;
      slots[{behind, best->link}].push_back(gpu_of_[as_size(part)]);
    }
    if (more >= 0) {
      note(fmt::format("'{}' has several links towards the host: one counts",
                       device_.parts[as_size(more)].name));
    }
    for (const auto& [key, members] : slots) {
      const auto [behind, link] = key;
      const std::string name = links_.name_of(link, 1, 2, kSlot);
      if (name.empty()) continue;
      Value entry = entry_of(name, members);
      const std::string uplink = behind < 0 ? "" : uplink_of(behind);
      if (!uplink.empty()) entry.append("uplink", Value::scalar(uplink));
      pcie_.items.push_back(std::move(entry));
    }
  }

  /// Of a PCIe switch; "" with a NIC below it, whose traffic does not pass the uplink.
  std::string uplink_of(int switch_part) {
    int link = -1;
    int count = 0;
    for (const InfraWire& wire : wires_of_[as_size(switch_part)]) {
      const PartKind other = kind(wire.b);
      if (other != PartKind::cpu && (other != PartKind::switch_ || joins_gpus_[as_size(wire.b)])) {
        continue;
      }
      if (link < 0) link = wire.link;
      if (wire.link == link) ++count;
    }
    if (link < 0 || has_nic_below(switch_part)) return "";
    return links_.name_of(link, count, 2, kSlot);
  }

  bool has_nic_below(int switch_part) const {
    std::set<int> seen = {switch_part};
    std::vector<int> open = {switch_part};
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      for (const InfraWire& wire : wires_of_[as_size(at)]) {
        const PartKind other = kind(wire.b);
        if (other == PartKind::nic || other == PartKind::port) return true;
        if (other == PartKind::custom && seen.insert(wire.b).second) open.push_back(wire.b);
      }
    }
    return false;
  }

  /// Links from a GPU to each card; kFar where only other GPUs or their switches lead to it.
  const std::vector<int>& distances(std::size_t gpu) {
    if (distances_.empty()) distances_.resize(gpus_.size());
    std::vector<int>& out = distances_[gpu];
    if (!out.empty()) return out;
    out.assign(as_size(cards_), kFar);
    std::vector<int> away(device_.parts.size(), -1);
    std::vector<int> open = {gpus_[gpu]};
    away[as_size(gpus_[gpu])] = 0;
    for (std::size_t i = 0; i < open.size(); ++i) {
      const int at = open[i];
      const int card = card_number_[as_size(card_of(at))];
      if (card >= 0) out[as_size(card)] = std::min(out[as_size(card)], away[as_size(at)]);
      for (const InfraWire& wire : wires_of_[as_size(at)]) {
        if (away[as_size(wire.b)] >= 0 || joins_gpus_[as_size(wire.b)] ||
            kind(wire.b) == PartKind::xpu) {
          continue;
        }
        away[as_size(wire.b)] = away[as_size(at)] + 1;
        open.push_back(wire.b);
      }
    }
    return out;
  }

  const InfraDevice& device_;
  LinkClasses& links_;
  std::vector<std::string>& notes_;
  std::vector<std::vector<InfraWire>> wires_of_;  ///< By part, which is `a`.
  std::vector<bool> joins_gpus_;                  ///< By part: a switch of a domain.
  std::vector<int> gpus_;                         ///< Parts.
  std::vector<int> gpu_of_;                       ///< By part; -1: none.
  std::vector<bool> has_gpu_;                     ///< By card.
  std::vector<int> card_number_;                  ///< By card; -1: no machine uses it.
  int cards_ = 0;
  std::vector<std::vector<int>> distances_;  ///< By GPU and number of card.
  Value domains_ = Value::list({});
  Value pcie_ = Value::list({});
};

/// A host.
struct Node {
  int machine = 0;
  std::vector<Card> cards;         ///< In the order in which rails count them.
  std::vector<std::string> links;  ///< Classes, by card.
  std::vector<std::vector<int>> members;
  int leaf = 0;

  bool alike(const Node& other) const { return links == other.links && members == other.members; }
};

/// Switches side by side, all from one machine or pod to those above.
struct Uplinks {
  double below = 0;  ///< Bytes a second that can come from below.
  double above = 0;
};

class Conversion {
 public:
  Conversion(std::string path, const InfraGraph& graph, const InfraNames& names,
             const models::Library& library, config::Diagnostics& diagnostics,
             std::vector<std::string>& notes)
      : path_(std::move(path)),
        graph_(graph),
        names_(names),
        library_(library),
        diagnostics_(diagnostics),
        notes_(notes),
        links_(graph, names, library, file_name(), diagnostics, notes) {}

  /// The cluster file; incomplete after a problem.
  Value run() {
    if (!find_hosts()) return {};
    if (nodes_.empty()) {
      fail({path_, 0, 0}, "no instance has an xpu component", "hosts are devices with GPUs");
      return {};
    }
    links_.check_names();
    check_gpu_names();
    const std::size_t before = diagnostics_.problems().size();
    read_edges();
    if (diagnostics_.problems().size() > before) return {};
    for (Node& node : nodes_) choose_cards(node);
    if (!refused_.empty()) return {};
    for (auto& [device, inside] : insides_) inside.note_idle_nics();
    Value out = Value::map({});
    out.append("schema", Value::scalar("orrery/cluster/1"));
    out.append("name",
               Value::scalar(graph_.name.empty() ? std::filesystem::path(path_).stem().string()
                                                 : graph_.name));
    out.append("source", Value::scalar(fmt::format("imported from {}, InfraGraph", file_name())));
    const Value fabric = nodes_.size() > 1 ? make_fabric() : Value::map({});
    Value nodes = node_entries();
    out.append("nodes", std::move(nodes));
    if (!fabric.entries.empty()) out.append("fabric", fabric);
    links_.note_assumptions();
    Value links = links_.written();
    if (!links.entries.empty()) out.append("links", std::move(links));
    return out;
  }

 private:
  void fail(const config::Position& at, std::string what, std::string hint = "") {
    diagnostics_.add(at, std::move(what), std::move(hint));
  }
  void note(std::string what) { notes_.push_back(std::move(what)); }
  std::string file_name() const { return std::filesystem::path(path_).filename().string(); }
  std::string name(int machine) const { return graph_.machine_name(machine); }
  bool is_host(int machine) const { return node_of_[as_size(machine)] >= 0; }
  Inside& inside(int machine) { return insides_.at(graph_.instance(machine).device); }

  bool find_hosts() {
    node_of_.assign(graph_.instance_of.size(), -1);
    std::size_t gpus = 0;
    for (const InfraInstance& instance : graph_.instances) {
      const InfraDevice& device = graph_.devices[as_size(instance.device)];
      if (instance.count == 0 || !device.has(PartKind::xpu)) continue;
      if (!insides_.contains(instance.device)) {
        insides_.try_emplace(instance.device, device, links_, diagnostics_, notes_);
        gpus_.emplace(instance.device, gpu_entries(device));
      }
      gpus += as_size(instance.count) * insides_.at(instance.device).gpus().size();
      if (gpus > kMostGpusOfAll) {
        fail(instance.at, fmt::format("the hosts have more than {} GPUs", kMostGpusOfAll));
        return false;
      }
      for (int i = 0; i < instance.count; ++i) {
        node_of_[as_size(instance.first + i)] = static_cast<int>(nodes_.size());
        nodes_.push_back({.machine = instance.first + i, .cards = {}, .links = {}, .members = {}});
      }
    }
    return true;
  }

  // GPU types.

  std::string gpu_type(const InfraDevice& device, const InfraPart& part) {
    for (const std::string& key : {device.name, part.component, part.device, std::string()}) {
      const auto given = names_.gpus.find(key);
      if (given == names_.gpus.end()) continue;
      used_gpus_.insert(key);
      return given->second;
    }
    for (const std::string& known : {part.component, part.description, part.device}) {
      if (library_.gpus.contains(known)) return known;
    }
    if (untyped_.insert({device.name, part.component}).second) {
      fail(device.at,
           fmt::format("the type of GPU '{}' of device '{}' is not known", part.component,
                       device.name),
           fmt::format("--gpu {}=TYPE (orrery list gpus)", device.name));
    }
    return "";
  }

  Value gpu_entries(const InfraDevice& device) {
    std::vector<std::pair<std::string, std::size_t>> runs;
    for (const InfraPart& part : device.parts) {
      if (part.kind != PartKind::xpu) continue;
      std::string type = gpu_type(device, part);
      if (runs.empty() || runs.back().first != type) runs.emplace_back(std::move(type), 0);
      ++runs.back().second;
    }
    Value out = Value::list({});
    for (const auto& [type, count] : runs) {
      Value entry = Value::map({});
      entry.append("type", Value::scalar(type));
      entry.append("count", number(count));
      out.items.push_back(std::move(entry));
    }
    return out;
  }

  void check_gpu_names() {
    std::vector<std::string> known;
    for (const auto& [device, entries] : gpus_)
      known.push_back(graph_.devices[as_size(device)].name);
    for (const auto& [key, type] : names_.gpus) {
      if (key.empty() || used_gpus_.contains(key)) continue;
      fail({"--gpu", 0, 0}, fmt::format("no device with GPUs is named '{}'", key),
           config::suggest(key, known, "devices"));
    }
  }

  // Edges.

  /// A machine without GPUs whose edges end at NICs: storage, a login host.
  bool is_other_host(const InfraEnd& end) const {
    const InfraDevice& device = graph_.device(end.machine);
    const InfraPart& part = device.parts[as_size(end.part)];
    return !is_host(end.machine) && device.has(PartKind::cpu) && part.kind == PartKind::nic;
  }

  void read_edges() {
    std::map<InfraEnd, int> at_port;
    std::set<std::string> left_out;
    for (const InfraEdge& edge : graph_.edges) {
      const bool a = is_host(edge.a.machine);
      const bool b = is_host(edge.b.machine);
      for (const InfraEnd& end : {edge.a, edge.b}) {
        const InfraDevice& device = graph_.device(end.machine);
        if (device.parts[as_size(end.part)].kind == PartKind::port) ++at_port[end];
      }
      if (is_other_host(edge.a) || is_other_host(edge.b)) {
        const int machine = is_other_host(edge.a) ? edge.a.machine : edge.b.machine;
        left_out.insert(graph_.instance(machine).name);
      } else if (a && b) {
        if (direct_.insert(edge.source).second) {
          fail(graph_.edges_at[as_size(edge.source)],
               fmt::format("joins hosts '{}' and '{}' without a switch", name(edge.a.machine),
                           name(edge.b.machine)),
               "a cluster file has leaf, spine and core switches");
        }
      } else if (a || b) {
        attach(a ? edge.a : edge.b, (a ? edge.b : edge.a).machine, edge);
      } else if (edge.a.machine != edge.b.machine) {
        trunks_.push_back({edge.a.machine, edge.b.machine, edge.link});
      }
    }
    for (const std::string& instance : left_out) {
      note(fmt::format("instance '{}' has no GPUs and is no switch: left out", instance));
    }
    const auto crowded = std::find_if(at_port.begin(), at_port.end(),
                                      [](const auto& each) { return each.second > 1; });
    if (crowded != at_port.end()) {
      const InfraEnd& end = crowded->first;
      note(fmt::format("{} edges end at '{}' of '{}': each counts with its whole bandwidth",
                       crowded->second, graph_.device(end.machine).parts[as_size(end.part)].name,
                       name(end.machine)));
    }
    neighbors_.resize(graph_.instance_of.size());
    for (std::size_t t = 0; t < trunks_.size(); ++t) {
      neighbors_[as_size(trunks_[t].a)].push_back(t);
      neighbors_[as_size(trunks_[t].b)].push_back(t);
    }
  }

  void attach(const InfraEnd& host, int machine, const InfraEdge& edge) {
    Node& node = nodes_[as_size(node_of_[as_size(host.machine)])];
    const config::Position& at = graph_.edges_at[as_size(edge.source)];
    Inside& own = inside(host.machine);
    const int key = own.card_of(host.part);
    if (!own.add_card(key)) {
      return fail(at, fmt::format("more than {} NICs in one machine", kMostCards));
    }
    const auto gpu = [&](int part) {
      return graph_.device(host.machine).parts[as_size(part)].kind == PartKind::xpu;
    };
    auto card = node.cards.end();
    if (!node.cards.empty() && node.cards.back().key == key) {
      --card;  // Edges of one NIC mostly follow each other.
    } else {
      card = std::find_if(node.cards.begin(), node.cards.end(),
                          [&](const Card& each) { return each.key == key; });
    }
    if (card == node.cards.end()) {
      if (!node.cards.empty() && gpu(node.cards.front().key) != gpu(key) && mixed_.empty()) {
        mixed_ = name(host.machine);
        fail(at,
             fmt::format("GPUs of '{}' have edges of their own beside those of its NICs", mixed_),
             "a GPU has one network; describe hosts that share a GPU switch as one device");
      }
      node.cards.push_back({key, edge.link, 0, {}});
      card = node.cards.end() - 1;
    } else if (card->link != edge.link && unequal_.insert(edge.source).second) {
      fail(at,
           fmt::format("'{}' of '{}' has edges of links '{}' and '{}'",
                       graph_.device(host.machine).parts[as_size(key)].name, name(host.machine),
                       graph_.links[as_size(card->link)].name,
                       graph_.links[as_size(edge.link)].name),
           "one link for all edges of a NIC");
    }
    ++card->edges;
    // Edges come in the order of machines.
    if (card->switches.empty() || card->switches.back() != machine) {
      card->switches.push_back(machine);
    }
  }

  /// Keeps the NICs that GPUs use.
  void choose_cards(Node& node) {
    Inside& own = inside(node.machine);
    const InfraInstance& instance = graph_.instance(node.machine);
    if (node.cards.empty()) {
      if (nodes_.size() > 1 && refused_.insert(instance.name).second) {
        fail(instance.at, fmt::format("'{}' has no edge to a switch", name(node.machine)),
             "every host needs one");
      }
      return;
    }
    std::sort(node.cards.begin(), node.cards.end(),
              [](const Card& a, const Card& b) { return a.key < b.key; });
    // Machines of a device are mostly wired alike.
    auto& known = users_[instance.device];
    if (known.first.size() != node.cards.size() ||
        !std::equal(known.first.begin(), known.first.end(), node.cards.begin(),
                    [](const Card& a, const Card& b) { return a.alike(b); })) {
      known = {node.cards, own.users(node.cards)};
    }
    for (const std::vector<int>& members : known.second) users_of_nics_ += members.size();
    if (users_of_nics_ > kMostUsers) {
      if (refused_.insert(instance.name).second) {
        fail(instance.at, fmt::format("GPUs of the hosts can use more than {} NICs", kMostUsers));
      }
      return;
    }
    std::vector<Card> cards;
    for (std::size_t c = 0; c < node.cards.size(); ++c) {
      Card& card = node.cards[c];
      const std::vector<int>& members = known.second[c];
      if (members.empty()) {
        const InfraPart& part = graph_.device(node.machine).parts[as_size(card.key)];
        if (unused_.insert({instance.device, card.key}).second) {
          note(
              fmt::format("'{}' of device '{}' is further from every GPU, or slower, than "
                          "another NIC: left out",
                          part.name, graph_.device(node.machine).name));
        }
        continue;
      }
      node.links.push_back(links_.name_of(card.link, card.edges, 2, kNetwork));
      node.members.push_back(members);
      cards.push_back(std::move(card));
    }
    node.cards = std::move(cards);
  }

  // Switches.

  struct Trunk {
    int a = 0;
    int b = 0;
    int link = 0;
    int other(int machine) const { return machine == a ? b : a; }
  };

  /// Levels above the hosts: 1 for leaf switches; 0: no path leads there. False: too many.
  bool find_levels() {
    level_.assign(graph_.instance_of.size(), 0);
    std::vector<int> open;
    for (const Node& node : nodes_) {
      for (const Card& card : node.cards) {
        for (const int leaf : card.switches) {
          if (std::exchange(level_[as_size(leaf)], 1) == 0) open.push_back(leaf);
        }
      }
    }
    bool good = true;
    for (std::size_t i = 0; i < open.size(); ++i) {
      for (const std::size_t t : neighbors_[as_size(open[i])]) {
        const int next = trunks_[t].other(open[i]);
        if (level_[as_size(next)] > 0) continue;
        level_[as_size(next)] = level_[as_size(open[i])] + 1;
        open.push_back(next);
        if (level_[as_size(next)] > 3 && std::exchange(good, false)) {
          fail(graph_.instance(next).at,
               fmt::format("switch '{}' is {} levels above the hosts", name(next),
                           level_[as_size(next)]),
               "a cluster file has leaf, spine and core");
        }
      }
    }
    switches_ = std::move(open);
    std::set<std::string> unused;
    for (std::size_t m = 0; m < level_.size(); ++m) {
      const int machine = static_cast<int>(m);
      if (level_[m] == 0 && !is_host(machine) && !neighbors_[m].empty()) {
        unused.insert(graph_.instance(machine).name);
      }
    }
    for (const std::string& instance : unused) {
      note(fmt::format("no NIC of a GPU leads to all of '{}': left out", instance));
    }
    return good;
  }

  /// Links within a level have no place in a cluster file.
  void check_level_links() {
    const bool spines = std::any_of(level_.begin(), level_.end(), [](int l) { return l > 1; });
    for (const Trunk& trunk : trunks_) {
      if (level_[as_size(trunk.a)] == 0 || level_[as_size(trunk.a)] != level_[as_size(trunk.b)]) {
        continue;
      }
      const std::string what =
          fmt::format("'{}' and '{}' of one level are joined", name(trunk.a), name(trunk.b));
      if (spines) return note(what + ": such links are left out");
      return fail(graph_.instance(trunk.a).at, what + " without a spine",
                  "a cluster file has leaf, spine and core switches");
    }
  }

  /// Sets of leaf switches that a node hangs on; each set is a leaf, its switches are rails.
  void find_leaves() {
    Groups groups(graph_.instance_of.size());
    for (const Node& node : nodes_) {
      for (const Card& card : node.cards) {
        for (const int leaf : card.switches) groups.join(node.cards[0].switches[0], leaf);
      }
    }
    for (const Node& node : nodes_) {
      std::vector<int>& own = switches_of_[groups.find(node.cards[0].switches[0])];
      for (const Card& card : node.cards) {
        for (const int leaf : card.switches) {
          if (rail_of_.try_emplace(leaf, own.size()).second) own.push_back(leaf);
        }
      }
    }
    for (const auto& [group, switches] : switches_of_) {
      for (const int leaf : switches) group_of_[leaf] = group;
      rails_ = std::max(rails_, switches.size());
    }
    if (rails_ == 1) return;
    std::vector<std::vector<std::size_t>> orders;
    for (const Node& node : nodes_) {
      orders.push_back(order_by_rail(node));
      if (!orders.back().empty()) continue;
      note(
          fmt::format("NICs of '{}' do not hang on one leaf switch each in turn: leaf switches "
                      "that share a host count as one",
                      name(node.machine)));
      rails_ = 1;
      return;
    }
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const Node before = nodes_[n];
      for (std::size_t c = 0; c < orders[n].size(); ++c) {
        nodes_[n].cards[c] = before.cards[orders[n][c]];
        nodes_[n].links[c] = before.links[orders[n][c]];
        nodes_[n].members[c] = before.members[orders[n][c]];
      }
    }
  }

  /// The node's cards so that card n hangs on switch n % rails of the leaf; empty: impossible.
  std::vector<std::size_t> order_by_rail(const Node& node) const {
    std::vector<std::vector<std::size_t>> on(rails_);
    for (std::size_t c = 0; c < node.cards.size(); ++c) {
      const std::vector<int>& own = node.cards[c].switches;
      if (own.size() != 1) return {};
      on[rail_of_.at(own[0])].push_back(c);
    }
    std::vector<std::size_t> order;
    for (std::size_t c = 0; c < node.cards.size(); ++c) {
      const std::vector<std::size_t>& rail = on[c % rails_];
      if (c / rails_ >= rail.size()) return {};
      order.push_back(rail[c / rails_]);
    }
    return order;
  }

  /// Numbers the leaves by pod; false where nothing joins two of them.
  bool number_leaves() {
    Groups pods(graph_.instance_of.size());
    Groups all(graph_.instance_of.size());
    for (const auto& [group, switches] : switches_of_) {
      for (const int leaf : switches) {
        pods.join(group, leaf);
        all.join(group, leaf);
      }
    }
    for (const Trunk& trunk : trunks_) {
      if (level_[as_size(trunk.a)] == 0) continue;
      all.join(trunk.a, trunk.b);
      if (std::max(level_[as_size(trunk.a)], level_[as_size(trunk.b)]) <= 2) {
        pods.join(trunk.a, trunk.b);
      }
    }
    std::map<int, std::vector<int>> leaves_of;  // By pod, in the order of nodes.
    std::vector<int> order;                     // Of pods.
    std::set<int> seen;
    for (const Node& node : nodes_) {
      const int group = group_of_.at(node.cards[0].switches[0]);
      if (!seen.insert(group).second) continue;
      if (all.find(group) != all.find(group_of_.at(nodes_[0].cards[0].switches[0]))) {
        fail(graph_.instance(node.machine).at,
             fmt::format("no switch joins '{}' and '{}'", name(nodes_[0].machine),
                         name(node.machine)));
        return false;
      }
      const int pod = pods.find(group);
      if (leaves_of[pod].empty()) order.push_back(pod);
      leaves_of[pod].push_back(group);
    }
    std::size_t widest = 0;
    for (const auto& [pod, groups] : leaves_of) widest = std::max(widest, groups.size());
    if (order.size() > 1) leaves_per_pod_ = widest;
    for (std::size_t p = 0; p < order.size(); ++p) {
      const std::vector<int>& groups = leaves_of[order[p]];
      for (std::size_t l = 0; l < groups.size(); ++l) {
        leaf_of_[groups[l]] = static_cast<int>(p * widest + l);
      }
    }
    for (const int machine : switches_) pod_of_[machine] = pods.find(machine);
    for (Node& node : nodes_) node.leaf = leaf_of_.at(group_of_.at(node.cards[0].switches[0]));
    leaves_ = seen.size();
    return true;
  }

  /// The links between switches of two levels, by what `lower` says of the lower one.
  template <class Lower>
  std::map<int, Uplinks> uplinks(int level, Lower lower) {
    std::map<int, Uplinks> out;
    for (const Trunk& trunk : trunks_) {
      int a = trunk.a, b = trunk.b;
      if (level_[as_size(a)] > level_[as_size(b)]) std::swap(a, b);
      if (level_[as_size(a)] != level || level_[as_size(b)] != level + 1) continue;
      out[lower(a)].above += links_.bandwidth(trunk.link).value * links_.efficiency(trunk.link);
      if (const auto latency = links_.latency(trunk.link)) {
        cable_[as_size(level)] = std::max(cable_[as_size(level)], *latency);
      }
    }
    return out;
  }

  /// Oversubscription of a level as the fabric's keys say it; what gets through remains in `out`.
  void add_limit(Value& fabric, const std::string& level, std::map<int, Uplinks>& out) {
    double most = 0, least = std::numeric_limits<double>::infinity();
    double widest = 0, narrowest = std::numeric_limits<double>::infinity();
    for (const auto& [machine, up] : out) {
      if (up.above <= 0) continue;
      most = std::max(most, up.below / up.above);
      least = std::min(least, up.below / up.above);
      widest = std::max(widest, up.above);
      narrowest = std::min(narrowest, up.above);
    }
    // Rounding of sums is no oversubscription.
    constexpr double kEqual = 1 + 1e-6;
    if (most > kEqual) {
      if (most > least * kEqual && widest <= narrowest * kEqual) {
        fabric.append(level + "_uplink", Value::scalar(fmt::format("{:.9g} GB/s", widest / 1e9)));
      } else {
        fabric.append(level + "_oversubscription", Value::scalar(fmt::format("{:.6g}", most)));
        if (most > least * kEqual) {
          note(
              fmt::format("oversubscription of the {} switches is {:.4g} to {:.4g}: the cluster "
                          "file has {:.4g} for all",
                          level, least, most, most));
        }
      }
    }
    for (auto& [machine, up] : out) {
      if (up.above > 0) up.below = std::min(up.below, up.above);
    }
  }

  /// Through a switch: in and out again.
  Seconds passing(int level) const {
    std::set<int> devices;
    for (const int machine : switches_) {
      if (level_[as_size(machine)] == level) devices.insert(graph_.instance(machine).device);
    }
    Seconds slowest;
    for (const int device : devices) {
      for (const InfraWire& wire : graph_.devices[as_size(device)].wires) {
        slowest = std::max(slowest, 2 * links_.latency(wire.link).value_or(Seconds{}));
      }
    }
    return slowest;
  }

  Value make_fabric() {
    if (!find_levels()) return {};
    check_level_links();
    find_leaves();
    if (!number_leaves()) return {};
    Value fabric = Value::map({});
    const auto leaf_switch = [&](int machine) {
      return rails_ > 1 ? machine : group_of_.at(machine);
    };
    auto leaves = uplinks(1, leaf_switch);
    auto pods = uplinks(2, [&](int machine) { return pod_of_.at(machine); });
    for (const Node& node : nodes_) {
      for (std::size_t c = 0; c < node.cards.size(); ++c) {
        const Card& card = node.cards[c];
        const double bandwidth =
            inside(node.machine).bandwidth(card).value * links_.efficiency(card.link);
        leaves[leaf_switch(card.switches[0])].below += bandwidth;
      }
    }
    const std::size_t leaf_switches = leaves.size();
    if (rails_ > 1) fabric.append("rails", number(rails_));
    if (leaf_switches > 1) {
      const bool spine = std::any_of(leaves.begin(), leaves.end(),
                                     [](const auto& each) { return each.second.above > 0; });
      if (!spine) {
        note("no switch joins the rails: the cluster file has a spine without limit");
      }
      add_limit(fabric, "leaf", leaves);
    }
    if (leaves_per_pod_ > 0) {
      fabric.append("leaves_per_pod", number(leaves_per_pod_));
      for (const auto& [machine, up] : leaves) pods[pod_of_.at(machine)].below += up.below;
      add_limit(fabric, "spine", pods);
    } else if (!pods.empty()) {
      note("one spine joins all leaf switches: the core switches are left out");
    }
    const auto add_latency = [&](const char* key, Seconds latency) {
      if (latency.value > 0) fabric.append(key, Value::scalar(microseconds(latency)));
    };
    add_latency("leaf_latency", passing(1));
    if (leaf_switches > 1) add_latency("spine_latency", 2 * cable_[1] + passing(2));
    // Paths over the core pass two spines, and the links below them once each way.
    if (leaves_per_pod_ > 0) {
      add_latency("core_latency", std::max(Seconds{}, 2 * cable_[2] + passing(3) - 2 * cable_[1]));
    }
    note(fmt::format(
        "{} leaf, {} spine and {} core switches", std::count(level_.begin(), level_.end(), 1),
        std::count(level_.begin(), level_.end(), 2), std::count(level_.begin(), level_.end(), 3)));
    return fabric;
  }

  // Nodes.

  Value node_entries() {
    Value out = Value::list({});
    for (std::size_t first = 0; first < nodes_.size();) {
      const InfraInstance& instance = graph_.instance(nodes_[first].machine);
      const std::size_t end = first + as_size(instance.count);
      const std::optional<int> per_leaf = nodes_per_leaf(first, end);
      if (per_leaf) {
        out.items.push_back(entry_of(nodes_[first], instance.name, instance.count, *per_leaf));
      } else {
        for (std::size_t n = first; n < end; ++n) {
          out.items.push_back(
              entry_of(nodes_[n], fmt::format("{}-{}", instance.name, n - first), 1, 0));
        }
      }
      first = end;
    }
    return out;
  }

  /// How many nodes from `first` to `end` share a leaf (0: all), if one entry can say them all.
  std::optional<int> nodes_per_leaf(std::size_t first, std::size_t end) const {
    const Node& model = nodes_[first];
    std::size_t per_leaf = 0;
    for (std::size_t n = first; n < end; ++n) {
      if (!nodes_[n].alike(model)) return std::nullopt;
      if (per_leaf == 0 && nodes_[n].leaf != model.leaf) per_leaf = n - first;
    }
    for (std::size_t n = first; n < end; ++n) {
      const std::size_t more = per_leaf == 0 ? 0 : (n - first) / per_leaf;
      if (nodes_[n].leaf != model.leaf + static_cast<int>(more)) return std::nullopt;
    }
    return static_cast<int>(per_leaf);
  }

  Value entry_of(const Node& node, const std::string& name, int count, int per_leaf) {
    const Inside& own = inside(node.machine);
    Value out = Value::map({});
    out.append("name", Value::scalar(name));
    if (count > 1) out.append("count", number(as_size(count)));
    out.append("gpus", gpus_.at(graph_.instance(node.machine).device));
    if (!own.domains().items.empty()) out.append("domains", own.domains());
    if (!own.pcie().items.empty()) out.append("pcie", own.pcie());
    Value nics = Value::list({});
    for (std::size_t c = 0; c < node.cards.size(); ++c) {
      Value nic = Value::map({});
      nic.append("link", Value::scalar(node.links[c]));
      if (node.members[c].size() < own.gpus().size())
        nic.append("members", list_of(node.members[c]));
      nics.items.push_back(std::move(nic));
    }
    if (!nics.items.empty()) out.append("nics", std::move(nics));
    if (leaves_ > 1) out.append("leaf", number(as_size(node.leaf)));
    if (per_leaf > 0) out.append("nodes_per_leaf", number(as_size(per_leaf)));
    return out;
  }

  std::string path_;
  const InfraGraph& graph_;
  const InfraNames& names_;
  const models::Library& library_;
  config::Diagnostics& diagnostics_;
  std::vector<std::string>& notes_;
  LinkClasses links_;
  std::map<int, Inside> insides_;  ///< By device.
  std::map<int, Value> gpus_;      ///< The same: entries of `gpus`.
  std::vector<Node> nodes_;
  std::vector<int> node_of_;  ///< By machine; -1: no host.
  std::vector<Trunk> trunks_;
  std::vector<std::vector<std::size_t>> neighbors_;  ///< By machine: trunks.
  std::map<int, std::pair<std::vector<Card>, std::vector<std::vector<int>>>> users_;
  std::size_t users_of_nics_ = 0;
  std::vector<int> level_;                       ///< By machine.
  std::vector<int> switches_;                    ///< That NICs of GPUs lead to.
  std::map<int, std::vector<int>> switches_of_;  ///< Switches by leaf (one of them names it).
  std::map<int, int> group_of_;                  ///< Leaf by switch.
  std::map<int, std::size_t> rail_of_;           ///< The same: place in its leaf.
  std::map<int, int> leaf_of_;                   ///< Number by leaf.
  std::map<int, int> pod_of_;                    ///< By switch.
  std::size_t rails_ = 1;
  std::size_t leaves_per_pod_ = 0;
  std::size_t leaves_ = 0;
  std::array<Seconds, 3> cable_{};  ///< Of links upwards, by level.
  // What has been named.
  std::set<std::string> used_gpus_;
  std::set<std::string> refused_;  ///< Instances.
  std::set<std::pair<std::string, std::string>> untyped_;
  std::set<std::pair<int, int>> unused_;
  std::set<int> direct_, unequal_;
  std::string mixed_;
};

}  // namespace

ImportedCluster import_infragraph(const std::string& path, const InfraNames& names,
                                  const models::Library& library,
                                  config::Diagnostics& diagnostics) {
  config::Diagnostics own;
  ImportedCluster out;
  const InfraGraph graph = read_infragraph(path, own);
  out.notes = graph.notes;
  Value cluster;
  if (own.empty()) cluster = Conversion(path, graph, names, library, own, out.notes).run();
  if (own.empty()) {
    config::Diagnostics refused;
    models::ClusterFile file;
    if (models::read_cluster_file(cluster, file, refused)) models::resolve(file, library, refused);
    for (const config::Problem& problem : refused.problems()) {
      own.add({path, 0, 0}, "no cluster file can say this: " + problem.what, problem.hint);
    }
  }
  if (own.empty()) out.yaml = config::to_yaml(cluster);
  for (const config::Problem& problem : own.problems()) {
    diagnostics.add(problem.at, problem.what, problem.hint);
  }
  return out;
}

}  // namespace orrery::calibration

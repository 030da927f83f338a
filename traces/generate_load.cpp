#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "models/config/document.h"
#include "traces/bind.h"
#include "traces/generate.h"

namespace orrery::traces {

GeneratorNodes nodes_of_cluster(const models::Cluster& cluster) {
  GeneratorNodes out{nodes_of(cluster), {}};
  for (const models::Node& node : cluster.nodes) out.leaf.push_back(node.leaf);
  return out;
}

GeneratorNodes equal_nodes(int count, int gpus, const std::string& gpu_type) {
  GeneratorNodes out;
  for (int i = 0; i < count; ++i) {
    out.nodes.push_back({fmt::format("node{}", i), gpu_type, gpus});
    out.leaf.push_back(0);
  }
  return out;
}

TraceGenerator load_generator(const std::string& name, const std::string& root,
                              const std::vector<std::string>& changes, config::Position asked_at,
                              config::Position changes_at, config::Diagnostics& diagnostics) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::path(root) / "traces";
  fs::path path = name;
  if (!fs::is_regular_file(path, error)) path = folder / (name + ".yaml");
  if (!fs::is_regular_file(path, error)) {
    std::vector<std::string> known;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      known.push_back(entry.path().stem().string());
    }
    std::sort(known.begin(), known.end());
    diagnostics.add(std::move(asked_at), fmt::format("no trace generator '{}'", name),
                    config::suggest(name, known, "generators"));
    return {};
  }
  const std::size_t before = diagnostics.problems().size();
  config::Value tree = config::load_value(path.string(), diagnostics);
  for (const std::string& change : changes) {
    const std::size_t equals = change.find('=');
    if (equals == 0 || equals == std::string::npos) {
      diagnostics.add(changes_at, fmt::format("'{}' is not KEY=VALUE", change),
                      "for example failures.conditioned=true");
      continue;
    }
    const std::string text = change.substr(equals + 1);
    const bool nested = text.starts_with('[') || text.starts_with('{');
    tree = config::merge(std::move(tree), change.substr(0, equals),
                         nested ? config::load_value_text(text, changes_at.file, diagnostics)
                                : config::Value::scalar(text, changes_at),
                         diagnostics);
  }
  TraceGenerator generator;
  if (diagnostics.problems().size() == before) {
    config::describe_value(tree, generator, diagnostics);
  }
  return generator;
}

}  // namespace orrery::traces

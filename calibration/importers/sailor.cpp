#include "calibration/importers/sailor.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "calibration/importers/json_tree.h"
#include "calibration/read_text.h"
#include "models/base/check.h"

namespace orrery::calibration {
namespace {

constexpr const char* kSailorSource =
    "eth-easl/sailor@cf2c8e3cc53ce178fe58a4003f46b4b6b848fc33 (MIT), its authors' profiles";

/// A CSV table without quotes, read row by row by the names of its columns.
class SailorTable {
 public:
  SailorTable(const std::string& folder, const char* name, config::Diagnostics& diagnostics)
      : path_((std::filesystem::path(folder) / name).string()), diagnostics_(diagnostics) {
    if (!read_text(path_, text_, diagnostics_)) return;
    if (!next()) {
      diagnostics_.add({path_, 0, 0}, "is empty");
      return;
    }
    header_ = cells_;
    if (text_.back() != '\n') {
      const auto lines = std::count(text_.begin(), text_.end(), '\n');
      diagnostics_.add({path_, static_cast<int>(lines) + 1, 0},
                       "the last line has no line break: the file is cut off",
                       "its last number may lack digits");
    }
  }

  /// The next line that is not blank.
  bool next() {
    while (begin_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', begin_), text_.size());
      std::string row = text_.substr(begin_, end - begin_);
      begin_ = end + 1;
      ++line_;
      if (!row.empty() && row.back() == '\r') row.pop_back();
      if (row.empty()) continue;
      split(row);
      if (header_.empty() || cells_.size() == header_.size()) return true;
      diagnostics_.add({path_, line_, 1}, fmt::format("has {} cells, the table has {} columns",
                                                      cells_.size(), header_.size()));
    }
    return false;
  }

  std::string text(const char* column) {
    const auto at = find(column);
    if (!at) return "";
    if (cells_[*at].empty()) fail(*at, fmt::format("'{}' is empty", column));
    return cells_[*at];
  }

  double number(const char* column, double low) {
    const auto at = find(column);
    if (!at) return low;
    double value = 0;
    const std::string& cell = cells_[*at];
    const auto [stop, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc{} || stop != cell.data() + cell.size() || !std::isfinite(value)) {
      fail(*at, fmt::format("'{}' must be a number, is '{}'", column, cell));
      return low;
    }
    if (value < low) {
      fail(*at, fmt::format("'{}' must be at least {}, is {}", column, low, cell));
      return low;
    }
    return value;
  }

  int integer(const char* column, int low) {
    constexpr double kMost = 1e6;
    const double value = number(column, low);
    if (value != std::floor(value) || value > kMost) {
      fail(*find(column), fmt::format("'{}' must be a whole number up to {}", column, kMost));
      return low;
    }
    return static_cast<int>(value);
  }

  void fail(const char* column, const std::string& what) { fail(find(column).value_or(0), what); }

 private:
  void split(const std::string& row) {
    cells_.clear();
    columns_.clear();
    for (std::size_t begin = 0; begin <= row.size();) {
      const std::size_t end = std::min(row.find(',', begin), row.size());
      cells_.push_back(row.substr(begin, end - begin));
      columns_.push_back(static_cast<int>(begin) + 1);
      begin = end + 1;
    }
  }

  std::optional<std::size_t> find(const std::string& column) {
    const auto found = std::find(header_.begin(), header_.end(), column);
    if (found != header_.end()) return found - header_.begin();
    if (missing_.try_emplace(column).second) {
      diagnostics_.add({path_, 1, 1}, fmt::format("has no column '{}'", column));
    }
    return std::nullopt;
  }

  void fail(std::size_t cell, const std::string& what) {
    diagnostics_.add({path_, line_, columns_[cell]}, what);
  }

  std::string path_;
  config::Diagnostics& diagnostics_;
  std::string text_;
  std::size_t begin_ = 0;
  int line_ = 0;
  std::vector<std::string> header_;
  std::vector<std::string> cells_;
  std::vector<int> columns_;
  std::map<std::string, bool> missing_;
};

void read_layer_times(const std::string& folder, config::Diagnostics& diagnostics,
                      std::vector<SailorLayerTime>& rows) {
  SailorTable table(folder, "layer_times.csv", diagnostics);
  while (table.next()) {
    SailorLayerTime row;
    row.model = table.text("model");
    row.gpu = table.text("gpu");
    row.tensor_parallel = table.integer("tp", 1);
    row.micro_batch_size = table.integer("micro_batch", 1);
    row.first_layer = table.integer("first_layer", 0);
    row.last_layer = table.integer("last_layer", row.first_layer);
    row.forward = {table.number("forward_s", 0)};
    row.backward = {table.number("backward_s", 0)};
    rows.push_back(std::move(row));
  }
}

void read_optimizer_times(const std::string& folder, config::Diagnostics& diagnostics,
                          std::vector<SailorOptimizerTime>& rows) {
  SailorTable table(folder, "optimizer_times.csv", diagnostics);
  while (table.next()) {
    SailorOptimizerTime row;
    row.model = table.text("model");
    row.gpu = table.text("gpu");
    row.tensor_parallel = table.integer("tp", 1);
    row.micro_batch_size = table.integer("micro_batch", 1);
    row.step = {table.number("optimizer_step_s", 0)};
    row.parameters = table.number("profiled_params_per_gpu", 1);
    rows.push_back(std::move(row));
  }
}

void read_layer_memory(const std::string& folder, config::Diagnostics& diagnostics,
                       std::vector<SailorLayerMemory>& rows) {
  SailorTable table(folder, "layer_memory.csv", diagnostics);
  while (table.next()) {
    SailorLayerMemory row;
    row.model = table.text("model");
    row.tensor_parallel = table.integer("tp", 1);
    row.first_layer = table.integer("first_layer", 0);
    row.last_layer = table.integer("last_layer", row.first_layer);
    row.parameters = table.number("params_per_gpu", 0);
    row.parameter_bytes = {table.number("params_bytes_per_gpu", 0)};
    row.input = {table.number("input_bytes", 0)};
    row.output = {table.number("output_bytes", 0)};
    row.saved_activations = {table.number("saved_activation_bytes", 0)};
    rows.push_back(std::move(row));
  }
}

void read_bandwidths(const std::string& folder, config::Diagnostics& diagnostics,
                     std::vector<SailorBandwidth>& rows) {
  constexpr double kAnyNumber = -1e12;
  SailorTable table(folder, "network_bandwidth.csv", diagnostics);
  while (table.next()) {
    SailorBandwidth row;
    const std::string link = table.text("link");
    row.inter_node = link == "inter_node";
    if (!row.inter_node && link != "intra_node") {
      table.fail("link", fmt::format("unknown link '{}'; inter_node or intra_node", link));
    }
    row.sender_gpu = table.text("sender_gpu");
    row.sender_pairs = table.integer("sender_pairs", 1);
    row.receiver_gpu = table.text("receiver_gpu");
    row.receiver_pairs = table.integer("receiver_pairs", 1);
    row.c2 = table.number("c2", kAnyNumber);
    row.c1 = table.number("c1", kAnyNumber);
    row.c0 = table.number("c0", kAnyNumber);
    row.most_measured = {table.number("max_measured_bytes_per_s", 1)};
    row.positive_from = {table.number("fit_positive_from_bytes", 1)};
    rows.push_back(std::move(row));
  }
}

/// Largest message of the measurements.
constexpr Bytes kLargestMessage{0x1p30};

ir::Provenance provenance(const char* file, std::int64_t samples) {
  ir::Provenance origin;
  origin.source = fmt::format("{}, {}", kSailorSource, file);
  origin.samples = samples;
  return origin;
}

std::string renamed(const std::string& gpu, const GpuNames& names) {
  const auto found = names.find(gpu);
  return found == names.end() ? gpu : found->second;
}

using RunKey = std::tuple<std::string, std::string, int, int>;  ///< Model, GPU, degree, size.

void add_block_times(const RunKey& key, const std::vector<const SailorLayerTime*>& rows,
                     std::int64_t sequence_length, const GpuNames& names, ir::Profile& profile) {
  int last = 0;
  for (const SailorLayerTime* row : rows) last = std::max(last, row->last_layer);
  const auto add = [&](ir::BlockKind kind, ir::Pass pass, Seconds time, std::int64_t samples) {
    ir::BlockTime entry;
    std::tie(entry.model, entry.gpu, entry.tensor_parallel, entry.micro_batch_size) = key;
    entry.gpu = renamed(entry.gpu, names);
    entry.block = kind;
    entry.pass = pass;
    entry.sequence_length = sequence_length;
    entry.dtype = ir::Dtype::fp32;
    entry.time = time;
    entry.provenance = provenance("layer_times.csv", samples);
    profile.block_times.push_back(std::move(entry));
  };
  Seconds forward, backward;
  std::int64_t layers = 0;
  for (const SailorLayerTime* row : rows) {
    if (row->first_layer == 0) {
      add(ir::BlockKind::embedding, ir::Pass::forward, row->forward, 1);
    } else if (row->first_layer == last) {
      add(ir::BlockKind::head, ir::Pass::forward, row->forward, 1);
      add(ir::BlockKind::head, ir::Pass::backward, row->backward, 1);
    } else {
      forward += row->forward;
      backward += row->backward;
      ++layers;
    }
  }
  if (layers == 0) return;
  const auto count = static_cast<double>(layers);
  add(ir::BlockKind::transformer, ir::Pass::forward, forward / count, layers);
  add(ir::BlockKind::transformer, ir::Pass::backward, backward / count, layers);
}

/// Sequence length of each model.
std::map<std::string, std::int64_t> sequence_lengths(const std::string& folder,
                                                     config::Diagnostics& diagnostics) {
  std::map<std::string, std::int64_t> lengths;
  config::Value root;
  const std::string path = (std::filesystem::path(folder) / "models.json").string();
  if (!load_json(path, root, diagnostics)) return lengths;
  const config::Value* models = JsonReader(root, diagnostics).find("models");
  if (models == nullptr) return lengths;
  for (const config::Value::Entry& entry : models->entries) {
    JsonReader model(entry.value, diagnostics);
    constexpr double kMost = 1e9;
    const double tokens = model.number("sequence", 1);
    if (tokens > kMost) {
      model.fail(entry.value, fmt::format("'sequence' must be at most {}, is {}", kMost, tokens));
      continue;
    }
    lengths[entry.key] = static_cast<std::int64_t>(tokens);
  }
  return lengths;
}

void add_optimizers(const std::vector<SailorOptimizerTime>& rows, const GpuNames& names,
                    ir::Profile& profile) {
  struct Sum {
    Seconds step;
    double parameters = 0;
    double count = 0;
  };
  std::map<std::string, std::map<std::pair<std::string, int>, Sum>> by_gpu;
  for (const SailorOptimizerTime& row : rows) {
    Sum& sum = by_gpu[row.gpu][{row.model, row.tensor_parallel}];
    sum.step += row.step;
    sum.parameters += row.parameters;
    sum.count += 1;
  }
  for (const auto& [gpu, points] : by_gpu) {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (const auto& [key, sum] : points) {
      const double at = sum.parameters / sum.count;
      const double time = sum.step.value / sum.count;
      n += 1;
      x += at;
      y += time;
      xx += at * at;
      xy += at * time;
    }
    const double spread = n * xx - x * x;
    ir::OptimizerTime entry;
    entry.gpu = renamed(gpu, names);
    entry.dtype = ir::Dtype::fp32;
    const double slope = spread > 0 ? (n * xy - x * y) / spread : 0;
    // One size, or noise that makes larger ones faster: in proportion to the parameters.
    entry.per_parameter = {slope > 0 ? slope : y / x};
    entry.fixed = {std::max(0.0, (y - entry.per_parameter.value * x) / n)};
    entry.provenance = provenance("optimizer_times.csv", static_cast<std::int64_t>(n));
    profile.optimizers.push_back(std::move(entry));
  }
}

void add_links(const std::vector<SailorBandwidth>& rows, const GpuNames& names,
               ir::Profile& profile) {
  for (const SailorBandwidth& row : rows) {
    if (row.sender_gpu != row.receiver_gpu || row.sender_pairs != row.receiver_pairs) continue;
    if (row.inter_node && row.sender_pairs != 1) continue;
    const std::string gpu = renamed(row.sender_gpu, names);
    const auto segments = row.inter_node ? sailor_segments(row, 1, sailor_node_link(gpu))
                                         : sailor_segments(row, 1.0 / row.sender_pairs,
                                                           sailor_gpu_link(gpu, row.sender_pairs));
    profile.links.insert(profile.links.end(), segments.begin(), segments.end());
  }
}

}  // namespace

SailorTables read_sailor_tables(const std::string& folder, config::Diagnostics& diagnostics) {
  SailorTables tables;
  read_layer_times(folder, diagnostics, tables.layer_times);
  read_optimizer_times(folder, diagnostics, tables.optimizer_times);
  read_layer_memory(folder, diagnostics, tables.layer_memory);
  read_bandwidths(folder, diagnostics, tables.bandwidths);
  return tables;
}

BytesPerSecond sailor_rate(const SailorBandwidth& fit, Bytes message) {
  const double x = std::log2(std::max(message, fit.positive_from).value / 1e6);
  return {1e9 * (fit.c2 * x * x + fit.c1 * x + fit.c0)};
}

std::string sailor_node_link(const std::string& gpu) { return gpu + "-inter_node"; }

std::string sailor_gpu_link(const std::string& gpu, int pairs) {
  return fmt::format("{}-intra_node-x{}", gpu, pairs);
}

std::vector<ir::LinkSegment> sailor_segments(const SailorBandwidth& fit, double share,
                                             const std::string& link_class) {
  ORRERY_CHECK(share > 0 && share <= 1, "share {}", share);
  std::vector<std::pair<Bytes, Seconds>> points;
  BytesPerSecond rate;
  for (Bytes size = fit.positive_from; size <= kLargestMessage; size = 2 * size) {
    rate = std::min(std::max(rate, sailor_rate(fit, size)), fit.most_measured);
    if (rate.value <= 0) continue;
    points.emplace_back(size, size / (share * rate));
  }
  // Where a larger message takes less time, the parabola says nothing.
  std::size_t first = 0;
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    if (points[i + 1].second <= points[i].second) first = i + 1;
  }
  std::vector<ir::LinkSegment> segments;
  for (std::size_t i = first; i + 1 < points.size(); ++i) {
    const auto& [from, time] = points[i];
    ir::LinkSegment segment;
    segment.link_class = link_class;
    segment.from_bytes = from;
    segment.bandwidth = (points[i + 1].first - from) / (points[i + 1].second - time);
    segment.latency = std::max(time - from / segment.bandwidth, Seconds{});
    segment.provenance = provenance("network_bandwidth.csv", 1);
    segments.push_back(std::move(segment));
  }
  return segments;
}

ir::Profile import_sailor_profile(const std::string& folder, const GpuNames& names,
                                  config::Diagnostics& diagnostics) {
  const SailorTables tables = read_sailor_tables(folder, diagnostics);
  const auto lengths = sequence_lengths(folder, diagnostics);
  ir::Profile profile;
  profile.name = "sailor";
  std::map<RunKey, std::vector<const SailorLayerTime*>> runs;
  for (const SailorLayerTime& row : tables.layer_times) {
    runs[{row.model, row.gpu, row.tensor_parallel, row.micro_batch_size}].push_back(&row);
  }
  for (const auto& [key, rows] : runs) {
    const auto length = lengths.find(std::get<0>(key));
    if (length == lengths.end()) {
      if (diagnostics.empty()) {
        diagnostics.add({(std::filesystem::path(folder) / "models.json").string(), 0, 0},
                        fmt::format("does not know the model '{}'", std::get<0>(key)));
      }
      continue;
    }
    add_block_times(key, rows, length->second, names, profile);
  }
  add_optimizers(tables.optimizer_times, names, profile);
  add_links(tables.bandwidths, names, profile);
  return profile;
}

}  // namespace orrery::calibration

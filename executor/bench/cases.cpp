#include "executor/bench/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "models/ir/measurement_text.h"

namespace orrery::executor {
namespace {

using ir::BlockKind;
using ir::Measurement;
using ir::MeasurementKind;
using ir::Pass;
using ir::Recompute;

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;

/// Collects cases; a second one of the same key is dropped.
class CaseList {
 public:
  explicit CaseList(const BenchRequest& request) : request_(request) {}

  void add(const Measurement& key, const std::vector<DeviceId>& devices, double slowdown) {
    if (!request_.kinds.empty() && !request_.kinds.contains(key.kind)) return;
    if (!seen_.insert(ir::measurement_key(key)).second) return;
    cases_.push_back({key, devices, slowdown});
  }
  std::vector<BenchCase> take() { return std::move(cases_); }

 private:
  const BenchRequest& request_;
  std::set<std::string> seen_;
  std::vector<BenchCase> cases_;
};

bool divides(const ir::ModelShape& shape, int degree) {
  const bool kv = shape.kv_heads % degree == 0 || degree % shape.kv_heads == 0;
  return shape.heads % degree == 0 && shape.ffn % degree == 0 && kv;
}

/// Work of a pass over the work of the forward pass.
double work_of(Pass pass, Recompute recompute) {
  const double again = recompute == Recompute::full ? 1 : 0;
  switch (pass) {
    case Pass::backward:
      return 2 + again;
    case Pass::backward_input:
      return 1 + again;
    default:
      return 1;
  }
}

struct BlockRow {
  BlockKind block;
  Pass pass;
  Recompute recompute;
};
/// Only layers are recomputed; the embedding has no gradient of its input.
constexpr BlockRow kPasses[] = {
    {BlockKind::transformer, Pass::forward, Recompute::none},
    {BlockKind::transformer, Pass::backward, Recompute::none},
    {BlockKind::transformer, Pass::backward_input, Recompute::none},
    {BlockKind::transformer, Pass::backward_weight, Recompute::none},
    {BlockKind::transformer, Pass::backward, Recompute::full},
    {BlockKind::transformer, Pass::backward_input, Recompute::full},
    {BlockKind::embedding, Pass::forward, Recompute::none},
    {BlockKind::embedding, Pass::backward, Recompute::none},
    {BlockKind::embedding, Pass::backward_weight, Recompute::none},
    {BlockKind::head, Pass::forward, Recompute::none},
    {BlockKind::head, Pass::backward, Recompute::none},
    {BlockKind::head, Pass::backward_input, Recompute::none},
    {BlockKind::head, Pass::backward_weight, Recompute::none},
};

Flops forward_of(const BenchModel& model, BlockKind block) {
  if (block == BlockKind::embedding) return model.embedding;
  return block == BlockKind::head ? model.head : model.layer;
}

void add_blocks(const BenchRequest& request, const BenchDevice& at, const Measurement& base,
                CaseList& out) {
  for (const int micro_batch : request.micro_batches) {
    Measurement key = base;
    key.micro_batch_size = micro_batch;
    for (const int layers : request.layers) {
      for (const BlockRow& row : kPasses) {
        const bool layer = row.block == BlockKind::transformer;
        key.kind = MeasurementKind::block;
        key.block = row.block;
        key.pass = row.pass;
        key.recompute = row.recompute;
        key.layers = layer ? layers : 1;
        key.flops =
            forward_of(request.model, row.block) *
            (work_of(row.pass, row.recompute) * key.layers * micro_batch / key.tensor_parallel);
        out.add(key, {at.device}, at.slowdown);
        if (row.pass != Pass::backward) continue;
        key.kind = MeasurementKind::memory;
        key.pass = Pass::forward;
        key.flops = {};
        out.add(key, {at.device}, 1);
      }
    }
  }
}

void add_gemms(const BenchRequest& request, const BenchDevice& at, const Measurement& base,
               CaseList& out) {
  for (const int micro_batch : request.micro_batches) {
    const std::int64_t rows = micro_batch * request.model.sequence_length;
    for (const GemmShape& shape : gemm_shapes(request.model.shape, rows, base.tensor_parallel)) {
      Measurement key;
      key.kind = MeasurementKind::gemm;
      key.device_type = at.type;
      key.dtype = base.dtype;
      key.m = shape.m;
      key.n = shape.n;
      key.k = shape.k;
      key.flops = Flops{2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                        static_cast<double>(shape.k)};
      out.add(key, {at.device}, at.slowdown);
    }
  }
}

void add_compute(const BenchRequest& request, const BenchDevice& at, CaseList& out) {
  Measurement base;
  base.device_type = at.type;
  base.dtype = request.model.dtype;
  base.sequence_length = request.model.sequence_length;
  for (const int degree : request.tensor_parallel) {
    if (!divides(request.model.shape, degree)) continue;
    base.tensor_parallel = degree;
    add_blocks(request, at, base, out);
    add_gemms(request, at, base, out);
  }
  Measurement key;
  key.device_type = at.type;
  key.dtype = request.model.dtype;
  key.kind = MeasurementKind::memory_bandwidth;
  for (const std::int64_t bytes : request.copy_bytes) {
    key.bytes = Bytes{static_cast<double>(bytes)};
    out.add(key, {at.device}, at.slowdown);
  }
  key.bytes = {};
  key.kind = MeasurementKind::optimizer;
  for (const std::int64_t parameters : request.optimizer_parameters) {
    key.parameters = static_cast<double>(parameters);
    out.add(key, {at.device}, at.slowdown);
  }
  key.parameters = 0;
  key.kind = MeasurementKind::op_overhead;
  out.add(key, {at.device}, at.slowdown);
}

void add_storage(const BenchRequest& request, CaseList& out) {
  Measurement key;
  key.device_type = request.devices.front().type;
  for (const ir::Location location : {ir::Location::nvme, ir::Location::cloud}) {
    const bool cloud = location == ir::Location::cloud;
    if (cloud ? !request.cloud_folder : !request.local_folder) continue;
    key.location = location;
    for (const std::int64_t bytes : request.checkpoint_bytes) {
      key.bytes = Bytes{static_cast<double>(bytes)};
      for (const auto kind :
           {MeasurementKind::checkpoint_write, MeasurementKind::checkpoint_read}) {
        key.kind = kind;
        out.add(key, {request.devices.front().device}, 1);
      }
    }
  }
}

void add_network(const BenchRequest& request, CaseList& out) {
  Measurement key;
  key.kind = MeasurementKind::point_to_point;
  for (const BenchPair& pair : request.pairs) {
    key.source = pair.source;
    key.destination = pair.destination;
    key.link_class = pair.link_class;
    for (const bool both : {false, true}) {
      // Both ways is the same measurement from either end.
      if (both && pair.source > pair.destination) continue;
      key.both_ways = both;
      for (const std::int64_t bytes : request.message_bytes) {
        key.bytes = Bytes{static_cast<double>(bytes)};
        out.add(key, {pair.source, pair.destination}, 1);
      }
    }
  }
  using enum ir::CollectiveKind;
  for (const BenchGroup& group : request.groups) {
    Measurement sum;
    sum.kind = MeasurementKind::collective;
    sum.link_class = group.link_class;
    sum.ranks = static_cast<int>(group.devices.size());
    for (const auto kind : {all_reduce, reduce_scatter, all_gather, broadcast}) {
      sum.collective = kind;
      for (const std::int64_t bytes : request.collective_bytes) {
        sum.bytes = Bytes{static_cast<double>(bytes)};
        out.add(sum, group.devices, 1);
      }
    }
  }
}

}  // namespace

void describe(config::Visitor& v, BenchCase& one) {
  describe_field(v, "key", one.key, "what is measured");
  v.required("devices", one.devices, "that measure it together");
  v.required("slowdown", one.slowdown, "of compute");
}

void describe_field(config::Visitor& v, const char* key, ir::Measurement& value, const char* doc) {
  std::vector<ir::Measurement> values = {value};
  describe_field(v, key, values, doc);
  if (values.size() == 1) value = values.front();
}

void describe_field(config::Visitor& v, const char* key, std::vector<ir::Measurement>& values,
                    const char* doc) {
  std::vector<std::vector<std::string>> rows;
  for (const ir::Measurement& one : values) rows.push_back(ir::to_cells(one));
  v.required(key, rows, doc);
  if (!v.reading()) return;
  values.clear();
  for (const std::vector<std::string>& cells : rows) {
    if (cells.size() != ir::measurement_columns().size()) {
      return v.problem(key, fmt::format("a measurement of {} fields", cells.size()));
    }
    if (const auto wrong = ir::from_cells(cells, values.emplace_back())) {
      const auto& column = ir::measurement_columns()[wrong->column];
      return v.problem(key,
                       fmt::format("a measurement whose {} is wrong: {}", column, wrong->what));
    }
  }
}

std::vector<std::int64_t> steps_of_four(std::int64_t low, std::int64_t high) {
  std::vector<std::int64_t> out;
  for (std::int64_t step = low; step < high; step *= 4) out.push_back(step);
  out.push_back(high);
  return out;
}

void set_default_sizes(BenchRequest& request, bool quick) {
  request.message_bytes = steps_of_four(8, quick ? 512 * kKiB : 64 * kMiB);
  request.collective_bytes = steps_of_four(4 * kKiB, quick ? 256 * kKiB : 16 * kMiB);
  request.copy_bytes = steps_of_four(16 * kKiB, quick ? 4 * kMiB : 256 * kMiB);
  request.optimizer_parameters = steps_of_four(4 * kKiB, quick ? 256 * kKiB : 4 * kMiB);
  request.checkpoint_bytes = steps_of_four(64 * kKiB, quick ? kMiB : 64 * kMiB);
  if (!quick) return;
  request.layers = {1, 2, 4};
  request.tensor_parallel = {1, 2};
  request.micro_batches = {1, 2};
}

std::vector<GemmShape> gemm_shapes(const ir::ModelShape& shape, std::int64_t rows,
                                   int tensor_parallel) {
  const std::int64_t tp = tensor_parallel;
  const std::int64_t hidden = shape.hidden;
  const std::int64_t query = std::int64_t{shape.heads} * shape.head_dim / tp;
  // Groups of key-value heads that do not divide: at least one on each member.
  const std::int64_t kv = std::max<std::int64_t>(shape.kv_heads / tp, 1) * shape.head_dim;
  const std::int64_t ffn = shape.ffn / tp;
  const std::int64_t vocabulary = (shape.vocabulary + tp - 1) / tp;
  std::set<GemmShape> shapes = {{rows, query, hidden},     {rows, kv, hidden},
                                {rows, hidden, query},     {rows, ffn, hidden},
                                {rows, hidden, ffn},       {rows, vocabulary, hidden},
                                {rows, hidden, vocabulary}};
  return {shapes.begin(), shapes.end()};
}

std::vector<BenchCase> list_cases(const BenchRequest& request) {
  CaseList out(request);
  for (const BenchDevice& at : request.devices) add_compute(request, at, out);
  if (!request.devices.empty()) add_storage(request, out);
  add_network(request, out);
  return out.take();
}

}  // namespace orrery::executor

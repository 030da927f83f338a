#include "planners/recovery/autohet/bitmap.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace orrery::planners {
namespace {

/// Calls take(device, block, rank, degree) for each part of a layer that a device holds.
template <class F>
void each_part(const ir::Plan& plan, F&& take) {
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        for (const ir::Group& group : segment.groups) {
          for (std::size_t i = 0; i < group.devices.size(); ++i) {
            const int rank = static_cast<int>(i) % group.tensor_parallel;
            for (int b = segment.first_block.value; b <= segment.last_block.value; ++b) {
              take(group.devices[i], BlockId{b}, rank, group.tensor_parallel);
            }
          }
        }
      }
    }
  }
}

struct BlockBytes {
  double split = 0;  ///< Of all ranks together.
  double whole = 0;  ///< On each rank.
};

BlockBytes bytes_of(const models::Block& block, const models::ReshardBytes& bytes) {
  BlockBytes result;
  const double each = bytes.weight + bytes.optimizer();
  for (const models::Parameter& parameter : block.parameters) {
    double& sum = parameter.split_length > 0 ? result.split : result.whole;
    sum += each * static_cast<double>(parameter.elements);
  }
  return result;
}

TensorChange change_of(int from, int to) {
  if (from == to) return TensorChange::same;
  if (to % from == 0) return TensorChange::split;
  if (from % to == 0) return TensorChange::concatenate;
  return TensorChange::both;
}

}  // namespace

const char* name_of(TensorChange change) {
  switch (change) {
    case TensorChange::same:
      return "same";
    case TensorChange::split:
      return "split";
    case TensorChange::concatenate:
      return "concatenate";
    case TensorChange::both:
      return "split and concatenate";
  }
  return "";
}

LayerBitmap::LayerBitmap(const PolicyInput& input, const std::vector<models::StateReplica>& states,
                         std::int64_t iteration, std::vector<StateSource> order)
    : cluster_(input.cluster),
      workload_(input.workload),
      order_(std::move(order)),
      rows_(input.workload.blocks.size()) {
  for (const models::StateReplica& state : states) {
    if (state.iteration != iteration || state.location == ir::Location::peer) continue;
    const std::vector<DeviceId> devices = ir::devices_of(*state.layout);
    IdVector<DeviceId, FileReplica> of(cluster_.size());
    IdVector<DeviceId, bool> lost(cluster_.size(), false);
    for (const std::uint32_t shard : state.lost_shards) lost[devices[shard]] = true;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      of[devices[i]] = {state.location, state.stored_on.empty() ? devices[i] : state.stored_on[i]};
      if (state.location == ir::Location::cloud) of[devices[i]].stored_on = {};
    }
    each_part(*state.layout, [&](DeviceId device, BlockId block, int rank, int degree) {
      if (lost[device]) return;
      Files& files = rows_[block][degree];
      files.resize(degree);
      const FileReplica& replica = of[device];
      std::vector<FileReplica>& replicas = files[rank];
      const auto at = std::lower_bound(replicas.begin(), replicas.end(), replica);
      if (at == replicas.end() || *at != replica) replicas.insert(at, replica);
    });
  }
}

std::vector<bool> LayerBitmap::row(BlockId block, int degree, int rank) const {
  std::vector<bool> bits(cluster_.size());
  const auto found = rows_[block].find(degree);
  if (found == rows_[block].end()) return bits;
  for (const FileReplica& replica : found->second[rank]) {
    if (replica.stored_on.valid()) bits[replica.stored_on.index()] = true;
  }
  return bits;
}

std::optional<LayerFile> LayerBitmap::find(const std::vector<FileReplica>& replicas,
                                           DeviceId reader) const {
  // Replicas ascend by location and device, and the devices of a node follow one another.
  const models::Device& device = cluster_.device(reader);
  const DeviceId first{reader.value - device.position};
  const auto size = static_cast<std::int32_t>(cluster_.node(device.node).gpu_types.size());
  const DeviceId end{first.value + size};
  for (const StateSource source : order_) {
    const ir::Location location = location_of(source);
    const auto from = [&](DeviceId stored_on) {
      return std::lower_bound(replicas.begin(), replicas.end(), FileReplica{location, stored_on});
    };
    const auto is_here = [&](auto at) {
      return at != replicas.end() && at->location == location && first <= at->stored_on &&
             at->stored_on < end;
    };
    const bool own = source == StateSource::own_host || source == StateSource::own_nvme;
    auto at = from(own ? first : DeviceId{});
    if (!own && location != ir::Location::cloud && is_here(at)) at = from(end);
    if (own ? !is_here(at) : at == replicas.end() || at->location != location) continue;
    LayerFile file;
    file.source = source;
    file.stored_on = at->stored_on;
    return file;
  }
  return std::nullopt;
}

LayerRead LayerBitmap::read(DeviceId reader, BlockId block, int rank, int degree,
                            const models::ReshardBytes& bytes) const {
  const BlockBytes size = bytes_of(workload_.block(block), bytes);
  LayerRead best{reader, block, TensorChange::same, {}};
  // Larger degrees first: of equally many files the smaller ones.
  const std::map<int, Files>& files_of = rows_[block];
  for (auto degrees = files_of.rbegin(); degrees != files_of.rend(); ++degrees) {
    const int from = degrees->first;
    const int first = rank * from / degree;
    const int last = ((rank + 1) * from + degree - 1) / degree - 1;
    LayerRead candidate{reader, block, change_of(from, degree), {}};
    for (int i = first; i <= last; ++i) {
      auto file = find(degrees->second[i], reader);
      if (!file) break;
      file->rank = i;
      file->degree = from;
      file->size = Bytes{size.split / from + size.whole};
      const int begin = std::max(i * degree, rank * from);
      const int end = std::min((i + 1) * degree, (rank + 1) * from);
      file->used = Bytes{size.split * (end - begin) / (static_cast<double>(from) * degree) +
                         (i == first ? size.whole : 0)};
      candidate.files.push_back(*file);
    }
    if (static_cast<int>(candidate.files.size()) != last - first + 1) continue;
    if (best.files.empty() || candidate.files.size() < best.files.size()) {
      best = std::move(candidate);
    }
  }
  return best;
}

std::vector<LayerRead> LayerBitmap::reads(const ir::Plan& to,
                                          const models::ReshardBytes& bytes) const {
  struct Part {
    BlockId block;
    int rank;
    int degree;
  };
  IdVector<DeviceId, std::vector<Part>> parts(cluster_.size());
  each_part(to, [&](DeviceId device, BlockId block, int rank, int degree) {
    parts[device].push_back({block, rank, degree});
  });
  std::vector<LayerRead> all;
  for (const DeviceId device : parts.ids()) {
    std::stable_sort(parts[device].begin(), parts[device].end(),
                     [](const Part& a, const Part& b) { return a.block < b.block; });
    for (const Part& part : parts[device]) {
      all.push_back(read(device, part.block, part.rank, part.degree, bytes));
    }
  }
  return all;
}

std::string find_bitmap_problem(const ir::Plan& plan) {
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        if (segment.zero.shards_optimizer()) return "ZeRO divides the optimizer states of a layer";
        if (segment.expert_parallel > 1) return "expert parallelism divides a layer";
      }
    }
  }
  return {};
}

std::vector<models::StateTransfer> whole_file_transfers(const std::vector<LayerRead>& reads) {
  std::map<std::tuple<ir::Location, DeviceId, DeviceId>, double> bytes;
  for (const LayerRead& read : reads) {
    for (const LayerFile& file : read.files) {
      bytes[{location_of(file.source), file.stored_on, read.reader}] += file.size.value;
    }
  }
  std::vector<models::StateTransfer> transfers;
  for (const auto& [key, sum] : bytes) {
    const auto& [from, source, reader] = key;
    transfers.push_back({from, ir::Location::peer, source, reader, Bytes{sum}});
  }
  return transfers;
}

}  // namespace orrery::planners

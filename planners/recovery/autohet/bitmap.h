/// AutoHet's layer-wise checkpoints: one file for each layer and tensor-parallel rank, the bitmap
/// of who has which, and what each device of a new plan reads to get its part of each layer: its
/// file (same degree), a file that it splits (larger degree), several that it concatenates (smaller
/// degree). Local files first, those of peers over RDMA second, the cloud last.
/// [AutoHet, IV-B1, IV-B2, IV-C]. Private to planners/recovery.
///
/// Deviation: the paper's degrees are uniform; here pipelines of a plan may have different ones,
/// and a reader takes files of the degree from which it reads fewest, of these the larger degree.
/// ZeRO and expert parallelism, which the paper does not treat, divide files further: such layouts
/// have no bitmap (find_bitmap_problem).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/base/id_vector.h"
#include "models/interfaces/recovery_policy.h"
#include "models/ir/plan.h"
#include "planners/recovery/kit/restore.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// How a device's part of a layer lies in the files that it reads. [AutoHet, IV-B2, Figure 6]
enum class TensorChange : std::uint8_t {
  same,         ///< i: one file, all of it.
  split,        ///< ii: one file, a part of it.
  concatenate,  ///< iii: several files, all of them.
  both,         ///< Degrees that do not divide each other: parts of several files.
};
const char* name_of(TensorChange change);

/// A file of a layer: tensor-parallel rank `rank` of `degree`.
struct LayerFile {
  int rank = 0;
  int degree = 1;
  StateSource source = StateSource::cloud;
  DeviceId stored_on;  ///< On whose node it lies; invalid in the cloud.
  Bytes size;
  Bytes used;  ///< By the reader; what is replicated over ranks counts in the first file only.
};

struct LayerRead {
  DeviceId reader;
  BlockId block;
  TensorChange change = TensorChange::same;
  std::vector<LayerFile> files;  ///< By rank; empty: the layer is nowhere.
};

class LayerBitmap {
 public:
  /// The replicas of the state after one iteration in host memory, NVMe and cloud that `order`
  /// allows. Keeps what `input` refers to.
  LayerBitmap(const PolicyInput& input, const std::vector<models::StateReplica>& states,
              std::int64_t iteration, std::vector<StateSource> order);

  /// Bit i of a file: device i holds it (in host memory or on NVMe of its node).
  /// The row of a layer, by [degree][rank]; empty: no such file anywhere but in the cloud.
  std::vector<bool> row(BlockId block, int degree, int rank) const;

  /// What each device of the plan reads of each of its layers, by device and layer.
  std::vector<LayerRead> reads(const ir::Plan& to, const models::ReshardBytes& bytes) const;

 private:
  struct FileReplica {
    ir::Location location = ir::Location::cloud;
    DeviceId stored_on;
    auto operator<=>(const FileReplica&) const = default;
  };
  using Files = std::vector<std::vector<FileReplica>>;  ///< By rank: where it lies.
  std::optional<LayerFile> find(const std::vector<FileReplica>& replicas, DeviceId reader) const;
  LayerRead read(DeviceId reader, BlockId block, int rank, int degree,
                 const models::ReshardBytes& bytes) const;

  const models::Cluster& cluster_;
  const models::Workload& workload_;
  std::vector<StateSource> order_;
  IdVector<BlockId, std::map<int, Files>> rows_;  ///< By block: by degree.
};

/// Why the plan's checkpoints are not one file for each layer and rank; empty: they are.
std::string find_bitmap_problem(const ir::Plan& plan);

/// Whole files as transfers, one for each (source, reader): torch.load reads a file whole, also
/// where the reader needs a part of it.
std::vector<models::StateTransfer> whole_file_transfers(const std::vector<LayerRead>& reads);

}  // namespace orrery::planners

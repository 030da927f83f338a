/// Transfer of one micro-batch between two adjacent pipeline stages whose groups may differ in
/// number, in tensor-parallel degree and in sample ranges. Gradients of activations go the other
/// way: swap senders and receivers.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "models/ir/plan.h"
#include "models/sharding/annotation.h"
#include "models/sharding/resolve.h"

namespace orrery::models {

/// Dimensions of the activations of a micro-batch: samples, and the tokens of a sample.
inline constexpr Axis kSampleAxis = 0;
inline constexpr Axis kTokenAxis = 1;

/// leader_broadcast: the sender's leader sends to the receiver's leader, which broadcasts in its
/// subgroup. [HexiScale, section 3.2] A sender that splits the tokens first collects them at its
/// leader; a receiver that does gets its parts from its leader. The leader is the first device.
/// sliced: each device sends its share of what two subgroups have in common to the receiver's
/// devices, each of which gets its share; then the receivers all-gather. Unequal degrees meet in
/// the finest common slices. A receiver that splits the tokens, each part on one device, needs no
/// all-gather. [Hetu v2, sections 4.1 and 4.3]
/// If a subgroup of either side splits the tokens and has copies of each part (S1 and D), each part
/// of each sample, on either side, is treated as a subgroup with a leader of its own.
using ir::ActivationTransfer;

/// Steps that bring the senders' activations to the receivers; the elements are the tokens, sample
/// by sample: flatten(annotation, shape). A subgroup is a tensor-parallel group of a stage with the
/// samples of the micro-batch that it works on: HDim is kSampleAxis, the shares are samples. Its
/// states: D, each device has all tokens of its samples; S1, each has a part of each sample's
/// tokens, uneven ones allowed (a split in one part is a split, too: shares are taken sample by
/// sample); or both. A caller that does not care for tokens may say 1 token in `shape`.
/// None when the receivers hold them already (virtual stages on the same devices).
/// Aborts (ORRERY_CHECK) on an annotation that is invalid for the shape or says anything else:
/// plans are validated before.
std::vector<GroupStep> transfer_activations(const Annotation& senders, const Annotation& receivers,
                                            const Shape& shape, ActivationTransfer transfer);

/// Remembers transfer_activations(): the steps between devices of other names in the same order are
/// the same, but for the names.
class KnownTransfers {
 public:
  std::vector<GroupStep> steps(const Annotation& senders, const Annotation& receivers,
                               const Shape& shape, ActivationTransfer transfer);

 private:
  /// By annotations, shape and transfer as numbers, each device under its rank among all of them.
  std::map<std::vector<std::int64_t>, std::vector<GroupStep>> known_;
};

}  // namespace orrery::models

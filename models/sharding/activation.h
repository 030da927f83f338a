/// Transfer of one micro-batch between two adjacent pipeline stages whose groups may differ in
/// number, in tensor-parallel degree and in sample ranges. Gradients of activations go the other
/// way: swap senders and receivers.
#pragma once
#include <cstdint>
#include <vector>

#include "models/ir/plan.h"
#include "models/sharding/layout.h"
#include "models/sharding/resolve.h"

namespace orrery::models {

/// How a tensor-parallel group holds the activations of its samples.
enum class ActivationLayout {
  replicated,      ///< Each member holds all tokens.
  sequence_split,  ///< Member i holds the i-th part of each sample's tokens: Megatron's sequence
                   ///< parallelism. Even, the first parts one token longer.
};

/// A tensor-parallel group of a stage and the samples of the micro-batch that it works on.
struct ActivationGroup {
  std::vector<int> owners;  ///< The first is the leader.
  Slice samples;
  ActivationLayout layout = ActivationLayout::replicated;
};

/// leader_broadcast: the sender's leader sends to the receiver's leader, which broadcasts in its
/// group. [HexiScale, section 3.2] A sequence_split sender first collects at its leader; a
/// sequence_split receiver gets its parts from its leader.
/// sliced: each member sends its share of what two groups have in common to the receiver's members,
/// each of which gets its share; then the receivers all-gather. Unequal degrees meet in the finest
/// common slices. A sequence_split receiver needs no all-gather. [Hetu v2, sections 4.1 and 4.3]
using ir::ActivationTransfer;

/// The layout over tokens: element x is token x mod sequence_length of sample
/// x / sequence_length. The groups tile the samples from 0. A caller with replicated groups that
/// does not care for tokens may pass sequence_length 1 and read the elements as samples.
Layout activation_layout(const std::vector<ActivationGroup>& groups, std::int64_t sequence_length);

/// Steps that bring the senders' activations to the receivers; elements as in activation_layout.
/// None when the receivers hold them already (virtual stages on the same devices).
/// Aborts (ORRERY_CHECK) when groups do not tile the same samples: plans are validated before.
std::vector<Step> transfer_activations(const std::vector<ActivationGroup>& senders,
                                       const std::vector<ActivationGroup>& receivers,
                                       std::int64_t sequence_length, ActivationTransfer transfer);

}  // namespace orrery::models

/// Redundant copies of the next stage (Redundancy::next_stage): the gradients that keep them
/// current, and the memory that they take. Private to models/lower.
///
/// Only the forward passes of the redundant computation are lowered. Bamboo runs them eagerly, so
/// that a copy can take over at once, and the backward passes lazily, when the stage is lost. A
/// program has no loss in it; what a loss costs is planners/recovery/bamboo/bamboo.cpp's to say.
/// [Thorpe et al., NSDI 2023: eager forward, lazy backward redundant computation]
#pragma once
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "models/lower/passes.h"

namespace orrery::models {

/// By rank: its recvs of gradients for its copy.
using ShadowRecvs = std::map<RankId, std::vector<PendingOp>>;

/// Makes `send` wait until the rank's gradients of the copied segment have been added up.
using GradientWait = std::function<void(PendingOp send, RankId rank, const ir::Segment& copied)>;

/// Sends the synchronized gradients of each copied stage to the copy's keeper in the same pipeline:
/// one message for each pair of ranks, with the transfers of their devices side by side. `alike`:
/// runs of blocks that lie alike. The tied matrix is named as the embedding's. Receivers wait for
/// nothing, so that all messages may travel at once.
ShadowRecvs add_shadow_gradients(const LowerContext& context,
                                 const std::vector<std::pair<BlockId, BlockId>>& alike,
                                 const GradientWait& wait, ProgramBuilder& builder);

/// Adds the copies' parameters and optimizer states to the resident buffers, and what the optimizer
/// step of each keeper updates besides its own to `states` (by rank). Returns by rank the received
/// gradients, which are there during that step: they come when the activations are gone.
std::map<RankId, ir::BufferEffect> add_shadow_states(const LowerContext& context,
                                                     std::vector<Bytes>& states,
                                                     ProgramBuilder& builder);

}  // namespace orrery::models

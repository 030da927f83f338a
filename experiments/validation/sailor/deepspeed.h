/// What DeepSpeed's PipelineEngine does differently from a program as models/lower makes it. Facts
/// from its public sources (deepspeed/runtime/pipe/{schedule,engine}.py, Apache 2.0, version 0.16),
/// no code of theirs.
#pragma once
#include "models/base/units.h"
#include "models/ir/program.h"

namespace orrery::experiments {

/// Gradients are copied into flat buffers of at most 5e8 elements and reduced from there.
inline constexpr double kDeepSpeedBucketElements = 5e8;

/// A collapsed 1F1B program of one segment for each stage, changed to
/// - blocking transfers: a rank runs its passes, sends and receives one after the other, in the
///   order of DeepSpeed's TrainSchedule. In step k (from 0), stage s of S runs the forward pass of
///   micro-batch (k - s) / 2 if k - s is even, else the backward pass of micro-batch
///   (k + s + 1) / 2 - S, if there is such a micro-batch. Before a forward pass it sends the
///   gradient of the previous step and receives the activation; before a backward pass it receives
///   the gradient, then sends the activation of the previous step. Gathering slices that were
///   received belongs to the pass;
/// - twice the bytes in the gathers of gradients: before a backward pass DeepSpeed gathers the
///   received gradient and the stage's own output, of which it kept a slice;
/// - gradient synchronization after the last backward pass and send;
/// - passes without inner collectives, whose time the measured layer times include;
/// - one more flat gradient buffer per rank (at most kDeepSpeedBucketElements of 4 bytes).
///   PyTorch's allocator does not join freed blocks to make room for one of its size, so it adds to
///   what the device holds.
/// Without `blocking`, transfers overlap with passes, as lowered; the other changes stay.
/// The result has no defect (ir::find_defect).
ir::Program as_deepspeed(ir::Program program, bool blocking = true);

}  // namespace orrery::experiments

/// Parts of find_defect() that look at how ops follow one another. Both rely on indices, streams,
/// matches and rendezvous being right. Private to models/ir.
#pragma once
#include <cstddef>
#include <string>

#include "models/ir/program.h"

namespace orrery::ir {

/// "op 17 (send of rank 3, micro-batch 2)".
std::string describe_op(const Program& program, std::size_t index);

/// Buffers of each rank: none freed that is not allocated or twice, all of a micro-batch freed, as
/// many bytes as were allocated. Empty if all is well.
std::string find_buffer_defect(const Program& program);

/// Streams, dependencies, transfers and rendezvous: an order of execution exists. Empty if so.
std::string find_order_defect(const Program& program);

}  // namespace orrery::ir

/// Parts of a GPU: green contexts, which confine the work of a stream to some multiprocessors
/// [CUDA driver API, 6.35 "Green Contexts"; CUDA 12.4 and later]. The driver's functions are looked
/// up at run time, so that programs start where no driver is. Private to executor/cuda.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

namespace orrery::executor {

/// Some multiprocessors of a device. Destroyed after the streams that were made in it.
class GreenContext {
 public:
  virtual ~GreenContext() = default;
  virtual int multiprocessors() const = 0;
  /// The caller destroys it. Work on it needs no current context but the device's own: a green
  /// context may be current in one thread only, and ranks have several.
  virtual cudaStream_t make_stream() = 0;
  /// Without times, of the context of those streams: other events cannot be recorded on them. Not
  /// while another thread calls anything on one of its streams. The caller destroys it.
  virtual cudaEvent_t make_event() = 0;
};

/// One part for each count, disjoint: groups of one split of the device, as many as needed. Throws
/// std::runtime_error.
std::vector<std::shared_ptr<GreenContext>> split_device(int device, const std::vector<int>& counts);

}  // namespace orrery::executor

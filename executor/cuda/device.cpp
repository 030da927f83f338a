#include "executor/cuda/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "executor/cuda/cublas.h"
#include "executor/cuda/error.h"
#include "models/base/check.h"

namespace orrery::executor {
namespace {

/// Pinned memory of a transfer, in two halves: one is filled while the other is copied.
constexpr std::size_t kHalfBytes = std::size_t{2} << 20;
/// What NVIDIA recommends for sm_90; of a fixed size, so that equal products take equal algorithms.
/// [cuBLAS 13, cublasSetWorkspace]
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
/// Small transfers that may be on their way at a time: more wait for the first.
constexpr std::size_t kParcels = 16;

cudaEvent_t make_plain_event() {
  cudaEvent_t event{};
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return event;
}

}  // namespace

/// A transfer on its way. Destroyed with its device current.
struct StagingLane {
  cudaStream_t stream{};
  cudaEvent_t before;  ///< Recorded on the stream of kernels; the others on that of the lane.
  std::array<cudaEvent_t, 2> done{};
  std::array<std::byte*, 2> pinned{};

  /// Takes an event of the context that the stream of kernels is in.
  explicit StagingLane(cudaEvent_t of_kernels) : before(of_kernels) {
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    for (std::size_t half = 0; half < 2; ++half) {
      done[half] = make_plain_event();
      void* memory = nullptr;
      check_cuda(cudaMallocHost(&memory, kHalfBytes), "pinned memory");
      pinned[half] = static_cast<std::byte*>(memory);
    }
  }
  ~StagingLane() {
    cudaStreamSynchronize(stream);
    for (std::size_t half = 0; half < 2; ++half) {
      cudaEventDestroy(done[half]);
      cudaFreeHost(pinned[half]);
    }
    cudaEventDestroy(before);
    cudaStreamDestroy(stream);
  }
  StagingLane(const StagingLane&) = delete;
  StagingLane& operator=(const StagingLane&) = delete;
};

/// Bytes that the stream of kernels takes from the host: the driver may read them at any time until
/// the copy has run, from pageable memory too [CUDA 13, "API synchronization behavior"; where the
/// GPU addresses host memory itself it does], so that they are kept in pinned memory until then.
struct Parcel {
  cudaEvent_t taken{};
  std::byte* pinned = nullptr;
  std::size_t capacity = 0;
};

struct CudaQueue {
  int device = 0;
  std::shared_ptr<GreenContext> part;
  bool tf32 = false;
  std::string name;
  cudaStream_t stream{};
  cudaMemPool_t pool{};
  const Cublas& library = Cublas::get();
  cublasHandle_t cublas{};
  void* workspace = nullptr;

  std::recursive_mutex turn;
  std::uint64_t uses = 0;    ///< Of memory by the stream, so far.
  std::uint64_t waited = 0;  ///< Uses that the host has waited for.
  std::array<Parcel, kParcels> parcels;
  std::size_t next_parcel = 0;

  std::mutex count_mutex;
  std::size_t allocated = kWorkspaceBytes;
  std::size_t peak = kWorkspaceBytes;

  std::mutex lane_mutex;
  std::vector<std::unique_ptr<StagingLane>> lanes;  ///< Idle ones.

  CudaQueue(int device_number, std::shared_ptr<GreenContext> green, bool with_tf32)
      : device(device_number), part(std::move(green)), tf32(with_tf32) {
    try {
      open();
    } catch (...) {
      close();
      throw;
    }
  }
  ~CudaQueue() { close(); }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  void make_current() const { check_cuda(cudaSetDevice(device), "cudaSetDevice"); }

  /// An event that may be recorded on the stream: it must be of the stream's context [CUDA driver
  /// API, cuEventRecord]. Under the turn, with the device current.
  cudaEvent_t make_event() { return part ? part->make_event() : make_plain_event(); }

  /// One whose last copy has run, with room for so many bytes. Under the turn, with the device
  /// current.
  Parcel& empty_parcel(std::size_t bytes) {
    Parcel& parcel = parcels[next_parcel++ % kParcels];
    if (parcel.taken == nullptr) {
      parcel.taken = make_event();
    } else {
      check_cuda(cudaEventSynchronize(parcel.taken), "copy to the device");
    }
    if (parcel.capacity < bytes) {
      cudaFreeHost(std::exchange(parcel.pinned, nullptr));
      parcel.capacity = 0;
      void* memory = nullptr;
      check_cuda(cudaMallocHost(&memory, bytes), "pinned memory");
      parcel.pinned = static_cast<std::byte*>(memory);
      parcel.capacity = bytes;
    }
    return parcel;
  }

 private:
  void open() {
    make_current();
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    name = fmt::format("cuda {} {} SMs", static_cast<const char*>(properties.name),
                       part ? part->multiprocessors() : properties.multiProcessorCount);
    if (part) {
      stream = part->make_stream();
    } else {
      check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    }
    cudaMemPoolProps wanted{};
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location.type = cudaMemLocationTypeDevice;
    wanted.location.id = device;
    check_cuda(cudaMemPoolCreate(&pool, &wanted), "cudaMemPoolCreate");
    auto keep = std::numeric_limits<std::uint64_t>::max();  // Freed memory stays in the pool.
    check_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
               "cudaMemPoolSetAttribute");
    library.check(library.create(&cublas), "cublasCreate");
    library.check(library.set_stream(cublas, stream), "cublasSetStream");
    check_cuda(cudaMalloc(&workspace, kWorkspaceBytes), "the workspace of cuBLAS");
    library.check(library.set_workspace(cublas, workspace, kWorkspaceBytes), "cublasSetWorkspace");
    const auto mode =
        static_cast<cublasMath_t>((tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH) |
                                  CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    library.check(library.set_math_mode(cublas, mode), "cublasSetMathMode");
    if (part) {
      library.check(library.set_sm_count_target(cublas, part->multiprocessors()),
                    "cublasSetSmCountTarget");
    }
  }

  void close() {
    cudaSetDevice(device);
    if (stream != nullptr) cudaStreamSynchronize(stream);
    lanes.clear();
    for (const Parcel& parcel : parcels) {
      if (parcel.taken != nullptr) cudaEventDestroy(parcel.taken);
      if (parcel.pinned != nullptr) cudaFreeHost(parcel.pinned);
    }
    if (cublas != nullptr) library.destroy(cublas);
    if (workspace != nullptr) cudaFree(workspace);
    if (pool != nullptr) cudaMemPoolDestroy(pool);
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
};

namespace {

/// A lane of the queue for one transfer, ordered after the uses of a memory.
class Borrowed {
 public:
  explicit Borrowed(CudaQueue& queue) : queue_(queue) {
    queue.make_current();
    {
      const std::lock_guard lock(queue.lane_mutex);
      if (!queue.lanes.empty()) {
        lane_ = std::move(queue.lanes.back());
        queue.lanes.pop_back();
        return;
      }
    }
    const std::lock_guard lock(queue.turn);
    lane_ = std::make_unique<StagingLane>(queue.make_event());
  }
  ~Borrowed() {
    cudaStreamSynchronize(lane_->stream);  // After an error: nobody may write any more.
    const std::lock_guard lock(queue_.lane_mutex);
    queue_.lanes.push_back(std::move(lane_));
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  StagingLane& operator*() { return *lane_; }

  /// `last_use` belongs to the turn.
  void wait_for(const std::uint64_t& last_use) {
    const std::lock_guard lock(queue_.turn);
    if (last_use <= queue_.waited) return;
    check_cuda(cudaEventRecord(lane_->before, queue_.stream), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(lane_->stream, lane_->before, 0), "cudaStreamWaitEvent");
  }

 private:
  CudaQueue& queue_;
  std::unique_ptr<StagingLane> lane_;
};

std::size_t pieces_of(std::size_t bytes) { return (bytes + kHalfBytes - 1) / kHalfBytes; }
std::size_t piece_bytes(std::size_t bytes, std::size_t piece) {
  return std::min(kHalfBytes, bytes - piece * kHalfBytes);
}

cudaDataType_t type_of(Number number) {
  switch (number) {
    case Number::f32:
      return CUDA_R_32F;
    case Number::f64:
      return CUDA_R_64F;
    case Number::bf16:
      return CUDA_R_16BF;
  }
  return CUDA_R_32F;
}

/// The product as cuBLAS takes it: its matrices are column-major, so that ours are its transposes
/// and c^T = op(b)^T op(a)^T.
struct ColumnMajor {
  explicit ColumnMajor(const GemmCall& call, bool tf32)
      : first(call.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N),
        second(call.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N),
        in(type_of(call.in)),
        out(type_of(call.out)),
        narrow_alpha(static_cast<float>(call.alpha)),
        narrow_beta(static_cast<float>(call.beta)),
        wide_alpha(call.alpha),
        wide_beta(call.beta),
        in_double(call.in == Number::f64) {
    compute = in_double                        ? CUBLAS_COMPUTE_64F
              : tf32 && call.in == Number::f32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                               : CUBLAS_COMPUTE_32F;
  }
  const void* alpha() const {
    return in_double ? static_cast<const void*>(&wide_alpha) : &narrow_alpha;
  }
  const void* beta() const {
    return in_double ? static_cast<const void*>(&wide_beta) : &narrow_beta;
  }

  cublasOperation_t first, second;
  cudaDataType_t in, out;
  cublasComputeType_t compute{};
  float narrow_alpha, narrow_beta;
  double wide_alpha, wide_beta;
  bool in_double;
};

}  // namespace

CudaMemory::CudaMemory(std::shared_ptr<CudaQueue> queue, std::byte* data, std::size_t bytes)
    : queue_(std::move(queue)), data_(data), bytes_(bytes) {}

CudaMemory::~CudaMemory() {
  const std::lock_guard turn(queue_->turn);
  cudaSetDevice(queue_->device);
  cudaFreeAsync(data_, queue_->stream);  // After all uses that are enqueued.
  const std::lock_guard lock(queue_->count_mutex);
  queue_->allocated -= bytes_;
}

CudaDevice::CudaDevice(int device, std::shared_ptr<GreenContext> part, bool tf32)
    : queue_(std::make_shared<CudaQueue>(device, std::move(part), tf32)) {}

std::string CudaDevice::name() const { return queue_->name + (queue_->tf32 ? " tf32" : ""); }

std::size_t CudaDevice::allocated() const {
  const std::lock_guard lock(queue_->count_mutex);
  return queue_->allocated;
}

std::size_t CudaDevice::peak() const {
  const std::lock_guard lock(queue_->count_mutex);
  return queue_->peak;
}

void CudaDevice::reset_peak() {
  const std::lock_guard lock(queue_->count_mutex);
  queue_->peak = queue_->allocated;
}

MemoryPointer CudaDevice::allocate(std::size_t bytes) {
  const auto own_turn = turn();
  queue_->make_current();
  void* data = nullptr;
  check_cuda(cudaMallocFromPoolAsync(&data, std::max<std::size_t>(bytes, 16), queue_->pool,
                                     queue_->stream),
             "cudaMallocFromPoolAsync");
  auto memory = std::make_shared<CudaMemory>(queue_, static_cast<std::byte*>(data), bytes);
  // The stream may still work on what lay there before.
  memory->last_use_ = ++queue_->uses;
  const std::lock_guard lock(queue_->count_mutex);
  queue_->allocated += bytes;
  queue_->peak = std::max(queue_->peak, queue_->allocated);
  return memory;
}

std::unique_lock<std::recursive_mutex> CudaDevice::turn() { return std::unique_lock(queue_->turn); }

std::byte* CudaDevice::use(Memory& memory) {
  auto& own = static_cast<CudaMemory&>(memory);
  ORRERY_CHECK(own.queue_ == queue_, "memory of another back end");
  own.last_use_ = ++queue_->uses;
  return own.data_;
}

cudaStream_t CudaDevice::begin() {
  queue_->make_current();
  return queue_->stream;
}

void CudaDevice::copy(const void* from, void* to, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, begin()), "copy");
}

void CudaDevice::send(std::span<const std::byte> bytes, Memory& memory) {
  if (bytes.empty()) return;
  const auto own_turn = turn();
  std::byte* to = use(memory);
  const cudaStream_t stream = begin();
  const Parcel& parcel = queue_->empty_parcel(bytes.size());
  std::memcpy(parcel.pinned, bytes.data(), bytes.size());
  check_cuda(cudaMemcpyAsync(to, parcel.pinned, bytes.size(), cudaMemcpyHostToDevice, stream),
             "copy to the device");
  check_cuda(cudaEventRecord(parcel.taken, stream), "copy to the device");
}

void CudaDevice::upload(std::span<const std::byte> bytes, Memory& memory, std::size_t offset) {
  auto& own = static_cast<CudaMemory&>(memory);
  ORRERY_CHECK(own.queue_ == queue_ && offset + bytes.size() <= own.bytes_, "{} bytes at {} of {}",
               bytes.size(), offset, own.bytes_);
  Borrowed lane(*queue_);
  lane.wait_for(own.last_use_);
  for (std::size_t piece = 0; piece < pieces_of(bytes.size()); ++piece) {
    const std::size_t half = piece % 2, length = piece_bytes(bytes.size(), piece);
    if (piece >= 2) check_cuda(cudaEventSynchronize((*lane).done[half]), "upload");
    std::memcpy((*lane).pinned[half], bytes.data() + piece * kHalfBytes, length);
    check_cuda(cudaMemcpyAsync(own.data_ + offset + piece * kHalfBytes, (*lane).pinned[half],
                               length, cudaMemcpyHostToDevice, (*lane).stream),
               "upload");
    check_cuda(cudaEventRecord((*lane).done[half], (*lane).stream), "upload");
  }
  check_cuda(cudaStreamSynchronize((*lane).stream), "upload");
}

void CudaDevice::download(Memory& memory, std::size_t offset, std::span<std::byte> into) {
  auto& own = static_cast<CudaMemory&>(memory);
  ORRERY_CHECK(own.queue_ == queue_ && offset + into.size() <= own.bytes_, "{} bytes at {} of {}",
               into.size(), offset, own.bytes_);
  Borrowed lane(*queue_);
  lane.wait_for(own.last_use_);
  const std::size_t pieces = pieces_of(into.size());
  const auto ask = [&](std::size_t piece) {
    const std::size_t half = piece % 2;
    check_cuda(
        cudaMemcpyAsync((*lane).pinned[half], own.data_ + offset + piece * kHalfBytes,
                        piece_bytes(into.size(), piece), cudaMemcpyDeviceToHost, (*lane).stream),
        "download");
    check_cuda(cudaEventRecord((*lane).done[half], (*lane).stream), "download");
  };
  for (std::size_t piece = 0; piece < std::min<std::size_t>(pieces, 2); ++piece) ask(piece);
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const std::size_t half = piece % 2;
    check_cuda(cudaEventSynchronize((*lane).done[half]), "download");
    std::memcpy(into.data() + piece * kHalfBytes, (*lane).pinned[half],
                piece_bytes(into.size(), piece));
    if (piece + 2 < pieces) ask(piece + 2);
  }
}

void CudaDevice::synchronize() {
  queue_->make_current();
  std::uint64_t uses = 0;
  {
    const auto own_turn = turn();
    uses = queue_->uses;
  }
  check_cuda(cudaStreamSynchronize(queue_->stream), "kernels");
  const auto own_turn = turn();
  queue_->waited = std::max(queue_->waited, uses);
}

void CudaDevice::gemm(const GemmCall& call) {
  begin();
  const ColumnMajor own(call, queue_->tf32);
  queue_->library.check(
      queue_->library.gemm(queue_->cublas, own.first, own.second, call.n, call.m, call.k,
                           own.alpha(), call.b, own.in, call.ldb, call.a, own.in, call.lda,
                           own.beta(), call.c, own.out, call.ldc, own.compute, CUBLAS_GEMM_DEFAULT),
      "cublasGemmEx");
}

void CudaDevice::gemm_batched(const GemmCall& call, int count) {
  begin();
  const ColumnMajor own(call, queue_->tf32);
  queue_->library.check(
      queue_->library.gemm_batched(queue_->cublas, own.first, own.second, call.n, call.m, call.k,
                                   own.alpha(), static_cast<const void* const*>(call.b), own.in,
                                   call.ldb, static_cast<const void* const*>(call.a), own.in,
                                   call.lda, own.beta(), static_cast<void* const*>(call.c), own.out,
                                   call.ldc, count, own.compute, CUBLAS_GEMM_DEFAULT),
      "cublasGemmBatchedEx");
}

}  // namespace orrery::executor

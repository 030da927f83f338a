#include "executor/engine/worker.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <queue>
#include <thread>
#include <utility>

#include "executor/engine/activations.h"
#include "executor/engine/gathers.h"
#include "executor/engine/moves.h"
#include "executor/engine/passes.h"
#include "executor/engine/rank_view.h"
#include "executor/engine/rounds.h"
#include "executor/engine/task_pool.h"
#include "executor/net/clock.h"
#include "models/base/check.h"
#include "models/base/ids.h"

namespace orrery::executor {
namespace {

/// Receives of activations are posted when the compute stream is so near to the op that needs them:
/// memory for them is then taken by few at a time.
constexpr std::size_t kReceiveAhead = 4;
constexpr std::size_t kNever = as_size(-1);

void update_range(Backend& backend, const HeldParameter& held, const UnitRange& range,
                  ir::Optimizer optimizer, const AdamStep& adam) {
  const Tensor gradient = held.units(held.gradient, range.begin, range.end);
  const Tensor master = held.master_units(range.begin, range.end);
  const Tensor weight = held.weight_units(range.begin, range.end);
  if (optimizer == ir::Optimizer::sgd) {
    return backend.sgd(adam.learning_rate, gradient, master, weight);
  }
  backend.adam(adam, gradient, master, held.own_units(held.first_moment, range.begin, range.end),
               held.own_units(held.second_moment, range.begin, range.end), weight);
}

/// Turns the gradients of all units that this rank updates into new weights, in the order of blocks
/// and parameters; returns when the back end has done it.
void update_weights(ModelShard& shard, const std::vector<BlockId>& blocks, ir::Optimizer optimizer,
                    const AdamStep& adam) {
  for (const BlockId block : blocks) {
    for (const HeldParameter& held : shard.parameters(block)) {
      for (const UnitRange& range : held.updated) {
        update_range(shard.backend(), held, range, optimizer, adam);
      }
    }
  }
  shard.backend().synchronize();
}

}  // namespace

class Worker::Impl {
 public:
  Impl(const ir::Program& program, Backend& backend, Transport& transport,
       const TokenSource& tokens, WorkerOptions options)
      : view_(program, {transport.rank()}),
        backend_(backend),
        transport_(transport),
        options_(std::move(options)),
        shard_(backend, program.header, view_.held_blocks()),
        activations_(view_, backend),
        mover_(view_, shard_, activations_),
        rounds_(view_, shard_),
        gathers_(view_, shard_, transport),
        passes_(view_, shard_, gathers_, activations_, tokens),
        compute_(view_.stream(ir::Stream::compute)),
        collective_(view_.stream(ir::Stream::collective)) {
    for (const auto& held : view_.held_blocks()) blocks_.push_back(held.block);
    find_needs();
    pool_ = std::make_unique<TaskPool>();
  }

  ~Impl() {
    // What still runs must not meet a worker that is gone.
    if (error_) transport_.abort("its worker has ended");
    pool_.reset();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return elsewhere_ == 0; });
  }

  StepResult step(std::int64_t number) {
    begin(number);
    // Sleeps of stretch() end within a microsecond of their time instead of within 50.
    if (options_.slowdown > 1) ::prctl(PR_SET_TIMERSLACK, 1000UL);
    std::thread collectives([this] { run_stream(collective_); });
    start_ready();
    run_stream(compute_);
    collectives.join();
    wait_for_all();
    if (error_) std::rethrow_exception(error_);
    result_.end_ns = now_ns();
    result_.losses = passes_.take_losses();
    result_.peak_bytes = static_cast<std::int64_t>(backend_.peak());
    std::sort(result_.spans.begin(), result_.spans.end(),
              [](const ir::Span& a, const ir::Span& b) { return a.op < b.op; });
    return std::move(result_);
  }

  ModelShard& shard() { return shard_; }
  const std::vector<BlockId>& blocks() const { return blocks_; }

  std::vector<Owned> owned(BlockId block) {
    std::vector<Owned> out;
    const std::vector<HeldParameter>& all = shard_.parameters(block);
    for (std::size_t p = 0; p < all.size(); ++p) {
      for (const UnitRange& range : all[p].updated) {
        out.push_back({static_cast<int>(p), range.begin, range.end});
      }
    }
    return out;
  }

 private:
  /// Earliest compute op that needs what a receive of activations brings.
  void find_needs() {
    const std::size_t count = view_.ops().size();
    needs_.assign(count, kNever);
    for (std::size_t i = 0; i < compute_.size(); ++i) needs_[compute_[i]] = i;
    // Point-to-point chains are short: a receive, then a broadcast or gather, then the pass.
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t local = 0; local < count; ++local) {
        if (view_.op(local).stream == ir::Stream::compute) continue;
        for (const std::size_t next : view_.dependents(local)) {
          if (needs_[next] >= needs_[local]) continue;
          needs_[local] = needs_[next];
          changed = true;
        }
      }
    }
  }

  void begin(std::int64_t number) {
    ORRERY_CHECK(!error_, "a step after a failed one");
    number_ = number;
    result_ = {};
    result_.step = number;
    activations_.reset();
    passes_.begin(number);
    gathers_.begin(number);
    shard_.clear_gradients();
    rounds_.begin();
    backend_.synchronize();
    backend_.reset_peak();
    const std::size_t count = view_.ops().size();
    waits_.resize(count);
    for (std::size_t local = 0; local < count; ++local) {
      waits_[local] = view_.dependency_count(local);
    }
    undone_ = count;
    compute_at_ = 0;
    startable_.clear();
    ahead_ = {};
    for (std::size_t local = 0; local < count; ++local) {
      if (waits_[local] == 0) offer(local);
    }
    result_.start_ns = now_ns();
  }

  /// Compute and collective ops, one after the other.
  void run_stream(const std::vector<std::size_t>& locals) {
    try {
      for (const std::size_t local : locals) {
        if (!wait_until_ready(local)) return;
        if (view_.op(local).stream == ir::Stream::compute) advance();
        run(local);
      }
    } catch (...) {
      fail(std::current_exception());
    }
  }

  /// False when the step has failed.
  bool wait_until_ready(std::size_t local) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ || waits_[local] == 0; });
    return !error_;
  }

  /// Also for threads that have finished an op and still look for what may start: the next step
  /// must not begin under their hands.
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ || (undone_ == 0 && elsewhere_ == 0); });
  }

  /// The compute stream moves on: receives that it will soon need are posted.
  void advance() {
    {
      const std::lock_guard lock(mutex_);
      ++compute_at_;
    }
    start_ready();
  }

  /// The op's dependencies have ended. Under the lock.
  void offer(std::size_t local) {
    const ir::Op& op = view_.op(local);
    if (op.stream != ir::Stream::p2p) return;
    const bool early = op.kind == ir::OpKind::recv && op.purpose == ir::Purpose::pipeline;
    if (early && needs_[local] != kNever) {
      ahead_.push({needs_[local], local});
    } else {
      startable_.push_back(local);
    }
  }

  /// Starts all point-to-point ops that may start now.
  void start_ready() {
    std::vector<std::size_t> ready;
    {
      const std::lock_guard lock(mutex_);
      if (error_) return;
      ready.swap(startable_);
      while (!ahead_.empty() && ahead_.top().first < compute_at_ + kReceiveAhead) {
        ready.push_back(ahead_.top().second);
        ahead_.pop();
      }
    }
    for (const std::size_t local : ready) start(local);
  }

  void start(std::size_t local) {
    try {
      const ir::Op& op = view_.op(local);
      if (op.kind == ir::OpKind::collective) {
        goes_elsewhere();
        try {
          pool_->submit([this, local] {
            try {
              run(local);
            } catch (...) {
              fail(std::current_exception());
            }
            comes_back();
          });
        } catch (...) {
          comes_back();
          throw;
        }
      } else {
        transfer(local);
      }
    } catch (...) {
      fail(std::current_exception());
    }
  }

  void transfer(std::size_t local) {
    const ir::Op& op = view_.op(local);
    if (options_.before_op) options_.before_op(view_.global(local));
    const auto tensors =
        std::make_shared<std::vector<Tensor>>(mover_.tensors(op, view_.regions(op.regions)));
    const bool sends = op.kind == ir::OpKind::send;
    const std::int64_t begin = now_ns();
    const auto bytes = std::make_shared<std::vector<std::byte>>(
        sends ? mover_.pack(*tensors) : std::vector<std::byte>(mover_.bytes(*tensors)));
    const Tag tag = make_tag(static_cast<std::uint64_t>(number_), view_.tag_number(local), 0);
    const RequestPointer request = sends ? transport_.send(view_.peer(op), tag, *bytes)
                                         : transport_.receive(view_.peer(op), tag, *bytes);
    goes_elsewhere();
    request->then([this, local, sends, tensors, bytes, begin](const TransportError* error) {
      try {
        if (error != nullptr) throw TransportError(*error);
        if (!sends) mover_.unpack(*bytes, *tensors);
        finish(local, begin, {}, static_cast<std::int64_t>(bytes->size()));
      } catch (...) {
        fail(std::current_exception());
      }
      comes_back();
    });
  }

  void goes_elsewhere() {
    const std::lock_guard lock(mutex_);
    ++elsewhere_;
  }
  void comes_back() {
    const std::lock_guard lock(mutex_);
    --elsewhere_;
    changed_.notify_all();
  }

  void run(std::size_t local) {
    const ir::Op& op = view_.op(local);
    if (options_.before_op) options_.before_op(view_.global(local));
    const RingTag tag = {static_cast<std::uint64_t>(number_), view_.tag_number(local), 0};
    const std::int64_t begin = now_ns();
    const std::int64_t begin_cpu = thread_cpu_ns();
    if (op.kind == ir::OpKind::collective) {
      const std::int64_t bytes = mover_.run_collective(op, transport_, tag);
      return finish(local, begin, {}, bytes);
    }
    if (op.kind == ir::OpKind::optimizer_step) {
      update();
      if (options_.after_update) options_.after_update();
      stretch(begin, 0, thread_cpu_ns() - begin_cpu);
      return finish(local, begin, {}, 0);
    }
    OpGroupRing op_group(backend_, transport_, view_.groups(op), tag);
    note_memory();
    rounds_.before(op);
    passes_.run(op, op_group);
    backend_.synchronize();
    const ShardGathers::Spent gathers = gathers_.take_spent();
    const std::int64_t inner = op_group.nanoseconds() + gathers.nanoseconds;
    stretch(begin, inner,
            thread_cpu_ns() - begin_cpu - op_group.cpu_nanoseconds() - gathers.cpu_nanoseconds);
    note_memory();
    finish(local, begin, {inner}, op_group.bytes() + gathers.bytes, {gathers.nanoseconds});
  }

  /// Sleeps until the op has taken `slowdown` times its own processor time `cpu`. The CPU back end
  /// computes on this thread alone.
  void stretch(std::int64_t begin, std::int64_t inner, std::int64_t cpu) {
    const std::int64_t wall = now_ns() - begin - inner;
    const bool here = backend_.on_host();
    const auto own = static_cast<double>(here ? cpu : wall);
    ++result_.compute_ops;
    if (static_cast<double>(wall) > std::max(options_.slowdown, kDisturbed) * own) {
      ++result_.disturbed_ops;
    }
    if (options_.slowdown <= 1) return;
    const std::int64_t rest = static_cast<std::int64_t>(options_.slowdown * own) - wall;
    if (rest > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(rest));
  }

  void update() {
    rounds_.finish();
    AdamStep adam = options_.adam;
    adam.step = number_;
    update_weights(shard_, blocks_, view_.program().header.optimizer, adam);
  }

  void note_memory() {
    if (!options_.record_memory) return;
    result_.memory.push_back(
        {view_.rank(), Instant{now_ns()}, Bytes{static_cast<double>(backend_.allocated())}});
  }

  void finish(std::size_t local, std::int64_t begin, Nanoseconds inner, std::int64_t bytes,
              Nanoseconds gathers = {}) {
    activations_.release(view_.op(local));
    rounds_.ended(view_.op(local));
    const std::int64_t end = now_ns();
    bool more = false;
    {
      const std::lock_guard lock(mutex_);
      if (error_) return;
      if (options_.record_spans) {
        result_.spans.push_back({view_.rank(), view_.global(local), Instant{begin}, Instant{end},
                                 inner, Bytes{static_cast<double>(bytes)}, gathers});
      }
      --undone_;
      for (const std::size_t next : view_.dependents(local)) {
        if (--waits_[next] == 0) offer(next);
      }
      const bool soon = !ahead_.empty() && ahead_.top().first < compute_at_ + kReceiveAhead;
      more = soon || !startable_.empty();
      changed_.notify_all();
    }
    if (more) start_ready();
  }

  void fail(const std::exception_ptr& error) {
    {
      const std::lock_guard lock(mutex_);
      if (error_) return;
      error_ = error;
    }
    std::string reason = "unknown";
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& problem) {
      reason = problem.what();
    } catch (...) {
    }
    transport_.abort(reason);
    changed_.notify_all();
  }

  RankView view_;
  Backend& backend_;
  Transport& transport_;
  WorkerOptions options_;
  ModelShard shard_;
  ActivationStore activations_;
  Mover mover_;
  GradientRounds rounds_;
  ShardGathers gathers_;
  Passes passes_;
  std::vector<std::size_t> compute_;
  std::vector<std::size_t> collective_;
  std::vector<BlockId> blocks_;
  std::vector<std::size_t> needs_;  ///< By local op: position in compute_.

  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t number_ = 0;
  std::vector<int> waits_;
  std::size_t undone_ = 0;
  std::size_t compute_at_ = 0;
  std::size_t elsewhere_ = 0;  ///< Callbacks of requests and tasks of the pool that have not ended.
  std::vector<std::size_t> startable_;
  using Ahead = std::pair<std::size_t, std::size_t>;  ///< Need, local op.
  std::priority_queue<Ahead, std::vector<Ahead>, std::greater<>> ahead_;
  std::exception_ptr error_;
  StepResult result_;
  std::unique_ptr<TaskPool> pool_;
};

Worker::Worker(const ir::Program& program, Backend& backend, Transport& transport,
               const TokenSource& tokens, WorkerOptions options)
    : impl_(std::make_unique<Impl>(program, backend, transport, tokens, std::move(options))) {}
Worker::~Worker() = default;

StepResult Worker::step(std::int64_t number) { return impl_->step(number); }
ModelShard& Worker::shard() { return impl_->shard(); }
const std::vector<BlockId>& Worker::blocks() const { return impl_->blocks(); }
std::vector<Worker::Owned> Worker::owned(BlockId block) const { return impl_->owned(block); }

double mean_loss(std::vector<SampleLoss> losses, std::int64_t tokens_per_sample) {
  std::sort(losses.begin(), losses.end(),
            [](const SampleLoss& a, const SampleLoss& b) { return a.sample < b.sample; });
  double sum = 0;
  for (const SampleLoss& loss : losses) sum += loss.loss;
  return losses.empty()
             ? 0
             : sum / (static_cast<double>(losses.size()) * static_cast<double>(tokens_per_sample));
}

}  // namespace orrery::executor

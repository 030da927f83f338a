/// What an iteration of a draft takes by a model of the simulator that costs microseconds: the same
/// prices of blocks and collectives and the same order of passes, with each pipeline run event by
/// event by itself. Of a link that several pipelines use, those that run in step take their shares
/// at the same moments, the others on average. It decides which drafts are worth a simulation, and
/// nothing else: what counts is the evaluator's time.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/schedule/schedule.h"
#include "planners/kit/integers.h"
#include "planners/kit/stage_costs.h"
#include "planners/orrery/draft.h"
#include "planners/orrery/recent_answers.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Hashes of what names a group, a route, a stage, or a run.
struct NumbersHash {
  std::size_t operator()(const std::vector<std::int32_t>& numbers) const;
  std::size_t operator()(const std::vector<DeviceId>& devices) const;
  std::size_t operator()(const std::vector<double>& numbers) const;
  std::size_t operator()(const std::pair<std::uint64_t, std::uint64_t>& key) const;
};

/// Keeps references to the input. Caches; not for concurrent use.
class DraftCosts {
 public:
  explicit DraftCosts(const PlannerInput& input);

  struct View {
    double seconds = kNever;        ///< kNever where a device's memory does not suffice.
    std::vector<double> pipelines;  ///< End of the last backward pass.
    std::vector<double> periods;    ///< Busy time of the longest stage for a micro-batch.
    std::vector<int> longest;       ///< That stage.
    double gradients = 0;           ///< From the last pass to the end of synchronization.
  };
  View view(const Draft& draft) const;

  /// How a stage at a place in its pipeline would run that many layers.
  struct StageFit {
    double seconds = kNever;  ///< Both passes of a micro-batch; kNever where memory forbids it.
    int full = 0;             ///< Layers that must be recomputed for that.
    int selective = 0;
  };
  /// A stage at its place in its pipeline: all that fit() depends on besides the layers. Valid as
  /// long as the stage.
  struct Place {
    const std::vector<DraftGroup>* groups = nullptr;
    int expert_parallel = 1;
    bool unlike = false;  ///< Some that share experts differ: models::ExpertShare.
    double exchange = 0;  ///< Seconds of a dispatch or combine of one layer.
    models::ScheduleQuery query;
    int replicas = 1;
    bool remembered = false;  ///< Under the key, with the layers.
    std::uint64_t kind = 0;
    std::uint64_t held = 0;
  };
  Place place(const Draft& draft, const DraftPipeline& pipeline, std::size_t stage,
              int replicas) const;
  /// Layers in the middle of the model stand for all between its ends. kNever for fewer layers than
  /// chunks, and for more than the model has.
  StageFit fit(const Draft& draft, const Place& place, int layers) const;

  /// Groups of one class cost the same: the same GPU types, and links that are as fast.
  int group_class(const DraftGroup& group) const;
  /// Stages whose groups share experts cost the same if they are of one class: their groups are,
  /// take as many samples, and exchange tokens as fast.
  int stage_class(const DraftStage& stage) const;

  int layers() const { return layers_; }
  const StageCosts& stage_costs() const { return costs_; }
  /// Tensor-parallel degrees that the model and the job allow, ascending.
  const std::vector<int>& degrees() const { return degrees_; }
  bool has_degree(int degree) const {
    return std::binary_search(degrees_.begin(), degrees_.end(), degree);
  }

 private:
  /// Sums over layers 0 ... i - 1 at position i; embedding and head in the first and last layer.
  struct PassTable {
    std::vector<double> forward, backward, weights;
    /// Of them between dispatch and combine; filled where groups that share experts differ.
    std::vector<double> experts_forward, experts_backward;
  };
  struct PartMemory {
    Bytes states, activations, recomputed, recomputed_kept, logits, communication;
  };
  struct LinkLoad {
    std::size_t link;
    double seconds_per_byte;
  };
  /// A ring all-reduce of one byte.
  struct Ring {
    std::vector<LinkLoad> loads;
    double latency = 0;
    double per_byte = 0;  ///< Alone on the network.
  };
  /// One dispatch or combine of a layer, of all sets of groups of a stage side by side.
  struct Exchange {
    double seconds = 0;
    std::vector<LinkLoad> loads;  ///< Busy seconds of links, in place of per byte.
  };
  /// What a micro-batch's activations take from one stage to the next.
  struct Hop {
    double seconds = 0;           ///< Alone.
    std::vector<LinkLoad> loads;  ///< Busy seconds of links, in place of per byte.
  };
  struct StageRun {
    std::vector<double> forward, backward, weights;  ///< By chunk.
    std::vector<const Hop*> up, down;    ///< To the next chunk in order, and back from it.
    const Exchange* exchange = nullptr;  ///< Of tokens between experts, if groups share them.
    int exchanges = 0;                   ///< How often for a micro-batch, of all chunks.
    double busy() const;                 ///< Seconds of both passes of all chunks.
  };
  /// Seconds of hops by stage and chunk.
  struct Waits {
    std::vector<double> up, down;
  };
  struct Ends {
    std::vector<double> last_backward;  ///< By stage.
    double end = 0;
  };

  const PassTable& table(const DraftGroup& group, ir::Recompute recompute,
                         const models::ExpertShare& experts) const;
  /// Seconds of the passes of a chunk's layers from `first` on, without exchanges.
  struct ChunkPasses {
    double forward = 0, backward = 0, weights = 0;
  };
  ChunkPasses chunk_passes(const DraftGroup& group, const models::ExpertShare& experts,
                           const DraftChunk& chunk, int first) const;
  /// The longest over all groups; where those that share experts differ, the longest of both parts.
  ChunkPasses joint_passes(const std::vector<DraftGroup>& groups, int expert_parallel,
                           const DraftChunk& chunk, int first) const;
  const PartMemory& memory(int first, int layers, const DraftGroup& group, ir::Recompute recompute,
                           const ir::Zero& zero, int weight, int replicas,
                           const models::ExpertShare& experts) const;
  /// Pipelines that hold the stage's layers, those of others about where they are in its own; with
  /// uneven shards the sum of their weights.
  int weighed(const Draft& draft, const DraftPipeline& pipeline, std::size_t stage,
              int replicas) const;
  /// `groups` hold `chunks`, which begin at the layers `firsts`, where the query says.
  bool fits(const Draft& draft, const models::ScheduleQuery& query,
            const std::vector<DraftGroup>& groups, int expert_parallel,
            const std::vector<DraftChunk>& chunks, const std::vector<int>& firsts,
            int replicas) const;
  bool fits_anew(const Draft& draft, const models::ScheduleQuery& query,
                 const std::vector<DraftGroup>& groups, int expert_parallel,
                 const std::vector<DraftChunk>& chunks, const std::vector<int>& firsts,
                 int replicas) const;
  StageFit fit_anew(const Draft& draft, const Place& place, int layers) const;
  Bytes kept(const Draft& draft, const models::ScheduleQuery& query,
             std::span<const Bytes> activations, std::span<const Bytes> recomputed) const;
  const std::vector<std::vector<int>>& most_in_flight(const Draft& draft,
                                                      const models::ScheduleQuery& query) const;
  const Hop& hop(const DraftStage& from, const DraftStage& to, int layer,
                 ir::ActivationTransfer transfer) const;
  /// Dispatches and combines of a chunk's layers in the passes of a micro-batch.
  struct Exchanges {
    int forward = 0;
    int backward = 0;  ///< With those of recomputation.
    int both() const { return forward + backward; }
  };
  Exchanges exchanges(const DraftChunk& chunk, int first) const;
  const Exchange& exchange(const std::vector<DraftGroup>& groups, int expert_parallel) const;
  const Ring& ring(const std::vector<DeviceId>& devices) const;
  /// By stage.
  using Orders = std::vector<std::vector<models::StagePass>>;
  const Orders& passes(const Draft& draft, int stages, int micro_batches) const;
  /// `up`, `down`: seconds of hops by stage and chunk, with what others make them wait.
  const Ends& run(const Draft& draft, const DraftPipeline& pipeline,
                  const std::vector<StageRun>& stages, const std::vector<double>& up,
                  const std::vector<double>& down) const;
  std::vector<std::vector<std::size_t>> in_step(
      const std::vector<std::vector<StageRun>>& runs) const;
  void share_links(const Draft& draft, const std::vector<std::vector<StageRun>>& runs,
                   const std::vector<std::size_t>& together, const std::vector<double>& busy,
                   double horizon, std::vector<Waits>& waits) const;
  Ends run_anew(const Draft& draft, const DraftPipeline& pipeline,
                const std::vector<StageRun>& stages, const std::vector<double>& up,
                const std::vector<double>& down) const;
  StageRun stage_run(const Draft& draft, const DraftPipeline& pipeline, std::size_t stage,
                     const std::vector<int>& firsts, double gather) const;
  double gathered_layers(const Draft& draft, const DraftChunk& chunk, int first) const;
  double synchronize(const Draft& draft, const std::vector<std::vector<int>>& firsts,
                     const std::vector<std::vector<StageRun>>& runs,
                     const std::vector<Ends>& ends) const;
  double optimizer(const Draft& draft, const DraftStage& stage, int first, int replicas) const;
  double gather_pieces(const Draft& draft, const DraftStage& stage) const;
  void forget() const;

  using Fields = std::pair<std::uint64_t, std::uint64_t>;

  const PlannerInput& input_;
  StageCosts costs_;
  int layers_;
  bool uniform_;  ///< All layers between the ends cost the same.
  std::vector<int> degrees_;
  std::vector<double> gradient_prefix_;  ///< Bytes.
  std::vector<double> expert_prefix_;    ///< Of them those of experts.
  std::vector<int> moe_prefix_;          ///< Layers with experts.
  mutable std::unordered_map<std::vector<DeviceId>, int, NumbersHash> class_of_;
  mutable std::map<std::vector<double>, int> classes_;
  mutable std::unordered_map<Fields, PassTable, NumbersHash> tables_;
  mutable std::unordered_map<Fields, double, NumbersHash> optimizer_;
  mutable std::unordered_map<std::vector<std::int32_t>, Hop, NumbersHash> hops_;
  mutable std::unordered_map<std::vector<DeviceId>, Ring, NumbersHash> rings_;
  mutable std::unordered_map<std::vector<std::int32_t>, Exchange, NumbersHash> exchanges_;
  mutable RecentAnswers<Fields, StageFit, NumbersHash> fits_;
  mutable RecentAnswers<Fields, bool, NumbersHash> in_memory_;
  mutable RecentAnswers<std::vector<double>, Ends, NumbersHash> ends_;
  mutable RecentAnswers<Fields, PartMemory, NumbersHash> parts_;
  mutable RecentAnswers<Fields, Orders, NumbersHash> passes_;
  mutable std::size_t loads_ = 0;  ///< Of hops_, rings_ and exchanges_.
  mutable std::vector<std::int32_t> scratch_;
  mutable std::vector<double> link_scratch_;
  mutable std::map<std::tuple<int, int, int, int, int>, std::vector<std::vector<int>>> in_flight_;
};

}  // namespace orrery::planners

/// Pipeline templates of Oobleck and how many pipelines are instantiated from each. Private to the
/// policy. [Jang et al., SOSP 2023, sections 4.1 and 4.2]
#pragma once
#include <optional>
#include <vector>

#include "planners/recovery/kit/stage_cut.h"
#include "planners/recovery/kit/unit_chains.h"

namespace orrery::planners {

/// A template, as instantiation sees it.
struct TemplateRate {
  int nodes = 1;
  PipelineRate rate;
};

struct Instantiation {
  std::vector<int> counts;  ///< By template: pipelines.
  double seconds = 0;       ///< Slowest pipeline, the batch split as well as possible.
};

/// Counts of templates over at most `nodes` nodes, at least `pipelines` of them, that make the
/// slowest pipeline as fast as possible when `micro_batches` are split over them, each taking one
/// at least. Exact: the least time that some pipeline takes for some number of micro-batches and in
/// which the best counts get through all of them (a knapsack over nodes). None: impossible.
/// Gradient synchronization is left out. The paper enumerates all counts that use every node; here
/// nodes may stay idle where that is faster, which the enumeration could only lose by.
std::optional<Instantiation> instantiate(const std::vector<TemplateRate>& templates, int nodes,
                                         int pipelines, int micro_batches);

/// Templates of consecutive numbers of nodes n0, n0 + 1, ..., N - f n0, as far as the model can be
/// cut so often. n0: the fewest nodes on which the model fits. [section 4.1.1]
/// Deviation: all stages of a template have the same number of GPUs, a tensor-parallel group; the
/// paper lets stages inside a node have different numbers, and shards their states (FSDP). Of the
/// widths the one wins that takes least for 4 micro-batches per GPU of a node.
class OobleckTemplates {
 public:
  /// Keeps a reference. Without templates when the model fits on no number of nodes up to `nodes`,
  /// or when not even `threshold` + 1 pipelines of n0 nodes fit side by side.
  OobleckTemplates(const UnitChains& chains, int nodes, int threshold, int micro_batch_size);

  bool empty() const { return chains_of_.empty(); }
  int fewest() const { return fewest_; }  ///< n0; 0: the model does not fit.
  int most() const { return fewest_ + static_cast<int>(chains_of_.size()) - 1; }
  /// Null when there is no template of that size.
  const Chain* at(int nodes) const;

  /// The best numbers of nodes by pipeline, descending, for `nodes` nodes; as many pipelines as the
  /// threshold asks for, or as there are nodes for. Empty: not even one.
  std::vector<int> sizes(int nodes) const;
  /// Slowest pipeline of these sizes.
  double seconds(const std::vector<int>& sizes) const;

 private:
  const Chain* best(const UnitChains& chains, int nodes, int micro_batch_size) const;

  int threshold_;
  int micro_batches_;
  int fewest_ = 0;
  std::vector<const Chain*> chains_of_;  ///< From n0 nodes on; null where there is none.
  std::vector<TemplateRate> rates_;      ///< Of those that exist, ascending.
};

}  // namespace orrery::planners

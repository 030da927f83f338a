#include "planners/orrery/balance.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace orrery::planners {
namespace {

/// Layers of a stage over its chunks, larger ones first, recomputed ones to the front.
std::vector<DraftChunk> divide_over_chunks(int layers, int chunks, int full, int selective) {
  std::vector<DraftChunk> made;
  for (int c = 0; c < chunks; ++c) {
    const int share = (layers + chunks - c - 1) / (chunks - c);
    DraftChunk chunk{share, std::min(share, full), 0};
    chunk.selective = std::min(share - chunk.full, selective);
    layers -= share;
    full -= chunk.full;
    selective -= chunk.selective;
    made.push_back(chunk);
  }
  return made;
}

int replicas_of(const Draft& draft, int known = 0) {
  return known > 0 ? known : static_cast<int>(draft.pipelines.size());
}

}  // namespace

std::vector<int> DraftBalance::kind(const DraftPipeline& pipeline) const {
  std::vector<int> kind = {pipeline.micro_batches, pipeline.micro_batch_size};
  for (const DraftStage& stage : pipeline.stages) {
    for (const DraftGroup& group : stage.groups) {
      kind.push_back(costs_.group_class(group));
      kind.push_back(group.samples);
    }
    if (stage.expert_parallel > 1) kind.insert(kind.end(), {-3, costs_.stage_class(stage)});
    kind.push_back(-1);
  }
  return kind;
}

bool DraftBalance::layers(Draft& draft, std::size_t pipeline, int replicas) const {
  DraftPipeline& chain = draft.pipelines[pipeline];
  const int chunks = draft.virtual_stages;
  const std::size_t count = chain.stages.size();
  if (static_cast<int>(count) * chunks > costs_.layers()) return false;
  std::vector<DraftCosts::Place> places;
  for (std::size_t s = 0; s < count; ++s) {
    places.push_back(costs_.place(draft, chain, s, replicas_of(draft, replicas)));
  }
  const auto fit = [&](std::size_t stage, int layers) {
    return costs_.fit(draft, places[stage], layers);
  };
  std::vector<int> held(count, chunks);
  int left = costs_.layers() - static_cast<int>(count) * chunks;
  using Offer = std::tuple<double, std::size_t>;
  std::priority_queue<Offer, std::vector<Offer>, std::greater<>> offers;
  for (std::size_t s = 0; s < count; ++s) {
    if (fit(s, chunks).seconds == kNever) return false;
    offers.emplace(fit(s, chunks + 1).seconds, s);
  }
  for (; left > 0; --left) {
    const auto [seconds, s] = offers.top();
    if (seconds == kNever) return false;
    offers.pop();
    ++held[s];
    offers.emplace(fit(s, held[s] + 1).seconds, s);
  }
  for (std::size_t s = 0; s < count; ++s) {
    const DraftCosts::StageFit chosen = fit(s, held[s]);
    chain.stages[s].chunks = divide_over_chunks(held[s], chunks, chosen.full, chosen.selective);
  }
  return true;
}

bool DraftBalance::all_layers(Draft& draft) const {
  std::map<std::vector<int>, std::size_t> done;
  for (std::size_t p = 0; p < draft.pipelines.size(); ++p) {
    const auto [place, added] = done.try_emplace(kind(draft.pipelines[p]), p);
    if (added) {
      if (!layers(draft, p)) return false;
      continue;
    }
    const std::vector<DraftStage>& alike = draft.pipelines[place->second].stages;
    for (std::size_t s = 0; s < alike.size(); ++s) {
      draft.pipelines[p].stages[s].chunks = alike[s].chunks;
    }
  }
  return true;
}

bool DraftBalance::recompute(Draft& draft, std::size_t pipeline, std::size_t stage) const {
  DraftStage& own = draft.pipelines[pipeline].stages[stage];
  if (draft.virtual_stages > 1) return true;  // The exact check decides.
  const int layers = own.layers();
  const DraftCosts::StageFit chosen = costs_.fit(
      draft, costs_.place(draft, draft.pipelines[pipeline], stage, replicas_of(draft)), layers);
  if (chosen.seconds == kNever) return false;
  own.chunks = divide_over_chunks(layers, 1, chosen.full, chosen.selective);
  return true;
}

DraftBalance::Chain DraftBalance::chain(const Draft& draft, std::size_t pipeline,
                                        int replicas) const {
  const DraftPipeline& own = draft.pipelines[pipeline];
  Chain chain;
  for (std::size_t s = 0; s < own.stages.size(); ++s) {
    const double seconds =
        costs_
            .fit(draft, costs_.place(draft, own, s, replicas_of(draft, replicas)),
                 own.stages[s].layers())
            .seconds;
    chain.longest = std::max(chain.longest, seconds);
    chain.sum += seconds;
  }
  return chain;
}

bool DraftBalance::batches(Draft& draft) const {
  std::vector<DraftPipeline>& pipelines = draft.pipelines;
  int smallest = pipelines.front().micro_batch_size;
  for (const DraftPipeline& p : pipelines) smallest = std::min(smallest, p.micro_batch_size);
  std::int64_t left = input_.job.global_batch;
  std::int64_t samples = 0;
  bool multiples = left % smallest == 0;
  for (const DraftPipeline& p : pipelines) {
    samples += p.samples();
    multiples = multiples && p.micro_batch_size % smallest == 0;
  }
  // Other sizes stay as they are, where they add up.
  if (!multiples) return samples == left;
  std::map<std::vector<int>, Chain> known;
  using Offer = std::tuple<double, std::size_t>;
  std::priority_queue<Offer, std::vector<Offer>, std::greater<>> offers;
  std::vector<Chain> chains(pipelines.size());
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    std::vector<int> key = kind(pipelines[p]);
    for (const DraftStage& stage : pipelines[p].stages) key.push_back(stage.layers());
    const auto [place, added] = known.try_emplace(std::move(key));
    if (added) place->second = chain(draft, p);
    chains[p] = place->second;
  }
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    pipelines[p].micro_batches = 1;
    left -= pipelines[p].micro_batch_size;
    offers.emplace(chains[p].sum + chains[p].longest, p);
  }
  if (left < 0) return false;
  while (left > 0) {
    const auto [end, p] = offers.top();
    offers.pop();
    if (pipelines[p].micro_batch_size > left) continue;
    ++pipelines[p].micro_batches;
    left -= pipelines[p].micro_batch_size;
    offers.emplace(end + chains[p].longest, p);
  }
  return true;
}

}  // namespace orrery::planners

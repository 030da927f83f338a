#include "planners/hexiscale_milp/program.h"

#include <algorithm>
#include <cmath>

#include "models/cost/memory.h"
#include "models/schedule/schedule.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

constexpr double kInfinity = kUnbounded;

int slots_of(const HexiscaleMilpSpace& space, int pipelines) {
  return std::min(space.layers(), space.devices() - pipelines + 1);
}

/// Bits that hold the numbers 0 ... most.
int bits_of(int most) {
  int bits = 0;
  while (most >> bits > 0) ++bits;
  return bits;
}

}  // namespace

std::int64_t HexiscaleMilpProgram::size(const HexiscaleMilpSpace& space, int pipelines) {
  const std::int64_t slots = slots_of(space, pipelines);
  const std::int64_t kinds = static_cast<std::int64_t>(space.kinds().size());
  const std::int64_t layers = space.layers();
  std::int64_t each = slots * (2 * kinds + 3);
  std::int64_t shared = 1;
  if (pipelines > 1) {
    each += 2 * slots * layers + layers * space.places() +
            std::int64_t{2} * bits_of(space.micro_batches() - pipelines);
    shared += layers + 1;
  }
  return pipelines * each + shared;
}

/// The unit makes the objective about 100, so that the solver's absolute tolerances are small.
HexiscaleMilpProgram::HexiscaleMilpProgram(const HexiscaleMilpSpace& space, int pipelines,
                                           Seconds limit, bool use_all)
    : space_(space),
      pipelines_(pipelines),
      slots_(slots_of(space, pipelines)),
      layers_(space.layers()),
      batch_(space.micro_batches()),
      most_(space.micro_batches() - pipelines + 1) {
  const Seconds least{static_cast<double>(batch_) * layers_ / space.most_speed()};
  unit_ = least / 100;
  const std::size_t kinds = space.kinds().size();
  for (std::size_t from = 0; from < kinds; ++from) {
    for (std::size_t to = 0; to < kinds; ++to) {
      const int a = static_cast<int>(from);
      const int b = static_cast<int>(to);
      hop_.push_back(space.coexist(a, b) ? in_units(space.hop(a, b)) : -1);
    }
  }
  Seconds slowest;
  for (const GroupKind& kind : space.kinds()) slowest = std::max(slowest, kind.per_layer);
  const double longest_hop = hop_.empty() ? 0 : *std::max_element(hop_.begin(), hop_.end());
  const double any = static_cast<double>(batch_) * slots_ *
                     (layers_ * in_units(slowest) + std::max(0.0, longest_hop));
  limit_ = std::min(any, in_units(limit));
  slowest_ = model_.add({std::min(in_units(least), limit_), kInfinity, 1, false});
  for (int i = 0; i < pipelines_; ++i) add_chain();
  share_devices(use_all);
  if (pipelines_ > 1) {
    share_batch();
    order_chains();
    add_exchange();
  }
}

void HexiscaleMilpProgram::add_chain() {
  Chain& chain = chains_.emplace_back();
  const std::size_t kinds = space_.kinds().size();
  MilpTerms one;
  for (int k = 1; k <= slots_; ++k) {
    chain.count.push_back(model_.add_binary());
    one.push_back({chain.count.back(), 1});
  }
  model_.add_row(one, 1, 1);
  MilpTerms all;
  for (int s = 0; s < slots_; ++s) {
    Stage& stage = chain.stages.emplace_back();
    stage.layers = model_.add({0, static_cast<double>(layers_), 0, true});
    all.push_back({stage.layers, 1});
    MilpTerms used;  // One kind in each of the first k slots.
    MilpTerms sum{{stage.layers, -1}};
    for (std::size_t g = 0; g < kinds; ++g) {
      stage.kind.push_back(model_.add_binary());
      stage.by_kind.push_back(model_.add({0, static_cast<double>(layers_), 0, false}));
      used.push_back({stage.kind[g], 1});
      sum.push_back({stage.by_kind[g], 1});
      model_.add_row({{stage.by_kind[g], 1}, {stage.kind[g], static_cast<double>(s - layers_)}},
                     -kInfinity, 0);
      model_.add_row({{stage.by_kind[g], 1}, {stage.kind[g], -1}}, 0, kInfinity);
    }
    for (int k = s + 1; k <= slots_; ++k) {
      used.push_back({chain.count[k - 1], -1});
    }
    model_.add_row(used, 0, 0);
    model_.add_row(sum, 0, 0);
  }
  model_.add_row(all, layers_, layers_);
  add_hops(chain);
  add_time(chain);
  add_device_time(chain);
  for (std::size_t s = 0; s < chain.stages.size(); ++s) {
    for (std::size_t g = 0; g < kinds; ++g) {
      for (int k = static_cast<int>(s) + 1; k <= slots_; ++k) add_memory(chain, s, g, k);
    }
  }
}

void HexiscaleMilpProgram::add_hops(Chain& chain) {
  const std::size_t kinds = space_.kinds().size();
  for (std::size_t s = 0; s + 1 < chain.stages.size(); ++s) {
    Stage& stage = chain.stages[s];
    const Stage& next = chain.stages[s + 1];
    stage.hop = model_.add({0, kInfinity, 0, false});
    for (std::size_t g = 0; g < kinds; ++g) {
      MilpTerms terms{{stage.hop, 1}};
      double longest = 0;
      for (std::size_t to = 0; to < kinds; ++to) {
        const double hop = hop_[g * kinds + to];
        if (hop > 0) terms.push_back({next.kind[to], -hop});
        longest = std::max(longest, hop);
      }
      terms.push_back({stage.kind[g], -longest});
      model_.add_row(terms, -longest, kInfinity);
    }
  }
}

/// T >= sum of stages + (n - 1) x longest stage. [Eq. 9]
void HexiscaleMilpProgram::add_time(Chain& chain) {
  // The pipeline cannot be faster on some of the devices than on all.
  const double least = layers_ / space_.most_speed() / unit_.value;
  chain.longest = model_.add({std::min(least, limit_), std::max(least, limit_), 0, false});
  MilpTerms whole{{slowest_, 1}};
  for (const Stage& stage : chain.stages) {
    MilpTerms time{{chain.longest, 1}};
    for (std::size_t g = 0; g < stage.by_kind.size(); ++g) {
      time.push_back({stage.by_kind[g], -in_units(kind(g).per_layer)});
    }
    if (stage.hop >= 0) time.push_back({stage.hop, -1});
    model_.add_row(time, 0, kInfinity);
    whole.insert(whole.end(), time.begin() + 1, time.end());
  }
  if (pipelines_ == 1) {
    whole.push_back({chain.longest, -static_cast<double>(batch_ - 1)});
    model_.add_row(whole, 0, kInfinity);
    return;
  }
  for (int p = 0; p < bits_of(most_ - 1); ++p) {
    const double weight = std::ldexp(1.0, p);
    const int bit = model_.add_binary();
    const int product = model_.add({0, kInfinity, 0, false});
    chain.bits.push_back(bit);
    // product >= weight (longest - limit (1 - bit)), and >= weight x least longest x bit.
    model_.add_row({{product, 1}, {chain.longest, -weight}, {bit, -weight * limit_}},
                   -weight * limit_, kInfinity);
    model_.add_row({{product, 1}, {bit, -weight * std::min(least, limit_)}}, 0, kInfinity);
    whole.push_back({product, -1});
  }
  model_.add_row(whole, 0, kInfinity);
}

/// Not needed for correctness, but the relaxation would otherwise put every stage on the fastest
/// machine: a machine's devices and groups work no longer than the longest stage.
void HexiscaleMilpProgram::add_device_time(const Chain& chain) {
  std::vector<int> devices(space_.machines(), 0);
  for (const MilpDeviceClass& c : space_.classes()) {
    devices[c.machine] += static_cast<int>(c.devices.size());
  }
  for (int machine = 0; machine < space_.machines(); ++machine) {
    const int have = devices[machine];
    MilpTerms all{{chain.longest, -static_cast<double>(have)}};
    for (std::size_t g = 0; g < space_.kinds().size(); ++g) {
      if (kind(g).machine != machine) continue;
      const int groups = have / kind(g).size;  // Whole ones.
      MilpTerms own{{chain.longest, -static_cast<double>(groups)}};
      for (const Stage& stage : chain.stages) {
        const double time = in_units(kind(g).per_layer);
        all.push_back({stage.by_kind[g], kind(g).size * time});
        own.push_back({stage.by_kind[g], time});
      }
      model_.add_row(own, -kInfinity, 0);
    }
    model_.add_row(all, -kInfinity, 0);
  }
}

/// Stage s of k as a group of kind g: one row for each number of micro-batches in flight that
/// lowers the number of layers that fit.
void HexiscaleMilpProgram::add_memory(Chain& chain, std::size_t s, std::size_t g, int stages) {
  const int stage = static_cast<int>(s);
  const int count = chain.count[stages - 1];
  const int x = chain.stages[s].kind[g];
  const int mine = chain.stages[s].by_kind[g];
  const ir::ScheduleKind schedule = space_.costs().schedule();
  const int index = static_cast<int>(g);
  const int possible = layers_ - stages + 1;  // Every other stage has at least one.
  const int most = models::schedule_entry(schedule).holds_whole_batch()
                       ? most_
                       : std::min(most_, stages - stage);
  int known = possible;
  for (int batch = pipelines_ == 1 ? most : 1; batch <= most; ++batch) {
    const int flying = models::micro_batches_in_flight(schedule, stages, stage, batch, 1);
    const int cap = std::min(possible, space_.max_layers(index, stage, stages, flying, pipelines_));
    if (cap >= known) continue;
    known = cap;
    MilpTerms row{{mine, 1}, {count, static_cast<double>(layers_ - cap)}};
    double right = layers_;
    if (cap == 0) {  // Not even one.
      row = {{x, 1}, {count, 1}};
      right = 1;
    }
    if (batch > 1 && pipelines_ > 1) {
      const double slack = cap == 0 ? 1 : layers_ - cap;
      row.push_back({at_least(chain, batch), slack});
      right += slack;
    }
    model_.add_row(row, -kInfinity, right);
    if (cap == 0) break;
  }
}

/// 1 where the pipeline has that many micro-batches or more; may be 1 where it has fewer, which
/// only costs memory.
int HexiscaleMilpProgram::at_least(Chain& chain, int micro_batches) {
  const std::size_t v = micro_batches;
  if (chain.at_least.size() <= v) chain.at_least.resize(v + 1, -1);
  if (chain.at_least[v] >= 0) return chain.at_least[v];
  const int variable = model_.add_binary();
  chain.at_least[v] = variable;
  // n = 1 + bits <= micro_batches - 1 + (most - micro_batches + 1) a.
  MilpTerms terms;
  for (std::size_t p = 0; p < chain.bits.size(); ++p) {
    terms.push_back({chain.bits[p], std::ldexp(1.0, static_cast<int>(p))});
  }
  terms.push_back({variable, -static_cast<double>(most_ - micro_batches + 1)});
  model_.add_row(terms, -kInfinity, micro_batches - 2);
  return variable;
}

void HexiscaleMilpProgram::share_devices(bool use_all) {
  const auto& classes = space_.classes();
  for (std::size_t c = 0; c < classes.size(); ++c) {
    MilpTerms terms;
    for (const Chain& chain : chains_) {
      for (const Stage& stage : chain.stages) {
        for (std::size_t g = 0; g < stage.kind.size(); ++g) {
          for (const auto& [member, count] : kind(g).members) {
            if (member == static_cast<int>(c)) {
              terms.push_back({stage.kind[g], static_cast<double>(count)});
            }
          }
        }
      }
    }
    const auto have = static_cast<double>(classes[c].devices.size());
    model_.add_row(terms, use_all ? have : -kInfinity, have);
  }
}

void HexiscaleMilpProgram::share_batch() {
  MilpTerms all;
  for (const Chain& chain : chains_) {
    MilpTerms own;
    for (std::size_t p = 0; p < chain.bits.size(); ++p) {
      own.push_back({chain.bits[p], std::ldexp(1.0, static_cast<int>(p))});
    }
    model_.add_row(own, -kInfinity, most_ - 1);
    all.insert(all.end(), own.begin(), own.end());
  }
  model_.add_row(all, batch_ - pipelines_, batch_ - pipelines_);
}

/// Pipelines can be renamed: their first stages' kinds ascend.
void HexiscaleMilpProgram::order_chains() {
  for (std::size_t i = 0; i + 1 < chains_.size(); ++i) {
    MilpTerms terms;
    for (std::size_t g = 1; g < space_.kinds().size(); ++g) {
      terms.push_back({chains_[i].stages.front().kind[g], static_cast<double>(g)});
      terms.push_back({chains_[i + 1].stages.front().kind[g], -static_cast<double>(g)});
    }
    model_.add_row(terms, -kInfinity, 0);
  }
}

/// Which stage and which place each layer lies in.
void HexiscaleMilpProgram::add_layer_places(Chain& chain) {
  const std::size_t layers = layers_;
  for (std::size_t s = 0; s < chain.stages.size(); ++s) {
    Stage& stage = chain.stages[s];
    const bool last = s + 1 == chain.stages.size();
    MilpTerms held;  // Layers of the stages up to this one.
    for (std::size_t j = 0; j < layers; ++j) {
      const bool all = last;  // Every layer lies in one of the slots.
      stage.upto.push_back(model_.add({all ? 1.0 : 0.0, 1, 0, true}));
      held.push_back({stage.upto[j], -1});
      if (j > 0) model_.add_row({{stage.upto[j - 1], 1}, {stage.upto[j], -1}}, 0, kInfinity);
      if (s > 0) {
        model_.add_row({{stage.upto[j], 1}, {chain.stages[s - 1].upto[j], -1}}, 0, kInfinity);
      }
    }
    for (std::size_t t = 0; t <= s; ++t) held.push_back({chain.stages[t].layers, 1});
    model_.add_row(held, 0, 0);
  }
  for (std::size_t j = 0; j < layers; ++j) {
    auto& place = chain.place.emplace_back();
    MilpTerms one;
    for (int q = 0; q < space_.places(); ++q) {
      place.push_back(model_.add({0, 1, 0, false}));
      one.push_back({place.back(), 1});
    }
    model_.add_row(one, 1, 1);
    for (std::size_t s = 0; s < chain.stages.size(); ++s) {
      // place >= (layer in stage s) + (stage s is of that place) - 1.
      for (std::size_t q = 0; q < place.size(); ++q) {
        MilpTerms terms{{place[q], 1}, {chain.stages[s].upto[j], -1}};
        if (s > 0) terms.push_back({chain.stages[s - 1].upto[j], 1});
        for (std::size_t g = 0; g < space_.kinds().size(); ++g) {
          if (kind(g).place == static_cast<int>(q)) {
            terms.push_back({chain.stages[s].kind[g], -1});
          }
        }
        model_.add_row(terms, -1, kInfinity);
      }
    }
  }
}

/// Gradients. [Eq. 4 and 7]
void HexiscaleMilpProgram::add_exchange() {
  const std::size_t places = space_.places();
  const std::size_t layers = layers_;
  std::vector<double> pay(places * places);
  for (std::size_t q = 0; q < places; ++q) {
    for (std::size_t o = 0; o < places; ++o) {
      pay[q * places + o] =
          in_units(space_.exchange(static_cast<int>(q), static_cast<int>(o), pipelines_));
    }
  }
  const double others = pipelines_ - 1;
  const double most = others * *std::max_element(pay.begin(), pay.end());
  for (Chain& chain : chains_) add_layer_places(chain);
  const int whole = model_.add({0, kInfinity, 1, false});
  std::vector<int> cost;
  for (std::size_t j = 0; j < layers; ++j) {
    cost.push_back(model_.add({0, most, 0, false}));
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      for (std::size_t q = 0; q < places; ++q) {
        double longest = 0;
        MilpTerms terms{{cost[j], 1}};
        for (std::size_t o = 0; o < places; ++o) {
          longest = std::max(longest, others * pay[q * places + o]);
          for (std::size_t n = 0; n < chains_.size(); ++n) {
            if (n != i) terms.push_back({chains_[n].place[j][o], -pay[q * places + o]});
          }
        }
        terms.push_back({chains_[i].place[j][q], -longest});
        model_.add_row(terms, -longest, kInfinity);
      }
    }
  }
  for (Chain& chain : chains_) {
    for (std::size_t s = 0; s < chain.stages.size(); ++s) {
      Stage& stage = chain.stages[s];
      MilpTerms sum{{whole, 1}};
      for (std::size_t j = 0; j < layers; ++j) {
        stage.exchange.push_back(model_.add({0, most, 0, false}));
        sum.push_back({stage.exchange[j], -1});
        // exchange >= cost - most (1 - layer in stage).
        MilpTerms terms{{stage.exchange[j], 1}, {cost[j], -1}, {stage.upto[j], -most}};
        if (s > 0) terms.push_back({chain.stages[s - 1].upto[j], most});
        model_.add_row(terms, -most, kInfinity);
      }
      model_.add_row(sum, 0, kInfinity);
    }
    for (std::size_t j = 0; j < layers; ++j) {  // Some stage bears it: tightens the relaxation.
      MilpTerms terms{{cost[j], -1}};
      for (const Stage& stage : chain.stages) terms.push_back({stage.exchange[j], 1});
      model_.add_row(terms, 0, kInfinity);
    }
  }
}

PlanChoice HexiscaleMilpProgram::decode(const std::vector<double>& values) const {
  const auto on = [&](int variable) { return values[variable] > 0.5; };
  PlanChoice choice;
  for (const Chain& chain : chains_) {
    PipelineChoice& pipeline = choice.emplace_back();
    pipeline.micro_batches = pipelines_ == 1 ? batch_ : 1;
    for (std::size_t p = 0; p < chain.bits.size(); ++p) {
      if (on(chain.bits[p])) pipeline.micro_batches += 1 << p;
    }
    for (const Stage& stage : chain.stages) {
      for (std::size_t g = 0; g < stage.kind.size(); ++g) {
        if (!on(stage.kind[g])) continue;
        const double layers = values[stage.layers];
        pipeline.stages.push_back({static_cast<int>(g), static_cast<int>(std::lround(layers))});
      }
    }
  }
  return choice;
}

}  // namespace orrery::planners

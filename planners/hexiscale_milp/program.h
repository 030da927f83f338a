/// HexiScale's scheduling problem (4.1, Eq. 1) under the cost model of Appendix A as a
/// mixed-integer linear program, for a given number of pipelines D.
///
/// The paper compares against "a MILP algorithm" (Appendix D) without printing it; this is ours.
/// Binaries: x[i,s,g], stage s of pipeline i is a group of kind g; e[i,k], pipeline i has k stages;
/// r[i,s,j], layer j lies in one of the stages up to s; b[i,p], bit p of the micro-batches of i
/// less one; a[i,v], pipeline i has v or more micro-batches. Integers l[i,s] count layers. Products
/// of the model and how they become linear (U: an upper bound, T: the slowest pipeline):
/// - layers x group: l[i,s] = sum over g of l[i,s,g], x <= l[i,s,g] <= U x[i,s,g];
/// - group x next group: h[i,s] >= sum over g' of Hop(g,g') x[i,s+1,g'] - U (1 - x[i,s,g]);
/// - (micro-batches - 1) x longest stage m[i]: sum over bits of w[i,p], w[i,p] >= 2^p m[i] - 2^p U
///   (1 - b[i,p]);
/// - holders of a layer, pair by pair: c[j] >= sum over the other pipelines of Exchange - U (1 -
///   layer j of pipeline i lies in place q), and its sum over a stage: z[i,s,j] >= c[j] - U (1 -
///   layer j in stage s), DP >= sum over j of z[i,s,j];
/// - memory, which depends on the stage's place, on k and on micro-batches in flight: l[i,s,g] <=
///   cap + U (1 - e[i,k]) + U (1 - a[i,v]).
/// The minimum of T + DP is that of Eq. 10.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "models/base/units.h"
#include "planners/hexiscale_milp/space.h"
#include "planners/kit/milp.h"

namespace orrery::planners {

class HexiscaleMilpProgram {
 public:
  /// `pipelines` >= 1, at most devices and micro-batches. Only plans faster than `limit` need to be
  /// solutions; any plan's time will do. `use_all`: no device may be left out. Keeps a reference to
  /// the space.
  HexiscaleMilpProgram(const HexiscaleMilpSpace& space, int pipelines, Seconds limit, bool use_all);

  /// Variables that it takes, without building it (the a[i,v] not counted).
  static std::int64_t size(const HexiscaleMilpSpace& space, int pipelines);

  const MilpModel& model() const { return model_; }
  /// The objective is a time in this unit.
  Seconds unit() const { return unit_; }
  PlanChoice decode(const std::vector<double>& values) const;

 private:
  struct Stage {
    std::vector<int> kind;      // x, by kind.
    std::vector<int> by_kind;   // l, by kind.
    int layers = 0;             // l.
    int hop = -1;               // h; none in the last slot.
    std::vector<int> upto;      // r, by layer; with one pipeline none.
    std::vector<int> exchange;  // z, by layer; with one pipeline none.
  };
  struct Chain {
    std::vector<Stage> stages;
    std::vector<int> count;               // e, by stages - 1.
    std::vector<int> bits;                // b.
    std::vector<std::vector<int>> place;  // By layer and place.
    std::vector<int> at_least;            // a, by v; -1: not there.
    int longest = 0;                      // m.
  };

  double in_units(Seconds time) const { return time / unit_; }
  const GroupKind& kind(std::size_t g) const { return space_.kinds()[g]; }
  void add_chain();
  void add_hops(Chain& chain);
  void add_time(Chain& chain);
  void add_device_time(const Chain& chain);
  void add_memory(Chain& chain, std::size_t s, std::size_t g, int stages);
  int at_least(Chain& chain, int micro_batches);
  void add_layer_places(Chain& chain);
  void add_exchange();
  void share_devices(bool use_all);
  void share_batch();
  void order_chains();

  const HexiscaleMilpSpace& space_;
  const int pipelines_;
  const int slots_;  // Stages that a pipeline may have.
  const int layers_;
  const int batch_;          // Micro-batches in all.
  const int most_;           // Micro-batches of one pipeline.
  std::vector<double> hop_;  // [kinds x kinds], in units; -1: do not coexist.
  Seconds unit_{1};
  double limit_ = 0;  // On a pipeline's time, in units.
  MilpModel model_;
  std::vector<Chain> chains_;
  int slowest_ = 0;  // T.
};

}  // namespace orrery::planners

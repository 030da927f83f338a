/// Which of several candidates has the best mean, with few samples for those that are clearly worse
/// and many for those that are close. All candidates are sampled under the same seeds (common
/// random numbers), so that two are compared by the mean and the spread of their differences, seed
/// by seed.
///
/// First successive halving [Karnin, Koren, Somekh, ICML 2013]: every candidate has one sample,
/// then the better half a second one and so on, until no more than `finalists` are left. Then, as
/// in OCBA [Chen et al., DEDS 2000], the next samples go to the leader and to the candidates whose
/// difference to it is fewest standard errors from zero. It ends when every difference is
/// significant (Student's t, Bonferroni's correction for the number of finalists), or with the
/// budget.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace orrery::experiments {

struct RaceSettings {
  std::int64_t budget = 200;  ///< Samples in all.
  int most = 64;              ///< Samples of one candidate.
  std::size_t finalists = 8;  ///< Candidates that halving leaves.
  double tail = 0.025;        ///< Of the t distribution on each side, before the correction.
};

class Race {
 public:
  explicit Race(RaceSettings settings) : settings_(settings) {}

  struct Sample {
    std::size_t candidate = 0;
    int seed = 0;  ///< From 0 on, in order, for each candidate.
  };

  void set_budget(std::int64_t budget) { settings_.budget = budget; }
  /// One more candidate. Added to a race that goes on, it gets the samples that the others have.
  std::size_t add();
  /// What is to be sampled next, in any order; empty: the race is over. What decides are the
  /// samples taken so far alone, so that a race is deterministic.
  std::vector<Sample> next();
  /// The value of the candidate's next seed; none: the candidate is out of the race.
  void take(std::size_t candidate, std::optional<double> value);

  /// Candidates that have a sample, best first: by the difference to the leader over the seeds that
  /// both have; those that halving stopped behind all that had more samples.
  std::vector<std::size_t> ranking() const;
  const std::vector<double>& values(std::size_t candidate) const {
    return candidates_[candidate].values;
  }
  std::int64_t samples() const { return samples_; }
  /// Every difference between the leader and another finalist is significant.
  bool settled() const { return settled_; }

 private:
  struct Candidate {
    std::vector<double> values;
    bool out = false;      ///< Cannot be sampled.
    bool stopped = false;  ///< By halving.
    bool live() const { return !out && !stopped; }
  };
  /// Mean of a - b over common seeds, and by how many standard errors it is from zero.
  struct Difference {
    double mean = 0;
    double errors = 0;
    std::size_t seeds = 0;
  };
  Difference difference(std::size_t a, std::size_t b) const;
  std::vector<std::size_t> live() const;
  /// Stops the worse half, at least as many left as there are finalists.
  void halve();
  std::size_t leader(const std::vector<std::size_t>& among) const;
  std::vector<Sample> within_budget(std::vector<Sample> samples) const;

  RaceSettings settings_;
  std::vector<Candidate> candidates_;
  std::size_t rung_ = 1;  ///< Samples that every live candidate has or gets next.
  std::int64_t samples_ = 0;
  bool settled_ = false;
};

}  // namespace orrery::experiments

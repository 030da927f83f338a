#include "calibration/fit/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "calibration/fit/robust.h"
#include "calibration/fit/segments.h"
#include "models/cost/memory.h"
#include "tests/calibration/synthetic.h"

namespace orrery::calibration::fit_test {
namespace {

using synthetic::Noise;

const FitEntry& entry(const FitReport& report, const std::string& name) {
  const auto found = std::find_if(report.entries.begin(), report.entries.end(),
                                  [&](const FitEntry& one) { return one.name == name; });
  if (found == report.entries.end()) {
    ADD_FAILURE() << "no entry '" << name << "'";
    static const FitEntry kNone;
    return kNone;
  }
  return *found;
}

bool warns(const FitReport& report, const std::string& what) {
  return std::any_of(report.warnings.begin(), report.warnings.end(),
                     [&](const std::string& line) { return line.find(what) != std::string::npos; });
}

TEST(Robust, RecoversALineWithoutNoise) {
  Design design;
  for (const double x : {1.0, 2.0, 4.0, 8.0}) design.add({1, x}, 3e-5 + 2e-3 * x);
  const std::vector<double> found = fit_relative(design);
  EXPECT_NEAR(found[0], 3e-5, 1e-12);
  EXPECT_NEAR(found[1], 2e-3, 1e-12);
}

TEST(Robust, GrossOutliersMoveTheLineLittle) {
  Design design;
  Rng rng(3);
  for (int i = 0; i < 60; ++i) {
    const double x = 1 + i % 12;
    const double noise = 1 + 0.02 * rng.normal();
    design.add({1, x}, (i % 7 == 0 ? 5 : 1) * noise * (0.5 + 2 * x));
  }
  const std::vector<double> found = fit_relative(design);
  EXPECT_NEAR(found[0], 0.5, 0.15);
  EXPECT_NEAR(found[1], 2, 0.08);
}

TEST(Robust, CountsShortAndLongTimesAlike) {
  // Fitted to absolute errors, the 1 s would swallow the 10 us.
  Design design;
  Rng rng(5);
  for (int i = 0; i < 40; ++i) {
    const double bytes = std::pow(4.0, i % 10);
    design.add({1, bytes}, (10e-6 + 1e-6 * bytes) * (1 + 0.05 * rng.normal()));
  }
  EXPECT_NEAR(fit_relative(design)[0], 10e-6, 0.5e-6);
}

TEST(Robust, ACoefficientThatWouldBeNegativeIsZero) {
  Design design;
  for (const double x : {1.0, 2.0, 4.0}) design.add({1, x}, 2 * x - 0.5);
  const std::vector<double> found = fit_relative(design);
  EXPECT_EQ(found[0], 0);
  EXPECT_GT(found[1], 1.4);
  EXPECT_LT(found[1], 2);
}

TEST(Robust, TermsThatDependOnOneAnotherShareTheirEffect) {
  Design design;
  for (const double x : {1.0, 2.0, 3.0}) design.add({x, 2 * x}, 6 * x);
  const std::vector<double> found = fit_relative(design);
  EXPECT_NEAR(evaluate({5, 10}, found), 30, 1e-9);
}

std::vector<SizedTime> times_of(const std::function<double(double)>& seconds) {
  std::vector<SizedTime> times;
  for (double bytes = 8; bytes < 1e8; bytes *= 2) times.push_back({bytes, seconds(bytes)});
  return times;
}

TEST(Segments, OneLineIsOneSegment) {
  const auto found = fit_segments(times_of([](double b) { return 5e-6 + b / 1e9; }));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].from, 0);
  EXPECT_NEAR(found[0].latency, 5e-6, 1e-12);
  EXPECT_NEAR(found[0].per_byte, 1e-9, 1e-16);
}

TEST(Segments, BordersAreFoundWhereTheProtocolChanges) {
  const auto found = fit_segments(times_of([](double b) {
    if (b < 4096) return 4e-6 + b / 0.5e9;
    if (b < 1048576) return 30e-6 + b / 4e9;
    return 100e-6 + b / 2e9;
  }));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].from, 4096);
  EXPECT_EQ(found[2].from, 1048576);
  EXPECT_NEAR(found[1].latency, 30e-6, 1e-9);
  EXPECT_NEAR(1 / found[2].per_byte, 2e9, 1e4);
}

TEST(Segments, NoiseAloneMakesNoSegments) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    const auto found = fit_segments(
        times_of([&](double b) { return (20e-6 + b / 1e9) * std::exp(0.05 * rng.normal()); }));
    EXPECT_EQ(found.size(), 1u) << "seed " << seed;
  }
}

TEST(Segments, TimeNeverFallsWithSize) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng(seed);
    const auto found = fit_segments(
        times_of([&](double b) { return (20e-6 + b / 1e9) * std::exp(0.7 * rng.normal()); }));
    double before = 0;
    for (double bytes = 0; bytes < 1e8; bytes = bytes * 1.03 + 1) {
      const double now = time_of(found, bytes);
      EXPECT_GE(now, before * (1 - 1e-12)) << "seed " << seed << " at " << bytes;
      before = now;
    }
  }
}

TEST(Segments, OneSizeIsALatency) {
  const auto found = fit_segments({{1024, 1e-3}, {1024, 1.1e-3}, {1024, 1.2e-3}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NEAR(time_of(found, 1024), 1.1e-3, 0.02e-3);
}

TEST(Segments, ManySizesAreThinnedBetweenTheirEnds) {
  // all_reduce_perf -b 1M -e 4G -i 1M: without thinning it does not end in hours.
  std::vector<SizedTime> many;
  for (int i = 4096; i >= 1; --i) {
    const double bytes = i * 1048576.0;
    many.push_back({bytes, bytes < 64 << 20 ? 20e-6 + bytes / 2e9 : 25e-3 + bytes / 5e9});
  }
  const auto found = fit_segments(many);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NEAR(found[0].latency, 20e-6, 1e-9);
  EXPECT_NEAR(1 / found[0].per_byte, 2e9, 1e5);
  EXPECT_NEAR(found[1].from, 64 << 20, 8 << 20);
  EXPECT_NEAR(1 / found[1].per_byte, 5e9, 1e5);
  // Sizes that lie close together count where there are no others.
  std::vector<SizedTime> close = {{1 << 30, 20e-6 + (1 << 30) / 2e9}};
  for (int i = 0; i < 300; ++i) close.push_back({1000.0 + i, i < 150 ? 10e-6 : 20e-6});
  const auto step = fit_segments(close);
  ASSERT_GE(step.size(), 2u);
  EXPECT_NEAR(time_of(step, 1010), 10e-6, 1e-7);
  EXPECT_NEAR(time_of(step, 1290), 20e-6, 1e-6);
}

TEST(FitLinks, SaysThatItFitsToSomeOfManySizes) {
  ir::MeasurementSet set = synthetic::machine();
  synthetic::measure_messages(set, "few", [](double b) { return 1e-4 + b / 1e9; }, {});
  ir::Measurement row = set.measurements.front();
  row.link_class = "many";
  for (int i = 1; i <= 100; ++i) {
    row.bytes = Bytes{i * 1e6};
    row.wall = Seconds{1e-4 + i * 1e-3};
    set.measurements.push_back(row);
  }
  const FitReport report = fit(set);
  EXPECT_TRUE(warns(report, "link many: fitted to 64 of its 100 sizes at most"));
  EXPECT_FALSE(warns(report, "link few: fitted"));
  EXPECT_LT(entry(report, "link many").fit_max_error, 1e-6);
}

TEST(FitLinks, RecoversLatencyAndBandwidthInNoiseAndOutliers) {
  ir::MeasurementSet set = synthetic::machine();
  synthetic::measure_messages(set, "slow", [](double b) { return 200e-6 + b / 115e6; },
                              {0.1, 0.05, 9});
  const FitReport report = fit(set);
  ASSERT_EQ(report.profile.links.size(), 1u);
  EXPECT_NEAR(report.profile.links[0].latency.value, 200e-6, 10e-6);
  EXPECT_NEAR(report.profile.links[0].bandwidth.value, 115e6, 6e6);
  EXPECT_EQ(report.profile.links[0].provenance.samples, 12 * 9);
  EXPECT_EQ(report.profile.links[0].provenance.machine, "two cores");
  const FitEntry& link = entry(report, "link slow");
  EXPECT_LT(link.held_out_mean_error, 0.1);
  EXPECT_GT(link.held_out_mean_error, 0);
  EXPECT_TRUE(report.warnings.empty()) << report.warnings.front();
}

TEST(FitLinks, BothWaysAtOnceIsReportedWhereItTakesLonger) {
  ir::MeasurementSet set = synthetic::machine();
  const auto one_way = [](double b) { return 10e-6 + b / 1e9; };
  synthetic::measure_messages(set, "wire", one_way, {});
  synthetic::measure_messages(
      set, "wire", [&](double b) { return 1.6 * one_way(b); }, {}, true);
  const FitReport report = fit(set);
  EXPECT_EQ(report.profile.links.size(), 1u);
  EXPECT_NEAR(entry(report, "link wire, both ways at once").parameters[0].value, 1.6, 1e-6);
  EXPECT_TRUE(warns(report, "1.60 times as long as one way"));
}

TEST(FitBlocks, SlopeIsTheBlockAndInterceptTheOverhead) {
  ir::MeasurementSet set = synthetic::machine();
  for (const int micro_batch : {1, 2, 4}) {
    for (const int layers : {1, 2, 4, 8}) {
      for (const ir::Pass pass : {ir::Pass::forward, ir::Pass::backward}) {
        const double block = (pass == ir::Pass::forward ? 1e-3 : 2e-3) * micro_batch;
        synthetic::measure(set, synthetic::block(pass, layers, micro_batch), 50e-6 + layers * block,
                           {});
      }
    }
  }
  ir::Measurement nothing;
  nothing.kind = ir::MeasurementKind::op_overhead;
  nothing.device_type = "cpu";
  synthetic::measure(set, nothing, 7e-6, {});
  const FitReport report = fit(set);
  ASSERT_EQ(report.profile.block_times.size(), 6u);
  for (const ir::BlockTime& time : report.profile.block_times) {
    const double one = time.pass == ir::Pass::forward ? 1e-3 : 2e-3;
    EXPECT_NEAR(time.time.value, one * time.micro_batch_size, 1e-9);
    EXPECT_EQ(time.model, "tiny");
    EXPECT_EQ(time.sequence_length, 64);
    ASSERT_TRUE(time.provenance.held_out_error.has_value());
    EXPECT_NEAR(*time.provenance.held_out_error, 0, 1e-9);
  }
  ASSERT_EQ(report.profile.pass_overheads.size(), 5u);
  for (const ir::PassOverhead& overhead : report.profile.pass_overheads) {
    const bool whole = overhead.pass == ir::Pass::forward || overhead.pass == ir::Pass::backward;
    const double intercept = whole ? 50e-6 : overhead.pass == ir::Pass::optimizer ? 0 : 25e-6;
    EXPECT_NEAR(overhead.time.value, intercept + 7e-6, 1e-9);
  }
}

TEST(FitBlocks, RecomputationIsCheckedNotFitted) {
  ir::MeasurementSet set = synthetic::machine();
  for (const int layers : {1, 2, 4, 8}) {
    synthetic::measure(set, synthetic::block(ir::Pass::forward, layers, 1), 1e-3 * layers, {});
    synthetic::measure(set, synthetic::block(ir::Pass::backward, layers, 1), 2e-3 * layers, {});
    ir::Measurement again = synthetic::block(ir::Pass::backward, layers, 1);
    again.recompute = ir::Recompute::full;
    synthetic::measure(set, again, 3.3e-3 * layers, {});
  }
  const FitReport report = fit(set);
  EXPECT_EQ(report.profile.block_times.size(), 2u);
  const FitEntry& check = entry(
      report, "cpu transformer backward fp32 tp 1 micro-batch 1 sequence 64, full recomputation");
  EXPECT_NEAR(check.held_out_mean_error, 0.3 / 3.3, 1e-6);
  EXPECT_LT(check.fit_mean_error, 0);
}

TEST(Fit, HeldOutErrorShowsAWrongForm) {
  // Quadratic in the layers: no line can say it.
  ir::MeasurementSet set = synthetic::machine();
  for (const int layers : {1, 2, 4, 8, 16}) {
    synthetic::measure(set, synthetic::block(ir::Pass::forward, layers, 1), 1e-3 * layers * layers,
                       {});
  }
  const FitReport report = fit(set);
  const FitEntry& wrong =
      entry(report, "cpu transformer forward fp32 tp 1 micro-batch 1 sequence 64");
  EXPECT_GT(wrong.held_out_mean_error, 0.2);
  EXPECT_TRUE(warns(report, "held-out error"));
}

TEST(Fit, WhatIsHeldOutIsNotSeenByTheFitThatJudgesIt) {
  // One size takes four times as long as the line says. A judge that had seen it could hide that.
  bool held = false;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    ir::MeasurementSet set = synthetic::machine();
    synthetic::measure_messages(
        set, "wire", [](double b) { return (b == 8192 ? 4 : 1) * (10e-6 + b / 1e9); }, {});
    FitOptions options;
    options.seed = seed;
    const FitReport report = fit(set, options);
    const FitEntry& link = entry(report, "link wire");
    for (const FitPoint& point : link.points) {
      if (point.x != 8192 || !point.held_out) continue;
      held = true;
      EXPECT_NEAR(point.fitted, 10e-6 + 8192 / 1e9, 1e-9);
      EXPECT_NEAR(link.held_out_max_error, 0.75, 0.01);
    }
  }
  EXPECT_TRUE(held) << "no seed held the odd size out";
}

TEST(Fit, HeldOutShareIsKept) {
  for (const double share : {0.0, 0.25, 0.5}) {
    ir::MeasurementSet set = synthetic::machine();
    synthetic::measure_messages(set, "wire", [](double b) { return 10e-6 + b / 1e9; }, {});
    FitOptions options;
    options.held_out_share = share;
    const FitReport report = fit(set, options);
    const FitEntry& link = entry(report, "link wire");
    const auto held = std::count_if(link.points.begin(), link.points.end(),
                                    [](const FitPoint& point) { return point.held_out; });
    EXPECT_EQ(held, static_cast<std::ptrdiff_t>(share * 12));
    EXPECT_FALSE(link.points.front().held_out);
    EXPECT_FALSE(link.points.back().held_out);
    EXPECT_EQ(link.held_out_mean_error >= 0, share > 0);
    EXPECT_EQ(report.profile.links[0].provenance.held_out_error.has_value(), share > 0);
  }
}

/// A head of one micro-batch with these times, together with layers that give the overhead.
FitReport fit_head(const std::vector<double>& seconds) {
  ir::MeasurementSet set = synthetic::machine();
  for (const int layers : {1, 2, 4, 8}) {
    synthetic::measure(set, synthetic::block(ir::Pass::forward, layers, 1), 50e-6 + layers * 1e-3,
                       {});
  }
  ir::Measurement head = synthetic::block(ir::Pass::forward, 1, 1);
  head.block = ir::BlockKind::head;
  for (const double time : seconds) {
    head.wall = Seconds{time};
    set.measurements.push_back(head);
    ++head.repetition;
  }
  return fit(set);
}

constexpr const char* kHead = "cpu head forward fp32 tp 1 micro-batch 1 sequence 64";

TEST(Fit, OfOneMeasurementRepetitionsAreHeldOutInTurn) {
  const FitReport report = fit_head({1.0e-3, 1.2e-3, 1.1e-3, 1.3e-3, 2.2e-3});
  const FitEntry& head = entry(report, kHead);
  EXPECT_TRUE(head.repetitions);
  ASSERT_EQ(head.points.size(), 5u);
  // Each against the median of the four others.
  const double judged[] = {1.25e-3, 1.25e-3, 1.2e-3, 1.15e-3, 1.15e-3};
  const double taken[] = {1.0e-3, 1.1e-3, 1.2e-3, 1.3e-3, 2.2e-3};
  double mean = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(head.points[i].measured, taken[i], 1e-12);
    EXPECT_NEAR(head.points[i].fitted, judged[i], 1e-12);
    EXPECT_NEAR(head.points[i].curve, 1.2e-3, 1e-9);
    EXPECT_TRUE(head.points[i].held_out);
    mean += std::abs(judged[i] / taken[i] - 1) / 5;
  }
  EXPECT_NEAR(head.held_out_mean_error, mean, 1e-9);
  EXPECT_NEAR(head.held_out_max_error, 1.05 / 2.2, 1e-9);
  for (const ir::BlockTime& time : report.profile.block_times) {
    const bool is_head = time.block == ir::BlockKind::head;
    ASSERT_TRUE(time.provenance.held_out_error.has_value());
    EXPECT_EQ(time.provenance.source.find("repetitions held out") != std::string::npos, is_head);
    if (is_head) {
      EXPECT_NEAR(*time.provenance.held_out_error, mean, 1e-9);
    }
  }
}

TEST(Fit, EveryFifthOfManyRepetitionsIsHeldOutAtATime) {
  const FitReport report =
      fit_head({1.0e-3, 1.1e-3, 1.2e-3, 1.3e-3, 1.4e-3, 1.5e-3, 1.6e-3, 1.7e-3, 1.8e-3, 1.9e-3});
  const FitEntry& head = entry(report, kHead);
  ASSERT_EQ(head.points.size(), 10u);
  // Without the first and the sixth: the middle of 1.1, 1.2, 1.3, 1.4, 1.6, 1.7, 1.8 and 1.9.
  EXPECT_NEAR(head.points[0].fitted, 1.5e-3, 1e-12);
  EXPECT_NEAR(head.points[5].fitted, 1.5e-3, 1e-12);
}

TEST(Fit, AMedianHasNoErrorOnItsOwnSamples) {
  const FitReport report = fit_head({1.0e-3, 1.2e-3, 1.1e-3});
  EXPECT_LT(entry(report, kHead).fit_mean_error, 0) << "an error of 0 that says nothing";
  EXPECT_LT(entry(report, kHead).fit_max_error, 0);
  const FitEntry& layer =
      entry(report, "cpu transformer forward fp32 tp 1 micro-batch 1 sequence 64");
  EXPECT_GE(layer.fit_mean_error, 0);
  EXPECT_FALSE(layer.repetitions);
}

TEST(Fit, AHeadShorterThanTheOverheadHasAnErrorOfItsFit) {
  // The overhead of the pass alone is longer than what was measured: the block's time is zero.
  ir::MeasurementSet set = synthetic::machine();
  for (const int micro_batch : {1, 2, 3, 4, 5, 6}) {
    for (const int layers : {1, 2, 4, 8}) {
      synthetic::measure(set, synthetic::block(ir::Pass::forward, layers, micro_batch),
                         100e-6 + layers * micro_batch * 10e-6, {});
    }
  }
  ir::Measurement head = synthetic::block(ir::Pass::forward, 1, 1);
  head.block = ir::BlockKind::head;
  synthetic::measure(set, head, 40e-6, {0.01, 0, 5});
  const FitReport report = fit(set);
  EXPECT_GT(entry(report, kHead).fit_mean_error, 0.5);
  EXPECT_GT(entry(report, kHead).held_out_mean_error, 0.5);
  EXPECT_TRUE(warns(report, "no time besides the overhead"));
}

TEST(Fit, OneRepetitionJudgesNothing) {
  const FitReport report = fit_head({1.0e-3});
  const FitEntry& head = entry(report, kHead);
  EXPECT_LT(head.held_out_mean_error, 0);
  ASSERT_EQ(head.points.size(), 1u);
  EXPECT_FALSE(head.points[0].held_out);
}

TEST(Fit, EveryPassOverheadHasSamplesAndAHeldOutError) {
  ir::MeasurementSet set = synthetic::machine();
  for (const ir::Pass pass : {ir::Pass::forward, ir::Pass::backward}) {
    for (const int layers : {1, 2, 4, 8}) {
      synthetic::measure(set, synthetic::block(pass, layers, 1), 50e-6 + layers * 1e-3, {});
    }
  }
  ir::Measurement nothing;
  nothing.kind = ir::MeasurementKind::op_overhead;
  nothing.device_type = "cpu";
  synthetic::measure(set, nothing, 7e-6, {0.1, 0, 6});
  const FitReport report = fit(set);
  ASSERT_EQ(report.profile.pass_overheads.size(), 5u);
  for (const ir::PassOverhead& overhead : report.profile.pass_overheads) {
    EXPECT_TRUE(overhead.provenance.held_out_error.has_value());
    EXPECT_GT(overhead.provenance.samples, 0);
    // The optimizer's pass has no blocks: all of it is the engine's part.
    if (overhead.pass == ir::Pass::optimizer) {
      EXPECT_EQ(overhead.provenance.samples, 6);
    }
  }
  EXPECT_NE(points_csv(report).find("cpu op overhead,overhead,,0,,time,"), std::string::npos);
}

TEST(Fit, DisturbedSamplesAreLeftOutAndCounted) {
  ir::MeasurementSet set = synthetic::machine();
  synthetic::measure_messages(set, "wire", [](double b) { return 10e-6 + b / 1e9; }, {});
  std::vector<ir::Measurement> disturbed = set.measurements;
  for (ir::Measurement& one : disturbed) {
    one.wall = 50 * one.wall;
    one.disturbed = true;
    set.measurements.push_back(one);
    set.measurements.push_back(one);
  }
  const FitReport report = fit(set);
  EXPECT_NEAR(report.profile.links.at(0).bandwidth.value, 1e9, 1);
  EXPECT_EQ(entry(report, "link wire").disturbed, 24);
  EXPECT_EQ(entry(report, "link wire").samples, 12);
  EXPECT_TRUE(warns(report, "24 of 36 samples were disturbed"));
}

TEST(Fit, AnEntryWithoutUsableSamplesIsAWarning) {
  ir::MeasurementSet set = synthetic::machine();
  ir::Measurement one = synthetic::block(ir::Pass::forward, 1, 1);
  one.wall = Seconds{1};
  one.disturbed = true;
  set.measurements.push_back(one);
  const FitReport report = fit(set);
  EXPECT_TRUE(report.profile.block_times.empty());
  EXPECT_TRUE(warns(report, "no usable sample (1 disturbed"));
}

TEST(Fit, IsDeterministicAndIndependentOfTheOrderOfRepetitions) {
  const auto make = [](bool reversed) {
    ir::MeasurementSet set = synthetic::machine();
    synthetic::measure_messages(set, "wire", [](double b) { return 10e-6 + b / 1e9; },
                                {0.2, 0.1, 5});
    if (reversed) std::reverse(set.measurements.begin(), set.measurements.end());
    return fit(set);
  };
  const FitReport once = make(false), again = make(false), reversed = make(true);
  EXPECT_EQ(points_csv(once), points_csv(again));
  EXPECT_EQ(points_csv(once), points_csv(reversed));
  ASSERT_FALSE(once.profile.links.empty());
  EXPECT_EQ(once.profile.links[0].latency.value, again.profile.links[0].latency.value);
}

TEST(FitCollectives, FactorIsMeasuredOverTheRingOnTheFittedLinks) {
  ir::MeasurementSet set = synthetic::machine();
  synthetic::measure_messages(set, "wire", [](double b) { return 10e-6 + b / 1e9; }, {});
  for (const int ranks : {2, 4}) {
    for (double bytes = 4096; bytes < 1e8; bytes *= 8) {
      ir::Measurement what;
      what.kind = ir::MeasurementKind::collective;
      what.link_class = "wire";
      what.ranks = ranks;
      what.bytes = Bytes{bytes};
      const double ring = 2.0 * (ranks - 1) * (10e-6 + bytes / ranks / 1e9);
      synthetic::measure(set, what, (ranks == 2 ? 1.25 : 1.5) * ring, {});
    }
  }
  const FitReport report = fit(set);
  ASSERT_EQ(report.profile.collectives.size(), 2u);
  EXPECT_EQ(report.profile.collectives[0].collective, "all_reduce");
  EXPECT_EQ(report.profile.collectives[0].ranks, 2);
  EXPECT_NEAR(report.profile.collectives[0].factor, 1.25, 1e-6);
  EXPECT_NEAR(report.profile.collectives[1].factor, 1.5, 1e-6);
}

TEST(FitCollectives, WithoutMessagesThereIsNothingToCompareWith) {
  ir::MeasurementSet set = synthetic::machine();
  ir::Measurement what;
  what.kind = ir::MeasurementKind::collective;
  what.link_class = "wire";
  what.ranks = 2;
  what.bytes = Bytes{1e6};
  synthetic::measure(set, what, 1e-3, {});
  const FitReport report = fit(set);
  EXPECT_TRUE(report.profile.collectives.empty());
  EXPECT_TRUE(warns(report, "no messages over wire were measured"));
}

TEST(FitCollectives, LinksWithoutAClassAreCalledThat) {
  ir::MeasurementSet set = synthetic::machine();
  ir::Measurement what;
  what.kind = ir::MeasurementKind::collective;
  what.collective = ir::CollectiveKind::all_gather;
  what.ranks = 4;
  what.bytes = Bytes{1e6};
  synthetic::measure(set, what, 1e-3, {});
  EXPECT_TRUE(warns(fit(set),
                    "all_gather over links without a class, 4 ranks: no link class was "
                    "given: no entry"));
}

TEST(FitCompute, EfficiencyIsTheRateOverTheDeclaredPeak) {
  ir::MeasurementSet set = synthetic::machine();
  for (int i = 0; i < 18; ++i) {
    ir::Measurement what;
    what.kind = ir::MeasurementKind::gemm;
    what.device_type = "cpu";
    what.m = what.n = what.k = 64 + i;
    what.flops = Flops{1e6 * std::pow(2.0, i)};
    // 20 % at 1e6 FLOP, rising linearly in log(FLOPs) to 54 % at 2^17 times that.
    const double rate = 100e9 * (0.2 + 0.02 * i);
    synthetic::measure(set, what, what.flops.value / rate, {});
  }
  const FitReport without = fit(set);
  EXPECT_TRUE(without.profile.efficiencies.empty());
  EXPECT_TRUE(warns(without, "no peak of this device and dtype was given"));
  FitOptions options;
  options.peaks[{"cpu", ir::Dtype::fp32}] = FlopsPerSecond{100e9};
  const FitReport report = fit(set, options);
  ASSERT_EQ(report.profile.efficiencies.size(), 1u);
  const auto& points = report.profile.efficiencies[0].points;
  ASSERT_EQ(points.size(), 6u);
  EXPECT_NEAR(points.front().efficiency, 0.2, 1e-6);
  EXPECT_NEAR(points.back().efficiency, 0.54, 1e-6);
  EXPECT_NEAR(entry(report, "cpu matrix products fp32").held_out_max_error, 0, 1e-6);
}

TEST(FitLines, OptimizerAndCheckpointsAreLines) {
  ir::MeasurementSet set = synthetic::machine();
  for (double size = 1e4; size < 1e8; size *= 10) {
    ir::Measurement step;
    step.kind = ir::MeasurementKind::optimizer;
    step.device_type = "cpu";
    step.parameters = size;
    synthetic::measure(set, step, 20e-6 + 3e-9 * size, {});
    for (const bool write : {false, true}) {
      ir::Measurement file;
      file.kind =
          write ? ir::MeasurementKind::checkpoint_write : ir::MeasurementKind::checkpoint_read;
      file.location = ir::Location::nvme;
      file.bytes = Bytes{size};
      synthetic::measure(set, file, 1e-3 + size / (write ? 5e8 : 2e9), {});
    }
  }
  const FitReport report = fit(set);
  ASSERT_EQ(report.profile.optimizers.size(), 1u);
  EXPECT_NEAR(report.profile.optimizers[0].fixed.value, 20e-6, 1e-10);
  EXPECT_NEAR(report.profile.optimizers[0].per_parameter.value, 3e-9, 1e-14);
  ASSERT_EQ(report.profile.storage.size(), 2u);
  for (const ir::StorageTime& time : report.profile.storage) {
    EXPECT_EQ(time.location, "nvme");
    EXPECT_NEAR(time.latency.value, 1e-3, 1e-9);
    EXPECT_NEAR(time.bandwidth.value, time.write ? 5e8 : 2e9, 1e3);
  }
}

TEST(FitMemory, FragmentationIsWhatIsKeptOverWhatIsCounted) {
  ir::MeasurementSet set = synthetic::machine();
  for (const int layers : {1, 2, 4, 8}) {
    ir::Measurement what = synthetic::block(ir::Pass::forward, layers, 2);
    what.kind = ir::MeasurementKind::memory;
    what.bytes = Bytes{1.12 * 1000 * layers};
    set.measurements.push_back(what);
  }
  FitOptions options;
  options.counted_memory = [](const ir::Measurement& one) -> std::optional<Bytes> {
    return Bytes{1000.0 * one.layers};
  };
  const FitReport report = fit(set, options);
  ASSERT_EQ(report.profile.memory.size(), 1u);
  EXPECT_NEAR(report.profile.memory[0].fragmentation, 1.12, 1e-9);
  EXPECT_EQ(report.profile.memory[0].context.value, 0) << "a CPU has no context";
  EXPECT_TRUE(warns(fit(set), "no counterpart in the model of memory"));
}

TEST(FitMemory, CountsWhatTheModelOfMemoryCounts) {
  models::Workload workload;
  workload.sequence_length = 64;
  workload.dtype = ir::Dtype::fp32;
  models::Block block;
  block.kept_split = Bytes{1000};
  block.kept_replicated = Bytes{10};
  block.input_bytes = Bytes{4};
  workload.blocks = {block, block};
  const MemoryCount count = count_kept(workload, {});
  ir::Measurement what = synthetic::block(ir::Pass::forward, 3, 2, 4);
  EXPECT_EQ(count(what)->value, 3 * 2 * (1000 / 4 + 10)) << "more layers than the model has";
  what.recompute = ir::Recompute::full;
  EXPECT_EQ(count(what)->value, 3 * 2 * 4) << "only the input of each layer";
  what.sequence_length = 128;
  EXPECT_FALSE(count(what).has_value());
  models::Block head;
  head.kind = ir::BlockKind::head;
  head.input_bytes = head.kept_replicated = Bytes{8};
  head.logits = Bytes{400};
  workload.blocks.push_back(head);
  ir::Measurement last = synthetic::block(ir::Pass::forward, 1, 2, 4);
  last.block = ir::BlockKind::head;
  EXPECT_EQ(count_kept(workload, {})(last)->value, 2 * (8 + 400 / 4));
}

}  // namespace
}  // namespace orrery::calibration::fit_test

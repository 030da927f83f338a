#include "models/spec/link_calibration.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "models/spec/topology.h"
#include "tests/models/spec/support.h"

namespace orrery::models::link_calibration_test {
namespace {

ir::LinkSegment segment(const std::string& link_class, double from, double latency,
                        double bandwidth) {
  return {link_class, Bytes{from}, Seconds{latency}, BytesPerSecond{bandwidth}, {}};
}

Seconds time_of(const LinkCalibration& link, Bytes size) {
  const LinkCalibration::Segment& own = link.segment(size);
  return own.latency + size / own.bandwidth;
}

TEST(LinkCalibration, OneSegmentIsItsOwnWire) {
  ir::Profile profile;
  profile.links = {segment("ib", 0, 5e-6, 2e9)};
  const LinkCalibration link = link_calibrations(profile).at("ib");
  EXPECT_DOUBLE_EQ(link.wire_bandwidth.value, 2e9);
  EXPECT_DOUBLE_EQ(link.wire_latency.value, 5e-6);
}

TEST(LinkCalibration, TheFirstSegmentHoldsForShorterMessagesToo) {
  ir::Profile profile;
  profile.links = {segment("ib", 4096, 9e-6, 2e9), segment("ib", 1024, 5e-6, 1e9)};
  const LinkCalibration link = link_calibrations(profile).at("ib");
  EXPECT_EQ(link.segment(8_B).latency.value, 5e-6);
  EXPECT_EQ(link.segment(4095_B).latency.value, 5e-6);
  EXPECT_EQ(link.segment(4096_B).latency.value, 9e-6);
}

// What the simulator needs: bytes at the wire's bandwidth and a wait that is not negative.
RC_GTEST_PROP(LinkCalibrationLaw, NoMessageIsFasterThanTheWire, ()) {
  ir::Profile profile;
  double from = 0;
  const int count = *rc::gen::inRange(1, 6);
  for (int i = 0; i < count; ++i) {
    profile.links.push_back(
        segment("ib", from, *rc::gen::inRange(0, 1000) * 1e-7, *rc::gen::inRange(1, 1000) * 1e7));
    from = (from + 1) * *rc::gen::inRange(2, 100);
  }
  const LinkCalibration link = link_calibrations(profile).at("ib");
  RC_ASSERT(link.wire_latency.value >= 0);
  for (double size = 1; size < 1e12; size *= 1.37) {
    const double time = time_of(link, Bytes{size}).value;
    const double wire = link.wire_latency.value + size / link.wire_bandwidth.value;
    RC_ASSERT(time >= wire * (1 - 1e-9));
  }
}

TEST(LinkCalibration, FactorsAreLinearBetweenRanksAndConstantOutside) {
  ir::Profile profile;
  profile.collectives = {{"all_reduce", "ib", 8, 2.0, {}}, {"all_reduce", "ib", 2, 1.0, {}}};
  const LinkCalibration link = link_calibrations(profile).at("ib");
  EXPECT_DOUBLE_EQ(link.factor(ir::CollectiveKind::all_reduce, 5), 1.5);
  EXPECT_DOUBLE_EQ(link.factor(ir::CollectiveKind::all_reduce, 64), 2.0);
  EXPECT_DOUBLE_EQ(link.factor(ir::CollectiveKind::all_reduce, 1), 1.0);
  EXPECT_DOUBLE_EQ(link.factor(ir::CollectiveKind::all_gather, 8), 1.0);
}

const char* const kTwoClasses = R"(schema: orrery/cluster/1
name: two
nodes:
  - {name: a, gpus: {type: A100, count: 1}, pcie: {link: pcie}, nics: {link: ib}}
  - {name: b, gpus: {type: A100, count: 1}, pcie: {link: bus}, nics: {link: ib}}
  - {name: c, gpus: {type: A100, count: 1}, pcie: {link: pcie}, nics: {link: ib}}
)";

TEST(CalibratedTopology, ThePathTakesTheClassOfItsNarrowestLink) {
  const Cluster cluster = cluster_of(kTwoClasses);
  ir::Profile profile;
  profile.links = {segment("ib", 0, 7e-6, 20e9)};
  const Topology topology(cluster, profile);
  const Path measured = topology.path({0}, {2});
  ASSERT_NE(measured.calibration, nullptr);
  EXPECT_EQ(measured.calibration->link_class, "ib");
  EXPECT_EQ(measured.bandwidth.value, 20e9);
  EXPECT_EQ(measured.latency.value, 7e-6);
  const Path declared = topology.path({0}, {1});  // the bus of b is narrower
  EXPECT_EQ(declared.calibration, nullptr);
  EXPECT_EQ(declared.bandwidth, Topology(cluster).path({0}, {1}).bandwidth);
  EXPECT_EQ(declared.latency, Topology(cluster).path({0}, {1}).latency);
}

TEST(CalibratedTopology, SurvivesTheProfileAndItsOwnCopies) {
  const Cluster cluster = cluster_of(kTwoClasses);
  std::optional<Topology> first;
  {
    ir::Profile profile;
    profile.links = {segment("ib", 0, 7e-6, 20e9)};
    first.emplace(cluster, profile);
  }
  const Topology copy = *first;
  first.reset();
  EXPECT_EQ(copy.path({0}, {2}).calibration->link_class, "ib");
}

TEST(CalibratedTopology, SaysWhichClassesOfTheProfileItHas) {
  ir::Profile profile;
  profile.links = {segment("ib", 0, 7e-6, 20e9), segment("ib", 64, 8e-6, 21e9),
                   segment("carrier-pigeon", 0, 3600, 1)};
  profile.collectives = {{"all_reduce", "ib", 2, 1.0, {}}, {"all_reduce", "ib", 8, 2.0, {}}};
  const std::vector<std::string> lines = describe_calibrations(cluster_of(kTwoClasses), profile);
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "profile: link class carrier-pigeon is not in the cluster: not used",
                       "profile: links of class ib, 2 segments",
                       "profile: all_reduce over links of class ib, factors for 2, 8 ranks"}));
}

}  // namespace
}  // namespace orrery::models::link_calibration_test

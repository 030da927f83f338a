// Whatever is asked, are the answers of a timer that remembers those of one that does not, to the
// last bit?
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/base/rng.h"
#include "models/interfaces/answer_bytes.h"
#include "models/interfaces/answer_store.h"
#include "models/spec/topology.h"
#include "sim/replay/simulated_timers.h"
#include "tests/sim/in_child.h"
#include "tests/sim/iteration/support.h"
#include "tests/sim/replay/support.h"

namespace orrery::sim::remembered_law_test {
namespace {

class MapStore final : public models::AnswerStore {
 public:
  std::optional<std::string> find(const std::string& key) const override {
    const auto found = answers.find(key);
    return found == answers.end() ? std::nullopt : std::optional(found->second);
  }
  void keep(const std::string& key, const std::string& answer) const override {
    answers[key] = answer;
  }
  mutable std::map<std::string, std::string> answers;
};

struct Question {
  ir::Plan plan;
  IterationConditions conditions;
  std::vector<models::StateTransfer> transfers;
};

/// Plans of any shape on some of the nodes, slow devices and links, and transfers.
std::vector<Question> questions(const models::Cluster& cluster, Rng& rng, int count) {
  std::vector<Question> all;
  for (int i = 0; i < count; ++i) {
    Question& question = all.emplace_back();
    PlanShape shape;
    shape.pipelines = static_cast<int>(rng.integer(1, 3));
    shape.stages = static_cast<int>(rng.integer(1, 2));
    shape.tensor_parallel = rng.bernoulli(0.5) ? 2 : 1;
    shape.micro_batches = static_cast<int>(rng.integer(1, 4));
    question.plan = make_plan(shape, 4);
    // The same shapes on other nodes, which canonical names make the same question.
    const auto by = static_cast<std::int32_t>(2 * rng.integer(0, 2));
    for (ir::Pipeline& pipeline : question.plan.pipelines) {
      for (ir::Stage& stage : pipeline.stages) {
        for (DeviceId& device : stage.segments[0].groups[0].devices) {
          device.value = (device.value + by) % cluster.size();
        }
      }
    }
    const std::vector<DeviceId> used = ir::devices_of(question.plan);
    const auto any = [&] { return used[rng.integer(0, std::ssize(used) - 1)]; };
    if (rng.bernoulli(0.4)) question.conditions.slow = {{any(), 0.5 + 0.4 * rng.uniform()}};
    if (rng.bernoulli(0.3)) question.conditions.degraded_links = {{"node0/nic0/up", 0.5}};
    if (rng.bernoulli(0.3)) {
      question.conditions.background = {
          {ir::Location::host_memory, ir::Location::cloud, any(), {}, Bytes{1e9 * rng.uniform()}}};
    }
    for (std::int64_t t = rng.integer(0, 3); t > 0; --t) {
      question.transfers.push_back(
          {ir::Location::cloud, ir::Location::peer, {}, any(), Bytes{1e9 * rng.uniform()}});
    }
  }
  return all;
}

/// Answers as bytes, counts and prices, in a process of its own; what it kept comes back.
std::string answers(const models::Cluster& cluster, const std::vector<Question>& asked,
                    MapStore* store, std::int64_t& found) {
  const std::string said = in_child([&] {
    const models::Topology topology(cluster);
    const models::Workload workload = make_workload(4);
    const models::Job job = make_job();
    const ir::Profile profile;
    SimulatedTimers timers(cluster, topology, workload, job, profile, {}, {.answers = store});
    ByteWriter out;
    for (const Question& each : asked) {
      models::put(out, timers.iterations().evaluate(each.plan, each.conditions));
      out.put(timers.transfers().time(each.transfers, each.conditions.degraded_links).count);
    }
    const CacheCounts iterations = timers.iterations().counts();
    const CacheCounts transfers = timers.transfers().counts();
    for (const CacheCounts& counts : {iterations, transfers}) {
      out.put(counts.asked);
      out.put(counts.simulated);
    }
    for (const std::string& line : timers.iterations().used_entries())
      out.put(std::string_view(line));
    ByteWriter all;
    all.put(std::string_view(out.bytes()));
    all.put(iterations.found + transfers.found);
    if (store != nullptr) {
      all.put(store->answers.size());
      for (const auto& [key, answer] : store->answers) {
        all.put(std::string_view(key));
        all.put(std::string_view(answer));
      }
    }
    return all.bytes();
  });
  ByteReader in(said);
  std::string result = in.text();
  found = in.get<std::int64_t>();
  if (store != nullptr) {
    for (std::size_t left = in.count(); left > 0; --left) {
      const std::string key = in.text();
      store->answers[key] = in.text();
    }
  }
  EXPECT_TRUE(in.complete());
  return result;
}

TEST(RememberedAnswers, EqualTheSimulatedOnesToTheLastBit) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    Rng rng(seed);
    ClusterShape shape;
    shape.nodes = 6;
    shape.gpus = 2;
    models::Cluster cluster = make_cluster(shape);
    for (std::size_t n = 3; n < 6 && rng.bernoulli(0.7); ++n) cluster.nodes[n].leaf = 1;
    for (models::Node& node : cluster.nodes) node.host_memory_bandwidth = BytesPerSecond{50e9};
    cluster.storage = models::ObjectStorage{BytesPerSecond{6e9}, {}, Seconds{0.01}};
    models::seal(cluster);
    const std::vector<Question> asked = questions(cluster, rng, 20);
    std::int64_t found = 0;
    const std::string plain = answers(cluster, asked, nullptr, found);
    MapStore store;
    const std::string cold = answers(cluster, asked, &store, found);
    EXPECT_EQ(found, 0);
    const std::size_t kept = store.answers.size();
    EXPECT_GT(kept, 10u);
    const std::string warm = answers(cluster, asked, &store, found);
    EXPECT_EQ(found, static_cast<std::int64_t>(kept));
    EXPECT_EQ(store.answers.size(), kept);
    EXPECT_TRUE(plain == cold) << "seed " << seed;
    EXPECT_TRUE(plain == warm) << "seed " << seed;

    // Another model is another question; a damaged answer is none.
    for (auto& [key, answer] : store.answers) answer.resize(answer.size() / 2);
    const std::string damaged = answers(cluster, asked, &store, found);
    EXPECT_EQ(found, 0);
    EXPECT_TRUE(plain == damaged) << "seed " << seed;
    cluster.nodes[0].host_memory_bandwidth = BytesPerSecond{40e9};
    models::seal(cluster);
    answers(cluster, asked, &store, found);
    EXPECT_EQ(found, 0) << "a slower cluster got the answers of a faster one";
  }
}

}  // namespace
}  // namespace orrery::sim::remembered_law_test

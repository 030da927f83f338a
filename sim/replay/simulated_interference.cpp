#include "sim/replay/simulated_interference.h"

#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>

#include "models/base/bytes.h"
#include "models/base/hash.h"
#include "models/interfaces/answer_bytes.h"
#include "models/lower/lower.h"
#include "sim/flow/fork.h"
#include "sim/iteration/together.h"

namespace orrery::sim {
namespace {

std::optional<std::vector<double>> slowdowns_from(const std::string& bytes, std::size_t count) {
  if (bytes.size() != count * sizeof(double)) return std::nullopt;
  std::vector<double> values(count);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

SimulatedInterference::SimulatedInterference(IterationSimulator& simulator,
                                             const ir::Profile& profile, std::vector<Job> jobs,
                                             IterationOptions options,
                                             const models::AnswerStore* answers)
    : simulator_(simulator),
      profile_(profile),
      jobs_(std::move(jobs)),
      options_(std::move(options)),
      answers_(answers) {
  options_.record_spans = options_.record_memory = options_.record_links = false;
}

std::vector<double> SimulatedInterference::slowdowns(std::span<const RunningJob> running) const {
  if (running.size() < 2) return std::vector<double>(running.size(), 1.0);
  ByteWriter asked;
  asked.put(std::string_view("interference"));
  for (const RunningJob& one : running) {
    asked.put(static_cast<std::int64_t>(one.job));
    asked.put(std::string_view(jobs_[one.job].context));
    models::put(asked, *one.plan);
  }
  const std::string key = content_digest(asked.bytes());
  const auto [known, is_new] = known_.try_emplace(key);
  if (!is_new) return known->second;
  std::optional<std::vector<double>> found;
  if (answers_ != nullptr) {
    if (const auto bytes = answers_->find(key)) found = slowdowns_from(*bytes, running.size());
  }
  if (!found) {
    const ForkResult told = run_forked([&] { return simulate(running); });
    if (const auto* failure = std::get_if<ChildFailure>(&told)) {
      throw std::runtime_error("simulation failed: " + failure->message);
    }
    ++simulated_;
    found = slowdowns_from(std::get<std::string>(told), running.size());
    if (!found) throw std::runtime_error("simulation failed: an answer of another size");
    if (answers_ != nullptr) answers_->keep(key, std::get<std::string>(told));
  }
  return known->second = std::move(*found);
}

std::string SimulatedInterference::simulate(std::span<const RunningJob> running) const {
  struct Lowered {
    ir::Program program;
    models::ProgramPrices prices;
  };
  std::vector<Lowered> lowered;
  for (const RunningJob& one : running) {
    const Job& job = jobs_[one.job];
    ir::Program program = models::lower(*one.plan, simulator_.cluster(), job.workload, job.job, {});
    const models::Pricer pricer(simulator_.cluster(), job.workload, job.job, profile_);
    models::ProgramPrices prices(program, pricer);
    lowered.push_back({std::move(program), std::move(prices)});
  }
  std::vector<LinkTraffic> traffic;
  for (const Lowered& one : lowered) {
    traffic.push_back(traffic_of(simulator_, {one.program, one.prices, {}}, options_));
  }
  std::vector<double> slowdowns(running.size(), 1.0);
  for (const std::vector<std::size_t>& group : sharing_jobs(traffic)) {
    if (group.size() == 1) continue;
    std::vector<JobProgram> programs;
    for (const std::size_t i : group) {
      programs.push_back({lowered[i].program, lowered[i].prices, {}});
    }
    const std::vector<JobPace> together = run_together(simulator_, programs, options_);
    for (std::size_t k = 0; k < group.size(); ++k) {
      const std::vector<JobPace> alone = run_together(simulator_, {&programs[k], 1}, options_);
      slowdowns[group[k]] = together[k].period / alone.front().period;
    }
  }
  return {reinterpret_cast<const char*>(slowdowns.data()), slowdowns.size() * sizeof(double)};
}

}  // namespace orrery::sim

#include "experiments/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

#include "experiments/study/plan_text.h"
#include "experiments/study/version.h"
#include "models/base/check.h"
#include "models/base/hash.h"
#include "models/config/document.h"
#include "models/ir/names.h"
#include "models/ir/timeline.h"
#include "models/spec/library.h"

namespace orrery::experiments {
namespace {

constexpr double kGigabyte = 1e9;
constexpr double kGibibyte = 0x1p30;
constexpr double kNanosecondsPerDay = 86400e9;

/// Earliest start and latest end of the spans.
std::pair<Instant, Instant> extent(const ir::RunLog& log) {
  Instant begin = log.spans.front().start;
  Instant end = log.spans.front().end;
  for (const ir::Span& span : log.spans) {
    begin = std::min(begin, span.start);
    end = std::max(end, span.end);
  }
  return {begin, end};
}

std::vector<PageNode> nodes_of(const models::Cluster& cluster, const ir::Plan& plan,
                               const ir::Program& program, const ir::RunLog& log) {
  std::vector<PageNode> nodes;
  std::vector<PageGpu*> gpus;
  for (const models::Node& node : cluster.nodes) {
    nodes.push_back({node.name, node.region, node.leaf, {}});
  }
  for (const models::Device& device : cluster.devices) {
    PageGpu gpu;
    gpu.id = device.id.value;
    gpu.type = cluster.gpu(device.id).name;
    nodes[device.node.index()].gpus.push_back(std::move(gpu));
  }
  for (const models::Device& device : cluster.devices) {
    gpus.push_back(&nodes[device.node.index()].gpus[static_cast<std::size_t>(device.position)]);
  }
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    for (std::size_t s = 0; s < plan.pipelines[p].stages.size(); ++s) {
      for (const DeviceId device : ir::devices_of(plan.pipelines[p].stages[s])) {
        gpus[device.index()]->pipeline = static_cast<int>(p);
        gpus[device.index()]->stage = static_cast<int>(s);
      }
    }
  }
  if (log.spans.empty()) return nodes;
  std::vector<double> busy(program.ranks.size());
  std::vector<double> inner(program.ranks.size());
  for (const ir::Span& span : log.spans) {
    if (program.op(span.op).stream != ir::Stream::compute) continue;
    inner[span.rank.index()] += static_cast<double>(span.inner.count);
    busy[span.rank.index()] += static_cast<double>((span.end - span.start).count);
  }
  const auto [begin, end] = extent(log);
  const double whole = std::max(1.0, static_cast<double>((end - begin).count));
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    for (const DeviceId device : program.ranks[r].devices) {
      gpus[device.index()]->compute = (busy[r] - inner[r]) / whole;
      gpus[device.index()]->collectives = inner[r] / whole;
    }
  }
  return nodes;
}

/// Links by use, busiest first; those that carried nothing are left out.
std::vector<PageLink> links_of(const models::Cluster& cluster, const ir::RunLog& log,
                               Seconds time) {
  std::set<std::string> names;
  for (const models::Node& node : cluster.nodes) names.insert(node.name);
  std::vector<PageLink> links;
  for (const ir::LinkUse& use : log.links) {
    if (!(use.bytes.value > 0)) continue;
    PageLink link{use.link, std::nullopt, use.bytes / use.capacity / time, use.bytes, use.capacity};
    const std::string node = use.link.substr(0, use.link.find('/'));
    if (names.contains(node)) link.node = node;
    links.push_back(std::move(link));
  }
  std::stable_sort(links.begin(), links.end(),
                   [](const PageLink& a, const PageLink& b) { return a.share > b.share; });
  return links;
}

ir::TimelineNames names_of(const models::Cluster& cluster) {
  return {
      [&cluster](DeviceId id) { return fmt::format("GPU {} {}", id.value, cluster.gpu(id).name); },
      nullptr, nullptr};
}

PageTimeline timeline_of(const models::Cluster& cluster, const ir::Program& program,
                         const ir::RunLog& log) {
  const std::string mismatch = ir::find_mismatch(program, log);
  ORRERY_CHECK(mismatch.empty(), "log of another program: {}", mismatch);
  const ir::TimelineNames names = names_of(cluster);
  const ir::Timeline layout(program, log, names);
  PageTimeline timeline;
  timeline.spans = static_cast<std::int64_t>(log.spans.size());
  Instant last{std::numeric_limits<std::int64_t>::max()};
  if (timeline.spans > kSpansDrawn) {
    std::vector<Instant> starts;
    for (const ir::Span& span : log.spans) starts.push_back(span.start);
    std::nth_element(starts.begin(), starts.begin() + kSpansDrawn, starts.end());
    last = starts[kSpansDrawn];
    timeline.left_out =
        fmt::format("{} of {} spans are drawn: those that start in the first {:.4g} s", kSpansDrawn,
                    timeline.spans, to_seconds(last - extent(log).first).value);
  }
  std::map<std::pair<std::string, std::string>, std::size_t> numbers;
  for (const ir::Lane& lane : layout.lanes()) {
    PageRow row{layout.rank_name(lane.rank), ir::Timeline::lane_name(lane), ""};
    std::int64_t before = 0;
    for (const std::uint32_t index : lane.spans) {
      const ir::Span& span = log.spans[index];
      if (span.start >= last) break;
      const auto [place, added] =
          numbers.try_emplace({layout.span_name(span), layout.category(span)}, numbers.size());
      if (added) {
        timeline.names.push_back(place->first.first);
        timeline.kinds.push_back(place->first.second);
      }
      row.spans += fmt::format("{}{} {} {}", row.spans.empty() ? "" : " ",
                               span.start.nanoseconds + layout.shift() - before,
                               (span.end - span.start).count, place->second);
      before = span.end.nanoseconds + layout.shift();
    }
    if (!row.spans.empty()) timeline.rows.push_back(std::move(row));
  }
  return timeline;
}

std::string counted(std::size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// Of each stage the rank whose memory is fullest; samples beyond what a screen can show keep the
/// highest of each stretch.
std::vector<PageMemory> memory_of(const models::Cluster& cluster, const ir::Program& program,
                                  const ir::RunLog& log) {
  constexpr std::size_t kPointsShown = 500;
  constexpr std::size_t kRanksShown = 64;
  std::vector<std::vector<const ir::MemorySample*>> by_rank(program.ranks.size());
  for (const ir::MemorySample& sample : log.memory) {
    by_rank[sample.rank.index()].push_back(&sample);
  }
  std::map<std::pair<int, int>, std::pair<double, std::size_t>> fullest;
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    double peak = 0;
    for (const auto* sample : by_rank[r]) peak = std::max(peak, sample->allocated.value);
    const ir::Rank& rank = program.ranks[r];
    const double share = peak / cluster.gpu(rank.device).memory.value;
    const auto [place, added] =
        fullest.try_emplace({rank.pipeline, rank.stage}, std::pair(share, r));
    if (!added && place->second.first < share) place->second = {share, r};
  }
  std::vector<PageMemory> all;
  // Stages that hold the same at the same times are one curve.
  std::map<std::pair<std::vector<std::int64_t>, std::vector<double>>, std::size_t> drawn;
  std::vector<std::size_t> alike;
  for (const auto& [stage, found] : fullest) {
    const auto& samples = by_rank[found.second];
    if (samples.empty() || all.size() == kRanksShown) continue;
    const DeviceId device = program.ranks[found.second].device;
    PageMemory memory{
        fmt::format("pipeline {}, stage {} (GPU {})", stage.first, stage.second, device.value),
        cluster.gpu(device).name,
        cluster.gpu(device).memory,
        {},
        {}};
    const std::size_t stride = (samples.size() + kPointsShown - 1) / kPointsShown;
    for (std::size_t i = 0; i < samples.size(); i += stride) {
      const auto end = std::min(samples.size(), i + stride);
      const auto* highest = samples[i];
      for (std::size_t j = i; j < end; ++j) {
        if (highest->allocated < samples[j]->allocated) highest = samples[j];
      }
      memory.at.push_back(highest->at.nanoseconds);
      memory.allocated.push_back(highest->allocated.value);
    }
    const auto [place, is_new] = drawn.try_emplace({memory.at, memory.allocated}, all.size());
    if (!is_new) {
      ++alike[place->second];
      continue;
    }
    alike.push_back(0);
    all.push_back(std::move(memory));
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (alike[i] > 0) all[i].rank += fmt::format(" and {} like it", alike[i]);
  }
  return all;
}

/// "2", "2 to 4".
std::string range(std::size_t low, std::size_t high) {
  return low == high ? std::to_string(low) : fmt::format("{} to {}", low, high);
}

std::string plan_sentence(const ir::Plan& plan) {
  std::size_t low = std::numeric_limits<std::size_t>::max();
  std::size_t high = 0;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    low = std::min(low, pipeline.stages.size());
    high = std::max(high, pipeline.stages.size());
  }
  return fmt::format(
      "The plan{} has {} of {} stage{} ({}) on {} GPUs and trains {} sequences an "
      "iteration.",
      plan.planner.empty() ? "" : fmt::format(" of planner {}", plan.planner),
      counted(plan.pipelines.size(), "pipeline"), range(low, high), high == 1 ? "" : "s",
      ir::name_of(plan.schedule), ir::devices_of(plan).size(), ir::global_batch(plan));
}

std::string where_time_goes(const models::Breakdown& parts, Seconds whole) {
  std::vector<std::pair<double, const char*>> shares = {
      {parts.compute / whole, "computing"},
      {parts.tensor_parallel / whole, "in collectives inside passes"},
      {parts.zero / whole, "gathering sharded parameters (ZeRO-3)"},
      {parts.pipeline / whole, "waiting for transfers between stages"},
      {parts.data_parallel / whole, "in gradient synchronization"},
      {parts.optimizer / whole, "in the optimizer"},
      {parts.bubble / whole, "idle"}};
  std::stable_sort(shares.begin(), shares.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text = "A GPU spends, in the mean, ";
  bool first = true;
  for (const auto& [share, what] : shares) {
    if (share < 0.005) continue;
    text += fmt::format("{}{:.0f} %{} {}", first ? "" : ", ", 100 * share,
                        first ? " of the iteration" : "", what);
    first = false;
  }
  return text + ".";
}

std::vector<std::string> sentences_of(const LoadedRun& run, const ir::Plan& plan,
                                      const std::optional<models::Evaluation>& evaluation,
                                      const std::vector<PageLink>& links) {
  std::vector<std::string> text;
  std::vector<DeviceId> all;
  for (const models::Device& device : run.cluster.devices) all.push_back(device.id);
  const std::string where =
      fmt::format("{} ({}, {})", run.cluster.name, composition(all, run.cluster),
                  counted(run.cluster.nodes.size(), "node"));
  if (!evaluation) {
    text.push_back(fmt::format("{} ran on {}.", run.workload.name, where));
    text.push_back(plan_sentence(plan));
    return text;
  }
  const models::Evaluation& judged = *evaluation;
  text.push_back(fmt::format(
      "An iteration of {} on {} takes {:.4g} s: {:.0f} tokens/s, {:.1f} % of the peak of the GPUs "
      "that the plan uses (MFU).",
      run.workload.name, where, judged.iteration_time.value, judged.tokens_per_second,
      100 * judged.mfu));
  text.push_back(plan_sentence(plan));
  if (!judged.synchronization) {
    text.push_back(where_time_goes(judged.breakdown, judged.iteration_time));
  }
  const ir::MemoryUse* tightest = nullptr;
  for (const ir::MemoryUse& use : judged.memory.by_gpu_type) {
    if (tightest == nullptr || tightest->need / tightest->have < use.need / use.have) {
      tightest = &use;
    }
  }
  if (!judged.memory.fits()) {
    text.push_back(fmt::format("It does not fit: {}.", judged.memory.explain()));
  } else if (tightest != nullptr) {
    text.push_back(fmt::format(
        "It fits; the fullest GPU ({} in stage {} of pipeline {}) needs "
        "{:.1f} of {:.1f} GiB, {:.0f} %.",
        tightest->gpu, tightest->stage, tightest->pipeline, tightest->need.value / kGibibyte,
        tightest->have.value / kGibibyte, 100 * (tightest->need / tightest->have)));
  }
  if (!links.empty()) {
    text.push_back(fmt::format("The busiest link is {}: {:.0f} % of the iteration at {:.3g} GB/s.",
                               links.front().name, 100 * links.front().share,
                               links.front().capacity.value / kGigabyte));
  }
  if (judged.dollars_per_million_tokens) {
    text.push_back(
        fmt::format("A million tokens cost ${:.3g}, counting the GPUs that the plan uses (prices: "
                    "{}).",
                    judged.dollars_per_million_tokens->value,
                    price_source(run.spec.hardware, ir::devices_of(plan), run.cluster)));
  }
  return text;
}

bool is_number(const std::string& text) {
  if (text.empty()) return false;
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return *end == '\0';
}

std::string at(const CsvRow& row, const char* column) {
  const auto found = row.find(column);
  return found == row.end() ? std::string() : found->second;
}

double number_at(const CsvRow& row, const char* column) {
  return std::strtod(at(row, column).c_str(), nullptr);
}

}  // namespace

PlanPage plan_page(const std::string& name, const LoadedRun& run, const ir::Plan& plan,
                   const std::optional<models::Evaluation>& evaluation, const ir::Program& program,
                   const ir::RunLog& log) {
  PlanPage page;
  page.name = name;
  page.evaluation = evaluation;
  page.nodes = nodes_of(run.cluster, plan, program, log);
  if (!log.spans.empty()) {
    page.timeline = timeline_of(run.cluster, program, log);
    page.memory = memory_of(run.cluster, program, log);
  }
  if (evaluation) page.links = links_of(run.cluster, log, evaluation->iteration_time);
  page.sentences = sentences_of(run, plan, evaluation, page.links);
  page.sources = {
      {"cluster", run.spec.cluster.value, run.cluster.hash},
      {"model", run.spec.model.value, run.workload.hash},
      {"plan", run.spec.plan ? run.spec.plan->value : plan.planner, models::plan_hash(plan)}};
  if (run.spec.profile) {
    page.sources.push_back({"profile", run.spec.profile->value, run.profile_hash});
  }
  page.sources.push_back({"seed", std::to_string(run.spec.seed), ""});
  page.effective = config::dump(run.spec);
  return page;
}

StudyPage study_page(std::vector<std::vector<std::string>> table) {
  StudyPage page;
  if (table.empty()) return page;
  page.columns = std::move(table.front());
  page.rows.assign(std::make_move_iterator(table.begin() + 1),
                   std::make_move_iterator(table.end()));
  const auto status = std::find(page.columns.begin(), page.columns.end(), "status");
  const auto settings = static_cast<std::size_t>(status - page.columns.begin());
  std::set<std::vector<std::size_t>> partitions;  // Of the rows, by the axes so far.
  for (std::size_t c = 0; c < page.columns.size(); ++c) {
    const std::string& column = page.columns[c];
    std::map<std::string, std::size_t> numbers_of;
    std::vector<std::size_t> partition;
    std::set<std::string> values;
    bool numbers = true;
    for (const auto& row : page.rows) {
      if (c >= row.size()) continue;
      values.insert(row[c]);
      partition.push_back(numbers_of.try_emplace(row[c], numbers_of.size()).first->second);
      if (!row[c].empty()) numbers = numbers && is_number(row[c]);
    }
    const bool names_content = column == "run" || column.ends_with("_hash") || column == "version";
    // A column that tells rows apart as one before it does says the same in other words.
    if (c < settings && !names_content && values.size() > 1 &&
        partitions.insert(partition).second) {
      page.axes.push_back(column);
    }
    const bool varies = values.size() > 1 || page.rows.size() == 1;
    values.erase("");
    if (c > settings && numbers && varies && !values.empty()) page.measures.push_back(column);
  }
  return page;
}

ReplayPage replay_page(const CsvRow& row, const std::string& axes, const std::string& folder) {
  ReplayPage page;
  page.run = at(row, "run");
  page.in_case = at(row, "case");
  page.policy = at(row, "policy");
  page.axes = axes;
  page.seed = at(row, "seed");
  for (const CsvRow& slice : read_csv_rows(folder + "/buckets.csv")) {
    const double whole = number_at(slice, "to_ns") - number_at(slice, "from_ns");
    for (const auto& [column, text] : slice) {
      if (column == "from_ns" || column == "to_ns" || !column.ends_with("_ns")) continue;
      page.buckets[column.substr(0, column.size() - 3)].push_back(
          whole > 0 ? std::strtod(text.c_str(), nullptr) / whole : 0);
    }
  }
  for (const CsvRow& point : read_csv_rows(folder + "/points.csv")) {
    page.at.push_back(number_at(point, "at_ns") / kNanosecondsPerDay);
    page.tokens.push_back(number_at(point, "tokens"));
    page.live.push_back(number_at(point, "live"));
    page.in_plan.push_back(number_at(point, "in_plan"));
  }
  for (const CsvRow& stop : read_csv_rows(folder + "/interruptions.csv")) {
    page.lost_at.push_back(number_at(stop, "at_ns") / kNanosecondsPerDay);
    page.causes.push_back(at(stop, "cause"));
    page.stalls.push_back(number_at(stop, "stall_ns") / 1e9);
  }
  return page;
}

std::string with_data(std::string html, const std::string& json) {
  static constexpr std::string_view kPlace = "{\"orrery\":\"data\"}";
  const std::size_t place = html.find(kPlace);
  if (place == std::string::npos)
    throw std::runtime_error("the report's page has no place for data");
  // "</script" would end the element that holds the data; JSON may write "<" as an escape.
  std::string safe;
  safe.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  html.replace(place, kPlace.size(), safe);
  return html;
}

void describe(config::Visitor& v, PageGpu& gpu) {
  v.title("GPU of a page");
  v.required("id", gpu.id, "");
  v.required("type", gpu.type, "");
  v.optional("pipeline", gpu.pipeline, "");
  v.optional("stage", gpu.stage, "");
  v.optional("compute", gpu.compute, "share of the logged time");
  v.optional("collectives", gpu.collectives, "inside passes; share of the logged time");
}

void describe(config::Visitor& v, PageNode& node) {
  v.title("Node of a page");
  v.required("name", node.name, "");
  v.required("region", node.region, "");
  v.required("leaf", node.leaf, "");
  v.required("gpus", node.gpus, "");
}

void describe(config::Visitor& v, PageLink& link) {
  v.title("Link of a page");
  v.required("name", link.name, "");
  v.optional("node", link.node, "none: a link of the fabric");
  v.required("share", link.share, "of the logged time that it is busy");
  v.required("bytes", link.bytes, "");
  v.required("capacity", link.capacity, "");
}

void describe(config::Visitor& v, PageRow& row) {
  v.title("Row of a timeline");
  v.required("rank", row.rank, "");
  v.required("lane", row.lane, "");
  v.required("spans", row.spans, "gap in ns, length in ns, index of the name; of each span");
}

void describe(config::Visitor& v, PageTimeline& timeline) {
  v.title("Timeline of a page");
  v.required("names", timeline.names, "");
  v.required("kinds", timeline.kinds, "of each name");
  v.required("rows", timeline.rows, "");
  v.required("spans", timeline.spans, "of the whole log");
  v.optional("left_out", timeline.left_out, "what is not drawn");
}

void describe(config::Visitor& v, PageMemory& memory) {
  v.title("Memory over time");
  v.required("rank", memory.rank, "");
  v.required("gpu", memory.gpu, "");
  v.required("have", memory.have, "");
  v.required("at", memory.at, "ns");
  v.required("allocated", memory.allocated, "bytes");
}

void describe(config::Visitor& v, PageSource& source) {
  v.title("Source of a page");
  v.required("what", source.what, "");
  v.required("name", source.name, "");
  v.required("hash", source.hash, "");
}

void describe(config::Visitor& v, PlanPage& plan) {
  v.title("Page of a plan");
  v.required("name", plan.name, "");
  v.required("sentences", plan.sentences, "");
  v.optional("evaluation", plan.evaluation, "");
  v.required("loads", plan.loads, "");
  v.required("nodes", plan.nodes, "");
  v.required("links", plan.links, "");
  v.optional("timeline", plan.timeline, "");
  v.required("memory", plan.memory, "");
  v.required("prices", plan.prices, "where op times come from");
  v.required("sources", plan.sources, "");
  v.required("effective", plan.effective, "");
}

void describe(config::Visitor& v, StudyPage& study) {
  v.title("Page of a study");
  v.required("columns", study.columns, "");
  v.required("rows", study.rows, "");
  v.required("axes", study.axes, "");
  v.required("measures", study.measures, "");
}

void describe(config::Visitor& v, ReplayPage& replay) {
  v.title("Page of a replay");
  v.required("run", replay.run, "");
  v.required("case", replay.in_case, "");
  v.required("policy", replay.policy, "");
  v.required("axes", replay.axes, "");
  v.required("seed", replay.seed, "");
  v.required("buckets", replay.buckets, "shares of each slice of the horizon");
  v.required("at", replay.at, "days");
  v.required("tokens", replay.tokens, "");
  v.required("live", replay.live, "");
  v.required("in_plan", replay.in_plan, "");
  v.required("lost_at", replay.lost_at, "days");
  v.required("causes", replay.causes, "");
  v.required("stalls", replay.stalls, "seconds");
}

void describe(config::Visitor& v, Page& page) {
  v.title("Page");
  v.schema("orrery/report", 1);
  v.required("title", page.title, "");
  v.required("made_by", page.made_by, "");
  v.required("command", page.command, "");
  v.required("sentences", page.sentences, "");
  v.required("sources", page.sources, "");
  v.required("plans", page.plans, "");
  v.optional("study", page.study, "");
  v.required("ranking", page.ranking, "");
  v.required("unable", page.unable, "");
  v.required("replays", page.replays, "");
  v.required("horizon_days", page.horizon_days, "");
}

}  // namespace orrery::experiments

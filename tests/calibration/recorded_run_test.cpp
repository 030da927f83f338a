// Do traces of a run become the program that ran? Small traces with known answers.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "calibration/importers/chakra.h"
#include "calibration/importers/chakra_file.h"
#include "calibration/importers/kineto.h"

namespace orrery::calibration::recorded_run_test {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "orrery-recorded-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

std::string problems_of(const config::Diagnostics& diagnostics) {
  std::string text;
  for (const config::Problem& problem : diagnostics.problems()) {
    text += fs::path(problem.at.file).filename().string() + fmt::format(":{}:", problem.at.line) +
            " " + problem.what + "\n";
  }
  return text;
}

bool says(const config::Diagnostics& diagnostics, const std::string& part) {
  return problems_of(diagnostics).find(part) != std::string::npos;
}

// ---- Kineto ----

/// Events of one rank; times in microseconds of its own clock.
class Trace {
 public:
  explicit Trace(double clock = 0) : clock_(clock) {}

  void launch(double at, int correlation, const std::string& name = "cudaLaunchKernel") {
    add(fmt::format(R"({{"ph": "X", "cat": "cuda_runtime", "name": "{}", "pid": 1, "tid": 1,
        "ts": {}, "dur": 4, "args": {{"correlation": {}}}}})",
                    name, clock_ + at, correlation));
  }
  void call(const std::string& name, double at, double length) {
    add(fmt::format(R"({{"ph": "X", "cat": "cuda_runtime", "name": "{}", "pid": 1, "tid": 1,
        "ts": {}, "dur": {}, "args": {{"correlation": 0}}}})",
                    name, clock_ + at, length));
  }
  void kernel(double at, double length, int stream, int correlation,
              const std::string& name = "gemm", const std::string& more = "") {
    add(fmt::format(R"({{"ph": "X", "cat": "kernel", "name": "{}", "pid": 0, "tid": {},
        "ts": {}, "dur": {}, "args": {{"stream": {}, "correlation": {}{}}}}})",
                    name, stream, clock_ + at, length, stream, correlation, more));
  }
  void all_reduce(double at, double length, int correlation, int elements = 1 << 20) {
    kernel(at, length, 20, correlation, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
           fmt::format(R"(, "Collective name": "allreduce", "In msg nelems": {},
               "Out msg nelems": {}, "dtype": "BFloat16", "Group size": 2,
               "Process Group Name": "0", "Process Group Ranks": "[0, 1]")",
                       elements, elements));
  }
  void add(const std::string& event) { events_ += (events_.empty() ? "" : ",\n") + event; }
  std::string text(int rank) const {
    return fmt::format(R"({{"distributedInfo": {{"backend": "nccl", "rank": {}}},
"traceEvents": [
{}]}})",
                       rank, events_);
  }

 private:
  double clock_;
  std::string events_;
};

/// Rank 1 computes for 300 us instead of 100, then both reduce, which takes 50 us once both are
/// there, and compute again after it.
Trace two_kernels(double clock, double length) {
  Trace trace(clock);
  trace.launch(10, 1);
  trace.kernel(20, length, 7, 1);
  trace.launch(30, 2);
  trace.all_reduce(20 + length + 2, 350 - (length + 2), 2);
  trace.call("cudaStreamWaitEvent", 38, 1);
  trace.launch(40, 3);
  trace.kernel(371, 80, 7, 3);
  return trace;
}

struct Imported {
  RecordedRun run;
  RecordedProgram out;
  config::Diagnostics problems;
};

Imported import_two(const std::string& first, const std::string& second) {
  const Folder folder;
  folder.write("a.json", first);
  folder.write("b.json", second);
  Imported imported;
  imported.run = read_kineto(folder.path(), imported.problems);
  if (imported.problems.empty()) {
    imported.out = to_program(imported.run, 2, imported.problems);
  }
  return imported;
}

/// Ends of the ops of a kind, by rank, in nanoseconds.
std::vector<std::int64_t> ends(const RecordedProgram& out, ir::OpKind kind, int rank) {
  std::vector<std::int64_t> times;
  for (const ir::Span& span : out.log.spans) {
    if (span.rank.value == rank && out.program.op(span.op).kind == kind) {
      times.push_back(span.end.nanoseconds);
    }
  }
  std::sort(times.begin(), times.end());
  return times;
}

/// Whether `later` waits for `earlier`, over any number of ops.
bool waits_for(const ir::Program& program, OpId later, OpId earlier) {
  std::vector<bool> seen(program.ops.size());
  const std::function<bool(OpId)> reaches = [&](OpId at) {
    if (at == earlier) return true;
    if (seen[at.index()]) return false;
    seen[at.index()] = true;
    const auto before = program.dependencies_of(at);
    return std::any_of(before.begin(), before.end(), reaches);
  };
  return reaches(later);
}

std::vector<OpId> ops_of(const ir::Program& program, ir::OpKind kind, int rank) {
  std::vector<OpId> found;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind == kind && program.ops[i].rank.value == rank) {
      found.push_back({static_cast<std::int32_t>(i)});
    }
  }
  return found;
}

TEST(Kineto, RanksMeetInTheirCollectivesWhateverTheirClocksSay) {
  const Imported two = import_two(two_kernels(5'000, 100).text(0), two_kernels(9e6, 300).text(1));
  ASSERT_EQ(problems_of(two.problems), "");
  const ir::Program& program = two.out.program;
  ASSERT_EQ(program.collectives.size(), 1u);
  EXPECT_EQ(program.collective_shapes.at(0).parts.at(0).bytes.value, 2.0 * (1 << 20));
  EXPECT_EQ(program.group(0).devices.size(), 2u);
  ASSERT_EQ(two.out.log.clocks.size(), 2u);
  EXPECT_EQ(two.out.log.clocks[1].offset.count, 8'995'000'000) << "9 s less 5 ms";
  EXPECT_EQ(ends(two.out, ir::OpKind::collective, 0), ends(two.out, ir::OpKind::collective, 1));
  // From the first launch, at 10, to the end of the last kernel, at 451.
  ASSERT_EQ(two.out.log.iterations.size(), 1u);
  EXPECT_EQ(two.out.log.iterations[0].end.nanoseconds, 441'000);
  EXPECT_NEAR(replayed_as_recorded(program, two.out.log).value, 441e-6, 1e-12);
}

TEST(Kineto, AReplayWithAFasterKernelKeepsGapsAndWaits) {
  const Imported two = import_two(two_kernels(0, 100).text(0), two_kernels(0, 300).text(1));
  ASSERT_EQ(problems_of(two.problems), "");
  // Rank 1's first kernel in 200 us: the collective begins 100 us earlier, and so all after it.
  ir::RunLog log = two.out.log;
  for (ir::Span& span : log.spans) {
    const bool first = span.rank.value == 1 && span.end - span.start == Nanoseconds{300'000};
    if (first) span.end = span.start + Nanoseconds{200'000};
  }
  EXPECT_NEAR(replayed_as_recorded(two.out.program, log).value, 341e-6, 1e-12);
}

TEST(Kineto, AHiddenCollectiveIsWaitedForWhereAnEventSaysSo) {
  // The collective ends long before the kernel after it starts, which the stream kept busy.
  const auto hidden = [](bool event) {
    Trace trace;
    trace.launch(10, 1);
    trace.all_reduce(20, 30, 1);
    trace.launch(12, 2);
    trace.kernel(20, 500, 7, 2);
    if (event) trace.call("cudaStreamWaitEvent", 18, 1);
    trace.launch(22, 3);
    trace.kernel(521, 100, 7, 3);
    return trace;
  };
  for (const bool event : {false, true}) {
    const Imported two = import_two(hidden(event).text(0), hidden(event).text(1));
    ASSERT_EQ(problems_of(two.problems), "");
    const ir::Program& program = two.out.program;
    const OpId last = ops_of(program, ir::OpKind::kernel, 0).back();
    const OpId collective = ops_of(program, ir::OpKind::collective, 0).front();
    EXPECT_EQ(waits_for(program, last, collective), event);
  }
}

TEST(Kineto, TheHostWaitsInSynchronizingCalls) {
  const auto synchronized = [](double length) {
    Trace trace;
    trace.launch(10, 1);
    trace.kernel(20, length, 7, 1);
    trace.call("cudaDeviceSynchronize", 30, length - 5);  // until 5 us after the kernel
    trace.launch(length + 45, 2);
    trace.kernel(length + 55, 10, 7, 2);
    return trace;
  };
  const Imported two = import_two(synchronized(200).text(0), synchronized(200).text(1));
  ASSERT_EQ(problems_of(two.problems), "");
  const std::vector<OpId> kernels = ops_of(two.out.program, ir::OpKind::kernel, 0);
  const ir::Program& program = two.out.program;
  ASSERT_EQ(kernels.size(), 2u);
  // By the host, not only by the stream: the launch of the second waits for the first.
  const auto hosts = ops_of(program, ir::OpKind::host, 0);
  EXPECT_TRUE(std::any_of(hosts.begin(), hosts.end(), [&](OpId host) {
    return waits_for(program, host, kernels.front()) && waits_for(program, kernels.back(), host);
  }));
}

TEST(Kineto, WhatIsNotReadIsNamed) {
  Trace trace = two_kernels(0, 100);
  trace.add(R"({"ph": "X", "cat": "python_function", "name": "f", "ts": 1, "dur": 2})");
  trace.add(R"({"ph": "X", "cat": "python_function", "name": "g", "ts": 1, "dur": 2})");
  const Imported two = import_two(trace.text(0), two_kernels(0, 300).text(1));
  ASSERT_EQ(problems_of(two.problems), "");
  ASSERT_FALSE(two.run.notes.empty());
  EXPECT_NE(two.run.notes[0].find("left out: 2 python_function"), std::string::npos)
      << two.run.notes[0];
}

TEST(Kineto, ProblemsNameTheFile) {
  const std::string good = two_kernels(0, 100).text(0);
  EXPECT_TRUE(says(import_two(good, good).problems, "b.json:0: is of rank 0, as"));
  EXPECT_TRUE(says(import_two(good, "{\n\"traceEvents\": [}").problems, "b.json:2: is no JSON"));
  EXPECT_TRUE(
      says(import_two(good, R"({"distributedInfo": {"rank": 1}})").problems, "has no traceEvents"));
  EXPECT_TRUE(says(import_two(good, Trace().text(1)).problems, "has no event of a GPU"));
  Trace unnamed;
  unnamed.kernel(0, 10, 20, 1, "ncclKernel_AllReduce");
  EXPECT_TRUE(says(import_two(good, unnamed.text(1)).problems, "does not say its collective"));
  Trace once = two_kernels(0, 300);
  once.launch(500, 9);
  once.all_reduce(510, 10, 9);
  EXPECT_TRUE(says(import_two(good, once.text(1)).problems,
                   "2 collectives of process group '0 [0, 1]', rank 0 has 1"));
  const Folder alone;
  alone.write("rank0.json", good);
  config::Diagnostics problems;
  to_program(read_kineto(alone.path(), problems), 1, problems);
  EXPECT_TRUE(says(problems, "has rank 1, of which there is no trace")) << problems_of(problems);
}

// ---- Chakra ----

ChakraNode node(std::uint64_t id, ChakraType type, std::uint64_t us,
                std::vector<std::uint64_t> after) {
  ChakraNode out;
  out.id = id;
  out.name = "n" + std::to_string(id);
  out.type = static_cast<std::uint32_t>(type);
  out.duration_us = us;
  out.data = std::move(after);
  return out;
}

ChakraNode message(std::uint64_t id, ChakraType type, int source, int destination,
                   std::vector<std::uint64_t> after) {
  ChakraNode out = node(id, type, 0, std::move(after));
  out.numbers = {
      {"comm_src", source}, {"comm_dst", destination}, {"comm_tag", 3}, {"comm_size", 4096}};
  return out;
}

std::string bytes_of(std::vector<ChakraNode> nodes) { return write_chakra({"", {}, nodes}); }

Imported import_chakra(const std::vector<std::string>& files, const std::string& groups = "") {
  const Folder folder;
  for (std::size_t i = 0; i < files.size(); ++i) {
    folder.write(fmt::format("t.{}.et", i), files[i]);
  }
  if (!groups.empty()) folder.write("comm_groups.json", groups);
  Imported imported;
  imported.run = read_chakra(folder.path(), imported.problems);
  if (imported.problems.empty()) {
    imported.out =
        to_program(imported.run, static_cast<std::int32_t>(files.size()), imported.problems);
  }
  return imported;
}

TEST(Chakra, KernelsRunOneAtATimeInTheOrderInWhichTheyCan) {
  // Rank 1's second kernel waits for a message that rank 0 sends after 200 us; its third does not.
  const Imported two = import_chakra(
      {bytes_of({node(0, ChakraType::compute, 200, {}), message(1, ChakraType::send, 0, 1, {0})}),
       bytes_of({node(0, ChakraType::compute, 50, {}), message(1, ChakraType::receive, 0, 1, {}),
                 node(2, ChakraType::compute, 10, {0, 1}),
                 node(3, ChakraType::compute, 70, {0})})});
  ASSERT_EQ(problems_of(two.problems), "");
  const ir::Program& program = two.out.program;
  const auto kernels = program.stream_ops({1}, ir::Stream::compute);
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_FALSE(two.run.timed);
  EXPECT_TRUE(two.out.log.iterations.empty());
  const std::vector<Seconds> times = recorded_times(program, two.out.log);
  const std::size_t first = static_cast<std::size_t>(kernels.data() - program.ops.data());
  EXPECT_DOUBLE_EQ(times[first].value, 50e-6);
  EXPECT_DOUBLE_EQ(times[first + 1].value, 70e-6);
  EXPECT_DOUBLE_EQ(times[first + 2].value, 10e-6);
  EXPECT_NEAR(replayed_as_recorded(program, two.out.log).value, 210e-6, 1e-12);
}

TEST(Kineto, OneOrderOfAllRanksKeepsWhatWaits) {
  const Imported two = import_two(two_kernels(0, 100).text(0), two_kernels(0, 300).text(1));
  ASSERT_EQ(problems_of(two.problems), "");
  const ir::Program& program = two.out.program;
  const std::vector<std::size_t> place = common_order(program, two.out.log);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    for (const OpId before : program.dependencies_of({static_cast<std::int32_t>(i)})) {
      EXPECT_LT(place[before.index()], place[i]);
    }
  }
  EXPECT_EQ(place[ops_of(program, ir::OpKind::collective, 0).front().index()],
            place[ops_of(program, ir::OpKind::collective, 1).front().index()]);
}

TEST(Chakra, SizesAreThoseOfTheFullTensor) {
  ChakraNode gather = node(0, ChakraType::collective, 0, {});
  gather.numbers = {{"comm_type", 2}, {"comm_size", 1000}};
  gather.texts = {{"pg_name", "7"}};
  ChakraNode reduce = node(1, ChakraType::collective, 0, {0});
  reduce.numbers = {{"comm_type", 0}, {"comm_size", 1000}};
  const std::string file = bytes_of({gather, reduce});
  const Imported four =
      import_chakra({file, file, bytes_of({reduce}), bytes_of({reduce})}, R"({"7": [0, 1]})");
  // n1 depends on n0, which ranks 2 and 3 lack.
  EXPECT_TRUE(says(four.problems, "t.2.et:0: node 1 (n1): it depends on node 0"));
  reduce.data.clear();
  const Imported good = import_chakra({bytes_of({gather, reduce}), bytes_of({gather, reduce}),
                                       bytes_of({reduce}), bytes_of({reduce})},
                                      R"({"7": [0, 1]})");
  ASSERT_EQ(problems_of(good.problems), "");
  ASSERT_EQ(good.out.program.collective_shapes.size(), 2u);
  const auto& all = good.out.program.collective_shapes[0];
  EXPECT_EQ(all.kind, ir::CollectiveKind::all_reduce) << "of all ranks, whose group has no name";
  EXPECT_EQ(all.parts[0].bytes.value, 1000);
  EXPECT_EQ(good.out.program.collective_shapes[1].parts[0].bytes.value, 2000);
}

TEST(Chakra, AttributesHaveTheTypesThatReadersInsistOn) {
  ChakraNode sends = message(1, ChakraType::send, 0, 5, {});
  sends.numbers["is_cpu_op"] = 0;
  const std::string bytes = bytes_of({sends});
  // comm_tag = 3 as int32 (field 7, a varint: 0x38), comm_size as int64 (field 9: 0x48).
  EXPECT_NE(bytes.find(std::string("comm_tag\x38\x03", 10)), std::string::npos);
  EXPECT_NE(bytes.find(std::string("comm_size\x48\x80\x20", 12)), std::string::npos);
  EXPECT_NE(bytes.find(std::string("is_cpu_op\xd8\x01\x00", 12)), std::string::npos);
  const auto read = std::get<ChakraTrace>(parse_chakra(bytes));
  EXPECT_EQ(read.version, "1.0.0");
  EXPECT_EQ(read.nodes.at(0).numbers, sends.numbers);
}

TEST(Chakra, ProblemsNameTheNode) {
  const auto problem = [](std::vector<ChakraNode> nodes) {
    return problems_of(import_chakra({bytes_of(std::move(nodes))}).problems);
  };
  EXPECT_EQ(problem({node(4, ChakraType::compute, 1, {}), node(4, ChakraType::compute, 1, {})}),
            "t.0.et:0: node 4 (n4): another node has its id\n");
  EXPECT_NE(problem({node(4, ChakraType::memory_load, 1, {})}).find("(memory load)"),
            std::string::npos);
  EXPECT_NE(problem({node(4, ChakraType::send, 1, {})}).find("comm_dst is missing"),
            std::string::npos);
  EXPECT_NE(problem({node(4, ChakraType::collective, 1, {})}).find("comm_type is missing"),
            std::string::npos);
  EXPECT_NE(problem({node(1, ChakraType::compute, 1, {2}), node(2, ChakraType::compute, 1, {1})})
                .find("wait for each other"),
            std::string::npos);
  const std::uint64_t years = INT64_MAX / 5000;
  EXPECT_NE(
      problem({node(0, ChakraType::compute, years, {}), node(1, ChakraType::compute, years, {})})
          .find("node 1 (n1): with it, ops take more than 73 years in all"),
      std::string::npos);
  const std::string good = bytes_of({node(0, ChakraType::compute, 1, {})});
  EXPECT_TRUE(says(import_chakra({good.substr(0, good.size() - 2)}).problems, "is cut off"));
  EXPECT_TRUE(says(import_chakra({"\x1f\x8b compressed"}).problems, "gunzip"));
  EXPECT_TRUE(says(import_chakra({""}).problems, "is empty"));
  const Folder gap;
  gap.write("t.0.et", good);
  gap.write("t.2.et", good);
  config::Diagnostics problems;
  read_chakra(gap.path(), problems);
  EXPECT_TRUE(says(problems, "there is no file of rank 1")) << problems_of(problems);
}

}  // namespace
}  // namespace orrery::calibration::recorded_run_test

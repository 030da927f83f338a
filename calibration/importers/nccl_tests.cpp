#include "calibration/importers/nccl_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "calibration/fit/fit.h"
#include "calibration/importers/lines.h"

namespace orrery::calibration {
namespace {

using ir::CollectiveKind;

const std::map<std::string, CollectiveKind> kTests = {
    {"all_reduce_perf", CollectiveKind::all_reduce},
    {"all_gather_perf", CollectiveKind::all_gather},
    {"reduce_scatter_perf", CollectiveKind::reduce_scatter},
    {"broadcast_perf", CollectiveKind::broadcast},
    {"alltoall_perf", CollectiveKind::all_to_all}};

std::optional<double> number(const Word& word, config::Diagnostics& diagnostics) {
  double value = 0;
  const char* end = word.text.data() + word.text.size();
  const auto [stop, error] = std::from_chars(word.text.data(), end, value);
  constexpr double kMost = 1e15;  // bytes or microseconds
  if (error == std::errc{} && stop == end && value >= 0 && value <= kMost) return value;
  diagnostics.add(word.at, fmt::format("'{}' is no number up to {:g}", word.text, kMost));
  return std::nullopt;
}

bool is_count(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

/// The test that a text names, if it does.
const std::string* test_in(const std::string& text) {
  for (const auto& [name, kind] : kTests) {
    if (text.find(name) != std::string::npos) return &name;
  }
  return nullptr;
}

/// Which test the file's name names; none: nullptr.
const CollectiveKind* test_of_file(const std::string& path) {
  const std::string file = std::filesystem::path(path).filename().string();
  if (const std::string* name = test_in(file)) return &kTests.at(*name);
  for (const auto& [name, kind] : kTests) {
    if (file.find(name.substr(0, name.size() - 5)) != std::string::npos) return &kind;
  }
  return nullptr;
}

/// Says in front of its rows which test runs: since 2.13 a line of its own, before that a command.
bool names_test(const TextLine& line) {
  return line.text.find("Collective test starting") != std::string::npos ||
         line.text.find("nccl-tests") != std::string::npos;
}

/// Which test the rows are of until a line says otherwise.
const CollectiveKind* first_test(const std::string& path, const std::vector<TextLine>& lines) {
  for (const TextLine& line : lines) {
    if (!names_test(line)) continue;
    if (const std::string* name = test_in(line.text)) return &kTests.at(*name);
  }
  return test_of_file(path);
}

/// Whether both are of one test on as many ranks.
bool same_test(const ir::Measurement& a, const ir::Measurement& b) {
  return a.collective == b.collective && a.ranks == b.ranks;
}

double steps_of(CollectiveKind kind, int ranks) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2.0 * (ranks - 1);
    case CollectiveKind::broadcast:
      return 1;
    default:
      return ranks - 1;
  }
}

}  // namespace

ir::MeasurementSet read_nccl_tests(const std::string& path, const std::string& link_class,
                                   config::Diagnostics& diagnostics) {
  ir::MeasurementSet set;
  const std::size_t before = diagnostics.problems().size();
  const std::vector<TextLine> lines = read_lines(path, diagnostics);
  if (diagnostics.problems().size() != before) return set;
  const CollectiveKind* kind = first_test(path, lines);
  int ranks = 0;            // of a run, of which a file may hold several
  std::size_t begin = 0;    // its first row
  std::size_t time = 0;     // column of the first "time"
  std::size_t columns = 0;  // of a row
  std::size_t wrong = 0;    // column of the first "#wrong"
  const auto end_run = [&] {
    for (; begin < set.measurements.size(); ++begin) set.measurements[begin].ranks = ranks;
    ranks = 0;
  };
  for (const TextLine& line : lines) {
    const auto word = [&](std::size_t i) {
      return i < line.words.size() ? line.words[i].text : std::string();
    };
    if (names_test(line)) {
      if (const std::string* name = test_in(line.text)) {
        kind = &kTests.at(*name);
      } else if (line.text.find("Collective test starting") != std::string::npos) {
        kind = nullptr;
        const Word& name = line.words.back();
        diagnostics.add(name.at, fmt::format("'{}' has no counterpart here", name.text),
                        "all_reduce, all_gather, reduce_scatter, broadcast or alltoall");
      }
    }
    if (word(0) == "#" && word(1) == "Rank") {
      if (word(2) == "0" && ranks > 0) end_run();
      ++ranks;
      const std::size_t type = line.text.find(']');
      if (set.machine.empty() && type != std::string::npos) {
        const std::size_t name = line.text.find_first_not_of(' ', type + 1);
        if (name != std::string::npos) set.machine = line.text.substr(name);
      }
    }
    if (word(0) == "#" && word(1) == "size") {
      columns = line.words.size() - 1;
      time = wrong = 0;  // A file may hold several tables.
      for (std::size_t i = line.words.size(); i-- > 1;) {
        if (word(i) == "time") time = i - 1;
        if (word(i) == "#wrong") wrong = i - 1;
      }
    }
    if (line.words.empty() || word(0)[0] == '#' || columns == 0 || time == 0) continue;
    if (line.words.size() != columns) {
      // Lines of other programs may come between the rows; one that begins like a row is cut off.
      const bool begins = line.words.size() > 1 && is_count(word(0)) && is_count(word(1));
      if (begins) {
        diagnostics.add(line.words[0].at, fmt::format("a row of {} columns, the header has {}",
                                                      line.words.size(), columns));
      }
      continue;
    }
    if (wrong > 0 && word(wrong) != "0" && word(wrong) != "N/A") {
      diagnostics.add(line.words[wrong].at,
                      fmt::format("{} values were wrong: the time says nothing", word(wrong)));
      continue;
    }
    const auto bytes = number(line.words[0], diagnostics);
    const auto microseconds = number(line.words[time], diagnostics);
    if (!bytes || !microseconds || kind == nullptr || *bytes == 0) continue;
    ir::Measurement row;
    row.kind = ir::MeasurementKind::collective;
    row.collective = *kind;
    row.link_class = link_class;
    row.bytes = Bytes{*bytes};
    row.wall = Seconds{*microseconds * 1e-6};
    set.measurements.push_back(row);
  }
  if (kind == nullptr && diagnostics.problems().size() == before) {
    diagnostics.add({path, 0, 0}, "neither the file nor its name says which test it is",
                    "give it a name like all_reduce_perf.txt");
  }
  int least = ranks;
  end_run();
  std::set<double> sizes;  // of the first run's test
  for (const ir::Measurement& row : set.measurements) {
    least = sizes.empty() ? row.ranks : std::min(least, row.ranks);
    if (same_test(row, set.measurements.front())) sizes.insert(row.bytes.value);
  }
  if (least < 2) {
    diagnostics.add({path, 0, 0}, fmt::format("lists {} ranks", least),
                    "lines like '#  Rank  0 Group  0 Pid 100 on node device  0' are missing");
  } else if (set.measurements.empty() && diagnostics.problems().size() == before) {
    diagnostics.add({path, 0, 0}, "has no rows",
                    "a header '#  size  count  type  redop  root  time ...' and rows below it");
  } else if (sizes.size() == 1) {
    diagnostics.add({path, 0, 0}, "has rows of one size only",
                    "latency and bandwidth need two at least: all_reduce_perf -b 8 -e 1G -f 2");
  }
  return set;
}

ir::Profile import_nccl_tests(const std::vector<std::string>& paths, const std::string& link_class,
                              config::Diagnostics& diagnostics) {
  ir::MeasurementSet all;
  all.backend = "nccl-tests";
  const std::size_t before = diagnostics.problems().size();
  for (const std::string& path : paths) {
    const bool first = all.measurements.empty();
    const ir::MeasurementSet one = read_nccl_tests(path, link_class, diagnostics);
    if (all.machine.empty()) all.machine = one.machine;
    for (const ir::Measurement& row : one.measurements) {
      all.measurements.push_back(row);
      if (!first || row.ranks < 2 || !same_test(row, one.measurements.front())) continue;
      const bool chain = row.collective == CollectiveKind::broadcast;
      ir::Measurement message = row;
      message.kind = ir::MeasurementKind::point_to_point;
      message.ranks = 0;
      message.bytes = chain ? row.bytes : row.bytes / row.ranks;
      message.wall = row.wall / steps_of(row.collective, row.ranks);
      all.measurements.push_back(message);
    }
  }
  if (diagnostics.problems().size() != before) return {};
  FitOptions options;
  options.profile_name = "nccl-tests";
  return fit(all, options).profile;
}

}  // namespace orrery::calibration

#include "calibration/samples.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "models/ir/measurement_text.h"

namespace orrery::calibration::samples_test {
namespace {

using ir::Measurement;
using ir::MeasurementSet;

rc::Gen<std::string> line_of_text() {
  return rc::gen::container<std::string>(
      rc::gen::oneOf(rc::gen::inRange('a', 'z'), rc::gen::elementOf(std::string(",\" #:\t;\\%"))));
}

template <class E>
E any_of() {
  const auto names = enum_names(E{});
  return names[*rc::gen::inRange<std::size_t>(0, names.size())].first;
}

double any_amount() {
  return *rc::gen::map(rc::gen::pair(rc::gen::inRange(0, 1'000'000), rc::gen::inRange(-12, 12)),
                       [](const std::pair<int, int>& p) {
                         return static_cast<double>(p.first) / 7 * std::pow(10.0, p.second);
                       });
}

Measurement any_measurement() {
  Measurement m;
  m.kind = any_of<ir::MeasurementKind>();
  m.device_type = *line_of_text();
  m.block = any_of<ir::BlockKind>();
  m.pass = any_of<ir::Pass>();
  m.recompute = any_of<ir::Recompute>();
  m.dtype = any_of<ir::Dtype>();
  m.collective = any_of<ir::CollectiveKind>();
  m.location = any_of<ir::Location>();
  m.layers = *rc::gen::inRange(0, 1000);
  m.tensor_parallel = *rc::gen::inRange(1, 65);
  m.sequence_length = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 40);
  m.m = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 40);
  m.flops = Flops{any_amount()};
  m.source = DeviceId{*rc::gen::inRange(-1, 99)};
  m.destination = DeviceId{*rc::gen::inRange(-1, 99)};
  m.both_ways = *rc::gen::arbitrary<bool>();
  m.link_class = *line_of_text();
  m.ranks = *rc::gen::inRange(0, 99);
  m.bytes = Bytes{any_amount()};
  m.parameters = any_amount();
  m.repetition = *rc::gen::inRange(0, 99);
  m.wall = Seconds{any_amount()};
  m.cpu = Seconds{any_amount()};
  m.disturbed = *rc::gen::arbitrary<bool>();
  return m;
}

MeasurementSet small_set() {
  MeasurementSet set{"a machine", "libraries", "2026-01-01T00:00:00Z", "tiny", "cpu", {}, {}};
  Measurement one;
  one.device_type = "cpu, \"slow\"";
  one.layers = 2;
  one.wall = Seconds{0.25};
  set.measurements = {one, one};
  set.measurements.back().repetition = 1;
  return set;
}

SampleFile parse_well(const std::string& text) {
  config::Diagnostics diagnostics;
  SampleFile file = parse_samples(text, "s.csv", diagnostics);
  for (const config::Problem& problem : diagnostics.problems()) {
    ADD_FAILURE() << config::to_string(problem);
  }
  return file;
}

std::vector<std::string> problems_of(const std::string& text) {
  config::Diagnostics diagnostics;
  parse_samples(text, "s.csv", diagnostics);
  std::vector<std::string> out;
  for (const config::Problem& problem : diagnostics.problems()) {
    out.push_back(config::to_string(problem));
  }
  return out;
}

RC_GTEST_PROP(Samples, ReadBackEqual, ()) {
  MeasurementSet set;
  set.machine = *line_of_text();
  set.libraries = *line_of_text();
  set.date = *line_of_text();
  set.model = *line_of_text();
  set.backend = *line_of_text();
  const int count = *rc::gen::inRange(0, 5);
  for (int i = 0; i < count; ++i) set.measurements.push_back(any_measurement());
  config::Diagnostics diagnostics;
  const SampleFile file = parse_samples(samples_csv(set), "s.csv", diagnostics);
  RC_ASSERT(diagnostics.empty());
  RC_ASSERT(!file.torn);
  RC_ASSERT(file.set.measurements == set.measurements);
  RC_ASSERT(file.set.machine == set.machine);
  RC_ASSERT(file.set.libraries == set.libraries);
  RC_ASSERT(file.set.date == set.date);
  RC_ASSERT(file.set.model == set.model);
  RC_ASSERT(file.set.backend == set.backend);
}

/// Cells of the first row by column; no cell of it is quoted.
std::vector<std::string> first_cells(const Measurement& one) {
  std::vector<std::string> cells(1);
  for (const char c : sample_row(one)) {
    if (c == '\n') break;
    if (c == ',') {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

TEST(Samples, CellsThatDoNotConcernTheKindAreEmpty) {
  Measurement message;
  message.kind = ir::MeasurementKind::point_to_point;
  message.source = {0};
  message.destination = {1};
  message.link_class = "wire";
  message.bytes = Bytes{64};
  message.wall = Seconds{0.5};
  const std::vector<std::string> cells = first_cells(message);
  ASSERT_EQ(cells.size(), ir::measurement_columns().size());
  const std::vector<std::string> concern = {
      "kind",  "source",     "destination",  "both_ways",   "link_class",
      "bytes", "repetition", "wall_seconds", "cpu_seconds", "disturbed"};
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string& column = ir::measurement_columns()[i];
    const bool named = std::find(concern.begin(), concern.end(), column) != concern.end();
    EXPECT_EQ(cells[i].empty(), !named) << column << " is '" << cells[i] << "'";
  }
}

TEST(Samples, CellsThatConcernTheKindAreNotEmpty) {
  MeasurementSet set = small_set();
  std::string text = samples_csv(set);
  const std::size_t at = text.find("transformer,");
  ASSERT_NE(at, std::string::npos);
  text.erase(at, std::string("transformer").size());
  const std::vector<std::string> problems = problems_of(text);
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems.front().find("block: unknown value ''"), std::string::npos)
      << problems.front();
}

TEST(Samples, DefaultsInTheirPlaceAreReadAsWell) {
  MeasurementSet set = small_set();
  std::string text = samples_header(set);
  for (const Measurement& one : set.measurements) {
    std::string row;
    for (std::string cell : ir::to_cells(one)) {
      if (cell.find('"') != std::string::npos) cell = "\"cpu, \"\"slow\"\"\"";
      row += (row.empty() ? "" : ",") + cell;
    }
    text += row + "\n";
  }
  EXPECT_NE(text, samples_csv(set));
  EXPECT_EQ(parse_well(text).set.measurements, set.measurements);
}

TEST(Samples, AnyCutLeavesTheWholeRowsBeforeIt) {
  const MeasurementSet set = small_set();
  const std::string text = samples_csv(set);
  const std::size_t rows = samples_header(set).size();
  for (std::size_t length = rows; length < text.size(); ++length) {
    const SampleFile file = parse_well(text.substr(0, length));
    const std::size_t whole = length < rows + sample_row(set.measurements[0]).size() ? 0 : 1;
    EXPECT_EQ(file.set.measurements.size(), whole) << length;
    EXPECT_EQ(file.torn, text[length - 1] != '\n') << length;
  }
}

TEST(Samples, LineBreaksInTextsBecomeBlanks) {
  MeasurementSet set = small_set();
  set.machine = "two\nlines";
  set.measurements.front().device_type = "a\r\nb";
  const SampleFile file = parse_well(samples_csv(set));
  EXPECT_EQ(file.set.machine, "two lines");
  EXPECT_EQ(file.set.measurements.front().device_type, "a  b");
}

TEST(Samples, WindowsLineEndsAreRead) {
  std::string text;
  for (const char c : samples_csv(small_set())) {
    if (c == '\n') text += '\r';
    text += c;
  }
  EXPECT_EQ(parse_well(text).set.measurements, small_set().measurements);
}

struct Wrong {
  const char* from;
  const char* to;
  const char* says;
};

TEST(Samples, EveryProblemHasItsPlace) {
  const std::string good = samples_csv(small_set());
  // Rows begin in line 8.
  const Wrong cases[] = {
      {"# model: tiny\n", "", "s.csv: no line '# model: ...'"},
      {"# model: tiny", "# modle: tiny", "s.csv:5:3: unknown key 'modle' (did you mean 'model'?)"},
      {"# model: tiny", "# backend: cpu", "s.csv:6:3: 'backend' is there twice"},
      {"# model: tiny", "#model", "s.csv:5:1: '#model' is not '# key: value'"},
      {"orrery/samples/1", "orrery/samples/9", "s.csv:1:11: schema 'orrery/samples/9'"},
      {"kind,", "sort,", "s.csv:7:1: not the columns of samples"},
      {"\nblock,", "\nblok,", "s.csv:8:1: kind: unknown value 'blok'"},
      {"transformer,", "transformer,extra,", "s.csv:8:1: 28 cells instead of 27"},
      {"\"slow\"\"\"", "\"slow\"\"", "s.csv:8:7: a quote that does not end"},
      {"0.25", "fast", "s.csv:8:"},
      {"0.25", "-0.25", "wall_seconds: -0.25 is less than 0"},
      {"0.25", "nan", "wall_seconds: 'nan' is not finite"},
  };
  for (const Wrong& one : cases) {
    std::string text = good;
    const std::size_t at = text.find(one.from);
    ASSERT_NE(at, std::string::npos) << one.from;
    text.replace(at, std::string(one.from).size(), one.to);
    const std::vector<std::string> problems = problems_of(text);
    bool found = false;
    std::string all;
    for (const std::string& problem : problems) {
      found = found || problem.find(one.says) != std::string::npos;
      all += problem + "\n";
    }
    EXPECT_TRUE(found) << one.to << " should say " << one.says << ", says\n" << all;
  }
}

TEST(Samples, AnEmptyFileAndAMissingOneAreProblems) {
  EXPECT_FALSE(problems_of("").empty());
  EXPECT_FALSE(problems_of("# schema: orrery/samples/1\n").empty());
  config::Diagnostics diagnostics;
  read_samples("/nowhere/samples.csv", diagnostics);
  ASSERT_EQ(diagnostics.problems().size(), 1u);
  EXPECT_EQ(config::to_string(diagnostics.problems().front()),
            "/nowhere/samples.csv: cannot read: No such file or directory");
}

TEST(Samples, KeysAreEqualForRepetitionsAndDifferForEveryInput) {
  const Measurement one = small_set().measurements.front();
  Measurement other = one;
  other.repetition = 9;
  other.wall = Seconds{7};
  other.cpu = Seconds{6};
  other.disturbed = true;
  EXPECT_EQ(ir::measurement_key(one), ir::measurement_key(other));
  other.recompute = ir::Recompute::full;
  EXPECT_NE(ir::measurement_key(one), ir::measurement_key(other));
  Measurement memory = one;
  memory.kind = ir::MeasurementKind::memory;
  Measurement more = memory;
  more.bytes = Bytes{8};
  EXPECT_EQ(ir::measurement_key(memory), ir::measurement_key(more)) << "bytes are the result";
  more.kind = memory.kind = ir::MeasurementKind::point_to_point;
  EXPECT_NE(ir::measurement_key(memory), ir::measurement_key(more)) << "bytes are the input";
}

}  // namespace
}  // namespace orrery::calibration::samples_test

#include "tools/cli/args.h"

#include <gtest/gtest.h>

namespace orrery::tools::args_test {
namespace {

std::variant<Command, Reply> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "orrery");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

const Reply& reply(const std::variant<Command, Reply>& parsed) { return std::get<Reply>(parsed); }

template <class T>
const T& args(const std::variant<Command, Reply>& parsed) {
  return std::get<T>(std::get<Command>(parsed));
}

TEST(CommandLine, AbsentFlagsStayEmpty) {
  const auto parsed = parse({"plan", "--planner", "hexiscale"});
  EXPECT_EQ(args<PlanArgs>(parsed).planners, "hexiscale");
  EXPECT_FALSE(args<PlanArgs>(parsed).job.cluster.has_value());
  EXPECT_FALSE(args<PlanArgs>(parsed).judge.seed.has_value());
  EXPECT_FALSE(args<PlanArgs>(parsed).json);
}

TEST(CommandLine, OptionsAndStragglersRepeat) {
  const auto parsed = parse({"plan", "-p", "all", "-o", "a=1", "-o", "b=2", "--straggler", "3=1.5",
                             "--straggler", "4=2"});
  EXPECT_EQ(args<PlanArgs>(parsed).options, (std::vector<std::string>{"a=1", "b=2"}));
  EXPECT_EQ(args<PlanArgs>(parsed).judge.stragglers, (std::vector<std::string>{"3=1.5", "4=2"}));
}

TEST(CommandLine, AnOptionDoesNotSwallowThePlanBehindIt) {
  const auto parsed = parse({"simulate", "--straggler", "3=1.5", "a.yaml", "b.yaml"});
  EXPECT_EQ(args<SimulateArgs>(parsed).plans, (std::vector<std::string>{"a.yaml", "b.yaml"}));
}

TEST(CommandLine, NegativeNumbersAreValues) {
  const auto parsed = parse({"plan", "-p", "all", "--seed", "-1"});
  EXPECT_EQ(args<PlanArgs>(parsed).judge.seed, "-1");
}

TEST(CommandLine, NoFigureTurnsTheFigureOff) {
  EXPECT_FALSE(args<RunArgs>(parse({"run", "m.yaml"})).no_figure);
  EXPECT_TRUE(args<RunArgs>(parse({"run", "m.yaml", "--no-figure"})).no_figure);
}

TEST(CommandLine, UnknownCommandNamesTheNearestOne) {
  EXPECT_EQ(reply(parse({"simualte"})).status, 2);
  EXPECT_NE(reply(parse({"simualte"})).text.find("did you mean 'simulate'?"), std::string::npos);
}

TEST(CommandLine, UnknownFlagNamesTheNearestOneAndNotItsValue) {
  const auto parsed = parse({"plan", "-p", "all", "--glob", "3"});
  EXPECT_EQ(reply(parsed).status, 2);
  EXPECT_EQ(reply(parsed).text,
            "orrery: unexpected argument '--glob' (did you mean '--global-batch'?)\n"
            "See: orrery plan --help\n");
}

TEST(CommandLine, MissingArgumentIsNamed) {
  EXPECT_EQ(reply(parse({"run"})).text, "orrery: manifest is required\nSee: orrery run --help\n");
  EXPECT_EQ(reply(parse({"plan", "-p"})).text,
            "orrery: --planner needs a value\nSee: orrery plan --help\n");
}

TEST(CommandLine, EveryHelpHasAnExampleAndSucceeds) {
  for (const char* command : {"run", "plan", "simulate", "validate", "diff", "list", "schema"}) {
    const auto parsed = parse({command, "--help"});
    EXPECT_EQ(reply(parsed).status, 0) << command;
    EXPECT_NE(reply(parsed).text.find(std::string("EXAMPLE\n  orrery ") + command + " "),
              std::string::npos)
        << reply(parsed).text;
  }
}

}  // namespace
}  // namespace orrery::tools::args_test

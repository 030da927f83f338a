// Does a described struct make the flags that a user expects, with messages that help?
#include "tools/cli/command_line.h"

#include <gtest/gtest.h>

#include <map>

#include "tools/cli/json.h"
#include "tools/commands/catalog.h"

namespace orrery::tools::command_line_test {
namespace {

struct Meal {
  std::string dish;
  std::vector<std::string> guests;
  std::optional<int> courses;
  std::vector<std::string> spices;
  std::map<std::string, std::string> swaps;
  bool hot_sauce = false;
};
void describe(config::Visitor& v, Meal& meal) {
  v.required("dish", meal.dish, "what is served", {.positional = true});
  v.optional("guest", meal.guests, "who comes", {.letter = 'g'});
  v.optional("courses", meal.courses, "how many");
  v.optional("spices", meal.spices, "comma-separated", {.commas = true});
  v.optional("swap", meal.swaps, "THIS=THAT");
  v.section("Sauces");
  v.optional("hot_sauce", meal.hot_sauce, "add it");
  if (meal.courses) v.at_least("courses", *meal.courses, 1);
}

struct Bill {
  std::string dish;
  int dollars = 0;
};
void describe(config::Visitor& v, Bill& bill) {
  v.required("dish", bill.dish, "");
  v.required("dollars", bill.dollars, "");
}
int exit_status(const Bill& bill) { return bill.dollars > 99 ? 1 : 0; }

struct Look {
  bool loud = false;
};
void describe(config::Visitor& v, Look& look) { v.optional("loud", look.loud, "shout"); }

Meal served;
Bill serve(const Meal& meal, const experiments::Call& call) {
  served = meal;
  call.note("served");
  return {meal.dish, meal.hot_sauce ? 100 : 5};
}
std::string shown;
void show(const Bill& bill, const Meal&, const Look& look) {
  shown = bill.dish + (look.loud ? "!" : "");
}
const Command kServe = command<serve, show, Look>("serve", "Serves a meal", "serve soup");
const Command kWash = command<serve, show, Look>("dishes wash", "Washes", "dishes wash plates");

std::variant<Invocation, Reply> parse(std::vector<const char*> words) {
  static constexpr std::array<const Command*, 2> kCommands = {&kServe, &kWash};
  static constexpr std::array<CommandGroup, 1> kGroups = {
      CommandGroup{"dishes", "What follows", "dishes wash"}};
  words.insert(words.begin(), "orrery");
  return parse_command_line(kCommands, kGroups, "1", static_cast<int>(words.size()), words.data());
}

/// What the command was given; "" and `served` where it ran, else what it threw.
std::string run(const std::vector<const char*>& words) {
  served = {};
  try {
    const auto parsed = parse(words);
    const Invocation& invocation = std::get<Invocation>(parsed);
    invocation.command->run(invocation.settings, invocation.view, {}, invocation.problems);
  } catch (const config::ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string refusal(const std::vector<const char*>& words) {
  const auto parsed = parse(words);
  EXPECT_EQ(std::get<Reply>(parsed).status, 2);
  return std::get<Reply>(parsed).text;
}

TEST(CommandLine, AbsentFlagsKeepTheirInitializers) {
  EXPECT_EQ(run({"serve", "soup"}), "");
  EXPECT_EQ(served.dish, "soup");
  EXPECT_TRUE(served.guests.empty());
  EXPECT_FALSE(served.courses.has_value());
  EXPECT_FALSE(served.hot_sauce);
}

TEST(CommandLine, ListsRepeatOrAreCutAtCommasAndMapsAreNamed) {
  EXPECT_EQ(run({"serve", "-g", "ann", "--guest", "bob", "soup", "--spices", "salt, pepper",
                 "--swap", "rice=noodles", "--swap", "a=b=c", "--hot-sauce", "--courses", "3"}),
            "");
  EXPECT_EQ(served.guests, (std::vector<std::string>{"ann", "bob"}));
  EXPECT_EQ(served.dish, "soup") << "a flag does not swallow the argument behind its value";
  EXPECT_EQ(served.spices, (std::vector<std::string>{"salt", "pepper"}));
  EXPECT_EQ(served.swaps, (std::map<std::string, std::string>{{"rice", "noodles"}, {"a", "b=c"}}));
  EXPECT_TRUE(served.hot_sauce);
  EXPECT_EQ(served.courses, 3);
}

TEST(CommandLine, WrongValuesAreToldAtTheirFlags) {
  EXPECT_EQ(run({"serve", "soup", "--courses", "-1"}), "--courses: must be at least 1, is -1");
  EXPECT_EQ(run({"serve", "soup", "--courses", "many"}).rfind("--courses: ", 0), 0u);
  EXPECT_EQ(run({"serve", "soup", "--swap", "rice"}), "--swap: 'rice' is not NAME=VALUE");
  EXPECT_EQ(run({"serve", "soup", "--swap", "a=1", "--swap", "a=2"}), "--swap: 'a' is given twice");
}

TEST(CommandLine, UnknownWordsNameTheNearest) {
  EXPECT_NE(refusal({"sevre"}).find("did you mean 'serve'?"), std::string::npos);
  EXPECT_EQ(refusal({"serve", "soup", "--cour", "3"}),
            "orrery: unexpected argument '--cour' (did you mean '--courses'?)\n"
            "See: orrery serve --help\n");
}

TEST(CommandLine, MissingAndRepeatedValuesAreNamed) {
  EXPECT_EQ(refusal({"serve"}), "orrery: dish is required\nSee: orrery serve --help\n");
  EXPECT_EQ(refusal({"serve", "soup", "--courses"}),
            "orrery: --courses needs a value\nSee: orrery serve --help\n");
  EXPECT_EQ(refusal({"serve", "soup", "--courses", "1", "--courses", "2"}),
            "orrery: --courses is given twice\nSee: orrery serve --help\n");
}

TEST(CommandLine, AResultIsPrintedAsTheViewSaysOrVisited) {
  const auto parsed = parse({"serve", "soup", "--loud", "--hot-sauce", "--json"});
  const Invocation& invocation = std::get<Invocation>(parsed);
  EXPECT_TRUE(invocation.json);
  std::string noted;
  experiments::Call call;
  call.on_note = [&](const std::string& text) { noted += text; };
  const auto outcome = invocation.command->run(invocation.settings, invocation.view, call, {});
  EXPECT_EQ(noted, "served");
  outcome->print();
  EXPECT_EQ(shown, "soup!");
  EXPECT_EQ(detail::to_json(outcome->result()),
            "{\n  \"dish\": \"soup\",\n  \"dollars\": 100\n}\n");
  EXPECT_EQ(outcome->status(), 1);
}

TEST(CommandLine, ACommandOfAGroupIsNamedByBothWords) {
  EXPECT_EQ(run({"dishes", "wash", "plates"}), "");
  EXPECT_EQ(served.dish, "plates");
  const auto help = parse({"dishes", "wash", "--help"});
  EXPECT_NE(std::get<Reply>(help).text.find("orrery dishes wash [OPTIONS] dish"),
            std::string::npos);
}

TEST(CommandLine, EveryCommandHasHelpWithAnExampleOfItself) {
  for (const Command* command : commands()) {
    std::vector<std::string> words = {"orrery"};
    const std::string name = command->name;
    const std::size_t blank = name.find(' ');
    words.push_back(name.substr(0, blank));
    if (blank != std::string::npos) words.push_back(name.substr(blank + 1));
    words.emplace_back("--help");
    std::vector<const char*> pointers;
    for (const std::string& word : words) pointers.push_back(word.c_str());
    const auto parsed = parse_command_line(commands(), command_groups(), "1",
                                           static_cast<int>(pointers.size()), pointers.data());
    const Reply& reply = std::get<Reply>(parsed);
    EXPECT_EQ(reply.status, 0) << name;
    EXPECT_NE(reply.text.find("EXAMPLE\n  orrery " + name + " "), std::string::npos) << reply.text;
  }
}

}  // namespace
}  // namespace orrery::tools::command_line_test

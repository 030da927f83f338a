#include "tools/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "models/base/text.h"
#include "models/config/diagnostics.h"
#include "tools/cli/flags.h"
#include "tools/cli/output.h"

namespace orrery::tools {
namespace {

constexpr std::size_t kDescriptionColumn = 34;

/// Broken between words where lines would be longer than `width`; 0: nowhere.
std::string wrapped(const std::string& text, std::size_t width) {
  std::string out, line;
  for (const std::string& word : split(text, ' ')) {
    if (width > 0 && !line.empty() && line.size() + 1 + word.size() > width) {
      out += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + line;
}

/// Usage line, description, positionals and options, example.
class Formatter : public CLI::Formatter {
 public:
  Formatter() {
    column_width(kDescriptionColumn);
    label("SUBCOMMAND", "COMMAND");
    label("Positionals", "Arguments");
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_positional()) return option->get_items_expected_max() > 1 ? " ..." : "";
    return option->get_expected_max() == 0 ? "" : " VALUE";
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    constexpr std::size_t kNarrowest = 20;
    const std::size_t columns = terminal_width();
    const bool wraps = columns >= kDescriptionColumn + kNarrowest;
    return wrapped(option->get_description(), wraps ? columns - kDescriptionColumn : 0);
  }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    if (is_positional) return option->get_name(true, false);
    std::string names = option->get_name(false, true);
    // Short names first and a blank behind the comma: "-c, --cluster".
    const std::size_t comma = names.find(',');
    if (comma != std::string::npos) names.insert(comma + 1, " ");
    return names;
  }
};

std::string example(const std::string& arguments) {
  return "EXAMPLE\n  orrery " + arguments + "\n";
}

/// "unexpected argument '--glob' (did you mean '--global-batch'?)".
std::string unexpected(const std::string& word, const CLI::App& app) {
  std::string text = fmt::format("unexpected argument '{}'", word);
  if (word.rfind("--", 0) != 0) return text;
  const std::string name = word.substr(2, word.find('=') - 2);
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& flag : option->get_lnames()) known.push_back(flag);
  }
  const auto longer = std::find_if(known.begin(), known.end(), [&](const std::string& flag) {
    return flag.rfind(name, 0) == 0;
  });
  const std::string near = longer != known.end() ? *longer : config::closest(name, known);
  if (!near.empty()) text += fmt::format(" (did you mean '--{}'?)", near);
  return text;
}

/// One line for each word that the command does not take.
std::string unexpected(const CLI::App& app) {
  std::string text;
  bool after_flag = false;
  for (const std::string& word : app.remaining()) {
    const bool is_flag = word.size() > 1 && word[0] == '-';
    // The word behind an unknown flag was probably meant to be its value.
    if (is_flag || !after_flag) text += unexpected(word, app) + "\n";
    after_flag = is_flag;
  }
  return text;
}

/// Whether a flag, by any of its names, is given twice on the command line.
bool is_repeated(const std::string& flag, const CLI::App& app, int argc, const char* const* argv) {
  const CLI::Option* option = app.get_option_no_throw(flag);
  if (option == nullptr) return false;
  std::vector<std::string> names;
  for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  int count = 0;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string name = word.substr(0, word.find('='));
    if (std::find(names.begin(), names.end(), name) != names.end()) ++count;
  }
  return count > 1;
}

/// The commands as CLI11 knows them.
class CommandLine {
 public:
  CommandLine(std::span<const Command* const> commands, std::span<const CommandGroup> groups,
              const std::string& version);
  std::variant<Invocation, Reply> parse(int argc, const char* const* argv);

 private:
  struct Entry {
    const Command* command;
    CLI::App* app;
    Flags settings;
    Flags view;
    bool json = false;
    bool described = false;

    /// Flags are added when the command is met: describing all of them takes longer than anything
    /// else here.
    void describe();
  };

  /// What is wrong with the first word, if it is no command: CLI11 would name the flags behind it.
  std::optional<std::string> unknown_command(const std::string& word) const;
  /// The command, or the group, that the words named so far.
  const CLI::App* chosen() const;
  std::string help() const;
  /// A script for bash that completes commands, flags, and names of the library.
  std::string completion();
  Reply refuse(std::string what) const;

  CLI::App app_{"Orrery simulates heterogeneous GPU clusters that train large models.", "orrery"};
  std::string version_;
  std::deque<Entry> entries_;
};

CommandLine::CommandLine(std::span<const Command* const> commands,
                         std::span<const CommandGroup> groups, const std::string& version)
    : version_("orrery " + version) {
  app_.formatter(std::make_shared<Formatter>());
  app_.set_help_flag("--help,-h", "print this help");
  app_.set_version_flag("--version", version_, "print the version");
  app_.require_subcommand(1);
  app_.footer(
      "orrery COMMAND --help shows its flags and an example.\n"
      "source <(orrery completion bash) completes commands, flags and names.\n"
      "--module PATH, with any command, loads planners and recovery policies of your own.\n\n" +
      example("list planners"));
  const auto add = [](CLI::App& above, const char* name, const char* summary) {
    return above.add_subcommand(name, summary)->group("Commands");
  };
  for (const Command* command : commands) {
    std::string name = command->name;
    CLI::App* above = &app_;
    if (const std::size_t blank = name.find(' '); blank != std::string::npos) {
      const std::string first = name.substr(0, blank);
      name = name.substr(blank + 1);
      const std::vector<CLI::App*> known = app_.get_subcommands({});
      const auto there = std::find_if(known.begin(), known.end(),
                                      [&](CLI::App* a) { return a->get_name() == first; });
      above = there == known.end() ? nullptr : *there;
      if (above == nullptr) {
        const auto group = std::find_if(groups.begin(), groups.end(),
                                        [&](const CommandGroup& g) { return first == g.name; });
        above = add(app_, group->name, group->summary);
        above->require_subcommand(1);
        above->footer(fmt::format("orrery {} COMMAND --help shows its flags and an example.\n\n{}",
                                  first, example(group->example)));
      }
    }
    CLI::App* app = add(*above, name.c_str(), command->summary);
    Entry& entry = entries_.emplace_back(Entry{command, app, {}, {}});
    app->preparse_callback([&entry](std::size_t) { entry.describe(); });
    const std::string notes = command->notes;
    app->footer((notes.empty() ? "" : notes + "\n\n") + example(command->example));
  }
}

void CommandLine::Entry::describe() {
  if (std::exchange(described, true)) return;
  settings.add(command->describe, *app);
  if (command->describe_view != nullptr) view.add(command->describe_view, *app);
  if (command->describe_result != nullptr) {
    app->add_flag("--json", json, "print one JSON document instead of tables");
  }
}

const CLI::App* CommandLine::chosen() const {
  const CLI::App* of = nullptr;
  for (const CLI::App* app = &app_; app != nullptr;) {
    const std::vector<CLI::App*> below = app->get_subcommands();  // That were parsed.
    app = below.empty() ? nullptr : below.front();
    if (app != nullptr) of = app;
  }
  return of;
}

/// "orrery", or "orrery trace" before a command of that group.
std::string words_before(const CLI::App& of) {
  const CLI::App* above = of.get_parent();
  return above->get_parent() == nullptr ? "orrery" : "orrery " + above->get_name();
}

std::string CommandLine::help() const {
  const CLI::App* of = chosen();
  std::string text = of == nullptr ? app_.help() : of->help(words_before(*of));
  // One empty line between groups, not two.
  for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) {
    text.erase(at, 1);
  }
  return text;
}

std::string CommandLine::completion() {
  // What the values of a flag are names of: `orrery list` knows them.
  static constexpr const char* kLists =
      "    -c|--cluster) list=clusters ;;\n    -m|--model) list=models ;;\n"
      "    -p|--planner|--policy) list='planners policies' ;;\n";
  std::string commands;
  std::string cases;
  const auto add = [](std::string& to, const std::string& word) {
    to += (to.empty() ? "" : " ") + word;
  };
  for (const CLI::App* first : app_.get_subcommands({})) {
    add(commands, first->get_name());
    std::string below;
    for (const CLI::App* second : first->get_subcommands({})) add(below, second->get_name());
    if (!below.empty()) cases += fmt::format("    {}) words='{}' ;;\n", first->get_name(), below);
  }
  for (Entry& entry : entries_) {
    entry.describe();
    std::string flags;
    for (const CLI::Option* option : entry.app->get_options()) {
      for (const std::string& name : option->get_lnames()) add(flags, "--" + name);
    }
    const std::string name = entry.command->name;
    const bool grouped = name.find(' ') != std::string::npos;
    cases += fmt::format("    {}) words='{}' ;;\n", grouped ? "'" + name + "'" : name, flags);
  }
  return fmt::format(
      "# Completion of orrery in bash: source <(orrery completion bash)\n"
      "_orrery() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  local command=${{COMP_WORDS[1]}} words= list= kind\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '{} help completion' -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case $before in\n{}  esac\n"
      "  if [[ -n $list ]]; then\n"
      "    for kind in $list; do\n"
      "      words+=\" $(\"${{COMP_WORDS[0]}}\" list $kind 2>/dev/null | awk '/^[a-z0-9]/ && "
      "!/^cluster |^model / "
      "{{ print $1 }}')\"\n"
      "    done\n"
      "    COMPREPLY=($(compgen -f -- \"$word\") $(compgen -W \"$words\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  [[ $command == trace ]] && ((COMP_CWORD > 2)) && command=\"trace ${{COMP_WORDS[2]}}\"\n"
      "  case $command in\n{}  esac\n"
      "  [[ $word == -* || $command == trace ]] && COMPREPLY=($(compgen -W \"$words\" -- "
      "\"$word\")) ||\n"
      "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
      "}}\n"
      "complete -o filenames -F _orrery orrery\n",
      commands, kLists, cases);
}

Reply CommandLine::refuse(std::string what) const {
  const CLI::App* of = chosen();
  if (what.empty() || what.back() != '\n') what += '\n';
  std::string text;
  for (std::size_t begin = 0; begin < what.size();) {
    const std::size_t end = what.find('\n', begin);
    text += "orrery: " + what.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  text += of == nullptr ? "See: orrery --help\n"
                        : fmt::format("See: {} {} --help\n", words_before(*of), of->get_name());
  return {text, 2};
}

std::optional<std::string> CommandLine::unknown_command(const std::string& word) const {
  if (word == "-h" || word == "--help" || word == "--version") return std::nullopt;
  if (!word.empty() && word[0] == '-') return unexpected(word, app_);
  std::vector<std::string> names;
  for (const CLI::App* app : app_.get_subcommands({})) names.push_back(app->get_name());
  if (std::find(names.begin(), names.end(), word) != names.end()) return std::nullopt;
  return fmt::format("unknown command '{}' ({})", word, config::suggest(word, names, "commands"));
}

std::variant<Invocation, Reply> CommandLine::parse(int argc, const char* const* argv) {
  if (argc < 2) return Reply{help(), 2};
  // `orrery help plan` is `orrery plan --help`.
  std::vector<const char*> words(argv, argv + argc);
  if (std::string(argv[1]) == "help") {
    words.erase(words.begin() + 1);
    words.push_back("--help");
    argc = static_cast<int>(words.size());
    argv = words.data();
  }
  if (std::string(argv[1]) == "completion") {
    if (argc == 3 && std::string(argv[2]) == "bash") return Reply{completion(), 0};
    return refuse("a completion for which shell? orrery completion bash");
  }
  if (const auto unknown = unknown_command(argv[1])) return refuse(*unknown);
  try {
    app_.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Reply{help(), 0};
  } catch (const CLI::CallForVersion&) {
    return Reply{version_ + "\n", 0};
  } catch (const CLI::ExtrasError&) {
    const CLI::App* of = chosen();
    return refuse(unexpected(of == nullptr ? app_ : *of));
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string what = error.what();
    const std::string flag = what.substr(0, what.find(':'));
    const CLI::App* of = chosen();
    const bool twice = of != nullptr && is_repeated(flag, *of, argc, argv);
    return refuse(flag + (twice ? " is given twice" : " needs a value"));
  } catch (const CLI::RequiredError& error) {
    // What is missing may have been mistyped.
    const CLI::App* of = chosen();
    return refuse((of == nullptr ? "" : unexpected(*of)) + error.what());
  } catch (const CLI::ParseError& error) {
    return refuse(error.what());
  }
  const CLI::App* of = chosen();
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.app == of; });
  Invocation invocation{entry->command, {}, {}, entry->json, {}};
  invocation.settings = entry->settings.given(*of, invocation.problems);
  invocation.view = entry->view.given(*of, invocation.problems);
  return invocation;
}

}  // namespace

std::variant<Invocation, Reply> parse_command_line(std::span<const Command* const> commands,
                                                   std::span<const CommandGroup> groups,
                                                   const std::string& version, int argc,
                                                   const char* const* argv) {
  return CommandLine(commands, groups, version).parse(argc, argv);
}

}  // namespace orrery::tools

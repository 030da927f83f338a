#include "tools/cli/args.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>

#include "experiments/study/runner.h"
#include "models/config/diagnostics.h"
#include "tools/cli/args_calibrate.h"
#include "tools/cli/args_execute.h"
#include "tools/cli/args_parts.h"
#include "tools/cli/args_trace.h"
#include "tools/cli/args_twin.h"

namespace orrery::tools {
namespace {

constexpr const char* kCase =
    "--cluster hexiscale_case_study --model llama2_13b --global-batch 24 --sequence-length 4096";

void add_judge(CLI::App& app, JudgeArgs& judge) {
  app.add_option("--cost", judge.cost,
                 "simulator (default), hexiscale_public_code or hexiscale_paper")
      ->group("Judging");
  app.add_option("--seed", judge.seed, "of planner and jitter; default: 0")->group("Judging");
  app.add_option("--jitter", judge.jitter, "relative standard deviation of compute times")
      ->group("Judging");
  app.add_option("--straggler", judge.stragglers,
                 "DEVICE=FACTOR: its compute takes FACTOR times as long; may be repeated")
      ->allow_extra_args(false)
      ->group("Judging");
  app.add_option("--slow-link", judge.slow_links,
                 "LINK=FACTOR: its bandwidth is divided by FACTOR; may be repeated")
      ->allow_extra_args(false)
      ->group("Judging");
  app.add_option("--inner", judge.inner,
                 "collectives inside passes: automatic, closed_form, aggregated, per_block")
      ->group("Judging");
  app.add_option("--ring", judge.ring, "ring collectives: aggregated or stepwise")
      ->group("Judging");
  app.add_flag("--expanded", judge.expanded,
               "one rank for each GPU instead of one for each tensor-parallel group")
      ->group("Judging");
}

void add_full(CLI::App& app, bool& full) {
  app.add_flag("--full", full, "print every pipeline, equal ones too");
}

void add_run(CLI::App& app, RunArgs& args) {
  app.add_option("manifest", args.manifest,
                 "manifest.yaml, replay.yaml or steps.yaml, or a folder: all experiments below it")
      ->required();
  app.add_option("--results", args.results, "where results go; default: results");
  app.add_option("--workers", args.workers, "processes at once; default: one for each core");
  app.add_option("--shard", args.shard, "I/N: only every N-th run, from the I-th");
  app.add_flag("--dry-run", args.dry_run, "print the runs and an estimate of the time");
  app.add_flag("--no-figure", args.no_figure, "do not draw the figure");
  app.add_flag("--timelines", args.timelines, "write a Perfetto timeline for each run");
  app.add_flag("--quiet,-q", args.quiet, "no progress");
  add_json(app, args.json);
  app.footer(example("run experiments/hexiscale/case_study --no-figure"));
}

void add_plan(CLI::App& app, PlanArgs& args) {
  app.add_option("--planner,-p", args.planners, "name, comma-separated names, or all")->required();
  app.add_option("--option,-o", args.options,
                 "NAME=VALUE: knob of the planner (orrery list planners NAME); may be repeated")
      ->allow_extra_args(false);
  app.add_option("--work-budget", args.work_budget, "most plans to examine; default: no limit");
  app.add_option("--output", args.output, "write the best plan to this YAML file");
  app.add_flag("--explain", args.explain,
               "say why the plan won: bottleneck, next best plans, what each constraint cost");
  add_full(app, args.full);
  app.add_option("--timeline,-t", args.timeline,
                 "write the best plan's timeline: FILE.perfetto-trace or FILE.json (Chrome)");
  add_job(app, args.job, false);
  add_judge(app, args.judge);
  add_json(app, args.json);
  app.footer(example(std::string("plan --planner hexiscale ") + kCase));
}

void add_simulate(CLI::App& app, SimulateArgs& args) {
  app.add_option("plan", args.plans, "plan files, or one step plan")->required();
  app.add_option("--timeline,-t", args.timeline,
                 "write a timeline: FILE.perfetto-trace or FILE.json (Chrome)");
  app.add_option("--log", args.log, "write the run log (protobuf)");
  app.add_option("--program", args.program, "write the lowered program (protobuf)");
  add_full(app, args.full);
  add_job(app, args.job, true);
  add_judge(app, args.judge);
  add_json(app, args.json);
  app.footer(
      example("simulate experiments/hexiscale/case_study/plans/hexiscale.yaml "
              "--cluster hexiscale_case_study --model llama2_13b --sequence-length 4096"));
}

void add_validate(CLI::App& app, ValidateArgs& args) {
  app.add_option("file", args.files, "clusters, models, jobs, plans, profiles, manifests, studies")
      ->required();
  add_job(app, args.job, true);
  app.footer(
      example("validate models/library/clusters/hexiscale_240.yaml models/library/gpus.yaml"));
}

void add_diff(CLI::App& app, DiffArgs& args) {
  app.add_option("first", args.first, "plan file")->required();
  app.add_option("second", args.second, "plan file")->required();
  add_job(app, args.job, true);
  add_judge(app, args.judge);
  add_json(app, args.json);
  app.footer(
      example("diff experiments/hexiscale/case_study/plans/megatron.yaml "
              "experiments/hexiscale/case_study/plans/hexiscale.yaml "
              "--cluster hexiscale_case_study --model llama2_13b --sequence-length 4096"));
}

void add_list(CLI::App& app, ListArgs& args) {
  app.add_option("what", args.what,
                 "planners, step-planners, policies, schedules, gpus, links, models, clusters or "
                 "experiments")
      ->required();
  app.add_option("name", args.names,
                 "planners, step planners or policies to show in detail; default: all, in short");
  app.add_flag("--markdown", args.markdown, "print as docs/planners.md, docs/recovery.md");
  add_json(app, args.json);
  app.footer(example("list planners hexiscale"));
}

void add_schema(CLI::App& app, SchemaArgs& args) {
  app.add_option("kind", args.kind,
                 "cluster, model, job, lengths, plan, step_plan, profile, manifest, mixed_length, "
                 "replay, trace_generator, gpus or links")
      ->required();
  app.add_flag("--reference", args.reference, "print the reference page (Markdown) instead");
  app.footer(example("schema cluster"));
}

void add_mixed_length(CLI::App& app, MixedLengthArgs& args) {
  app.add_option("file", args.file, "mixed_length.yaml, or a folder that holds one")->required();
  app.add_option("--results", args.results, "where results go; default: results");
  app.add_option("--steps", args.steps, "steps of each case; default: what the file says");
  app.add_option("--workers", args.workers, "processes at once; default: one for each core");
  app.add_option("--shard", args.shard, "I/N: only every N-th run, from the I-th on");
  app.add_option("--plan", args.plan,
                 "run nothing: write the plan of one step to this file, for orrery simulate");
  app.add_option("--of", args.of, "CASE/SYSTEM/STEP: which step --plan writes");
  app.add_flag("--no-figure", args.no_figure, "do not draw the figure");
  app.add_flag("--dry-run", args.dry_run, "say what would run");
  app.add_flag("--quiet", args.quiet, "no progress");
  app.footer(example("mixed-length experiments/hetu/mixed_length --steps 2 --no-figure"));
}

void add_switch(CLI::App& app, SwitchArgs& args) {
  app.add_option("from", args.from, "plan file: how the state lies now")->required();
  app.add_option("to", args.to, "plan file: how it must lie")->required();
  app.add_option("--lost", args.lost, "devices that are gone with what they held: 31 or 24-31,40");
  app.add_option("--state", args.state,
                 "what moves: weights (with the master copy; default) or all (and the moments)");
  app.add_option("--variant", args.variant,
                 "fused (default), unfused (tensor by tensor), no-heuristics (from the lowest id)");
  add_job(app, args.job, true);
  add_json(app, args.json);
  app.footer("Exit code 1: some state lives on lost devices only.\n\n" +
             example("switch experiments/hetu/plans/c1.yaml experiments/hetu/plans/c2.yaml "
                     "--cluster hetu_32h20 --model hetu_32b --sequence-length 4096 --lost 31"));
}

void add_annotate(CLI::App& app, AnnotateArgs& args) {
  app.add_option("plan", args.plan, "plan file")->required();
  add_job(app, args.job, true);
  add_json(app, args.json);
  app.footer(
      "Exit code 1: the plan has no annotated graph; the reason is printed.\n\n" +
      example("annotate experiments/hetu/plans/c2.yaml --cluster hetu_32h20 --model hetu_32b "
              "--sequence-length 4096"));
}

void add_import(CLI::App& app, ImportArgs& args) {
  app.add_option("what", args.what,
                 "metis-profile, metis-cluster, sailor-profile, nccl-tests, nvidia-topo, nccl-topo "
                 "or slurm-topology")
      ->required();
  app.add_option("file", args.files,
                 "metis-profile, sailor-profile: the folder; metis-cluster: host file and "
                 "cluster file; nccl-tests: outputs of tests; nvidia-topo: output of nvidia-smi "
                 "topo -m; nccl-topo: file of NCCL_TOPO_DUMP_FILE; slurm-topology: topology.conf "
                 "and a cluster file with one node")
      ->required();
  app.add_option("--gpu", args.gpus,
                 "TYPE=NAME: our name of a GPU type; NAME for profiles that do not say their type; "
                 "may be repeated")
      ->allow_extra_args(false);
  app.add_option("--link", args.links,
                 "nccl-tests: link class that the ring crosses; nvidia-topo, nccl-topo: "
                 "nvlink=CLASS, pcie=CLASS and nic=CLASS; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--cluster", args.cluster,
                 "cluster whose GPU types and link classes --gpu and --link may name, too");
  app.add_option("--bandwidth-unit", args.bandwidth_unit,
                 "of the cluster file: GB/s (default) or B/s");
  app.add_option("--output,-o", args.output, "write to this YAML file");
  app.footer(
      example("import metis-cluster tests/calibration/metis/hostfile "
              "tests/calibration/metis/clusterfile.json"));
}

void add_netlab(CLI::App& app, NetlabArgs& args) {
  app.add_option("action", args.action, "up, down or status")->required();
  app.add_option("cluster", args.cluster, "cluster of the library, or a YAML file")->required();
  add_json(app, args.json);
  app.footer(
      "up sets the nodes up as network namespaces that a switch joins, with the rates and "
      "latencies "
      "of the cluster; down removes them; status says what runs and what was dropped.\n\n" +
      example("netlab status experiments/executor/netlab_4.yaml"));
}

/// Usage line, description, positionals and options, example.
class Formatter : public CLI::Formatter {
 public:
  Formatter() {
    column_width(34);
    label("SUBCOMMAND", "COMMAND");
    label("Positionals", "Arguments");
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_positional()) return option->get_items_expected_max() > 1 ? " ..." : "";
    return option->get_expected_max() == 0 ? "" : " VALUE";
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

struct CommandInfo {
  const char* name;
  const char* what;
};
constexpr CommandInfo kCommands[] = {
    {"run", "Run an experiment: all runs of a manifest, and the figure that they end in"},
    {"plan", "Make a plan with one planner or several, and simulate it"},
    {"simulate", "Simulate one iteration of plans"},
    {"validate", "Check files: every problem with its place"},
    {"diff", "Compare two plans: what differs and what it costs"},
    {"list", "Show what the library and this build know"},
    {"schema", "JSON Schema of a kind of file, for editors"},
    {"mixed-length", "Simulate steps with sequences of mixed lengths, system by system"},
    {"switch", "Go from one plan to another: what moves, how long it takes, what is lost"},
    {"import", "Read files of other systems: profiles, measurements, topologies"},
    {"replay", "Replay failures and preemptions under recovery policies, and rank them"},
    {"trace", "Traces of failures and spot nodes: draw, import, count"},
    {"netlab", "Emulate the nodes of a cluster and their network on this machine"},
    {"execute", "Run a plan for real: one process for each device"},
    {"execute-agent", "Start ranks on this machine for a launcher on another one"},
    {"compare", "Compare an executed run with its simulation, op by op"},
    {"calibrate", "Measure a machine and fit a profile of it"},
    {"twin", "Plan, execute, calibrate, predict and compare in one go"},
    {"annotate", "Show a plan's sharding annotations and what its communication resolves to"},
};

std::vector<std::string> long_flags(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

/// "unexpected argument '--glob' (did you mean '--global-batch'?)".
std::string unexpected(const std::string& word, const CLI::App& app) {
  std::string text = fmt::format("unexpected argument '{}'", word);
  if (word.rfind("--", 0) != 0) return text;
  const std::string name = word.substr(2, word.find('=') - 2);
  const std::vector<std::string> known = long_flags(app);
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

struct CommandLine {
  CLI::App app{"Orrery simulates heterogeneous GPU clusters that train large models.", "orrery"};
  RunArgs run;
  PlanArgs plan;
  SimulateArgs simulate;
  ValidateArgs validate;
  DiffArgs diff;
  ListArgs list;
  SchemaArgs schema;
  MixedLengthArgs mixed_length;
  SwitchArgs switch_plan;
  ImportArgs import_files;
  ReplayArgs replay;
  TraceCommands trace;
  NetlabArgs netlab;
  ExecuteArgs execute;
  ExecuteAgentArgs execute_agent;
  CompareArgs compare;
  TwinArgs twin;
  CalibrateArgs calibrate;
  AnnotateArgs annotate;
  std::vector<CLI::App*> commands;  ///< In the order of kCommands.

  CommandLine() {
    app.formatter(std::make_shared<Formatter>());
    app.set_help_flag("--help,-h", "print this help");
    app.set_version_flag("--version", "orrery " + experiments::program_version(),
                         "print the version");
    app.require_subcommand(1);
    app.footer("orrery COMMAND --help shows its flags and an example.\n\n" +
               example("list planners"));
    for (const CommandInfo& info : kCommands) {
      commands.push_back(app.add_subcommand(info.name, info.what)->group("Commands"));
    }
    add_run(*commands[0], run);
    add_plan(*commands[1], plan);
    add_simulate(*commands[2], simulate);
    add_validate(*commands[3], validate);
    add_diff(*commands[4], diff);
    add_list(*commands[5], list);
    add_schema(*commands[6], schema);
    add_mixed_length(*commands[7], mixed_length);
    add_switch(*commands[8], switch_plan);
    add_import(*commands[9], import_files);
    add_replay(*commands[10], replay);
    add_trace(*commands[11], trace);
    add_netlab(*commands[12], netlab);
    add_execute(*commands[13], execute);
    add_job(*commands[13], execute.job, true);
    add_execute_agent(*commands[14], execute_agent);
    add_compare(*commands[15], compare);
    add_calibrate(*commands[16], calibrate);
    add_twin(*commands[17], twin);
    add_annotate(*commands[18], annotate);
  }

  /// The command of kCommands.
  CLI::App* first_chosen() const {
    const auto at = std::find_if(commands.begin(), commands.end(),
                                 [](const CLI::App* command) { return command->parsed(); });
    return at == commands.end() ? nullptr : *at;
  }
  /// The command, or the one below it.
  CLI::App* chosen() const {
    CLI::App* below = trace.chosen();
    return below != nullptr ? below : first_chosen();
  }
  /// "orrery" and the command that `of` belongs to.
  std::string words_before(const CLI::App& of) const {
    return std::find(trace.apps.begin(), trace.apps.end(), &of) == trace.apps.end()
               ? "orrery"
               : "orrery trace";
  }

  Command command() const {
    const auto at = std::find(commands.begin(), commands.end(), first_chosen()) - commands.begin();
    switch (at) {
      case 0:
        return run;
      case 1:
        return plan;
      case 2:
        return simulate;
      case 3:
        return validate;
      case 4:
        return diff;
      case 5:
        return list;
      case 6:
        return schema;
      case 7:
        return mixed_length;
      case 8:
        return switch_plan;
      case 9:
        return import_files;
      case 10:
        return replay;
      case 12:
        return netlab;
      case 13:
        return execute;
      case 14:
        return execute_agent;
      case 15:
        return compare;
      case 16:
        return calibrate;
      case 18:
        return annotate;
      case 17:
        return twin;
      default:
        return trace.command();
    }
  }

  std::string help(const CLI::App& of) const {
    std::string text = of.help(&of == &app ? "" : words_before(of));
    // One empty line between groups, not two.
    for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) {
      text.erase(at, 1);
    }
    return text;
  }

  Reply refuse(std::string what) const {
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
};

/// What is wrong with the first word, if it is no command: CLI11 would name the flags behind it.
std::optional<std::string> unknown_command(const std::string& word, const CLI::App& app) {
  if (word == "-h" || word == "--help" || word == "--version") return std::nullopt;
  if (!word.empty() && word[0] == '-') return unexpected(word, app);
  std::vector<std::string> names;
  for (const CommandInfo& info : kCommands) names.emplace_back(info.name);
  if (std::find(names.begin(), names.end(), word) != names.end()) return std::nullopt;
  return fmt::format("unknown command '{}' ({})", word, config::suggest(word, names, "commands"));
}

/// Whether a flag, by any of its names, stands twice on the command line.
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

}  // namespace

std::variant<Command, Reply> parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  if (argc < 2) return Reply{line.help(line.app), 2};
  if (const auto unknown = unknown_command(argv[1], line.app)) return line.refuse(*unknown);
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const CLI::App* of = line.chosen();
    return Reply{line.help(of == nullptr ? line.app : *of), 0};
  } catch (const CLI::CallForVersion&) {
    return Reply{"orrery " + experiments::program_version() + "\n", 0};
  } catch (const CLI::ExtrasError&) {
    const CLI::App* of = line.chosen();
    return line.refuse(unexpected(of == nullptr ? line.app : *of));
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string what = error.what();
    const std::string flag = what.substr(0, what.find(':'));
    const CLI::App* of = line.chosen();
    const bool twice = of != nullptr && is_repeated(flag, *of, argc, argv);
    return line.refuse(flag + (twice ? " is given twice" : " needs a value"));
  } catch (const CLI::ParseError& error) {
    return line.refuse(error.what());
  }
  return line.command();
}

}  // namespace orrery::tools

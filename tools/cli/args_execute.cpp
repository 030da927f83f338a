#include "tools/cli/args_execute.h"

#include <CLI/CLI.hpp>

namespace orrery::tools {

void add_execute(CLI::App& app, ExecuteArgs& args) {
  app.add_option("plan", args.plan,
                 "plan file, which brings its cluster, model and job where it lies among a run's "
                 "inputs; or let --planner make one");
  app.add_option("--planner,-p", args.planner, "make the plan with this planner");
  app.add_option("--steps", args.steps, "optimizer steps; default: 20");
  app.add_option("--backend", args.backend, "where passes are computed: cpu (default) or cuda");
  app.add_option("--library", args.library, "of the cpu back end: eigen or openblas");
  app.add_option("--transport", args.transport, "how ranks talk: tcp (default) or nccl");
  app.add_option("--precision", args.precision,
                 "fp32 (default), fp64 or, with cuda, bf16; the job's dtype follows it");
  app.add_option("--data", args.data, "train on the bytes of this file; default: synthetic tokens");
  app.add_option("--learning-rate", args.learning_rate, "of Adam or SGD; default: 0.001");
  app.add_option("--seed", args.seed, "of initial weights, data and injected faults; default: 0");
  app.add_option("--out,-o", args.out, "new folder for run logs, timelines and losses.csv");
  app.add_option("--log-steps", args.log_steps, "log every op of so many steps; default: 100");
  app.add_option("--slowdown", args.slowdowns,
                 "DEVICE=FACTOR: its compute takes FACTOR times as long; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--ranks", args.ranks,
                 "processes (default), or threads of this one: one plan, no checkpoints, no "
                 "recovery");
  app.add_option("--shares", args.shares,
                 "cuda: percent of one card's multiprocessors for each device, for example "
                 "0=50,1=25, or one number for all; ranks are threads then");
  app.add_flag("--quiet,-q", args.quiet, "no line for each step");
  app.add_flag("--json", args.json, "print one JSON document instead of tables");
  const auto machines = [&](const char* name, Text& text, const char* what) {
    app.add_option(name, text, what)->group("Machines");
  };
  machines("--hosts", args.hosts,
           "a:4,b:8: device 0-3 on a, 4-11 on b; default: all on this machine");
  app.add_flag("--ssh", args.ssh, "start the agents of the hosts by ssh, instead of printing how")
      ->group("Machines");
  app.add_flag("--netlab", args.netlab,
               "emulate the cluster's nodes and network on this machine, for this run")
      ->group("Machines");
  machines("--listen", args.listen,
           "ADDRESS:PORT of the store; default: loopback, with --hosts all addresses, any port");
  machines("--advertise", args.advertise, "this machine's address for hosts; default: its name");
  const auto failures = [&](const char* name, Text& text, const char* what) {
    app.add_option(name, text, what)->group("Checkpoints and failures");
  };
  failures("--checkpoint-every", args.checkpoint_every,
           "steps between checkpoints; default: never");
  failures("--checkpoints", args.checkpoints, "folder for checkpoints on each node");
  failures("--cloud", args.cloud, "folder for checkpoints that all nodes see");
  app.add_flag("--prune-checkpoints", args.prune_checkpoints,
               "remove checkpoints of earlier runs from both folders first")
      ->group("Checkpoints and failures");
  failures("--elastic", args.elastic,
           "recovery policy that says how to go on without lost devices (orrery list policies)");
  failures("--silence", args.silence,
           "seconds (1 to 3600) after which a rank that says nothing is lost; default: 10");
  app.add_option("--kill", args.kills,
                 "RANK@STEP: that rank (of the plan that --switch-to has brought by then) kills "
                 "itself at an op of that step, or with :before_update or :after_update there; may "
                 "be repeated")
      ->allow_extra_args(false)
      ->group("Checkpoints and failures");
  app.add_option("--switch-to", args.switches,
                 "PLAN@STEP: goes over to another plan after that step; may be repeated")
      ->allow_extra_args(false)
      ->group("Checkpoints and failures");
  app.footer(
      "Exit code 1: the run failed. 130: interrupted; logs are kept.\n\n"
      "EXAMPLE\n  orrery execute experiments/executor/two_replicas.yaml --cluster a100_8 "
      "--model experiments/executor/tiny_llama.yaml --sequence-length 32 --steps 5\n");
}

void add_execute_agent(CLI::App& app, ExecuteAgentArgs& args) {
  app.add_option("--store", args.store, "HOST:PORT that the launcher printed")->required();
  app.add_option("--node", args.node, "this machine's name in the launcher's --hosts")->required();
  app.add_option("--address", args.address, "that its ranks listen on; default: the node's name");
  app.add_option("--wait", args.wait, "seconds to look for the launcher; default: 60");
  app.add_option("--namespace", args.network_namespace, "network namespace to enter first");
  app.footer("The run's token is read from ORRERY_TOKEN.\n");
}

}  // namespace orrery::tools

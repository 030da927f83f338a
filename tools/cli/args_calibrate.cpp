#include "tools/cli/args_calibrate.h"

#include <CLI/CLI.hpp>

#include "tools/cli/args_parts.h"

namespace orrery::tools {

void add_calibrate(CLI::App& app, CalibrateArgs& args) {
  app.add_option("--out,-o", args.out,
                 "folder for samples.csv, profile.yaml, fits and figures; a second run goes on "
                 "where the first one ended; default: results/calibration");
  app.add_flag("--quick", args.quick, "few sizes, few repetitions: to see that it works");
  app.add_option("--only", args.only,
                 "comma-separated kinds: block, gemm, memory_bandwidth, optimizer, memory, "
                 "op_overhead, checkpoint_write, checkpoint_read, point_to_point, collective");
  app.add_flag("--fit-only", args.fit_only, "measure nothing, fit the samples that are there");
  app.add_flag("--no-figure", args.no_figure, "do not draw the fits");
  app.add_flag("--quiet,-q", args.quiet, "no progress");
  add_json(app, args.json);
  const auto what = [&](const char* name, Text& text, const char* help) {
    app.add_option(name, text, help)->group("What is measured");
  };
  what("--backend", args.backend, "cpu (default) or cuda");
  what("--library", args.library, "of the cpu back end: eigen or openblas");
  what("--precision", args.precision, "default: fp32, with cuda bf16");
  what("--model", args.model,
       "whose blocks are timed; default: experiments/executor/tiny_llama.yaml, with cuda llama_7b");
  what("--sequence-length", args.sequence_length, "tokens per sample; default: 64, cuda 2048");
  what("--cluster", args.cluster,
       "whose GPU types, links and devices, with --netlab or --hosts; without them only as many "
       "processes on this machine as it has devices; default: processes on this machine");
  what("--gpu-type", args.gpu_type,
       "measure one device, not slowed down, under this name, not each GPU type of the cluster");
  what("--shares", args.shares,
       "cuda: percent of the multiprocessors, for example 50,25: green contexts, as types of "
       "their own");
  what("--ranks", args.ranks, "processes without a cluster; default: 2 for cpu, none for cuda");
  what("--checkpoints", args.checkpoints, "folder for checkpoints; default: below --out");
  what("--cloud", args.cloud, "folder for checkpoints that all nodes see; default: not measured");
  const auto machines = [&](const char* name, Text& text, const char* help) {
    app.add_option(name, text, help)->group("Machines");
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
  app.footer("Exit code 130: interrupted; samples are kept.\n\n" +
             example("calibrate --quick --only gemm,op_overhead --no-figure"));
}

}  // namespace orrery::tools

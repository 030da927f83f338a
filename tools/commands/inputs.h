/// The application layer's inputs and files under the names that commands use.
#pragma once
#include "experiments/study/exports.h"
#include "experiments/study/files.h"
#include "experiments/study/inputs.h"
#include "experiments/study/run_tasks.h"
#include "tools/cli/flags.h"

namespace orrery::tools {

using experiments::at_setting;
using experiments::BatchDefault;
using experiments::check_names;
using experiments::check_out_folder;
using experiments::check_outputs;
using experiments::file_of;
using experiments::JobSettings;
using experiments::JudgeSettings;
using experiments::kDefaultBatch;
using experiments::kDefaultLength;
using experiments::kInterrupted;
using experiments::kStandardOutput;
using experiments::load;
using experiments::load_plans;
using experiments::make_job;
using experiments::make_spec;
using experiments::open_library;
using experiments::OutputFile;
using experiments::probe_outputs;
using experiments::RunTask;
using experiments::Text;
using experiments::whole_number;
using experiments::write_file;

/// What commands do that are no functions of the application layer yet.
inline const experiments::Call& standing_call() {
  static const experiments::Call call;
  return call;
}
inline std::vector<experiments::RunReport> run_tasks(const std::vector<RunTask>& tasks) {
  return experiments::run_tasks(tasks, standing_call());
}
inline bool was_interrupted() { return standing_call().cancellation.requested(); }
inline void describe_json(config::Visitor& v, bool& json) {
  v.optional("json", json, "print one JSON document instead of tables");
}

}  // namespace orrery::tools

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
using experiments::check_outputs;
using experiments::JobSettings;
using experiments::kDefaultBatch;
using experiments::kDefaultLength;
using experiments::kInterrupted;
using experiments::make_job;
using experiments::open_library;
using experiments::probe_outputs;
using experiments::Text;
using experiments::whole_number;
using experiments::write_file;

}  // namespace orrery::tools

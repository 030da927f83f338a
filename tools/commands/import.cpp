/// orrery import: files of other systems as ours.
#include "experiments/study/import.h"

#include "tools/cli/command.h"
#include "tools/commands/tables.h"

namespace orrery::tools {

extern const Command kImport;
const Command kImport = command<experiments::import_files, print_text<experiments::ImportSettings>>(
    "import", "Read files of other systems: profiles, measurements, topologies, recorded runs",
    "import metis-cluster tests/calibration/metis/hostfile "
    "tests/calibration/metis/clusterfile.json");

}  // namespace orrery::tools

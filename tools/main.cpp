#include "tools/cli/program.h"

int main(int argc, char** argv) { return orrery::tools::run_program(argc, argv); }

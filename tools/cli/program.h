/// The whole command line as a function: of the program orrery, and of `python3 -m orrery`.
#pragma once

namespace orrery::tools {

/// Parses, runs one command, turns errors into messages. Returns the exit status:
///   0  done
///   1  failed while running: a run failed, no plan exists, a switch loses state, output could not
///      be written
///   2  the command line or a file is wrong; every problem was named
/// 130  interrupted
int run_program(int argc, char** argv);

}  // namespace orrery::tools

/// A model whose passes take microseconds, and a rule that is content with two repetitions.
#pragma once
#include "executor/bench/cases.h"
#include "executor/bench/sampling.h"

namespace orrery::executor {

BenchModel tiny_model();
SamplingRule two_repetitions();

}  // namespace orrery::executor

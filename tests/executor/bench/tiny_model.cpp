#include "tests/executor/bench/tiny_model.h"

namespace orrery::executor {

BenchModel tiny_model() {
  BenchModel model;
  model.shape.name = "tiny";
  model.shape.layers = 2;
  model.shape.hidden = 16;
  model.shape.heads = 4;
  model.shape.kv_heads = 2;
  model.shape.head_dim = 4;
  model.shape.ffn = 32;
  model.shape.vocabulary = 20;
  model.sequence_length = 8;
  model.dtype = ir::Dtype::fp32;
  model.embedding = Flops{0};
  model.layer = Flops{1000};
  model.head = Flops{300};
  return model;
}

SamplingRule two_repetitions() {
  SamplingRule rule;
  rule.least = 2;
  rule.most = 2;
  rule.most_disturbed = 2;
  rule.at_least = Seconds{1e-6};
  rule.wall_over_cpu = 1e9;  // the test machine is busy
  rule.warm_up = 0;
  return rule;
}

}  // namespace orrery::executor

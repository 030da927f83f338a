/// Plans and evaluations as bytes: parts of keys, and answers, of an AnswerStore.
#pragma once
#include "models/base/bytes.h"
#include "models/interfaces/evaluator.h"
#include "models/ir/plan.h"

namespace orrery::models {

/// All of the plan. Equal plans, and only they, give equal bytes.
void put(ByteWriter& out, const ir::Plan& plan);
void put(ByteWriter& out, const Evaluation& evaluation);

/// Use the results only if `in` is still good() afterwards.
ir::Plan get_plan(ByteReader& in);
Evaluation get_evaluation(ByteReader& in);

}  // namespace orrery::models

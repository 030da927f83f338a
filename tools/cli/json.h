/// JSON of described structs under the names that commands use.
#pragma once
#include "experiments/study/json.h"

namespace orrery::tools {

using experiments::to_json;
namespace detail {
using experiments::detail::to_json;
}

}  // namespace orrery::tools

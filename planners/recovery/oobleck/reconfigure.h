/// Which nodes form which pipeline after failures and after nodes have come. Private to the policy
/// oobleck. [Jang et al., SOSP 2023, section 5]
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "models/ir/plan.h"
#include "planners/recovery/kit/unit_chains.h"

namespace orrery::planners {

/// The nodes of a pipeline, first stage first.
using NodeList = std::vector<Unit>;

/// By pipeline of the plan: its nodes of `nodes`, in the order of its stages; those that are not
/// whole any more are missing. A node of two pipelines belongs to the first.
std::vector<NodeList> pipelines_of(const ir::Plan& plan, const std::vector<Unit>& nodes);

/// Nodes that are in none of the pipelines, in order.
NodeList spares(const std::vector<NodeList>& pipelines, const std::vector<Unit>& nodes);

struct OobleckReconfiguration {
  std::vector<NodeList> pipelines;  ///< Empty: too few nodes for a single one.
  std::string what;
};

/// For each pipeline in order that has lost nodes: its own number of nodes if there is such a
/// template, else with as many spare nodes as lack to the smallest template `fewest`, else with
/// nodes borrowed from the largest pipelines that keep a template, else its nodes are given to the
/// smallest pipeline that has a template with them; failing all that they become spare.
OobleckReconfiguration reconfigure(std::vector<NodeList> pipelines, NodeList spare,
                                   const std::function<bool(int)>& has_template, int fewest);

/// Pipelines of these sizes out of `nodes`, as near as possible to what was: pipelines of a size
/// that stays keep their nodes, the others take over the largest ones that are left, then the rest.
std::vector<NodeList> assign_nodes(const std::vector<int>& sizes,
                                   const std::vector<NodeList>& before,
                                   const std::vector<Unit>& nodes);

}  // namespace orrery::planners

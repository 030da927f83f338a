/// What every file of an experiment says: what it is about, and the figure that it ends in.
#pragma once
#include <string>
#include <vector>

#include "experiments/study/figure.h"
#include "models/config/visitor.h"

namespace orrery::experiments {

struct Subject {
  std::string name;   ///< Folder under results/, for example hexiscale/large_scale.
  std::string title;  ///< Of the figure.
  std::string about;  ///< What the paper did, what comes out.
  std::vector<std::string> assumptions;
  std::string plot;       ///< Script beside the file; empty: no figure.
  std::string published;  ///< CSV beside the file; empty: none.

  std::string path;    ///< Of the file itself.
  std::string folder;  ///< That it lies in.

  FigureScript figure() const { return {folder, plot, published}; }
  /// Sets `path` and `folder`.
  void came_from(const std::string& file);
};

/// The keys of a Subject, for the describe() of what begins with one.
void describe_subject(config::Visitor& v, Subject& subject);

}  // namespace orrery::experiments

#include "experiments/study/subject.h"

#include <filesystem>

#include "experiments/study/checks.h"

namespace orrery::experiments {

void Subject::came_from(const std::string& file) {
  path = file;
  folder = std::filesystem::path(file).parent_path().string();
  if (folder.empty()) folder = ".";
}

void describe_subject(config::Visitor& v, Subject& subject) {
  v.required("name", subject.name, "folder under results/, for example hexiscale/case_study");
  v.optional("title", subject.title, "of the figure");
  v.optional("about", subject.about, "what the paper did, what comes out");
  v.optional("assumptions", subject.assumptions, "what the paper does not say and is assumed");
  v.optional("plot", subject.plot, "Python script beside this file that draws the figure");
  v.optional("published", subject.published, "CSV of published values beside this file");
  check_result_name(v, subject.name);
  check_beside(v, "plot", subject.plot);
  check_beside(v, "published", subject.published);
}

}  // namespace orrery::experiments

#include "experiments/study/commands.h"

#include <algorithm>

namespace orrery::experiments {

extern const StudyCommand kPlanStudy;
extern const StudyCommand kReplayStudy;
extern const StudyCommand kMixedLengthStudy;
extern const StudyCommand kProgramStudy;
extern const StudyCommand kSimulateStudy;
extern const StudyCommand kSwitchStudy;
extern const StudyCommand kTwinStudy;
extern const StudyCommand kAdviseStudy;

const std::vector<const StudyCommand*>& study_commands() {
  static const std::vector<const StudyCommand*> kCommands = {
      &kPlanStudy,     &kReplayStudy, &kMixedLengthStudy, &kProgramStudy,
      &kSimulateStudy, &kSwitchStudy, &kTwinStudy,        &kAdviseStudy};
  return kCommands;
}

const StudyCommand* find_study_command(const std::string& name) {
  for (const StudyCommand* command : study_commands()) {
    if (command->name == name) return command;
  }
  return nullptr;
}

std::vector<std::string> setting_names(const StudyCommand& command) {
  std::vector<std::string> names;
  for (const config::FieldText& field : command.settings.fields()) {
    const std::string key = field.key.substr(0, field.key.find('.'));
    if (std::find(names.begin(), names.end(), key) == names.end()) names.push_back(key);
  }
  return names;
}

}  // namespace orrery::experiments

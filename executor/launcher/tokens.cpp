#include "executor/launcher/tokens.h"

namespace orrery::executor {

std::unique_ptr<TokenSource> make_tokens(const RunSettings& settings,
                                         const ir::ProgramHeader& header) {
  const int vocabulary = header.model.vocabulary;
  if (settings.data.empty()) return make_synthetic_tokens(settings.data_seed, vocabulary);
  return make_text_tokens(settings.data, settings.data_seed, vocabulary, header.sequence_length);
}

}  // namespace orrery::executor

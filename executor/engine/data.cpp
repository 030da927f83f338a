#include "executor/engine/data.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "models/base/file.h"
#include "models/base/rng.h"

namespace orrery::executor {
namespace {

constexpr double kPredictable = 0.75;

class SyntheticTokens final : public TokenSource {
 public:
  SyntheticTokens(std::uint64_t seed, int vocabulary) : seed_(seed), vocabulary_(vocabulary) {}

  void sample(std::int64_t number, std::span<std::int32_t> tokens) const override {
    Rng rng = Rng(seed_).fork(static_cast<std::uint64_t>(number));
    std::int64_t token = rng.integer(0, vocabulary_ - 1);
    for (std::int32_t& out : tokens) {
      out = static_cast<std::int32_t>(token);
      const bool follows = rng.bernoulli(kPredictable);
      token = follows ? (token * 5 + 7) % vocabulary_ : rng.integer(0, vocabulary_ - 1);
    }
  }
  std::string name() const override { return fmt::format("synthetic, seed {}", seed_); }

 private:
  std::uint64_t seed_;
  int vocabulary_;
};

class TextTokens final : public TokenSource {
 public:
  TextTokens(std::string path, std::string text, std::uint64_t seed)
      : path_(std::move(path)), text_(std::move(text)), seed_(seed) {}

  void sample(std::int64_t number, std::span<std::int32_t> tokens) const override {
    Rng rng = Rng(seed_).fork(static_cast<std::uint64_t>(number));
    const auto last = static_cast<std::int64_t>(text_.size() - tokens.size());
    std::size_t at = rng.integer(0, last);
    for (std::int32_t& out : tokens) out = static_cast<unsigned char>(text_[at++]);
  }
  std::string name() const override { return fmt::format("bytes of {}, seed {}", path_, seed_); }

 private:
  std::string path_;
  std::string text_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<TokenSource> make_synthetic_tokens(std::uint64_t seed, int vocabulary) {
  return std::make_unique<SyntheticTokens>(seed, vocabulary);
}

std::unique_ptr<TokenSource> make_text_tokens(const std::string& path, std::uint64_t seed,
                                              int vocabulary, std::int64_t length) {
  std::string text;
  if (const auto problem = read_file(path, text)) throw std::runtime_error(*problem);
  if (vocabulary < kLeastTextVocabulary) {
    throw std::runtime_error(fmt::format("{}: bytes need a vocabulary of {}, the model has {}",
                                         path, kLeastTextVocabulary, vocabulary));
  }
  if (static_cast<std::int64_t>(text.size()) < length + 1) {
    throw std::runtime_error(fmt::format("{}: {} bytes, a sequence of {} tokens needs one more",
                                         path, text.size(), length));
  }
  return std::make_unique<TextTokens>(path, std::move(text), seed);
}

}  // namespace orrery::executor

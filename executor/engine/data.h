/// Where the training tokens come from. A sample is a function of its number alone, so that the
/// plan does not matter to it.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace orrery::executor {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  /// tokens.size() consecutive tokens of sample `number` (counted over all steps): the sequence and
  /// one more, so that each has a successor to predict.
  virtual void sample(std::int64_t number, std::span<std::int32_t> tokens) const = 0;
  virtual std::string name() const = 0;
};

/// Tokens of a random walk that can be learnt: with probability 3/4 the successor is a fixed
/// function of the token, else it is uniform.
std::unique_ptr<TokenSource> make_synthetic_tokens(std::uint64_t seed, int vocabulary);

/// Tokens that a model must know to train on bytes.
inline constexpr int kLeastTextVocabulary = 256;

/// Bytes of a file as tokens; a sample starts at a position drawn for (seed, number). Throws
/// std::runtime_error with the reason when the file cannot be read, is shorter than `length` + 1
/// bytes, or the vocabulary has fewer than 256 tokens.
std::unique_ptr<TokenSource> make_text_tokens(const std::string& path, std::uint64_t seed,
                                              int vocabulary, std::int64_t length);

}  // namespace orrery::executor

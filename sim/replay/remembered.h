/// Answers of simulations by question: in memory, and beyond this process in an AnswerStore.
/// Private to sim/replay.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "models/base/bytes.h"
#include "models/base/hash.h"
#include "models/base/units.h"
#include "models/interfaces/answer_store.h"

namespace orrery::sim {

struct CacheOptions {
  /// Nodes of different leaves count as interchangeable: a plan is simulated as if it lay on the
  /// first nodes of their kind. An approximation where leaves are oversubscribed; for large
  /// clusters in which every spare would make a plan of its own.
  bool ignore_leaves = false;
  /// What other processes know; null: nothing. No answer and no count depends on it. The topology
  /// must be that of the cluster and the profile.
  const models::AnswerStore* answers = nullptr;
  /// Plans that differ only by names of devices and order of pipelines are one question. Without,
  /// each is simulated as it is, and its time is to the bit that of the iteration simulator. Names
  /// order the flows that change at the same moment, which can move a time by a tenth of a percent.
  bool rename = true;
};

/// Work done so far. Seconds are wall-clock times, for tables of timings only.
struct CacheCounts {
  std::int64_t asked = 0;
  std::int64_t simulated = 0;  ///< Different ones, wherever their answers came from.
  std::int64_t found = 0;      ///< Of those, answered by the store.
  Seconds simulating;          ///< Lowering and the store included.
  Seconds naming;              ///< Renaming and looking up.
};

/// Adds the wall-clock time of its life to a sum.
class AddTime {
 public:
  explicit AddTime(Seconds& sum) : sum_(sum), start_(std::chrono::steady_clock::now()) {}
  ~AddTime() {
    const auto passed = std::chrono::steady_clock::now() - start_;
    sum_ += Seconds{std::chrono::duration<double>(passed).count()};
  }
  AddTime(const AddTime&) = delete;
  AddTime& operator=(const AddTime&) = delete;

 private:
  Seconds& sum_;
  std::chrono::steady_clock::time_point start_;
};

/// `Answer` has `void put(ByteWriter&) const` and `static Answer get(ByteReader&)`.
template <class Answer>
class Remembered {
 public:
  /// Keeps the store, which may be null. `context`: all that answers depend on besides the
  /// question.
  Remembered(const models::AnswerStore* store, std::string context)
      : store_(store), context_(std::move(context)) {}

  /// name() writes the question into a ByteWriter, simulate() answers it.
  template <class Name, class Simulate>
  const Answer& get(const Name& name, const Simulate& simulate) {
    ++counts_.asked;
    std::string key;
    {
      const AddTime timed(counts_.naming);
      ByteWriter question;
      question.put(std::string_view(context_));
      name(question);
      key = content_digest(question.bytes());
      const auto known = known_.find(key);
      if (known != known_.end()) return known->second;
    }
    const AddTime timed(counts_.simulating);
    ++counts_.simulated;
    std::optional<Answer> answer = find(key);
    if (answer) {
      ++counts_.found;
    } else {
      answer = simulate();
      keep(key, *answer);
    }
    return known_.emplace(std::move(key), std::move(*answer)).first->second;
  }

  const CacheCounts& counts() const { return counts_; }

 private:
  std::optional<Answer> find(const std::string& key) const {
    if (store_ == nullptr) return std::nullopt;
    const std::optional<std::string> bytes = store_->find(key);
    if (!bytes) return std::nullopt;
    ByteReader in(*bytes);
    Answer answer = Answer::get(in);
    return in.complete() ? std::optional(std::move(answer)) : std::nullopt;
  }
  void keep(const std::string& key, const Answer& answer) const {
    if (store_ == nullptr) return;
    ByteWriter out;
    answer.put(out);
    store_->keep(key, out.bytes());
  }

  const models::AnswerStore* store_;
  std::string context_;
  std::unordered_map<std::string, Answer> known_;
  CacheCounts counts_;
};

}  // namespace orrery::sim

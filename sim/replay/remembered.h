/// Answers of simulations by question: in memory, and beyond this process in an AnswerStore.
/// Private to sim/replay.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

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

/// What questions of one process are told apart by. Two of a million different ones are equal with
/// a probability of 1e-27.
struct QuickKey {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  bool operator==(const QuickKey&) const = default;
  struct Hash {
    std::size_t operator()(const QuickKey& key) const { return key.first; }
  };
};

/// Takes a fraction of the time of content_digest(), as most questions have been asked before. Each
/// step maps states to states one to one.
inline QuickKey quick_key(std::string_view bytes) {
  QuickKey key{bytes.size(), ~bytes.size()};
  const auto stir = [](std::uint64_t state, std::uint64_t word, std::uint64_t odd) {
    state = (state ^ word) * odd;
    return state ^ state >> 32;
  };
  const auto take = [&](std::uint64_t word) {
    key.first = stir(key.first, word, 0x9e3779b97f4a7c15ULL);
    key.second = stir(key.second, word + key.first, 0xc2b2ae3d27d4eb4fULL);
  };
  std::uint64_t word = 0;
  for (; bytes.size() >= sizeof word; bytes.remove_prefix(sizeof word)) {
    std::memcpy(&word, bytes.data(), sizeof word);
    take(word);
  }
  word = 0;
  std::memcpy(&word, bytes.data(), bytes.size());
  take(word);
  return key;
}

/// Questions that were asked meanwhile, by their keys.
struct AskedQuestions {
  std::int64_t asked = 0;
  std::vector<QuickKey> different;  ///< May repeat.
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
    Question question;
    if (const Answer* known = look_up(name, question)) return *known;
    const AddTime timed(counts_.simulating);
    return keep(question, simulate());
  }

  /// get() in two parts, for simulations of which several are under way: null where the answer is
  /// not known, which is then to be kept.
  struct Question {
    QuickKey quick;
    std::string key;  ///< In the store.
  };
  template <class Name>
  const Answer* look_up(const Name& name, Question& question) {
    ++counts_.asked;
    ByteWriter bytes;
    {
      const AddTime timed(counts_.naming);
      bytes.put(std::string_view(context_));
      name(bytes);
      question.quick = quick_key(bytes.bytes());
      const auto known = known_.find(question.quick);
      if (known != known_.end()) {
        record(question.quick);
        return &known->second;
      }
    }
    const AddTime timed(counts_.simulating);
    counts_.simulated += counted_.erase(question.quick) == 0 ? 1 : 0;
    if (store_ != nullptr) question.key = content_digest(bytes.bytes());
    record(question.quick);
    std::optional<Answer> answer = find(question.key);
    if (!answer) {
      counted_.insert(question.quick);
      return nullptr;
    }
    ++counts_.found;
    return &known_.emplace(question.quick, std::move(*answer)).first->second;
  }
  const Answer& keep(const Question& question, Answer answer) {
    counted_.erase(question.quick);
    if (store_ != nullptr) {
      ByteWriter out;
      answer.put(out);
      store_->keep(question.key, out.bytes());
    }
    return known_.emplace(question.quick, std::move(answer)).first->second;
  }
  /// A question whose answer the caller still has.
  void count_asked() { ++counts_.asked; }

  /// Remembers what is asked from now on, until take_asked().
  void begin_asked() {
    recorded_.emplace();
    recorded_->asked = -counts_.asked;
  }
  AskedQuestions take_asked() {
    recorded_->asked += counts_.asked;
    return *std::exchange(recorded_, std::nullopt);
  }
  /// As if these questions had been asked here.
  void count_asked(const AskedQuestions& questions) {
    counts_.asked += questions.asked;
    for (const QuickKey& quick : questions.different) {
      if (!known_.contains(quick) && counted_.insert(quick).second) ++counts_.simulated;
    }
  }

  const CacheCounts& counts() const { return counts_; }

 private:
  void record(const QuickKey& quick) {
    if (recorded_) recorded_->different.push_back(quick);
  }
  std::optional<Answer> find(const std::string& key) const {
    if (store_ == nullptr) return std::nullopt;
    const std::optional<std::string> bytes = store_->find(key);
    if (!bytes) return std::nullopt;
    ByteReader in(*bytes);
    Answer answer = Answer::get(in);
    return in.complete() ? std::optional(std::move(answer)) : std::nullopt;
  }

  const models::AnswerStore* store_;
  std::string context_;
  std::unordered_map<QuickKey, Answer, QuickKey::Hash> known_;
  /// Counted as simulated, but not known here.
  std::unordered_set<QuickKey, QuickKey::Hash> counted_;
  std::optional<AskedQuestions> recorded_;
  CacheCounts counts_;
};

}  // namespace orrery::sim

/// Answers that a search asks for again and again, in a table of fixed size: each question has one
/// place, and a newer one takes it. What is forgotten is worked out again, so that the table
/// decides how long a search takes and nothing else; and simulations, which run in copies of the
/// process, have little memory to copy.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

namespace orrery::planners {

/// `Key` and `Answer` are values; `Hash` must mix well into the low bits.
template <class Key, class Answer, class Hash>
class RecentAnswers {
 public:
  explicit RecentAnswers(std::size_t places) : places_(places) {}

  /// `work_out()` where the answer to `key` is not there. Valid until the next question.
  template <class F>
  const Answer& answer(const Key& key, const F& work_out) {
    Place& place = places_[Hash{}(key) % places_.size()];
    if (!place.used || !(place.key == key)) {
      Answer fresh = work_out();  // It may ask for others, even of this place.
      place.key = key;
      place.answer = std::move(fresh);
      place.used = true;
    }
    return place.answer;
  }

 private:
  struct Place {
    Key key;
    Answer answer;
    bool used = false;
  };
  std::vector<Place> places_;
};

}  // namespace orrery::planners

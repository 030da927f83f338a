/// What a front end (the command line, Python) offers to a function of this folder while it works:
/// ears for progress and notes, and a way to stop it. The functions themselves never print.
#pragma once
#include <atomic>
#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>

namespace orrery::experiments {

/// How far a long call is: as parts start and finish, and a few times each second.
struct Progress {
  int total = 0;
  int done = 0;     ///< Of this call.
  int present = 0;  ///< Found finished from an earlier call.
  int failed = 0;
  double under_way = 0;  ///< What the running ones have done, in parts; for those that tell.
  double elapsed_seconds = 0;
  double remaining_seconds = -1;  ///< Negative: not known yet.
  std::string message;            ///< What just happened; "" when nothing did.
  bool lasting = false;           ///< The message is a result: it is shown, and stays.
  std::string state;              ///< Where it stands; for terminals, which show it in place.
  std::string noun = "runs";      ///< What is counted.
};

/// A request to stop early. It lies in memory that forked children share, so that one request
/// reaches all of them; copies are one request.
class Cancellation {
 public:
  Cancellation();
  void request() const { *flag_ = true; }
  bool requested() const { return *flag_; }
  const std::atomic<bool>* flag() const { return flag_.get(); }

  /// From here on, in this process, the first SIGINT is the request instead of the end of the
  /// process, and the second one ends it with status 130.
  void request_on_interrupt() const;

  /// request_on_interrupt() as long as this lives, if `active`.
  class Listener {
   public:
    explicit Listener(const Cancellation& cancellation, bool active = true);
    /// The same with several signals. SIGHUP stays ignored where it is (nohup).
    Listener(const Cancellation& cancellation, std::initializer_list<int> signals);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

   private:
    struct Actions;
    std::unique_ptr<Actions> before_;
  };

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

/// Exit status of a command that was stopped by SIGINT.
inline constexpr int kInterrupted = 130;

/// A canceled call that has no result; what() says what is kept.
struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What a function gets besides its settings. A default one hears nothing and is never canceled.
/// Threads of the function may speak at once.
struct Call {
  std::function<void(const Progress&)> on_progress;
  /// A sentence for people that is no part of the result: a warning, what was left out.
  std::function<void(const std::string&)> on_note;
  /// A line that a terminal shows while the result grows, and that the result has too: a step of a
  /// training.
  std::function<void(const std::string&)> on_line;
  Cancellation cancellation;

  void progress(const Progress& progress) const {
    if (on_progress) on_progress(progress);
  }
  void note(const std::string& text) const {
    if (on_note) on_note(text);
  }
  void line(const std::string& text) const {
    if (on_line) on_line(text);
  }
};

}  // namespace orrery::experiments

/// A command: its name and texts, and the function of the application layer that does its work,
/// from described settings to a described result (models/config/visitor.h). Flags, their help,
/// messages about wrong values and `--json` follow from the descriptions, and so does whatever else
/// offers the commands. Here too is how the result looks on a terminal. One file a command in
/// tools/commands/, listed in tools/commands/catalog.cpp.
#pragma once
#include <memory>
#include <type_traits>
#include <utility>

#include "experiments/study/call.h"
#include "models/config/document.h"

namespace orrery::tools {

/// What a command came to: a described result of a type that only the command knows.
class Outcome {
 public:
  virtual ~Outcome() = default;
  /// The result, to be visited: JSON, objects of other languages. Lives as long as this.
  virtual config::Slot result() = 0;
  /// Tables and sentences on standard output.
  virtual void print() const = 0;
  /// Exit status: 0 where all went well.
  virtual int status() const = 0;
};

struct Command {
  const char* name;     ///< "plan"; of a group's command both words: "trace stats".
  const char* summary;  ///< One line.
  const char* example;  ///< Arguments behind "orrery".
  const char* notes;    ///< Exit codes and the like, above the example; may be "".
  /// Describes default settings.
  void (*describe)(config::Visitor&);
  /// Describes the settings that only say how the result is printed; null where there are none.
  void (*describe_view)(config::Visitor&);
  /// Describes an empty result; null where the command has none yet but what it prints.
  void (*describe_result)(config::Visitor&);
  /// Reads settings and view from maps and runs. Throws config::ConfigError for bad input, with the
  /// problems that were found before among them.
  std::unique_ptr<Outcome> (*run)(const config::Value& settings, const config::Value& view,
                                  const experiments::Call& call, config::Diagnostics problems);
};

/// The view of a command whose result is always printed the same way.
struct NoView {};
inline void describe(config::Visitor&, NoView&) {}

namespace detail {

/// A result that is no struct says itself what it is: `config::Slot described(Result&)`.
template <class T>
config::Slot slot_of(T& value) {
  if constexpr (requires { described(value); }) {
    return described(value);
  } else {
    return config::detail::slot(value);
  }
}

template <class T>
void describe_default(config::Visitor& v) {
  T value{};
  slot_of(value).visit(v);
}

/// The settings and the result of a function of the application layer.
template <class Function>
struct Signature;
template <class R, class S, class... Problems>
struct Signature<R (*)(const S&, const experiments::Call&, Problems...)> {
  using Settings = S;
  using Result = R;
  static constexpr bool kTakesProblems = sizeof...(Problems) > 0;
};

template <auto Show, class Settings, class Result, class View>
class ShownOutcome final : public Outcome {
 public:
  ShownOutcome(Settings settings, View view, Result result)
      : settings_(std::move(settings)), view_(std::move(view)), result_(std::move(result)) {}
  config::Slot result() override { return slot_of(result_); }
  void print() const override {
    if constexpr (std::is_same_v<View, NoView>) {
      Show(result_, settings_);
    } else {
      Show(result_, settings_, view_);
    }
  }
  int status() const override {
    if constexpr (requires { exit_status(result_); }) return exit_status(result_);
    return 0;
  }

 private:
  Settings settings_;
  View view_;
  Result result_;
};

}  // namespace detail

/// `Function` is Result(const Settings&, const Call&) or Result(const Settings&, const Call&,
/// Diagnostics): such a one gets the problems found in its settings so far, and may look for more
/// before it raises them. `Show` is void(const Result&, const Settings&), with a View
/// void(const Result&, const Settings&, const View&); it prints. A result for which not all went
/// well has `int exit_status(const Result&)` next to it.
template <auto Function, auto Show, class View = NoView>
constexpr Command command(const char* name, const char* summary, const char* example,
                          const char* notes = "") {
  using Signature = detail::Signature<decltype(Function)>;
  using Settings = typename Signature::Settings;
  using Result = typename Signature::Result;
  using Shown = detail::ShownOutcome<Show, Settings, Result, View>;
  return {name,
          summary,
          example,
          notes,
          detail::describe_default<Settings>,
          std::is_same_v<View, NoView> ? nullptr : detail::describe_default<View>,
          detail::describe_default<Result>,
          [](const config::Value& given, const config::Value& shown, const experiments::Call& call,
             config::Diagnostics problems) -> std::unique_ptr<Outcome> {
            Settings settings{};
            View view{};
            config::describe_value(given, settings, problems);
            config::describe_value(shown, view, problems);
            if constexpr (Signature::kTakesProblems) {
              Result result = Function(settings, call, std::move(problems));
              return std::make_unique<Shown>(std::move(settings), view, std::move(result));
            } else {
              problems.raise();
              Result result = Function(settings, call);
              return std::make_unique<Shown>(std::move(settings), view, std::move(result));
            }
          }};
}

namespace detail {

class StatusAlone final : public Outcome {
 public:
  explicit StatusAlone(int status) : status_(status) {}
  config::Slot result() override {
    return {nullptr, [](config::Visitor&, void*) {}};
  }
  void print() const override {}
  int status() const override { return status_; }

 private:
  int status_;
};

}  // namespace detail

/// A command that has no result: it prints as it works.
template <class Settings, int (*Run)(const Settings&, config::Diagnostics&)>
constexpr Command printing_command(const char* name, const char* summary, const char* example,
                                   const char* notes = "") {
  return {name,
          summary,
          example,
          notes,
          detail::describe_default<Settings>,
          nullptr,
          nullptr,
          [](const config::Value& given, const config::Value&, const experiments::Call&,
             config::Diagnostics problems) -> std::unique_ptr<Outcome> {
            Settings settings{};
            config::describe_value(given, settings, problems);
            return std::make_unique<detail::StatusAlone>(Run(settings, problems));
          }};
}

/// Commands with a common first word: "trace".
struct CommandGroup {
  const char* name;
  const char* summary;
  const char* example;
};

}  // namespace orrery::tools

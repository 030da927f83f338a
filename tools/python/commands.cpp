#include "tools/python/commands.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>

#include "models/base/ids.h"
#include "models/config/type_tree.h"
#include "tools/cli/command.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/program.h"
#include "tools/commands/catalog.h"
#include "tools/python/bindings.h"
#include "tools/python/interrupt.h"
#include "tools/python/session.h"
#include "tools/python/settings.h"

namespace orrery::python {
namespace {

using config::TypeNode;

/// How the fields of described settings show themselves, by key.
class Faces final : public config::Visitor {
 public:
  struct Field {
    config::Face face;
    std::string section;
  };
  std::map<std::string, Field> fields;

  void section(const char* title) override { section_ = title; }
  void show(const config::Face& face) override { face_ = face; }
  void field(const char* key, const char*, bool, config::Slot) override {
    fields[key] = {face_, section_};
  }
  void structure(const std::type_info&, config::Slot body, const config::Shorthand*) override {
    body.visit(*this);
  }
  void schema(const char*, int) override {}
  void boolean(bool&) override {}
  void integer(std::int64_t&, std::int64_t, std::int64_t) override {}
  void number(double&) override {}
  void string(std::string&) override {}
  void quantity(double&, config::UnitTable) override {}
  void enumeration(std::size_t&, const std::vector<std::string>&) override {}
  void any(config::Value&) override {}
  void locate(config::Position&) override {}
  void maybe(config::MaybeSlot&) override {}
  void list(config::ListSlot&) override {}
  void dictionary(config::DictionarySlot&) override {}

 private:
  config::Face face_;
  std::string section_;
};

const char* name_of(TypeNode::Kind kind) {
  static constexpr const char* kNames[] = {"boolean",  "integer",     "number",   "string",
                                           "quantity", "enumeration", "any",      "maybe",
                                           "list",     "dictionary",  "structure"};
  return kNames[index_of(kind)];
}

py::dict words(const TypeNode& type) {
  py::dict out;
  out["kind"] = name_of(type.kind);
  if (!type.names.empty()) out["names"] = to_python(type.names);
  if (!type.element.empty()) out["element"] = words(type.element.front());
  if (type.kind == TypeNode::Kind::quantity) {
    for (const config::Unit& unit : type.units) {
      if (unit.times == 1 && unit.over == 1) out["unit"] = unit.name;
    }
    out["units"] = config::unit_names(type.units);
  }
  if (type.kind == TypeNode::Kind::structure) {
    out["name"] = type.type_name;
    out["doc"] = type.doc;
    out["schema"] = type.schema;
    py::list fields;
    for (const TypeNode::Field& field : type.fields) {
      py::dict each;
      each["key"] = field.key;
      each["doc"] = field.doc;
      each["required"] = field.required;
      each["default"] = detail::value_to_python(field.fallback);
      each["type"] = words(field.type);
      fields.append(each);
    }
    out["fields"] = fields;
  }
  return out;
}

/// What a describe function of a command says, as a type.
TypeNode type_of(void (*describe)(config::Visitor&)) {
  return config::type_of({reinterpret_cast<void*>(describe), [](config::Visitor& v, void* object) {
                            reinterpret_cast<void (*)(config::Visitor&)>(object)(v);
                          }});
}

/// The settings of a command: a list of fields, those of its view among them.
py::list settings_words(const tools::Command& command) {
  py::list out;
  for (const auto describe : {command.describe, command.describe_view}) {
    if (describe == nullptr) continue;
    Faces faces;
    describe(faces);
    const py::dict described = words(type_of(describe));
    for (const py::handle item : py::list(described["fields"])) {
      const auto field = py::reinterpret_borrow<py::dict>(item);
      const Faces::Field& face = faces.fields[field["key"].cast<std::string>()];
      field["section"] = face.section;
      field["positional"] = face.face.positional;
      field["commas"] = face.face.commas;
      field["of_view"] = describe == command.describe_view;
      out.append(field);
    }
  }
  return out;
}

const tools::Command* find_command(const std::string& name) {
  for (const tools::Command* command : tools::commands()) {
    if (command->name == name) return command;
  }
  return nullptr;
}

/// Standard output of this process goes into a file in memory while it lives.
class CapturedOutput {
 public:
  CapturedOutput() : file_(memfd_create("orrery-output", MFD_CLOEXEC)), before_(dup(1)) {
    fflush(stdout);
    if (file_ >= 0) dup2(file_, 1);
  }
  std::string text() {
    tools::flush();
    fflush(stdout);
    dup2(before_, 1);
    std::string text(lseek(file_, 0, SEEK_END), '\0');
    const ssize_t size = pread(file_, text.data(), text.size(), 0);
    text.resize(std::max<ssize_t>(size, 0));
    return text;
  }

 private:
  int file_;
  int before_;
};

}  // namespace

void run_command(const Channel& channel, const std::string& bytes) {
  const auto [name, settings, view] = unpack<std::string, config::Value, config::Value>(bytes);
  const tools::Command* command = find_command(name);
  if (command == nullptr) throw ChannelError("no command " + name);
  std::mutex mutex;  // Threads of a command may speak, too.
  experiments::Call call;
  call.on_progress = [&](const experiments::Progress& progress) {
    const std::lock_guard lock(mutex);
    channel.send(kProgress, pack(progress.total, progress.done, progress.present, progress.failed,
                                 progress.under_way, progress.elapsed_seconds,
                                 progress.remaining_seconds, progress.message, progress.noun));
  };
  call.on_note = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    channel.send(kNote, text);
  };
  channel.send(kStarted, pack(static_cast<std::int64_t>(getpid())));
  CapturedOutput captured;
  try {
    const auto outcome = command->run(settings, view, call, {});
    outcome->print();
    const std::string text = captured.text();
    const std::string json =
        command->describe_result == nullptr ? "" : tools::detail::to_json(outcome->result());
    channel.send(kAnswer, pack(outcome->status(), text, json));
  } catch (const config::ConfigError& error) {
    std::vector<std::pair<config::Position, std::pair<std::string, std::string>>> problems;
    for (const config::Problem& problem : error.problems) {
      problems.push_back({problem.at, {problem.what, problem.hint}});
    }
    channel.send(kProblems, pack(problems));
  }
}

namespace {

py::dict words(const std::string& bytes) {
  const auto [total, done, present, failed, under_way, elapsed, remaining, message, noun] =
      unpack<int, int, int, int, double, double, double, std::string, std::string>(bytes);
  py::dict out;
  out["total"] = total;
  out["done"] = done;
  out["present"] = present;
  out["failed"] = failed;
  out["under_way"] = under_way;
  out["elapsed_seconds"] = elapsed;
  out["remaining_seconds"] =
      remaining < 0 ? py::object(py::none()) : py::object(py::float_(remaining));
  out["message"] = message;
  out["noun"] = noun;
  return out;
}

/// Asks a session to run a command; status, printed text, JSON. Ctrl-C reaches the command, which
/// ends as it does on the command line; then KeyboardInterrupt.
py::tuple talk(const Channel& channel, const std::string& question, const py::object& on_progress,
               const py::object& on_note) {
  const Interruptible interruptible;
  std::int64_t process = -1;
  channel.send(kCommand, question);
  for (;;) {
    std::optional<Channel::Message> message;
    {
      const py::gil_scoped_release release;
      message = channel.receive([&] {
        if (interruptible.requested() && process > 0) kill(static_cast<pid_t>(process), SIGINT);
      });
    }
    if (!message) {
      interruptible.raise();
      throw ChannelError("the command's process ended without a result");
    }
    switch (message->kind) {
      case kStarted:
        process = std::get<0>(unpack<std::int64_t>(message->bytes));
        break;
      case kProgress:
        if (!on_progress.is_none()) on_progress(words(message->bytes));
        break;
      case kNote:
        on_note(message->bytes);
        break;
      case kProblems: {
        using Found = std::pair<config::Position, std::pair<std::string, std::string>>;
        std::vector<config::Problem> problems;
        const auto [found] = unpack<std::vector<Found>>(message->bytes);
        for (const auto& [at, text] : found) {
          problems.push_back({at, text.first, text.second});
        }
        throw config::ConfigError(std::move(problems));
      }
      case kAnswer: {
        interruptible.raise();
        const auto [status, text, json] = unpack<int, std::string, std::string>(message->bytes);
        return py::make_tuple(status, text, json);
      }
      default:
        interruptible.raise();
        throw ChannelError(message->bytes);
    }
  }
}

}  // namespace

void bind_commands(py::module_& m) {
  m.def("commands", [] {
    py::list list;
    for (const tools::Command* command : tools::commands()) {
      py::dict each;
      each["name"] = command->name;
      each["summary"] = command->summary;
      each["example"] = command->example;
      each["notes"] = command->notes;
      each["settings"] = settings_words(*command);
      each["result"] = command->describe_result == nullptr
                           ? py::object(py::none())
                           : py::object(words(type_of(command->describe_result)));
      list.append(each);
    }
    return list;
  });
  m.def("main", [](const std::vector<std::string>& words) {
    std::vector<std::string> kept = words;
    std::vector<char*> pointers;
    for (std::string& word : kept) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    signal(SIGINT, SIG_DFL);  // As in a program: Python's handler would only take note.
    const py::gil_scoped_release release;  // Planners of Python take it where they run.
    return tools::run_program(static_cast<int>(kept.size()), pointers.data());
  });
  m.def("run_command",
        [](int socket, const std::string& name, const py::dict& settings, const py::dict& view,
           const py::object& on_progress, const py::object& on_note) {
          const tools::Command* command = find_command(name);
          if (command == nullptr) throw py::value_error("no command " + name);
          const config::Value given = tree_of(settings, type_of(command->describe), "");
          const config::Value shown = command->describe_view == nullptr
                                          ? config::Value::map({})
                                          : tree_of(view, type_of(command->describe_view), "");
          const Channel channel(socket);
          return talk(channel, pack(name, given, shown), on_progress, on_note);
        });
}

}  // namespace orrery::python

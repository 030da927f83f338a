#include "tools/python/record.h"

#include <structmember.h>

#include <algorithm>

#include "models/base/check.h"

namespace orrery::python::detail {
namespace {

constexpr const char* kCapsule = "orrery.value";
/// Context of a capsule with a default value, which nobody has checked.
constexpr char kUnchecked[] = "unchecked";

/// Where a class of `__slots__` keeps one of them.
Py_ssize_t slot_of(const py::object& type, const char* name) {
  const py::object member = type.attr(name);
  ORRERY_CHECK(Py_TYPE(member.ptr()) == &PyMemberDescr_Type, "{} is no slot", name);
  return reinterpret_cast<PyMemberDescrObject*>(member.ptr())->d_member->offset;
}

PyObject*& slot_in(py::handle object, Py_ssize_t offset) {
  return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object.ptr()) + offset);
}

py::object capsule_of(Owner value) {
  auto kept = std::make_unique<Owner>(std::move(value));
  py::capsule capsule(kept.get(), kCapsule, [](PyObject* object) {
    delete static_cast<Owner*>(PyCapsule_GetPointer(object, kCapsule));
  });
  kept.release();  // NOLINT(bugprone-unused-return-value): the capsule's now
  return capsule;
}

const Owner& owner_in(py::handle object, const RecordInfo& info) {
  PyObject*& capsule = slot_in(object, info.value_slot);
  if (capsule == nullptr) {
    capsule = capsule_of(info.make()).release().ptr();
    PyCapsule_SetContext(capsule, const_cast<char*>(kUnchecked));
  }
  return *static_cast<Owner*>(PyCapsule_GetPointer(capsule, kCapsule));
}

/// A field that was forgotten leaves a gap between its neighbors.
void check_covered(const RecordInfo& info, std::size_t size) {
  std::vector<std::size_t> offsets;
  for (const RecordField& field : info.fields) offsets.push_back(field.offset);
  ORRERY_CHECK(!offsets.empty() && std::is_sorted(offsets.begin(), offsets.end()) &&
                   offsets.front() == 0 && offsets.back() < size,
               "fields of {} are not all there in their order", info.name);
}

}  // namespace

void add_record(py::module_& module, RecordInfo& info, const char* type_name, const char* doc,
                std::vector<RecordField> fields, std::size_t size) {
  const std::string full = type_name;
  const std::size_t colon = full.rfind(':');
  info.name = colon == std::string::npos ? full : full.substr(colon + 1);
  info.fields = std::move(fields);
  check_covered(info, size);
  const py::object is_keyword = py::module_::import("keyword").attr("iskeyword");
  py::list names;
  for (RecordField& field : info.fields) {
    if (is_keyword(field.name).cast<bool>()) field.name += "_";
    names.append(field.name);
  }
  const py::object make = py::module_::import("orrery.record").attr("make_class");
  const RecordInfo* known = &info;
  info.type =
      make(info.name, doc, names,
           py::cpp_function([known](py::handle self, const std::string& name) -> py::object {
             for (const RecordField& field : known->fields) {
               if (name != field.name) continue;
               const Owner& owner = owner_in(self, *known);
               const void* value = static_cast<const std::byte*>(owner.get()) + field.offset;
               py::object object = field.ops->to_python(value, owner);
               if (field.ops->is_mutable()) slot_in(self, field.slot) = object.inc_ref().ptr();
               return object;
             }
             throw py::attribute_error(known->name + " has no attribute '" + name + "'");
           }),
           py::cpp_function([known] {  // annotations, when they are asked for
             py::dict types;
             for (const RecordField& field : known->fields)
               types[field.name.c_str()] = field.ops->name();
             return types;
           }));
  info.value_slot = slot_of(info.type, "_value");
  for (RecordField& field : info.fields) field.slot = slot_of(info.type, field.name.c_str());
  module.attr(info.name.c_str()) = info.type;
}

py::object show_record(const RecordInfo& info, Owner value) {
  ORRERY_CHECK(info.type, "a record was used before it was registered");
  auto* type = reinterpret_cast<PyTypeObject*>(info.type.ptr());
  auto object = py::reinterpret_steal<py::object>(type->tp_alloc(type, 0));
  if (!object) throw py::error_already_set();
  slot_in(object, info.value_slot) = capsule_of(std::move(value)).release().ptr();
  return object;
}

Owner read_record(const RecordInfo& info, py::handle object) {
  if (!py::isinstance(object, info.type)) expected(info.name, object);
  const Owner& owner = owner_in(object, info);
  Owner changed;
  for (const RecordField& field : info.fields) {
    PyObject* value = slot_in(object, field.slot);
    if (value == nullptr) continue;
    if (!changed) changed = info.copy(owner.get());
    at_step("." + field.name, [&] {
      field.ops->from_python(
          value, static_cast<std::byte*>(const_cast<void*>(changed.get())) + field.offset);
    });
  }
  if (!changed && info.settle != nullptr &&
      PyCapsule_GetContext(slot_in(object, info.value_slot)) != nullptr) {
    changed = info.copy(owner.get());
  }
  if (!changed) return owner;
  if (info.settle != nullptr) info.settle(const_cast<void*>(changed.get()));
  return changed;
}

}  // namespace orrery::python::detail

/// The names of enum values in YAML files, tables and logs: lower_snake, with `1f1b`
/// for one_f_one_b. The config reader finds enum_names() by argument-dependent lookup.
#pragma once
#include <type_traits>
#include <utility>
#include <vector>

#include "models/ir/cluster_event.h"
#include "models/ir/model_shape.h"
#include "models/ir/plan.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"

namespace orrery::ir {

/// Values of E and their names, in the order of declaration.
template <class E>
using EnumNames = std::vector<std::pair<E, const char*>>;

EnumNames<Dtype> enum_names(Dtype);
EnumNames<BlockKind> enum_names(BlockKind);
EnumNames<Normalization> enum_names(Normalization);
EnumNames<Activation> enum_names(Activation);
EnumNames<Optimizer> enum_names(Optimizer);

EnumNames<ScheduleKind> enum_names(ScheduleKind);
EnumNames<ActivationTransfer> enum_names(ActivationTransfer);
EnumNames<Redundancy> enum_names(Redundancy);
EnumNames<OptimizerStart> enum_names(OptimizerStart);
EnumNames<SequenceParallelism> enum_names(SequenceParallelism);
EnumNames<Recompute> enum_names(Recompute);

EnumNames<Pass> enum_names(Pass);
EnumNames<CollectiveWay::Algorithm> enum_names(CollectiveWay::Algorithm);
EnumNames<CollectiveWay::Protocol> enum_names(CollectiveWay::Protocol);

EnumNames<EventKind> enum_names(EventKind);
EnumNames<EventScope::Kind> enum_names(EventScope::Kind);

EnumNames<OpKind> enum_names(OpKind);
EnumNames<Stream> enum_names(Stream);
EnumNames<Location> enum_names(Location);
EnumNames<CollectiveKind> enum_names(CollectiveKind);
EnumNames<Purpose> enum_names(Purpose);
EnumNames<TensorKind> enum_names(TensorKind);
EnumNames<BufferKind> enum_names(BufferKind);
EnumNames<BufferEffect::Action> enum_names(BufferEffect::Action);

/// The name of a value; "?" for a number that is no value of E.
template <class E>
requires std::is_enum_v<E>
const char* name_of(E value) {
  static const EnumNames<E> kNames = enum_names(value);
  for (const auto& [candidate, name] : kNames) {
    if (candidate == value) return name;
  }
  return "?";
}

}  // namespace orrery::ir

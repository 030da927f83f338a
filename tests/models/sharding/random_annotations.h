/// Random annotations for law tests, drawn by a seeded generator.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "models/base/rng.h"
#include "models/sharding/annotation.h"
#include "tests/models/sharding/interpreter.h"

namespace orrery::models::testing {

inline int draw(Rng& rng, int low, int high) { return static_cast<int>(rng.integer(low, high)); }

inline Shape random_shape(Rng& rng) {
  static const std::vector<std::int64_t> kSizes{1, 2, 3, 4, 6, 8};
  Shape shape(draw(rng, 1, 3));
  for (auto& size : shape) size = kSizes[draw(rng, 0, 5)];
  return shape;
}

inline Values random_values(Rng& rng, const Shape& shape) {
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  Values values(count);
  for (double& value : values) value = draw(rng, -1000, 1000);
  return values;
}

inline std::vector<int> random_devices(Rng& rng, int count, int of) {
  std::vector<int> all;
  for (int i = 0; i < of; ++i) all.insert(all.begin() + draw(rng, 0, i), i);
  all.resize(count);
  return all;
}

/// States whose shards multiply to `devices`; axes from kPartial (or kDuplicate) on, each once.
inline DistributedStates random_states(Rng& rng, int devices, int dimensions, bool partial) {
  DistributedStates states;
  std::vector<Axis> axes;
  for (Axis axis = partial ? kPartial : kDuplicate; axis < dimensions; ++axis) {
    axes.insert(axes.begin() + draw(rng, 0, static_cast<int>(axes.size())), axis);
  }
  int left = devices;
  for (const Axis axis : axes) {
    std::vector<int> divisors;
    for (int d = 1; d <= left; ++d) {
      if (left % d == 0) divisors.push_back(d);
    }
    const int shards =
        axis == axes.back() ? left : divisors[draw(rng, 0, static_cast<int>(divisors.size()) - 1)];
    if (shards > 1 || rng.bernoulli(0.1)) states.push_back({axis, shards});
    left /= shards;
  }
  return states;
}

/// A top tier for some subgroups: HDim and, for a dimension, at times shares.
inline void random_top(Rng& rng, Annotation& annotation, int dimensions, bool partial) {
  annotation.hetero_axis = draw(rng, partial ? kPartial : kDuplicate, dimensions - 1);
  annotation.shares.clear();
  if (annotation.hetero_axis < 0 || rng.bernoulli(0.5)) return;
  for (int i = 0; i < annotation.hetero_size(); ++i) annotation.shares.push_back(draw(rng, 1, 3));
}

/// Any valid annotation on up to `devices` devices; draws again until the sizes divide.
inline Annotation random_annotation(Rng& rng, const Shape& shape, int devices, bool partial) {
  const int dimensions = static_cast<int>(shape.size());
  while (true) {
    const int used = draw(rng, 1, devices);
    const auto order = random_devices(rng, used, devices);
    Annotation annotation;
    for (int first = 0; first < used;) {
      const int size = rng.bernoulli(0.4) ? used - first : draw(rng, 1, used - first);
      annotation.subgroups.push_back({{order.begin() + first, order.begin() + first + size},
                                      random_states(rng, size, dimensions, partial)});
      first += size;
    }
    random_top(rng, annotation, dimensions, partial);
    if (!validate(annotation, shape)) return annotation;
  }
}

/// Changes one aspect, so that every rule of the classification comes up often; valid.
inline Annotation random_change(Rng& rng, const Annotation& from, const Shape& shape, int devices,
                                bool partial) {
  const int dimensions = static_cast<int>(shape.size());
  const int what = draw(rng, 0, 4);
  for (int attempt = 0; what < 4 && attempt < 50; ++attempt) {
    Annotation to = from;
    if (what == 0 || what == 2) random_top(rng, to, dimensions, partial);
    if (what == 1 || what == 2) {
      for (Subgroup& subgroup : to.subgroups) {
        if (rng.bernoulli(0.3)) continue;
        const int size = static_cast<int>(subgroup.devices.size());
        subgroup.states = random_states(rng, size, dimensions, partial && rng.bernoulli(0.3));
      }
    }
    if (what == 3) {
      int used = 0;
      for (const Subgroup& subgroup : to.subgroups) {
        used += static_cast<int>(subgroup.devices.size());
      }
      const auto order = random_devices(rng, used, devices);
      auto next = order.begin();
      for (Subgroup& subgroup : to.subgroups) {
        for (int& device : subgroup.devices) device = *next++;
      }
    }
    if (!validate(to, shape)) return to;
  }
  return random_annotation(rng, shape, devices, partial);
}

}  // namespace orrery::models::testing

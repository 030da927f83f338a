#include "sim/iteration/iteration_bytes.h"

#include <cstdint>

#include "models/base/bytes.h"
#include "models/base/check.h"

namespace orrery::sim {
namespace {

/// One list of all that is written, in order, for both directions.
template <class Codec, class Result>
void each_part(Codec& codec, Result& result) {
  codec.number(result.iteration_time.value);
  codec.number(result.iterations);
  codec.number(result.settled);
  codec.number(result.simulated_pipelines);
  auto& mean = result.breakdown;
  for (auto* part : {&mean.compute, &mean.tensor_parallel, &mean.zero, &mean.pipeline,
                     &mean.data_parallel, &mean.optimizer, &mean.bubble}) {
    codec.number(part->value);
  }
  for (auto* work : {&result.work.timers, &result.work.flows, &result.work.barriers}) {
    codec.number(*work);
  }
  codec.list(result.pipeline_times, [&](auto& time) { codec.number(time.value); });
  codec.list(result.peak_memory, [&](auto& peak) { codec.number(peak.value); });
  codec.list(result.ranks, [&](auto& rank) {
    for (auto* part : {&rank.compute, &rank.tensor_parallel, &rank.zero, &rank.pipeline,
                       &rank.data_parallel, &rank.optimizer, &rank.bubble}) {
      codec.number(part->count);
    }
  });
  auto& log = result.log;
  codec.text(log.source);
  codec.list(log.iterations, [&](auto& mark) {
    codec.number(mark.iteration);
    codec.number(mark.start.nanoseconds);
    codec.number(mark.end.nanoseconds);
  });
  codec.list(log.links, [&](auto& use) {
    codec.text(use.link);
    codec.number(use.capacity.value);
    codec.number(use.bytes.value);
  });
  codec.list(log.events, [&](auto& event) {
    codec.number(event.at.nanoseconds);
    codec.text(event.kind);
    codec.text(event.detail);
  });
  codec.list(log.clocks, [&](auto& clock) {
    codec.number(clock.rank.value);
    codec.number(clock.offset.count);
    codec.number(clock.uncertainty.count);
  });
}

struct Encoder {
  void number(auto value) { out.put(value); }
  void text(const std::string& value) { out.put(std::string_view(value)); }
  void list(const auto& items, const auto& each) {
    out.put(static_cast<std::uint64_t>(items.size()));
    for (const auto& item : items) each(item);
  }
  ByteWriter out;
};

struct Decoder {
  template <class T>
  void number(T& value) {
    value = in.get<T>();
  }
  void text(std::string& value) { value = in.text(); }
  void list(auto& items, const auto& each) {
    items.resize(in.count());
    for (auto& item : items) each(item);
  }
  ByteReader in;
};

}  // namespace

std::string to_bytes(const IterationResult& result) {
  ORRERY_CHECK(result.log.spans.empty() && result.log.memory.empty(),
               "{} spans and {} memory samples have no way back from a fork",
               result.log.spans.size(), result.log.memory.size());
  Encoder encoder;
  each_part(encoder, result);
  return encoder.out.bytes();
}

IterationResult iteration_from_bytes(std::string_view bytes) {
  IterationResult result;
  Decoder decoder{ByteReader(bytes)};
  each_part(decoder, result);
  ORRERY_CHECK(decoder.in.complete(), "{} bytes from the forked simulator", bytes.size());
  return result;
}

}  // namespace orrery::sim

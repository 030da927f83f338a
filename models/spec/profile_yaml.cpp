#include "models/spec/profile_yaml.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "models/config/document.h"
#include "models/config/sparse.h"
#include "models/spec/library.h"
#include "models/spec/ranges.h"

namespace orrery::ir {
namespace {

constexpr const char* kProvenance = "where the numbers come from";
constexpr const char* kNoSource = "a number without a source";
constexpr double kMostShare = 2;  // of what was measured best
constexpr int kMostMultiprocessors = 1 << 16;
constexpr int kMostChannels = 1024;
constexpr double kMostOverlapLoss = 0.8;
constexpr Bytes kLargestChunk{1 << 30};
constexpr const char* kSourceHint = "name a paper, a datasheet or a run, or write 'unverified'";

template <class E>
std::vector<std::string> names(E) {
  std::vector<std::string> all;
  for (const auto& [value, name] : enum_names(E{})) all.emplace_back(name);
  return all;
}

void check_name(config::Visitor& v, const char* key, const std::string& name, const char* what,
                const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  v.problem(key, fmt::format("no {} '{}'", what, name),
            fmt::format("one of {}", fmt::join(known, ", ")));
}

/// Every item must differ from the others in `key_of`, words that say what it is about.
template <class T, class F>
void check_distinct(config::Visitor& v, const char* key, const std::vector<T>& items, F key_of) {
  std::map<std::string, std::size_t> seen;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto [place, fresh] = seen.try_emplace(key_of(items[i]), i);
    if (fresh) continue;
    v.problem(key,
              fmt::format("entries {} and {} are both about {}", place->second, i, place->first));
  }
}

}  // namespace

void describe(config::Visitor& v, Provenance& provenance) {
  v.title("Provenance");
  v.doc("A string is taken as `source`.");
  v.required("source", provenance.source, "datasheet, paper and page, run; or unverified");
  v.optional("date", provenance.date, "of the measurement");
  v.optional("machine", provenance.machine, "that it ran on");
  v.optional("libraries", provenance.libraries, "versions");
  v.optional("samples", provenance.samples, "measurements behind the number");
  v.optional("held_out_error", provenance.held_out_error, "relative, of a fit");
  v.not_negative("samples", provenance.samples);
  if (v.reading() && v.given("source") && provenance.source.empty()) {
    v.problem("source", kNoSource, kSourceHint);
  }
}

bool from_scalar(const std::string& text, Provenance& out, std::string& error) {
  if (text.empty()) error = fmt::format("{}; {}", kNoSource, kSourceHint);
  out.source = text;
  return error.empty();
}

void describe(config::Visitor& v, BlockTime& time) {
  v.title("Block time");
  v.doc("Time of one block on one GPU of a group, for one micro-batch.");
  v.required("gpu", time.gpu, "GPU type");
  v.optional("block", time.block, "kind of block");
  v.optional("model", time.model, "whose block it is; empty: any of the same shape");
  v.required("pass", time.pass, "what was timed");
  v.optional("tensor_parallel", time.tensor_parallel, "degree");
  v.optional("micro_batch_size", time.micro_batch_size, "samples");
  v.required("sequence_length", time.sequence_length, "tokens");
  v.optional("dtype", time.dtype, "of the matrix products");
  v.required("time", time.time, "of one block");
  v.required("provenance", time.provenance, kProvenance);
  v.at_least("tensor_parallel", time.tensor_parallel, 1);
  v.at_least("micro_batch_size", time.micro_batch_size, 1);
  v.not_negative("sequence_length", time.sequence_length);
  v.not_negative("time", time.time);
}

void describe(config::Visitor& v, EfficiencyCurve::Point& point) {
  v.title("Efficiency point");
  v.required("work", point.work, "FLOPs of one op");
  v.required("efficiency", point.efficiency, "achieved share of peak");
  v.positive("work", point.work);
  v.positive("efficiency", point.efficiency);
}

void describe(config::Visitor& v, EfficiencyCurve& curve) {
  v.title("Efficiency curve");
  v.doc("Achieved share of peak, linear in log(FLOPs) between points.");
  v.required("gpu", curve.gpu, "GPU type");
  v.optional("dtype", curve.dtype, "of the matrix products");
  v.required("points", curve.points, "ascending in work");
  v.required("provenance", curve.provenance, kProvenance);
  if (!v.reading() || !v.good()) return;
  v.not_empty("points", curve.points);
  for (std::size_t i = 1; i < curve.points.size(); ++i) {
    if (curve.points[i].work <= curve.points[i - 1].work) {
      v.problem("points", fmt::format("point {} does not ascend in work", i));
    }
  }
}

void describe(config::Visitor& v, LinkSegment& segment) {
  v.title("Link segment");
  v.doc("Time of a message: latency + bytes / bandwidth.");
  v.required("link_class", segment.link_class, "link class");
  v.optional("from_bytes", segment.from_bytes, "smallest message that it holds for");
  v.required("latency", segment.latency, "alpha");
  v.required("bandwidth", segment.bandwidth, "1 / beta");
  v.required("provenance", segment.provenance, kProvenance);
  v.not_negative("from_bytes", segment.from_bytes);
  v.between("latency", segment.latency, Seconds{0}, models::kLongestOp);
  v.positive("bandwidth", segment.bandwidth);
}

void describe(config::Visitor& v, CollectiveFactor& factor) {
  v.title("Collective factor");
  v.doc("Measured time of a collective over its closed form.");
  v.required("collective", factor.collective, "name");
  v.required("link_class", factor.link_class, "slowest link class that it crosses");
  v.required("ranks", factor.ranks, "number of members");
  v.required("factor", factor.factor, "measured / closed form");
  v.required("provenance", factor.provenance, kProvenance);
  v.at_least("ranks", factor.ranks, 1);
  v.positive("factor", factor.factor);
  v.between("factor", factor.factor, 0.0, models::kMostFactor);
  if (v.reading() && v.given("collective")) {
    check_name(v, "collective", factor.collective, "collective", names(CollectiveKind{}));
  }
}

void describe(config::Visitor& v, MemoryOverhead& overhead) {
  v.title("Memory overhead");
  v.required("gpu", overhead.gpu, "GPU type");
  v.optional("context", overhead.context, "CUDA context and libraries");
  v.optional("fragmentation", overhead.fragmentation, "reserved over allocated");
  v.required("provenance", overhead.provenance, kProvenance);
  v.not_negative("context", overhead.context);
  v.at_least("fragmentation", overhead.fragmentation, 1.0);
}

void describe(config::Visitor& v, PassOverhead& overhead) {
  v.title("Pass overhead");
  v.doc("Time of a pass that does not depend on how many blocks it covers: once for each op.");
  v.required("gpu", overhead.gpu, "GPU type");
  v.required("pass", overhead.pass, "of which ops");
  v.required("time", overhead.time, "added to each op");
  v.required("provenance", overhead.provenance, kProvenance);
  v.between("time", overhead.time, Seconds{0}, models::kLongestOp);
}

void describe(config::Visitor& v, OverlapLoss& loss) {
  v.title("Overlap loss");
  v.doc("What passes and optimizer steps lose while collectives run beside them.");
  v.required("gpu", loss.gpu, "GPU type");
  v.required("share", loss.share, "of their speed");
  v.required("provenance", loss.provenance, kProvenance);
  v.between("share", loss.share, 0.0, kMostOverlapLoss);
}

void describe(config::Visitor& v, ExposedCollectives& exposed) {
  v.title("Exposed collectives");
  v.doc("What passes leave exposed of the collectives that `hidden_collectives` of the job names.");
  v.required("gpu", exposed.gpu, "GPU type");
  constexpr const char* kPurpose = "one that jobs may name in `hidden_collectives`";
  if (v.dumping()) {
    v.required("purpose", exposed.purpose, kPurpose);
  } else {
    auto purpose = static_cast<models::HideablePurpose>(exposed.purpose);
    v.required("purpose", purpose, kPurpose);
    exposed.purpose = static_cast<Purpose>(purpose);
  }
  v.required("share", exposed.share, "of the collectives' time");
  v.required("provenance", exposed.provenance, kProvenance);
  v.between("share", exposed.share, 0.0, 1.0);
}

void describe(config::Visitor& v, OptimizerTime& time) {
  v.title("Optimizer time");
  v.doc("One optimizer step of a device: fixed + parameters x per_parameter.");
  v.required("gpu", time.gpu, "GPU type");
  v.optional("dtype", time.dtype, "of the matrix products");
  v.optional("fixed", time.fixed, "of each step");
  v.required("per_parameter", time.per_parameter, "of each parameter that the device updates");
  v.required("provenance", time.provenance, kProvenance);
  v.between("fixed", time.fixed, Seconds{0}, models::kLongestOp);
  v.between("per_parameter", time.per_parameter, Seconds{0}, models::kLongestPerParameter);
}

void describe(config::Visitor& v, StorageTime& time) {
  v.title("Storage time");
  v.doc("Writing or reading a checkpoint of one rank: latency + bytes / bandwidth.");
  v.required("location", time.location, "host_memory, nvme or cloud");
  v.required("write", time.write, "else reading");
  v.optional("latency", time.latency, "of each write or read");
  v.required("bandwidth", time.bandwidth, "of one rank alone");
  v.required("provenance", time.provenance, kProvenance);
  v.between("latency", time.latency, Seconds{0}, models::kLongestOp);
  v.positive("bandwidth", time.bandwidth);
  if (v.reading() && v.given("location")) {
    check_name(v, "location", time.location, "storage", {"host_memory", "nvme", "cloud"});
  }
}

void describe(config::Visitor& v, PhaseTime& time) {
  v.title("Phase time");
  v.doc("Duration of a phase of a recovery, as measured.");
  v.required("phase", time.phase, "detect, decide, reinitialize, ...");
  v.required("time", time.time, "duration");
  v.required("provenance", time.provenance, kProvenance);
  v.between("time", time.time, Seconds{0}, models::kLongestPhase);
}

namespace {

/// Lists of layers: one number for each, none negative.
void check_layers(config::Visitor& v, const char* key, const std::vector<double>& values) {
  if (!v.reading() || !v.good()) return;
  v.not_empty(key, values);
  for (std::size_t layer = 0; layer < values.size(); ++layer) {
    if (values[layer] >= 0 && std::isfinite(values[layer])) continue;
    v.problem(key, fmt::format("layer {} has {}", layer, values[layer]), "must be zero or more");
  }
}

}  // namespace

void describe(config::Visitor& v, LayerProfile& layers) {
  v.title("Layer profile");
  v.doc("All layers of a model on one GPU type, in the units of Metis's profiler.");
  v.required("gpu", layers.gpu, "GPU type");
  v.optional("tensor_parallel", layers.tensor_parallel, "degree");
  v.optional("micro_batch_size", layers.micro_batch_size, "samples");
  v.required("layer_ms", layers.layer_ms,
             "forward and backward of each layer, embedding first, head last; milliseconds");
  v.required("layer_mb", layers.layer_mb,
             "states and activations of each layer; megabytes of 2^20 bytes");
  v.required("forward_backward_ms", layers.forward_backward_ms,
             "all layers and what lies between them; milliseconds");
  v.at_least("tensor_parallel", layers.tensor_parallel, 1);
  v.at_least("micro_batch_size", layers.micro_batch_size, 1);
  v.not_negative("forward_backward_ms", layers.forward_backward_ms);
  check_layers(v, "layer_ms", layers.layer_ms);
  check_layers(v, "layer_mb", layers.layer_mb);
}

void describe(config::Visitor& v, ModelLayers& model) {
  v.title("Model layers");
  v.doc("Layer profiles of one model, as the planner metis reads them.");
  v.required("model", model.model, "name");
  v.required("parameter_bytes", model.parameter_bytes, "parameters of each layer");
  v.required("optimizer_ms", model.optimizer_ms, "one optimizer step; milliseconds");
  v.required("batch_generator_ms", model.batch_generator_ms,
             "input of one micro-batch; milliseconds");
  v.required("profiles", model.profiles, "measured; the first GPU type is the reference");
  v.required("provenance", model.provenance, kProvenance);
  v.not_negative("optimizer_ms", model.optimizer_ms);
  v.not_negative("batch_generator_ms", model.batch_generator_ms);
  check_layers(v, "parameter_bytes", model.parameter_bytes);
  if (!v.reading() || !v.good()) return;
  v.not_empty("profiles", model.profiles);
  for (std::size_t i = 0; i < model.profiles.size(); ++i) {
    const LayerProfile& each = model.profiles[i];
    if (each.layer_ms.size() == model.parameter_bytes.size() &&
        each.layer_mb.size() == model.parameter_bytes.size()) {
      continue;
    }
    v.problem("profiles", fmt::format("profile {} has {} times and {} memory sizes for {} layers",
                                      i, each.layer_ms.size(), each.layer_mb.size(),
                                      model.parameter_bytes.size()));
  }
}

void describe(config::Visitor& v, KernelModel::Product& product) {
  v.title("Product rate");
  v.required("dtype", product.dtype, "of the operands: bf16, fp16, fp8, mxfp8 or fp4");
  v.required("best", product.best, "best measured matrix product");
  v.optional("share", product.share, "of it that a model's products reach");
  v.positive("best", product.best);
  v.positive("share", product.share);
  v.between("share", product.share, 0.0, kMostShare);
  const bool known = product.dtype == Dtype::bf16 || product.dtype == Dtype::fp16 ||
                     ir::of_products(product.dtype);
  if (v.reading() && v.given("dtype") && !known) {
    v.problem("dtype", fmt::format("kernels have no products in {}", name_of(product.dtype)),
              "bf16, fp16, fp8, mxfp8 or fp4");
  }
}

void describe(config::Visitor& v, KernelModel& kernels) {
  v.title("Kernels");
  v.doc(
      "What the kernels of a GPU type reach: times of blocks without a block time follow by the "
      "shapes of their kernels.");
  v.required("gpu", kernels.gpu, "GPU type");
  v.required("multiprocessors", kernels.multiprocessors, "each computes a tile at a time");
  v.required("products", kernels.products, "matrix products by number format, 16 bits among them");
  v.optional("attention", kernels.attention,
             "share of the best product in 16 bits that fused attention reaches forward");
  v.optional("memory", kernels.memory,
             "share of memory bandwidth that kernels bound by memory reach");
  v.optional("gap", kernels.gap, "between two kernels");
  v.optional("unaligned", kernels.unaligned,
             "rate of products over rows that are no multiples of 16 bytes");
  v.optional("routing", kernels.routing,
             "traffic of sorting tokens by expert and back over the least there is");
  v.required("provenance", kernels.provenance, kProvenance);
  v.between("multiprocessors", kernels.multiprocessors, 1, kMostMultiprocessors);
  for (const auto& [key, share] : {std::pair{"attention", kernels.attention},
                                   {"memory", kernels.memory},
                                   {"unaligned", kernels.unaligned}}) {
    v.positive(key, share);
    v.between(key, share, 0.0, kMostShare);
  }
  v.between("gap", kernels.gap, Seconds{0}, models::kLongestOp);
  v.between("routing", kernels.routing, 0.0, models::kMostFactor);
  if (!v.reading() || !v.good()) return;
  check_distinct(v, "products", kernels.products,
                 [](const KernelModel::Product& product) { return name_of(product.dtype); });
  const bool half = std::any_of(
      kernels.products.begin(), kernels.products.end(), [](const KernelModel::Product& product) {
        return product.dtype == Dtype::bf16 || product.dtype == Dtype::fp16;
      });
  if (!half) v.problem("products", "none in 16 bits", "attention and the head compute in bf16");
}

void describe(config::Visitor& v, CollectiveWay& way) {
  v.title("Collective way");
  v.doc(
      "One way in which a communication library carries a collective: inside a link domain start + "
      "steps x step + volume x bytes / bandwidth, between nodes as a pipeline of chunks; the "
      "fastest "
      "for the size is taken.");
  v.required("link_class", way.link_class, "that joins the members");
  v.required("collective", way.collective, "all_reduce, all_gather or reduce_scatter");
  v.required(
      "algorithm", way.algorithm,
      "around a ring, over trees, summed in the switch, or so inside of nodes that a tree joins");
  v.required("protocol", way.protocol, "how messages say that they are there");
  v.required("start", way.start, "of a call, whatever the members; with chunks, of each");
  v.optional("step", way.step, "of each step; with chunks, of each hop between nodes");
  v.optional("chunk", way.chunk, "largest of a channel, between nodes; 0: inside of a domain");
  v.optional("from_bytes", way.from_bytes, "smaller tensors go another way");
  v.optional("channels", way.channels, "side by side");
  v.required("channel_bandwidth", way.channel_bandwidth, "of a channel, out of a member");
  v.required("provenance", way.provenance, kProvenance);
  v.between("start", way.start, Seconds{0}, models::kLongestOp);
  v.between("step", way.step, Seconds{0}, models::kLongestOp);
  v.between("channels", way.channels, 1, kMostChannels);
  v.positive("channel_bandwidth", way.channel_bandwidth);
  v.between("chunk", way.chunk, Bytes{0}, kLargestChunk);
  v.not_negative("from_bytes", way.from_bytes);
  if (!v.reading() || !v.good()) return;
  check_name(v, "collective", way.collective, "collective in ways",
             {"all_reduce", "all_gather", "reduce_scatter"});
  using enum CollectiveWay::Algorithm;
  const bool trees = way.algorithm == tree || way.algorithm == nvls_tree;
  if (way.chunk.value > 0 && (!trees || way.collective != "all_reduce")) {
    v.problem("chunk", "only all-reduces over trees go between nodes in chunks",
              "algorithm: tree or nvls_tree, or no chunk");
  }
  if (way.chunk.value == 0 && way.algorithm == nvls_tree) {
    v.problem("algorithm", "nvls_tree goes between nodes in chunks", "give its largest chunk");
  }
}

void describe(config::Visitor& v, Profile& profile) {
  v.schema("orrery/profile", 1);
  v.title("Profile");
  v.doc("Measured or published numbers about GPUs and links.");
  v.required("name", profile.name, "name of the profile");
  v.optional("block_times", profile.block_times, "measured blocks");
  v.optional("efficiencies", profile.efficiencies, "efficiency curves");
  v.optional("links", profile.links, "latency and bandwidth by message size");
  v.optional("collectives", profile.collectives, "factors on closed forms");
  v.optional("memory", profile.memory, "overheads");
  v.optional("pass_overheads", profile.pass_overheads, "time of each op besides its blocks");
  v.optional("overlap_losses", profile.overlap_losses,
             "what compute loses while collectives run beside it");
  v.optional("exposed_collectives", profile.exposed_collectives,
             "what passes do not hide of collectives that they overlap");
  v.optional("optimizers", profile.optimizers, "optimizer steps");
  v.optional("storage", profile.storage, "checkpoints to and from storage");
  v.optional("phases", profile.phases, "phases of recovery");
  v.optional("model_layers", profile.model_layers, "layers of whole models");
  v.optional("kernels", profile.kernels, "what kernels of GPU types reach, by shape");
  v.optional("collective_ways", profile.collective_ways,
             "algorithms and protocols of a communication library");
  if (!v.reading() || !v.good()) return;
  check_distinct(v, "block_times", profile.block_times, [](const BlockTime& time) {
    return fmt::format("{} of {}{}{} on {}, tp {}, {} samples of {} tokens in {}",
                       name_of(time.pass), time.model, time.model.empty() ? "" : " ",
                       name_of(time.block), time.gpu, time.tensor_parallel, time.micro_batch_size,
                       time.sequence_length, name_of(time.dtype));
  });
  check_distinct(v, "efficiencies", profile.efficiencies, [](const EfficiencyCurve& curve) {
    return fmt::format("{} on {}", name_of(curve.dtype), curve.gpu);
  });
  check_distinct(v, "memory", profile.memory,
                 [](const MemoryOverhead& overhead) { return overhead.gpu; });
  check_distinct(v, "model_layers", profile.model_layers,
                 [](const ModelLayers& layers) { return layers.model; });
  check_distinct(v, "links", profile.links, [](const LinkSegment& segment) {
    return fmt::format("{} from {} bytes", segment.link_class, segment.from_bytes.value);
  });
  check_distinct(v, "collectives", profile.collectives, [](const CollectiveFactor& factor) {
    return fmt::format("{} of {} ranks over {}", factor.collective, factor.ranks,
                       factor.link_class);
  });
  check_distinct(v, "pass_overheads", profile.pass_overheads, [](const PassOverhead& overhead) {
    return fmt::format("{} on {}", name_of(overhead.pass), overhead.gpu);
  });
  check_distinct(v, "overlap_losses", profile.overlap_losses,
                 [](const OverlapLoss& loss) { return loss.gpu; });
  check_distinct(v, "exposed_collectives", profile.exposed_collectives,
                 [](const ExposedCollectives& exposed) {
                   return fmt::format("{} on {}", name_of(exposed.purpose), exposed.gpu);
                 });
  check_distinct(v, "optimizers", profile.optimizers, [](const OptimizerTime& time) {
    return fmt::format("{} on {}", name_of(time.dtype), time.gpu);
  });
  check_distinct(v, "storage", profile.storage, [](const StorageTime& time) {
    return fmt::format("{} {}", time.write ? "writing to" : "reading from", time.location);
  });
  check_distinct(v, "kernels", profile.kernels, [](const KernelModel& one) { return one.gpu; });
  check_distinct(v, "collective_ways", profile.collective_ways, [](const CollectiveWay& way) {
    return fmt::format("{} by {} {} over {}", way.collective, name_of(way.algorithm),
                       name_of(way.protocol), way.link_class);
  });
  check_distinct(v, "phases", profile.phases, [](const PhaseTime& time) { return time.phase; });
}

}  // namespace orrery::ir

namespace orrery::models {
namespace {

/// A provenance that is only a source becomes one string.
void shorten_provenance(config::Value& value) {
  for (config::Value& item : value.items) shorten_provenance(item);
  for (config::Value::Entry& entry : value.entries) {
    if (entry.key == "provenance" && entry.value.entries.size() == 1) {
      entry.value = config::Value(entry.value.entries.front().value);
    } else {
      shorten_provenance(entry.value);
    }
  }
}

}  // namespace

ir::Profile load_profile(const std::string& path, config::Diagnostics& diagnostics) {
  return config::load_file<ir::Profile>(path, diagnostics);
}

std::string dump_profile(const ir::Profile& profile) {
  config::Value value = config::sparse(profile, {"block", "dtype", "latency"});
  shorten_provenance(value);
  return config::to_yaml(value);
}

}  // namespace orrery::models

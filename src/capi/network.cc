// The functions for single networks of image pipelines.
#include "capi/handles.h"
#include "capi/json.h"
#include "capi/option_fields.h"

using namespace redline;
using namespace redline::capi;

namespace {

redline_network_options default_network_options() {
  const NetworkOptions d;
  redline_network_options o = {};
  o.struct_size = sizeof o;
#define REDLINE_OPTION(type, name, ...) write_default(d.name, o.name);
#include "redline/network_options.inc"
  return o;
}

Result<NetworkOptions> read_network_options(const redline_network_options& o) {
  NetworkOptions options;
#define REDLINE_OPTION(type, name, ...) REDLINE_TRY(read_option(o.name, options.name));
#include "redline/network_options.inc"
  REDLINE_ASSIGN(options.runtime, runtime_of(o.runtime));
  return options;
}

redline_network_step default_network_step() {
  redline_network_step o = {};
  o.struct_size = sizeof o;
  return o;
}

/// Reads a tensor of the caller. `what`: name in errors about a tensor without a name.
Result<NamedTensor> read_tensor(const redline_tensor& given, const char* what) {
  constexpr std::pair<std::string_view, TensorType> kTypes[] = {
      {"F32", TensorType::kF32}, {"F16", TensorType::kF16}, {"BF16", TensorType::kBF16}, {"I32", TensorType::kI32}};
  NamedTensor tensor;
  tensor.name = given.name != nullptr ? given.name : what;
  REDLINE_TRY(required(given.dtype, "dtype").within(tensor.name));
  const auto* type =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.first == given.dtype; });
  if (type == std::end(kTypes))
    return invalid_argument("{}: unknown dtype \"{}\"; expected one of F32, F16, BF16, I32", tensor.name, given.dtype);
  tensor.type = type->second;
  if (given.num_axes > 8) return invalid_argument("{}: {} axes; a tensor has at most 8", tensor.name, given.num_axes);
  if (given.num_axes > 0) {
    REDLINE_TRY(required(given.shape, "shape").within(tensor.name));
    REDLINE_ASSIGN(tensor.shape, shape_of(given.shape, given.num_axes, tensor.name));
  }
  REDLINE_TRY(required(given.data, "data").within(tensor.name));
  tensor.data = given.data;
  return tensor;
}

Result<std::vector<NamedTensor>> read_tensors(const redline_tensor* list, size_t count, const char* what) {
  std::vector<NamedTensor> tensors;
  if (count == 0) return tensors;
  REDLINE_TRY(required(list, what));
  tensors.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    REDLINE_TRY(required(list[i].name, "name").within(fmt::format("{}[{}]", what, i)));
    REDLINE_ASSIGN(NamedTensor tensor, read_tensor(list[i], what));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Result<std::vector<NamedOutput>> read_outputs(const redline_network_output* list, size_t count) {
  if (count == 0) return invalid_argument("no output is requested");
  REDLINE_TRY(required(list, "outputs"));
  std::vector<NamedOutput> outputs;
  for (size_t i = 0; i < count; ++i) {
    REDLINE_TRY(required(list[i].name, "name").within(fmt::format("outputs[{}]", i)));
    REDLINE_TRY(required(list[i].data, list[i].name));
    outputs.push_back({list[i].name, {list[i].data, list[i].num_floats}});
  }
  return outputs;
}

Result<NetworkStep> read_step(const redline_network_step* given) {
  REDLINE_ASSIGN(const redline_network_step o, read_struct(given, default_network_step(), "redline_network_step"));
  NetworkStep step;
  step.context = text_or_empty(o.context);
  step.step = o.step;
  step.steps = o.steps;
  step.sigma = o.sigma;
  step.next_sigma = o.next_sigma;
  step.step_size = o.step_size;
  if (o.num_timesteps > 0) {
    REDLINE_TRY(required(o.timesteps, "timesteps"));
    step.timesteps.assign(o.timesteps, o.timesteps + o.num_timesteps);
  }
  return step;
}

Json network_json(const ImageNetwork::Report& r) {
  Json json = {{"kind", r.kind},
               {"family", r.family},
               {"inputs", r.inputs},
               {"outputs", r.outputs},
               {"latent_channels", r.latent_channels},
               {"scale", r.scale},
               {"width", r.width},
               {"pooled_width", r.pooled_width},
               {"cache", r.cache},
               {"computed", r.computed},
               {"executed_share", r.executed_share},
               {"warnings", r.warnings}};
  json["memory"] = memory_json(r.memory);
  return json;
}

}  // namespace

void redline_network_options_init(redline_network_options* options, size_t struct_size) {
  init_struct(options, struct_size, default_network_options());
}
void redline_network_step_init(redline_network_step* step, size_t struct_size) {
  init_struct(step, struct_size, default_network_step());
}

redline_code redline_network_open(const char* class_name, const char* config_json, const redline_tensor* tensors,
                                  size_t num_tensors, const redline_network_options* options, redline_network** network,
                                  redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(network), "network"));
    *network = nullptr;
    REDLINE_TRY(required(class_name, "class_name"));
    REDLINE_TRY(required(config_json, "config_json"));
    REDLINE_ASSIGN(const redline_network_options o,
                   read_struct(options, default_network_options(), "redline_network_options"));
    REDLINE_ASSIGN(const NetworkOptions given, read_network_options(o));
    REDLINE_ASSIGN(const std::vector<NamedTensor> weights, read_tensors(tensors, num_tensors, "tensors"));
    REDLINE_ASSIGN(std::shared_ptr<ImageNetwork> opened, ImageNetwork::open(class_name, config_json, weights, given));
    *network = new redline_network(std::move(opened));
    return {};
  });
}
redline_network* redline_network_retain(redline_network* network) { return retain(network); }
void redline_network_release(redline_network* network) { release(network); }

redline_code redline_network_describe(redline_network* network, char** json, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(json), "json"));
    *json = nullptr;
    REDLINE_TRY(usable(network, "network"));
    return give_json(network_json(network->shared->report()), json);
  });
}

redline_code redline_network_run(redline_network* network, const redline_tensor* inputs, size_t num_inputs,
                                 const redline_network_output* outputs, size_t num_outputs,
                                 const redline_network_step* step, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(usable(network, "network"));
    REDLINE_ASSIGN(const std::vector<NamedTensor> given, read_tensors(inputs, num_inputs, "inputs"));
    REDLINE_ASSIGN(const std::vector<NamedOutput> wanted, read_outputs(outputs, num_outputs));
    REDLINE_ASSIGN(const NetworkStep at, read_step(step));
    const std::shared_ptr<ImageNetwork> kept = network->shared;
    return kept->run(given, wanted, at);
  });
}

redline_code redline_network_set_adapters(redline_network* network, const redline_adapter_pair* pairs, size_t num_pairs,
                                          redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(usable(network, "network"));
    if (num_pairs > 0) REDLINE_TRY(required(pairs, "pairs"));
    std::vector<AdapterFactorPair> given;
    for (size_t i = 0; i < num_pairs; ++i) {
      AdapterFactorPair pair;
      REDLINE_TRY(required(pairs[i].module, "module").within(fmt::format("pairs[{}]", i)));
      pair.adapter = text_or_empty(pairs[i].adapter);
      pair.module = pairs[i].module;
      REDLINE_ASSIGN(pair.down, read_tensor(pairs[i].down, "down").within(pair.module));
      REDLINE_ASSIGN(pair.up, read_tensor(pairs[i].up, "up").within(pair.module));
      if (pair.down.type == TensorType::kI32 || pair.up.type == TensorType::kI32)
        return invalid_argument("{}: factors are F32, F16 or BF16", pair.module);
      pair.scale = pairs[i].scale;
      given.push_back(std::move(pair));
    }
    return network->shared->set_adapters(given);
  });
}

redline_code redline_network_set_cache(redline_network* network, const char* rule, double quality, int64_t steps_budget,
                                       redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(usable(network, "network"));
    return network->shared->set_cache(text_or_empty(rule), quality, steps_budget);
  });
}

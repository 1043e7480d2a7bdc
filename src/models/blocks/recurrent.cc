#include "models/blocks/recurrent.h"

#include <cmath>
#include <cstring>

#include "graph/ops/causal_conv.h"
#include "graph/ops/gated_norm.h"
#include "models/checkpoint/gguf_keys.h"

namespace redline {

Value recurrent_state(LayerBuilder& b, const std::string& name, int64_t elements) {
  StateAttrs attrs;
  attrs.kind = StateKind::kRecurrent;
  attrs.elements = elements;
  return b.graph().state(b.scope() + name, attrs);
}

Value short_convolution(LayerBuilder& b, Value x, const std::string& name, int64_t channels, int64_t taps,
                        bool has_bias, const char* own_module, bool has_silu) {
  const std::string module = fmt::format("{}{}.{}", b.scope(), name, own_module);
  WeightReader& w = b.weights();
  b.graph().set_scope(module);
  // Files have [channels, taps], from Hugging Face with an axis of 1 between them.
  const std::string weight = module + ".weight";
  const std::vector<int64_t> stored =
      w.rank(weight) == 2 ? std::vector{channels, taps} : std::vector<int64_t>{channels, 1, taps};
  const Value taken =
      w.take_made(weight, module + ".taps", stored, {taps, channels}, [&](const TensorView& from, uint8_t* to) {
        const auto size = static_cast<size_t>(row_bytes(from.dtype, 1));
        const auto* data = static_cast<const uint8_t*>(from.data);
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t i = 0; i < taps; ++i)
            std::memcpy(to + static_cast<size_t>(i * channels + c) * size,
                        data + static_cast<size_t>(c * taps + i) * size, size);
      });
  const std::string bias = module + ".bias";
  return causal_conv(b.graph(), x, taken, w.has_bias(bias, has_bias) ? w.take(bias, {channels}) : Value{},
                     recurrent_state(b, name + ".conv_state", (taps - 1) * channels), {taps, has_silu});
}

float decay_of_log(float value) { return static_cast<float>(-std::exp(double{value})); }

Value take_decay(LayerBuilder& b, const std::string& name, int64_t heads) {
  const std::string module = b.scope() + name;
  if (b.weights().has(module + ".A")) return b.weights().take(module + ".A", {heads});
  return b.weights().take_changed(module + ".A_log", {heads}, decay_of_log);
}

Value take_step_bias(LayerBuilder& b, const std::string& name, int64_t heads) {
  const std::string of_file = b.scope() + name + ".dt.bias";
  return b.weights().take(b.weights().has(of_file) ? of_file : b.scope() + name + ".dt_bias", {heads});
}

Status read_step_limits(const nlohmann::json& config, GatedScanAttrs& scan) {
  const auto limit = config.find("time_step_limit");
  if (limit == config.end() || limit->is_null()) return {};
  const auto is_bound = [](const nlohmann::json& bound) {
    return bound.is_number() || bound.is_null() || bound.is_object();
  };
  if (!limit->is_array() || limit->size() != 2 || !is_bound((*limit)[0]) || !is_bound((*limit)[1]))
    return invalid_argument("config: time_step_limit must be a list of two numbers");
  // Newer files have {"__float__": "Infinity"}.
  if ((*limit)[0].is_number()) scan.step_min = (*limit)[0].get<float>();
  if ((*limit)[1].is_number()) scan.step_max = (*limit)[1].get<float>();
  return {};
}

Status check_mamba2_mixer(const Mamba2Mixer& m, int64_t inner) {
  if (inner != m.inner_size())
    return invalid_argument("config: {} heads of {} elements are not the {} of the mixer", m.scan.num_heads,
                            m.scan.value_dim, inner);
  if (m.scan.num_heads % m.scan.num_groups != 0)
    return invalid_argument("config: {} heads in {} groups", m.scan.num_heads, m.scan.num_groups);
  return {};
}

void read_ssm_keys(GgufKeyReader& keys) {
  keys.integer("ssm.conv_kernel", "ssm_conv_kernel");
  keys.integer("ssm.inner_size", "ssm_inner_size");
  keys.integer("ssm.state_size", "ssm_state_size");
  keys.integer("ssm.group_count", "ssm_group_count");
  keys.integer("ssm.time_step_rank", "ssm_time_step_rank");
}

Result<Mamba2Mixer> read_gguf_mamba2_mixer(const nlohmann::json& config) {
  constexpr int64_t kMaxWidth = int64_t{1} << 24;
  ConfigReader r(config);
  Mamba2Mixer m;
  const int64_t inner = r.integer("ssm_inner_size", 1, kMaxWidth);
  m.scan.num_heads = r.integer("ssm_time_step_rank", 1, kMaxWidth);
  m.scan.num_groups = r.integer("ssm_group_count", 1, kMaxWidth, 1);
  m.scan.key_dim = r.integer("ssm_state_size", 1, kMaxWidth);
  m.taps = r.integer("ssm_conv_kernel", 1, 64);
  REDLINE_TRY(r.status());
  m.scan.value_dim = inner / m.scan.num_heads;
  REDLINE_TRY(check_mamba2_mixer(m, inner));
  return m;
}

GgufForm mamba2_gguf_form(const Checkpoint& checkpoint, std::string_view name, std::string_view module,
                          int64_t groups) {
  const size_t at = name.find(fmt::format(".{}.", module));
  if (at == std::string_view::npos) return {};
  const std::vector<int64_t>& shape = checkpoint.tensors.at(std::string(name)).view.shape;
  const std::string stem(name.substr(0, at + module.size() + 2));
  const std::string_view part = name.substr(stem.size());
  GgufForm form;
  if (part == "A_log") {
    form.name = stem + "A";
    form.change = decay_of_log;
  }
  if (part == "dt_bias") form.name = stem + "dt.bias";
  if (part == "A_log" || part == "D") form.shape = {shape[0], 1};
  if (part == "conv1d.weight") form.shape = {shape.front(), shape.back()};
  if (part == "norm.weight") form.shape = {groups, shape[0] / groups};
  return form;
}

Status set_mamba2_mixer_keys(const Mamba2Mixer& m, const GgufKeys& set) {
  const GatedScanAttrs none;
  if (m.scan.step_min != none.step_min || m.scan.step_max != none.step_max)
    return unsupported("GGUF has no key for time_step_limit of Mamba-2");
  if (m.has_bias) return unsupported("GGUF has no place for the biases of Mamba-2's projections");
  set.integer("ssm.conv_kernel", m.taps);
  set.integer("ssm.inner_size", m.inner_size());
  set.integer("ssm.state_size", m.scan.key_dim);
  set.integer("ssm.time_step_rank", m.scan.num_heads);
  set.integer("ssm.group_count", m.scan.num_groups);
  return {};
}

Value mamba2_mixer(LayerBuilder& b, Value x, const std::string& name, const Mamba2Mixer& m) {
  const int64_t inner = m.inner_size(), hidden = b.config().hidden_size, heads = m.scan.num_heads;
  const int64_t joint = m.scan.columns(), stored = inner + joint + heads;
  const auto project = [&](const char* part, int64_t begin, int64_t rows) {
    return b.project_part(x, (name + ".in_proj").c_str(), (name + part).c_str(), stored, begin, rows, hidden,
                          m.has_bias);
  };
  const Value gate = project(".gate", 0, inner), joint_x = project(".xbc", inner, joint);
  GatedScanInputs in;
  in.step = project(".step", inner + joint, heads);
  in.x = short_convolution(b, joint_x, name, joint, m.taps, m.has_conv_bias);
  in.decay = take_decay(b, name, heads);
  in.bias = take_step_bias(b, name, heads);
  in.skip = b.weights().take(b.scope() + name + ".D", {heads});
  in.state = recurrent_state(b, name + ".state", m.scan.state_elements());
  b.graph().set_scope(b.scope() + name + ".scan");
  const Value y = gated_scan(b.graph(), in, m.scan);

  b.graph().set_scope(b.scope() + name + ".norm");
  const std::string norm = b.scope() + name + ".norm.weight";
  const int64_t groups = m.scan.num_groups, group = inner / groups;
  // GGUF files have an axis of groups.
  const Value weight = b.weights().rank(norm) == 2 ? b.weights().take_as(norm, {groups, group}, {inner})
                                                   : b.weights().take(norm, {inner});
  const Value normed =
      gated_norm(b.graph(), y, gate, weight, {.group = group, .eps = b.config().rms_norm_eps, .gates_first = true});
  return b.project(normed, (name + ".out_proj").c_str(), hidden, inner, m.has_bias);
}

}  // namespace redline

#include "models/blocks/gated_delta.h"

#include "graph/ops/gated_norm.h"
#include "graph/ops/linear.h"
#include "models/blocks/moe.h"
#include "models/blocks/rope_config.h"
#include "models/checkpoint/gguf_keys.h"

namespace redline {

Result<DecoderConfig> read_gated_delta_decoder(const Checkpoint& checkpoint) {
  nlohmann::json config =
      checkpoint.gguf_names ? checkpoint.config : with_partial_rotary_factor(checkpoint.config, 0.25);
  // Models whose layers all have experts have no MLP.
  constexpr const char *kWidth = "intermediate_size", *kOfExperts = "moe_intermediate_size";
  if ((!config.contains(kWidth) || config[kWidth] == 0) && config.contains(kOfExperts))
    config[kWidth] = config[kOfExperts];
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.head_dim = 256, .max_positions = 32768}));
  c.norm.plus_one = true;
  return c;
}

namespace {

Result<std::vector<bool>> read_linear_layers(const nlohmann::json& config, int64_t num_layers) {
  ConfigReader r(config);
  const int64_t interval = r.integer("full_attention_interval", 1, 1000, 4);
  REDLINE_TRY(r.status());
  std::vector<bool> is_linear(static_cast<size_t>(num_layers));
  const auto types = config.find("layer_types");
  const bool listed = types != config.end() && !types->is_null();
  if (listed && (!types->is_array() || types->size() != is_linear.size()))
    return invalid_argument("config: layer_types must list {} layers", num_layers);
  for (size_t i = 0; i < is_linear.size(); ++i) {
    is_linear[i] = listed ? (*types)[i] == "linear_attention" : (static_cast<int64_t>(i) + 1) % interval != 0;
    if (listed && !is_linear[i] && (*types)[i] != "full_attention")
      return unsupported("config: layer_types[{}] is {}; Redline runs full_attention and linear_attention", i,
                         (*types)[i].is_string() ? (*types)[i].get<std::string>() : (*types)[i].type_name());
  }
  return is_linear;
}

}  // namespace

Result<GatedDeltaConfig> read_gated_delta_config(const Checkpoint& checkpoint, int64_t num_layers) {
  constexpr int64_t kMaxWidth = int64_t{1} << 24;
  ConfigReader r(checkpoint.config);
  GatedDeltaConfig c;
  c.attention_bias = r.boolean("attention_bias", false);
  GatedScanAttrs& a = c.scan;
  a.is_delta = true;
  if (checkpoint.gguf_names) {
    a.groups_alternate = checkpoint.gguf_names->alternates_groups;
    a.num_groups = r.integer("ssm_group_count", 1, kMaxWidth);
    a.num_heads = r.integer("ssm_time_step_rank", 1, kMaxWidth);
    a.key_dim = r.integer("ssm_state_size", 1, kMaxWidth);
    a.value_dim = r.integer("ssm_inner_size", 1, kMaxWidth) / a.num_heads;
    c.taps = r.integer("ssm_conv_kernel", 1, 64);
  } else {
    a.num_groups = r.integer("linear_num_key_heads", 1, kMaxWidth, 16);
    a.num_heads = r.integer("linear_num_value_heads", 1, kMaxWidth, 32);
    a.key_dim = r.integer("linear_key_head_dim", 1, kMaxWidth, 128);
    a.value_dim = r.integer("linear_value_head_dim", 1, kMaxWidth, 128);
    c.taps = r.integer("linear_conv_kernel_dim", 1, 64, 4);
  }
  REDLINE_TRY(r.status());
  if (a.num_heads % a.num_groups != 0)
    return invalid_argument("config: linear_num_value_heads {} is not a multiple of linear_num_key_heads {}",
                            a.num_heads, a.num_groups);
  REDLINE_ASSIGN(c.is_linear, read_linear_layers(checkpoint.config, num_layers));
  return c;
}

namespace {

/// Adds the product of x with rows row_of(0), row_of(1), ... of the matrix `name`, and their bias.
Value project_picked(LayerBuilder& b, Value x, const char* name, const char* part, int64_t stored, int64_t rows,
                     const std::function<int64_t(int64_t)>& row_of, bool has_bias = false) {
  b.graph().set_scope(b.scope() + part);
  const std::string matrix = b.scope() + name + ".weight";
  const Value weight =
      b.weights().take_picked(matrix, {stored, b.config().hidden_size}, rows, row_of, b.scope() + part + ".weight");
  const std::string bias = b.scope() + name + ".bias";
  if (!b.weights().has_bias(bias, has_bias)) return linear(b.graph(), x, weight);
  return linear(b.graph(), x, weight,
                b.weights().take_gathered(bias, {stored}, rows, row_of, b.scope() + part + ".bias"));
}

/// Inputs of a gated delta network for each token: queries, keys and values one after the other, and the gates.
struct DeltaInputs {
  Value qkv, z, beta, step;
};

/// Returns the rows of queries, keys and values in in_proj_qkvz, which stores queries, keys, values and z of one group
/// after the other.
std::function<int64_t(int64_t)> qkv_row(const GatedScanAttrs& a) {
  const int64_t n = a.key_dim, keys = a.num_groups * n, of_group = a.num_heads * a.value_dim / a.num_groups;
  return [=, stride = 2 * (n + of_group)](int64_t row) {
    if (row < keys) return row / n * stride + row % n;
    row -= keys;
    if (row < keys) return row / n * stride + n + row % n;
    row -= keys;
    return row / of_group * stride + 2 * n + row % of_group;
  };
}
std::function<int64_t(int64_t)> z_row(const GatedScanAttrs& a) {
  const int64_t n = a.key_dim, of_group = a.num_heads * a.value_dim / a.num_groups;
  return [=, stride = 2 * (n + of_group)](int64_t row) {
    return row / of_group * stride + 2 * n + of_group + row % of_group;
  };
}

DeltaInputs project_inputs(LayerBuilder& b, Value x, const GatedScanAttrs& a) {
  const int64_t hidden = b.config().hidden_size, values = a.num_heads * a.value_dim;
  DeltaInputs in;
  const auto has = [&](const char* name) { return b.weights().has(b.scope() + name + ".weight"); };
  if (has("linear_attn.in_proj_qkv")) {
    in.qkv = b.project(x, "linear_attn.in_proj_qkv", a.columns(), hidden, false);
    in.z = b.project(x, "linear_attn.in_proj_z", values, hidden, false);
  } else {
    const int64_t stored = a.columns() + values;
    in.qkv = project_picked(b, x, "linear_attn.in_proj_qkvz", "linear_attn.qkv", stored, a.columns(), qkv_row(a));
    in.z = project_picked(b, x, "linear_attn.in_proj_qkvz", "linear_attn.z", stored, values, z_row(a));
  }
  if (has("linear_attn.in_proj_b")) {
    in.beta = b.project(x, "linear_attn.in_proj_b", a.num_heads, hidden, false);
    in.step = b.project(x, "linear_attn.in_proj_a", a.num_heads, hidden, false);
  } else {
    const int64_t heads = a.num_heads / a.num_groups;
    const auto row_of = [=](int64_t first) {
      return [=](int64_t row) { return row / heads * 2 * heads + first + row % heads; };
    };
    const auto project = [&](const char* part, int64_t first) {
      return project_picked(b, x, "linear_attn.in_proj_ba", part, 2 * a.num_heads, a.num_heads, row_of(first));
    };
    in.beta = project("linear_attn.beta", 0);
    in.step = project("linear_attn.step", heads);
  }
  return in;
}

Value delta_network(LayerBuilder& b, Value x, const GatedDeltaConfig& c) {
  const GatedScanAttrs& a = c.scan;
  const DeltaInputs projected = project_inputs(b, x, a);
  GatedScanInputs in;
  in.x = short_convolution(b, projected.qkv, "linear_attn", a.columns(), c.taps, false);
  in.step = projected.step;
  in.beta = projected.beta;
  in.decay = take_decay(b, "linear_attn", a.num_heads);
  in.bias = take_step_bias(b, "linear_attn", a.num_heads);
  in.state = recurrent_state(b, "linear_attn.state", a.state_elements());
  b.graph().set_scope(b.scope() + "linear_attn.scan");
  const Value y = gated_scan(b.graph(), in, a);
  b.graph().set_scope(b.scope() + "linear_attn.norm");
  const Value weight = b.weights().take(b.scope() + "linear_attn.norm.weight", {a.value_dim});
  const Value normed =
      gated_norm(b.graph(), y, projected.z, weight, {.group = a.value_dim, .eps = b.config().rms_norm_eps});
  return b.project(normed, "linear_attn.out_proj", b.config().hidden_size, a.num_heads * a.value_dim, false);
}

Value gated_attention(LayerBuilder& b, Value x, bool bias) {
  const DecoderConfig& c = b.config();
  const int64_t d = c.head_dim, q_size = c.num_heads * d, kv_size = c.num_kv_heads * d;
  // q_proj has, for each head, the queries and then the gate.
  const auto part = [&](const char* name, int64_t first) {
    return project_picked(
        b, x, "self_attn.q_proj", name, 2 * q_size, q_size,
        [=](int64_t row) { return row / d * 2 * d + first + row % d; }, bias);
  };
  const Value q = part("self_attn.q", 0), gate = part("self_attn.gate", d);
  const Value k = b.project(x, "self_attn.k_proj", kv_size, c.hidden_size, bias);
  const Value v = b.project(x, "self_attn.v_proj", kv_size, c.hidden_size, bias);
  const Value y = b.attend(b.rotate(b.norm(q, "self_attn.q_norm", d)), b.rotate(b.norm(k, "self_attn.k_norm", d)), v);
  b.graph().set_scope(b.scope() + "self_attn.gate");
  return b.project(sigmoid_mul(b.graph(), y, gate), "self_attn.o_proj", c.hidden_size, q_size, bias);
}

}  // namespace

Value gated_delta_mixer(LayerBuilder& b, Value x, const GatedDeltaConfig& c) {
  return c.is_linear[static_cast<size_t>(b.layer())] ? delta_network(b, x, c) : gated_attention(b, x, c.attention_bias);
}

std::vector<GgufForm> gated_delta_gguf_parts(const Checkpoint& checkpoint, const DecoderConfig& config,
                                             std::string_view name, bool alternates_groups) {
  if (name.starts_with("mtp.")) return {};
  constexpr std::string_view kModule = ".linear_attn.";
  const size_t at = name.find(kModule);
  const auto delta = read_gated_delta_config(checkpoint, config.num_layers);
  if (at == std::string_view::npos || !delta.ok()) return moe_gguf_parts(checkpoint, config, name);
  const GatedScanAttrs& a = delta->scan;
  const std::string stem(name.substr(0, at + kModule.size()));
  const std::string_view part = name.substr(stem.size());
  const std::vector<int64_t>& shape = checkpoint.tensors.at(std::string(name)).view.shape;
  const int64_t keys = 2 * a.num_groups * a.key_dim, values = a.num_heads * a.value_dim;
  if (part == "in_proj_qkvz.weight")
    return {{.stored_row = qkv_row(a), .name = stem + "in_proj_qkv.weight", .shape = {keys + values, shape[1]}},
            {.stored_row = z_row(a), .name = stem + "in_proj_z.weight", .shape = {values, shape[1]}}};
  GgufForm form;
  if (part == "conv1d.weight") form.shape = {shape.front(), shape.back()};
  if (part == "dt_bias") form.name = stem + "dt.bias";
  if (part == "A_log") {
    form.name = stem + "A";
    form.change = decay_of_log;
  }
  if (!alternates_groups || a.num_groups == a.num_heads) return {form};
  // Heads in the order (head of the group, group).
  const auto reordered = [heads = a.num_heads, groups = a.num_groups](int64_t size) {
    return [=](int64_t row) {
      const int64_t head = row / size;
      return (head % groups * (heads / groups) + head / groups) * size + row % size;
    };
  };
  if (part == "in_proj_qkv.weight" || part == "conv1d.weight")
    form.stored_row = [=, of_values = reordered(a.value_dim)](int64_t row) {
      return row < keys ? row : keys + of_values(row - keys);
    };
  if (part == "in_proj_z.weight") form.stored_row = reordered(a.value_dim);
  for (const char* by_head : {"in_proj_b.weight", "in_proj_a.weight", "A_log", "dt_bias"})
    if (part == by_head) form.stored_row = reordered(1);
  if (part == "out_proj.weight")
    form.stored_element = [=, of_values = reordered(a.value_dim)](int64_t row, int64_t column) {
      return row * values + of_values(column);
    };
  return {form};
}

void read_gated_delta_keys(GgufKeyReader& keys) {
  read_ssm_keys(keys);
  read_moe_keys(keys);
  keys.integer("full_attention_interval", "full_attention_interval");
}

Status set_gated_delta_keys(const Checkpoint& checkpoint, const DecoderConfig& config, const GgufKeys& set) {
  REDLINE_ASSIGN(const GatedDeltaConfig delta, read_gated_delta_config(checkpoint, config.num_layers));
  ConfigReader r(checkpoint.config);
  const int64_t interval = r.integer("full_attention_interval", 1, 1000, 4);
  for (size_t i = 0; i < delta.is_linear.size(); ++i)
    if (delta.is_linear[i] == ((static_cast<int64_t>(i) + 1) % interval == 0))
      return unsupported("GGUF has no key for layer_types other than one layer of attention in every {}", interval);
  const GatedScanAttrs& a = delta.scan;
  set.integer("ssm.conv_kernel", delta.taps);
  set.integer("ssm.state_size", a.key_dim);
  set.integer("ssm.group_count", a.num_groups);
  set.integer("ssm.time_step_rank", a.num_heads);
  set.integer("ssm.inner_size", a.num_heads * a.value_dim);
  set.integer("full_attention_interval", interval);
  return r.status();
}

void ignore_prediction_heads(WeightReader& w, const Checkpoint& checkpoint) {
  for (const auto& [name, source] : checkpoint.tensors)
    if (name.starts_with("mtp.")) w.ignore(name);
}

}  // namespace redline

#include "llm/text_model.h"

#include <algorithm>
#include <map>

#include "chat/chat_output.h"
#include "graph/ops/expert_linear.h"
#include "graph/ops/linear.h"
#include "graph/ops/soft_cap.h"
#include "kernels/cpu/linear/linear_choice.h"

namespace redline {
namespace {

constexpr int64_t kMaxContext = int64_t{1} << 24;

std::string spell_types(const std::map<DType, int64_t>& counts) {
  std::string text;
  for (auto [dtype, count] : counts)
    text += fmt::format("{}{} x{}", text.empty() ? "" : ", ", dtype_info(dtype).name, count);
  return text;
}

Result<SamplingOptions> read_sampling(const nlohmann::json& generation) {
  SamplingOptions s;
  s.temperature = 0.8f;
  s.top_p = 0.95f;
  ConfigReader r(generation);
  const bool does_sample = r.boolean("do_sample", true);
  if (r.has("do_sample")) {  // transformers' GenerationConfig defaults for missing keys
    s.temperature = 1.0f;
    s.top_p = 1.0f;
    s.top_k = 50;
  }
  s.temperature = static_cast<float>(r.number("temperature", 0, 100, s.temperature));
  // With top_p 0, only the most likely token is kept.
  s.top_p = std::max(1e-6f, static_cast<float>(r.number("top_p", 0, 1, s.top_p)));
  s.top_k = std::max<int64_t>(0, r.integer("top_k", -1, int64_t{1} << 31, s.top_k));  // llama.cpp: -1 is off too
  s.min_p = static_cast<float>(r.number("min_p", 0, 1, 0.0));
  s.repetition_penalty = static_cast<float>(r.number("repetition_penalty", 1e-3, 100, 1.0));
  if (!does_sample) s.temperature = 0;
  REDLINE_TRY(r.status().within("generation_config.json"));
  return s;
}

/// Returns true if a soft cap of `value` gives the logits.
bool is_capped_output(const Graph& graph, ValueId value) {
  return std::any_of(graph.ops.begin(), graph.ops.end(), [&](const Op& op) {
    return op.def == &kSoftCap && op.inputs[0] == value && graph.value(op.outputs[0]).role == PortRole::kLogits;
  });
}

/// Returns the format of the CPU's KV cache. If bfloat16 dot products are fast, models that round activations to 8 bits
/// for most of their weights anyway compute attention in bfloat16, at twice the rate of float32. Other models, and
/// models without known costs, keep three more bits and float32 attention.
KvFormat cpu_kv_format(std::span<const TextModel::LinearCost> costs, const CpuKernels& kernels) {
  if (kernels.has_tile_unit || !kernels.has_fast_bf16_dot) return KvFormat::kF16;
  double all = 0, in_8_bits = 0;
  for (const TextModel::LinearCost& cost : costs) {
    if (cost.is_output) continue;
    const ActivationLayout layout = choose_linear(kernels, cost.dtype, false).layouts.at[0].layout;
    all += cost.flops;
    if (layout == ActivationLayout::kI8Grouped || layout == ActivationLayout::kI8Tiled) in_8_bits += cost.flops;
  }
  return in_8_bits > all / 2 ? KvFormat::kBF16 : KvFormat::kF16;
}

}  // namespace

Result<TextModel> TextModel::make(Checkpoint& checkpoint, const LanguageModel& model, int64_t context) {
  TextModel m;
  m.config = model.config;
  REDLINE_ASSIGN(m.sampling, read_sampling(checkpoint.generation).within(checkpoint.path));
  m.tokenizer = std::move(checkpoint.tokenizer);
  m.tokenizer_status = checkpoint.tokenizer_status;
  m.stop_tokens = checkpoint.stop_tokens;
  if (m.tokenizer) m.bos = m.tokenizer->bos();
  else if (std::vector<int32_t> ids = read_token_ids(checkpoint.config, "bos_token_id"); !ids.empty()) m.bos = ids[0];

  m.constraints = std::make_unique<OutputConstraints>(m.tokenizer.get(), m.config.vocab_size, m.stop_tokens);

  const DecoderConfig& c = m.config;
  ModelInfo& info = m.info;
  info.path = checkpoint.path;
  info.architecture = model.graph.name;
  info.file_format = checkpoint.format;
  info.left_out = checkpoint.left_out;
  info.stop_tokens = m.stop_tokens;
  std::map<DType, int64_t> types;
  for (const ValueInfo& value : model.graph.values)
    if (value.kind == ValueKind::kWeight) {
      ++types[value.dtype];
      info.parameters += value.weight.view.num_elements();
      info.weight_bytes += value.weight.view.bytes();
    }
  info.weight_types = spell_types(types);
  info.num_layers = c.num_layers;
  info.hidden_size = c.hidden_size;
  info.num_heads = c.num_heads;
  info.num_kv_heads = c.num_kv_heads;
  info.head_dim = c.head_dim;
  info.intermediate_size = c.intermediate_size;
  info.vocab_size = c.vocab_size;
  m.ports = PromptPorts::of(model.graph, c.vocab_size);
  info.takes_embeddings = m.ports.hidden_size > 0;
  info.position_axes = m.ports.axes;
  info.num_layer_rows = m.ports.num_layer_rows;
  info.model_context = c.max_positions;
  if (context < 0 || context > kMaxContext)
    return invalid_argument("context {} is outside [1, {}]", context, kMaxContext);
  if (!c.names.positions.empty() && context > c.max_positions)
    return invalid_argument("context {}: the model has learned {} positions", context, c.max_positions);
  info.context = context > 0 ? context : std::min(c.max_positions, kMaxContext);
  info.has_tokenizer = m.tokenizer != nullptr;
  info.max_token_bytes = m.tokenizer ? m.tokenizer->max_token_bytes() : 0;

  for (const Op& op : model.graph.ops) {
    const bool is_expert = op.def == &kExpertGatedLinear || op.def == &kExpertLinear;
    if (op.def != &kLinear && !is_expert) continue;
    const bool is_output =
        model.graph.value(op.outputs[0]).role == PortRole::kLogits || is_capped_output(model.graph, op.outputs[0]);
    double share = 1;
    if (is_expert) {
      const auto& attrs = std::any_cast<const ExpertLinearAttrs&>(op.attrs);
      share = static_cast<double>(attrs.experts_per_token) / static_cast<double>(attrs.num_experts);
    }
    for (size_t i = 1; i < (is_expert ? op.inputs.size() : 2); ++i) {
      const ValueInfo& value = model.graph.value(op.inputs[i]);
      if (value.kind != ValueKind::kWeight) continue;
      const TensorView& weight = value.weight.view;
      auto cost = std::find_if(m.linear_costs.begin(), m.linear_costs.end(), [&](const LinearCost& known) {
        return known.dtype == weight.dtype && known.is_output == is_output && known.expert_share == share;
      });
      if (cost == m.linear_costs.end())
        cost = m.linear_costs.insert(cost, LinearCost{weight.dtype, is_output, share, 0, 0});
      cost->bytes += static_cast<double>(weight.bytes());
      cost->flops += 2 * share * static_cast<double>(weight.num_elements());
    }
  }
  return m;
}

StepModel TextModel::step_model(Graph graph, const CpuKernels& kernels) const {
  return {.graph = std::move(graph),
          .vocab_size = info.vocab_size,
          .context = info.context,
          .weight_bytes = info.weight_bytes,
          .cpu_kv_format = cpu_kv_format(linear_costs, kernels)};
}

Result<std::vector<int32_t>> TextModel::encode(std::string_view text, bool special, bool add_bos,
                                               const EncodeLimits& limits) const {
  if (!tokenizer) return tokenizer_status.ok() ? not_found("{} has no tokenizer", info.path) : tokenizer_status;
  // One more than the limit, because a second BOS token is removed below.
  EncodeWork work(limits.max_tokens < INT64_MAX ? limits.max_tokens + 1 : INT64_MAX, limits.on_slice);
  std::vector<int32_t> ids;
  tokenizer->encode(text, {add_bos, special}, work, ids);
  if (work.is_cancelled()) return Status(Code::cancelled, "the text was not wanted any more");
  if (std::ssize(ids) > limits.max_tokens)
    return invalid_argument("a text of {} bytes has more than {} tokens", text.size(), limits.max_tokens);
  // A chat template writes the BOS token itself.
  if (special && add_bos && tokenizer->adds_bos() && ids.size() > 1 && ids[0] == bos && ids[1] == bos)
    ids.erase(ids.begin());
  return ids;
}
Result<std::string> TextModel::decode(std::span<const int32_t> tokens, bool special) const {
  if (!tokenizer) return tokenizer_status.ok() ? not_found("{} has no tokenizer", info.path) : tokenizer_status;
  return tokenizer->decode({tokens.begin(), tokens.end()}, special);
}

std::string TextModel::token_bytes(int32_t token, bool special) const {
  return tokenizer ? tokenizer->token_bytes(token, special) : "";
}

Status TextModel::set_chat_template(ChatTemplateSource source, const std::string& file_or_name) {
  if (!file_or_name.empty()) {
    REDLINE_ASSIGN(source.text, read_chat_template(file_or_name));
    source.tool_use.clear();
  }
  if (source.text.empty()) return {};
  ChatTemplateOptions options;
  options.tool_use = std::move(source.tool_use);
  options.special_tokens_json = std::move(source.special_tokens_json);
  std::string text = source.text;
  auto compiled = ChatTemplate::compile(std::move(source.text), std::move(options));
  if (!compiled.ok() && !file_or_name.empty()) return std::move(compiled).status().within(file_or_name);
  info.has_chat_template = compiled.ok();
  if (compiled.ok()) {
    chat_template = std::move(compiled).value();
    info.has_chat_markers = chat_output_format(text).name != std::string_view("plain") || *reasoning_markers(text).open;
    constraints->set_chat_template(text);
    info.has_tool_template = chat_template->writes_tools();
    info.thinking_switch = chat_template->thinking_switch();
    info.chat_template = std::move(text);
  } else {
    chat_template_status = std::move(compiled).status().within(info.path);
  }
  return {};
}

std::unique_ptr<ChatOutputParser> TextModel::chat_reader(std::string_view prompt, std::string_view tools_json,
                                                         OutputConstraint::Kind constraint) const {
  const std::string_view source = chat_template ? std::string_view(chat_template->source()) : std::string_view();
  return std::make_unique<ChatOutputParser>(ChatOutputOptions{source, prompt, tools_json, content_kind(constraint)});
}

Result<std::string> TextModel::render_chat(const ChatInput& input) const {
  ChatInput adapted = input;
  adapted.adapt_arguments = true;
  if (chat_template) return chat_template->render(adapted);
  REDLINE_TRY(chat_template_status);
  return not_found("{} has no chat template; give one with --chat-template FILE, or by name ({})", info.path,
                   fmt::join(builtin_chat_template_names(), ", "));
}

}  // namespace redline

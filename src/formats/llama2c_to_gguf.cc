#include "formats/llama2c_to_gguf.h"

namespace redline {

Status llama2c_to_gguf(const Llama2cFile& model, const std::string& name, const Llama2cVocab& vocab,
                       GgufWriter& writer) {
  const auto expected = static_cast<size_t>(model.vocab_size);
  if (vocab.tokens.size() != expected || vocab.scores.size() != expected || vocab.token_types.size() != expected)
    return invalid_argument("{}: the model has {} tokens, its vocabulary {} texts, {} scores and {} types",
                            model.file->path(), expected, vocab.tokens.size(), vocab.scores.size(),
                            vocab.token_types.size());

  const auto set = [&](std::string_view key, int64_t value) {
    writer.set_u32(fmt::format("llama.{}", key), static_cast<uint32_t>(value));
  };
  writer.set("general.architecture", "llama");
  writer.set("general.name", name);
  writer.set_u32("general.file_type", 0);  // ggml's "all tensors are float32"
  set("context_length", model.context_length);
  set("embedding_length", model.hidden_size);
  set("block_count", model.num_layers);
  set("feed_forward_length", model.intermediate_size);
  set("attention.head_count", model.num_heads);
  set("attention.head_count_kv", model.num_kv_heads);
  set("rope.dimension_count", model.head_dim());
  set("vocab_size", model.vocab_size);
  writer.set_f32("llama.rope.freq_base", 10000.0f);
  writer.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);

  writer.set("tokenizer.ggml.model", "llama");
  writer.set("tokenizer.ggml.pre", "default");
  writer.set_strings("tokenizer.ggml.tokens", vocab.tokens);
  writer.set_f32s("tokenizer.ggml.scores", vocab.scores);
  writer.set_i32s("tokenizer.ggml.token_type", vocab.token_types);
  writer.set_u32("tokenizer.ggml.bos_token_id", 1);
  writer.set_u32("tokenizer.ggml.eos_token_id", 2);
  writer.set_u32("tokenizer.ggml.unknown_token_id", 0);
  writer.set_bool("tokenizer.ggml.add_bos_token", true);
  writer.set_bool("tokenizer.ggml.add_space_prefix", true);

  for (const auto& [tensor_name, view] : model.tensors) writer.add_tensor(tensor_name, view);
  return {};
}

}  // namespace redline

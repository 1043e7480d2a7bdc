// Text encoders: bidirectional transformers, whose hidden states become embeddings or the scores of a classifier.
#pragma once

#include <optional>
#include <span>

#include "graph/ops/joint_attention.h"
#include "models/checkpoint/checkpoint.h"
#include "models/checkpoint/config_reader.h"
#include "models/checkpoint/gguf_names.h"
#include "models/checkpoint/weight_reader.h"

namespace redline {

/// The network of a text encoder. The texts of a step are packed: no row is padding (PackedSequences).
///   inputs  tokens [tokens] i32, positions [tokens] i32 (from 0 in each text), offsets [sequences + 1] i32,
///           token_types [tokens] i32 (BERT: 1 in the second text of a pair)
///   output  "hidden" [tokens, width], after the final norm
struct EncoderModel {
  Graph graph;
  /// Head of a classifier: input "pooled" [sequences, width], output "scores" [sequences, num_labels].
  std::optional<Graph> head;
  bool head_means = false;  ///< the head's input is the mean of the hidden states; false: the first one
  int64_t num_layers = 0, width = 0, num_heads = 0, vocab_size = 0, num_labels = 0;
  int64_t max_tokens = 0;       ///< maximum tokens of one text
  int64_t first_position = 0;   ///< RoBERTa counts positions from the padding token's id + 1
  int64_t num_token_types = 0;  ///< 0: the network has no input token_types
};

struct EncoderFamily {
  std::span<const std::string_view> model_types;  ///< config.json's model_type; the first one is that of GGUF files
  GgufNames gguf;
  Result<EncoderModel> (*build)(const Checkpoint& checkpoint);
};

/// The inputs of all encoders.
struct EncoderInputs {
  explicit EncoderInputs(GraphBuilder& g)
      : tokens(g.input("tokens", DType::kI32, {Dim(Symbol::kTokens)})),
        positions(g.input("positions", DType::kI32, {Dim(Symbol::kTokens)})),
        sequences{g.input("offsets", DType::kI32, {Dim(Symbol::kSequences) + Dim(1)}), Symbol::kTokens,
                  Symbol::kSequences} {}
  Value tokens, positions;
  PackedSequences sequences;
};

/// Adds projections and layer norms, whose tensors have PyTorch's names.
class EncoderBuilder {
 public:
  EncoderBuilder(GraphBuilder& g, WeightReader& w, float eps) : g_(g), w_(w), eps_(eps) {}

  /// Adds x W^T + b with name.weight [out, in] and name.bias, if the checkpoint has it.
  Value project(Value x, const std::string& name, int64_t out, int64_t in);
  /// Adds a layer norm with name.weight and name.bias, if the checkpoint has it.
  Value norm(Value x, const std::string& name, int64_t width);

 private:
  GraphBuilder& g_;
  WeightReader& w_;
  float eps_;
};

/// Returns the common prefix of the tensors: the part before `suffix` in the tensor name that ends with it; "" if no
/// name does.
std::string scope_of(const Checkpoint& checkpoint, std::string_view suffix);
/// Counts tensors whose names begin with `prefix` as used: they belong to a head for another task (masked words).
void ignore_tensors(const Checkpoint& checkpoint, WeightReader& w, std::string_view prefix);
/// Returns the number of labels: num_labels, or the entries of id2label, or 2, the default of transformers.
int64_t read_num_labels(ConfigReader& r);

}  // namespace redline

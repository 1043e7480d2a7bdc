// BERT (Devlin et al. 2018, arXiv:1810.04805) and what has its layers: MiniLM, BGE, E5, GTE; RoBERTa and XLM-RoBERTa
// (Liu et al. 2019, arXiv:1907.11692), which count positions from the padding token on and have another classifier.
#include <cmath>

#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/embedding.h"
#include "models/blocks/encoder.h"

namespace redline {
namespace {

struct BertConfig {
  int64_t num_layers = 0, hidden_size = 0, num_heads = 0, intermediate_size = 0, vocab_size = 0, num_labels = 0;
  int64_t num_positions = 0, first_position = 0, num_token_types = 0;
  float eps = 0;
  Activation activation = Activation::kGelu;
  bool is_roberta = false;
};

/// Defaults are those of transformers' BertConfig and RobertaConfig.
Result<BertConfig> read_bert_config(const Checkpoint& checkpoint) {
  constexpr int64_t kMaxLayers = 1000, kMaxWidth = int64_t{1} << 20;
  ConfigReader r(checkpoint.config);
  BertConfig c;
  const std::string type = r.text("model_type", "bert");
  c.is_roberta = type != "bert";
  c.num_layers = r.integer("num_hidden_layers", 1, kMaxLayers, 12);
  c.hidden_size = r.integer("hidden_size", 1, kMaxWidth, 768);
  c.num_heads = r.integer("num_attention_heads", 1, 1024, 12);
  c.intermediate_size = r.integer("intermediate_size", 1, kMaxWidth, 3072);
  c.vocab_size = r.integer("vocab_size", 1, INT32_MAX, c.is_roberta ? 50265 : 30522);
  c.num_positions = r.integer("max_position_embeddings", 1, INT32_MAX, 512);
  if (c.is_roberta) c.first_position = r.integer("pad_token_id", 0, INT32_MAX, 1) + 1;
  c.num_token_types = r.integer("type_vocab_size", 1, INT32_MAX, 2);
  c.num_labels = read_num_labels(r);
  c.eps = static_cast<float>(r.number("layer_norm_eps", 0, 1, 1e-12));
  const std::string act = r.text("hidden_act", "gelu"), positions = r.text("position_embedding_type", "absolute");
  if (r.boolean("is_decoder", false)) r.fail(unsupported("config: is_decoder true; Redline runs the encoder"));
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(c.activation, activation_from_name(act));
  if (positions != "absolute")
    return unsupported("config: position_embedding_type \"{}\"; Redline runs absolute", positions);
  if (c.hidden_size % c.num_heads != 0)
    return invalid_argument("config: hidden_size {} does not divide among {} attention heads", c.hidden_size,
                            c.num_heads);
  if (c.num_positions <= c.first_position)
    return invalid_argument("config: {} positions, of which the first {} are not used", c.num_positions,
                            c.first_position);
  return c;
}

class BertBuilder {
 public:
  BertBuilder(GraphBuilder& g, WeightReader& w, const BertConfig& c, std::string scope)
      : g_(g), w_(w), c_(c), build_(g, w, c.eps), scope_(std::move(scope)) {}

  void build() {
    const EncoderInputs in(g_);
    const Value types = g_.input("token_types", DType::kI32, {Dim(Symbol::kTokens)});
    g_.set_scope("embeddings");
    const auto look_up = [&](const char* name, int64_t rows, Value ids) {
      return embedding(g_, w_.take(fmt::format("{}embeddings.{}.weight", scope_, name), {rows, c_.hidden_size}), ids);
    };
    Value x = add(g_, look_up("word_embeddings", c_.vocab_size, in.tokens),
                  look_up("token_type_embeddings", c_.num_token_types, types));
    x = add(g_, x, look_up("position_embeddings", c_.num_positions, in.positions));
    x = build_.norm(x, scope_ + "embeddings.LayerNorm", c_.hidden_size);
    for (int64_t i = 0; i < c_.num_layers; ++i)
      x = layer(x, in.sequences, fmt::format("{}encoder.layer.{}.", scope_, i));
    g_.output("hidden", x);
  }

 private:
  Value layer(Value x, const PackedSequences& sequences, const std::string& scope) {
    const int64_t D = c_.hidden_size, head_dim = D / c_.num_heads;
    const auto part = [&](const char* name) { return build_.project(x, scope + "attention.self." + name, D, D); };
    const Value q = part("query"), k = part("key"), v = part("value");
    g_.set_scope(scope + "attention");
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
    const Value seen = joint_attention(g_, q, sequences, pack_kv(g_, k, v, sequences, c_.num_heads, head_dim),
                                       {c_.num_heads, head_dim, scale});
    x = add(g_, x, build_.project(seen, scope + "attention.output.dense", D, D));
    x = build_.norm(x, scope + "attention.output.LayerNorm", D);
    const Value hidden =
        activation(g_, build_.project(x, scope + "intermediate.dense", c_.intermediate_size, D), c_.activation);
    x = add(g_, x, build_.project(hidden, scope + "output.dense", D, c_.intermediate_size));
    return build_.norm(x, scope + "output.LayerNorm", D);
  }

  GraphBuilder& g_;
  WeightReader& w_;
  const BertConfig& c_;
  EncoderBuilder build_;
  std::string scope_;
};

/// Builds the head: tanh of a projection of the first token, and the classifier.
Result<Graph> build_bert_head(const Checkpoint& checkpoint, const BertConfig& c, const std::string& scope,
                              WeightReader& used) {
  GraphBuilder g("bert classifier");
  WeightReader w(g, checkpoint);
  EncoderBuilder build(g, w, c.eps);
  const Value pooled = g.input("pooled", DType::kF32, {Dim(Symbol::kSequences), c.hidden_size});
  const bool two = w.has("classifier.dense.weight");
  const Value dense =
      build.project(pooled, two ? "classifier.dense" : scope + "pooler.dense", c.hidden_size, c.hidden_size);
  g.output("scores", build.project(activation(g, dense, Activation::kTanh), two ? "classifier.out_proj" : "classifier",
                                   c.num_labels, c.hidden_size));
  REDLINE_ASSIGN(Graph graph, g.finish());
  used.add_taken(w);
  return graph;
}

Result<EncoderModel> build_bert(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(BertConfig c, read_bert_config(checkpoint));
  const std::string scope = scope_of(checkpoint, "embeddings.word_embeddings.weight");
  const auto types = checkpoint.tensors.find(scope + "embeddings.token_type_embeddings.weight");
  if (types != checkpoint.tensors.end() && !types->second.view.shape.empty())
    c.num_token_types = types->second.view.shape[0];  // not stored in GGUF files
  GraphBuilder g("bert");
  WeightReader w(g, checkpoint);
  BertBuilder(g, w, c, scope).build();
  EncoderModel model;
  model.num_layers = c.num_layers;
  model.width = c.hidden_size;
  model.num_heads = c.num_heads;
  model.vocab_size = c.vocab_size;
  model.first_position = c.first_position;
  model.max_tokens = c.num_positions - c.first_position;
  model.num_token_types = c.num_token_types;
  Result<Graph> body = g.finish();
  if (!body.ok()) return w.with_missing(std::move(body).status());
  model.graph = std::move(body).value();
  const bool classifies =
      w.has("classifier.out_proj.weight") || (w.has("classifier.weight") && w.has(scope + "pooler.dense.weight"));
  if (classifies) {
    const WeightSource& last =
        checkpoint.tensors.at(w.has("classifier.weight") ? "classifier.weight" : "classifier.out_proj.weight");
    c.num_labels = last.view.shape.empty() ? 1 : last.view.shape[0];
    REDLINE_ASSIGN(model.head, build_bert_head(checkpoint, c, scope, w));
    model.num_labels = c.num_labels;
  }
  w.ignore(scope + "embeddings.position_ids");
  for (const std::string& head : {scope + "pooler.", std::string("cls."), std::string("lm_head.")})
    ignore_tensors(checkpoint, w, head);
  REDLINE_TRY(w.expect_all_taken());
  return model;
}

constexpr std::string_view kBertModelTypes[] = {"bert", "roberta", "xlm-roberta", "camembert"};

constexpr GgufName kBertGgufTop[] = {{"token_embd", "embeddings.word_embeddings"},
                                     {"token_embd_norm", "embeddings.LayerNorm"},
                                     {"position_embd", "embeddings.position_embeddings"},
                                     {"token_types", "embeddings.token_type_embeddings"},
                                     {"cls", "classifier.dense"},
                                     {"cls.output", "classifier.out_proj"}};
constexpr GgufName kBertGgufLayer[] = {{"attn_q", "attention.self.query"},
                                       {"attn_k", "attention.self.key"},
                                       {"attn_v", "attention.self.value"},
                                       {"attn_output", "attention.output.dense"},
                                       {"attn_output_norm", "attention.output.LayerNorm"},
                                       {"ffn_up", "intermediate.dense"},
                                       {"ffn_down", "output.dense"},
                                       {"layer_output_norm", "output.LayerNorm"}};

}  // namespace

extern const EncoderFamily kBertFamily = {
    .model_types = kBertModelTypes,
    .gguf = {.architecture = "bert", .top = kBertGgufTop, .layer = kBertGgufLayer, .hf_layers = "encoder.layer."},
    .build = build_bert,
};

}  // namespace redline

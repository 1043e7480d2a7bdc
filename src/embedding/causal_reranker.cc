#include "embedding/causal_reranker.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/mapped_file.h"
#include "embedding/embedding_config.h"
#include "graph/ops/linear.h"

namespace redline {
namespace {

constexpr const char* kScore = "score.weight";

// The prompt that the model card gives.
constexpr const char* kPrefix =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. "
    "Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
constexpr const char* kInstruction = "Given a web search query, retrieve relevant passages that answer the query";
constexpr const char* kSuffix = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

bool is_causal_reranker(const Checkpoint& checkpoint) {
  if (checkpoint.format != "gguf") return is_causal_reranker_folder(checkpoint.path, checkpoint.config);
  const auto pooling = checkpoint.config.find("pooling_type");
  return checkpoint.tensors.count(kScore) > 0 && pooling != checkpoint.config.end() &&
         *pooling == static_cast<int64_t>(GgufPooling::kRank);
}

}  // namespace

std::string CausalReranker::text_of(std::string_view query, std::string_view document) {
  return fmt::format("<Instruct>: {}\n<Query>: {}\n<Document>: {}", kInstruction, query, document);
}

bool is_causal_reranker_folder(const std::string& path, const nlohmann::json& config) {
  if (!config.is_object() || config.value("model_type", nlohmann::json()) != "qwen3") return false;
  if (config.contains("classifier_from_token")) return true;
  const auto architectures = config.find("architectures");
  if (architectures != config.end() && architectures->is_array() &&
      std::find(architectures->begin(), architectures->end(), "Qwen3ForSequenceClassification") != architectures->end())
    return true;
  const auto card = read_text_file(path + "/README.md");
  return card.ok() && card->find("# Qwen3-Reranker") != std::string::npos;
}

Result<std::unique_ptr<CausalReranker>> take_causal_reranker(Checkpoint& checkpoint) {
  if (!is_causal_reranker(checkpoint)) return std::unique_ptr<CausalReranker>();
  const Tokenizer* tokenizer = checkpoint.tokenizer.get();
  if (tokenizer == nullptr)
    return checkpoint.tokenizer_status.ok() ? not_found("no tokenizer") : checkpoint.tokenizer_status;
  ConfigReader r(checkpoint.config);
  const int64_t width = r.integer("hidden_size", 1, INT32_MAX), vocab = r.integer("vocab_size", 1, INT32_MAX);
  REDLINE_TRY(r.status());
  GraphBuilder g("reranker");
  WeightReader w(g, checkpoint);
  const Value pooled = g.input("pooled", DType::kF32, {Dim(Symbol::kSequences), Dim(width)});
  auto reranker = std::make_unique<CausalReranker>();
  Value weight;
  if (const auto score = checkpoint.tensors.find(kScore); score != checkpoint.tensors.end()) {
    const std::vector<int64_t>& shape = score->second.view.shape;
    reranker->num_scores = shape.size() == 2 ? shape[0] : 0;
    if (reranker->num_scores != 1 && reranker->num_scores != 2)
      return unsupported("tensor {} is [{}]; a reranker has one score, or two for \"yes\" and \"no\"",
                         checkpoint.file_name(kScore), fmt::join(shape, ", "));
    weight = w.take(kScore, {reranker->num_scores, width});
    checkpoint.tensors.erase(kScore);
  } else {
    const int32_t rows[] = {tokenizer->find("yes"), tokenizer->find("no")};
    if (rows[0] < 0 || rows[1] < 0)
      return invalid_argument(
          "the tokenizer has no tokens \"yes\" and \"no\", of whose logits a reranker's score is made");
    const char* const head =
        checkpoint.tensors.count("lm_head.weight") > 0 ? "lm_head.weight" : "model.embed_tokens.weight";
    weight = w.take_gathered(
        head, {vocab, width}, 2, [&](int64_t row) { return int64_t{rows[row]}; }, "reranker.weight");
  }
  g.output("scores", linear(g, pooled, weight));
  REDLINE_ASSIGN(reranker->head, g.finish());
  reranker->prefix = tokenizer->encode(kPrefix, {.add_special = false, .parse_special = true});
  reranker->suffix = tokenizer->encode(kSuffix, {.add_special = false, .parse_special = true});
  return reranker;
}

}  // namespace redline

// Detects models that make embeddings. A fuzz target links embedding_config.cc without the models that run, which this
// file needs, so the two are separate.
#include <filesystem>

#include "base/json_text.h"
#include "base/mapped_file.h"
#include "embedding/causal_reranker.h"
#include "formats/gguf.h"
#include "models/registry.h"
#include "redline/embedding.h"

namespace redline {

bool is_embedding_model(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    if (std::filesystem::exists(path + "/modules.json", ignored)) return true;
    const auto text = read_text_file(path + "/config.json");
    if (!text.ok()) return false;
    Checkpoint checkpoint;
    checkpoint.config = parse_json_or_discard<nlohmann::json>(*text);
    return checkpoint.config.is_object() &&
           (find_encoder_family(checkpoint) != nullptr || is_causal_reranker_folder(path, checkpoint.config));
  }
  const auto file = GgufFile::open(path);
  if (!file.ok()) return false;
  const GgufValue* arch = file->find("general.architecture");
  const std::string name(arch ? arch->as_string().value_or("") : "");
  const auto family = find_gguf_family(name);
  Checkpoint checkpoint;
  checkpoint.config = {{"model_type", family.ok() ? family->model_type : ""}};
  const GgufValue* pooling = file->find(name + ".pooling_type");
  return find_encoder_family(checkpoint) != nullptr || (pooling && pooling->as_int().value_or(0) > 0);
}

}  // namespace redline

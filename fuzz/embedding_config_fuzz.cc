// Reads any bytes as the files of a sentence-transformers folder, separated by zero bytes: modules.json, the pooling's
// config.json, sentence_bert_config.json and config_sentence_transformers.json.
#include "embedding/embedding_config.h"
#include "fuzz_file.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FuzzFolder folder;
  std::filesystem::create_directories(folder.path() + "/1_Pooling");
  std::string_view text = fuzz_text(data, size);
  for (const char* name :
       {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "config_sentence_transformers.json"}) {
    const size_t cut = std::min(text.find('\0'), text.size());
    // An empty part stands for a missing file.
    if (cut == 0) std::filesystem::remove(folder.path() + "/" + name);
    else folder.write(name, text.substr(0, cut));
    text.remove_prefix(std::min(cut + 1, text.size()));
  }
  Checkpoint checkpoint;
  checkpoint.path = folder.path();
  checkpoint.format = "safetensors";
  const auto config = read_embedding_config(checkpoint);
  if (!config.ok()) {
    require(!config.status().message().empty());
    return 0;
  }
  require(config->max_length >= 0);
  size_t bytes = config->default_prompt.size();
  for (const auto& [name, prompt] : config->prompts) bytes += name.size() + prompt.size();
  require(bytes <= size);
  return 0;
}

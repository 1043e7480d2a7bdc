#include "models/checkpoint/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"
#include "models/checkpoint/quantized_checkpoint.h"
#include "models/checkpoint/text_part.h"
#include "text/gguf_vocab.h"
#include "text/json_infinities.h"
#include "text/json_reader.h"

namespace redline {
namespace {

Result<nlohmann::json> read_json(const std::string& path) {
  REDLINE_ASSIGN(std::string text, read_text_file(path));
  return parse_json_object(without_infinities(text), path);
}

/// Sets tie_word_embeddings of a decoder by its tensors, as transformers does: a folder without an output matrix uses
/// the embeddings, and one with a matrix of its own uses that, whatever its config says. Models that are saved as a
/// part of a larger one may have that key in either config or in both.
void set_tied_embeddings(Checkpoint& checkpoint) {
  const auto table = checkpoint.tensors.find("model.embed_tokens.weight"),
             head = checkpoint.tensors.find("lm_head.weight");
  if (table == checkpoint.tensors.end()) return;
  nlohmann::json& stated = checkpoint.config["tie_word_embeddings"];
  // The reader of the config reports a value of another type.
  if (!stated.is_null() && !stated.is_boolean()) return;
  bool is_tied = head == checkpoint.tensors.end();
  if (!is_tied) {
    const TensorView &a = table->second.view, &b = head->second.view;
    // Some files hold the tied matrix twice.
    is_tied = a.data && b.data && a.dtype == b.dtype && a.shape == b.shape && stated != false &&
              std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) == 0;
  }
  stated = is_tied;
}

/// Returns a tensor's name with PyTorch's names for the tensors of a norm, weight and bias. BERT's first checkpoints
/// and files that transformers 5 saves call them gamma and beta.
std::string with_norm_named_by_pytorch(std::string name) {
  for (const auto& [old_name, new_name] : {std::pair{"LayerNorm.gamma", "weight"}, {"LayerNorm.beta", "bias"}})
    if (name.ends_with(old_name)) name.replace(name.rfind('.') + 1, std::string::npos, new_name);
  return name;
}

/// A tensor of a folder's weights, whatever their format.
struct FolderTensor {
  std::string name, type_name;  ///< the type as safetensors names it
  TensorView view;              ///< data is nullptr unless F32, F16 or BF16
  std::shared_ptr<const MappedFile> file;
  const uint8_t* bytes_begin = nullptr;  ///< address of the values, whatever their type; nullptr: a file of PyTorch
  bool is_empty = false;
};

/// Reads the safetensors files of a folder or, if it has none, its PyTorch files. PyTorch files beside safetensors
/// files are not read: they are copies of them.
Result<std::vector<FolderTensor>> read_folder_tensors(const std::string& folder, std::string& format) {
  std::vector<FolderTensor> tensors;
  format = "safetensors";
  const auto files = SafetensorsFiles::open_folder(folder);
  if (files.ok()) {
    for (const SafetensorsTensor& t : files->tensors()) {
      const std::shared_ptr<MappedFile>& file = files->files()[static_cast<size_t>(t.part)];
      tensors.push_back({t.name, t.type_name, t.view, file, file->data() + t.file_offset, t.bytes == 0});
    }
    return tensors;
  }
  if (files.status().code() != Code::not_found || !has_torch_weights(folder)) return files.status();
  REDLINE_ASSIGN(const std::vector<TorchFile> torch, open_torch_folder(folder));
  format = "PyTorch";
  for (const TorchFile& file : torch)
    for (const TorchTensor& t : file.tensors())
      tensors.push_back({t.name, std::string(safetensors_type_of(t.type_name)), t.view, file.file(), nullptr,
                         t.view.num_elements() == 0});
  return tensors;
}

Status open_folder(const std::string& folder, Checkpoint& checkpoint) {
  auto config = read_json(folder + "/config.json");
  if (!config.ok() && config.status().code() == Code::not_found)
    return not_found("{} has no config.json: not a Hugging Face model folder", folder);
  REDLINE_TRY(config);
  checkpoint.config = std::move(config).value();
  TextPart part = TextPart::take(checkpoint.config);
  auto generation = read_json(folder + "/generation_config.json");
  if (!generation.ok() && generation.status().code() != Code::not_found) return std::move(generation).status();
  checkpoint.generation = generation.ok() ? std::move(generation).value() : nlohmann::json::object();

  REDLINE_ASSIGN(const std::vector<FolderTensor> tensors, read_folder_tensors(folder, checkpoint.format));
  REDLINE_ASSIGN(const QuantizedReader quantized, find_quantized_reader(checkpoint));
  checkpoint.quantization = quantized.name;
  std::vector<std::string_view> stored;
  for (const FolderTensor& tensor : tensors) stored.push_back(tensor.name);
  part.find_prefix(stored);
  checkpoint.stored_prefix = part.prefix();
  for (const FolderTensor& tensor : tensors) {
    // 0, 1, 2, ..: a buffer, which transformers saved until version 4.31.
    if (tensor.name.ends_with("position_ids") && tensor.type_name == "I64") continue;
    // Causal masks of GPT-2, GPT-Neo, GPT-J and GPT-NeoX, which are buffers too.
    if ((tensor.type_name == "U8" || tensor.type_name == "BOOL") &&
        (tensor.name.ends_with("attn.bias") || tensor.name.ends_with("attention.bias")))
      continue;
    std::string name = with_norm_named_by_pytorch(part.name_of(tensor.name));
    if (name.empty()) continue;
    WeightSource source;
    source.view = tensor.view;
    source.file = tensor.file;
    if (tensor.bytes_begin &&
        std::find(quantized.types.begin(), quantized.types.end(), tensor.type_name) != quantized.types.end()) {
      source.view.dtype = tensor.type_name == "I32"   ? DType::kI32
                          : tensor.type_name == "I64" ? DType::kI64
                                                      : DType::kI8;
      source.view.data = tensor.bytes_begin;
    }
    if (!source.view.data && !tensor.is_empty)
      return unsupported("{}: tensor {} has type {}; Redline reads F32, F16 and BF16", folder, tensor.name,
                         tensor.type_name);
    checkpoint.tensors.emplace(std::move(name), std::move(source));
  }
  if (part.is_part()) {
    checkpoint.left_out = part.left_out();
    const auto table = checkpoint.tensors.find("model.embed_tokens.weight");
    if (!checkpoint.config.contains("vocab_size") && table != checkpoint.tensors.end() &&
        !table->second.view.shape.empty())
      checkpoint.config["vocab_size"] = table->second.view.shape[0];
  }
  if (quantized.read) {
    REDLINE_TRY(quantized.read(checkpoint).within(folder));
    for (const auto& [name, source] : checkpoint.tensors)
      if (source.view.dtype == DType::kI32 || source.view.dtype == DType::kI64)
        return unsupported("{}: tensor {} is {}, which belongs to no matrix of {}", folder, name,
                           dtype_info(source.view.dtype).name, quantized.name);
  }
  set_tied_embeddings(checkpoint);
  auto tokenizer = tokenizer_from_folder(folder);
  if (tokenizer.ok()) checkpoint.tokenizer = std::move(tokenizer).value();
  else checkpoint.tokenizer_status = std::move(tokenizer).status();
  auto source = chat_template_from_folder(folder);
  if (source.ok()) checkpoint.chat_template = std::move(source).value();
  // Otherwise the error of that file is already the error of the tokenizer.
  else if (checkpoint.tokenizer) return std::move(source).status();
  return {};
}

/// Collects the stop tokens of the tokenizer and of the generation config, after both have been read.
void collect_stop_tokens(Checkpoint& checkpoint) {
  if (checkpoint.tokenizer) checkpoint.stop_tokens = checkpoint.tokenizer->stop_tokens();
  const nlohmann::json& named =
      checkpoint.generation.contains("eos_token_id") ? checkpoint.generation : checkpoint.config;
  for (int32_t id : read_token_ids(named, "eos_token_id")) checkpoint.stop_tokens.push_back(id);
  std::sort(checkpoint.stop_tokens.begin(), checkpoint.stop_tokens.end());
  checkpoint.stop_tokens.erase(std::unique(checkpoint.stop_tokens.begin(), checkpoint.stop_tokens.end()),
                               checkpoint.stop_tokens.end());
}

/// Checks that the tokenizer belongs to the model: another one would give ids without a row, or other words. The sizes
/// need not be equal, because vocabularies are padded, and a few tokens may have been added to the tokenizer only.
void check_vocabulary(Checkpoint& checkpoint) {
  const auto rows = checkpoint.config.find("vocab_size");
  if (!checkpoint.tokenizer || rows == checkpoint.config.end() || !rows->is_number_integer()) return;
  constexpr int64_t kMaxAdded = 256, kMaxPadding = 1024;
  const int64_t tokens = checkpoint.tokenizer->vocab_size(), size = rows->get<int64_t>();
  if (tokens <= size + kMaxAdded && (tokens >= size / 2 || size - tokens <= kMaxPadding)) return;
  checkpoint.tokenizer_status =
      invalid_argument("{}: its tokenizer has {} tokens, and the model {}: they belong to different models",
                       checkpoint.path, tokens, size);
  checkpoint.tokenizer.reset();
}

}  // namespace

std::vector<int32_t> read_token_ids(const nlohmann::json& config, const char* key) {
  std::vector<int32_t> ids;
  auto add = [&](const nlohmann::json& value) {
    if (!value.is_number_integer()) return;
    // Unsigned numbers beyond int64 become negative, and are not tokens either.
    if (const auto id = value.get<int64_t>(); id >= 0 && id <= INT32_MAX) ids.push_back(static_cast<int32_t>(id));
  };
  const auto at = config.find(key);
  if (at == config.end()) return ids;
  if (at->is_array()) std::for_each(at->begin(), at->end(), add);
  else add(*at);
  return ids;
}

namespace {

bool is_folder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<Checkpoint> open_hf_folder(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path = path;
  REDLINE_TRY(open_folder(path, checkpoint));
  collect_stop_tokens(checkpoint);
  check_vocabulary(checkpoint);
  return checkpoint;
}

Result<Checkpoint> open_model_file(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return not_found("model {}: no such file or folder", path);
  if (path.ends_with(".safetensors"))
    return invalid_argument("model {}: give the folder that holds it, with its config.json", path);
  if (path.ends_with(".bin"))
    return unsupported(
        "model {}: a .bin checkpoint; turn a llama2.c one into GGUF first: redline convert {} OUT.gguf "
        "--tokenizer TOKENIZER.bin",
        path, path);
  Checkpoint checkpoint;
  checkpoint.path = path;
  REDLINE_ASSIGN(GgufFile file, GgufFile::open(path));
  REDLINE_TRY(checkpoint_from_gguf(file, checkpoint));
  collect_stop_tokens(checkpoint);
  check_vocabulary(checkpoint);
  return checkpoint;
}

}  // namespace

extern const CheckpointOpener kRandomModelOpener;  // models/files/random_model.cc

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  static constexpr CheckpointOpener kFolder = {is_folder, open_hf_folder};
  static constexpr CheckpointOpener kFile = {[](const std::string&) { return true; }, open_model_file};
  for (const CheckpointOpener* opener : {&kRandomModelOpener, &kFolder, &kFile})
    if (opener->takes(path)) return opener->open(path);
  return not_found("model {}: no such file or folder", path);
}

Result<Checkpoint> Checkpoint::from_gguf(std::shared_ptr<MappedFile> file) {
  Checkpoint checkpoint;
  checkpoint.path = file->path();
  REDLINE_ASSIGN(GgufFile gguf, GgufFile::from_parts({std::move(file)}));
  REDLINE_TRY(checkpoint_from_gguf(gguf, checkpoint));
  collect_stop_tokens(checkpoint);
  return checkpoint;
}

}  // namespace redline

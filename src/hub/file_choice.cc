#include "hub/file_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/ascii.h"
#include "base/text_distance.h"

namespace redline {
namespace {

/// The quantizations in the order of preference, for names without a selection. The first two are the choice of
/// llama.cpp, and similar ones follow.
constexpr std::string_view kPreferred[] = {"Q4_K_M", "Q8_0", "Q4_K_XL", "Q4_K_S", "Q4_0", "MXFP4",
                                           "Q5_K_M", "Q6_K", "Q3_K_M",  "BF16",   "F16",  "F32"};

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }
std::string_view folder_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}
bool is_in_root(std::string_view path) { return path.find('/') == std::string_view::npos; }

bool is_gguf(std::string_view path) { return ascii_lower(path).ends_with(".gguf"); }

/// Returns true for the GGUF files of language models: not for image projectors, vocabularies and importance matrices.
bool is_gguf_model(std::string_view path) {
  const std::string name = ascii_lower(base_name(path));
  return is_gguf(path) && name.find("mmproj") == std::string::npos && name.find("imatrix") == std::string::npos &&
         !name.starts_with("ggml-vocab");
}

/// The part number in the name of a split file, which is "-00002-of-00003" before the ending.
struct Part {
  int number = 0, count = 0;  ///< number of this part and of all parts; 0: the file is whole
  std::string stem;           ///< the path without the part number and the ending
};
Part part_of(std::string_view path) {
  constexpr size_t kPartSize = 15, kDigits = 5;
  const size_t dot = path.rfind('.');
  Part part{.stem = std::string(path.substr(0, dot))};
  if (dot == std::string_view::npos || dot < kPartSize) return part;
  const std::string_view text = path.substr(dot - kPartSize, kPartSize);
  if (text[0] != '-' || text.substr(1 + kDigits, 4) != "-of-") return part;
  int numbers[2] = {};
  for (size_t i = 0; i < 2; ++i)
    for (const char c : text.substr(i == 0 ? 1 : kPartSize - kDigits, kDigits)) {
      if (c < '0' || c > '9') return part;
      numbers[i] = numbers[i] * 10 + (c - '0');
    }
  return {numbers[0], numbers[1], std::string(path.substr(0, dot - kPartSize))};
}

const HubFile* find(const std::vector<HubFile>& all, std::string_view path) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const HubFile& f) { return f.path == path; });
  return found == all.end() ? nullptr : &*found;
}

/// Adds the parts of the file `path` in their order, or the file itself if it is whole.
Status take_parts(const std::vector<HubFile>& all, const std::string& path, std::vector<HubFile>& out) {
  const Part first = part_of(path);
  const std::string ending = path.substr(path.rfind('.'));
  std::unordered_map<std::string_view, const HubFile*> by_path;  // a list may name 99,999 parts
  if (first.count > 0)
    for (const HubFile& file : all) by_path.emplace(file.path, &file);
  for (int number = 1; number <= first.count; ++number) {
    const std::string name = fmt::format("{}-{:05}-of-{:05}{}", first.stem, number, first.count, ending);
    const auto file = by_path.find(name);
    if (file == by_path.end()) return not_found("part {} of {} is missing: {}", number, first.count, name);
    out.push_back(*file->second);
  }
  if (first.count == 0) out.push_back(*find(all, path));
  return {};
}

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return result;
}

bool is_quantization(std::string_view word) {
  static constexpr std::string_view kPlain[] = {"F32", "F16", "BF16", "MXFP4", "NVFP4", "FP16", "FP32"};
  if (std::find(std::begin(kPlain), std::end(kPlain), word) != std::end(kPlain)) return true;
  if (word.starts_with("MXFP4_")) return true;
  if (word.starts_with("IQ") || word.starts_with("TQ")) word.remove_prefix(1);
  return word.size() >= 4 && word[0] == 'Q' && word[1] >= '1' && word[1] <= '8' && word[2] == '_' &&
         (word[3] == '0' || word[3] == '1' || word[3] == 'K' || word[3] == 'X' || word[3] == 'S' || word[3] == 'M' ||
          word[3] == 'N');
}

/// Returns true if `tag` occurs in the name of a GGUF file or of its folder as a whole word: Q4_K does not occur in
/// Q4_K_M.
bool has_tag(std::string_view path, std::string_view tag) {
  const std::string where = ascii_lower(path), what = ascii_lower(tag);
  // The name of a type may follow a '_', which is also a part of such names.
  const bool is_type = is_quantization(upper(tag));
  const auto is_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  for (size_t at = where.find(what); at != std::string::npos; at = where.find(what, at + 1)) {
    const size_t end = at + what.size();
    const bool begins = at == 0 || (!is_word(where[at - 1]) && (where[at - 1] != '_' || is_type));
    const bool ends = end == where.size() || (!is_word(where[end]) && where[end] != '_');
    if (begins && ends) return true;
  }
  return false;
}

FileChoice gguf_choice(std::vector<HubFile> files) {
  FileChoice choice{.kind = HubKind::kGguf, .files = std::move(files), .model = ""};
  choice.model = choice.files[0].path;
  return choice;
}

/// Returns the models among the GGUF files: the first part of each, the shortest name first.
std::vector<std::string> gguf_models(const std::vector<HubFile>& all) {
  std::vector<std::string> models;
  for (const HubFile& file : all)
    if (is_gguf_model(file.path) && part_of(file.path).number <= 1) models.push_back(file.path);
  std::sort(models.begin(), models.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return models;
}

Result<FileChoice> choose_gguf(const std::vector<HubFile>& all, const std::string& path) {
  std::vector<HubFile> files;
  REDLINE_TRY(take_parts(all, path, files));
  return gguf_choice(std::move(files));
}

Result<FileChoice> choose_selected(const std::vector<HubFile>& all, const std::string& selection) {
  if (const HubFile* file = find(all, selection)) {
    if (is_gguf(file->path)) return choose_gguf(all, file->path);
    return FileChoice{.kind = HubKind::kFile, .files = {*file}, .model = file->path};
  }
  const std::vector<std::string> models = gguf_models(all);
  for (const std::string& model : models)
    if (has_tag(model, selection)) return choose_gguf(all, model);
  const std::vector<std::string> tags = quantizations_in(all);
  std::vector<std::string_view> names(tags.begin(), tags.end());
  names.reserve(tags.size() + all.size());
  for (const HubFile& file : all) names.emplace_back(file.path);
  const std::string near = did_you_mean(selection, names);
  if (!near.empty() || tags.empty()) return not_found("has no file or quantization \"{}\"{}", selection, near);
  return not_found("has no file or quantization \"{}\"; it has {}", selection, fmt::join(tags, ", "));
}

/// Returns true for text files that belong to a model: configuration, vocabulary, templates. Results and logs of a
/// training are large, and the model does not need them.
bool is_description(std::string_view path) {
  static constexpr std::string_view kNot[] = {"trainer_state.json", "all_results.json", "train_results.json",
                                              "eval_results.json",  "requirements.txt", "params.json"};
  static constexpr std::string_view kEndings[] = {".json", ".txt", ".model", ".jinja", ".spm", ".tiktoken"};
  const std::string_view name = base_name(path);
  if (name.starts_with(".") || std::find(std::begin(kNot), std::end(kNot), name) != std::end(kNot)) return false;
  return std::any_of(std::begin(kEndings), std::end(kEndings), [&](auto ending) { return name.ends_with(ending); });
}

/// Adds the safetensors files of a folder, as the library that wrote it reads them: the file with one of the names
/// below, whole or in parts. If there is none, adds every safetensors file of the folder without a variant, such as
/// "fp16", in its name. With `takes_torch`, PyTorch files replace missing safetensors files.
Status take_weights(const std::vector<HubFile>& all, std::string_view folder, bool takes_torch,
                    std::vector<HubFile>& out) {
  const std::string prefix = folder.empty() ? "" : fmt::format("{}/", folder);
  bool is_found = false;
  const auto take = [&](std::string_view stem, std::string_view ending) -> Status {
    const std::string whole = fmt::format("{}{}{}", prefix, stem, ending);
    is_found = true;
    if (find(all, whole)) return take_parts(all, whole, out);
    for (const HubFile& file : all) {
      const Part part = part_of(file.path);
      if (part.count > 0 && part.stem == fmt::format("{}{}", prefix, stem) && file.path.ends_with(ending))
        return take_parts(all, file.path, out);
    }
    if (find(all, whole + ".index.json"))
      return not_found("{}.index.json is there, and the weights that it lists are not", whole);
    is_found = false;
    return {};
  };
  for (const char* stem : {"model", "diffusion_pytorch_model", "adapter_model", "pytorch_lora_weights"}) {
    REDLINE_TRY(take(stem, ".safetensors"));
    if (is_found) return {};
  }
  for (const HubFile& file : all)
    if (folder_of(file.path) == folder && file.path.ends_with(".safetensors") &&
        base_name(file.path).find(".fp16.") == std::string_view::npos &&
        base_name(file.path).find("consolidated") == std::string_view::npos) {
      out.push_back(file);
      is_found = true;
    }
  for (const char* stem : {"pytorch_model", "diffusion_pytorch_model"})
    if (takes_torch && !is_found) REDLINE_TRY(take(stem, ".bin"));
  return {};
}

bool has_weights(const FileChoice& choice) {
  return std::any_of(choice.files.begin(), choice.files.end(),
                     [](const HubFile& f) { return f.path.ends_with(".safetensors") || f.path.ends_with(".bin"); });
}

Result<FileChoice> choose_folder(const std::vector<HubFile>& all, HubKind kind, bool takes_torch = false) {
  FileChoice choice{.kind = kind, .files = {}, .model = ""};
  std::set<std::string_view> folders = {""};
  for (const HubFile& file : all) {
    const std::string_view folder = folder_of(file.path);
    if (folder.empty() || folder.find('/') != std::string_view::npos) continue;
    // A component of a pipeline, or a module of sentence-transformers ("1_Pooling"), has a description of its own.
    const bool is_module = folder[0] >= '0' && folder[0] <= '9' && folder.find('_') != std::string_view::npos;
    const std::string_view name = base_name(file.path);
    const bool is_component = kind == HubKind::kPipeline && folder != "safety_checker" &&
                              folder != "feature_extractor" &&
                              (name == "config.json" || name == "scheduler_config.json" ||
                               name == "tokenizer_config.json" || name == "tokenizer.json" || name == "vocab.json");
    if ((is_module && name == "config.json") || is_component) folders.insert(folder);
  }
  constexpr size_t kMaxFolders = 64;  // limit, because each folder takes a pass over all files
  if (folders.size() > kMaxFolders)
    return not_found("has {} folders with a configuration of their own; a model has at most {}", folders.size() - 1,
                     kMaxFolders - 1);
  for (const std::string_view folder : folders) {
    for (const HubFile& file : all) {
      const bool is_template = folder.empty() && folder_of(file.path) == "additional_chat_templates";
      if ((folder_of(file.path) == folder || is_template) && is_description(file.path)) choice.files.push_back(file);
    }
    if (kind != HubKind::kPipeline || !folder.empty())
      REDLINE_TRY(take_weights(all, folder, takes_torch, choice.files));
  }
  // Older adapters are PyTorch files.
  const HubFile* old = kind == HubKind::kAdapter ? find(all, "adapter_model.bin") : nullptr;
  if (old && !has_weights(choice)) choice.files.push_back(*old);
  return choice;
}

}  // namespace

std::string_view hub_kind_name(HubKind kind) {
  switch (kind) {
    case HubKind::kGguf: return "gguf";
    case HubKind::kFolder: return "huggingface";
    case HubKind::kPipeline: return "diffusers";
    case HubKind::kAdapter: return "lora";
    case HubKind::kFile: return "file";
  }
  return "";
}

Result<FileChoice> choose_files(const std::vector<HubFile>& all, const std::string& selection) {
  if (all.empty()) return not_found("has no files");
  if (!selection.empty()) return choose_selected(all, selection);
  const std::pair<const char*, HubKind> descriptions[] = {{"model_index.json", HubKind::kPipeline},
                                                          {"adapter_config.json", HubKind::kAdapter},
                                                          {"config.json", HubKind::kFolder}};
  Status incomplete;
  for (const auto& [name, kind] : descriptions) {
    if (!find(all, name)) continue;
    Result<FileChoice> folder = choose_folder(all, kind);
    if (!folder.ok()) incomplete = folder.status();
    else if (has_weights(*folder)) return folder;
  }
  const std::vector<std::string> models = gguf_models(all);
  for (const std::string_view tag : kPreferred)
    for (const std::string& model : models)
      if (has_tag(model, tag)) return choose_gguf(all, model);
  if (!models.empty()) return choose_gguf(all, models[0]);
  for (const auto& [name, kind] : descriptions) {
    if (!find(all, name)) continue;
    Result<FileChoice> folder = choose_folder(all, kind, /*takes_torch=*/true);
    if (folder.ok() && has_weights(*folder)) return folder;
  }
  REDLINE_TRY(std::move(incomplete));
  if (find(all, "pytorch_lora_weights.safetensors")) return choose_folder(all, HubKind::kAdapter);
  const auto single = std::count_if(
      all.begin(), all.end(), [](const HubFile& f) { return is_in_root(f.path) && f.path.ends_with(".safetensors"); });
  if (single > 0)
    return not_found("has safetensors files without a config.json; name one of them, as in hf:owner/name:FILE");
  const bool has_pickles = std::any_of(all.begin(), all.end(), [](const HubFile& f) {
    return f.path.ends_with(".bin") || f.path.ends_with(".pt") || f.path.ends_with(".pth");
  });
  if (has_pickles)
    return unsupported(
        "has only files of PyTorch without a config.json; Redline reads folders of them, safetensors and GGUF");
  return not_found("has no weights in safetensors or GGUF");
}

std::string quantization_of(std::string_view path) {
  // The search goes over the words of the name, then over those of the folders around it. '_' belongs to a word as it
  // does in Q4_K_M.
  const Part part = part_of(path);
  std::string_view rest = part.stem;
  while (!rest.empty()) {
    const size_t cut = rest.find_last_of("-./");
    const std::string_view before = cut == std::string_view::npos ? std::string_view() : rest.substr(0, cut);
    const std::string word = upper(cut == std::string_view::npos ? rest : rest.substr(cut + 1));
    // In "model_Q4_K_M", "model_" is skipped: the type may begin after any '_'.
    for (size_t at = 0;;) {
      if (is_quantization(std::string_view(word).substr(at))) {
        const bool is_dynamic = at == 0 && before.ends_with("UD");
        return (is_dynamic ? "UD-" : "") + word.substr(at);
      }
      const size_t separator = word.find('_', at);
      if (separator == std::string::npos) break;
      at = separator + 1;
    }
    rest = before;
  }
  return "";
}

std::vector<std::string> quantizations_in(const std::vector<HubFile>& files) {
  std::set<std::string> found;
  for (const HubFile& file : files)
    if (is_gguf_model(file.path))
      if (std::string name = quantization_of(file.path); !name.empty()) found.insert(std::move(name));
  return {found.begin(), found.end()};
}

}  // namespace redline

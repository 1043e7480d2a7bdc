#include "formats/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

#include "formats/json_scanner.h"

namespace redline {
namespace {

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // limit of the reference implementation
constexpr size_t kSafetensorsMaxRank = 8;
constexpr size_t kMaxFiles = 4096;
constexpr size_t kMaxTypeName = 15;  // fits the inline buffer of std::string
constexpr std::string_view kMetadata = "__metadata__";

struct TypeRow {
  std::string_view name;
  int64_t bits;
};
// Bits of an element of each type. Types that are listed but not read have a size too, to check the shape of a tensor
// against its offsets.
constexpr TypeRow kTypes[] = {{"F32", 32},    {"F16", 16},    {"BF16", 16},   {"F64", 64},    {"BOOL", 8},
                              {"U8", 8},      {"I8", 8},      {"U16", 16},    {"I16", 16},    {"U32", 32},
                              {"I32", 32},    {"U64", 64},    {"I64", 64},    {"C64", 64},    {"F8_E4M3", 8},
                              {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}};

std::optional<DType> readable_type(std::string_view name) {
  if (name == "F32") return DType::kF32;
  if (name == "F16") return DType::kF16;
  if (name == "BF16") return DType::kBF16;
  return std::nullopt;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

std::string_view file_name(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }

/// Calls on_entry(tensor, file, scanner) for every entry of the index's "weight_map".
template <class F>
Status for_each_placement(const MappedFile& index, F&& on_entry) {
  JsonScanner json(index.path(), index.text());
  bool found = false;
  REDLINE_TRY(json.object([&](const std::string& key) -> Status {
    if (key != "weight_map") return json.skip();
    if (found) return json.error("duplicate \"weight_map\"");
    found = true;
    return json.object([&](const std::string& tensor) -> Status {
      REDLINE_ASSIGN(const std::string file, json.string());
      return on_entry(tensor, file, json);
    });
  }));
  REDLINE_TRY(json.end());
  if (!found) return invalid_argument("{}: there is no \"weight_map\" in this index", index.path());
  return {};
}

}  // namespace

class SafetensorsParser {
 public:
  explicit SafetensorsParser(std::vector<std::shared_ptr<MappedFile>> parts) : budget_(total_bytes(parts)) {
    files_.files_ = std::move(parts);
  }

  Result<SafetensorsFiles> parse(const MappedFile* index) {
    // Count first: one allocation for all tensors, checked against the budget before it is made.
    std::vector<JsonScanner> headers;
    size_t count = 0;
    for (const auto& file : files_.files_) {
      REDLINE_ASSIGN(JsonScanner header, header_of(*file));
      headers.push_back(header);
      REDLINE_TRY(header.object([&](const std::string&) { return ++count, header.skip(); }));
      REDLINE_TRY(header.end());
    }
    constexpr uint64_t kPerTensor = sizeof(SafetensorsTensor) + 48 + 2 * sizeof(uint32_t) + 1;
    if (!budget_.spend(count, kPerTensor))
      return invalid_argument("{}: at byte 8: {} tensors are too many for the size of the file",
                              files_.files_[0]->path(), count);
    files_.tensors_.reserve(count);
    for (size_t i = 0; i < headers.size(); ++i) REDLINE_TRY(read_header(headers[i], static_cast<int>(i)));
    REDLINE_TRY(sort_names());
    if (index != nullptr) REDLINE_TRY(check_index(*index));
    return std::move(files_);
  }

  static Result<std::string> metadata(const MappedFile& file, std::string_view wanted) {
    constexpr size_t kMaxText = 1 << 20;
    std::string text;
    REDLINE_ASSIGN(JsonScanner header, header_of(file));
    REDLINE_TRY(header.object([&](const std::string& name) -> Status {
      if (name != kMetadata) return header.skip();
      return header.object([&](const std::string& key) -> Status {
        if (key != wanted) return header.skip();
        REDLINE_ASSIGN(text, header.string(kMaxText));
        return {};
      });
    }));
    return text;
  }

 private:
  static uint64_t total_bytes(const std::vector<std::shared_ptr<MappedFile>>& parts) {
    uint64_t bytes = 0;
    for (const auto& part : parts) bytes += static_cast<uint64_t>(part->size());
    return bytes;
  }

  static Result<JsonScanner> header_of(const MappedFile& file) {
    ByteReader in(file.path(), file.text());
    const std::string_view beginning = file.text().substr(0, 64);
    uint64_t bytes = 0;
    REDLINE_TRY(in.read(bytes, "header length"));
    // The file more likely has another format than a header of 10^18 bytes.
    const bool is_json = file.size() > 8 && file.text()[8] == '{';
    if (bytes > in.remaining() || bytes > uint64_t{kMaxHeaderBytes} || bytes < 2)
      return in.error_at(0, "{}a header of {} bytes, the file has {} after its length and at most {} are read{}",
                         is_json && bytes <= uint64_t{kMaxHeaderBytes} ? "incomplete: " : "", bytes, in.remaining(),
                         kMaxHeaderBytes, is_json ? std::string() : looks_like(beginning, file.size()));
    std::string_view text;
    REDLINE_TRY(in.take(bytes, text, "header"));
    return JsonScanner(file.path(), text, sizeof(uint64_t));
  }

  Status read_header(JsonScanner json, int part) {
    const MappedFile& file = *files_.files_[part];
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
    const auto start = static_cast<int64_t>(sizeof(header_bytes) + header_bytes);
    const size_t first = files_.tensors_.size();
    bool has_metadata = false;
    REDLINE_TRY(json.object([&](const std::string& name) -> Status {
      if (name != kMetadata) return read_tensor(json, name, part, start, file.size() - start);
      if (has_metadata) return json.error("duplicate {}", kMetadata);
      has_metadata = true;
      return json.skip();
    }));
    return check_overlap(first, file);
  }

  Status read_tensor(JsonScanner& json, const std::string& name, int part, int64_t start, int64_t data_bytes) {
    const uint64_t at = json.offset();
    const auto wrong = [&](std::string_view reason) {
      return invalid_argument("{}: at byte {}: tensor {}: {}", files_.files_[part]->path(), at, in_quotes(name),
                              reason);
    };
    if (name.empty()) return wrong("an empty name");
    if (name.size() > kMaxTypeName && !budget_.spend(1, name.size() + 17))
      return wrong("the names are too long for the size of the file");
    SafetensorsTensor& tensor = files_.tensors_.emplace_back();
    tensor.name = name;
    tensor.part = part;
    bool has_type = false, has_shape = false;
    std::vector<int64_t> offsets;
    const auto numbers = [&](std::vector<int64_t>& list, size_t most, std::string_view what) {
      list.reserve(most);
      return json.array([&]() -> Status {
        if (list.size() == most) return json.error("{} has more than {} numbers", what, most);
        REDLINE_ASSIGN(const int64_t value, json.natural());
        list.push_back(value);
        return {};
      });
    };
    std::vector<int64_t> shape;
    REDLINE_TRY(json.object([&](const std::string& key) -> Status {
      if (key == "dtype" && !has_type) {
        has_type = true;
        REDLINE_ASSIGN(tensor.type_name, json.string(kMaxTypeName));
        return {};
      }
      if (key == "shape" && !has_shape) {
        has_shape = true;
        return numbers(shape, kSafetensorsMaxRank, "shape");
      }
      if (key == "data_offsets" && offsets.empty()) return numbers(offsets, 2, "data_offsets");
      return json.error("{} is unknown or duplicate", in_quotes(key));
    }));
    if (!has_type || !has_shape || offsets.size() != 2) return wrong("dtype, shape and two data_offsets are needed");
    tensor.view.shape.assign(shape.begin(), shape.end());

    if (offsets[0] > offsets[1] || offsets[1] > data_bytes)
      return wrong(fmt::format("incomplete: data_offsets {} to {} do not lie in the {} bytes of data", offsets[0],
                               offsets[1], data_bytes));
    tensor.file_offset = start + offsets[0];
    tensor.bytes = offsets[1] - offsets[0];
    const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                    [&](const TypeRow& row) { return row.name == tensor.type_name; });
    if (type == std::end(kTypes)) return {};  // unknown type: listed without a size check
    int64_t bits = type->bits;
    for (const int64_t size : shape) {
      if (__builtin_mul_overflow(bits, size, &bits)) return wrong("the product of its sizes overflows");
    }
    if (bits % 8 != 0 || bits / 8 != tensor.bytes)
      return wrong(fmt::format("shape [{}] of {} takes {} bytes, data_offsets give {}", fmt::join(shape, ", "),
                               tensor.type_name, bits / 8, tensor.bytes));
    if (const auto dtype = readable_type(tensor.type_name)) {
      tensor.view.dtype = *dtype;
      tensor.view.data = files_.files_[part]->data() + tensor.file_offset;
    }
    return {};
  }

  Status check_overlap(size_t first, const MappedFile& file) {
    std::vector<uint32_t> order(files_.tensors_.size() - first);
    std::iota(order.begin(), order.end(), static_cast<uint32_t>(first));
    // Empty tensors cannot overlap, but would hide an overlap of the tensors around them.
    order.erase(std::remove_if(order.begin(), order.end(), [&](uint32_t i) { return files_.tensors_[i].bytes == 0; }),
                order.end());
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const SafetensorsTensor &x = files_.tensors_[a], &y = files_.tensors_[b];
      return x.file_offset != y.file_offset ? x.file_offset < y.file_offset : a < b;
    });
    for (size_t i = 1; i < order.size(); ++i) {
      const SafetensorsTensor &before = files_.tensors_[order[i - 1]], &after = files_.tensors_[order[i]];
      if (before.file_offset + before.bytes > after.file_offset)
        return invalid_argument("{}: at byte {}: tensors {} and {} overlap: bytes {} to {} and {} to {}", file.path(),
                                after.file_offset, in_quotes(before.name), in_quotes(after.name), before.file_offset,
                                before.file_offset + before.bytes, after.file_offset, after.file_offset + after.bytes);
    }
    return {};
  }

  Status sort_names() {
    auto& order = files_.tensors_by_name_;
    const auto& tensors = files_.tensors_;
    order.resize(tensors.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const int compared = tensors[a].name.compare(tensors[b].name);
      return compared != 0 ? compared < 0 : a < b;
    });
    for (size_t i = 1; i < order.size(); ++i) {
      const SafetensorsTensor &before = tensors[order[i - 1]], &after = tensors[order[i]];
      if (before.name != after.name) continue;
      return invalid_argument("{}: duplicate tensor {}{}", files_.files_[after.part]->path(), in_quotes(after.name),
                              before.part != after.part ? ", first in " + files_.files_[before.part]->path() : "");
    }
    return {};
  }

  Status check_index(const MappedFile& index) {
    std::vector<bool> placed(files_.tensors_.size());
    return for_each_placement(
        index, [&](const std::string& name, const std::string& file, const JsonScanner& json) -> Status {
          const SafetensorsTensor* tensor = files_.tensor(name);
          if (tensor == nullptr)
            return json.error("tensor {} should be in {}, it is in no file", in_quotes(name), in_quotes(file));
          const std::string_view there = file_name(files_.files_[tensor->part]->path());
          if (there != file)
            return json.error("tensor {} should be in {}, it is in {}", in_quotes(name), in_quotes(file),
                              in_quotes(there));
          const auto i = static_cast<size_t>(tensor - files_.tensors_.data());
          if (placed[i]) return json.error("duplicate tensor {}", in_quotes(name));
          placed[i] = true;
          return {};
        });
  }

  SafetensorsFiles files_;
  ListBudget budget_;
};

Result<std::string> SafetensorsFiles::metadata(std::string_view key) const {
  if (files_.empty()) return std::string();
  return SafetensorsParser::metadata(*files_[0], key);
}

Result<std::vector<std::string>> safetensors_index_files(const MappedFile& index) {
  std::vector<std::string> files;
  std::set<std::string> seen;
  REDLINE_TRY(
      for_each_placement(index, [&](const std::string&, const std::string& file, const JsonScanner& json) -> Status {
        if (seen.count(file) != 0) return {};
        if (!is_plain_name(file))
          return json.error("{} is not the name of a file in the index's own folder", in_quotes(file));
        if (files.size() == kMaxFiles) return json.error("more than {} files", kMaxFiles);
        files.push_back(file);
        seen.insert(file);
        return {};
      }));
  if (files.empty()) return invalid_argument("{}: the \"weight_map\" is empty", index.path());
  return files;
}

Result<SafetensorsFiles> SafetensorsFiles::from_parts(std::vector<std::shared_ptr<MappedFile>> parts,
                                                      const MappedFile* index) {
  if (parts.empty()) return invalid_argument("SafetensorsFiles::from_parts: no files");
  return SafetensorsParser(std::move(parts)).parse(index);
}

Result<SafetensorsFiles> SafetensorsFiles::open_file(const std::string& path) {
  REDLINE_ASSIGN(auto file, MappedFile::open(path));
  return from_parts({std::move(file)});
}

namespace {

/// The variants of weights in a folder in order of preference: none, then "fp16" and "bf16", then others by name. They
/// stand in "model.fp16.safetensors" and "model.safetensors.index.fp16.json".
std::vector<std::string> variants_of(const std::filesystem::path& folder) {
  std::vector<std::string> variants = {"", "fp16", "bf16"};
  std::set<std::string> others;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    for (const std::string_view stem : {"model.", "diffusion_pytorch_model."})
      for (const auto& [before, after] :
           {std::pair<std::string_view, std::string_view>{"", ".safetensors"}, {"safetensors.index.", ".json"}}) {
        const std::string begin = fmt::format("{}{}", stem, before);
        if (!name.starts_with(begin) || !name.ends_with(after) || name.size() <= begin.size() + after.size()) continue;
        const std::string variant = name.substr(begin.size(), name.size() - begin.size() - after.size());
        if (variant.find_first_of(".-") == std::string::npos) others.insert(variant);
      }
  }
  others.erase("fp16");
  others.erase("bf16");
  variants.insert(variants.end(), others.begin(), others.end());
  return variants;
}

}  // namespace

Result<SafetensorsFiles> SafetensorsFiles::open_folder(const std::string& folder) {
  const std::filesystem::path base(folder);
  std::error_code ignored;
  const auto exists = [&](std::string_view name) { return std::filesystem::exists(base / name, ignored); };
  // The names of transformers and of diffusers; a variant ("fp16") only where there are no weights without one.
  constexpr std::string_view kStems[] = {"model", "diffusion_pytorch_model"};
  std::string index_path;
  for (const std::string& variant : variants_of(base)) {
    for (const std::string_view stem : kStems) {
      const std::string infix = variant.empty() ? "" : "." + variant;
      if (const std::string file = fmt::format("{}{}.safetensors", stem, infix); exists(file))
        return open_file((base / file).string());
      if (const std::string index = fmt::format("{}.safetensors.index{}.json", stem, infix); exists(index)) {
        index_path = (base / index).string();
        break;
      }
    }
    if (!index_path.empty()) break;
  }
  if (index_path.empty())
    return not_found("{}: the folder has neither model.safetensors nor model.safetensors.index.json", folder);
  REDLINE_ASSIGN(auto index, MappedFile::open(index_path));
  REDLINE_ASSIGN(const auto names, safetensors_index_files(*index));
  std::vector<std::shared_ptr<MappedFile>> parts;
  for (const std::string& name : names) {
    auto part = MappedFile::open((base / name).string());
    if (!part.ok() && part.status().code() == Code::not_found)
      return not_found("{}: incomplete: {} is missing, which {} names", folder, name,
                       std::filesystem::path(index_path).filename().string());
    REDLINE_TRY(part);
    parts.push_back(std::move(part).value());
  }
  return from_parts(std::move(parts), index.get());
}

const SafetensorsTensor* SafetensorsFiles::tensor(std::string_view name) const {
  const auto at = std::lower_bound(tensors_by_name_.begin(), tensors_by_name_.end(), name,
                                   [&](uint32_t i, std::string_view text) { return tensors_[i].name < text; });
  return at != tensors_by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

Status SafetensorsFiles::require_readable() const {
  for (const SafetensorsTensor& tensor : tensors_) {
    if (tensor.view.data == nullptr)
      return unsupported("{}: tensor {} has type {}; Redline reads F32, F16 and BF16", files_[tensor.part]->path(),
                         in_quotes(tensor.name), in_quotes(tensor.type_name));
  }
  return {};
}

}  // namespace redline

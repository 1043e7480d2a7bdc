#include "formats/torch_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "formats/byte_reader.h"
#include "formats/pickle.h"
#include "formats/safetensors.h"
#include "formats/zip_directory.h"

namespace redline {
namespace {

using TorchKind = PickleValue::Kind;

constexpr size_t kMaxAxes = 8;

class TorchReader {
 public:
  explicit TorchReader(const MappedFile& file) : file_(file) {}

  Result<std::vector<TorchTensor>> read() {
    REDLINE_TRY(open_archive());
    const ZipMember& member = members_.at("data.pkl");
    REDLINE_ASSIGN(pickle_, Pickle::read(file_.path(), member.offset, bytes_of(member)));
    uint32_t dictionary = pickle_.root;
    if (const uint32_t inner = find(dictionary, "state_dict"); inner != kNothing) dictionary = inner;
    const PickleValue& root = pickle_.at(dictionary);
    if (root.kind != TorchKind::kDict)
      return invalid_argument("{}: holds {}, not a dictionary of tensors", file_.path(), spell(root));
    std::vector<TorchTensor> tensors;
    std::set<std::string_view> names;
    for (size_t i = 0; i + 1 < root.items.size(); i += 2) {
      const PickleValue &key = pickle_.at(root.items[i]), *value = &pickle_.at(root.items[i + 1]);
      if (is_plain(*value)) continue;
      if (key.kind != TorchKind::kText)
        return invalid_argument("{}: the name of a tensor is {}, expected a text", file_.path(), spell(key));
      if (!names.insert(key.text).second)
        return invalid_argument("{}: duplicate tensor {}", file_.path(), in_quotes(key.text));
      // torch.nn.Parameter: a tensor with flags.
      if (is_call(*value, "torch._utils", "_rebuild_parameter")) {
        const PickleValue& arguments = pickle_.at(value->items[1]);
        if (!arguments.items.empty()) value = &pickle_.at(arguments.items[0]);
      }
      TorchTensor tensor;
      tensor.name = std::string(key.text);
      REDLINE_TRY(read_tensor(*value, tensor).within(fmt::format("{}: tensor {}", file_.path(), in_quotes(key.text))));
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

 private:
  static constexpr uint32_t kNothing = ~uint32_t{0};

  std::string_view bytes_of(const ZipMember& member) const {
    return file_.text().substr(static_cast<size_t>(member.offset), static_cast<size_t>(member.bytes));
  }

  /// Indexes the archive members by their names within its single folder.
  Status open_archive() {
    if (file_.text().starts_with("\x80\x02\x8a\x0a"))
      return unsupported("{}: the format of PyTorch before 1.6; load it there and save it again", file_.path());
    REDLINE_ASSIGN(const auto members, read_zip_directory(file_));
    std::string_view folder;
    for (const ZipMember& member : members)
      if (const size_t slash = member.name.find('/');
          member.name.substr(slash + 1) == "data.pkl" && slash != std::string_view::npos)
        folder = member.name.substr(0, slash + 1);
    if (folder.empty())
      return invalid_argument("{}: a zip archive without data.pkl: not what torch.save writes", file_.path());
    for (const ZipMember& member : members) {
      if (!member.name.starts_with(folder)) continue;
      const std::string_view name = member.name.substr(folder.size());
      if (!member.is_stored && (name == "data.pkl" || name == "byteorder" || name.starts_with("data/")))
        return unsupported("{}: member {} is compressed or encrypted", file_.path(), in_quotes(member.name));
      if (!members_.emplace(name, member).second)
        return invalid_argument("{}: duplicate member {}", file_.path(), in_quotes(member.name));
    }
    if (const auto order = members_.find("byteorder"); order != members_.end() && bytes_of(order->second) != "little")
      return unsupported("{}: its byte order is not little-endian", file_.path());
    return {};
  }

  uint32_t find(uint32_t dictionary, std::string_view key) const {
    const PickleValue& d = pickle_.at(dictionary);
    if (d.kind != TorchKind::kDict) return kNothing;
    for (size_t i = 0; i + 1 < d.items.size(); i += 2)
      if (const PickleValue& k = pickle_.at(d.items[i]); k.kind == TorchKind::kText && k.text == key)
        return d.items[i + 1];
    return kNothing;
  }
  bool is_plain(const PickleValue& v) const { return v.kind <= TorchKind::kList; }
  bool is_call(const PickleValue& v, std::string_view module, std::string_view name) const {
    if (v.kind != TorchKind::kCall) return false;
    const PickleValue& f = pickle_.at(v.items[0]);
    return f.kind == TorchKind::kGlobal && f.module == module && f.text == name &&
           pickle_.at(v.items[1]).kind == TorchKind::kTuple;
  }
  std::string spell(const PickleValue& v) const {
    const PickleValue& named = v.kind == TorchKind::kCall ? pickle_.at(v.items[0]) : v;
    if (named.kind == TorchKind::kGlobal) return fmt::format("{}.{}", in_quotes(named.module), in_quotes(named.text));
    constexpr std::string_view kNames[] = {"None",   "a truth value", "a number",       "a number",
                                           "a text", "a tuple",       "a list",         "a dictionary",
                                           "a name", "a call",        "an outer object"};
    return std::string(kNames[v.kind]);
  }

  /// Reads sizes or strides.
  Status read_sizes(const PickleValue& v, std::vector<int64_t>& sizes) const {
    if (v.kind != TorchKind::kTuple || v.items.size() > kMaxAxes) return invalid_argument("its sizes are {}", spell(v));
    for (const uint32_t i : v.items) {
      const PickleValue& n = pickle_.at(i);
      if (n.kind != TorchKind::kInt || n.number < 0) return invalid_argument("a size is not a whole number");
      sizes.push_back(n.number);
    }
    return {};
  }

  // (storage, offset in elements, sizes, strides, ...), where storage is ("storage", type, member, device, elements).
  Status read_tensor(const PickleValue& v, TorchTensor& tensor) const {
    if (!is_call(v, "torch._utils", "_rebuild_tensor_v2")) return unsupported("is {}, not a dense tensor", spell(v));
    const std::vector<uint32_t>& arguments = pickle_.at(v.items[1]).items;
    if (arguments.size() < 4) return invalid_argument("has {} values, not four or more", arguments.size());
    const PickleValue &persistent = pickle_.at(arguments[0]), &offset = pickle_.at(arguments[1]);
    if (persistent.kind != TorchKind::kPersistent || pickle_.at(persistent.items[0]).kind != TorchKind::kTuple)
      return invalid_argument("has no storage");
    const std::vector<uint32_t>& parts = pickle_.at(persistent.items[0]).items;
    if (parts.size() < 5) return invalid_argument("its storage is described by {} values, not five", parts.size());
    const PickleValue &type = pickle_.at(parts[1]), &key = pickle_.at(parts[2]), &elements = pickle_.at(parts[4]);
    if (type.kind != TorchKind::kGlobal || key.kind != TorchKind::kText || elements.kind != TorchKind::kInt ||
        elements.number < 0 || offset.kind != TorchKind::kInt || offset.number < 0)
      return invalid_argument("its storage is not described as PyTorch does");
    tensor.type_name = std::string(type.text);

    std::vector<int64_t> strides;
    REDLINE_TRY(read_sizes(pickle_.at(arguments[2]), tensor.view.shape));
    REDLINE_TRY(read_sizes(pickle_.at(arguments[3]), strides));
    const std::vector<int64_t>& shape = tensor.view.shape;
    if (strides.size() != shape.size())
      return invalid_argument("has {} axes and {} strides", shape.size(), strides.size());
    const bool is_empty = std::count(shape.begin(), shape.end(), 0) > 0;
    int64_t count = 1;
    for (size_t axis = shape.size(); axis-- > 0 && !is_empty;) {
      if (shape[axis] != 1 && strides[axis] != count)
        return unsupported("is not dense: the stride of axis {} is {} elements, expected {}", axis, strides[axis],
                           count);
      if (__builtin_mul_overflow(count, shape[axis], &count))
        return invalid_argument("the product of its sizes overflows");
    }
    if (is_empty) count = 0;
    if (count > elements.number || offset.number > elements.number - count)
      return invalid_argument("{} elements from {} do not lie within its storage of {}", count, offset.number,
                              elements.number);

    const auto member = members_.find(fmt::format("data/{}", key.text));
    if (member == members_.end()) return invalid_argument("its storage {} is not in the file", in_quotes(key.text));
    const std::pair<std::string_view, DType> kReadable[] = {
        {"FloatStorage", DType::kF32}, {"HalfStorage", DType::kF16}, {"BFloat16Storage", DType::kBF16}};
    for (const auto& [name, dtype] : kReadable) {
      if (type.module != "torch" || type.text != name) continue;
      const int64_t element_bytes = dtype_info(dtype).block_bytes;
      if (elements.number > member->second.bytes / element_bytes)
        return invalid_argument("its storage of {} elements has {} bytes", elements.number, member->second.bytes);
      tensor.view.dtype = dtype;
      tensor.view.data = file_.data() + member->second.offset + offset.number * element_bytes;
    }
    return {};
  }

  const MappedFile& file_;
  std::map<std::string, ZipMember, std::less<>> members_;
  Pickle pickle_;
};

}  // namespace

Result<TorchFile> TorchFile::from_file(std::shared_ptr<MappedFile> file) {
  TorchFile torch;
  REDLINE_ASSIGN(torch.tensors_, TorchReader(*file).read());
  torch.file_ = std::move(file);
  return torch;
}

Result<TorchFile> TorchFile::open(const std::string& path) {
  REDLINE_ASSIGN(auto file, MappedFile::open(path));
  return from_file(std::move(file));
}

namespace {

/// The names of the weights in a folder, and the index that lists them, if there is one.
struct TorchNames {
  std::vector<std::string> files;
  std::string index;
};

Result<TorchNames> find_torch_names(const std::string& folder) {
  const std::filesystem::path base(folder);
  std::error_code ignored;
  for (const std::string_view variant : {"", ".fp16", ".bf16"})
    for (const std::string_view stem : {"pytorch_model", "diffusion_pytorch_model"}) {
      const std::string file = fmt::format("{}{}.bin", stem, variant);
      if (std::filesystem::exists(base / file, ignored)) return TorchNames{{file}, ""};
      const std::string index = fmt::format("{}.bin.index{}.json", stem, variant);
      if (!std::filesystem::exists(base / index, ignored)) continue;
      REDLINE_ASSIGN(const auto text, MappedFile::open((base / index).string()));
      REDLINE_ASSIGN(std::vector<std::string> files, safetensors_index_files(*text));
      return TorchNames{std::move(files), index};
    }
  return not_found("{}: the folder has no pytorch_model.bin", folder);
}

}  // namespace

bool has_torch_weights(const std::string& folder) {
  return find_torch_names(folder).status().code() != Code::not_found;
}

Result<std::vector<TorchFile>> open_torch_folder(const std::string& folder) {
  REDLINE_ASSIGN(const TorchNames names, find_torch_names(folder));
  std::vector<TorchFile> files;
  std::set<std::string_view> tensors;
  for (const std::string& name : names.files) {
    auto file = TorchFile::open((std::filesystem::path(folder) / name).string());
    if (!file.ok() && file.status().code() == Code::not_found)
      return not_found("{}: incomplete: {} is missing, which {} names", folder, name, names.index);
    REDLINE_TRY(file);
    files.push_back(std::move(file).value());
    for (const TorchTensor& tensor : files.back().tensors())
      if (!tensors.insert(tensor.name).second)
        return invalid_argument("{}: duplicate tensor {}", files.back().path(), in_quotes(tensor.name));
  }
  return files;
}

std::string_view safetensors_type_of(std::string_view storage) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"FloatStorage", "F32"}, {"HalfStorage", "F16"}, {"BFloat16Storage", "BF16"}, {"DoubleStorage", "F64"},
      {"LongStorage", "I64"},  {"IntStorage", "I32"},  {"ShortStorage", "I16"},     {"CharStorage", "I8"},
      {"ByteStorage", "U8"},   {"BoolStorage", "BOOL"}};
  for (const auto& [torch, safetensors] : kNames)
    if (storage == torch) return safetensors;
  return storage;
}

}  // namespace redline

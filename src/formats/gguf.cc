// Parser of a GGUF file or of all parts of a split. Opening by name: gguf_open.cc; values: gguf_value.cc.
#include "formats/gguf.h"

#include <algorithm>
#include <numeric>

#include "formats/gguf_parser.h"

namespace redline {
namespace {

// Minimum bytes per entry: impossible counts are rejected before anything is allocated.
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;             // length, name, type, value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // length, name, rank, one size, type, offset
constexpr uint64_t kMaxKeyBytes = 65535;                     // the format's own limit
constexpr uint64_t kMaxNameBytes = 1024;                     // ggml stops at 63, stable-diffusion.cpp at 127
constexpr uint32_t kGgufMaxRank = 4;

/// Longer strings need a heap allocation besides the std::string.
constexpr size_t kInlineString = 15;
uint64_t string_heap_bytes(size_t length) { return length > kInlineString ? length + 17 : 0; }

struct BlockSize {
  uint32_t gguf_type;
  int64_t elements, bytes;
};
// ggml types that are listed but not read. Their sizes are still checked against the file.
constexpr BlockSize kUnreadTypes[] = {{9, 32, 36},   {15, 256, 292}, {16, 256, 66}, {17, 256, 74},
                                      {18, 256, 98}, {19, 256, 50},  {22, 256, 82}, {29, 256, 56},
                                      {40, 64, 36},  {41, 128, 18},  {42, 64, 18}};

std::optional<BlockSize> block_size(uint32_t gguf_type) {
  if (const DTypeInfo* known = dtype_from_gguf(gguf_type))
    return BlockSize{gguf_type, known->block_elements, known->block_bytes};
  for (const BlockSize& row : kUnreadTypes) {
    if (row.gguf_type == gguf_type) return row;
  }
  return std::nullopt;
}

std::string type_label(uint32_t gguf_type) {
  const std::string_view name = gguf_type_name(gguf_type);
  return name.empty() ? fmt::format("number {}", gguf_type) : std::string(name);
}

Status check_bools(const ByteReader& reader, std::string_view payload) {
  for (size_t i = 0; i < payload.size(); ++i) {
    const auto byte = static_cast<unsigned char>(payload[i]);
    if (byte > 1)
      return reader.error_at(reader.offset() - payload.size() + i, "a bool is 0 or 1, this one is {}", byte);
  }
  return {};
}

Status read_array(ByteReader& reader, GgufValue& value, int depth) {
  if (depth >= kMaxGgufArrayDepth)
    return reader.error_at(reader.offset(), "arrays nested more than {} deep", kMaxGgufArrayDepth);
  const uint64_t at = reader.offset();
  uint32_t element_type = 0;
  REDLINE_TRY(reader.read(element_type, "array element type"));
  if (element_type >= kNumGgufTypes)
    return reader.error_at(at, "unknown array element type {}; expected 0 to {}", element_type, kNumGgufTypes - 1);
  value.element_type = static_cast<GgufType>(element_type);
  REDLINE_TRY(reader.read(value.count, "array length"));

  const uint64_t start = reader.offset();
  const uint64_t fixed = gguf_fixed_bytes(value.element_type);
  const uint64_t least = fixed != 0 ? fixed : value.element_type == GgufType::kString ? 8 : 12;
  if (value.count > reader.remaining() / least)
    return reader.error_at(at + 4, "incomplete: an array of {} x {} needs at least {} bytes each, {} bytes are left",
                           value.count, gguf_value_type_name(value.element_type), least, reader.remaining());
  if (fixed != 0) {
    REDLINE_TRY(reader.take(value.count * fixed, value.payload, "array"));
    return value.element_type == GgufType::kBool ? check_bools(reader, value.payload) : Status();
  }
  GgufValue element;
  element.type = value.element_type;
  for (uint64_t i = 0; i < value.count; ++i) REDLINE_TRY(read_gguf_payload(reader, element, depth + 1));
  value.payload = reader.since(start);
  return {};
}

/// Indices of the entries sorted by name, for binary search.
template <class Entries, class Name>
std::vector<uint32_t> sorted_by_name(const Entries& entries, Name name) {
  std::vector<uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int compared = name(entries[a]).compare(name(entries[b]));
    return compared != 0 ? compared < 0 : a < b;
  });
  return order;
}

template <class Entries, class Name>
auto find_by_name(const Entries& entries, const std::vector<uint32_t>& order, std::string_view wanted, Name name) {
  const auto at = std::lower_bound(order.begin(), order.end(), wanted,
                                   [&](uint32_t i, std::string_view text) { return name(entries[i]) < text; });
  return at != order.end() && name(entries[*at]) == wanted ? &entries[*at] : nullptr;
}

using KeyValue = std::pair<std::string, GgufValue>;
const std::string& key_name(const KeyValue& entry) { return entry.first; }
const std::string& tensor_name(const GgufTensor& tensor) { return tensor.name; }

const GgufValue* find_key(const std::vector<KeyValue>& metadata, std::string_view key) {
  for (const auto& [name, value] : metadata) {
    if (name == key) return &value;
  }
  return nullptr;
}

}  // namespace

Status read_gguf_payload(ByteReader& reader, GgufValue& value, int depth) {
  value.count = 1;
  if (value.type == GgufType::kArray) return read_array(reader, value, depth);
  if (value.type == GgufType::kString) {
    uint64_t length = 0;
    REDLINE_TRY(reader.read(length, "string length"));
    return reader.take(length, value.payload, "string");
  }
  REDLINE_TRY(reader.take(gguf_fixed_bytes(value.type), value.payload, gguf_value_type_name(value.type)));
  return value.type == GgufType::kBool ? check_bools(reader, value.payload) : Status();
}

class GgufParser {
 public:
  explicit GgufParser(std::vector<std::shared_ptr<MappedFile>> parts) : budget_(total_bytes(parts)) {
    file_.files_ = std::move(parts);
    file_.path_ = file_.files_[0]->path();
  }

  /// `check_split` false: only this file, ignoring its split metadata.
  Result<GgufFile> parse(bool check_split) {
    std::vector<Part> parts;
    uint64_t num_tensors = 0;
    for (const auto& file : file_.files_) {
      Part& part = parts.emplace_back(Part{ByteReader(file->path(), file->text())});
      REDLINE_TRY(read_header(part, *file));
      num_tensors += part.num_tensors;
    }
    // One allocation for all parts: growing would hold the old and new arrays at once.
    file_.tensors_.reserve(num_tensors);
    info_offsets_.reserve(num_tensors);
    for (size_t i = 0; i < parts.size(); ++i) REDLINE_TRY(read_part(parts[i], static_cast<int>(i)));
    if (check_split) REDLINE_TRY(check_split_counts(parts));

    file_.tensors_by_name_ = sorted_by_name(file_.tensors_, tensor_name);
    REDLINE_TRY(refuse_duplicate_tensors());
    return std::move(file_);
  }

 private:
  struct Part {
    ByteReader reader;
    uint32_t version = 0;
    uint64_t num_tensors = 0, num_keys = 0;
    uint64_t alignment = 32;
    std::optional<int64_t> split_no, split_count, split_tensors;
  };

  static uint64_t total_bytes(const std::vector<std::shared_ptr<MappedFile>>& parts) {
    uint64_t bytes = 0;
    for (const auto& part : parts) bytes += static_cast<uint64_t>(part->size());
    return bytes;
  }

  Status read_header(Part& part, const MappedFile& file) {
    ByteReader& in = part.reader;
    if (file.text().substr(0, 4) != "GGUF")
      return invalid_argument("{}: at byte 0: not a GGUF file: the magic is {}, expected \"GGUF\"{}", file.path(),
                              in_quotes(file.text().substr(0, 4)), looks_like(file.text().substr(0, 64), file.size()));
    uint32_t magic = 0;
    REDLINE_TRY(in.read(magic, "magic"));
    REDLINE_TRY(in.read(part.version, "version"));
    if (part.version != 0 && (part.version & 0xffff) == 0)
      return unsupported("{}: at byte 4: a big-endian GGUF file; Redline reads little-endian ones", file.path());
    if (part.version == 1)
      return unsupported("{}: at byte 4: GGUF version 1; Redline reads 2 and 3: convert the original model again",
                         file.path());
    if (part.version != 2 && part.version != 3)
      return unsupported("{}: at byte 4: GGUF version {}; Redline reads 2 and 3", file.path(), part.version);
    REDLINE_TRY(in.read(part.num_tensors, "tensor count"));
    REDLINE_TRY(in.read(part.num_keys, "metadata count"));
    if (part.num_tensors > in.remaining() / kMinTensorBytes)
      return in.error_at(8, "incomplete: {} tensors declared, the {} bytes left hold at most {}", part.num_tensors,
                         in.remaining(), in.remaining() / kMinTensorBytes);
    if (part.num_keys > in.remaining() / kMinKeyBytes)
      return in.error_at(16, "incomplete: {} metadata keys declared, the {} bytes left hold at most {}", part.num_keys,
                         in.remaining(), in.remaining() / kMinKeyBytes);
    // Besides the entry: its shape, and the indices and offsets that the checks sort.
    constexpr uint64_t kPerTensor = sizeof(GgufTensor) + 48 + 2 * sizeof(uint32_t) + sizeof(uint64_t);
    constexpr uint64_t kPerKey = sizeof(KeyValue) + sizeof(uint32_t);
    if (!budget_.spend(part.num_tensors, kPerTensor) || !budget_.spend(part.num_keys, kPerKey))
      return in.error_at(8, "{} tensors and {} metadata keys are too many for a file of {} bytes", part.num_tensors,
                         part.num_keys, in.size());
    return {};
  }

  Status read_part(Part& part, int index) {
    std::vector<KeyValue> metadata;
    REDLINE_TRY(read_metadata(part, metadata));
    std::vector<uint32_t> order = sorted_by_name(metadata, key_name);
    for (size_t i = 1; i < order.size(); ++i) {
      const std::string& key = metadata[order[i]].first;
      if (key != metadata[order[i - 1]].first) continue;
      const auto at =
          static_cast<uint64_t>(metadata[order[i]].second.payload.data() - file_.files_[index]->text().data());
      return part.reader.error_at(at, "duplicate metadata key {}", in_quotes(key));
    }
    REDLINE_TRY(take_settings(part, metadata));

    const size_t first = file_.tensors_.size();
    for (uint64_t i = 0; i < part.num_tensors; ++i) REDLINE_TRY(read_tensor(part, index));
    REDLINE_TRY(place_tensors(part, first));
    if (index == 0) {
      file_.version_ = part.version;
      file_.alignment_ = part.alignment;
      file_.metadata_ = std::move(metadata);
      file_.keys_by_name_ = std::move(order);
    }
    return {};
  }

  /// Reads a length-prefixed name and charges it to the budget.
  Status read_name(ByteReader& in, uint64_t max_bytes, std::string_view what, std::string& name,
                   std::string_view place) {
    const uint64_t at = in.offset();
    uint64_t length = 0;
    REDLINE_TRY(in.read(length, what));
    if (length == 0) return in.error_at(at, "an empty {}", what);
    std::string_view bytes;
    REDLINE_TRY(in.take(length, bytes, what));
    if (length > max_bytes) return in.error_at(at, "a {} of {} bytes, at most {} are allowed", what, length, max_bytes);
    if (!budget_.spend(1, string_heap_bytes(length)))
      return in.error_at(at, "the names are too long for a file of {} bytes", in.size());
    name = bytes;
    in.set_place(place, bytes);
    return {};
  }

  Status read_metadata(Part& part, std::vector<KeyValue>& metadata) {
    ByteReader& in = part.reader;
    metadata.reserve(part.num_keys);
    for (uint64_t i = 0; i < part.num_keys; ++i) {
      auto& [key, value] = metadata.emplace_back();
      REDLINE_TRY(read_name(in, kMaxKeyBytes, "metadata key", key, "metadata"));
      const uint64_t at = in.offset();
      uint32_t type = 0;
      REDLINE_TRY(in.read(type, "value type"));
      if (type >= kNumGgufTypes)
        return in.error_at(at, "unknown value type {}; expected 0 to {}", type, kNumGgufTypes - 1);
      value.type = static_cast<GgufType>(type);
      REDLINE_TRY(read_gguf_payload(in, value));
      in.set_place();
    }
    return {};
  }

  Status take_settings(Part& part, const std::vector<KeyValue>& metadata) {
    const auto integer = [&](std::string_view key, std::optional<int64_t>& target) -> Status {
      const GgufValue* value = find_key(metadata, key);
      if (value == nullptr) return {};
      target = value->as_int();
      if (!target)
        return invalid_argument("{}: metadata {} is {}, expected an integer", part.reader.path(), key,
                                value->to_string());
      return {};
    };
    std::optional<int64_t> alignment;
    REDLINE_TRY(integer("general.alignment", alignment));
    REDLINE_TRY(integer("split.no", part.split_no));
    REDLINE_TRY(integer("split.count", part.split_count));
    REDLINE_TRY(integer("split.tensors.count", part.split_tensors));
    if (alignment) {
      if (*alignment <= 0 || (*alignment & (*alignment - 1)) != 0) {
        const auto at = static_cast<uint64_t>(find_key(metadata, "general.alignment")->payload.data() -
                                              (part.reader.since(0).data()));
        return part.reader.error_at(at, "general.alignment is {}, expected a power of two", *alignment);
      }
      part.alignment = static_cast<uint64_t>(*alignment);
    }
    return {};
  }

  Status read_tensor(Part& part, int index) {
    ByteReader& in = part.reader;
    const uint64_t at = in.offset();
    info_offsets_.push_back(at);
    GgufTensor& tensor = file_.tensors_.emplace_back();
    tensor.part = index;
    REDLINE_TRY(read_name(in, kMaxNameBytes, "tensor name", tensor.name, "tensor"));
    uint32_t rank = 0;
    REDLINE_TRY(in.read(rank, "tensor rank"));
    if (rank == 0 || rank > kGgufMaxRank) return in.error_at(at, "{} dimensions, expected 1 to {}", rank, kGgufMaxRank);

    std::vector<int64_t>& shape = tensor.view.shape;
    shape.resize(rank);
    int64_t elements = 1;
    for (uint32_t i = 0; i < rank; ++i) {  // the file stores the innermost size first
      uint64_t size = 0;
      REDLINE_TRY(in.read(size, "tensor size"));
      if (size == 0) return in.error_at(at, "dimension {} has size 0", i);
      if (size > uint64_t{INT64_MAX} || __builtin_mul_overflow(elements, static_cast<int64_t>(size), &elements))
        return in.error_at(at, "the product of its sizes overflows at dimension {} of size {}", i, size);
      shape[rank - 1 - i] = static_cast<int64_t>(size);
    }
    REDLINE_TRY(in.read(tensor.gguf_type, "tensor type"));
    uint64_t offset = 0;
    REDLINE_TRY(in.read(offset, "tensor offset"));
    if (offset % part.alignment != 0)
      return in.error_at(at, "offset {} is not a multiple of the alignment {}", offset, part.alignment);
    if (offset > in.size())
      return in.error_at(at, "incomplete: offset {} is beyond the end of the file ({} bytes)", offset, in.size());
    tensor.file_offset = static_cast<int64_t>(offset);  // place_tensors adds the start of the data

    if (const auto block = block_size(tensor.gguf_type)) {
      if (shape.back() % block->elements != 0)
        return in.error_at(at, "rows of {} elements, type {} needs a multiple of {}", shape.back(),
                           type_label(tensor.gguf_type), block->elements);
      if (__builtin_mul_overflow(elements / block->elements, block->bytes, &tensor.bytes))
        return in.error_at(at, "its size in bytes overflows");
    }
    in.set_place();
    return {};
  }

  /// Data begins at the first multiple of the alignment after the tensor list. Checks that tensors are inside the file
  /// and do not overlap.
  Status place_tensors(Part& part, size_t first) {
    const ByteReader& in = part.reader;
    const size_t count = file_.tensors_.size() - first;
    if (count == 0) return {};
    const uint64_t padding = (part.alignment - in.offset() % part.alignment) % part.alignment;
    if (padding > in.remaining())
      return in.error_at(in.offset(),
                         "incomplete: the file ends early: the tensor data should begin at byte {}, alignment {}",
                         in.offset() + padding, part.alignment);
    const auto start = static_cast<int64_t>(in.offset() + padding);
    const int64_t data_bytes = static_cast<int64_t>(in.size()) - start;
    const MappedFile& file = *file_.files_[file_.tensors_[first].part];

    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), static_cast<uint32_t>(first));
    for (const uint32_t i : order) {
      GgufTensor& tensor = file_.tensors_[i];
      if (tensor.file_offset > data_bytes || tensor.bytes > data_bytes - tensor.file_offset)
        return in.error_at(
            info_offsets_[i],
            "incomplete: tensor {}: its {} bytes at offset {} end beyond the file: the data has {} bytes",
            in_quotes(tensor.name), tensor.bytes, tensor.file_offset, data_bytes);
      tensor.file_offset += start;
      if (const DTypeInfo* known = dtype_from_gguf(tensor.gguf_type)) {
        tensor.view.dtype = known->dtype;
        tensor.view.data = file.data() + tensor.file_offset;
      }
    }
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const GgufTensor &x = file_.tensors_[a], &y = file_.tensors_[b];
      return x.file_offset != y.file_offset ? x.file_offset < y.file_offset : a < b;
    });
    for (size_t i = 1; i < count; ++i) {
      const GgufTensor &before = file_.tensors_[order[i - 1]], &after = file_.tensors_[order[i]];
      if (before.file_offset + std::max<int64_t>(before.bytes, 1) > after.file_offset)
        return in.error_at(info_offsets_[order[i]], "tensors {} and {} overlap: bytes {} to {} and {} to {}",
                           in_quotes(before.name), in_quotes(after.name), before.file_offset,
                           before.file_offset + before.bytes, after.file_offset, after.file_offset + after.bytes);
    }
    return {};
  }

  Status check_split_counts(const std::vector<Part>& parts) {
    const auto count = static_cast<int64_t>(parts.size());
    for (int64_t i = 0; i < count; ++i) {
      const Part& part = parts[static_cast<size_t>(i)];
      const std::string& path = part.reader.path();
      if (part.split_count.value_or(1) != count && !(count == 1 && *part.split_count == 0))
        return invalid_argument("{}: split.count is {}, expected {}", path, part.split_count.value_or(1), count);
      if (count > 1 && part.split_no.value_or(-1) != i)
        return invalid_argument("{}: split.no is {}, expected {}: the file is not the part that its name says", path,
                                part.split_no.value_or(-1), i);
      if (part.split_tensors && count > 1 && *part.split_tensors != static_cast<int64_t>(file_.tensors_.size()))
        return invalid_argument("{}: split.tensors.count is {}, the {} parts hold {} tensors", path,
                                *part.split_tensors, count, file_.tensors_.size());
      for (int64_t j = 0; j < i; ++j) {
        if (file_.files_[i]->same_file(*file_.files_[j]))
          return invalid_argument("{}: is the same file as {}: one links to the other", path, file_.files_[j]->path());
      }
    }
    return {};
  }

  Status refuse_duplicate_tensors() {
    const auto& order = file_.tensors_by_name_;
    for (size_t i = 1; i < order.size(); ++i) {
      const GgufTensor &before = file_.tensors_[order[i - 1]], &after = file_.tensors_[order[i]];
      if (before.name == after.name)
        return invalid_argument("{}: at byte {}: duplicate tensor {}{}", file_.files_[after.part]->path(),
                                info_offsets_[order[i]], in_quotes(after.name),
                                before.part != after.part ? ", first in " + file_.files_[before.part]->path() : "");
    }
    return {};
  }

  GgufFile file_;
  ListBudget budget_;
  std::vector<uint64_t> info_offsets_;  ///< offset of each tensor's entry, for errors
};

Result<GgufFile> GgufFile::from_parts(std::vector<std::shared_ptr<MappedFile>> parts) {
  if (parts.empty()) return invalid_argument("GgufFile::from_parts: no files");
  return GgufParser(std::move(parts)).parse(true);
}

Result<GgufFile> parse_gguf_alone(std::shared_ptr<MappedFile> file) {
  return GgufParser({std::move(file)}).parse(false);
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const KeyValue* entry = find_by_name(metadata_, keys_by_name_, key, key_name);
  return entry == nullptr ? nullptr : &entry->second;
}

const GgufTensor* GgufFile::tensor(std::string_view name) const {
  return find_by_name(tensors_, tensors_by_name_, name, tensor_name);
}

Status GgufFile::require_readable() const {
  for (const GgufTensor& tensor : tensors_) {
    if (tensor.view.data == nullptr)
      return unsupported("{}: tensor {} has type {}, which Redline does not read: quantize the model to another type",
                         files_[tensor.part]->path(), in_quotes(tensor.name), type_label(tensor.gguf_type));
  }
  return {};
}

}  // namespace redline

#include "formats/npy.h"

#include <bit>
#include <charconv>
#include <cstring>

#include "base/mapped_file.h"
#include "formats/byte_reader.h"
#include "tensor/dtype.h"

namespace redline {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read and written as they lie in memory");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxDimensions = 32;  // numpy's limit up to version 1

// Parses the Python dictionary of the header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderText {
 public:
  HeaderText(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Status read(NpyHeader& header, bool& is_fortran) {
    bool has_type = false, has_order = false, has_shape = false;
    if (!take('{')) return wrong("does not begin with {");
    while (!take('}')) {
      std::string key;
      REDLINE_TRY(string(key));
      if (!take(':')) return wrong("has no : after a key");
      if (key == "descr") {
        skip_space();
        if (at_ < text_.size() && text_[at_] != '\'' && text_[at_] != '"')
          return unsupported("{}: a structured array; expected one of float16, float32 and float64", name_);
        REDLINE_TRY(string(header.type));
        has_type = true;
      } else if (key == "fortran_order") {
        is_fortran = word("True");
        if (!is_fortran && !word("False")) return wrong("fortran_order is neither True nor False");
        has_order = true;
      } else if (key == "shape") {
        REDLINE_TRY(shape(header));
        has_shape = true;
      } else {
        return wrong(fmt::format("has an unknown key {}", in_quotes(key)));
      }
      take(',');
    }
    if (!has_type || !has_order || !has_shape) return wrong("lacks one of descr, fortran_order and shape");
    return {};
  }

 private:
  Status wrong(std::string_view what) const { return invalid_argument("{}: the header of .npy {}", name_, what); }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view expected) {
    skip_space();
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }
  Status string(std::string& value) {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') return wrong("lacks a string where one is expected");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return wrong("has a string without an end");
    value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return {};
  }
  Status shape(NpyHeader& header) {
    if (!take('(')) return wrong("has no tuple as the shape");
    while (!take(')')) {
      skip_space();
      int64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0) return wrong("has something else than a size in the shape");
      at_ = static_cast<size_t>(end - text_.data());
      take('L');  // Python 2 long integers
      if (header.shape.size() == kMaxDimensions) return wrong("has too many dimensions");
      header.shape.push_back(size);
      if (__builtin_mul_overflow(header.count, size, &header.count) || header.count >> 62)
        return wrong("has a shape that no memory holds");
      take(',');
    }
    return {};
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

template <class T, class Convert>
Status convert(const NpyHeader& header, const std::string& name, std::vector<float>& values, Convert to_float) {
  if (header.values.size() / sizeof(T) != static_cast<size_t>(header.count) || header.values.size() % sizeof(T) != 0)
    return invalid_argument("{}: {}{} bytes of values, and its shape [{}] of {} has {}", name,
                            header.values.size() / sizeof(T) < static_cast<size_t>(header.count) ? "incomplete: " : "",
                            header.values.size(), fmt::join(header.shape, ", "), header.type,
                            static_cast<uint64_t>(header.count) * sizeof(T));
  values.resize(static_cast<size_t>(header.count));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, header.values.data() + i * sizeof(T), sizeof(T));
    values[i] = to_float(value);
  }
  return {};
}

}  // namespace

Result<NpyHeader> parse_npy_header(std::string_view bytes, const std::string& name) {
  if (!bytes.starts_with(kMagic))
    return invalid_argument("{}: not a .npy file{}", name, looks_like(bytes, static_cast<int64_t>(bytes.size())));
  ByteReader reader(name, bytes);
  std::string_view text;
  uint8_t major = 0, minor = 0;
  REDLINE_TRY(reader.take(kMagic.size(), text, "magic"));
  REDLINE_TRY(reader.read(major, "version"));
  REDLINE_TRY(reader.read(minor, "version"));
  if (major < 1 || major > 3) return unsupported("{}: version {}.{} of .npy; Redline reads 1 to 3", name, major, minor);
  uint32_t header_bytes = 0;
  if (major == 1) {
    uint16_t narrow = 0;
    REDLINE_TRY(reader.read(narrow, "header length"));
    header_bytes = narrow;
  } else {
    REDLINE_TRY(reader.read(header_bytes, "header length"));
  }
  REDLINE_TRY(reader.take(header_bytes, text, "header"));
  NpyHeader header;
  bool is_fortran = false;
  REDLINE_TRY(HeaderText(text, name).read(header, is_fortran));
  if (is_fortran && header.shape.size() > 1)
    return unsupported("{}: in Fortran order; save numpy.ascontiguousarray(x) instead", name);
  header.values = bytes.substr(reader.offset());
  return header;
}

Result<NpyArray> parse_npy(std::string_view bytes, const std::string& name, int64_t max_values) {
  REDLINE_ASSIGN(NpyHeader header, parse_npy_header(bytes, name));
  if (header.count > max_values)
    return invalid_argument("{}: shape [{}], expected at most {} values", name, fmt::join(header.shape, ", "),
                            max_values);
  NpyArray array;
  if (header.type == "<f4") {
    REDLINE_TRY(convert<float>(header, name, array.values, [](float x) { return x; }));
  } else if (header.type == "<f8") {
    REDLINE_TRY(convert<double>(header, name, array.values, [](double x) { return static_cast<float>(x); }));
  } else if (header.type == "<f2") {
    REDLINE_TRY(convert<uint16_t>(header, name, array.values, f16_to_f32));
  } else {
    return unsupported("{}: values of type {}; save x.astype(\"<f4\") instead (float16 and float64 are read too)", name,
                       in_quotes(header.type));
  }
  array.shape = std::move(header.shape);
  return array;
}

Result<NpyArray> read_npy(const std::string& path, int64_t max_values) {
  REDLINE_ASSIGN(const auto file, MappedFile::open(path));
  return parse_npy(file->text(), path, max_values);
}

Result<NpyWriter> NpyWriter::create(const std::string& path, std::span<const int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(count, size, &count))
      return internal("{}: invalid array shape [{}]", path, fmt::join(shape, ", "));
  REDLINE_ASSIGN(OutputFile file, OutputFile::create(path));
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}{}), }}",
                                   fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  // Magic, version and length take 10 bytes; the values begin at a multiple of 64.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string start(kMagic);
  for (size_t byte : {size_t{1}, size_t{0}, header.size() & 0xff, header.size() >> 8}) start += static_cast<char>(byte);
  REDLINE_TRY(file.write(start + header));
  return NpyWriter(std::move(file), count);
}

Status NpyWriter::append(std::span<const float> values) {
  const auto count = static_cast<int64_t>(values.size());
  if (count > left_)
    return internal("{}: {} values are appended, the shape has room for {}", file_.path(), count, left_);
  REDLINE_TRY(file_.write({reinterpret_cast<const char*>(values.data()), values.size_bytes()}));
  left_ -= count;
  return {};
}

Status NpyWriter::close() {
  if (left_ != 0) return internal("{}: {} values of the shape were not appended", file_.path(), left_);
  return file_.close();
}

Status write_npy(const std::string& path, std::span<const int64_t> shape, std::span<const float> values) {
  REDLINE_ASSIGN(NpyWriter writer, NpyWriter::create(path, shape));
  REDLINE_TRY(writer.append(values));
  return writer.close();
}

}  // namespace redline

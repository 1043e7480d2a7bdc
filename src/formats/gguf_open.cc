// Opening a GGUF file by name, with its siblings when it is part of a split.
#include "formats/gguf_parser.h"

namespace redline {
namespace {

/// Split names of llama.cpp: "model-00002-of-00005.gguf", five digits, counted from 1.
constexpr size_t kNumberDigits = 5;
constexpr int64_t kMaxParts = 4096;  // far beyond real models; bounds the files mapped for a hostile count
constexpr std::string_view kOf = "-of-", kSuffix = ".gguf";
constexpr size_t kTailLength = 1 + kNumberDigits + kOf.size() + kNumberDigits + kSuffix.size();

struct SplitName {
  std::string prefix;  ///< including the folder
  int number, count;
};

std::optional<int> five_digits(std::string_view text) {
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

std::optional<SplitName> parse_split_name(const std::string& path) {
  if (path.size() <= kTailLength) return std::nullopt;
  const std::string_view tail = std::string_view(path).substr(path.size() - kTailLength);
  const auto number = five_digits(tail.substr(1, kNumberDigits));
  const auto count = five_digits(tail.substr(1 + kNumberDigits + kOf.size(), kNumberDigits));
  if (tail[0] != '-' || tail.substr(1 + kNumberDigits, kOf.size()) != kOf || !tail.ends_with(kSuffix) || !number ||
      !count)
    return std::nullopt;
  return SplitName{path.substr(0, path.size() - kTailLength), *number, *count};
}

}  // namespace

Result<GgufFile> GgufFile::open(const std::string& path) {
  REDLINE_ASSIGN(auto file, MappedFile::open(path));
  REDLINE_ASSIGN(GgufFile alone, parse_gguf_alone(file));
  const GgufValue* declared = alone.find("split.count");
  const int64_t count = declared == nullptr ? 1 : declared->as_int().value_or(1);
  if (count == 0 || count == 1) return alone;

  const GgufValue* number_value = alone.find("split.no");
  const int64_t number = number_value == nullptr ? -1 : number_value->as_int().value_or(-1);
  if (count < 0 || count > kMaxParts || number < 0 || number >= count)
    return invalid_argument("{}: split.no {} and split.count {} make no sense", path, number, count);
  alone = GgufFile();  // freed for the memory bound; from_parts reads the lists again
  const auto name = parse_split_name(path);
  if (!name)
    return invalid_argument(
        "{}: is part {} of {}, and its name does not end in -{:05}-of-{:05}.gguf: rename it, so that "
        "its other parts are found",
        path, number + 1, count, number + 1, count);
  if (name->number != number + 1 || name->count != count)
    return invalid_argument("{}: is part {} of {} by its metadata, part {} of {} by its name", path, number + 1, count,
                            name->number, name->count);

  std::vector<std::shared_ptr<MappedFile>> parts;
  for (int64_t i = 0; i < count; ++i) {
    if (i == number) {
      parts.push_back(file);
      continue;
    }
    const std::string sibling = fmt::format("{}-{:05}-of-{:05}{}", name->prefix, i + 1, count, kSuffix);
    REDLINE_ASSIGN(auto opened,
                   MappedFile::open(sibling).within(fmt::format("part {} of {} of a split model", i + 1, count)));
    parts.push_back(std::move(opened));
  }
  REDLINE_ASSIGN(GgufFile whole, from_parts(std::move(parts)));
  whole.path_ = path;
  return whole;
}

}  // namespace redline

#include "formats/byte_reader.h"

namespace redline {

std::string in_quotes(std::string_view name, size_t max_length) {
  std::string text = "\"";
  for (const char c : name.substr(0, max_length)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) text += fmt::format("\\x{:02x}", byte);
    else if (c == '"' || c == '\\') (text += '\\') += c;
    else text += c;
  }
  text += name.size() > max_length ? fmt::format("...\" ({} bytes)", name.size()) : "\"";
  return text;
}

std::string looks_like(std::string_view beginning, int64_t file_bytes) {
  const auto starts = [&](std::string_view magic) { return beginning.substr(0, magic.size()) == magic; };
  if (file_bytes == 0) return "; the file is empty";
  if (starts("GGUF")) return "; it looks like a GGUF file";
  if (starts("FUGG")) return "; it looks like a big-endian GGUF file, which Redline does not read";
  if (starts("ggjt") || starts("tjgg") || starts("lmgg") || starts("ggml") || starts("fmgg") || starts("ggmf"))
    return "; it looks like a GGML file from before GGUF: convert the original model with a current llama.cpp";
  if (starts("PK\x03\x04")) return "; it looks like a zip archive (PyTorch writes such files: export as safetensors)";
  if (starts("\x80\x02") || starts("\x80\x04")) return "; it looks like a Python pickle: export as safetensors";
  if (starts("24ka")) return "; it looks like a llama2.c checkpoint of version 1 or 2: export as version 0";
  if (starts("\x1f\x8b")) return "; it looks like a gzip archive: unpack it first";
  if (starts("version https://git-lfs")) return "; it is a Git LFS pointer, not the model: run git lfs pull";
  if (starts("<!DOCTYPE") || starts("<html")) return "; it looks like a web page, perhaps a failed download";
  if (beginning.size() >= 9 && beginning[8] == '{') {
    uint64_t header = 0;
    std::memcpy(&header, beginning.data(), sizeof(header));
    if (header < static_cast<uint64_t>(file_bytes)) return "; it looks like a safetensors file";
  }
  if (starts("{") || starts("[")) return "; it looks like JSON";
  return "";
}

}  // namespace redline

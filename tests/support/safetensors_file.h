// A safetensors file taken apart, or in the making: its header as JSON, then the data.
#pragma once

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace redline::testing {

struct SafetensorsFile {
  nlohmann::json header = nlohmann::json::object();
  std::string data;

  /// The header is not an object where there is no such file.
  static SafetensorsFile read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    uint64_t header_bytes = 0;
    if (bytes.size() < sizeof(header_bytes)) return {nullptr, {}};
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    if (header_bytes > bytes.size() - sizeof(header_bytes)) return {nullptr, {}};
    return {nlohmann::json::parse(bytes.substr(sizeof(header_bytes), header_bytes), nullptr, false),
            bytes.substr(sizeof(header_bytes) + header_bytes)};
  }
  void write(const std::string& path) const {
    std::string text = header.dump();
    while (text.size() % 8 != 0) text += ' ';
    const uint64_t header_bytes = text.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
    file << text << data;
  }

  void add(const std::string& name, const char* type, const std::vector<int64_t>& shape, const void* bytes,
           size_t size) {
    const size_t begin = data.size();
    data.append(static_cast<const char*>(bytes), size);
    header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {begin, begin + size}}};
  }
  /// Where a tensor's bytes begin.
  const char* bytes_of(const std::string& name) const {
    return data.data() + header[name]["data_offsets"][0].get<size_t>();
  }
  void rename(const std::string& from, const std::string& to) {
    header[to] = header[from];
    header.erase(from);
  }
};

}  // namespace redline::testing

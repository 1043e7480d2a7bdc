#include "runtime/device_record.h"

#include <nlohmann/json.hpp>

#include "base/cache_folder.h"
#include "base/json_text.h"
#include "base/mapped_file.h"

namespace redline {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kName = "devices";
constexpr int64_t kMaxOwnRows = int64_t{1} << 40;

/// Returns all records; an empty list if the file is missing or is not a list.
Json read_all(const std::string& folder) {
  const Result<std::string> text = read_text_file(cache_path(folder, kName), int64_t{1} << 20);
  Json all = text.ok() ? parse_json_or_discard<Json>(*text) : Json();
  return all.is_array() ? all : Json::array();
}

bool is_of(const Json& each, const std::string& model, const std::string& library) {
  return each.is_object() && each.contains("model") && each["model"] == model && each.contains("library") &&
         each["library"] == library;
}

}  // namespace

std::optional<DeviceRecord> read_device_record(const std::string& folder, const std::string& model,
                                               const std::string& library) {
  if (folder.empty()) return std::nullopt;
  for (const Json& each : read_all(folder)) {
    if (!is_of(each, model, library)) continue;
    const auto rows = each.find("own_rows");
    if (rows == each.end() || !rows->is_number_integer() || *rows < 0 || *rows > kMaxOwnRows) return std::nullopt;
    return DeviceRecord{model, library, rows->get<int64_t>()};
  }
  return std::nullopt;
}

Result<std::string> write_device_record(const std::string& folder, const DeviceRecord& record) {
  if (folder.empty()) return unsupported("there is no cache folder for the record (REDLINE_CACHE_DIR)");
  Json all = Json::array();
  for (const Json& each : read_all(folder))
    if (!is_of(each, record.model, record.library)) all.push_back(each);
  all.push_back({{"model", record.model}, {"library", record.library}, {"own_rows", record.own_rows}});
  const std::string text = all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  REDLINE_ASSIGN(CacheWriter writer, CacheWriter::create(folder, kName));
  REDLINE_TRY(writer.write(text.data(), std::ssize(text), 0));
  REDLINE_TRY(writer.commit());
  return cache_path(folder, kName);
}

}  // namespace redline

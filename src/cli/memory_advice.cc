#include "cli/memory_advice.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "cli/file_report.h"
#include "cli/table.h"
#include "models/files/random_model.h"
#include "models/registry.h"

namespace redline::cli {
namespace {

/// Reads a file of /proc or /sys, which has no size and cannot be mapped. Returns "" if it cannot be read.
std::string system_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Returns the value of `key` in a file of lines "key number"; nullopt: the key is missing.
std::optional<int64_t> number_in_file(const std::string& path, std::string_view key) {
  const std::string text = system_file(path);
  const size_t at = text.find(key);
  if (at == std::string::npos) return std::nullopt;
  const size_t digits = text.find_first_of("0123456789", at + key.size());
  if (digits == std::string::npos || digits > text.find('\n', at)) return std::nullopt;
  return std::atoll(text.c_str() + digits);
}

/// Returns the memory that the control group of this process leaves. File pages that it can drop count as free.
std::optional<int64_t> left_in_group() {
  const std::string groups = system_file("/proc/self/cgroup");
  if (!groups.starts_with("0::")) return std::nullopt;
  const std::string folder = "/sys/fs/cgroup" + groups.substr(3, groups.find('\n') - 3);
  const auto limit = number_in_file(folder + "/memory.max", ""), used = number_in_file(folder + "/memory.current", "");
  if (!limit || !used) return std::nullopt;
  return *limit - *used + number_in_file(folder + "/memory.stat", "inactive_file ").value_or(0) +
         number_in_file(folder + "/memory.stat", "active_file ").value_or(0);
}

std::optional<int64_t> left_of_addresses() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const int64_t pages = number_in_file("/proc/self/statm", "").value_or(0);
  return static_cast<int64_t>(limit.rlim_cur) - pages * sysconf(_SC_PAGESIZE);
}

std::string size_text(int64_t bytes) { return human_bytes(static_cast<double>(std::max<int64_t>(0, bytes))); }

struct Weights {
  int64_t bytes = 0, parameters = 0;
};
/// Reads the sizes of a model's weights. Values that cannot be read are 0.
Weights weights_of(const std::string& path) {
  Weights weights;
  if (is_random_model(path)) {
    const Result<RandomModelSpec> spec = parse_random_model(path);
    if (!spec.ok()) return weights;
    weights.parameters = count_parameters(*spec);
    weights.bytes = row_bytes(spec->dtype, weights.parameters);  // vectors, which are f32, are few
    return weights;
  }
  const Result<FileKind> kind = detect_file_kind(path);
  if (!kind.ok()) return weights;
  const Result<FileReport> report = read_file_report(path, *kind);
  if (!report.ok()) return weights;
  for (const FileReport::TypeTotal& total : report->totals()) {
    weights.bytes += total.bytes;
    weights.parameters += total.elements;
  }
  return weights;
}

/// Returns the memory that is left besides the file and its packed form, and the stacks and scratch of the threads.
int64_t beside_weights(int64_t available, int64_t weights) { return available - 2 * weights - (int64_t{128} << 20); }

/// Returns the size of a file, or of all files in a folder.
int64_t file_bytes(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    const uintmax_t bytes = std::filesystem::file_size(path, error);
    return error ? 0 : static_cast<int64_t>(bytes);
  }
  int64_t sum = 0;
  for (std::filesystem::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    if (it->is_regular_file(error)) sum += static_cast<int64_t>(it->file_size(error));
  return sum;
}

}  // namespace

int64_t weight_bytes_of(const std::string& path) { return weights_of(path).bytes; }

int64_t available_memory() {
  constexpr int64_t kKilobyte = 1024;
  int64_t least = std::numeric_limits<int64_t>::max();
  if (const auto machine = number_in_file("/proc/meminfo", "MemAvailable:")) least = *machine * kKilobyte;
  for (const auto& left : {left_in_group(), left_of_addresses()})
    if (left) least = std::min(least, *left);
  return std::max<int64_t>(0, least);
}

std::string memory_warning(const std::string& path, int64_t weight_bytes, int64_t parameters, int64_t available) {
  if (weight_bytes <= available) return "";
  constexpr double kBytesOfFourBits = 18.0 / 32;  // bytes of a q4_0 weight
  const auto quantized = static_cast<int64_t>(static_cast<double>(parameters) * kBytesOfFourBits);
  return fmt::format("{}: its weights take {}, and {} of memory are available: the system may end this program; {}",
                     path, size_text(weight_bytes), size_text(available),
                     quantized < available ? fmt::format("at 4 bits (q4_0) they would take {}", size_text(quantized))
                                           : "a smaller model fits");
}

std::string memory_warning(const std::string& path) {
  const int64_t available = available_memory();
  // The header is read only if a message is needed.
  if (!is_random_model(path) && file_bytes(path) <= available) return "";
  const Weights weights = weights_of(path);
  return memory_warning(path, weights.bytes, weights.parameters, available);
}

std::string image_memory_warning(int64_t arena, const ImageOptions& options, int64_t images, int64_t width,
                                 int64_t height, int64_t available) {
  constexpr double kBranches = 2;  // guidance branches
  constexpr int64_t kUnit = 64;
  const double area = static_cast<double>(width) * static_cast<double>(height);
  const double most = static_cast<double>(options.max_side) * static_cast<double>(options.max_side);
  const double rows = kBranches * static_cast<double>(images) / static_cast<double>(options.max_batch);
  const double taken = static_cast<double>(arena) * area / most * std::min(rows, 1.0);
  if (taken <= static_cast<double>(available)) return "";
  const auto side = static_cast<int64_t>(std::sqrt(area * static_cast<double>(available) / taken)) / kUnit * kUnit;
  return fmt::format("{}x{} pixels take up to {}, and {} of memory are available: the system may end this program{}",
                     width, height, human_bytes(taken), size_text(available),
                     side > 0 ? fmt::format("; --size {}x{} fits", side, side) : "");
}

Status advise_text_memory(Status status, const std::string& path, int64_t context) {
  if (status.code() != Code::out_of_memory) return status;
  const int64_t available = available_memory();
  std::string advice = fmt::format("; {} are available", size_text(available));
  // Opening a random model makes all its weights.
  if (is_random_model(path)) return Status(status.code(), status.message() + advice);
  if (const Result<Checkpoint> checkpoint = Checkpoint::open(path); checkpoint.ok()) {
    const auto model = build_language_model(*checkpoint);
    const int64_t weights = weights_of(path).bytes;
    constexpr int64_t kTokenUnit = 256;
    const int64_t left = beside_weights(available, weights);
    const int64_t per_token = model.ok() ? 2 * model->config.num_layers * model->config.num_kv_heads *
                                               model->config.head_dim * static_cast<int64_t>(sizeof(float))
                                         : 0;
    const int64_t fitting = per_token > 0 ? left / per_token / kTokenUnit * kTokenUnit : 0;
    const int64_t wanted = context > 0 ? context : model.ok() ? model->config.max_positions : 0;
    if (fitting > 0 && fitting < wanted) advice += fmt::format("; --context {} fits", fitting);
    else if (fitting <= 0 && weights > 0)
      advice += fmt::format(", and the weights alone take {}: a smaller model fits", size_text(weights));
  } else {
    advice += "; a smaller model fits";
  }
  return Status(status.code(), status.message() + advice);
}

Status advise_image_memory(Status status, const std::string& path, const ImageOptions& options, int64_t width,
                           int64_t height) {
  if (status.code() == Code::out_of_device_memory)
    return Status(status.code(),
                  status.message() +
                      (options.dtype == Precision::kQ8
                           ? fmt::format("; --max-side below {} takes less", options.max_side)
                           : fmt::format("; --dtype q8 takes less; so does --max-side below {}", options.max_side)));
  if (status.code() != Code::out_of_memory) return status;
  const int64_t available = available_memory();
  std::string advice = fmt::format("; {} are available", size_text(available));
  // Memory grows with the area; the network that failed has at least a tenth of it.
  const std::string& message = status.message();
  const size_t end = message.find(" bytes cannot be allocated");
  const size_t begin = end == std::string::npos ? end : message.find_last_not_of("0123456789", end - 1) + 1;
  int64_t wanted = 0;
  if (end != std::string::npos) std::from_chars(message.data() + begin, message.data() + end, wanted);
  if (wanted > 0) {
    constexpr double kNetworks = 10;
    constexpr int64_t kUnit = 64;
    const double left = static_cast<double>(std::max<int64_t>(0, beside_weights(available, weights_of(path).bytes)));
    const double share = left / (kNetworks * static_cast<double>(wanted));
    const int64_t fitting =
        static_cast<int64_t>(static_cast<double>(options.max_side) * std::sqrt(share)) / kUnit * kUnit;
    const int64_t side = std::max(width, height);
    if (fitting >= options.max_side || fitting <= 0) advice += "; a smaller model fits";
    else if (side > fitting) advice += fmt::format("; --size {}x{} --max-side {} fits", fitting, fitting, fitting);
    else advice += fmt::format("; --max-side {} fits", std::max(side, fitting));
  }
  return Status(status.code(), message + advice);
}

}  // namespace redline::cli

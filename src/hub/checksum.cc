#include "hub/checksum.h"

#include <fcntl.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/ascii.h"
#include "base/descriptor.h"

namespace redline {

struct FileChecksum::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

FileChecksum::FileChecksum(std::string_view expected, int64_t bytes)
    : state_(std::make_unique<State>()), expected_(ascii_lower(expected)) {
  constexpr size_t kSha256Digits = 64, kSha1Digits = 40;
  const bool is_hex = std::all_of(expected_.begin(), expected_.end(), [](char c) { return hex_digit(c) >= 0; });
  if (!is_hex || (expected_.size() != kSha256Digits && expected_.size() != kSha1Digits)) expected_.clear();
  if (expected_.empty()) return;
  const bool is_git_blob = expected_.size() == kSha1Digits;
  EVP_DigestInit_ex(state_->context, is_git_blob ? EVP_sha1() : EVP_sha256(), nullptr);
  if (!is_git_blob) return;
  std::string head = fmt::format("blob {}", bytes);
  head += '\0';
  add(head);
}

FileChecksum::~FileChecksum() = default;

void FileChecksum::add(std::string_view bytes) {
  if (!expected_.empty()) EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

Status FileChecksum::add_file(const std::string& path, int64_t bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::vector<char> buffer(size_t{1} << 20);
  while (bytes > 0) {
    const auto wanted = static_cast<size_t>(std::min<int64_t>(bytes, std::ssize(buffer)));
    const ssize_t got = file.get() < 0 ? -1 : ::read(file.get(), buffer.data(), wanted);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return io("{}: reading failed: {}", path, got == 0 ? "it is too short" : std::strerror(errno));
    add({buffer.data(), static_cast<size_t>(got)});
    bytes -= got;
  }
  return {};
}

bool FileChecksum::matches() {
  if (expected_.empty()) return true;
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(state_->context, digest, &size);
  for (unsigned i = 0; i < size; ++i) actual_ += fmt::format("{:02x}", digest[i]);
  return actual_ == expected_;
}

}  // namespace redline

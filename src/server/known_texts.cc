#include "server/known_texts.h"

#include <algorithm>

#include "base/error.h"

namespace redline::server {
namespace {

/// The FNV-1a hash, which gives the hashes of all beginnings of a text in one pass. Texts with equal hashes are then
/// compared.
constexpr uint64_t kFnvBasis = 0xcbf29ce484222325u;
uint64_t extend_hash(uint64_t hash, std::string_view bytes) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// Returns true for a control token, which has a name and no text.
bool is_control(const TextEngine& engine, int32_t token) {
  const auto as_text = engine.decode(std::span(&token, 1)), as_name = engine.decode(std::span(&token, 1), true);
  return as_text.ok() && as_text->empty() && as_name.ok() && !as_name->empty();
}

}  // namespace

void KnownTexts::remove(Entries::iterator entry) {
  bytes_ -= entry->bytes();
  if (const auto length = lengths_.find(entry->text.size()); --length->second == 0) lengths_.erase(length);
  by_hash_.erase(entry->hash);
  entries_.erase(entry);
}

void KnownTexts::clear() {
  const std::lock_guard lock(mutex_);
  while (!entries_.empty()) remove(entries_.begin());
}

void KnownTexts::add(const std::string& scope, std::string text, std::vector<int32_t> tokens) {
  if (text.empty() || tokens.empty()) return;
  Entry entry{scope, std::move(text), std::make_shared<const std::vector<int32_t>>(std::move(tokens))};
  entry.hash = extend_hash(extend_hash(kFnvBasis, scope), entry.text);
  if (entry.bytes() > max_bytes_) return;
  const std::lock_guard lock(mutex_);
  if (const auto known = by_hash_.find(entry.hash); known != by_hash_.end()) remove(known->second);
  bytes_ += entry.bytes();
  ++lengths_[entry.text.size()];
  entries_.push_front(std::move(entry));
  by_hash_[entries_.front().hash] = entries_.begin();
  while (bytes_ > max_bytes_) remove(std::prev(entries_.end()));
}

std::vector<KnownTexts::Known> KnownTexts::beginnings(const std::string& scope, std::string_view text) {
  std::vector<Known> found;
  const std::lock_guard lock(mutex_);
  uint64_t hash = extend_hash(kFnvBasis, scope);
  size_t at = 0;
  for (const auto& [length, count] : lengths_) {
    if (length > text.size()) break;
    hash = extend_hash(hash, text.substr(at, length - at));
    at = length;
    const auto known = by_hash_.find(hash);
    if (known == by_hash_.end()) continue;
    const Entries::iterator entry = known->second;
    if (entry->scope != scope || entry->text != text.substr(0, length)) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    found.push_back({length, entry->tokens});
  }
  std::reverse(found.begin(), found.end());
  return found;
}

Result<std::vector<int32_t>> KnownTexts::encode(const TextEngine& engine, const std::string& scope,
                                                std::string_view text, bool add_bos, const EncodeLimits& limits) {
  constexpr size_t kMaxTriedBytes = size_t{1} << 20;  // limit of work, because each try encodes the rest of the text
  size_t tried_bytes = 0;
  for (const Known& known : beginnings(scope, text)) {
    if (known.length == text.size()) return *known.tokens;
    if (tried_bytes > kMaxTriedBytes) break;
    tried_bytes += text.size() - known.length;
    REDLINE_ASSIGN(const std::vector<int32_t> rest, engine.encode(text.substr(known.length), true, false, limits));
    if (rest.empty() || !is_control(engine, rest[0])) continue;
    std::vector<int32_t> tokens = *known.tokens;
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    return tokens;
  }
  return engine.encode(text, true, add_bos, limits);
}

}  // namespace redline::server

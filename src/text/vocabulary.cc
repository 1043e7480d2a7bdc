#include "text/vocabulary.h"

#include <functional>

namespace redline {
namespace {

size_t hash_of(std::string_view text) { return std::hash<std::string_view>{}(text); }

uint64_t mix(uint64_t x) {  // the finaliser of SplitMix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace

void PieceIndex::grow(const std::vector<std::string>& pieces) {
  std::vector<TokenId> old(std::max<size_t>(64, slots_.size() * 2), -1);
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const TokenId id : old) {
    if (id < 0) continue;
    size_t slot = hash_of(pieces[id]) & mask;
    while (slots_[slot] >= 0) slot = (slot + 1) & mask;
    slots_[slot] = id;
  }
}

bool PieceIndex::insert(const std::vector<std::string>& pieces, TokenId id) {
  if (size_ * 2 >= slots_.size()) grow(pieces);
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_of(pieces[id]) & mask;
  for (; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    if (pieces[slots_[slot]] == pieces[id]) return false;
  }
  slots_[slot] = id;
  ++size_;
  return true;
}

TokenId PieceIndex::find(const std::vector<std::string>& pieces, std::string_view piece) const {
  if (slots_.empty()) return -1;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash_of(piece) & mask; slots_[slot] >= 0; slot = (slot + 1) & mask) {
    if (pieces[slots_[slot]] == piece) return slots_[slot];
  }
  return -1;
}

void Vocabulary::build_index() {
  types.resize(pieces.size(), TokenType::normal);
  index = PieceIndex();
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!pieces[id].empty()) index.insert(pieces, static_cast<TokenId>(id));
  }
}

int byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

int32_t PrefixMatcher::child(int32_t node, uint8_t byte) const {
  if (edges_.empty()) return -1;
  const uint64_t key = ((static_cast<uint64_t>(node) << 8) | byte) + 1;
  const size_t mask = edges_.size() - 1;
  for (size_t slot = mix(key) & mask; edges_[slot].key != 0; slot = (slot + 1) & mask) {
    if (edges_[slot].key == key) return edges_[slot].to;
  }
  return -1;
}

void PrefixMatcher::add_child(int32_t node, uint8_t byte, int32_t to) {
  const auto put = [&](Edge edge) {
    const size_t mask = edges_.size() - 1;
    size_t slot = mix(edge.key) & mask;
    while (edges_[slot].key != 0) slot = (slot + 1) & mask;
    edges_[slot] = edge;
  };
  if (num_edges_ * 2 >= edges_.size()) {
    std::vector<Edge> old(std::max<size_t>(64, edges_.size() * 2));
    old.swap(edges_);
    for (const Edge& edge : old) {
      if (edge.key != 0) put(edge);
    }
  }
  put({((static_cast<uint64_t>(node) << 8) | byte) + 1, to});
  ++num_edges_;
}

Status PrefixMatcher::insert(std::string_view text, int32_t value) {
  if (text.empty()) return invalid_argument("a token to be found in text is empty");
  if (text.size() > kMaxBytes) {
    return invalid_argument("a token to be found in text has {} bytes, at most {} are allowed: \"{}...\"", text.size(),
                            kMaxBytes, text.substr(0, 40));
  }
  int32_t node = 0;
  for (const char c : text) {
    int32_t next = child(node, static_cast<uint8_t>(c));
    if (next < 0) {
      next = static_cast<int32_t>(values_.size());
      values_.push_back(-1);
      add_child(node, static_cast<uint8_t>(c), next);
    }
    node = next;
  }
  if (values_[node] < 0) values_[node] = value;
  starts_[static_cast<uint8_t>(text[0])] = true;
  return {};
}

PrefixMatcher::Match PrefixMatcher::longest_at(std::string_view text, size_t pos) const {
  Match best;
  if (!starts_[static_cast<uint8_t>(text[pos])]) return best;
  int32_t node = 0;
  for (size_t i = pos; i < text.size(); ++i) {
    node = child(node, static_cast<uint8_t>(text[i]));
    if (node < 0) break;
    if (values_[node] >= 0) best = {values_[node], i + 1 - pos};
  }
  return best;
}

}  // namespace redline
